/* Each format's calls, as the family's template and model write them: the answer, and the events
 * worked out by hand. */
#include "toolcall_run.h"

static const struct reasoning_marks think = {.begin = "<think>", .end = "</think>"};

static void check(const char *format, const char *text, const char *expected)
{
    struct tool_list *tools = tools_of(SAMPLE_TOOLS);
    struct tool_parser_options o = {.format = tool_format_find(format),
                                    .reasoning = &think,
                                    .tools = tools,
                                    .parallel = true,
                                    .id_seed = 1};
    assert_non_null(o.format);
    assert_events(o, text, expected);
    tool_list_free(tools);
}

static void test_hermes(void **state)
{
    check("hermes",
          "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Ulm\"}}\n"
          "</tool_call>",
          "N(get_weather)A({\"city\": \"Ulm\"})E");
    check("hermes",
          "<think>\nUse it.\n</think>\n\nI look.\n<tool_call>\n{\"name\": \"now\", \"arguments\": "
          "{}}\n</tool_call>\n<tool_call>\n{\"arguments\": {\"path\": \"a\\n\\u00e9}\"}, \"name\": "
          "\"edit\"}\n</tool_call>\n",
          "R(Use it.)C(I look.)N(now)A({})EN(edit)A({\"path\": \"a\\n\\u00e9}\"})E");
    /* no end mark; no arguments; a string with the arguments; OpenAI's own form; null */
    check("hermes", "<tool_call>{\"name\":\"now\",\"arguments\":{\"a\":[1,-2.5e3,true]}}",
          "N(now)A({\"a\":[1,-2.5e3,true]})E");
    check("hermes", "<tool_call>{\"name\":\"now\"}</tool_call>", "N(now)A({})E");
    check("hermes", "<tool_call>{\"name\":\"now\",\"arguments\":\"{\\\"a\\\": 1}\"}</tool_call>",
          "N(now)A({\"a\": 1})E");
    check("hermes",
          "<tool_call>{\"id\":\"x\",\"type\":\"function\",\"function\":{\"name\":\"now\","
          "\"arguments\":null}}</tool_call>",
          "N(now)A({})E");
    /* a raw newline in a string is escaped */
    check("hermes",
          "<tool_call>{\"name\":\"edit\",\"arguments\":{\"text\":\"a\nb\tc\"}}</tool_call>",
          "N(edit)A({\"text\":\"a\\nb\\tc\"})E");
    check("hermes", "Yes: <tool_call>{\"name\":\"now\"}</tool_call> done",
          "C(Yes: )N(now)A({})EC( done)");
}

static void test_tool_calls_tag(void **state)
{
    check("tool-calls-tag",
          "<tool_calls>\n{\"name\": \"now\", \"arguments\": {}}\n{\"name\": \"edit\", "
          "\"arguments\": {\"path\": \"p\"}}\n</tool_calls>",
          "N(now)A({})EN(edit)A({\"path\": \"p\"})E");
    check(
        "tool-calls-tag",
        "a\n<tool_calls>[{\"name\": \"now\", \"arguments\": {}}, {\"name\":\"now\"}]</tool_calls>",
        "C(a)N(now)A({})EN(now)A({})E");
}

