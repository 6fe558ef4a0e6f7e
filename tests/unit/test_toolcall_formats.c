/* The choice of a format by a template, the tools of a request, and types of arguments. */
#include "toolcall/argument_types.h"
#include "toolcall_run.h"

#include <stdio.h>

static void check_template(const char *text, const char *format, const char *reasoning_end)
{
    const struct reasoning_marks *r = reasoning_detect(text, strlen(text));
    assert_string_equal(tool_format_detect(text, strlen(text))->name, format);
    if (reasoning_end)
        assert_string_equal(r->end, reasoning_end);
    else
        assert_null(r);
}

/* The parts of templates that decide. */
static void test_detect(void **state)
{
    check_template("{{ '<tool_call>\\n{\"name\": \"' + n }}", "hermes", NULL);
    check_template("<tool_call>\\n<function=' + n + '>\\n<parameter=' </think>", "qwen3-coder",
                   "</think>");
    check_template("set b = '<seed:tool_call>' ... '\\n<function=' </seed:think>", "seed",
                   "</seed:think>");
    check_template("<|start|>assistant<|channel|>final<|message|> </think>", "harmony", NULL);
    check_template("'<｜tool▁calls▁begin｜>' + '```json' '</think>'", "deepseek-v3", "</think>");
    check_template("'<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>' + n", "deepseek-v3.1", NULL);
    check_template("'｜DSML｜' + 'function_calls>'", "deepseek-v3.2", NULL);
    check_template("'｜DSML｜' + 'tool_calls>'", "deepseek-v4", NULL);
    check_template("<|tool_calls_section_begin|>", "kimi-k2", NULL);
    check_template("'<|tool_call:begin|>' + id + '<|tool_call:name|>' + n + '<|tool_call:args|>'",
                   "solar-open", "<|end|>");
    check_template("<tool_call>{function-name}\n<arg_key>", "glm", NULL);
    check_template(
        "set HYTK = ':opensource' '<tool_calls{}>' '<tool_sep{}>' '<arg_key{}>' </think{}>", "hy3",
        "</think:opensource>");
    check_template("<tool_calls> <tool_call>{function-name}<tool_sep>\n<arg_key> </think>",
                   "hy3-preview", "</think>");
    check_template("<|START_ACTION|>[ <|END_THINKING|> <|START_TEXT|>", "cohere",
                   "<|END_THINKING|>");
    check_template("<|START_ACTION|>[ <|END_THINKING|> <|START_RESPONSE|>", "command-a",
                   "<|END_THINKING|>");
    check_template("'[TOOL_CALLS]' + n + '[ARGS]' [/THINK]", "mistral", "[/THINK]");
    check_template("'[TOOL_CALLS] ['", "mistral-array", NULL);
    check_template("<|start_header_id|> {\"name\": n, \"parameters\": p}", "llama3", NULL);
    check_template("'role': 'function call', <|role_sep|>\n <|message_sep|>", "gigachat3", NULL);
    check_template("'<function=' + n + '>' a '</function>' <|start_header_id|> \"parameters\"",
                   "functionary", NULL);
    check_template("'<minimax:tool_call>'", "minimax-m2", NULL);
    check_template("'<tool_calls>\\n' <tool_call>", "tool-calls-tag", NULL);
    check_template("List of tools: <|tool_list_start|>[", "lfm2", NULL);
    check_template("<|tool_call>call:' '<channel|>'", "gemma4", "<channel|>");
    check_template("{% for m in messages %}{{ m.content }}{% endfor %}", "generic", NULL);
    check_template("", "generic", NULL);
}

