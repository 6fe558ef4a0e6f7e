/* What is no call stays text, and nothing of it is lost. */
#include "toolcall_run.h"

#include <stdio.h>

static const struct reasoning_marks think = {.begin = "<think>", .end = "</think>"};

static struct tool_parser_options options(const char *format, const struct tool_list *tools)
{
    return (struct tool_parser_options){.format = tool_format_find(format),
                                        .reasoning = &think,
                                        .tools = tools,
                                        .calls_in_reasoning = true,
                                        .parallel = true,
                                        .id_seed = 1};
}

/* Neither a call nor reasoning: the content is the answer, byte for byte. */
static void check_text(const char *format, const char *text)
{
    struct tool_list *tools = tools_of(SAMPLE_TOOLS);
    struct tool_parser_options o = options(format, tools);
    char expected[1024];
    snprintf(expected, sizeof expected, "C(%s)", text);
    assert_events(o, text, expected);
    tool_list_free(tools);
}

static void test_text_stays(void **state)
{
    check_text("hermes", "<tool_call>");
    check_text("hermes", "a\n\n<tool_cal");
    check_text("hermes", "\n\n\n<tool_call>\n\n\n<tool_call>{");
    check_text("hermes", "a < b <tool_call > c\n\n\n");
    check_text("hermes", "<tool_call>\n{\"name\": \"nope\", \"arguments\": {}}\n</tool_call>");
    check_text("hermes", "<tool_call>{\"name\": \"now\", \"arguments\": 5}</tool_call>");
    check_text("hermes", "<tool_call>{\"name\": \"now\", \"arguments\": \"5\"}</tool_call>");
    check_text("hermes", "<tool_call>{\"name\": \"now\" \"arguments\": {}}</tool_call>");
    check_text("hermes", "<tool_call>{\"arguments\": {}}</tool_call>");
    check_text("hermes", "<tool_call>{\"arguments\": {}, \"name\": \"nope\"}</tool_call>");
    check_text("hermes", "<tool_call>[]</tool_call>");
    check_text("hermes", "<tool_call>{\"name\": \"now\\q\"}</tool_call>");
    check_text("hermes", "I think <think> is a tag</think>");
    check_text("tool-calls-tag", "<tool_calls>\n</tool_calls>");
    check_text("qwen3-coder", "<tool_call>\n</tool_call>");
    check_text("qwen3-coder", "<tool_call>\n<function=nope>\n</function>\n</tool_call>");
    check_text("qwen3-coder", "<tool_call><tool_call><function=now<function=now");
    check_text("qwen3-coder", "<function=now><parameter=a>1</function>");
    check_text("qwen3-coder", "<function=now>text</function>");
    check_text("glm", "<tool_call>now<arg_value>1</arg_value></tool_call>");
    check_text("glm", "<tool_call>now<arg_key>1</arg_key>2</tool_call>");
    check_text("deepseek-v3.2", "<｜DSML｜function_calls><｜DSML｜invoke name=\"edit\">"
                                "<｜DSML｜parameter name=\"path\" string=\"maybe\">");
    check_text("deepseek-v3",
               "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>now\n"
               "```json\n[]\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>");
    check_text("kimi-k2", "<|tool_calls_section_begin|><|tool_call_begin|>functions.nope:0"
                          "<|tool_call_argument_begin|>{}<|tool_call_end|>");
    check_text("solar-open", "<|tool_calls|><|tool_call:begin|>a<|tool_call:name|>nope"
                             "<|tool_call:args|>{}<|tool_call:end|>");
    check_text("solar-open", "<|tool_call:begin|>now<|tool_call:args|>{}<|tool_call:end|>");
    check_text("solar-open", "<|tool_call:begin|>a<|tool_call:name|>now<|tool_call:args|>[]");
    check_text("mistral", "[TOOL_CALLS]now {}");
    check_text("mistral", "[TOOL_CALLS][now]");
    check_text("functionary", "<function=nope>{}</function>");
    check_text("functionary", "<function=now {}></function>");
    check_text("functionary", "<function=now>5</function>");
    check_text("gigachat3", "function call<|role_sep|>\n{\"name\": \"nope\"}");
    check_text("gigachat3", "function call<|role_sep|>\n{\"name\": \"now\"");
    check_text("llama3", "{\"name\": \"nope\", \"parameters\": {}}");
    check_text("llama3", "  {\"name\": \"now\", \"parameters\"");
    check_text("lfm2", "<|tool_call_start|>[now(a=b)]<|tool_call_end|>");
    check_text("lfm2", "<|tool_call_start|>[now(), nope()]<|tool_call_end|>");
    check_text("lfm2", "<|tool_call_start|>[now(a='x]<|tool_call_end|>");
    check_text("gemma4", "<|tool_call>call:now{a:<|\"|>x}<tool_call|>");
    check_text("gemma4", "<|tool_call>now{}<tool_call|>");
    check_text("gemma4", "<|tool_call>call:now{a,b:1}<tool_call|>");
    check_text("gemma4", "<|tool_call>call:now{ :1}<tool_call|>");
    check_text("harmony", "<|channel|>commentary");
    check_text("harmony", "<|start|>");
    check_text("harmony", "to");
    check_text("harmony", "<|channel|>commentary to=functions.now <|constrain|>json<|message|>[1]");
    check_text("generic", "{\"response\": 5}");
    check_text("generic", "{\"tool_calls\": [{\"name\": \"nope\"}]}");
}