static void test_qwen3_coder(void **state)
{
    check("qwen3-coder",
          "I will.\n\n<tool_call>\n<function=get_weather>\n<parameter=city>\nUlm\n</parameter>\n"
          "<parameter=days>\n3\n</parameter>\n<parameter=hourly>\nTrue\n</parameter>\n"
          "<parameter=tags>\n[\"a\", \"b\"]\n</parameter>\n</function>\n</tool_call>",
          "C(I will.)N(get_weather)A({\"city\":\"Ulm\",\"days\":3,\"hourly\":true,\"tags\":[\"a\", "
          "\"b\"]})E");
    /* strings stay strings; one newline on each side is the format's */
    check("qwen3-coder",
          "<tool_call>\n<function=edit>\n<parameter=path>\n12\n</parameter>\n<parameter=text>\n\n"
          "  if (a < b && \"x\")\n\n</parameter>\n</function>\n</tool_call>\n<tool_call>\n"
          "<function=now>\n</function>\n</tool_call>",
          "N(edit)A({\"path\":\"12\",\"text\":\"\\n  if (a < b && \\\"x\\\")\\n\"})EN(now)A({})E");
    /* the model forgets the outer mark */
    check("qwen3-coder", "<function=now>\n</function>", "N(now)A({})E");
    check("qwen3-coder",
          "<function=now>\n</function>\n</tool_call>\n<function=now></function></tool",
          "N(now)A({})EN(now)A({})E");
    check("qwen3-coder", "<function=now></function> </tool_call>\nDone.", "N(now)A({})EC(\nDone.)");
    /* a value that begins on a line of its own ends with such a line */
    check("qwen3-coder",
          "<function=edit>\n<parameter=path>\n1</parameter>\n2</parameter>x\n</parameter>\n"
          "<parameter=text>\n</parameter>\n</function>\n</tool_call>",
          "N(edit)A({\"path\":\"1</parameter>\\n2</parameter>x\",\"text\":\"\"})E");
    /* several calls in one section; the end mark of a call is missing */
    check("qwen3-coder",
          "<tool_call><function=now></function><function=edit><parameter=path>a</parameter>"
          "</tool_call>",
          "N(now)A({})EN(edit)A({\"path\":\"a\"})E");
    /* unions: a number where one is meant, else a string; no JSON where a number is due */
    check("qwen3-coder",
          "<function=get_weather><parameter=either>7</parameter><parameter=either>7x</parameter>"
          "<parameter=opt>None</parameter><parameter=opt>1.5</parameter><parameter=unit>C"
          "</parameter><parameter=days>three</parameter></function>",
          "N(get_weather)A({\"either\":7,\"either\":\"7x\",\"opt\":null,\"opt\":1.5,\"unit\":\"C\","
          "\"days\":\"three\"})E");
}

/* The end mark of a value is missing: a line that begins another argument, or ends the call, ends
 * the value. */
static void test_missing_end_of_value(void **state)
{
    (void)state;
    check("qwen3-coder",
          "<tool_call>\n<function=get_weather>\n<parameter=city>\nUlm\n<parameter=days>\n3\n"
          "</parameter>\n<parameter=unit>C\n<parameter=hourly>\ntrue\n</function>\n</tool_call>",
          "N(get_weather)A({\"city\":\"Ulm\",\"days\":3,\"unit\":\"C\",\"hourly\":true})E");
    check("seed",
          "<seed:tool_call>\n<function=get_weather>\n<parameter=city>Ulm\n<parameter=days>3\n"
          "</function>\n</seed:tool_call>",
          "N(get_weather)A({\"city\":\"Ulm\",\"days\":3})E");
    check("minimax-m2",
          "<minimax:tool_call>\n<invoke name=\"get_weather\">\n<parameter name=\"city\">Ulm\n"
          "<parameter name=\"days\">3</parameter>\n</invoke>\n</minimax:tool_call>",
          "N(get_weather)A({\"city\":\"Ulm\",\"days\":3})E");
    check("glm",
          "<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Ulm\n<arg_key>days</arg_key>"
          "\n<arg_value>3\n</tool_call>\n<tool_call>get_weather\n<arg_key>city</arg_key>\n"
          "<arg_value>A\n</tool_call>",
          "N(get_weather)A({\"city\":\"Ulm\",\"days\":3})EN(get_weather)A({\"city\":\"A\"})E");
    /* no property, one that was given, the value's own: part of the value; so is the end of a call
     * that stands in it */
    check("qwen3-coder",
          "<tool_call>\n<function=edit>\n<parameter=path>\na\n</parameter>\n<parameter=text>\n"
          "<parameter=city>\n<parameter=path>\n<parameter=text>\n</function>\n<parameter=\n"
          "</parameter>\n</function>\n</tool_call>",
          "N(edit)A({\"path\":\"a\",\"text\":\"<parameter=city>\\n<parameter=path>\\n"
          "<parameter=text>\\n</function>\\n<parameter=\"})E");
    check("qwen3-coder",
          "<tool_call>\n<function=edit>\n<parameter=text>\n<function=x>\n<parameter=path>\n"
          "</function>\n</tool_call>\n</parameter>\n</function>\n</tool_call>",
          "N(edit)A({\"text\":\"<function=x>\\n<parameter=path>\\n</function>\\n</tool_call>\"})E");
}

