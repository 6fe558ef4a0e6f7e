/* libmoed's chats against a stand-in worker that answers with texts of ours: the parts of an answer
 * wherever it is cut, the messages that it becomes, the prompt and the grammar that the worker
 * gets, and what is refused. The texts and messages are written by hand after the formats in
 * docs/tool-calls.md and OpenAI's API. */
#include "client_session.h"

#include <jansson.h>
#include <poll.h>

#define TEMPLATE                                                                                   \
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{% if m.reasoning_content %}<think>"         \
    "{{ m.reasoning_content }}</think>{% endif %}{{ m.content }}{% for c in m.tool_calls %}"       \
    "<tool_call>\n{\"name\": \"{{ c.function.name }}\", \"arguments\": "                           \
    "{{ c.function.arguments | tojson }}}\n</tool_call>{% endfor %}<|im_end|>\n{% endfor %}"       \
    "{% if tools %}{{ tools | tojson }}{% endif %}"                                                \
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"

#define TOOLS                                                                                      \
    "[{\"type\": \"function\", \"function\": {\"name\": \"weather\", \"parameters\": {\"type\": "  \
    "\"object\", \"properties\": {\"city\": {\"type\": \"string\"}}}}}]"

#define CALL(city)                                                                                 \
    "<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"" city "\"}}\n</tool_call>"

static struct moed_chat *chat;

static int begin(void **state)
{
    if (setup(state))
        return -1;
    worker.chat_template = TEMPLATE;
    worker.answer = "Hello!";
    worker.answer_bytes = 1;
    return 0;
}

static int end(void **state)
{
    moed_chat_free(chat);
    chat = NULL;
    return teardown(state);
}

static void open_chat(const struct moed_chat_options *options)
{
    struct moed_error error;
    moed_chat_free(chat);
    chat = NULL;
    if (moed_chat_new(session, options, &chat, &error))
        fail_msg("%s", error.message);
}

/* What the callback has seen, as text: C(content) R(reasoning) B(name) A(arguments) E(complete). */
struct seen {
    char text[2048];
    size_t len;
    enum moed_part_kind last;
    uint32_t stop_after, parts;
};

static void note(struct seen *s, const char *text, size_t len)
{
    assert_true(s->len + len < sizeof s->text);
    memcpy(s->text + s->len, text, len);
    s->len += len;
    s->text[s->len] = '\0';
}

static int on_parts(void *arg, const struct moed_event *event)
{
    static const char letters[] = "?CRBAE";
    struct seen *s = arg;
    for (size_t i = 0; i < event->part_count; i++) {
        const struct moed_part *part = event->parts[i];
        if (part->kind != s->last || part->kind == MOED_PART_CALL)
            note(s, (const char[]){' ', letters[part->kind], ':'}, 3);
        s->last = part->kind;
        s->parts++;
        if (part->kind == MOED_PART_CALL) {
            assert_true(strncmp(part->id, "call_", 5) == 0);
            note(s, part->name, strlen(part->name));
        } else if (part->kind == MOED_PART_CALL_END) {
            note(s, part->complete ? "whole" : "cut", part->complete ? 5 : 3);
        } else {
            note(s, part->text, part->text_bytes);
        }
    }
    return s->stop_after && s->parts >= s->stop_after;
}

/* The answer's parts are `expected`, however it is cut; the conversation then ends with what
 * `message` is, but for the calls' ids, which are replaced by "ID". */
static void expect_answer(const char *answer, const char *expected, const char *message)
{
    struct moed_error error;
    worker.answer = answer;
    for (uint32_t each = 1; each < strlen(answer) + 1; each += each < 9 ? 1 : 7) {
        struct seen seen = {.len = 0};
        struct moed_result result = {.size = sizeof result};
        worker.answer_bytes = each;
        size_t before = moed_chat_count(chat);
        if (moed_chat_answer(chat, NULL, on_parts, &seen, &result, &error))
            fail_msg("%s", error.message);
        assert_string_equal(seen.text, expected);
        assert_int_equal(result.reason, MOED_REASON_END);
        assert_int_equal(moed_chat_count(chat), before + 1);
        char *json;
        size_t bytes;
        assert_int_equal(moed_chat_json(chat, &json, &bytes, &error), MOED_OK);
        assert_int_equal(bytes, strlen(json));
        json_t *all = json_loads(json, 0, NULL), *wanted = json_loads(message, 0, NULL);
        json_t *last = json_array_get(all, before);
        for (size_t i = 0; i < json_array_size(json_object_get(last, "tool_calls")); i++)
            json_object_set_new(json_array_get(json_object_get(last, "tool_calls"), i), "id",
                                json_string("ID"));
        assert_non_null(wanted);
        if (!json_equal(last, wanted))
            fail_msg("%s", json);
        json_decref(all);
        json_decref(wanted);
        moed_free(json);
        moed_chat_truncate(chat, before);
    }
}

static void test_content(void **state)
{
    open_chat(NULL);
    assert_int_equal(moed_chat_add(chat, "user", "Hi", 0, NULL), MOED_OK);
    expect_answer("Hello \xc3\xa9!", " C:Hello \xc3\xa9!",
                  "{\"role\": \"assistant\", \"content\": \"Hello \xc3\xa9!\"}");
}

static void test_reasoning(void **state)
{
    open_chat(NULL);
    assert_int_equal(moed_chat_add(chat, "user", "Hi", 0, NULL), MOED_OK);
    expect_answer("<think>\nWell</think>\n\nYes", " R:Well C:Yes",
                  "{\"role\": \"assistant\", \"content\": \"Yes\", "
                  "\"reasoning_content\": \"Well\"}");
}

static void test_calls(void **state)
{
    struct moed_chat_options options = {.size = sizeof options, .tools = TOOLS};
    open_chat(&options);
    assert_int_equal(moed_chat_add(chat, "user", "Weather?", 0, NULL), MOED_OK);
    expect_answer("Let me see.\n" CALL("Rome") "\n" CALL("Oslo"),
                  " C:Let me see. B:weather A:{\"city\": \"Rome\"} E:whole"
                  " B:weather A:{\"city\": \"Oslo\"} E:whole",
                  "{\"role\": \"assistant\", \"content\": \"Let me see.\", \"tool_calls\": ["
                  "{\"id\": \"ID\", \"type\": \"function\", \"function\": {\"name\": \"weather\", "
                  "\"arguments\": \"{\\\"city\\\": \\\"Rome\\\"}\"}},"
                  "{\"id\": \"ID\", \"type\": \"function\", \"function\": {\"name\": \"weather\", "
                  "\"arguments\": \"{\\\"city\\\": \\\"Oslo\\\"}\"}}]}");
}

/* With one_call the answer ends with its first call, as if the model had ended it. */
static void test_one_call(void **state)
{
    struct moed_chat_options options = {.size = sizeof options, .tools = TOOLS, .one_call = true};
    open_chat(&options);
    assert_int_equal(moed_chat_add(chat, "user", "Weather?", 0, NULL), MOED_OK);
    expect_answer(CALL("Rome") "\n" CALL("Oslo"), " B:weather A:{\"city\": \"Rome\"} E:whole",
                  "{\"role\": \"assistant\", \"content\": \"\", \"tool_calls\": ["
                  "{\"id\": \"ID\", \"type\": \"function\", \"function\": {\"name\": \"weather\", "
                  "\"arguments\": \"{\\\"city\\\": \\\"Rome\\\"}\"}}]}");
}

struct taken {
    char text[512];
    size_t len, tokens;
};

static int on_tokens(void *arg, const struct moed_event *e)
{
    struct taken *t = arg;
    assert_true(t->len + e->text_bytes < sizeof t->text);
    memcpy(t->text + t->len, e->text, e->text_bytes);
    t->len += e->text_bytes;
    t->tokens += e->token_count;
    assert_true(e->kind != MOED_EVENT_TOKENS || e->token_count || e->text_bytes);
    return 0;
}

/* Whatever the worker has sent when the call is complete, and why it ended, the answer ends there.
 * The worker counts it as complete, too. */
static void test_one_call_at_every_speed(void **state)
{
    static const char call[] = "<think>\nWell</think>" CALL("Rome");
    struct moed_chat_options options = {.size = sizeof options, .tools = TOOLS, .one_call = true};
    struct moed_generate_options generate = {.size = sizeof generate};
    const size_t whole = sizeof call - 1, end = whole - strlen("\n</tool_call>");
    open_chat(&options);
    worker.answer = "<think>\nWell</think>" CALL("Rome") "\n" CALL("Oslo");
    worker.answer_bytes = 1;
    for (worker.answer_tokens = 1; worker.answer_tokens <= 64; worker.answer_tokens++)
        for (generate.max_tokens = 0; generate.max_tokens <= whole + 2;
             generate.max_tokens += generate.max_tokens ? 1 : (uint32_t)end) {
            struct taken taken = {.len = 0};
            struct moed_result result = {.size = sizeof result};
            assert_int_equal(moed_chat_add(chat, "user", "Weather?", 0, NULL), MOED_OK);
            assert_int_equal(moed_chat_answer(chat, &generate, on_tokens, &taken, &result, NULL),
                             MOED_OK);
            assert_int_equal(result.reason, MOED_REASON_END);
            assert_int_equal(result.generated_tokens, taken.tokens);
            assert_int_equal(taken.len, taken.tokens);
            assert_int_equal(taken.tokens, end);
            assert_memory_equal(taken.text, call, end);
            assert_int_equal(result.reasoning_tokens, 14); /* "<think>" is one only at its end */
            moed_chat_truncate(chat, 0);
        }
    const struct peer p = stand_in_look(&worker, 0);
    assert_true(p.cancels && p.cancels == p.completes);
}

static bool is_readable(struct moed_request *r)
{
    struct pollfd p = {.fd = moed_request_fd(r), .events = POLLIN};
    return poll(&p, 1, 0) == 1;
}

static bool ends_call(const struct moed_event *e)
{
    for (size_t i = 0; i < e->part_count; i++)
        if (e->parts[i]->kind == MOED_PART_CALL_END)
            return true;
    return false;
}

/* Behind the one call nothing comes until the worker has heard of it: neither for the descriptor
 * nor for moed_request_next. What comes meanwhile is acknowledged. */
static void test_one_call_and_what_is_behind(void **state)
{
    struct moed_chat_options options = {.size = sizeof options, .tools = TOOLS, .one_call = true};
    struct moed_request *r;
    const struct moed_event *event = NULL;
    struct moed_error error;
    open_chat(&options);
    worker.answer =
        CALL("Rome") "\n" CALL("Oslo") "\n" CALL("Oslo") "\n" CALL("Oslo") "\n" CALL("Oslo");
    worker.answer_bytes = 1;
    worker.answer_tokens = 16;
    assert_int_equal(moed_chat_add(chat, "user", "Weather?", 0, NULL), MOED_OK);
    assert_int_equal(moed_chat_start(chat, NULL, &r, NULL), MOED_OK);
    WAIT_UNTIL(stand_in_look(&worker, 0).sent == WINDOW);
    ask_something(session);
    worker.stalls = true;
    bool readable;
    enum moed_code code;
    do {
        readable = is_readable(r);
        code = moed_request_next(r, 0, &event, &error);
    } while (readable && !code && !ends_call(event));
    bool still = is_readable(r);
    enum moed_code next = moed_request_next(r, 0, &event, &error);
    worker.stalls = false;
    assert_true(readable && !code);
    assert_false(still);
    assert_int_equal(next, MOED_ERROR_TIMEOUT);
    WAIT_UNTIL(is_readable(r));
    assert_int_equal(moed_request_next(r, 0, &event, NULL), MOED_OK);
    assert_int_equal(event->kind, MOED_EVENT_DONE);
    assert_int_equal(event->result->reason, MOED_REASON_END);
    moed_request_free(r);
    struct peer p;
    do {
        ask_something(session);
        p = stand_in_look(&worker, 0);
    } while (p.sent - p.acknowledged >= WINDOW / 4);
}

/* The bytes of the prompt that the worker got; its marks as '<' and '>'. */
static void expect_prompt(const char *expected)
{
    struct peer p = stand_in_look(&worker, 0);
    char text[2048];
    size_t n = p.last->n_tokens;
    assert_true(n < sizeof text);
    for (size_t i = 0; i < n; i++)
        text[i] = p.last->tokens[i] == STAND_IN_MARK       ? '<'
                  : p.last->tokens[i] == STAND_IN_MARK + 1 ? '>'
                                                           : (char)p.last->tokens[i];
    text[n] = '\0';
    assert_string_equal(text, expected);
}

/* The start of an answer does not wait for the worker, which finds the prompt's tokens. */
static void test_starts_at_a_silent_worker(void **state)
{
    struct moed_request *r;
    struct moed_error error;
    const struct moed_event *event;
    open_chat(NULL);
    assert_int_equal(moed_chat_add(chat, "user", "Hi <|im_end|>", 0, NULL), MOED_OK);
    worker.answer_bytes = 99;
    worker.stalls = true;
    enum moed_code code = moed_chat_start(chat, NULL, &r, &error);
    worker.stalls = false;
    if (code)
        fail_msg("%s", error.message);
    do
        assert_int_equal(moed_request_next(r, 60000, &event, NULL), MOED_OK);
    while (event->kind != MOED_EVENT_DONE);
    moed_request_free(r);
    expect_prompt("<user\nHi <|im_end|>>\n<assistant\n");
}

/* Several turns, with a call and its result; the whole goes through the template each time. */
static void test_turns(void **state)
{
    struct moed_chat_options options = {.size = sizeof options, .tools = TOOLS};
    struct moed_generate_options generate = {.size = sizeof generate, .max_tokens = 99};
    struct moed_error error;
    open_chat(&options);
    assert_int_equal(moed_chat_add(chat, "system", "Short.", 0, NULL), MOED_OK);
    assert_int_equal(moed_chat_add(chat, "user", "Rome? <|im_end|>", 5, NULL), MOED_OK);
    worker.answer = CALL("Rome");
    assert_int_equal(moed_chat_answer(chat, &generate, NULL, NULL, NULL, &error), MOED_OK);
    const struct peer asked = stand_in_look(&worker, 0);
    assert_true(asked.last->special_text && asked.last->max_tokens == 99);
    char *json;
    size_t bytes;
    assert_int_equal(moed_chat_json(chat, &json, &bytes, NULL), MOED_OK);
    json_t *all = json_loads(json, 0, NULL);
    const char *id = json_string_value(json_object_get(
        json_array_get(json_object_get(json_array_get(all, 2), "tool_calls"), 0), "id"));
    assert_non_null(id);
    assert_int_equal(moed_chat_add_result(chat, id, "21 degrees", 0, NULL), MOED_OK);
    options.tools = NULL;
    assert_int_equal(moed_chat_configure(chat, &options, &error), MOED_OK);
    worker.answer = "Warm.";
    assert_int_equal(moed_chat_answer(chat, &generate, NULL, NULL, NULL, &error), MOED_OK);
    expect_prompt("<system\nShort.>\n<user\nRome?>\n<assistant\n" CALL(
        "Rome") ">\n"
                "<tool\n21 degrees>\n<assistant\n");
    assert_int_equal(moed_chat_count(chat), 5);

    /* the conversation as JSON is that of another chat */
    struct moed_chat *other;
    moed_free(json);
    assert_int_equal(moed_chat_json(chat, &json, &bytes, NULL), MOED_OK);
    assert_int_equal(moed_chat_new(session, NULL, &other, NULL), MOED_OK);
    assert_int_equal(moed_chat_add_json(other, json, bytes, NULL), MOED_OK);
    uint32_t *a, *b;
    size_t n_a, n_b;
    assert_int_equal(moed_chat_tokens(chat, &a, &n_a, NULL), MOED_OK);
    assert_int_equal(moed_chat_tokens(other, &b, &n_b, NULL), MOED_OK);
    assert_true(n_a == n_b && n_a > 0 && memcmp(a, b, n_a * sizeof *a) == 0);
    moed_free(a);
    moed_free(b);
    moed_free(json);
    moed_chat_free(other);
    json_decref(all);
}

/* What the template gets of options. */
static void expect_prompt_of(const struct moed_chat_options *options, const char *wanted)
{
    open_chat(options);
    assert_int_equal(moed_chat_add(chat, "user", "a", 0, NULL), MOED_OK);
    assert_int_equal(moed_chat_answer(chat, NULL, NULL, NULL, NULL, NULL), MOED_OK);
    expect_prompt(wanted);
}

/* An effort makes models think that think only when told to. */
static void test_effort(void **state)
{
    worker.chat_template =
        "{{ reasoning_effort }}{{ enable_thinking }}{{ messages[0].content }}<|im_end|>";
    struct moed_chat_options options = {.size = sizeof options, .reasoning_effort = "high"};
    expect_prompt_of(&options, "highTruea>");
    options.thinking = MOED_THINKING_OFF;
    expect_prompt_of(&options, "highFalsea>");
    options.thinking = MOED_THINKING_DEFAULT;
    options.variables = "{\"thinking\": false}";
    expect_prompt_of(&options, "higha>");
    options.variables = NULL;
    options.reasoning_effort = "minimal";
    expect_prompt_of(&options, "minimala>");
    options.reasoning_effort = "none";
    expect_prompt_of(&options, "Falsea>");
}

/* A template that shows tools but no calls: the tools stay, and calls are text. */
static void test_tools_stay(void **state)
{
    worker.chat_template = "{% for t in tools %}{{ t.function.name }}{% endfor %}"
                           "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}"
                           "<|im_end|>\n{% endfor %}{# <tool_call> #}";
    struct moed_chat_options options = {.size = sizeof options, .tools = TOOLS};
    open_chat(&options);
    static const char turns[] =
        "[{\"role\": \"user\", \"content\": \"Rome?\"}, {\"role\": \"assistant\", \"content\": "
        "null, \"tool_calls\": [{\"id\": \"a\", \"type\": \"function\", \"function\": {\"name\": "
        "\"weather\", \"arguments\": \"{}\"}}]}, {\"role\": \"tool\", \"tool_call_id\": \"a\", "
        "\"content\": \"Sun\"}]";
    assert_int_equal(moed_chat_add_json(chat, turns, strlen(turns), NULL), MOED_OK);
    assert_int_equal(moed_chat_answer(chat, NULL, NULL, NULL, NULL, NULL), MOED_OK);
    expect_prompt("weather<user\nRome?>\n<assistant\n{\"tool_calls\":[{\"name\":\"weather\","
                  "\"arguments\":{}}]}>\n<user\nResult of the tool:\nSun>\n");
}

/* What a user writes is text: it cannot end the turn. */
static void test_text_stays_text(void **state)
{
    open_chat(NULL);
    assert_int_equal(moed_chat_add(chat, "user", "a<|im_end|>b", 0, NULL), MOED_OK);
    assert_int_equal(moed_chat_answer(chat, NULL, NULL, NULL, NULL, NULL), MOED_OK);
    expect_prompt("<user\na<|im_end|>b>\n<assistant\n");
}

/* A last message of the assistant is continued, and the answer's text goes behind its text. */
static void test_continues(void **state)
{
    char *json;
    size_t bytes;
    open_chat(NULL);
    assert_int_equal(moed_chat_add(chat, "user", "Hi", 0, NULL), MOED_OK);
    assert_int_equal(moed_chat_add(chat, "assistant", "Good ", 0, NULL), MOED_OK);
    worker.answer = "day";
    assert_int_equal(moed_chat_answer(chat, NULL, NULL, NULL, NULL, NULL), MOED_OK);
    expect_prompt("<user\nHi>\n<assistant\nGood ");
    assert_int_equal(moed_chat_count(chat), 2);
    assert_int_equal(moed_chat_json(chat, &json, &bytes, NULL), MOED_OK);
    assert_non_null(strstr(json, "\"Good day\""));
    moed_free(json);
}

/* After an answer the conversation is this, but for ids. */
static void expect_chat(const char *before, const char *answer, const char *after)
{
    char *json;
    size_t bytes;
    open_chat(NULL);
    assert_int_equal(moed_chat_add_json(chat, before, 0, NULL), MOED_OK);
    worker.answer = answer;
    assert_int_equal(moed_chat_answer(chat, NULL, NULL, NULL, NULL, NULL), MOED_OK);
    assert_int_equal(moed_chat_json(chat, &json, &bytes, NULL), MOED_OK);
    json_t *got = json_loads(json, 0, NULL), *wanted = json_loads(after, 0, NULL);
    assert_non_null(wanted);
    if (!json_equal(got, wanted))
        fail_msg("%s", json);
    json_decref(got);
    json_decref(wanted);
    moed_free(json);
}

#define USER      "{\"role\": \"user\", \"content\": \"Hi\"}"
#define ASSISTANT "{\"role\": \"assistant\", \"content\": "
#define MADE_CALL                                                                                  \
    "\"tool_calls\": [{\"id\": \"c\", \"type\": \"function\", \"function\": {\"name\": \"w\", "    \
    "\"arguments\": \"{}\"}}]"

/* What an answer continues keeps its begin; what it does not continue stays as it was. */
static void test_continued_messages(void **state)
{
    expect_chat("[" USER ", " ASSISTANT "[{\"type\": \"text\", \"text\": \"Good\"}, {\"type\": "
                "\"text\", \"text\": \" \"}]}]",
                "day", "[" USER ", " ASSISTANT "\"Good day\"}]");
    expect_prompt("<user\nHi>\n<assistant\nGood ");
    expect_chat("[" USER ", " ASSISTANT "\"I look.\", " MADE_CALL "}]", "Rain",
                "[" USER ", " ASSISTANT "\"I look.\", " MADE_CALL "}, " ASSISTANT "\"Rain\"}]");
    expect_chat("[" USER ", " ASSISTANT "\"\"}]", "Rain", "[" USER ", " ASSISTANT "\"Rain\"}]");
    expect_chat("[" USER ", " ASSISTANT "\"<think>Let\"}]", " me see</think>\n\nRain",
                "[" USER ", " ASSISTANT "\"<think>Let me see</think>Rain\"}]");
    expect_chat("[" USER ", " ASSISTANT "[{\"type\": \"text\", \"text\": \"<think>\"}, {\"type\": "
                "\"text\", \"text\": \"Let\"}]}]",
                " me see</think>\n\nRain",
                "[" USER ", " ASSISTANT "\"<think>Let me see</think>Rain\"}]");
    expect_chat("[" USER ", " ASSISTANT "\"<think>Let\"}]", " me",
                "[" USER ", " ASSISTANT "\"<think>Let me\"}]");
    expect_chat("[" USER ", " ASSISTANT "\"So: \", \"reasoning_content\": \"Well\"}]", "no",
                "[" USER ", " ASSISTANT "\"So: no\", \"reasoning_content\": \"Well\"}]");
    /* cut inside its reasoning */
    expect_chat("[" USER ", " ASSISTANT "\"\", \"reasoning_content\": \"Well\"}]",
                " now</think>\n\nYes",
                "[" USER ", " ASSISTANT "\"Yes\", \"reasoning_content\": \"Well now\"}]");
    expect_prompt("<user\nHi>\n<assistant\n<think>Well");
}

/* Where calls and tools become text, parts of content do not get lost. */
static void test_parts_as_text(void **state)
{
    worker.chat_template = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}"
                           "<|im_end|>\n{% endfor %}";
    struct moed_error error;
    static const char turns[] =
        "[{\"role\": \"system\", \"content\": [{\"type\": \"text\", \"text\": \"Short.\"}]}, " USER
        ", " ASSISTANT "[{\"type\": \"text\", \"text\": \"I \"}, {\"type\": \"text\", \"text\": "
        "\"look.\"}], " MADE_CALL "}, {\"role\": \"tool\", \"tool_call_id\": \"c\", \"content\": "
        "[{\"type\": \"text\", \"text\": \"Sun\"}]}]";
    open_chat(NULL);
    assert_int_equal(moed_chat_add_json(chat, turns, 0, NULL), MOED_OK);
    assert_int_equal(moed_chat_answer(chat, NULL, NULL, NULL, NULL, NULL), MOED_OK);
    expect_prompt("<system\nShort.>\n<user\nHi>\n<assistant\nI look.\n{\"tool_calls\":[{\"name\":"
                  "\"w\",\"arguments\":{}}]}>\n<user\nResult of the tool:\nSun>\n");
    assert_int_equal(moed_chat_add_json(chat,
                                        "{\"role\": \"user\", \"content\": [{\"type\": "
                                        "\"image_url\"}]}",
                                        0, NULL),
                     MOED_OK);
    assert_int_equal(moed_chat_answer(chat, NULL, NULL, NULL, NULL, &error),
                     MOED_ERROR_UNSUPPORTED);
    assert_non_null(strstr(error.message, "message 6"));
}