static void check(const char *format, const char *text, bool whole_calls, const char *expected)
{
    struct tool_list *tools = tools_of(SAMPLE_TOOLS);
    struct tool_parser_options o = options(format, tools);
    struct transcript t;
    o.whole_calls = whole_calls;
    transcript_run(&t, o, text, strlen(text), NULL, NULL);
    assert_string_equal(transcript_text(&t), expected);
    assert_cuts_equal(o, text, strlen(text), &t);
    transcript_fini(&t);
    tool_list_free(tools);
}

/* A call that breaks after its arguments began. */
static void test_broken_call(void **state)
{
    const char *text =
        "<tool_call>{\"name\": \"edit\", \"arguments\": {\"path\": oops}}</tool_call>";
    check("hermes", text, false, "N(edit)A({\"path\": )XC(oops}}</tool_call>)");
    check("hermes", text, true,
          "C(<tool_call>{\"name\": \"edit\", \"arguments\": {\"path\": oops}}</tool_call>)");
    check("hermes", "<tool_call>{\"name\": \"edit\", \"arguments\": {\"path\": \"x", false,
          "N(edit)A({\"path\": \"x)X");
    check("hermes", "<tool_call>{\"name\": \"edit\", \"arguments\": {\"path\": \"x", true,
          "C(<tool_call>{\"name\": \"edit\", \"arguments\": {\"path\": \"x)");
    check("qwen3-coder", "<function=edit><parameter=path>a</parameter>oops", false,
          "N(edit)A({\"path\":\"a\")XC(oops)");
    check("generic", "{\"response\": \"a\\qb\"}", false, "C(a\\qb\"})");
    check("harmony", "<|channel|>commentary to=functions.now<|message|>{\"a\":}<|call|>", false,
          "N(now)A({\"a\":)XC(})");
}

/* A malformed call does not hide the next one. */
static void test_call_after_text(void **state)
{
    check("hermes",
          "<tool_call>I mean <tool_call>\n{\"name\": \"<tool_call>\n{\"name\": \"now\"}\n"
          "</tool_call>",
          true, "C(<tool_call>I mean <tool_call>\n{\"name\": \")N(now)A({})E");
    check("hermes", "<tool_call>I mean <tool_call>{\"name\": \"now\"}</tool_call>", true,
          "C(<tool_call>I mean )N(now)A({})E");
    check("qwen3-coder", "<tool_call>\n<tool_call>\n<function=now></function></tool_call>", false,
          "C(<tool_call>\n)N(now)A({})E");
}