static void test_tags(void **state)
{
    check("glm",
          "\n<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Ulm\n</arg_value>\n"
          "<arg_key>days</arg_key>\n<arg_value>3</arg_value>\n</tool_call>\n<tool_call>now\n"
          "</tool_call><tool_call>now</tool_call>",
          "N(get_weather)A({\"city\":\"Ulm\\n\",\"days\":3})EN(now)A({})EN(now)A({})E");
    check("minimax-m2",
          "Ok\n\n<minimax:tool_call>\n<invoke name=\"get_weather\">\n<parameter name=\"city\">Ulm"
          "</parameter>\n<parameter name=\"tags\">[\"a\"]</parameter>\n</invoke>\n"
          "<invoke name=\"now\"></invoke>\n</minimax:tool_call>\n",
          "C(Ok)N(get_weather)A({\"city\":\"Ulm\",\"tags\":[\"a\"]})EN(now)A({})E");
    check("deepseek-v3.2",
          "Hm\n\n<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"edit\">\n<｜DSML｜parameter "
          "name=\"path\" string=\"true\">5</｜DSML｜parameter>\n<｜DSML｜parameter name=\"text\" "
          "string=\"false\">[5]</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜function_calls>",
          "C(Hm)N(edit)A({\"path\":\"5\",\"text\":[5]})E");
    check("deepseek-v4",
          "<｜DSML｜tool_calls>\n<｜DSML｜invoke name=\"now\">\n</｜DSML｜invoke>\n"
          "</｜DSML｜tool_calls>",
          "N(now)A({})E");
    check("seed",
          "<seed:tool_call>\n<function=edit>\n<parameter=path>a\nb</parameter>\n</function>\n"
          "</seed:tool_call>",
          "N(edit)A({\"path\":\"a\\nb\"})E");
}

/* Laguna's prompt ends with one of the marks of reasoning; nothing stands behind the name. */
static void test_laguna(void **state)
{
    check("glm",
          "<think>\nHm\n</think>\nOk\n<tool_call>get_weather<arg_key>city</arg_key>\n"
          "<arg_value>Ulm</arg_value>\n<arg_key>tags</arg_key>\n<arg_value>[\"a\"]</arg_value>\n"
          "</tool_call>\n<tool_call>now</tool_call>\n",
          "R(Hm)C(Ok)N(get_weather)A({\"city\":\"Ulm\",\"tags\":[\"a\"]})EN(now)A({})E");
}

/* Hy3's published weights have a suffix in each mark; the preview has none. */
static void test_hy3(void **state)
{
    static const struct reasoning_marks marks = {.begin = "<think:opensource>",
                                                 .end = "</think:opensource>"};
    struct tool_list *tools = tools_of(SAMPLE_TOOLS);
    struct tool_parser_options o = {.format = tool_format_find("hy3"),
                                    .reasoning = &marks,
                                    .reasoning_open = true,
                                    .tools = tools,
                                    .parallel = true};
    assert_events(
        o,
        "Hm</think:opensource>Ok<tool_calls:opensource>\n<tool_call:opensource>get_weather"
        "<tool_sep:opensource>\n<arg_key:opensource>city</arg_key:opensource>\n"
        "<arg_value:opensource>Ulm</arg_value:opensource>\n<arg_key:opensource>days"
        "</arg_key:opensource>\n<arg_value:opensource>3</arg_value:opensource>\n"
        "</tool_call:opensource>\n<tool_call:opensource>now<tool_sep:opensource>\n"
        "</tool_call:opensource>\n</tool_calls:opensource>",
        "R(Hm)C(Ok)N(get_weather)A({\"city\":\"Ulm\",\"days\":3})EN(now)A({})E");
    o.reasoning_open = false;
    assert_events(o, "<think:opensource></think:opensource>A <tool_calls> is text.",
                  "C(A <tool_calls> is text.)");
    tool_list_free(tools);
    check("hy3-preview",
          "Ok\n<tool_calls>\n<tool_call>edit<tool_sep>\n<arg_key>path</arg_key>\n<arg_value>12"
          "</arg_value>\n</tool_call>\n<tool_call>now<tool_sep></tool_call>\n</tool_calls>",
          "C(Ok)N(edit)A({\"path\":\"12\"})EN(now)A({})E");
    /* cut by a limit: what came is an incomplete call, and an unknown tool is text */
    check("hy3-preview", "<tool_calls>\n<tool_call>nope<tool_sep>\n</tool_call>\n</tool_calls>",
          "C(<tool_calls>\n<tool_call>nope<tool_sep>\n</tool_call>\n</tool_calls>)");
}