/* Templates as their authors wrote them, where the folder with them is here. */
static void test_detect_files(void **state)
{
    static const char *const files[][2] = {
        {"Qwen-Qwen3-0.6B", "hermes"},
        {"Qwen-QwQ-32B", "hermes"},
        {"NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use", "hermes"},
        {"ibm-granite-granite-4.0", "hermes"},
        {"Qwen3.5-4B", "qwen3-coder"},
        {"NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", "qwen3-coder"},
        {"StepFun3.5-Flash", "qwen3-coder"},
        {"ByteDance-Seed-OSS", "seed"},
        {"openai-gpt-oss-120b", "harmony"},
        {"llama-cpp-deepseek-r1", "deepseek-v3"},
        {"deepseek-ai-DeepSeek-R1-Distill-Qwen-32B", "deepseek-v3"},
        {"deepseek-ai-DeepSeek-V3.2", "deepseek-v3.2"},
        {"deepseek-ai-DeepSeek-V4", "deepseek-v4"},
        {"moonshotai-Kimi-K2", "kimi-k2"},
        {"Kimi-K2-Thinking", "kimi-k2"},
        {"upstage-Solar-Open-100B", "solar-open"},
        {"GLM-4.6", "glm"},
        {"poolside-Laguna-XS.2", "glm"},
        {"poolside-Laguna-S-2.1", "glm"},
        {"mistralai-Ministral-3-14B-Reasoning-2512", "mistral"},
        {"meta-llama-Llama-3.1-8B-Instruct", "llama3"},
        {"meta-llama-Llama-3.3-70B-Instruct", "llama3"},
        {"MiniMax-M1", "tool-calls-tag"},
        {"MiniMax-M3", "generic"},
        {"unsloth-Apriel-1.5", "tool-calls-tag"},
        {"Apriel-1.6-15b-Thinker-fixed", "tool-calls-tag"},
        {"LFM2-8B-A1B", "lfm2"},
        {"LFM2.5-Instruct", "lfm2"},
        {"google-gemma-4-31B-it", "gemma4"},
        {"google-gemma-2-2b-it", "generic"},
        {"GigaChat3-10B-A1.8B", "gigachat3"},
        {"meetkai-functionary-medium-v3.1", "functionary"},
    };
    size_t found = 0;
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        char path[512];
        static char text[1 << 16];
        snprintf(path, sizeof path, MOED_SHARED_DIR "/templates/%s.jinja", files[i][0]);
        FILE *f = fopen(path, "rb");
        if (!f)
            continue;
        size_t n = fread(text, 1, sizeof text, f);
        fclose(f);
        found++;
        if (strcmp(tool_format_detect(text, n)->name, files[i][1]) != 0)
            fail_msg("%s: %s", files[i][0], tool_format_detect(text, n)->name);
    }
    if (found == 0)
        skip();
}

static void test_left_open(void **state)
{
    static const struct reasoning_marks marks = {.begin = "<think>", .end = "</think>"};
    const char *open = "<|im_start|>assistant\n<think>\n", *closed = "<think>\n\n</think>\n\n";
    assert_true(reasoning_left_open(&marks, open, strlen(open)));
    assert_false(reasoning_left_open(&marks, closed, strlen(closed)));
    assert_false(reasoning_left_open(&marks, "", 0));
    assert_false(reasoning_left_open(NULL, open, strlen(open)));
    assert_true(reasoning_left_closed(&marks, closed, strlen(closed)));
    assert_false(reasoning_left_closed(&marks, open, strlen(open)));
    assert_false(reasoning_left_closed(NULL, closed, strlen(closed)));
    /* where each message ends so, and the prompt with the next one's begin */
    const struct reasoning_marks *solar = &tool_format_find("solar-open")->reasoning;
    const char *none = "<|begin|>user<|content|>A<|end|><|begin|>assistant",
               *empty = "A<|end|><|begin|>assistant<|think|><|end|><|begin|>assistant";
    assert_false(reasoning_left_closed(solar, none, strlen(none)));
    assert_true(reasoning_left_closed(solar, empty, strlen(empty)));
    assert_false(reasoning_left_open(solar, none, strlen(none)));
    assert_false(reasoning_left_open(solar, empty, strlen(empty)));
}

static void check_refused(const char *text, const char *words)
{
    json_t *array = json_loads(text, JSON_DECODE_ANY, NULL);
    struct tool_list *list = NULL;
    struct error e;
    assert_non_null(array);
    assert_int_equal(tool_list_new(array, &list, &e), ERROR_USAGE);
    assert_non_null(strstr(e.text, words));
    json_decref(array);
}

static void test_tools(void **state)
{
    check_refused("{}", "not an array");
    check_refused("[5]", "tools[0]");
    check_refused("[{\"type\":\"web_search\"}]", "\"web_search\"");
    check_refused("[{\"name\":\"a\"},{\"name\":\"a b\"}]", "tools[1]");
    check_refused("[{\"name\":\"\"}]", "no name");
    check_refused("[{\"name\":\"a\"},{\"name\":\"a\"}]", "second");
    check_refused("[{\"name\":\"a\",\"parameters\":[]}]", "schema");
    struct tool_list *l =
        tools_of("[{\"type\":\"function\",\"function\":{\"name\":\"a\",\"strict\":"
                 "true,\"parameters\":null}},{\"name\":\"b\"}]");
    assert_int_equal(tool_list_count(l), 2);
    assert_true(tool_list_at(l, 0)->strict);
    assert_null(tool_list_at(l, 0)->parameters);
    assert_ptr_equal(tool_list_find(l, "b!", 1), tool_list_at(l, 1));
    assert_null(tool_list_find(l, "b!", 2));
    tool_list_free(l);
    tool_list_free(NULL);
}

