/* Requests of the HTTP APIs: whether and how much the model thinks, and the prompts that come of
 * it.
 */
#include "client/http/api/conversation.h"
#include "client/http/api/ollama.h"
#include "client/http/api/openai.h"
#include "client/http/api/openai_responses.h"
#include "http_ask_cases.h"

#include <stdio.h>

static void test_reasoning_parameters(void **state)
{
    struct ask a =
        accept(parse_chat, CHAT(",\"reasoning_effort\":\"high\",\"enable_thinking\":true,"
                                "\"chat_template_kwargs\":{\"x\":1}"));
    assert_string_equal(a.reasoning_effort, "high");
    assert_int_equal(a.thinking, CHAT_ON);
    assert_int_equal(json_object_size(a.kwargs), 1);
    ask_fini(&a);
    a = accept(parse_chat, CHAT(",\"reasoning_effort\":\"none\",\"continue_final_message\":true,"
                                "\"add_generation_prompt\":false"));
    assert_int_equal(a.thinking, CHAT_OFF);
    assert_int_equal(a.end, CHAT_END_CONTINUE);
    ask_fini(&a);
    a = accept(parse_message,
               "{\"max_tokens\":5,\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],"
               "\"thinking\":{\"type\":\"enabled\",\"budget_tokens\":1024},"
               "\"output_config\":{\"effort\":\"low\"}}");
    assert_int_equal(a.thinking, CHAT_ON);
    assert_int_equal(a.reasoning_budget, 1024);
    assert_string_equal(a.reasoning_effort, "low");
    ask_fini(&a);
    a = accept(parse_response,
               "{\"input\":\"a\",\"reasoning\":{\"effort\":\"medium\","
               "\"summary\":\"auto\"},\"include\":[\"message.output_text.logprobs\"],"
               "\"top_logprobs\":2}");
    assert_string_equal(a.reasoning_effort, "medium");
    assert_true(a.logprobs && a.top_logprobs == 2);
    ask_fini(&a);
    static const struct {
        const char *body;
        enum chat_switch thinking;
        const char *effort;
        uint32_t budget;
    } chats[] = {
        {CHAT(",\"thinking\":{\"type\":\"disabled\"}"), CHAT_OFF, NULL, 0},
        {CHAT(",\"thinking\":{\"type\":\"disabled\",\"budget_tokens\":0}"), CHAT_OFF, NULL, 0},
        {CHAT(",\"thinking\":{\"type\":\"enabled\",\"clear_thinking\":true}"), CHAT_ON, NULL, 0},
        {CHAT(",\"thinking\":{\"type\":\"auto\"},\"thinking_budget_tokens\":9"), CHAT_ON, NULL, 9},
        {CHAT(",\"thinking_budget_tokens\":9,\"thinking\":{\"type\":\"enabled\"}"), CHAT_ON, NULL,
         9},
        {CHAT(",\"think\":false"), CHAT_OFF, NULL, 0},
        {CHAT(",\"think\":\"high\""), CHAT_ON, "high", 0},
        {CHAT(",\"reasoning\":{\"effort\":\"high\"}"), CHAT_ON, "high", 0},
        {CHAT(",\"reasoning\":{\"effort\":\"minimal\"}"), CHAT_UNSET, "minimal", 0},
        {CHAT(",\"reasoning_effort\":\"minimal\",\"thinking\":{\"type\":\"adaptive\"}"), CHAT_ON,
         "minimal", 0},
        {CHAT(",\"thinking\":{\"type\":\"adaptive\"},\"reasoning_effort\":\"minimal\""), CHAT_ON,
         "minimal", 0},
        {CHAT(",\"reasoning\":{\"enabled\":false}"), CHAT_OFF, NULL, 0},
        {CHAT(",\"reasoning\":{\"enabled\":true,\"max_tokens\":7}"), CHAT_ON, NULL, 7},
    };
    for (size_t i = 0; i < sizeof chats / sizeof *chats; i++) {
        a = accept(parse_chat, chats[i].body);
        assert_int_equal(ask_thinking(&a), chats[i].thinking);
        assert_int_equal(a.reasoning_budget, chats[i].budget);
        assert_string_equal(a.reasoning_effort ? a.reasoning_effort : "",
                            chats[i].effort ? chats[i].effort : "");
        assert_string_equal(a.ignored, "");
        ask_fini(&a);
    }
    static const struct {
        const char *body;
        uint32_t budget;
    } budgets[] = {{CHAT(""), 5},
                   {CHAT(",\"thinking\":{\"type\":\"enabled\"}"), 5},
                   {CHAT(",\"reasoning_budget\":9"), 9},
                   {CHAT(",\"reasoning_budget\":-1"), 0}};
    const struct moed_model with_budget = {.reasoning_budget = 5};
    for (size_t i = 0; i < sizeof budgets / sizeof *budgets; i++) {
        a = accept(parse_chat, budgets[i].body);
        ask_take_budget(&a, &with_budget);
        assert_int_equal(a.reasoning_budget, budgets[i].budget);
        ask_fini(&a);
    }
    a = accept(parse_chat, CHAT(",\"reasoning\":{\"exclude\":true}"));
    assert_true(a.reasoning_hidden);
    ask_fini(&a);
    a = accept(parse_ollama_chat, CHAT(",\"think\":\"low\""));
    assert_int_equal(a.thinking, CHAT_ON);
    assert_string_equal(a.reasoning_effort, "low");
    ask_fini(&a);
    a = accept(parse_ollama_chat, CHAT(",\"think\":false"));
    assert_int_equal(a.thinking, CHAT_OFF);
    ask_fini(&a);
}

