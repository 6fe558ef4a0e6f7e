/* Answers of the HTTP APIs: canned texts of models go through the code that reads and writes real
 * ones, whole and as a stream. What the client gets is read back as JSON: a stream's deltas, put
 * together, are the whole answer. test_http_answer_tokens.c has an answer's tokens. */
#include "http_answer_bench.h"

#include "client/http/api/anthropic.h"
#include "client/http/api/ollama.h"
#include "client/http/api/openai.h"
#include "client/http/api/openai_responses.h"

#include <stdio.h>
#include <stdlib.h>

/* ---- What the client understands ---- */

struct understood {
    struct strbuf reasoning, content;
    struct strbuf names[8], arguments[8];
    unsigned calls;
    char reason[32];
};

static void understood_init(struct understood *u)
{
    memset(u, 0, sizeof *u);
    strbuf_init(&u->reasoning);
    strbuf_init(&u->content);
    for (int i = 0; i < 8; i++) {
        strbuf_init(&u->names[i]);
        strbuf_init(&u->arguments[i]);
    }
}

static void understood_fini(struct understood *u)
{
    strbuf_fini(&u->reasoning);
    strbuf_fini(&u->content);
    for (int i = 0; i < 8; i++) {
        strbuf_fini(&u->names[i]);
        strbuf_fini(&u->arguments[i]);
    }
}

static void append(struct strbuf *to, const json_t *text)
{
    if (json_is_string(text))
        strbuf_append(to, json_string_value(text), json_string_length(text));
}

static void note_reason(struct understood *u, const json_t *reason)
{
    if (json_is_string(reason))
        snprintf(u->reason, sizeof u->reason, "%s", json_string_value(reason));
}

static void append_dump(struct strbuf *to, const json_t *object)
{
    char *text = json_dumps(object, JSON_COMPACT);
    assert_non_null(text);
    strbuf_append(to, text, strlen(text));
    free(text);
}

typedef void reader(struct understood *u, const json_t *object);

/* A message or a delta of OpenAI's chat, in a stream or not. */
static void read_chat(struct understood *u, const json_t *object)
{
    const json_t *choice = json_array_get(json_object_get(object, "choices"), 0);
    const json_t *message = json_object_get(choice, "message");
    if (!message)
        message = json_object_get(choice, "delta");
    const json_t *calls = json_object_get(message, "tool_calls");
    append(&u->content, json_object_get(message, "content"));
    append(&u->reasoning, json_object_get(message, "reasoning_content"));
    note_reason(u, json_object_get(choice, "finish_reason"));
    for (size_t i = 0; i < json_array_size(calls); i++) {
        const json_t *call = json_array_get(calls, i), *index = json_object_get(call, "index");
        size_t at = index ? (size_t)json_integer_value(index) : i;
        assert_true(at < 8 && at <= u->calls);
        u->calls = at == u->calls ? u->calls + 1 : u->calls;
        append(&u->names[at], json_object_get(json_object_get(call, "function"), "name"));
        append(&u->arguments[at], json_object_get(json_object_get(call, "function"), "arguments"));
    }
}

static void read_block(struct understood *u, const json_t *block)
{
    const char *type = json_string_value(json_object_get(block, "type"));
    append(&u->content, json_object_get(block, "text"));
    append(&u->reasoning, json_object_get(block, "thinking"));
    if (strcmp(type, "tool_use") == 0) {
        assert_true(u->calls < 8);
        append(&u->names[u->calls], json_object_get(block, "name"));
        if (json_object_size(json_object_get(block, "input")))
            append_dump(&u->arguments[u->calls], json_object_get(block, "input"));
        u->calls++;
    }
}

/* A message, or an event of a stream, of Anthropic's. */
static void read_anthropic(struct understood *u, const json_t *object)
{
    const json_t *content = json_object_get(object, "content");
    const json_t *delta = json_object_get(object, "delta");
    const char *type = json_string_value(json_object_get(object, "type"));
    for (size_t i = 0; i < json_array_size(content); i++)
        read_block(u, json_array_get(content, i));
    if (strcmp(type, "content_block_start") == 0)
        read_block(u, json_object_get(object, "content_block"));
    append(&u->content, json_object_get(delta, "text"));
    append(&u->reasoning, json_object_get(delta, "thinking"));
    if (u->calls)
        append(&u->arguments[u->calls - 1], json_object_get(delta, "partial_json"));
    note_reason(u, json_object_get(object, "stop_reason"));
    note_reason(u, json_object_get(delta, "stop_reason"));
}