#define COHERE_CALLS                                                                               \
    "<|START_ACTION|>[\n    {\"tool_call_id\": \"0\", \"tool_name\": \"get_weather\", "            \
    "\"parameters\": {\"city\": \"Ulm\"}},\n    {\"tool_call_id\": \"1\", \"tool_name\": \"now\"," \
    " \"parameters\": {}}\n]<|END_ACTION|>"
#define COHERE_EVENTS "N(get_weather)A({\"city\": \"Ulm\"})EN(now)A({})E"

/* The answer's text stands between marks, which are no content, also without tools. */
static void test_cohere(void **state)
{
    static const struct reasoning_marks marks = {.begin = "<|START_THINKING|>",
                                                 .end = "<|END_THINKING|>"};
    struct tool_list *tools = tools_of(SAMPLE_TOOLS);
    struct tool_parser_options o = {.format = tool_format_find("cohere"),
                                    .reasoning = &marks,
                                    .reasoning_open = true,
                                    .tools = tools,
                                    .parallel = true};
    assert_events(o, "Look.<|END_THINKING|>" COHERE_CALLS, "R(Look.)" COHERE_EVENTS);
    assert_events(o, "Look.\n" COHERE_CALLS, "R(Look.)" COHERE_EVENTS); /* no end mark */
    for (int with = 0; with < 2; with++) {
        o.tools = with ? tools : NULL;
        assert_events(o, "Hm\n<|END_THINKING|><|START_TEXT|>It is\n\n5.\n<|END_TEXT|>",
                      "R(Hm)C(It is\n\n5.\n)");
        assert_events(o, "Hm<|START_TEXT|>It < is", "R(Hm)C(It < is)");
    }
    o = (struct tool_parser_options){.format = tool_format_find("command-a"), .tools = tools};
    o.parallel = true;
    assert_events(o, "<|START_RESPONSE|>Yes.<|END_RESPONSE|>", "C(Yes.)");
    assert_events(o, COHERE_CALLS, COHERE_EVENTS);
    tool_list_free(tools);
}

#define SOLAR_CALL(id, name, arguments)                                                            \
    "<|tool_call:begin|>" id "<|tool_call:name|>" name "<|tool_call:args|>" arguments              \
    "<|tool_call:end|>"
#define SOLAR_CALLS                                                                                \
    "<|tool_calls|>" SOLAR_CALL("a1b2c3d4e5", "get_weather", "{\"city\": \"Ulm\"}")                \
        SOLAR_CALL("z", "now", "{}")
#define SOLAR_EVENTS "N(get_weather)A({\"city\": \"Ulm\"})EN(now)A({})E"

/* An answer has several messages; the token behind the last one is no part of its text. */
static void test_solar_open(void **state)
{
    struct tool_list *tools = tools_of(SAMPLE_TOOLS);
    const struct tool_format *format = tool_format_find("solar-open");
    struct tool_parser_options o = {
        .format = format, .reasoning = &format->reasoning, .tools = tools, .parallel = true};
    struct transcript t;
    assert_events(o, "<|think|>Look.\n<|end|><|begin|>assistant" SOLAR_CALLS,
                  "R(Look.)" SOLAR_EVENTS);
    assert_events(o, SOLAR_CALLS "<|calls|>", SOLAR_EVENTS);
    assert_events(o, SOLAR_CALL("a", "now", "{}"), "N(now)A({})E"); /* no mark of all calls */
    assert_events(o, "<|content|>I look.<|end|><|begin|>assistant" SOLAR_CALLS,
                  "C(I look.)" SOLAR_EVENTS);
    assert_events(o,
                  "<|think|>A<|end|><|begin|>assistant<|content|>B\n<|end|><|begin|>assistant"
                  "<|think|>C<|end|><|begin|>assistant<|content|>D <|think|>",
                  "R(A)C(B\n)R(C)C(D <|think|>)");
    transcript_run(&t, o, SOLAR_CALLS, strlen(SOLAR_CALLS), NULL, NULL);
    assert_string_equal(t.ids.data, "a1b2c3d4e5 z ");
    transcript_fini(&t);
    o.calls_in_reasoning = true; /* the end mark is missing */
    assert_events(o, "<|think|>A" SOLAR_CALLS, "R(A)" SOLAR_EVENTS);
    for (int with = 0; with < 2; with++) {
        o.tools = with ? tools : NULL;
        assert_events(o, "<|think|>Hm<|end|><|begin|>assistant<|content|>\nIt is\n\n5 <|begin|>.\n",
                      "R(Hm)C(\nIt is\n\n5 <|begin|>.\n)");
        assert_events(o, "<|content|>Yes", "C(Yes)");
    }
    o.reasoning_open = true;
    assert_events(o, "Hm<|end|><|begin|>assistant<|content|>A", "R(Hm)C(A)");
    /* not separated */
    o.reasoning_open = false;
    o.reasoning = NULL;
    assert_events(o, "<|think|>Hm<|end|><|begin|>assistant<|content|>A", "C(<|think|>Hm<|end|>A)");
    tool_list_free(tools);
}