static void test_options(void **state)
{
    struct tool_list *tools = tools_of(SAMPLE_TOOLS);
    struct tool_parser_options o = options("hermes", tools);
    const char *two = "<tool_call>{\"name\":\"now\"}</tool_call><tool_call>{\"name\":\"now\"}"
                      "</tool_call>";
    o.parallel = false;
    assert_events(o, two, "N(now)A({})E");
    o.parallel = true;
    o.reasoning_open = true;
    assert_events(o, "\nHm <tool_call>\n\n\n</think>\n\nYes", "R(Hm <tool_call>\n)C(Yes)");
    assert_events(o, "cut in the middle", "R(cut in the middle)");
    assert_events(o, "", "");
    o.reasoning_open = false;
    o.reasoning = NULL;
    assert_events(o, "<think>a</think>", "C(<think>a</think>)");
    o.tools = NULL;
    assert_events(o, "<tool_call>{\"name\":\"now\"}</tool_call>",
                  "C(<tool_call>{\"name\":\"now\"}</tool_call>)");
    tool_list_free(tools);
}

/* A call ends reasoning; what is no call, though it begins as one, is reasoning. */
static void test_calls_in_reasoning(void **state)
{
    struct tool_list *tools = tools_of(SAMPLE_TOOLS);
    struct tool_parser_options o = options("qwen3-coder", tools);
    o.reasoning_open = true;
    assert_events(o, "Now.\n<tool_call>\n<function=now>\n</function>\n</tool_call>",
                  "R(Now.)N(now)A({})E");
    assert_events(o,
                  "Now.\n\n<function=edit>\n<parameter=path>\na\n</parameter>\n</function>\n"
                  "</tool_call>\n</think>\n\nDone",
                  "R(Now.)N(edit)A({\"path\":\"a\"})EC(Done)");
    assert_events(o, "A <tool_call> and <function=no> b.\n</think>\n\nYes",
                  "R(A <tool_call> and <function=no> b.)C(Yes)");
    assert_events(o, "A <tool_call>\n<function=now>\n\n</think>Yes<function=now></function>",
                  "R(A <tool_call>\n<function=now>)C(Yes)N(now)A({})E");
    assert_events(o, "A <tool_call>\n<fun", "R(A <tool_call>\n<fun)");
    assert_events(o, "A <tool_call></tool_call> b</think>c", "R(A <tool_call></tool_call> b)C(c)");
    o.format = tool_format_find("hermes");
    assert_events(o, "A <tool_call>{\"name\": \"no\"}</tool_call> b</think>c",
                  "R(A <tool_call>{\"name\": \"no\"}</tool_call> b)C(c)");
    assert_events(o, "A\n<tool_call>\n{\"name\": \"edit\", \"arguments\": {}}\n</tool_call>",
                  "R(A)N(edit)A({})E");
    for (int whole_calls = 0; whole_calls < 2; whole_calls++) {
        static const char broken[] =
            "A <tool_call>{\"name\": \"edit\", \"arguments\": {x} b</think>c";
        struct transcript t;
        o.whole_calls = whole_calls;
        transcript_run(&t, o, broken, strlen(broken), NULL, NULL);
        assert_string_equal(transcript_text(&t),
                            "R(A <tool_call>{\"name\": \"edit\", \"arguments\": {x} b)C(c)");
        assert_cuts_equal(o, broken, strlen(broken), &t);
        transcript_fini(&t);
    }
    o.tools = NULL;
    assert_events(o, "A <tool_call> b</think>c", "R(A <tool_call> b)C(c)");
    tool_list_free(tools);
}

#define NOW "<tool_call>{\"name\": \"now\"}</tool_call>"