/* What came before the callback cancelled stays. */
static void test_cancel(void **state)
{
    struct seen seen = {.stop_after = 3};
    struct moed_result result = {.size = sizeof result};
    char *json;
    size_t bytes;
    open_chat(NULL);
    assert_int_equal(moed_chat_add(chat, "user", "Hi", 0, NULL), MOED_OK);
    worker.answer = "a long answer that is not wanted, with more bytes than the window has events";
    assert_int_equal(moed_chat_answer(chat, NULL, on_parts, &seen, &result, NULL), MOED_OK);
    assert_int_equal(result.reason, MOED_REASON_CANCELLED);
    assert_int_equal(moed_chat_count(chat), 2);
    assert_int_equal(moed_chat_json(chat, &json, &bytes, NULL), MOED_OK);
    assert_non_null(strstr(json, "\"a l"));
    assert_null(strstr(json, "events"));
    moed_free(json);
}

/* What binds the answer goes to the worker; docs/tool-calls.md, tool_choice. */
static void test_grammars(void **state)
{
    struct moed_grammar schema = {.size = sizeof schema,
                                  .kind = MOED_GRAMMAR_JSON_SCHEMA,
                                  .text = "{\"type\": \"object\"}, and more",
                                  .text_bytes = 18};
    struct moed_generate_options generate = {.size = sizeof generate, .grammar = &schema};
    struct moed_chat_options options = {.size = sizeof options};
    open_chat(NULL);
    assert_int_equal(moed_chat_add(chat, "user", "Hi", 0, NULL), MOED_OK);
    assert_int_equal(moed_chat_answer(chat, &generate, NULL, NULL, NULL, NULL), MOED_OK);
    const Moed__V1__Grammar *g = stand_in_look(&worker, 0).last->grammar;
    assert_int_equal(g->kind, MOED__V1__GRAMMAR__KIND__GBNF); /* it may reason before the JSON */
    assert_non_null(strstr((const char *)g->text.data, "%json {\"type\": \"object\"}\n"));
    moed_chat_truncate(chat, 1);

    options.thinking = MOED_THINKING_OFF;
    assert_int_equal(moed_chat_configure(chat, &options, NULL), MOED_OK);
    assert_int_equal(moed_chat_answer(chat, &generate, NULL, NULL, NULL, NULL), MOED_OK);
    g = stand_in_look(&worker, 0).last->grammar;
    assert_int_equal(g->kind, MOED__V1__GRAMMAR__KIND__JSON_SCHEMA);
    assert_int_equal(g->text.len, 18);
    moed_chat_truncate(chat, 1);

    options = (struct moed_chat_options){
        .size = sizeof options, .tools = TOOLS, .tool_choice = MOED_TOOLS_REQUIRED};
    assert_int_equal(moed_chat_configure(chat, &options, NULL), MOED_OK);
    assert_int_equal(moed_chat_answer(chat, NULL, NULL, NULL, NULL, NULL), MOED_OK);
    g = stand_in_look(&worker, 0).last->grammar;
    assert_non_null(g);
    assert_int_equal(g->trigger.len, 0); /* from the first token */
    assert_int_equal(g->n_marks > 0, 1);
    moed_chat_truncate(chat, 1);

    options.tool_choice = MOED_TOOLS_AUTO;
    assert_int_equal(moed_chat_configure(chat, &options, NULL), MOED_OK);
    assert_int_equal(moed_chat_answer(chat, NULL, NULL, NULL, NULL, NULL), MOED_OK);
    g = stand_in_look(&worker, 0).last->grammar;
    assert_true(g->trigger.len == 11 && memcmp(g->trigger.data, "<tool_call>", 11) == 0);
    moed_chat_truncate(chat, 1);

    options.tool_choice = MOED_TOOLS_NONE;
    assert_int_equal(moed_chat_configure(chat, &options, NULL), MOED_OK);
    assert_int_equal(moed_chat_answer(chat, NULL, NULL, NULL, NULL, NULL), MOED_OK);
    assert_null(stand_in_look(&worker, 0).last->grammar);
    expect_prompt("<user\nHi>\n<assistant\n");
}