static void test_deepseek(void **state)
{
    check("deepseek-v3",
          "<think>\nHm</think>\n\n<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>"
          "get_weather\n```json\n{\"city\": \"Ulm\"}\n```<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>"
          "function<｜tool▁sep｜>now\n```json\n{}\n```\n<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
          "R(Hm)N(get_weather)A({\"city\": \"Ulm\"})EN(now)A({})E");
    check(
        "deepseek-v3.1",
        "Ok<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>{\"city\": \"Ulm\"}"
        "<｜tool▁call▁end｜><｜tool▁call▁begin｜>now<｜tool▁sep｜>{}<｜tool▁call▁end｜>"
        "<｜tool▁calls▁end｜>",
        "C(Ok)N(get_weather)A({\"city\": \"Ulm\"})EN(now)A({})E");
}

static void test_kimi(void **state)
{
    const char *text =
        "Go.<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:3"
        "<|tool_call_argument_begin|>{\"city\": \"Ulm\"}<|tool_call_end|><|tool_call_begin|>now"
        "<|tool_call_argument_begin|>{}<|tool_call_end|><|tool_calls_section_end|>";
    check("kimi-k2", text, "C(Go.)N(get_weather)A({\"city\": \"Ulm\"})EN(now)A({})E");
    /* the section ends reasoning */
    check("kimi-k2",
          "<think>Hm\n<|tool_calls_section_begin|><|tool_call_begin|>functions.now:0"
          "<|tool_call_argument_begin|>{}<|tool_call_end|><|tool_calls_section_end|>",
          "R(Hm)N(now)A({})E");
    struct tool_list *tools = tools_of(SAMPLE_TOOLS);
    struct transcript t;
    struct tool_parser_options o = {
        .format = tool_format_find("kimi-k2"), .tools = tools, .parallel = true};
    transcript_run(&t, o, text, strlen(text), NULL, NULL);
    assert_string_equal(t.ids.data, "functions.get_weather:3 functions.now:1 ");
    transcript_fini(&t);
    tool_list_free(tools);
}

static void test_mistral(void **state)
{
    check("mistral", "A[TOOL_CALLS]get_weather[ARGS]{\"city\": \"Ulm\"}[TOOL_CALLS]now[ARGS]{}",
          "C(A)N(get_weather)A({\"city\": \"Ulm\"})EN(now)A({})E");
    check("mistral", "[TOOL_CALLS]now[CALL_ID]abcdefghi[ARGS]{}", "N(now)A({})E");
    check("mistral", "[TOOL_CALLS] [{\"name\": \"now\", \"arguments\": {}}]", "N(now)A({})E");
    check("mistral-array",
          "[TOOL_CALLS] [{\"name\": \"now\", \"arguments\": {}, \"id\": \"abcdefghi\"}, "
          "{\"name\": \"edit\", \"arguments\": {\"path\": \"[x]\"}}]",
          "N(now)A({})EN(edit)A({\"path\": \"[x]\"})E");
}