/* Calls that the reasoning only quotes: it goes on behind them. */
static void test_quoted_calls(void **state)
{
    struct tool_list *tools = tools_of(SAMPLE_TOOLS);
    struct tool_parser_options o = options("hermes", tools);
    char spaces[200], quoted[200];
    (void)state;
    o.reasoning_open = true;
    snprintf(spaces, sizeof spaces, "A " NOW "%100sb</think>c", "");
    snprintf(quoted, sizeof quoted, "R(A " NOW "%100sb)C(c)", "");
    for (int whole_calls = 0; whole_calls < 2; whole_calls++) {
        o.whole_calls = whole_calls;
        assert_events(o, "I could write " NOW ", but no.</think>\n\nIt is 3.",
                      "R(I could write " NOW ", but no.)C(It is 3.)");
        assert_events(o, "A " NOW "\n" NOW "\n\nb</think>c", "R(A " NOW "\n" NOW "\n\nb)C(c)");
        assert_events(o, "A " NOW " b\n" NOW, "R(A " NOW " b)N(now)A({})E");
        assert_events(o, "A\n" NOW "\n" NOW "\n</think>\nc", "R(A)N(now)A({})EN(now)A({})EC(c)");
        assert_events(o, "A\n" NOW "\n</thi", "R(A)N(now)A({})E");
        assert_events(o, "A\n<tool_call>{\"name\": \"now\"}", "R(A)N(now)A({})E");
        assert_events(o, "A <tool_call>{\"name\": \"now\"} b</think>c",
                      "R(A <tool_call>{\"name\": \"now\"} b)C(c)");
        assert_events(o, "A " NOW "\n<tool_call>b</think>c", "R(A " NOW "\n<tool_call>b)C(c)");
        assert_events(o, "A " NOW "\n<tool_call>\n", "R(A " NOW "\n<tool_call>\n)");
        assert_events(o, spaces, quoted);
    }
    o.parallel = false;
    assert_events(o, "A " NOW " b</think>" NOW, "R(A " NOW " b)N(now)A({})E");
    assert_events(o, "A " NOW NOW "</think>" NOW, "R(A )N(now)A({})E");
    o.parallel = true;
    o.format = tool_format_find("qwen3-coder");
    assert_events(o,
                  "A <tool_call>\n<function=now>\n</function>\n</tool_call> b\n<function=now>\n"
                  "</function>\n</tool_call>\n</think>c",
                  "R(A <tool_call>\n<function=now>\n</function>\n</tool_call> b)N(now)A({})EC(c)");
    o.format = tool_format_find("minimax-m2");
    assert_events(
        o,
        "A <minimax:tool_call>\n<invoke name=\"now\">\n</invoke>\n<invoke name=\"no\">\n"
        "</invoke>\n</minimax:tool_call></think>c",
        "R(A <minimax:tool_call>\n<invoke name=\"now\">\n</invoke>\n<invoke name=\"no\">\n"
        "</invoke>\n</minimax:tool_call>)C(c)");
    assert_events(
        o,
        "A\n<minimax:tool_call>\n<invoke name=\"now\">\n</invoke>\n<invoke name=\"now\">\n"
        "</invoke>\n</minimax:tool_call></think>c",
        "R(A)N(now)A({})EN(now)A({})EC(c)");
    tool_list_free(tools);
}

/* A call in reasoning that breaks is read again as reasoning: the end mark may stand in it. */
static void test_broken_in_reasoning(void **state)
{
    struct tool_list *tools = tools_of(SAMPLE_TOOLS);
    struct tool_parser_options o = options("hermes", tools);
    (void)state;
    o.reasoning_open = true;
    for (int whole_calls = 0; whole_calls < 2; whole_calls++) {
        o.whole_calls = whole_calls;
        assert_events(
            o,
            "As <tool_call>{\"name\":\"edit\",\"arguments\":{\"text\":\"...} and so on."
            "</think>\n\nIt is 42.",
            "R(As <tool_call>{\"name\":\"edit\",\"arguments\":{\"text\":\"...} and so on.)"
            "C(It is 42.)");
        assert_events(
            o,
            "As <tool_call>{\"name\":\"edit\",\"arguments\":{\"text\":\"...}\n</think>\n\n"
            "<tool_call>\n{\"name\": \"now\"}\n</tool_call>",
            "R(As <tool_call>{\"name\":\"edit\",\"arguments\":{\"text\":\"...})N(now)A({})E");
        assert_events(o,
                      "As <tool_call>{\"name\":\"edit\",\"arguments\":{\"text\":\"...}. So "
                      "<tool_call>\n{\"name\": \"now\"}\n</tool_call>",
                      "R(As <tool_call>{\"name\":\"edit\",\"arguments\":{\"text\":\"...}. So )"
                      "N(now)A({})E");
    }
    o.format = tool_format_find("qwen3-coder");
    assert_events(o,
                  "As <function=edit><parameter=text>a, and so on.\n</think>\n\n<tool_call>\n"
                  "<function=now>\n</function>\n</tool_call>",
                  "R(As <function=edit><parameter=text>a, and so on.)N(now)A({})E");
    tool_list_free(tools);
}