static void refused(const struct moed_chat_options *options, const char *says)
{
    struct moed_error error;
    enum moed_code code = moed_chat_configure(chat, options, &error);
    assert_true(code == MOED_ERROR_USAGE || code == MOED_ERROR_FORMAT);
    if (!strstr(error.message, says))
        fail_msg("'%s' in '%s'", says, error.message);
}

static void test_refused(void **state)
{
    struct moed_chat_options o = {.size = sizeof o, .tools = "[{]"};
    struct moed_error error;
    struct moed_request *r;
    open_chat(NULL);
    refused(&(struct moed_chat_options){.tools = TOOLS}, "sizeof(struct moed_chat_options)");
    refused(&o, "tools: line 1");
    o.tools = "{}";
    refused(&o, "not a JSON array");
    o.tools = "[{\"type\": \"function\"}]";
    refused(&o, "name");
    o = (struct moed_chat_options){.size = sizeof o, .tool_choice = MOED_TOOLS_REQUIRED};
    refused(&o, "no tools");
    o = (struct moed_chat_options){
        .size = sizeof o, .tools = TOOLS, .tool_choice = MOED_TOOLS_NAMED, .tool_name = "x"};
    refused(&o, "no tool 'x'");
    o = (struct moed_chat_options){.size = sizeof o, .variables = "[]"};
    refused(&o, "not a JSON object");
    o = (struct moed_chat_options){.size = sizeof o, .chat_template = "{% if %}"};
    refused(&o, "line 1");

    assert_int_equal(moed_chat_start(chat, NULL, &r, &error), MOED_ERROR_USAGE);
    assert_non_null(strstr(error.message, "no messages"));
    assert_int_equal(moed_chat_add(chat, "user", "\xff", 0, &error), MOED_ERROR_USAGE);
    assert_int_equal(moed_chat_add(chat, "", "x", 0, &error), MOED_ERROR_USAGE);
    assert_int_equal(moed_chat_add_json(chat, "[{\"content\": 1}]", 0, &error), MOED_ERROR_USAGE);
    assert_int_equal(moed_chat_add_json(chat, "[", 0, &error), MOED_ERROR_USAGE);
    assert_int_equal(moed_chat_count(chat), 0);
    assert_int_equal(moed_chat_add(chat, "user", "x", 0, &error), MOED_OK);
    struct moed_generate_options prompt = prompt_of("x");
    assert_int_equal(moed_chat_start(chat, &prompt, &r, &error), MOED_ERROR_USAGE);
    assert_non_null(strstr(error.message, "messages"));
    r = start("count 1");
    assert_int_equal(moed_chat_add_answer(chat, r, &error), MOED_ERROR_USAGE);
    moed_request_free(r);
    assert_int_equal(moed_chat_count(chat), 1);
}