static void read_item(struct understood *u, const json_t *item)
{
    const char *type = json_string_value(json_object_get(item, "type"));
    const json_t *text =
        json_object_get(json_array_get(json_object_get(item, "content"), 0), "text");
    if (strcmp(type, "message") == 0) {
        append(&u->content, text);
    } else if (strcmp(type, "reasoning") == 0) {
        append(&u->reasoning, text);
    } else {
        assert_string_equal(type, "function_call");
        append(&u->names[u->calls], json_object_get(item, "name"));
        append(&u->arguments[u->calls++], json_object_get(item, "arguments"));
    }
}

/* A response of OpenAI's, or an event; the last event's response must be what the deltas were. */
static void read_response(struct understood *u, const json_t *object)
{
    const char *type = json_string_value(json_object_get(object, "type"));
    const json_t *output = json_object_get(object, "output");
    for (size_t i = 0; i < json_array_size(output); i++)
        read_item(u, json_array_get(output, i));
    note_reason(u, json_object_get(object, "status"));
    if (!type)
        return;
    const json_t *delta = json_object_get(object, "delta");
    if (strcmp(type, "response.output_item.added") == 0)
        read_item(u, json_object_get(object, "item"));
    else if (strcmp(type, "response.output_text.delta") == 0)
        append(&u->content, delta);
    else if (strcmp(type, "response.reasoning_text.delta") == 0)
        append(&u->reasoning, delta);
    else if (strcmp(type, "response.function_call_arguments.delta") == 0)
        append(&u->arguments[u->calls - 1], delta);
    else if (strcmp(type, "response.completed") == 0) {
        struct understood whole;
        understood_init(&whole);
        read_response(&whole, json_object_get(object, "response"));
        assert_string_equal(text_of(&whole.content), text_of(&u->content));
        assert_string_equal(text_of(&whole.reasoning), text_of(&u->reasoning));
        assert_int_equal(whole.calls, u->calls);
        note_reason(u, json_object_get(json_object_get(object, "response"), "status"));
        understood_fini(&whole);
    }
}

static void read_ollama(struct understood *u, const json_t *object)
{
    const json_t *message = json_object_get(object, "message");
    const json_t *calls = json_object_get(message, "tool_calls");
    append(&u->content, json_object_get(message, "content"));
    append(&u->reasoning, json_object_get(message, "thinking"));
    note_reason(u, json_object_get(object, "done_reason"));
    for (size_t i = 0; i < json_array_size(calls); i++) {
        const json_t *function = json_object_get(json_array_get(calls, i), "function");
        append(&u->names[u->calls], json_object_get(function, "name"));
        append_dump(&u->arguments[u->calls++], json_object_get(function, "arguments"));
    }
}

/* Every "data: " of events, every line of lines, or the one object. */
static void read_all(struct understood *u, const struct strbuf *out, reader *read)
{
    char *copy = strdup(out->data), *rest = copy;
    assert_non_null(copy);
    for (char *line; (line = strsep(&rest, "\n")) != NULL;) {
        const char *text = strncmp(line, "data: ", 6) == 0 ? line + 6 : line;
        if (!*text || strncmp(text, "event: ", 7) == 0 || strcmp(text, "[DONE]") == 0)
            continue;
        json_error_t why;
        json_t *object = json_loads(text, JSON_REJECT_DUPLICATES, &why);
        if (!object)
            fail_msg("%s: %s", why.text, text);
        read(u, object);
        json_decref(object);
    }
    free(copy);
}

/* ---- The APIs ---- */