/* Calls in reasoning do not count: the end of the reasoning comes, then a call. */
static void test_no_calls_in_reasoning(void **state)
{
    struct tool_list *tools = tools_of(SAMPLE_TOOLS);
    struct tool_parser_options o = options("hermes", tools);
    (void)state;
    o.reasoning_open = true;
    o.calls_in_reasoning = o.parallel = false;
    assert_events(o,
                  "A <tool_call>{\"name\": \"edit\"}</tool_call> b</think>\n<tool_call>{\"name\": "
                  "\"now\"}</tool_call>",
                  "R(A <tool_call>{\"name\": \"edit\"}</tool_call> b)N(now)A({})E");
    tool_list_free(tools);
}

/* The answer is cut inside the mark behind a call: that is not text. */
static void test_cut_end(void **state)
{
    struct tool_list *tools = tools_of(SAMPLE_TOOLS);
    assert_events(options("hermes", tools), "<tool_call>\n{\"name\": \"now\"}\n</tool_ca",
                  "N(now)A({})E");
    assert_events(options("hermes", tools), "<tool_call>\n{\"name\": \"now\"}\n</tool_cb",
                  "N(now)A({})EC(\n</tool_cb)");
    assert_events(options("seed", tools),
                  "<seed:tool_call>\n<function=now></function>\n</seed:", "N(now)A({})E");
    tool_list_free(tools);
}

static void ignore(void *context, const struct tool_event *e)
{
    (void)context, (void)e;
}

static void test_reasoning_counts(void **state)
{
    struct tool_parser *p;
    struct tool_parser_options o = options("hermes", NULL);
    o.on_event = ignore;
    o.reasoning_budget = 3;
    assert_int_equal(tool_parser_new(&o, &p, NULL), ERROR_OK);
    const char *parts[] = {"<think>", "a", " b", "</think>", "c", "d"};
    const bool over[] = {false, false, true, false, false, false};
    for (size_t i = 0; i < 6; i++) {
        assert_int_equal(tool_parser_feed(p, parts[i], strlen(parts[i]), 1), ERROR_OK);
        assert_int_equal(tool_parser_over_budget(p), over[i]);
    }
    assert_int_equal(tool_parser_finish(p), ERROR_OK);
    assert_int_equal(tool_parser_reasoning_tokens(p), 4); /* with the marks */
    tool_parser_free(p);
}

static const char *const answer[] = {"<thi",
                                     "nk>",
                                     "a\xc3",
                                     "\x9f",
                                     "\xe2\x82",
                                     "",
                                     "\xac ",
                                     "</",
                                     "think>",
                                     "\n",
                                     "b",
                                     "<tool_call>",
                                     "\n{\"name\": \"now\", ",
                                     "\"arguments\": {}}",
                                     "\n",
                                     "</tool_call>",
                                     "c",
                                     "<think>"};
enum { ANSWER = sizeof answer / sizeof *answer };

/* Bytes of the first n tokens' text that have come when `held` more of them are held back, without
 * the part of a character. */
static size_t text_come(const char *all, size_t n, size_t held)
{
    size_t len = 0;
    for (size_t i = 0; i + held < n; i++)
        len += strlen(answer[i]);
    while (len && ((unsigned char)all[len] & 0xc0) == 0x80)
        len--;
    return len;
}

/* However many tokens an event has, and however late their text comes, as many are reasoning, and
 * the call ends with the same one. */