/* A chat and its request may outlive the session's handle, and each other. */
static void test_lifetimes(void **state)
{
    struct moed_session *s;
    struct moed_chat *own;
    struct moed_request *r;
    const struct moed_event *event;
    struct moed_chat_options options = {.size = sizeof options, .tools = TOOLS};
    assert_int_equal(moed_attach(NULL, &s, NULL), MOED_OK);
    assert_int_equal(moed_chat_new(s, &options, &own, NULL), MOED_OK);
    assert_int_equal(moed_chat_add(own, "user", "Hi", 0, NULL), MOED_OK);
    assert_int_equal(moed_chat_start(own, NULL, &r, NULL), MOED_OK);
    assert_int_equal(moed_chat_configure(own, NULL, NULL), MOED_OK); /* r keeps its tools */
    enum moed_code code;
    while (!(code = moed_request_next(r, FOR_EVER, &event, NULL)) && event->kind != MOED_EVENT_DONE)
        ;
    assert_int_equal(code, MOED_OK);
    moed_detach(s);
    assert_int_equal(moed_chat_add_answer(own, r, NULL), MOED_OK);
    assert_int_equal(moed_chat_count(own), 2);
    struct moed_request *late;
    assert_int_equal(moed_chat_start(own, NULL, &late, NULL), MOED_ERROR_CANCELLED);
    moed_chat_free(own);
    moed_request_free(r);
    moed_chat_free(NULL);
}

int main(void)
{
#define CHAT_TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)
    const struct CMUnitTest tests[] = {
        CHAT_TEST(test_starts_at_a_silent_worker),
        CHAT_TEST(test_content),
        CHAT_TEST(test_reasoning),
        CHAT_TEST(test_calls),
        CHAT_TEST(test_one_call),
        CHAT_TEST(test_one_call_at_every_speed),
        CHAT_TEST(test_one_call_and_what_is_behind),
        CHAT_TEST(test_turns),
        CHAT_TEST(test_effort),
        CHAT_TEST(test_tools_stay),
        CHAT_TEST(test_text_stays_text),
        CHAT_TEST(test_continues),
        CHAT_TEST(test_continued_messages),
        CHAT_TEST(test_parts_as_text),
        CHAT_TEST(test_cancel),
        CHAT_TEST(test_grammars),
        CHAT_TEST(test_refused),
        CHAT_TEST(test_lifetimes),
    };
    return cmocka_run_group_tests(tests, make_run_dir, remove_run_dir);
}