static const struct {
    parser *parse;
    const char *whole, *stream; /* bodies */
    const struct dialect *dialect;
    reader *read;
    const char *end, *end_calls; /* why it ended */
} apis[] = {
    {parse_chat, CHAT("," TOOLS), CHAT(",\"stream\":true," TOOLS), &chat_dialect, read_chat, "stop",
     "tool_calls"},
    {parse_message,
     CHAT(",\"max_tokens\":99,\"tools\":[{\"name\":\"get_weather\",\"input_schema\":{\"type\":"
          "\"object\",\"properties\":{\"city\":{\"type\":\"string\"}}}},{\"name\":\"now\"}]"),
     CHAT(",\"max_tokens\":99,\"stream\":true,\"tools\":[{\"name\":\"get_weather\",\"input_schema"
          "\":{\"type\":\"object\",\"properties\":{\"city\":{\"type\":\"string\"}}}},{\"name\":"
          "\"now\"}]"),
     &message_dialect, read_anthropic, "end_turn", "tool_use"},
    {parse_response,
     "{\"input\":\"hi\",\"tools\":[{\"type\":\"function\",\"name\":\"get_weather\",\"parameters\":"
     "{\"type\":\"object\",\"properties\":{\"city\":{\"type\":\"string\"}}}},{\"type\":"
     "\"function\",\"name\":\"now\"}]}",
     "{\"input\":\"hi\",\"stream\":true,\"tools\":[{\"type\":\"function\",\"name\":\"get_weather\","
     "\"parameters\":{\"type\":\"object\",\"properties\":{\"city\":{\"type\":\"string\"}}}},"
     "{\"type\":\"function\",\"name\":\"now\"}]}",
     &response_dialect, read_response, "completed", "completed"},
    {parse_ollama_chat, CHAT(",\"stream\":false," TOOLS), CHAT("," TOOLS), &ollama_chat_dialect,
     read_ollama, "stop", "stop"},
};

/* The calls as "NAME(ARGUMENTS) ...", the arguments without blanks. */
static void calls_of(const struct understood *u, struct strbuf *out)
{
    for (unsigned i = 0; i < u->calls; i++) {
        json_t *arguments =
            u->arguments[i].len ? json_loads(u->arguments[i].data, 0, NULL) : json_object();
        if (!json_is_object(arguments))
            fail_msg("the arguments are no object: %s", text_of(&u->arguments[i]));
        strbuf_printf(out, "%s%s(", i ? " " : "", text_of(&u->names[i]));
        append_dump(out, arguments);
        strbuf_printf(out, ")");
        json_decref(arguments);
    }
}

static void check(size_t api, const struct canned *model, bool stream, size_t step)
{
    struct bench b;
    struct understood u;
    struct strbuf calls;
    bench_init(&b, apis[api].parse, stream ? apis[api].stream : apis[api].whole, apis[api].dialect,
               model);
    bench_run(&b, model->text, step);
    understood_init(&u);
    strbuf_init(&calls);
    read_all(&u, &b.x.out, apis[api].read);
    calls_of(&u, &calls);
    assert_string_equal(text_of(&u.reasoning), model->reasoning);
    assert_string_equal(text_of(&u.content), model->content);
    assert_string_equal(text_of(&calls), model->calls);
    assert_string_equal(u.reason, *model->calls ? apis[api].end_calls : apis[api].end);
    strbuf_fini(&calls);
    understood_fini(&u);
    bench_fini(&b);
}

static void test_every_api_tells_the_same(void **state)
{
    for (size_t api = 0; api < sizeof apis / sizeof *apis; api++)
        for (size_t i = 0; i < sizeof canned_answers / sizeof *canned_answers; i++)
            for (size_t step = 1; step < 9; step += 3) {
                check(api, &canned_answers[i], false, step);
                check(api, &canned_answers[i], true, step);
            }
}

