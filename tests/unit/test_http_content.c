/* Contents of messages as text: several texts in one, and parts that are no text. */
#include "client/http/api/anthropic.h"
#include "client/http/api/ollama.h"
#include "client/http/api/openai.h"
#include "client/http/api/openai_responses.h"
#include "chat/message.h"
#include "http_ask_cases.h"

#include <stdio.h>

/* Bodies are written with ' for ". */
static const char *json(const char *quoted)
{
    static char text[2048];
    size_t n = strlen(quoted);
    assert_true(n < sizeof text);
    for (size_t i = 0; i <= n; i++)
        text[i] = quoted[i] == '\'' ? '"' : quoted[i];
    return text;
}

static void expect_turn(const struct ask *a, size_t i, const char *role, const char *content)
{
    const json_t *message = json_array_get(a->messages, i);
    assert_string_equal(json_string_value(json_object_get(message, "role")), role);
    const json_t *given = json_object_get(message, "content");
    if (json_is_array(given)) { /* the template joins them */
        json_t *text = message_join_parts(given, "\n");
        assert_string_equal(json_string_value(text), content);
        json_decref(text);
        return;
    }
    assert_string_equal(json_string_value(given), content);
}

#define A       "{'type':'text','text':'a'}"
#define B       "{'type':'text','text':'b'}"
#define INPUTS  "[{'type':'input_text','text':'a'},{'type':'input_text','text':'b'}]"
#define OUTPUTS "[{'type':'output_text','text':'a'},{'type':'output_text','text':'b'}]"