static void test_ids(void **state)
{
    static const struct {
        const char *format, *text;
        size_t len;
    } cases[] = {
        {"hermes", "<tool_call>{\"name\":\"now\"}</tool_call>", 29},
        {"mistral", "[TOOL_CALLS]now[ARGS]{}", 9},
    };
    for (size_t i = 0; i < 2; i++) {
        struct tool_list *tools = tools_of(SAMPLE_TOOLS);
        struct transcript a, b;
        struct tool_parser_options o = {
            .format = tool_format_find(cases[i].format), .tools = tools, .id_seed = 7};
        transcript_run(&a, o, cases[i].text, strlen(cases[i].text), NULL, NULL);
        o.id_seed = 8;
        transcript_run(&b, o, cases[i].text, strlen(cases[i].text), NULL, NULL);
        assert_int_equal(a.ids.len, cases[i].len + 1);
        assert_int_equal(b.ids.len, cases[i].len + 1);
        assert_string_not_equal(a.ids.data, b.ids.data);
        transcript_fini(&a);
        transcript_fini(&b);
        tool_list_free(tools);
    }
}

static void check_value(const char *schema, const char *text, const char *expected)
{
    json_t *s = json_loads(schema, JSON_DECODE_ANY, NULL);
    struct strbuf out;
    assert_non_null(s);
    strbuf_init(&out);
    argument_write(&out, schema_types(s, s), text, strlen(text));
    assert_string_equal(out.data, expected);
    strbuf_fini(&out);
    json_decref(s);
}

static void test_values(void **state)
{
    check_value("{\"type\":\"string\"}", "true", "\"true\"");
    check_value("{\"type\":\"string\"}", " a\"b ", "\" a\\\"b \"");
    check_value("{\"type\":\"boolean\"}", "True", "true");
    check_value("{\"type\":\"boolean\"}", "yes", "\"yes\"");
    check_value("{\"type\":\"integer\"}", " 12345678901234567890 ", "12345678901234567890");
    check_value("{\"type\":\"integer\"}", "012", "\"012\"");
    check_value("{\"type\":\"integer\"}", "\"7\"", "\"7\"");
    check_value("{\"type\":[\"integer\",\"null\"]}", "None", "null");
    check_value("{\"type\":\"integer\",\"nullable\":true}", "None", "null");
    check_value("{\"type\":\"integer\",\"nullable\":false}", "None", "\"None\"");
    check_value("{\"type\":\"array\"}", "[1, {\"a\": []}]", "[1, {\"a\": []}]");
    check_value("{\"type\":\"array\"}", "[1, ", "\"[1, \"");
    check_value("{\"type\":\"array\"}", "['a', \"b'\", None]", "[\"a\",\"b'\",null]");
    check_value("{\"type\":\"object\"}", "{'k': True}", "{\"k\":true}");
    check_value("{\"type\":[\"object\",\"string\"]}", "{k}", "\"{k}\"");
    check_value("{\"type\":\"boolean\"}", "Trueish", "\"Trueish\"");
    check_value("{\"enum\":[1,2]}", "1", "1");
    check_value("{\"enum\":[\"1\",\"2\"]}", "1", "\"1\"");
    check_value("{\"anyOf\":[{\"type\":\"object\"},{\"type\":\"string\"}]}", "{\"a\":1}",
                "{\"a\":1}");
    check_value("{\"$ref\":\"#/$defs/x\",\"$defs\":{\"x\":{\"type\":\"number\"}}}", "1e3", "1e3");
    check_value("{\"$ref\":\"#\"}", "1", "1"); /* no end: any type */
    check_value("{}", "None", "\"None\"");
    check_value("{}", "", "\"\"");
    check_value("{\"allOf\":[{\"type\":[\"string\",\"number\"]},{\"type\":\"string\"}]}", "5",
                "\"5\"");
}

/* $ref and anyOf in turn: 40^8 ways. The number of schemas that are read is limited. */
static void test_many_branches(void **state)
{
    struct strbuf schema;
    (void)state;
    strbuf_init(&schema);
    strbuf_printf(&schema, "{\"$ref\":\"#/$defs/A\",\"$defs\":{\"A\":{\"anyOf\":[");
    for (int i = 0; i < 40; i++)
        strbuf_printf(&schema, "%s{\"$ref\":\"#/$defs/A\"}", i ? "," : "");
    strbuf_printf(&schema, "]}}}");
    check_value(schema.data, "1", "1");
    strbuf_clear(&schema);
    strbuf_printf(&schema, "{\"anyOf\":[");
    for (int i = 0; i < 900; i++)
        strbuf_printf(&schema, "%s{\"const\":\"%d\"}", i ? "," : "", i);
    strbuf_printf(&schema, "]}");
    check_value(schema.data, "1", "\"1\""); /* within the limit */
    strbuf_fini(&schema);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_detect),        cmocka_unit_test(test_detect_files),
        cmocka_unit_test(test_left_open),     cmocka_unit_test(test_tools),
        cmocka_unit_test(test_ids),           cmocka_unit_test(test_values),
        cmocka_unit_test(test_many_branches),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
