/* Requests of the HTTP APIs: tools, calls of them in a conversation, and the answer's form. */
#include "client/http/api/anthropic.h"
#include "client/http/api/loose_schemas.h"
#include "client/http/api/messages.h"
#include "client/http/api/ollama.h"
#include "client/http/api/openai.h"
#include "client/http/api/openai_responses.h"
#include "client/http/api/structure.h"
#include "chat/tool_messages.h"
#include "grammar_texts.h"
#include "http_ask_cases.h"

#include <stdlib.h>

#define NOW "{\"type\":\"function\",\"function\":{\"name\":\"now\"}}"

static void test_tools(void **state)
{
    struct ask a = accept(parse_chat, CHAT(",\"tools\":[" NOW "],\"tool_choice\":{\"type\":"
                                           "\"function\",\"function\":{\"name\":\"now\"}},"
                                           "\"parallel_tool_calls\":false"));
    assert_int_equal(tool_list_count(a.tool_list), 1);
    assert_int_equal(a.calls, CALLS_NAMED);
    assert_string_equal(a.call_name, "now");
    assert_true(a.one_call);
    ask_fini(&a);
    a = accept(parse_chat, CHAT(",\"tools\":[" NOW "],\"tool_choice\":\"none\""));
    assert_null(a.tools);
    assert_null(a.tool_list);
    ask_fini(&a);
    a = accept(parse_message,
               "{\"max_tokens\":5,\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],"
               "\"tools\":[{\"name\":\"now\",\"input_schema\":{\"type\":\"object\"},"
               "\"strict\":true}],\"tool_choice\":{\"type\":\"any\","
               "\"disable_parallel_tool_use\":true}}");
    assert_true(tool_list_at(a.tool_list, 0)->strict && tool_list_at(a.tool_list, 0)->parameters);
    assert_int_equal(a.calls, CALLS_REQUIRED);
    assert_true(a.one_call);
    ask_fini(&a);
    a = accept(parse_response,
               "{\"input\":\"a\",\"tools\":[{\"type\":\"function\",\"name\":\"now\","
               "\"parameters\":{},\"strict\":false}],\"tool_choice\":\"required\"}");
    assert_string_equal(tool_list_at(a.tool_list, 0)->name, "now");
    ask_fini(&a);
    static const char *const wrong[][2] = {
        {CHAT(",\"tools\":{}"), "tools"},
        {CHAT(",\"tools\":[{\"type\":\"web_search\"}]"), "tools"},
        {CHAT(",\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"a b\"}}]"), "tools"},
        {CHAT(",\"tools\":[" NOW "," NOW "]"), "tools"},
        {CHAT(",\"tool_choice\":\"required\""), "tool_choice"},
        {CHAT(",\"tools\":[" NOW "],\"tool_choice\":\"sometimes\""), "tool_choice"},
        {CHAT(",\"tools\":[" NOW "],\"tool_choice\":{\"type\":\"function\",\"function\":{"
              "\"name\":\"nope\"}}"),
         "tool_choice"},
        {CHAT(",\"tools\":[" NOW "],\"guided_regex\":\"a\""), "tools"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        refuse(parse_chat, wrong[i][0], wrong[i][1]);
}

static void assert_json(const json_t *value, const char *expected)
{
    char *text = json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY);
    assert_non_null(text);
    assert_string_equal(text, expected);
    free(text);
}

#define CALLED                                                                                     \
    "{\"role\":\"assistant\",\"content\":\"Let me see.\",\"reasoning_content\":\"Hm\","            \
    "\"tool_calls\":[{\"id\":\"c1\",\"type\":\"function\",\"function\":{\"name\":\"now\","         \
    "\"arguments\":\"{\\\"a\\\":1}\"}}]},"                                                         \
    "{\"role\":\"tool\",\"content\":\"12:00\",\"tool_call_id\":\"c1\",\"name\":\"now\"}"

/* A conversation with a call, by the APIs, becomes the same for the template. */
static void test_conversations_with_calls(void **state)
{
    struct ask a = accept(parse_message,
                          "{\"max_tokens\":5,\"messages\":[{\"role\":\"assistant\",\"content\":["
                          "{\"type\":\"thinking\",\"thinking\":\"Hm\",\"signature\":\"\"},"
                          "{\"type\":\"text\",\"text\":\"Let me see.\"},{\"type\":\"tool_use\","
                          "\"id\":\"c1\",\"name\":\"now\",\"input\":{\"a\":1}}]},"
                          "{\"role\":\"user\",\"content\":[{\"type\":\"tool_result\","
                          "\"tool_use_id\":\"c1\",\"content\":[{\"type\":\"text\",\"text\":"
                          "\"12:00\"}]},{\"type\":\"text\",\"text\":\"And?\"}]}]}");
    json_t *wanted = json_loads("[" CALLED ",{\"role\":\"user\",\"content\":\"And?\"}]", 0, NULL);
    assert_true(json_equal(a.messages, wanted));
    ask_fini(&a);
    a = accept(parse_chat, "{\"messages\":[" CALLED ",{\"role\":\"user\",\"content\":\"And?\"}]}");
    assert_true(json_equal(a.messages, wanted));
    ask_fini(&a);
    a = accept(parse_response,
               "{\"input\":[{\"type\":\"reasoning\",\"summary\":[],\"content\":[{\"type\":"
               "\"reasoning_text\",\"text\":\"Hm\"}]},{\"type\":\"message\",\"role\":\"assistant\","
               "\"content\":[{\"type\":\"output_text\",\"text\":\"Let me see.\"}]},"
               "{\"type\":\"function_call\",\"call_id\":\"c1\",\"name\":\"now\","
               "\"arguments\":\"{\\\"a\\\":1}\"},{\"type\":\"function_call_output\",\"call_id\":"
               "\"c1\",\"output\":\"12:00\"},{\"role\":\"user\",\"content\":\"And?\"}]}");
    assert_true(json_equal(a.messages, wanted));
    ask_fini(&a);
    json_decref(wanted);
    refuse(parse_chat, "{\"messages\":[{\"role\":\"assistant\",\"tool_calls\":[{}]}]}", "messages");
    refuse(parse_message,
           "{\"max_tokens\":5,\"messages\":[{\"role\":\"user\",\"content\":["
           "{\"type\":\"tool_use\",\"id\":\"a\",\"name\":\"b\"}]}]}",
           "messages");
    refuse(parse_response, "{\"input\":[{\"type\":\"function_call\"}]}", "input");
    refuse(parse_response, "{\"input\":[{\"type\":\"reasoning\"}]}", NULL);
    refuse(parse_response, "{\"input\":null}", NULL);
    refuse(parse_message, "{\"max_tokens\":5,\"system\":\"a\",\"messages\":null}", NULL);
}

#define CALL(name)                                                                                 \
    "{\"role\":\"assistant\",\"tool_calls\":[{\"id\":\"c\",\"function\":{\"name\":\"" name "\"}}]" \
    "}"
#define RESULT "{\"role\":\"tool\",\"tool_call_id\":\"c\",\"content\":\"\"}"

/* A result has the name of the last call before it with its id, if there is one. */
static void test_names_of_results(void **state)
{
    static const char *const names[] = {NULL, NULL, "a", NULL, "b", "b"};
    struct ask a = accept(parse_chat, "{\"messages\":[" RESULT "," CALL("a") "," RESULT "," CALL(
                                          "b") "," RESULT "," RESULT "]}");
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const json_t *name = json_object_get(json_array_get(a.messages, i), "name");
        assert_true(!name == !names[i]);
        if (name)
            assert_string_equal(json_string_value(name), names[i]);
    }
    ask_fini(&a);
}