/* Newlines separate texts, but what the assistant wrote stays one text. */
static void test_several_texts(void **state)
{
    static const struct {
        parser *parse;
        const char *body;
    } cases[] = {
        {parse_chat, "{'messages':[{'role':'developer','content':[" A "," B "]},"
                     "{'role':'assistant','content':[" A "," B "]},"
                     "{'role':'tool','content':[" A "," B "]},"
                     "{'role':'user','content':[" A "," B "]}]}"},
        {parse_message, "{'max_tokens':5,'system':[" A "," B "],'messages':["
                        "{'role':'assistant','content':[" A "," B "]},"
                        "{'role':'user','content':[{'type':'tool_result','tool_use_id':'c',"
                        "'content':[" A "," B "]}," A "," B "]}]}"},
        {parse_response, "{'instructions':" INPUTS ",'input':["
                         "{'role':'assistant','content':" OUTPUTS "},"
                         "{'type':'function_call_output','call_id':'c','output':" INPUTS "},"
                         "{'role':'user','content':" INPUTS "}]}"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct ask a = accept(cases[i].parse, json(cases[i].body));
        assert_int_equal(json_array_size(a.messages), 4);
        expect_turn(&a, 0, "system", "a\nb");
        expect_turn(&a, 1, "assistant", "ab");
        expect_turn(&a, 2, "tool", "a\nb");
        expect_turn(&a, 3, "user", "a\nb");
        ask_fini(&a);
    }
}

/* A line of Claude Code's that differs from request to request is no part of the prompt. */
static void test_attribution(void **state)
{
#define LINE  "{'type':'text','text':'x-anthropic-billing-header: cc_version=2.1.36; cch=1a2b3;'}"
#define ASKED ",'max_tokens':5,'messages':[{'role':'user','content':'a'}]}"
    struct ask a = accept(parse_message, json("{'system':[" LINE "," A "," B "]" ASKED));
    expect_turn(&a, 0, "system", "a\nb");
    ask_fini(&a);
    a = accept(parse_message, json("{'system':[" LINE "]" ASKED));
    expect_turn(&a, 0, "user", "a");
    ask_fini(&a);
    /* a gateway may have joined the blocks */
    a = accept(parse_message, json("{'system':'x-anthropic-billing-header: c\\na\\nb'" ASKED));
    expect_turn(&a, 0, "system", "a\nb");
    ask_fini(&a);
    a = accept(parse_message, json("{'system':[{'type':'text','text':'x-anthropic-billing-header: "
                                   "c\\na'}," B "]" ASKED));
    expect_turn(&a, 0, "system", "a\nb");
    ask_fini(&a);
    a = accept(parse_message, json("{'system':'of x-anthropic-billing-header: c'" ASKED));
    expect_turn(&a, 0, "system", "of x-anthropic-billing-header: c");
    ask_fini(&a);
}

#define OMITTED(what) "[" what " omitted: this model reads text only]"

/* An image of an earlier turn, or of a tool, does not end the conversation. */
static void test_images_before_the_question(void **state)
{
    static const struct {
        parser *parse;
        const char *body;
    } cases[] = {
        {parse_chat, "{'messages':[{'role':'user','content':[" A ",{'type':'image_url'}]},"
                     "{'role':'user','content':[" B "]},"
                     "{'role':'tool','content':[{'type':'image_url'}]}]}"},
        {parse_message, "{'max_tokens':5,'messages':["
                        "{'role':'user','content':[" A ",{'type':'image'}]},"
                        "{'role':'user','content':[" B ",{'type':'tool_result',"
                        "'tool_use_id':'c','content':[{'type':'image'}]}]}]}"},
        {parse_response, "{'input':[{'role':'user','content':["
                         "{'type':'input_text','text':'a'},{'type':'input_image'}]},"
                         "{'role':'user','content':'b'},{'type':'function_call_output',"
                         "'call_id':'c','output':[{'type':'input_image'}]}]}"},
        {parse_ollama_chat, "{'messages':[{'role':'user','content':'a','images':['x']},"
                            "{'role':'user','content':'b'},"
                            "{'role':'tool','content':'','images':['x']}]}"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct ask a = accept(cases[i].parse, json(cases[i].body));
        expect_turn(&a, 0, "user", "a\n" OMITTED("image"));
        expect_turn(&a, 1, "user", "b");
        expect_turn(&a, 2, "tool", OMITTED("image"));
        ask_fini(&a);
    }
}

static void test_images_of_the_question(void **state)
{
    refuse(parse_chat,
           json("{'messages':[{'role':'user','content':[" A ",{'type':'image_url'}]},"
                "{'role':'assistant','content':'b'}]}"),
           "messages");
    refuse(parse_message,
           json("{'max_tokens':5,'messages':[{'role':'user','content':[" A ",{'type':'document',"
                "'source':{'type':'base64','data':'x'}}]}]}"),
           "messages");
    refuse(parse_response, json("{'input':[{'role':'user','content':[{'type':'input_image'}]}]}"),
           "input");
    refuse(parse_ollama_chat, json("{'messages':[{'role':'user','content':'a','images':['x']}]}"),
           "messages");
}

/* Anthropic's blocks, in a tool's result and in an earlier turn. */
static void test_other_blocks(void **state)
{
    static const char *const cases[][2] = {
        {"{'type':'document','title':'T','source':{'type':'text','data':'D'}}", "T\nD"},
        {"{'type':'document','source':{'type':'content','content':[" A ",{'type':'image'}]}}",
         "a\n" OMITTED("image")},
        {"{'type':'document','source':{'type':'base64','data':'D'}}", OMITTED("document")},
        {"{'type':'search_result','source':'U','title':'T','content':[" A "]}", "T\na"},
        {"{'type':'tool_reference','tool_name':'now'}", "[tool now]"},
        {"{'type':'text_hologram'}", OMITTED("text_hologram")},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char body[1024];
        snprintf(body, sizeof body,
                 "{'max_tokens':5,'messages':[{'role':'user','content':[{'type':'tool_result',"
                 "'tool_use_id':'c','content':[%s]}]},{'role':'user','content':[%s]},"
                 "{'role':'user','content':'a'}]}",
                 cases[i][0], cases[i][0]);
        struct ask a = accept(parse_message, json(body));
        expect_turn(&a, 0, "tool", cases[i][1]);
        expect_turn(&a, 1, "user", cases[i][1]);
        ask_fini(&a);
    }
    struct ask a =
        accept(parse_message, json("{'max_tokens':5,'messages':[{'role':'user','content':[{'type':"
                                   "'document','source':{'type':'text','data':'D'}}]}]}"));
    expect_turn(&a, 0, "user", "D");
    ask_fini(&a);
}

/* Reasoning that clients send back as parts of an answer. */
static void test_reasoning_in_parts(void **state)
{
    static const char *const parts[] = {
        "{'type':'thinking','thinking':'r'}",
        "{'type':'thinking','thinking':[{'type':'text','text':'r'}]}",
        "{'type':'reasoning','text':'r'}",
        "{'type':'reasoning','reasoning':'r'}",
        "{'type':'redacted_thinking','data':'x'},{'type':'thinking','thinking':'r'}",
    };
    char body[512];
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        snprintf(body, sizeof body,
                 "{'messages':[{'role':'user','content':'q'},{'role':'assistant','content':[%s," A
                 "]},{'role':'user','content':'p'}]}",
                 parts[i]);
        struct ask a = accept(parse_chat, json(body));
        expect_turn(&a, 1, "assistant", "a");
        const json_t *turn = json_array_get(a.messages, 1);
        assert_string_equal(json_string_value(json_object_get(turn, "reasoning_content")), "r");
        ask_fini(&a);
    }
    struct ask a =
        accept(parse_chat,
               json("{'messages':[{'role':'user','content':'q'},{'role':'assistant',"
                    "'reasoning':'s','content':[{'type':'thinking','thinking':'r'}," A "]}]}"));
    const json_t *turn = json_array_get(a.messages, 1);
    assert_string_equal(json_string_value(json_object_get(turn, "reasoning_content")), "s");
    ask_fini(&a);
}

/* Items of Responses that other servers' tools left in a conversation. */
static void test_other_items(void **state)
{
    struct ask a = accept(
        parse_response,
        json("{'input':[{'role':'user','content':'q'},"
             "{'type':'reasoning','content':[{'type':'reasoning_text','text':'r'}]},"
             "{'type':'web_search_call','status':'completed'},{'type':'mcp_call','output':'x'},"
             "{'role':'assistant','content':'b'},{'role':'user','content':'p'},"
             "{'type':'custom_tool_call','call_id':'c','name':'patch','input':'a\\nb'},"
             "{'type':'local_shell_call','call_id':'d'},"
             "{'type':'custom_tool_call_output','call_id':'c','output':'done'},"
             "{'type':'compaction','encrypted_content':'e'},{'role':'user','content':'a'}]}"));
    assert_int_equal(json_array_size(a.messages), 7);
    expect_turn(&a, 1, "assistant", OMITTED("web_search_call") "\n" OMITTED("mcp_call") "\nb");
    expect_turn(&a, 3, "assistant", OMITTED("local_shell_call"));
    const json_t *call =
        json_array_get(json_object_get(json_array_get(a.messages, 3), "tool_calls"), 0);
    const json_t *function = json_object_get(call, "function");
    assert_string_equal(json_string_value(json_object_get(function, "name")), "patch");
    assert_string_equal(json_string_value(json_object_get(function, "arguments")),
                        "{\"input\":\"a\\nb\"}");
    expect_turn(&a, 4, "tool", "done");
    assert_string_equal(json_string_value(json_object_get(json_array_get(a.messages, 4), "name")),
                        "patch");
    expect_turn(&a, 5, "assistant", OMITTED("compaction"));
    expect_turn(&a, 6, "user", "a");
    ask_fini(&a);
    refuse(parse_response, json("{'input':[{'type':'item_reference','id':'msg_1'}]}"), "input");
    refuse(parse_response, json("{'input':[{'type':1}]}"), "input");
    refuse(parse_response, json("{'input':[{'type':'custom_tool_call','call_id':'c','name':'f'}]}"),
           "input");
    refuse(parse_response, json("{'input':[{'type':'custom_tool_call_output'}]}"), "input");
}

/* Malformed is malformed, wherever it stands. */
static void test_texts_without_text(void **state)
{
    refuse(parse_message,
           json("{'max_tokens':5,'messages':[{'role':'user','content':[{'type':'text'}]},"
                "{'role':'user','content':'a'}]}"),
           "messages");
    refuse(parse_message,
           json("{'max_tokens':5,'messages':[{'role':'assistant','content':["
                "{'type':'thinking'}]},{'role':'user','content':'a'}]}"),
           "messages");
    refuse(parse_chat, json("{'messages':[{'role':'tool','content':[1]}]}"), "messages");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_several_texts),
        cmocka_unit_test(test_attribution),
        cmocka_unit_test(test_images_before_the_question),
        cmocka_unit_test(test_images_of_the_question),
        cmocka_unit_test(test_other_blocks),
        cmocka_unit_test(test_reasoning_in_parts),
        cmocka_unit_test(test_other_items),
        cmocka_unit_test(test_texts_without_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