/* Where arguments stand as an object, they are the model's own text, on one line. */
static void test_arguments_as_objects(void **state)
{
    static const struct {
        const char *text, *object;
    } cases[] = {
        {"", "{}"},
        {" {\n} ", "{}"},
        {"{\"lat\": 52.52, \"n\": 1.0, \"e\": 1E5}", "{\"lat\":52.52,\"n\":1.0,\"e\":1E5}"},
        {"{\"id\": 12345678901234567890123}", "{\"id\":12345678901234567890123}"},
        {"{\"a b\":\t[ \"c  \\\" d\",\n-0.1 ]}", "{\"a b\":[\"c  \\\" d\",-0.1]}"},
        {"{\"a\":\"\\ud800 \\ud83d\\ude00 \\udc00\\\\ud800\"}",
         "{\"a\":\"\\ufffd \\ud83d\\ude00 \\ufffd\\\\ud800\"}"},
        {"{\"a\":\"\\ud83dx\xc3\xa4\xff\"}", "{\"a\":\"\\ufffdx\xc3\xa4\\ufffd\"}"},
        {"{\"a\":1", "{}"}, /* it was cut */
        {"{\"a\":01}", "{}"},
        {"[1]", "{}"},
        {"{} {}", "{}"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct part call = {.kind = PART_CALL,
                            .text = {(char *)cases[i].text, strlen(cases[i].text), 0, false}};
        struct strbuf out;
        strbuf_init(&out);
        output_arguments_json(&call, &out);
        assert_string_equal(text_of(&out), cases[i].object);
        strbuf_fini(&out);
    }
}

/* Without tools the marks of calls are text; reasoning can stay in the text, or be dropped. */
static void test_what_is_not_asked_for(void **state)
{
    static const struct {
        const char *body, *content;
    } cases[] = {
        {CHAT(""), "<tool_call>{\"name\": \"now\"}</tool_call>"},
        {CHAT("," TOOLS ",\"tool_choice\":\"none\""), "<tool_call>{\"name\": \"now\"}</tool_call>"},
        {CHAT(",\"reasoning_format\":\"none\""),
         "<think>Hm</think><tool_call>{\"name\": \"now\"}</tool_call>"},
        {CHAT(",\"include_reasoning\":false"), "<tool_call>{\"name\": \"now\"}</tool_call>"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct bench b;
        struct understood u;
        bench_init(&b, parse_chat, cases[i].body, &chat_dialect, &canned_answers[0]);
        bench_run(&b, "<think>Hm</think><tool_call>{\"name\": \"now\"}</tool_call>", 5);
        understood_init(&u);
        read_all(&u, &b.x.out, read_chat);
        assert_string_equal(text_of(&u.content), cases[i].content);
        assert_int_equal(u.reasoning.len, i < 2 ? 2 : 0);
        assert_int_equal(u.calls, 0);
        understood_fini(&u);
        bench_fini(&b);
    }
}

/* parallel_tool_calls false: the first call ends the answer, and what follows is dropped. */
static void test_one_call(void **state)
{
    struct bench b;
    struct understood u;
    bench_init(&b, parse_chat, CHAT("," TOOLS ",\"parallel_tool_calls\":false"), &chat_dialect,
               &canned_answers[0]);
    bench_run(&b, canned_answers[4].text, 4);
    assert_true(output_is_over(&b.c.output));
    understood_init(&u);
    read_all(&u, &b.x.out, read_chat);
    assert_int_equal(u.calls, 1);
    understood_fini(&u);
    bench_fini(&b);
}

/* A call in the reasoning is none where one is demanded, and a named function is called once. */
static void test_demanded_call(void **state)
{
    static const char call[] = "<tool_call>\n{\"name\": \"now\"}\n</tool_call>";
    static const struct canned open = {.format = "hermes", .open = true};
    static const struct {
        const char *choice;
        unsigned calls;
    } cases[] = {{"", 1},
                 {",\"tool_choice\":\"required\"", 2},
                 {",\"tool_choice\":{\"type\":\"function\",\"function\":{\"name\":\"now\"}}", 1}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char body[1024], text[256];
        struct bench b;
        snprintf(body, sizeof body, CHAT("," TOOLS "%s"), cases[i].choice);
        snprintf(text, sizeof text, "A %s%s</think>\n%s\n%s", call, i > 0 ? "." : "",
                 i > 0 ? call : "", i > 0 ? call : "");
        bench_init(&b, parse_chat, body, &chat_dialect, &open);
        bench_run(&b, text, 7);
        assert_int_equal(b.c.output.calls, cases[i].calls);
        assert_int_equal(b.c.output.parts[0].kind, PART_REASONING);
        assert_int_equal(b.c.output.parts[0].text.len, i > 0 ? strlen(call) + 3 : 2);
        bench_fini(&b);
    }
}

/* A stream that is cut in a call says so, and is no finished call. */
static void test_cut_call(void **state)
{
    struct bench b;
    struct understood u;
    bench_init(&b, parse_chat, CHAT(",\"stream\":true," TOOLS), &chat_dialect, &canned_answers[0]);
    b.a.dialect->begin(&b.a);
    output_take(&b.c.output, "<tool_call>\n{\"name\": \"now\", \"arguments\": {\"a", 42, 9);
    b.c.result.reason = MOED_REASON_LENGTH;
    output_finish(&b.c.output, choice_is_cut(&b.c));
    b.a.dialect->end_choice(&b.c);
    understood_init(&u);
    read_all(&u, &b.x.out, read_chat);
    assert_int_equal(u.calls, 1);
    assert_string_equal(u.reason, "length");
    understood_fini(&u);
    bench_fini(&b);
}

/* A stream that ends inside a call by itself, as at a stop string: no API says that it calls. */
static void test_broken_call(void **state)
{
    static const char *const reasons[] = {"stop", "stop_sequence", NULL, "stop"};
    for (size_t api = 0; api < sizeof apis / sizeof *apis; api++) {
        struct bench b;
        struct understood u;
        bench_init(&b, apis[api].parse, apis[api].stream, apis[api].dialect, &canned_answers[0]);
        b.a.dialect->begin(&b.a);
        output_take(&b.c.output, "<tool_call>\n{\"name\": \"now\", \"arguments\": {\"a", 42, 9);
        b.c.result.reason = MOED_REASON_STOP;
        output_finish(&b.c.output, choice_is_cut(&b.c));
        b.a.dialect->end_choice(&b.c);
        b.a.dialect->end(&b.a);
        assert_false(choice_has_calls(&b.c));
        understood_init(&u);
        if (reasons[api]) {
            read_all(&u, &b.x.out, apis[api].read);
            assert_string_equal(u.reason, reasons[api]);
        }
        understood_fini(&u);
        bench_fini(&b);
    }
}

/* The items of a response that is cut: those that are whole are completed, the last one is not. */
static void test_cut_items(void **state)
{
    static const struct {
        const char *text, *done; /* the last item's event has this */
        bool whole;
    } cases[] = {
        {"Hello", "Hello\",\"annotations\":[],\"logprobs\":[]}]}", false},
        {"<tool_call>\n{\"name\": \"now\", \"arguments\": {\"a",
         "\"arguments\":\"{\\\"a\",\"status\":\"incomplete\"}", false},
        {"<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>",
         "\"arguments\":\"{}\",\"status\":\"completed\"}", true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct bench b;
        bench_init(&b, parse_response, apis[2].stream, &response_dialect, &canned_answers[0]);
        b.a.dialect->begin(&b.a);
        output_take(&b.c.output, cases[i].text, strlen(cases[i].text), 9);
        b.c.result.reason = MOED_REASON_LENGTH;
        output_finish(&b.c.output, choice_is_cut(&b.c));
        strbuf_clear(&b.x.out);
        b.a.dialect->end(&b.a);
        assert_non_null(strstr(b.x.out.data, cases[i].done));
        const char *output = strstr(b.x.out.data, "\"output\":[");
        assert_non_null(output);
        assert_non_null(strstr(output, cases[i].whole ? "\"status\":\"completed\""
                                                      : "\"status\":\"incomplete\""));
        bench_fini(&b);
    }
}

/* A stream that begins or fails before there is a choice tells of none. */
static void test_responses_without_choices(void **state)
{
    struct exchange x = {0};
    struct answer a = {.x = &x, .id = "resp_1", .model = "m"};
    struct problem p = {.status = 503};
    strbuf_init(&x.out);
    response_dialect.begin(&a);
    (response_dialect.fail)(&a, &p); /* no macro of cmocka */
    assert_false(x.out.failed);
    assert_non_null(strstr(x.out.data, "event: response.created\n"));
    assert_non_null(strstr(x.out.data, "event: response.failed\n"));
    assert_null(strstr(x.out.data, "\"output\":[{"));
    strbuf_fini(&x.out);
}

/* What an error after the head says: clients that know the code shorten the conversation. */
static void test_codes_of_failed_responses(void **state)
{
    static const struct {
        struct problem problem;
        const char *says;
    } cases[] = {
        {{.status = 400, .code = "context_length_exceeded"},
         "\"code\":\"context_length_exceeded\""},
        {{.status = 400}, "\"code\":\"invalid_prompt\""},
        {{.status = 503}, "\"code\":\"server_error\""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct exchange x = {0};
        struct answer a = {.x = &x, .id = "resp_1", .model = "m"};
        strbuf_init(&x.out);
        (response_dialect.fail)(&a, &cases[i].problem);
        assert_false(x.out.failed);
        assert_non_null(strstr(x.out.data, cases[i].says));
        strbuf_fini(&x.out);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_api_tells_the_same),
        cmocka_unit_test(test_arguments_as_objects),
        cmocka_unit_test(test_what_is_not_asked_for),
        cmocka_unit_test(test_one_call),
        cmocka_unit_test(test_demanded_call),
        cmocka_unit_test(test_cut_call),
        cmocka_unit_test(test_broken_call),
        cmocka_unit_test(test_cut_items),
        cmocka_unit_test(test_responses_without_choices),
        cmocka_unit_test(test_codes_of_failed_responses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