static void test_llama3(void **state)
{
    check("llama3", "{\"name\": \"get_weather\", \"parameters\": {\"city\": \"Ulm\"}}",
          "N(get_weather)A({\"city\": \"Ulm\"})E");
    check("llama3",
          "\n<|python_tag|>{\"type\": \"function\", \"name\": \"now\", \"parameters\": {}}; "
          "{\"name\": \"now\", \"parameters\": {}}",
          "N(now)A({})EN(now)A({})E");
    /* an answer in JSON is no call, nor is an object later in the answer */
    check("llama3", "{\"answer\": {\"name\": \"now\"}}", "C({\"answer\": {\"name\": \"now\"}})");
    check("llama3", "So: {\"name\": \"now\", \"parameters\": {}}",
          "C(So: {\"name\": \"now\", \"parameters\": {}})");
}

static void test_functionary(void **state)
{
    check(
        "functionary",
        "I look.\n<function=get_weather>{\"city\": \"Ulm\"}</function><function=now>{}</function>",
        "C(I look.)N(get_weather)A({\"city\": \"Ulm\"})EN(now)A({})E");
    check("functionary", "<function=now> {\"a\": \"</function>\"}",
          "N(now)A({\"a\": \"</function>\"})E");
}

/* The call is a message of its own. */
static void test_gigachat3(void **state)
{
    check("gigachat3",
          "I look.\n<|message_sep|>\n\nfunction call<|role_sep|>\n{\"name\": \"get_weather\", "
          "\"arguments\": {\"city\": \"Ulm\"}}<|message_sep|>\n\n",
          "C(I look.\n)N(get_weather)A({\"city\": \"Ulm\"})E");
    check("gigachat3", "function call<|role_sep|>\n{\"name\": \"now\", \"arguments\": {}}",
          "N(now)A({})E");
    check("gigachat3", "A function call<b\n", "C(A function call<b\n)");
    check("gigachat3", "It is 5.<|message_sep|>\n\n", "C(It is 5.)");
}

static void test_lfm2(void **state)
{
    check(
        "lfm2",
        "<|tool_call_start|>[get_weather(city=\"Ulm\", days=3, hourly=True, tags=['a', \"b\\n\"], "
        "opt=None), now()]<|tool_call_end|>Wait.",
        "N(get_weather)A({\"city\":\"Ulm\",\"days\":3,\"hourly\":true,\"tags\":[\"a\",\"b\\n\"],"
        "\"opt\":null})EN(now)A({})EC(Wait.)");
    check("lfm2", "<|tool_call_start|>edit(text={'k': (1, 2,), \"l\": 'it\\'s'})<|tool_call_end|>",
          "N(edit)A({\"text\":{\"k\":[1,2],\"l\":\"it's\"}})E");
    check("lfm2", "<|tool_call_start|>[{\"name\": \"now\", \"arguments\": {}}]<|tool_call_end|>",
          "N(now)A({})E");
    /* positional arguments have no name */
    check("lfm2", "<|tool_call_start|>[now(3)]<|tool_call_end|>",
          "C(<|tool_call_start|>[now(3)]<|tool_call_end|>)");
}

static void test_gemma4(void **state)
{
    check("gemma4",
          "<|tool_call>call:get_weather{city:<|\"|>Ulm, \"D\"<|\"|>,days:3,hourly:true,"
          "tags:[<|\"|>a<|\"|>,<|\"|>b}<|\"|>],opt:{<|\"|>k<|\"|>:null,l:{}}}<tool_call|>"
          "<|tool_call>call:now{}<tool_call|>",
          "N(get_weather)A({\"city\":\"Ulm, \\\"D\\\"\",\"days\":3,\"hourly\":true,\"tags\":[\"a\","
          "\"b}\"],\"opt\":{\"k\":null,\"l\":{}}})EN(now)A({})E");
    /* the template writes keys as they are */
    check("gemma4",
          "<|tool_call>call:now{a b:1, \xc3\xa9t\xc3\xa9 :{$x/y:None,'z:[]},<|\"|>d:e<|\"|>:2}"
          "<tool_call|>",
          "N(now)A({\"a b\":1,\"\xc3\xa9t\xc3\xa9\":{\"$x/y\":null,\"'z\":[]},\"d:e\":2})E");
}