static void test_tokens_in_events(void **state)
{
    struct tool_list *tools = tools_of(SAMPLE_TOOLS);
    char all[256] = "";
    for (size_t i = 0; i < ANSWER; i++)
        strcat(all, answer[i]);
    for (size_t each = 1; each <= ANSWER; each++)
        for (size_t held = 0; held < 4; held++) {
            struct tool_parser_options o = options("hermes", tools);
            struct tool_parser *p;
            size_t at = 0, read = 0, some = each;
            o.on_event = ignore;
            o.parallel = false;
            assert_int_equal(tool_parser_new(&o, &p, NULL), ERROR_OK);
            while (some == each && !tool_parser_stopped(p)) {
                uint32_t bytes[ANSWER];
                size_t n = ANSWER - read < each ? ANSWER - read : each, used;
                for (size_t i = 0; i < n; i++)
                    bytes[i] = (uint32_t)strlen(answer[read + i]);
                size_t end = text_come(all, read + n, read + n == ANSWER ? 0 : held);
                assert_int_equal(
                    tool_parser_feed_tokens(p, bytes, n, all + at, end - at, &some, &used),
                    ERROR_OK);
                assert_true(used <= end - at);
                at += used;
                read += some;
                assert_true(tool_parser_stopped(p) || read - tool_parser_pending(p) <= 14);
                assert_true(tool_parser_pending(p) <= held + 2); /* and of a character */
            }
            assert_int_equal(tool_parser_pending(p), 0);
            assert_true(tool_parser_stopped(p));
            assert_int_equal(read - tool_parser_surplus(p), 14);
            assert_int_equal(at, text_come(all, 14, 0));
            assert_int_equal(tool_parser_reasoning_tokens(p),
                             8); /* from that which ends the mark */
            tool_parser_free(p);
        }
    tool_list_free(tools);
}

/* Tokens of what may be a call in reasoning count, and at the budget it is none. */
static void test_budget_in_call(void **state)
{
    static const char end[] = "</think>c";
    struct tool_list *tools = tools_of(SAMPLE_TOOLS);
    struct tool_parser_options o = options("qwen3-coder", tools);
    struct tool_parser *p;
    struct transcript t;
    int n = 0;
    (void)state;
    transcript_init(&t);
    o.on_event = transcript_event;
    o.context = &t;
    o.reasoning_open = true;
    o.reasoning_budget = 8;
    assert_int_equal(tool_parser_new(&o, &p, NULL), ERROR_OK);
    assert_int_equal(tool_parser_feed(p, "<function=edit><parameter=text>\n", 32, 3), ERROR_OK);
    for (; n < 100 && !tool_parser_over_budget(p); n++)
        assert_int_equal(tool_parser_feed(p, "x", 1, 1), ERROR_OK);
    assert_int_equal(n, 5);
    assert_int_equal(tool_parser_feed(p, end, strlen(end), 2), ERROR_OK);
    assert_string_equal(transcript_text(&t), "R(<function=edit><parameter=text>\nxxxxx)C(c");
    tool_parser_free(p);
    transcript_fini(&t);
    tool_list_free(tools);
}

/* At the budget a complete call, behind which nothing has come, counts. */
static void test_budget_behind_call(void **state)
{
    struct tool_list *tools = tools_of(SAMPLE_TOOLS);
    struct tool_parser_options o = options("hermes", tools);
    struct tool_parser *p;
    struct transcript t;
    (void)state;
    transcript_init(&t);
    o.on_event = transcript_event;
    o.context = &t;
    o.reasoning_open = true;
    o.reasoning_budget = 8;
    assert_int_equal(tool_parser_new(&o, &p, NULL), ERROR_OK);
    assert_int_equal(tool_parser_feed(p, NOW, strlen(NOW), 7), ERROR_OK);
    assert_int_equal(tool_parser_calls(p), 0);
    assert_int_equal(tool_parser_feed(p, "\n", 1, 1), ERROR_OK);
    assert_false(tool_parser_over_budget(p));
    assert_int_equal(tool_parser_calls(p), 1);
    assert_int_equal(tool_parser_feed(p, "</think>c", 9, 2), ERROR_OK);
    assert_string_equal(transcript_text(&t), "N(now)A({})EC(c");
    tool_parser_free(p);
    transcript_fini(&t);
    tool_list_free(tools);
}

/* What was searched before the parser went back to the reasoning is no answer for what it reads
 * then. */