/* An array of `count` items between two texts. Owned. */
static char *body_of(const char *before, const char *item, size_t count, const char *after)
{
    struct strbuf b;
    strbuf_init(&b);
    strbuf_printf(&b, "%s[", before);
    for (size_t i = 0; i < count; i++)
        strbuf_printf(&b, "%s%s", i ? "," : "", item);
    strbuf_printf(&b, "]%s", after);
    assert_false(b.failed);
    return b.data;
}

/* Results of calls that nobody made: a conversation is limited in every API. */
static void test_many_results(void **state)
{
    static const struct {
        parser *parse;
        const char *before, *item, *after, *parameter;
    } cases[] = {
        {parse_chat, "{\"messages\":", RESULT, "}", "messages"},
        {parse_ollama_chat, "{\"messages\":", RESULT, "}", "messages"},
        {parse_message, "{\"max_tokens\":1,\"messages\":[{\"role\":\"user\",\"content\":",
         "{\"type\":\"tool_result\",\"tool_use_id\":\"c\"}", "}]}", "messages"},
        {parse_response, "{\"input\":", "{\"type\":\"function_call_output\",\"call_id\":\"c\"}",
         "}", "input"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *body = body_of(cases[i].before, cases[i].item, MESSAGES_MAX, cases[i].after);
        struct ask a = accept(cases[i].parse, body);
        assert_int_equal(json_array_size(a.messages), MESSAGES_MAX);
        ask_fini(&a);
        free(body);
        body = body_of(cases[i].before, cases[i].item, 20000, cases[i].after);
        refuse(cases[i].parse, body, cases[i].parameter);
        free(body);
    }
}

/* Calls count against a limit in every API, and the texts around them stay whole. */
static void test_many_calls(void **state)
{
    static const struct {
        parser *parse;
        const char *before, *item, *after, *parameter;
    } cases[] = {
        {parse_chat, "{\"messages\":[{\"role\":\"assistant\",\"content\":\"ab\",\"tool_calls\":",
         "{\"id\":\"c\",\"function\":{\"name\":\"now\"}}", "}]}", "messages"},
        {parse_message,
         "{\"max_tokens\":1,\"messages\":[{\"role\":\"assistant\",\"content\":\"ab\"},"
         "{\"role\":\"assistant\",\"content\":",
         "{\"type\":\"tool_use\",\"id\":\"c\",\"name\":\"now\"}", "}]}", "messages"},
        {parse_response, "{\"input\":",
         "{\"type\":\"function_call\",\"call_id\":\"c\",\"name\":\"now\",\"arguments\":\"\"}", "}",
         "input"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *body = body_of(cases[i].before, cases[i].item, MESSAGES_MAX, cases[i].after);
        struct ask a = accept(cases[i].parse, body);
        const json_t *last = json_array_get(a.messages, json_array_size(a.messages) - 1);
        assert_int_equal(json_array_size(json_object_get(last, "tool_calls")), MESSAGES_MAX);
        ask_fini(&a);
        free(body);
        body = body_of(cases[i].before, cases[i].item, MESSAGES_MAX + 1, cases[i].after);
        refuse(cases[i].parse, body, cases[i].parameter);
        free(body);
    }
}

/* The blocks of a turn in any order: what is text, and what is reasoning, is one text each. */
static void test_texts_among_calls(void **state)
{
#define USE "{\"type\":\"tool_use\",\"id\":\"c\",\"name\":\"now\"}"
    struct ask a = accept(parse_message,
                          "{\"max_tokens\":1,\"messages\":[{\"role\":\"assistant\",\"content\":["
                          "{\"type\":\"thinking\",\"thinking\":\"H\"}," USE
                          ",{\"type\":\"text\",\"text\":\"a\"}," USE
                          ",{\"type\":\"thinking\",\"thinking\":\"m\"},"
                          "{\"type\":\"text\",\"text\":\"b\"}]}]}");
    const json_t *turn = json_array_get(a.messages, 0);
    assert_int_equal(json_array_size(a.messages), 1);
    assert_json(json_object_get(turn, "content"), "\"ab\"");
    assert_json(json_object_get(turn, "reasoning_content"), "\"Hm\"");
    assert_int_equal(json_array_size(json_object_get(turn, "tool_calls")), 2);
    ask_fini(&a);
}

/* Numbers of a call in a conversation stay what they were, so that its prompt stays the same. */
static void test_numbers_of_calls(void **state)
{
    struct ask a = accept(parse_message, "{\"max_tokens\":1,\"messages\":[{\"role\":\"assistant\","
                                         "\"content\":[{\"type\":\"tool_use\","
                                         "\"id\":\"c\",\"name\":\"now\",\"input\":{\"lat\": 52.52, "
                                         "\"n\":1.0,\"s\":-1e-7,\"l\":1e300,\"t\":"
                                         "0.1,\"i\":[-9223372036854775808,null,true,false,{}],"
                                         "\"q\":\"\\\"1.0 99999999999999999999\"}}"
                                         "]}]}");
    const json_t *call =
        json_array_get(json_object_get(json_array_get(a.messages, 0), "tool_calls"), 0);
    const json_t *function = json_object_get(call, "function");
    assert_string_equal(json_string_value(json_object_get(function, "arguments")),
                        "{\"lat\":52.52,\"n\":1.0,\"s\":-1e-07,\"l\":1e+300,\"t\":0.1,"
                        "\"i\":[-9223372036854775808,null,true,false,{}],"
                        "\"q\":\"\\\"1.0 99999999999999999999\"}");
    ask_fini(&a);
    a = accept(
        parse_message, /* an integer that only a model writes */
        "{\"max_tokens\":1,\"messages\":[{\"role\":\"assistant\",\"content\":[{\"type\":"
        "\"tool_use\",\"id\":\"c\",\"name\":\"now\",\"input\":{\"i\":12345678901234567890123,"
        "\"m\":9223372036854775807,\"q\":\"99999999999999999999\"}}]}]}");
    call = json_array_get(json_object_get(json_array_get(a.messages, 0), "tool_calls"), 0);
    function = json_object_get(call, "function");
    assert_string_equal(json_string_value(json_object_get(function, "arguments")),
                        "{\"i\":1.2345678901234568e+22,\"m\":9223372036854775807,"
                        "\"q\":\"99999999999999999999\"}");
    ask_fini(&a);
    refuse(parse_chat, CHAT(",\"seed\":36893488147419103232"), "seed");
}

/* More tools than a model may have are refused before their names are compared. */
static void test_many_tools(void **state)
{
    static const char choice[] = ",\"tool_choice\":{\"type\":\"allowed_tools\",\"mode\":\"auto\","
                                 "\"tools\":[{\"type\":\"function\",\"name\":\"none\"}]}}";
    char *body = body_of("{\"input\":\"a\",\"tools\":", "{\"type\":\"function\",\"name\":\"now\"}",
                         TOOLS_MAX + 1, choice);
    refuse_because(parse_response, body, "tools", "513 tools; at most 512 are possible");
    free(body);
    body = body_of("{\"input\":\"a\",\"tools\":[{\"type\":\"function\",\"name\":\"now\"}],"
                   "\"tool_choice\":{\"type\":\"allowed_tools\",\"mode\":\"auto\",\"tools\":",
                   "{\"type\":\"function\",\"name\":\"now\"}", TOOLS_MAX + 1, "}}");
    refuse_because(parse_response, body, "tool_choice",
                   "allowed_tools: 513 tools; at most 512 are possible");
    free(body);
}

/* For a template that shows neither tools nor calls. */
static void test_tools_as_plain_text(void **state)
{
    json_t *messages = json_loads("[{\"role\":\"system\",\"content\":\"Be brief.\"},"
                                  "{\"role\":\"user\",\"content\":\"Time?\"}," CALLED
                                  ",{\"role\":\"user\",\"content\":\"And?\"}]",
                                  0, NULL);
    json_t *tools = json_loads("[" NOW "]", 0, NULL);
    assert_true(tool_messages_have_calls(messages));
    json_t *plain = tool_messages_plain(messages, tools);
    assert_int_equal(json_array_size(plain), 4);
    const char *system = json_string_value(json_object_get(json_array_get(plain, 0), "content"));
    assert_non_null(strstr(system, "Be brief.\n\nYou can call"));
    assert_non_null(strstr(system, "{\"name\":\"now\"}\n"));
    assert_json(json_object_get(json_array_get(plain, 2), "content"),
                "\"Let me see.\\n{\\\"tool_calls\\\":[{\\\"name\\\":\\\"now\\\","
                "\\\"arguments\\\":{\\\"a\\\":1}}]}\"");
    assert_json(json_array_get(plain, 3),
                "{\"role\":\"user\",\"content\":\"Result of now:\\n12:00\\n\\nAnd?\","
                "\"tool_call_id\":\"c1\",\"name\":\"now\"}");
    assert_false(tool_messages_have_calls(plain));
    assert_true(tool_messages_have_calls(messages)); /* they are a copy */
    json_decref(plain);
    json_decref(messages);
    json_decref(tools);
}

/* Two results of one tool have nothing but their places. */
static void test_plain_results_in_order(void **state)
{
    json_t *messages = json_loads(
        "[{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":["
        "{\"id\":\"c1\",\"function\":{\"name\":\"now\",\"arguments\":{\"a\":1}}},"
        "{\"id\":\"c2\",\"function\":{\"name\":\"now\",\"arguments\":{\"a\":2}}}]},"
        "{\"role\":\"tool\",\"name\":\"now\",\"tool_call_id\":\"c2\",\"content\":\"two\"},"
        "{\"role\":\"tool\",\"name\":\"now\",\"tool_call_id\":\"c1\",\"content\":\"one\"}]",
        0, NULL);
    (void)state;
    json_t *plain = tool_messages_plain(messages, NULL);
    assert_json(json_object_get(json_array_get(plain, 1), "content"),
                "\"Result of now:\\none\\n\\nResult of now:\\ntwo\"");
    assert_int_equal(json_array_size(messages), 3);
    json_decref(plain);
    json_decref(messages);
}

/* ---- The answer's form ---- */

static void expect_form(parser *parse, const char *body, enum moed_grammar_kind kind,
                        const char *text)
{
    static struct loose_schemas schemas;
    for (int known = 0; known < 2; known++) {
        struct ask a = accept(parse, body);
        assert_int_equal(a.form, kind);
        if (a.form_is_loose)
            loose_schemas_apply(&schemas, &a);
        if (text)
            assert_string_equal(a.form_text, text);
        ask_fini(&a);
    }
    loose_schemas_fini(&schemas);
    schemas = (struct loose_schemas){0};
}

/* Parsing leaves a schema as it is: what loosening takes is another thread's. */
static void test_loose_schemas(void **state)
{
    struct loose_schemas schemas = {0};
    char body[256], text[64], loose[64];
    for (int i = 0; i < 3 * LOOSE_SCHEMAS; i++) {
        int n = i / 2; /* each twice, and more than are kept */
        snprintf(text, sizeof text, "{\"a\":2,\"minimum\":%d}", n);
        snprintf(loose, sizeof loose, "{\"minimum\":%d}", n);
        snprintf(body, sizeof body,
                 CHAT(",\"response_format\":{\"type\":\"json_schema\","
                      "\"json_schema\":{\"schema\":%s}}"),
                 text);
        struct ask a = accept(parse_chat, body);
        assert_true(a.form_is_loose);
        assert_string_equal(a.form_text, text);
        loose_schemas_apply(&schemas, &a);
        assert_string_equal(a.form_text, loose);
        assert_string_equal(a.ignored, "schema:a");
        ask_fini(&a);
    }
    loose_schemas_fini(&schemas);
}

static void test_forms(void **state)
{
    expect_form(parse_chat, CHAT(",\"response_format\":{\"type\":\"text\"}"), MOED_GRAMMAR_NONE,
                NULL);
    expect_form(parse_chat, CHAT(",\"response_format\":{\"type\":\"json_object\"}"),
                MOED_GRAMMAR_JSON_SCHEMA, "{\"type\":\"object\"}");
    expect_form(parse_chat,
                CHAT(",\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"name\":"
                     "\"n\",\"strict\":true,\"schema\":{\"b\":1,\"a\":2}}}"),
                MOED_GRAMMAR_JSON_SCHEMA, "{\"b\":1,\"a\":2}");
    expect_form(parse_chat, /* not strict: what cannot be followed is left out */
                CHAT(",\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"name\":"
                     "\"n\",\"schema\":{\"title\":\"t\",\"a\":2,\"enum\":[1]}}}"),
                MOED_GRAMMAR_JSON_SCHEMA, "{\"title\":\"t\",\"enum\":[1]}");
    expect_form(parse_response,
                "{\"input\":\"a\",\"text\":{\"format\":{\"type\":\"json_schema\",\"name\":\"n\","
                "\"schema\":{\"enum\":[1]}}}}",
                MOED_GRAMMAR_JSON_SCHEMA, "{\"enum\":[1]}");
    expect_form(
        parse_message,
        "{\"max_tokens\":5,\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],"
        "\"output_config\":{\"format\":{\"type\":\"json_schema\",\"schema\":{\"enum\":[1]}}}}",
        MOED_GRAMMAR_JSON_SCHEMA, "{\"enum\":[1]}");
    /* other servers' parameters have no strict */
    expect_form(parse_chat, CHAT(",\"json_schema\":{\"a\":2,\"enum\":[1]}"),
                MOED_GRAMMAR_JSON_SCHEMA, "{\"enum\":[1]}");
    expect_form(parse_chat, CHAT(",\"guided_json\":\"{\\\"a\\\":2,\\\"enum\\\":[1]}\""),
                MOED_GRAMMAR_JSON_SCHEMA, "{\"enum\":[1]}");
    expect_form(parse_chat, CHAT(",\"structured_outputs\":{\"json\":{\"a\":2,\"enum\":[1]}}"),
                MOED_GRAMMAR_JSON_SCHEMA, "{\"enum\":[1]}");
    expect_form(parse_chat, CHAT(",\"guided_json\":\"{\""), MOED_GRAMMAR_JSON_SCHEMA, "{");
    expect_form(parse_ollama_chat, CHAT(",\"format\":\"json\""), MOED_GRAMMAR_JSON_SCHEMA, NULL);
    expect_form(parse_ollama_chat, CHAT(",\"format\":{\"enum\":[1]}"), MOED_GRAMMAR_JSON_SCHEMA,
                "{\"enum\":[1]}");
    expect_form(parse_chat, CHAT(",\"structured_outputs\":{\"regex\":\"a+\"}"), MOED_GRAMMAR_REGEX,
                "a+");
    expect_form(parse_chat, CHAT(",\"regex\":\"a+\""), MOED_GRAMMAR_REGEX, "a+"); /* SGLang's */
    expect_form(parse_response, "{\"input\":\"a\",\"ebnf\":\"root ::= \\\"a\\\"\"}",
                MOED_GRAMMAR_GBNF, "root ::= \"a\"");
    expect_form(parse_chat, CHAT(",\"guided_choice\":[\"a\",\"b\"]"), MOED_GRAMMAR_CHOICES,
                "[\"a\",\"b\"]");
    expect_form(parse_completion, "{\"prompt\":\"a\",\"grammar\":\"root ::= \\\"a\\\"\"}",
                MOED_GRAMMAR_GBNF, "root ::= \"a\"");
    static const char *const wrong[][2] = {
        {CHAT(",\"response_format\":{\"type\":\"json_schema\"}"), "response_format"},
        {CHAT(",\"response_format\":\"json\""), "response_format"},
        {CHAT(",\"grammar\":1"), "grammar"},
        {CHAT(",\"regex\":1"), "regex"},
        {CHAT(",\"structural_tag\":\"{}\""), "structural_tag"},
        {CHAT(",\"guided_choice\":\"a\""), "guided_choice"},
        {CHAT(",\"structured_outputs\":{\"structural_tag\":\"a\"}"),
         "structured_outputs.structural_tag"},
        {CHAT(",\"grammar\":\"root ::= \\\"a\\\"\",\"guided_regex\":\"a\""), "guided_regex"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        refuse(parse_chat, wrong[i][0], wrong[i][1]);
}

/* With tools the model chooses between calls and the form; forced calls leave no text to form. */
static void test_form_beside_tools(void **state)
{
    static const struct reasoning_marks think = {.begin = "<think>", .end = "</think>"};
    static const struct {
        const char *format;
        const struct reasoning_marks *marks;
        bool open;
    } models[] = {
        {"hermes", NULL, false},  {"hermes", &think, false}, {"hermes", &think, true},
        {"harmony", NULL, false}, {"generic", NULL, false},
    };
    struct ask a = accept(parse_chat, CHAT(",\"tools\":[" NOW "],\"response_format\":{\"type\":"
                                           "\"json_object\"}"));
    struct structure s;
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        struct chat_rendered chat = {.style = {tool_format_find(models[i].format), models[i].marks},
                                     .reasoning_open = models[i].open};
        assert_int_equal(structure_init(&s, &a, &chat, NULL), MOED_OK);
        assert_memory_equal(s.grammar.text, "root ::= calls | answer\ncalls ::= ", 34);
        assert_non_null(strstr(s.grammar.text, "%json {\"type\":\"object\"}\n"));
        assert_int_equal(s.grammar.trigger != NULL, models[i].open);
        structure_fini(&s);
    }
    ask_fini(&a);
    a = accept(parse_chat,
               CHAT(",\"tools\":[" NOW "],\"tool_choice\":\"required\",\"guided_regex\":\"a\""));
    struct chat_rendered chat = {.style = {tool_format_find("harmony"), NULL}};
    assert_int_equal(structure_init(&s, &a, &chat, NULL), MOED_OK);
    assert_int_equal(s.grammar.kind, MOED_GRAMMAR_GBNF);
    structure_fini(&s);
    ask_fini(&a);
}

/* Reasoning stands before the form, however the model begins it. */
static void test_form_behind_reasoning(void **state)
{
    static const struct reasoning_marks think = {.begin = "<think>", .end = "</think>"};
    struct chat_rendered chat = {.style = {tool_format_find("hermes"), &think}};
    struct ask a = accept(parse_chat, CHAT(",\"response_format\":{\"type\":\"json_object\"}"));
    struct structure s;
    assert_int_equal(structure_init(&s, &a, &chat, NULL), MOED_OK);
    assert_int_equal(s.grammar.kind, MOED_GRAMMAR_GBNF);
    assert_non_null(strstr(s.grammar.text, "\"<think>\" reasoning-0"));
    assert_non_null(strstr(s.grammar.text, "%json {\"type\":\"object\"}\n"));
    assert_int_equal(s.grammar.mark_count, 2);
    structure_fini(&s);
    chat.reasoning_open = true;
    assert_int_equal(structure_init(&s, &a, &chat, NULL), MOED_OK);
    assert_int_equal(s.grammar.kind, MOED_GRAMMAR_JSON_SCHEMA);
    assert_string_equal(s.grammar.trigger, "</think>");
    assert_true(s.grammar.trigger_required);
    structure_fini(&s);
    chat = (struct chat_rendered){.style = {tool_format_find("harmony"), NULL}};
    assert_int_equal(structure_init(&s, &a, &chat, NULL), MOED_OK);
    assert_non_null(strstr(s.grammar.text, "<|channel|>final"));
    structure_fini(&s);
    assert_int_equal(structure_init(&s, &a, NULL, NULL), MOED_OK);
    assert_int_equal(s.grammar.kind, MOED_GRAMMAR_JSON_SCHEMA);
    assert_null(s.grammar.trigger);
    structure_fini(&s);
    ask_fini(&a);
    a = accept(parse_chat, CHAT(",\"tools\":[" NOW "],\"tool_choice\":\"required\""));
    chat = (struct chat_rendered){.style = {tool_format_find("hermes"), &think}};
    assert_int_equal(structure_init(&s, &a, &chat, NULL), MOED_OK);
    assert_int_equal(s.grammar.kind, MOED_GRAMMAR_GBNF);
    assert_true(s.grammar.mark_count > 2);
    structure_fini(&s);
    ask_fini(&a);
}

/* Each message of Solar-Open's answers has a mark, which may stand before the JSON, too. */
static void test_form_in_a_message(void **state)
{
    const struct tool_format *format = tool_format_find("solar-open");
    struct chat_rendered chat = {.style = {format, &format->reasoning}};
    static const char json[] = "( \"<|content|>\" )? %json {\"type\":\"object\"}\n";
    static const char next[] = "\"<|begin|>assistant\" ";
    struct ask a = accept(parse_chat, CHAT(",\"response_format\":{\"type\":\"json_object\"}"));
    struct structure s;
    char expected[256];
    assert_int_equal(structure_init(&s, &a, &chat, NULL), MOED_OK);
    snprintf(expected, sizeof expected, "root ::= ( \"<|think|>\" reasoning-0 %s[ \\n]{0,4} )? %s",
             next, json);
    assert_memory_equal(s.grammar.text, expected, strlen(expected));
    assert_int_equal(s.grammar.mark_count, 4);
    structure_fini(&s);
    chat.reasoning_closed = true;
    assert_int_equal(structure_init(&s, &a, &chat, NULL), MOED_OK);
    snprintf(expected, sizeof expected, "root ::= %s", json);
    assert_string_equal(s.grammar.text, expected);
    structure_fini(&s);
    chat.reasoning_closed = false;
    chat.reasoning_open = true;
    snprintf(expected, sizeof expected, "root ::= %s%s", next, json);
    for (int behind = 0; behind < 2; behind++) {
        assert_int_equal((behind ? structure_init_behind : structure_init)(&s, &a, &chat, NULL),
                         MOED_OK);
        assert_string_equal(s.grammar.text, expected);
        assert_string_equal(s.grammar.trigger ? s.grammar.trigger : "", behind ? "" : "<|end|>");
        structure_fini(&s);
    }
    ask_fini(&a);
}

/* Behind reasoning that was ended nothing that binds the rest allows more of it, or waits for its
 * end. */
static void test_no_second_reasoning(void **state)
{
    static const struct reasoning_marks think = {.begin = "<think>", .end = "</think>"};
    static const char *const bodies[] = {
        CHAT(",\"response_format\":{\"type\":\"json_object\"}"),
        CHAT(",\"tools\":[" NOW "],\"response_format\":{\"type\":\"json_object\"}"),
        CHAT(",\"tools\":[" NOW "],\"tool_choice\":\"required\""),
        CHAT(",\"guided_regex\":\"a\""),
        CHAT(",\"tools\":[" NOW "]"), /* the last: not every format is bound at once */
    };
    static const struct {
        const char *format;
        const struct reasoning_marks *marks;
        bool open, binds;
    } models[] = {{"hermes", &think, false, false},
                  {"hermes", &think, true, false},
                  {"generic", &think, true, true},
                  {"harmony", NULL, false, true}};
    enum { N = sizeof bodies / sizeof *bodies };
    for (size_t i = 0; i < N; i++)
        for (size_t k = 0; k < sizeof models / sizeof *models; k++) {
            struct ask a = accept(parse_chat, bodies[i]);
            struct chat_rendered chat = {
                .style = {tool_format_find(models[k].format), models[k].marks},
                .reasoning_open = models[k].open};
            struct structure s;
            assert_int_equal(structure_init_behind(&s, &a, &chat, NULL), MOED_OK);
            assert_true(s.grammar.kind != MOED_GRAMMAR_NONE);
            assert_null(strstr(s.grammar.text, "<think>"));
            assert_null(strstr(s.grammar.text, "analysis"));
            assert_null(strstr(s.grammar.text, "reasoning-0"));
            if (i + 1 < N || models[k].binds)
                assert_null(s.grammar.trigger);
            else
                assert_string_equal(s.grammar.trigger, "<tool_call>");
            structure_fini(&s);
            ask_fini(&a);
        }
}

/* The channel `final` or calls: as the matcher reads it. */
static void test_harmony_behind_reasoning(void **state)
{
    static const char *const texts[] = {
        "<|channel|>final<|message|>Hello, it is\n5.",
        "<|channel|>final<|message|>",
        "<|channel|>commentary to=functions.now <|constrain|>json<|message|>{}",
        NULL,
        "<|channel|>analysis<|message|>Hm",
        "Hello",
        NULL,
    };
    struct ask a = accept(parse_chat, CHAT(",\"tools\":[" NOW "]"));
    struct chat_rendered chat = {.style = {tool_format_find("harmony"), NULL}};
    struct structure s;
    assert_int_equal(structure_init_behind(&s, &a, &chat, NULL), MOED_OK);
    check_texts(GRAMMAR_GBNF, s.grammar.text, texts);
    structure_fini(&s);
    ask_fini(&a);
}

/* Codex offers tools that OpenAI's server would run. The model does not see them. */
static void test_tools_of_a_server(void **state)
{
    const char *own = "{\"type\":\"function\",\"name\":\"now\",\"parameters\":{}}";
    char body[512];
    snprintf(body, sizeof body,
             "{\"input\":\"a\",\"client_metadata\":{},\"tools\":[{\"type\":\"web_search\","
             "\"external_web_access\":false},%s,{\"type\":\"namespace\",\"name\":\"a\"}]}",
             own);
    struct ask a = accept(parse_response, body);
    assert_int_equal(json_array_size(a.tools), 1);
    assert_string_equal(a.ignored, "web_search,namespace");
    ask_fini(&a);
    refuse(parse_response, "{\"input\":\"a\",\"tools\":[{\"type\":\"mcp\"}]}", "tools");
    refuse(parse_response, "{\"input\":\"a\",\"tools\":[{}]}", "tools");
    refuse(parse_response,
           "{\"input\":\"a\",\"tools\":[{\"type\":\"web_search\"}],\"tool_choice\":"
           "{\"type\":\"web_search\"}}",
           "tool_choice");
    refuse(parse_response,
           "{\"input\":\"a\",\"tools\":[{\"type\":\"web_search\"}],\"tool_choice\":\"required\"}",
           "tool_choice");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tools),
        cmocka_unit_test(test_conversations_with_calls),
        cmocka_unit_test(test_names_of_results),
        cmocka_unit_test(test_many_results),
        cmocka_unit_test(test_many_calls),
        cmocka_unit_test(test_numbers_of_calls),
        cmocka_unit_test(test_texts_among_calls),
        cmocka_unit_test(test_many_tools),
        cmocka_unit_test(test_tools_as_plain_text),
        cmocka_unit_test(test_plain_results_in_order),
        cmocka_unit_test(test_forms),
        cmocka_unit_test(test_loose_schemas),
        cmocka_unit_test(test_form_beside_tools),
        cmocka_unit_test(test_form_behind_reasoning),
        cmocka_unit_test(test_form_in_a_message),
        cmocka_unit_test(test_no_second_reasoning),
        cmocka_unit_test(test_harmony_behind_reasoning),
        cmocka_unit_test(test_tools_of_a_server),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
