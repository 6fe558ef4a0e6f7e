/* An answer of the HTTP APIs without a server: the texts of models go through the code that writes
 * real answers. */
#ifndef MOED_TESTS_HTTP_ANSWER_BENCH_H
#define MOED_TESTS_HTTP_ANSWER_BENCH_H

#include "http_ask_cases.h"

#include "client/http/api/answer.h"

#define TOOLS                                                                                      \
    "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"get_weather\",\"parameters\":{"    \
    "\"type\":\"object\",\"properties\":{\"city\":{\"type\":\"string\"}}}}},"                      \
    "{\"type\":\"function\",\"function\":{\"name\":\"now\"}}]"

/* A model's answer, and what it must become. */
struct canned {
    const char *format, *text;
    bool open;                               /* the prompt ended inside reasoning */
    const char *reasoning, *content, *calls; /* calls: "NAME(ARGUMENTS) NAME(ARGUMENTS)" */
};

static const struct canned canned_answers[] = {
    {"hermes", "Hello there.", false, "", "Hello there.", ""},
    {"hermes", "<think>Hm, \"so\"\n?</think>\n\nHello.", false, "Hm, \"so\"\n?", "Hello.", ""},
    {"hermes", "Hm</think>Hello.", true, "Hm", "Hello.", ""},
    {"hermes", "Hm, no end", true, "Hm, no end", "", ""},
    {"hermes",
     "<think>Hm</think>Let me see.\n<tool_call>\n{\"name\": \"get_weather\", \"arguments\": "
     "{\"city\": \"K\xc3\xb6ln \\\"x\\\"\"}}\n</tool_call>\n<tool_call>\n{\"name\": \"now\", "
     "\"arguments\": {}}\n</tool_call>",
     false, "Hm", "Let me see.", "get_weather({\"city\":\"K\xc3\xb6ln \\\"x\\\"\"}) now({})"},
    {"hermes", "<tool_call>\n{\"name\": \"nope\", \"arguments\": {}}\n</tool_call>", false, "",
     "<tool_call>\n{\"name\": \"nope\", \"arguments\": {}}\n</tool_call>", ""},
    {"qwen3-coder",
     "<tool_call>\n<function=get_weather>\n<parameter=city>\nRome\n</parameter>\n</function>\n"
     "</tool_call>",
     false, "", "", "get_weather({\"city\":\"Rome\"})"},
    {"harmony",
     "<|channel|>analysis<|message|>Hm<|end|><|start|>assistant<|channel|>final<|message|>Hello.",
     false, "Hm", "Hello.", ""},
    {"harmony",
     "<|channel|>analysis<|message|>Hm<|end|><|start|>assistant<|channel|>commentary "
     "to=functions.now <|constrain|>json<|message|>{}",
     false, "Hm", "", "now({})"},
    {"generic", "{\"response\": \"Hello.\"}", false, "", "Hello.", ""},
    {"generic", "{\"tool_calls\": [{\"name\": \"now\", \"arguments\": {\n}}]}", false, "", "",
     "now({})"},
    {"mistral", "[TOOL_CALLS]get_weather[ARGS]{\"city\": \"Rome\"}", false, "", "",
     "get_weather({\"city\":\"Rome\"})"},
};

struct bench {
    struct exchange x;
    struct app app;
    struct answer a;
    struct choice c;
    struct chat_rendered chat;
};

static inline void bench_init(struct bench *b, parser *parse, const char *body,
                              const struct dialect *d, const struct canned *model)
{
    static const struct reasoning_marks think = {.begin = "<think>", .end = "</think>"};
    struct problem p = {0};
    *b = (struct bench){0};
    strbuf_init(&b->x.out);
    ask_init(&b->a.ask);
    if (!parse(&b->a.ask, body, strlen(body), &p))
        fail_msg("%s: %s", body, p.message);
    ask_seed(&b->a.ask);
    b->a.x = &b->x;
    b->a.app = &b->app;
    b->a.dialect = d;
    b->a.choices = &b->c;
    b->a.n_choices = 1;
    strcpy(b->a.id, "resp_0123");
    strcpy(b->a.model, "m");
    b->c.answer = &b->a;
    b->c.scores.top = b->a.ask.top_logprobs;
    b->chat.style.format = tool_format_find(model->format);
    b->chat.style.reasoning = strcmp(model->format, "hermes") == 0 ? &think : NULL;
    b->chat.reasoning_open = model->open;
    assert_non_null(b->chat.style.format);
    struct moed_error error;
    assert_int_equal(output_start(&b->c.output, &b->c, 0, &b->a.ask, &b->chat, &d->parts, &error),
                     MOED_OK);
}

static inline void bench_fini(struct bench *b)
{
    output_fini(&b->c.output);
    scores_fini(&b->c.scores);
    ask_fini(&b->a.ask);
    strbuf_fini(&b->x.out);
}

/* Gives the text in parts of n bytes, which may cut marks, but no character. */
static inline void bench_run(struct bench *b, const char *text, size_t n)
{
    size_t len = strlen(text);
    if (b->a.ask.stream)
        b->a.dialect->begin(&b->a);
    for (size_t at = 0, end; at < len; at = end) {
        end = at + n < len ? at + n : len;
        while (((unsigned char)text[end] & 0xc0) == 0x80)
            end++;
        output_take(&b->c.output, text + at, end - at, 1);
        b->c.tokens++;
    }
    b->c.result = (struct moed_result){
        .size = sizeof(struct moed_result), .reason = MOED_REASON_END, .stop_index = -1};
    output_finish(&b->c.output, choice_is_cut(&b->c));
    b->c.done = true;
    if (b->a.ask.stream) {
        b->a.dialect->end_choice(&b->c);
        b->a.dialect->end(&b->a);
    } else {
        b->a.dialect->whole(&b->a);
    }
    assert_false(b->x.out.failed || b->c.output.failed);
}

static inline const char *text_of(const struct strbuf *b)
{
    return b->len ? b->data : "";
}

#endif