/* Templates as their authors wrote them, where the folder with them is here, that think only when
 * told to. NULL: it is not here. */
static struct chat_template *template_of(const char *name)
{
    static char text[1 << 16];
    char path[512];
    struct chat_template *t;
    struct error e;
    snprintf(path, sizeof path, MOED_SHARED_DIR "/templates/%s.jinja", name);
    FILE *f = fopen(path, "rb");
    if (!f)
        return NULL;
    text[fread(text, 1, sizeof text - 1, f)] = 0;
    fclose(f);
    if (chat_template_new(&(struct chat_source){.text = text}, &t, &e))
        fail_msg("%s: %s", name, e.text);
    return t;
}

/* The prompt of a request has the mark, or has not. */
static void expect_mark(const struct chat_template *t, parser *parse, const char *body,
                        const char *mark, bool there)
{
    struct ask a = accept(parse, body);
    struct chat_request q = conversation_of(&a);
    struct jinja_output out;
    struct error e;
    if (chat_template_render(t, &q, &out, NULL, &e))
        fail_msg("%s: %s", body, e.text);
    if ((strstr(out.text, mark) != NULL) != there)
        fail_msg("%s: %s", body, out.text);
    jinja_output_fini(&out);
    ask_fini(&a);
}

#define MESSAGE(more) CHAT(",\"max_tokens\":5" more)
#define INPUT(more)   "{\"input\":\"a\"" more "}"

static void test_effort_thinks(void **state)
{
    static const struct {
        const char *template, *mark;
        bool of_thinking; /* else the prompt has the mark where the model is not to think */
    } templates[] = {{"google-gemma-4-31B-it", "<|think|>", true},
                     {"Qwen-QwQ-32B", "</think>", false},
                     {"deepseek-ai-DeepSeek-V3.2", "</think>", false}};
    static const struct {
        parser *parse;
        const char *body;
        bool thinks;
    } cases[] = {
        {parse_chat, CHAT(""), false},
        {parse_chat, CHAT(",\"reasoning_effort\":\"high\""), true},
        {parse_chat, CHAT(",\"reasoning_effort\":\"minimal\""), false},
        {parse_chat, CHAT(",\"reasoning_effort\":\"none\""), false},
        {parse_chat, CHAT(",\"reasoning\":{\"effort\":\"low\"}"), true},
        {parse_chat, CHAT(",\"thinking\":{\"type\":\"adaptive\"}"), true},
        {parse_chat, CHAT(",\"thinking\":{\"type\":\"auto\"}"), true},
        {parse_chat, CHAT(",\"think\":\"high\""), true},
        {parse_ollama_chat, CHAT(",\"think\":\"medium\""), true},
        {parse_ollama_chat, CHAT(",\"think\":false"), false},
        {parse_message, MESSAGE(",\"output_config\":{\"effort\":\"low\"}"), true},
        {parse_message, MESSAGE(",\"thinking\":{\"type\":\"adaptive\"}"), true},
        {parse_response, INPUT(",\"reasoning\":{\"effort\":\"medium\"}"), true},
        /* what the request says of thinking itself counts, wherever it stands */
        {parse_chat, CHAT(",\"reasoning_effort\":\"high\",\"enable_thinking\":false"), false},
        {parse_chat, CHAT(",\"enable_thinking\":false,\"reasoning_effort\":\"high\""), false},
        {parse_chat, CHAT(",\"thinking\":{\"type\":\"disabled\"},\"reasoning_effort\":\"low\""),
         false},
        {parse_message,
         MESSAGE(",\"output_config\":{\"effort\":\"low\"},\"thinking\":{\"type\":\"disabled\"}"),
         false},
        {parse_chat,
         CHAT(",\"reasoning_effort\":\"high\",\"chat_template_kwargs\":{\"thinking\":false,"
              "\"enable_thinking\":false}"),
         false},
        {parse_chat,
         CHAT(",\"reasoning_effort\":\"high\",\"chat_template_kwargs\":{\"enable_thinking\":"
              "false}"),
         false},
    };
    for (size_t k = 0; k < sizeof templates / sizeof *templates; k++) {
        struct chat_template *t = template_of(templates[k].template);
        if (!t)
            skip();
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
            expect_mark(t, cases[i].parse, cases[i].body, templates[k].mark,
                        cases[i].thinks == templates[k].of_thinking);
        chat_template_free(t);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reasoning_parameters),
        cmocka_unit_test(test_effort_thinks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