static void test_call_behind_given_up(void **state)
{
    static const char begin[] = "<tool_call>\n<function=edit>\n<parameter=path>\n</think>"
                                "<tool_call>\n<function=edit>\n<parameter=path>\np\n</parameter>\n"
                                "<parameter=text>\nlong",
                      end[] = " text\n</parameter>\n</function>\n</tool_call>";
    struct tool_list *tools = tools_of(SAMPLE_TOOLS);
    struct tool_parser_options o = options("qwen3-coder", tools);
    struct tool_parser *p;
    struct transcript t;
    (void)state;
    transcript_init(&t);
    o.on_event = transcript_event;
    o.context = &t;
    o.reasoning_open = true;
    o.reasoning_budget = 40;
    assert_int_equal(tool_parser_new(&o, &p, NULL), ERROR_OK);
    assert_int_equal(tool_parser_feed(p, begin, strlen(begin), 50), ERROR_OK);
    assert_int_equal(tool_parser_feed(p, end, strlen(end), 5), ERROR_OK);
    assert_int_equal(tool_parser_finish(p), ERROR_OK);
    assert_non_null(strstr(transcript_text(&t), "{\"path\":\"p\",\"text\":\"long text\"}"));
    tool_parser_free(p);
    transcript_fini(&t);
    tool_list_free(tools);
}

static void count_text(void *context, const struct tool_event *e)
{
    *(size_t *)context += e->len;
}

/* Calls in calls, each of which breaks only behind the last: a limit holds what is read again. */
static void test_many_in_reasoning(void **state)
{
    static const char mark[] = "<function=edit><parameter=text>";
    const size_t n = 20000, bytes = n * (sizeof mark - 1);
    struct tool_list *tools = tools_of(SAMPLE_TOOLS);
    struct tool_parser_options o = options("qwen3-coder", tools);
    struct tool_parser *p;
    size_t given = 0;
    (void)state;
    o.on_event = count_text;
    o.context = &given;
    o.reasoning_open = true;
    assert_int_equal(tool_parser_new(&o, &p, NULL), ERROR_OK);
    for (size_t i = 0; i < n; i++)
        assert_int_equal(tool_parser_feed(p, mark, sizeof mark - 1, 1), ERROR_OK);
    assert_int_equal(given, 0);
    assert_int_equal(tool_parser_feed(p, "</parameter>x", 13, 1), ERROR_OK);
    assert_int_equal(given, bytes + 13);
    tool_parser_free(p);
    tool_list_free(tools);
}

/* Calls in calls whose last value has many lines and no end: they are searched once. */
static void test_many_with_lines(void **state)
{
    static const char mark[] = "<function=edit><parameter=text>", lines[] = "\n\n\n\n\n\n\n\n";
    const size_t n = 12000, line_parts = 60000;
    struct tool_list *tools = tools_of(SAMPLE_TOOLS);
    struct tool_parser_options o = options("qwen3-coder", tools);
    struct tool_parser *p;
    size_t given = 0;
    (void)state;
    o.on_event = count_text;
    o.context = &given;
    assert_int_equal(tool_parser_new(&o, &p, NULL), ERROR_OK);
    for (size_t i = 0; i < n; i++)
        assert_int_equal(tool_parser_feed(p, mark, sizeof mark - 1, 1), ERROR_OK);
    for (size_t i = 0; i < line_parts; i++)
        assert_int_equal(tool_parser_feed(p, lines, sizeof lines - 1, 1), ERROR_OK);
    assert_int_equal(tool_parser_finish(p), ERROR_OK);
    assert_int_equal(given, n * (sizeof mark - 1) + line_parts * (sizeof lines - 1));
    tool_parser_free(p);
    tool_list_free(tools);
}

static char *filled(const char *begin, char fill, size_t n, const char *end)
{
    char *text = malloc(strlen(begin) + n + strlen(end) + 1);
    assert_non_null(text);
    strcpy(text, begin);
    memset(text + strlen(begin), fill, n);
    strcpy(text + strlen(begin) + n, end);
    return text;
}

/* A call that is longer than may be held back is text; text and streamed arguments have no limit.
 */