static void test_harmony(void **state)
{
    check(
        "harmony",
        "<|channel|>analysis<|message|>Need weather.<|end|><|start|>assistant<|channel|>commentary "
        "to=functions.get_weather <|constrain|>json<|message|>{\"city\":\"Ulm\"}<|call|>",
        "R(Need weather.)N(get_weather)A({\"city\":\"Ulm\"})E");
    /* the recipient with the role; the ending token is not in the text */
    check("harmony", " to=functions.now<|channel|>commentary json<|message|>{}", "N(now)A({})E");
    check("harmony",
          "<|channel|>commentary<|message|>I look.<|end|><|start|>assistant to=functions.now"
          "<|channel|>commentary <|constrain|>json<|message|>{}<|call|>",
          "C(I look.)N(now)A({})E");
    check("harmony",
          "<|channel|>analysis<|message|>a\n\n<|end|><|start|>assistant<|channel|>final<|message|>"
          "Hello <b>.<|return|>",
          "R(a\n\n)C(Hello <b>.)");
    check("harmony", "plain text", "C(plain text)");
    /* messages of one kind; an empty one; those to nobody */
    check("harmony",
          "<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>analysis<|message|>"
          "<|end|><|start|>assistant<|channel|>analysis<|message|>b<|end|><|start|>assistant"
          "<|channel|>commentary<|message|>Let me look.<|end|><|start|>assistant<|channel|>final"
          "<|message|>Hi<|return|>",
          "R(a\n\nb)C(Let me look.\n\nHi)");
    check("harmony",
          "<|channel|>commentary to=assistant<|message|>xy<|end|><|start|>assistant to=user"
          "<|channel|>final<|message|>z",
          "C(xy\n\nz)");
    /* a tool that the request does not have */
    check("harmony", "<|channel|>commentary to=browser.search code<|message|>{\"q\":1}<|call|>",
          "C(<|channel|>commentary to=browser.search code<|message|>{\"q\":1})");
}

/* Half of a surrogate pair is U+FFFD. */
static void test_half_surrogates(void **state)
{
    check("hermes",
          "<tool_call>\n{\"name\": \"edit\", \"arguments\": {\"path\": \"a\\ud83d\", \"text\": "
          "\"\\ude00\\uD83D\\ud83d\\uDe00\\ud83d\\u0041\\ud83d\\n\\ud83d\n\\\\ud83d\\ud83dx\"}}\n"
          "</tool_call>",
          "N(edit)A({\"path\": \"a\\ufffd\", \"text\": \"\\ufffd\\ufffd\\ud83d\\uDe00\\ufffd\\u0041"
          "\\ufffd\\n\\ufffd\\n\\\\ud83d\\ufffdx\"})E");
    check("qwen3-coder",
          "<function=get_weather>\n<parameter=tags>\n[\"\\ud83d\"]\n</parameter>\n</function>",
          "N(get_weather)A({\"tags\":[\"\\ufffd\"]})E");
}

static void test_generic(void **state)
{
    check("generic", "{\"tool_calls\": [{\"name\": \"now\", \"arguments\": {}}]}", "N(now)A({})E");
    check("generic",
          "{\"tool_calls\":[{\"name\":\"now\",\"arguments\":{}},{\"name\":\"edit\",\"arguments\":{"
          "\"path\":\"p\"}}]}\n",
          "N(now)A({})EN(edit)A({\"path\":\"p\"})E");
    check("generic", "{\"response\": \"It \\\"is\\\" 5\\u00b0\\n\\ud83d\\ude00 \xc3\xa9\"}",
          "C(It \"is\" 5\xc2\xb0\n\xf0\x9f\x98\x80 \xc3\xa9)");
    check("generic", "No JSON.", "C(No JSON.)");
    check("generic", "{\"a\": 1}", "C({\"a\": 1})");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hermes),      cmocka_unit_test(test_tool_calls_tag),
        cmocka_unit_test(test_qwen3_coder), cmocka_unit_test(test_missing_end_of_value),
        cmocka_unit_test(test_tags),        cmocka_unit_test(test_deepseek),
        cmocka_unit_test(test_kimi),        cmocka_unit_test(test_mistral),
        cmocka_unit_test(test_llama3),      cmocka_unit_test(test_lfm2),
        cmocka_unit_test(test_gemma4),      cmocka_unit_test(test_harmony),
        cmocka_unit_test(test_generic),     cmocka_unit_test(test_half_surrogates),
        cmocka_unit_test(test_laguna),      cmocka_unit_test(test_hy3),
        cmocka_unit_test(test_cohere),      cmocka_unit_test(test_solar_open),
        cmocka_unit_test(test_functionary), cmocka_unit_test(test_gigachat3),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