static void test_limits(void **state)
{
    struct tool_list *tools = tools_of(SAMPLE_TOOLS);
    struct tool_parser_options o = options("hermes", tools);
    struct transcript t;
    const size_t large = TOOL_HELD_BYTES_MAX + 1000;
    char *text = filled("<tool_call>{\"name\":\"edit\",\"arguments\":{\"text\":\"", 'x', large,
                        "\"}}</tool_call>");
    for (int whole = 0; whole < 2; whole++) {
        uint32_t seed = 1;
        o.whole_calls = whole;
        transcript_run(&t, o, text, strlen(text), whole ? cut_random : NULL, &seed);
        assert_int_equal(t.next_index, !whole);
        if (whole)
            assert_string_equal(t.content.data, text);
        else
            assert_int_equal(t.text.len, strlen("N(edit)A({\"text\":\"\"})E") + large);
        transcript_fini(&t);
    }
    free(text);
    o.format = tool_format_find("harmony");
    text = filled("<|channel|>commentary to=functions.now<|message|>{\"a\":\"", '{', large, "\"}");
    transcript_run(&t, o, text, strlen(text), NULL, NULL);
    assert_string_equal(t.content.data, text);
    transcript_fini(&t);
    free(text);
    o.format = tool_format_find("hermes");
    text = filled("<tool_call>{\"name\":\"edit\",\"arguments\":", '[', 300, "");
    o.whole_calls = true;
    transcript_run(&t, o, text, strlen(text), NULL, NULL);
    assert_string_equal(t.content.data, text);
    transcript_fini(&t);
    free(text);
    struct strbuf many;
    strbuf_init(&many);
    for (int i = 0; i < TOOL_CALLS_MAX + 2; i++)
        strbuf_printf(&many, "<tool_call>{\"name\":\"now\"}</tool_call>");
    transcript_run(&t, o, many.data, many.len, NULL, NULL);
    assert_int_equal(t.next_index, TOOL_CALLS_MAX);
    assert_int_equal(t.content.len, 2 * strlen("<tool_call>{\"name\":\"now\"}</tool_call>"));
    transcript_fini(&t);
    strbuf_fini(&many);
    tool_list_free(tools);
}

/* Every prefix of a text is read, and what is no part of a call or mark comes out. */
static void test_held_back(void **state)
{
    struct tool_list *tools = tools_of(SAMPLE_TOOLS);
    struct tool_parser_options o = options("hermes", tools);
    struct transcript t;
    struct tool_parser *p;
    transcript_init(&t);
    o.on_event = transcript_event;
    o.context = &t;
    assert_int_equal(tool_parser_new(&o, &p, NULL), ERROR_OK);
    const struct {
        const char *part, *given;
    } steps[] = {
        {"He", "He"},
        {"llo <", "Hello "},
        {"b>", "Hello <b>"},
        {"x\n", "Hello <b>x"},
        {"y", "Hello <b>x\ny"},
        {"<tool", "Hello <b>x\ny"},
        {"_cat", "Hello <b>x\ny<tool_cat"},
    };
    for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++) {
        tool_parser_feed(p, steps[i].part, strlen(steps[i].part), 1);
        assert_string_equal(t.content.data, steps[i].given);
    }
    tool_parser_free(p);
    transcript_fini(&t);
    tool_list_free(tools);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_text_stays),
        cmocka_unit_test(test_broken_call),
        cmocka_unit_test(test_call_after_text),
        cmocka_unit_test(test_options),
        cmocka_unit_test(test_reasoning_counts),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_held_back),
        cmocka_unit_test(test_calls_in_reasoning),
        cmocka_unit_test(test_quoted_calls),
        cmocka_unit_test(test_broken_in_reasoning),
        cmocka_unit_test(test_no_calls_in_reasoning),
        cmocka_unit_test(test_tokens_in_events),
        cmocka_unit_test(test_budget_in_call),
        cmocka_unit_test(test_budget_behind_call),
        cmocka_unit_test(test_call_behind_given_up),
        cmocka_unit_test(test_many_in_reasoning),
        cmocka_unit_test(test_many_with_lines),
        cmocka_unit_test(test_cut_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
