/* Grammars of calls: the rules, worked out by hand from each format's text. */
#include "grammar/grammar.h"
#include "toolcall/gbnf_write.h"
#include "toolcall/tool_grammar.h"
#include "toolcall_run.h"

#define LOOSE "[{\"name\":\"now\"},{\"name\":\"edit\"}]"
#define STRICT                                                                                     \
    "[{\"name\":\"edit\",\"strict\":true,\"parameters\":{\"type\":\"object\",\"properties\":{"     \
    "\"path\":{\"type\":\"string\"},\"n\":{\"$ref\":\"#/$defs/n\"},\"mode\":{\"enum\":[\"a\","     \
    "\"b\"]}},\"required\":[\"path\"],\"$defs\":{\"n\":{\"type\":\"integer\"}}}}]"

static const struct reasoning_marks think = {.begin = "<think>", .end = "</think>"};

static struct tool_grammar build(struct tool_grammar_request r, const char *format,
                                 const char *tools)
{
    struct tool_list *list = tools_of(tools);
    struct tool_grammar g;
    struct error e;
    r.format = tool_format_find(format);
    r.tools = list;
    if (tool_grammar_build(&r, &g, &e) != ERROR_OK)
        fail_msg("%s", e.text);
    tool_list_free(list);
    return g;
}

/* The grammar begins with these lines. */
static void check(struct tool_grammar_request r, const char *format, const char *tools,
                  const char *lines)
{
    struct tool_grammar g = build(r, format, tools);
    assert_true(g.len >= strlen(lines));
    g.text[strlen(lines)] = '\0';
    assert_string_equal(g.text, lines);
    tool_grammar_fini(&g);
}

static const struct tool_grammar_request required = {.choice = TOOL_CHOICE_REQUIRED,
                                                     .parallel = true},
                                         automatic = {.choice = TOOL_CHOICE_AUTO};

static void test_frames(void **state)
{
    check(
        required, "hermes", LOOSE,
        "root ::= \"\\n\"{0,2} \"<tool_call>\\x0a\" call ( \"\\x0a\" \"<tool_call>\\x0a\" call )* "
        "\n"
        "call ::= call-0 | call-1\n"
        "call-0 ::= \"{\\x22name\\x22: \\x22\" \"now\" \"\\x22, \\x22arguments\\x22: \" "
        "json-object "
        "\"}\" \"\\x0a\" \"</tool_call>\" \n");
    check(automatic, "hermes", LOOSE, "root ::= \"\\x0a\" call \ncall ::= call-0 | call-1\n");
    check(automatic, "kimi-k2", LOOSE,
          "root ::= \"<|tool_call_begin|>functions.\" call \"<|tool_calls_section_end|>\" \n"
          "call ::= call-0 | call-1\n"
          "call-0 ::= \"now\" \":\" [0-9]{1,3} \"<|tool_call_argument_begin|>\" json-object "
          "\"<|tool_call_end|>\" \n");
    check(automatic, "solar-open", LOOSE,
          "root ::= \"<|tool_call:begin|>\" call \n"
          "call ::= [a-z0-9]{10} \"<|tool_call:name|>\" ( call-0 | call-1 )\n"
          "call-0 ::= \"now\" \"<|tool_call:args|>\" json-object \"<|tool_call:end|>\" \n");
    check(required, "solar-open", LOOSE,
          "root ::= \"\\n\"{0,2} \"<|tool_calls|><|tool_call:begin|>\" call ( "
          "\"<|tool_call:begin|>\" call )* \n");
    check(automatic, "deepseek-v3", LOOSE,
          "root ::= \"<\\uff5ctool\\u2581call\\u2581begin\\uff5c>function<\\uff5ctool\\u2581sep"
          "\\uff5c>\" call \"<\\uff5ctool\\u2581calls\\u2581end\\uff5c>\" \n");
    check(automatic, "harmony", LOOSE,
          "root ::= call \ncall ::= call-0 | call-1\n"
          "call-0 ::= \"now\" \" <|constrain|>json<|message|>\" json-object \n");
    check(automatic, "generic", LOOSE,
          "root ::= \"\\n\"{0,2} ( \"{\\x22response\\x22: \" json-string \"}\" | "
          "\"{\\x22tool_calls\\x22: \\x5b\" call \"\\x5d}\" )\n");
    struct tool_grammar_request named = {
        .choice = TOOL_CHOICE_NAMED, .name = "edit", .parallel = true};
    check(named, "glm", LOOSE,
          "root ::= \"\\n\"{0,2} \"<tool_call>\" call \ncall ::= call-1\n"
          "call-1 ::= \"edit\" \"\\x0a\" ? ( key-begin [a-zA-Z0-9_.-]+ key-end value-0 open-end )* "
          "\"</tool_call>\" \n"
          "key-begin ::= \"<arg_key>\" \nkey-end ::= \"</arg_key>\" \"\\x0a\" ? \"<arg_value>\" \n"
          "value-end ::= \"</arg_value>\" \"\\x0a\" ? \n"
          "open-end ::= value-end | \"\\n\"\n"
          "value-0 ::= ");
}

static void test_strict(void **state)
{
    check(automatic, "mistral", STRICT,
          "root ::= call \ncall ::= call-0\n"
          "call-0 ::= \"edit\" \"\\x5bARGS\\x5d\" %unordered \"tool \\x22edit\\x22: schema at "
          "\\x22\\x23\" {\"type\":\"object\",\"properties\":{"
          "\"path\":{\"type\":\"string\"},\"n\":{\"$ref\":\"#/$defs/n\"},\"mode\":{\"enum\":[\"a\","
          "\"b\"]}},\"required\":[\"path\"],\"$defs\":{\"n\":{\"type\":\"integer\"}}} \n");
    check(automatic, "mistral", "[{\"name\":\"f\",\"strict\":true,\"parameters\":{}}]",
          "root ::= call \ncall ::= call-0\n"
          "call-0 ::= \"f\" \"\\x5bARGS\\x5d\" %unordered \"tool \\x22f\\x22: schema at "
          "\\x22\\x23\" {\"type\":\"object\"} \n");
    /* between tags: in any order; a string is bare, what is not required may be left out,
     * a schema that refers to the root takes the definitions with it, and others follow */
    check(automatic, "qwen3-coder", STRICT,
          "root ::= call \"\\x0a</tool_call>\" \n"
          "call ::= call-0\n"
          "call-0 ::= \"edit\" \">\" \"\\x0a\" "
          "%all ( key-begin \"path\" key-end value-0 value-end "
          "| ? key-begin \"n\" key-end %unordered \"tool \\x22edit\\x22: schema at "
          "\\x22\\x23/properties/n\" "
          "{\"$ref\":\"#/$defs/n\",\"$defs\":{\"n\":{\"type\":\"integer\"}}} "
          "value-end "
          "| ? key-begin \"mode\" key-end ( \"a\" | \"b\" ) value-end "
          "| * key-begin %text \"\" \"\\x5e(\\x3f:path|n|mode)\\x24\" {\"pattern\":"
          "\"^[a-zA-Z0-9_.-]+$\"} key-end value-0 value-end ) \"</function>\" \n"
          "key-begin ::= \"<parameter=\" \nkey-end ::= \">\" \"\\x0a\" \n"
          "line-end ::= \"\\x0a</parameter>\" \"\\x0a\" \n"
          "value-end ::= \"\\n\"? \"</parameter>\" \"\\x0a\" \n"
          "value-0 ::= %text \"\\x0a</parameter>\" "
          "\"\\x5e</parameter>|</parameter>\\x0a(\\x3f:<parameter=|"
          "</function>)\" {\"type\":\"string\"}\n");
}

/* A schema of a tool that is not strict has a rule beside it, and no annotations. */
static void test_not_strict(void **state)
{
    static const char tools[] =
        "[{\"name\":\"f\",\"parameters\":{\"title\":\"F\",\"properties\":{\"title\":{\"title\":"
        "\"T\",\"type\":\"string\",\"description\":\"a title\",\"default\":{\"type\":1}},\"n\":{"
        "\"type\":\"integer\"}},\"additionalProperties\":false}}]";
    (void)state;
    check(automatic, "mistral", tools,
          "root ::= call \ncall ::= call-0\n"
          "call-0 ::= \"f\" \"\\x5bARGS\\x5d\" %unordered \"tool \\x22f\\x22: schema at "
          "\\x22\\x23\" {\"properties\":{\"title\":{\"type\":\"string\"},\"n\":{\"type\":"
          "\"integer\"}},\"additionalProperties\":false,\"type\":\"object\"} %else json-object \n"
          "json-object ::=");
    check(automatic, "gemma4", tools,
          "root ::= \"call:\" call \ncall ::= call-0\n"
          "call-0 ::= \"f\" %gemma \"tool \\x22f\\x22: schema at \\x22\\x23\" {\"properties\":{"
          "\"title\":{\"type\":\"string\"},\"n\":{\"type\":\"integer\"}},"
          "\"additionalProperties\":false,\"type\":\"object\"} %else gemma-object \"<tool_call|>\" "
          "\n");
    check(automatic, "glm", tools,
          "root ::= call \ncall ::= call-0\n"
          "call-0 ::= \"f\" \"\\x0a\" ? "
          "%all ( ? key-begin \"title\" key-end value-0 open-end "
          "| ? key-begin \"n\" key-end %value \"</arg_value>\" \"tool \\x22f\\x22: schema at "
          "\\x22\\x23/properties/n\" {\"type\":\"integer\"} %else value-0 open-end ) "
          "\"</tool_call>\" \n");
}

/* Arguments are an object, whatever a tool that is not strict calls it; null is as if the keyword
 * were not there. */
static void test_not_strict_types(void **state)
{
    (void)state;
    check(automatic, "mistral",
          "[{\"name\":\"f\",\"parameters\":{\"type\":\"dict\",\"nullable\":true}}]",
          "root ::= call \ncall ::= call-0\n"
          "call-0 ::= \"f\" \"\\x5bARGS\\x5d\" %unordered \"tool \\x22f\\x22: schema at "
          "\\x22\\x23\" {\"type\":\"object\"} %else json-object \n");
    check(automatic, "glm",
          "[{\"name\":\"f\",\"parameters\":{\"type\":\"object\",\"properties\":{\"n\":{\"type\":"
          "\"string\"}},\"required\":null}}]",
          "root ::= call \ncall ::= call-0\n"
          "call-0 ::= \"f\" \"\\x0a\" ? "
          "%all ( ? key-begin \"n\" key-end value-0 open-end ");
}

/* What the format cannot express, and schemas that are too large, are left out one by one. */
static void test_not_followed(void **state)
{
    enum { TOOLS = 4, KEY_BYTES = 60000 };
    struct strbuf tools;
    char *key = malloc(KEY_BYTES + 1);
    (void)state;
    check(automatic, "glm", "[{\"name\":\"f\",\"parameters\":{\"oneOf\":[{\"type\":\"object\"}]}}]",
          "root ::= call \ncall ::= call-0\n"
          "call-0 ::= \"f\" \"\\x0a\" ? %note \"tool \\x22f\\x22: /oneOf: the glm format cannot "
          "follow it\" ( key-begin [a-zA-Z0-9_.-]+ ");
    check(automatic, "hermes", "[{\"name\":\"f\",\"parameters\":{\"type\":\"string\"}}]",
          "root ::= \"\\x0a\" call \ncall ::= call-0\n"
          "call-0 ::= \"{\\x22name\\x22: \\x22\" \"f\" \"\\x22, \\x22arguments\\x22: \" %note "
          "\"tool \\x22f\\x22: /type: the arguments of a call are an object\" json-object ");
    assert_non_null(key);
    memset(key, 'k', KEY_BYTES);
    key[KEY_BYTES] = '\0';
    strbuf_init(&tools);
    for (int i = 0; i < TOOLS; i++)
        strbuf_printf(&tools, "%s{\"name\":\"f%d\",\"parameters\":{\"required\":[\"%s\"]}}",
                      i ? "," : "[", i, key);
    strbuf_printf(&tools, "]");
    struct tool_grammar g = build(automatic, "mistral", tools.data);
    size_t items = 0;
    for (const char *at = g.text; (at = strstr(at, "%unordered ")); at++)
        items++;
    assert_int_equal(items, 2); /* of 60 KB each */
    assert_non_null(strstr(g.text, "tool \\x22f3\\x22: the schemas of all tools"));
    tool_grammar_fini(&g);
    strbuf_fini(&tools);
    free(key);
}

/* After the prompt's open reasoning the grammar waits for its end; else reasoning is part of it. */
static void test_reasoning(void **state)
{
    struct tool_grammar_request r = required;
    r.reasoning = &think;
    r.parallel = false;
    check(r, "llama3", LOOSE, "root ::= ( \"<think>\" reasoning-0 )? \"\\n\"{0,2} call \n");
    r.reasoning_open = true;
    struct tool_grammar g = build(r, "llama3", LOOSE);
    assert_string_equal(g.trigger, "</think>");
    assert_true(g.required);
    tool_grammar_fini(&g);
    /* the calls are in the next message */
    r.reasoning = &tool_format_find("solar-open")->reasoning;
    check(r, "solar-open", LOOSE,
          "root ::= \"<|begin|>assistant\" \"\\n\"{0,2} \"<|tool_calls|><|tool_call:begin|>\" ");
    r.reasoning_open = false;
    check(r, "solar-open", LOOSE,
          "root ::= ( \"<|think|>\" reasoning-0 \"<|begin|>assistant\" )? \"\\n\"{0,2} ");
    r.reasoning = &think;
    r.reasoning_open = true;
    r.choice = TOOL_CHOICE_AUTO;
    g = build(r, "llama3", LOOSE);
    assert_null(g.text); /* its calls have no mark */
    tool_grammar_fini(&g);
    g = build(r, "kimi-k2", LOOSE);
    assert_string_equal(g.trigger, "<|tool_calls_section_begin|>");
    assert_false(g.required);
    assert_string_equal(g.marks[0], "<|tool_calls_section_begin|>");
    assert_string_equal(g.marks[6], "</think>");
    assert_null(g.marks[7]);
    tool_grammar_fini(&g);
}

static void check_refused(struct tool_grammar_request r, const char *format, const char *tools,
                          enum error_code code, const char *words)
{
    struct tool_list *list = tools_of(tools);
    struct tool_grammar g;
    struct error e;
    r.format = tool_format_find(format);
    r.tools = list;
    assert_int_equal(tool_grammar_build(&r, &g, &e), code);
    assert_non_null(strstr(e.text, words));
    tool_list_free(list);
}

static void test_refused(void **state)
{
    struct tool_grammar_request named = {.choice = TOOL_CHOICE_NAMED, .name = "nope"};
    check_refused(named, "hermes", LOOSE, ERROR_NOT_FOUND, "\"nope\"");
    check_refused(required, "hermes", "[]", ERROR_USAGE, "needs tools");
    const char *pattern = "[{\"name\":\"edit\",\"strict\":true,\"parameters\":{"
                          "\"patternProperties\":{\"^a\":{}}}}]";
    check_refused(required, "glm", pattern, ERROR_UNSUPPORTED, "\"edit\": /patternProperties");
    check_refused(required, "hermes",
                  "[{\"name\":\"f\",\"strict\":true,\"parameters\":{\"type\":\"array\"}}]",
                  ERROR_UNSUPPORTED, "\"f\": /type");
    struct tool_grammar g = build(required, "hermes", pattern); /* JSON can follow it */
    tool_grammar_fini(&g);
}

/* Refused, or a grammar without the schema. The grammar ends where it is too large: each of these
 * would take gigabytes, or weeks. */
static void check_large(char *parameters)
{
    struct strbuf tools;
    for (int strict = 0; strict < 2; strict++) {
        strbuf_init(&tools);
        strbuf_printf(&tools, "[{\"name\":\"f\",\"strict\":%s,\"parameters\":%s}]",
                      strict ? "true" : "false", parameters);
        if (strict) {
            check_refused(required, "glm", tools.data, ERROR_LIMIT, "more than 262144 bytes");
        } else {
            struct tool_grammar g = build(required, "glm", tools.data);
            assert_non_null(strstr(g.text, "%note \"tool \\x22f\\x22: the schemas of all tools"));
            tool_grammar_fini(&g);
        }
        strbuf_fini(&tools);
    }
    free(parameters);
}

static void test_large(void **state)
{
    struct strbuf many;
    (void)state;
    strbuf_init(&many);
    strbuf_printf(&many, "{\"properties\":{");
    for (int i = 0; i < 20000; i++)
        strbuf_printf(&many, "%s\"p%d\":{\"$ref\":\"#/$defs/A\"}", i ? "," : "", i);
    strbuf_printf(&many, "},\"$defs\":{\"A\":{}");
    for (int i = 0; i < 30000; i++)
        strbuf_printf(&many, ",\"d%d\":{\"type\":\"string\",\"pattern\":\"^a$\"}", i);
    strbuf_printf(&many, "}}");
    check_large(many.data);
    strbuf_init(&many);
    strbuf_printf(&many, "{\"additionalProperties\":false,\"properties\":{");
    for (int i = 0; i < 300000; i++)
        strbuf_printf(&many, "%s\"p%d\":{}", i ? "," : "", i);
    strbuf_printf(&many, "},\"required\":[");
    for (int i = 0; i < 300000; i++)
        strbuf_printf(&many, "%s\"p%d\"", i ? "," : "", i);
    strbuf_printf(&many, "]}");
    check_large(many.data);
}

/* Between tags the item of a property is a document of its own: there `#` would be another place.
 */
static void test_elsewhere(void **state)
{
    static const char *const tools[] = {
        "[{\"name\":\"f\",\"strict\":%s,\"parameters\":{\"properties\":{\"n\":{\"type\":"
        "\"integer\"},"
        "\"a/b\":{\"type\":\"array\",\"items\":{\"$ref\":\"#\"}}},"
        "\"additionalProperties\":false}}]",
        "[{\"name\":\"f\",\"strict\":%s,\"parameters\":{\"properties\":{\"n\":{\"type\":"
        "\"integer\"},"
        "\"a/b\":{\"anyOf\":[{\"$ref\":\"#/$defs/A\"}]}},"
        "\"additionalProperties\":false,\"$defs\":{\"A\":{\"$ref\":\"#/properties/n\"}}}}]"};
    (void)state;
    for (size_t i = 0; i < sizeof tools / sizeof tools[0]; i++) {
        char text[512];
        snprintf(text, sizeof text, tools[i], "false");
        check(automatic, "glm", text,
              "root ::= call \ncall ::= call-0\n"
              "call-0 ::= \"f\" \"\\x0a\" ? "
              "%all ( ? key-begin \"n\" key-end %value \"</arg_value>\" \"tool \\x22f\\x22: schema "
              "at "
              "\\x22\\x23/properties/n\" {\"type\":\"integer\"} %else value-0 open-end "
              "| ? key-begin \"a/b\" key-end %note \"tool \\x22f\\x22: schema at "
              "\\x22\\x23/properties/a\\x7e1b\\x22: the glm format follows a \\x24ref to a "
              "definition only\" value-0 open-end ) \"</tool_call>\" \n");
        snprintf(text, sizeof text, tools[i], "true");
        check_refused(required, "glm", text, ERROR_UNSUPPORTED,
                      "tool \"f\": schema at \"#/properties/a~1b\": ");
    }
}

/* A reference into an author's own keyword takes it along; what nothing refers to is left out. */
static void test_own_keywords(void **state)
{
    static const char tools[] =
        "[{\"name\":\"f\",\"strict\":true,\"parameters\":{\"properties\":{\"a\":{\"$ref\":"
        "\"#/x-defs/A\",\"x-note\":1}},\"additionalProperties\":false,\"x-defs\":{\"A\":{\"type\":"
        "\"null\"}},\"x-note\":2}}]";
    static const char escaped[] =
        "[{\"name\":\"f\",\"strict\":true,\"parameters\":{\"properties\":{\"a\":{\"$ref\":"
        "\"#/x-a~1b/0\"}},\"x-a/b\":[{\"type\":\"null\"}]}}]";
    (void)state;
    check(automatic, "mistral", tools,
          "root ::= call \ncall ::= call-0\n"
          "call-0 ::= \"f\" \"\\x5bARGS\\x5d\" %unordered \"tool \\x22f\\x22: schema at "
          "\\x22\\x23\" {\"properties\":{\"a\":{\"$ref\":\"#/x-defs/A\"}},"
          "\"additionalProperties\":false,\"x-defs\":{\"A\":{\"type\":\"null\"}},"
          "\"type\":\"object\"} ");
    check(automatic, "glm", tools,
          "root ::= call \ncall ::= call-0\n"
          "call-0 ::= \"f\" \"\\x0a\" ? %all ( ? key-begin \"a\" key-end %value \"</arg_value>\" "
          "\"tool "
          "\\x22f\\x22: schema at \\x22\\x23/properties/a\" {\"$ref\":\"#/x-defs/A\",\"x-defs\":{"
          "\"A\":{\"type\":\"null\"}}} value-end ) ");
    check(automatic, "mistral", escaped,
          "root ::= call \ncall ::= call-0\n"
          "call-0 ::= \"f\" \"\\x5bARGS\\x5d\" %unordered \"tool \\x22f\\x22: schema at "
          "\\x22\\x23\" {\"properties\":{\"a\":{\"$ref\":\"#/x-a~1b/0\"}},\"x-a/b\":[{\"type\":"
          "\"null\"}],\"type\":\"object\"} ");
    struct tool_grammar g = build(automatic, "glm", escaped);
    assert_non_null(strstr(g.text, "{\"$ref\":\"#/x-a~1b/0\",\"x-a/b\":[{\"type\":\"null\"}]}"));
    struct grammar *compiled;
    const char *why;
    assert_int_equal(grammar_compile_marked(g.text, g.len, NULL, 0, NULL, &compiled, NULL), 0);
    assert_int_equal(grammar_replaced(compiled, &why), 0);
    grammar_free(compiled);
    tool_grammar_fini(&g);
}

/* The notes of many tools fit, and their texts, which are cut, are texts. */
static void test_notes(void **state)
{
    struct strbuf tools;
    struct grammar *compiled;
    struct error e;
    const char *why;
    (void)state;
    strbuf_init(&tools);
    for (int i = 0; i < TOOLS_MAX; i++) {
        strbuf_printf(&tools, "%s{\"name\":\"%03d\",\"parameters\":{\"", i ? "," : "[", i);
        for (int j = 0; j < 200 + i % 3; j++)
            strbuf_printf(&tools, "%s\\u0e01", j < i % 3 ? "k" : "");
        strbuf_printf(&tools, "\":1}}");
    }
    strbuf_printf(&tools, "]");
    struct tool_grammar g = build(required, "glm", tools.data);
    if (grammar_compile_marked(g.text, g.len, NULL, 0, NULL, &compiled, &e))
        fail_msg("%s", e.text);
    assert_int_equal(grammar_replaced(compiled, &why), TOOLS_MAX);
    json_t *valid = json_string(why); /* UTF-8 */
    assert_non_null(valid);
    size_t lines = 1;
    for (const char *c = why; *c; c++)
        lines += *c == '\n';
    assert_int_equal(lines, GRAMMAR_REPLACED_MAX);
    json_decref(valid);
    grammar_free(compiled);
    tool_grammar_fini(&g);
    strbuf_fini(&tools);
}

/* Text up to "aab": the automaton by hand. */
/* Of many functions the one that is called is followed: the others are not in the grammar. */
static void test_named_of_many(void **state)
{
    json_t *tools = json_array();
    for (int i = 0; i < 512; i++)
        json_array_append_new(tools, json_pack("{s:o, s:{s:s, s:{s:{s:s}}}}", "name",
                                               json_sprintf("function_with_a_long_name_%d", i),
                                               "parameters", "type", "object", "properties", "n",
                                               "type", "integer"));
    char *text = json_dumps(tools, 0);
    struct tool_list *list = tools_of(text);
    const struct tool_grammar_request r = {.format = tool_format_find("hermes"),
                                           .tools = list,
                                           .choice = TOOL_CHOICE_NAMED,
                                           .name = "function_with_a_long_name_400"};
    struct tool_grammar g;
    struct error e;
    assert_int_equal(tool_grammar_build(&r, &g, &e), ERROR_OK);
    assert_non_null(strstr(g.text, "%unordered"));
    assert_null(strstr(g.text, "%note"));
    tool_grammar_fini(&g);
    tool_list_free(list);
    free(text);
    json_decref(tools);
}

static void test_until(void **state)
{
    struct strbuf b;
    strbuf_init(&b);
    gbnf_until(&b, "u", "aab");
    assert_string_equal(b.data, "u-0 ::= \"aab\" | \"a\" u-1 | [^a] u-0\n"
                                "u-1 ::= \"aab\" | \"a\" u-2 | [^a] u-0\n"
                                "u-2 ::= \"aab\" | \"a\" u-2 | \"b\" | [^ab] u-0\n");
    strbuf_clear(&b);
    gbnf_until(&b, "u", "aba"); /* after "ab" the text "aba" would reach beyond the first mark */
    assert_string_equal(b.data, "u-0 ::= \"a\" u-1 | [^a] u-0\n"
                                "u-1 ::= \"a\" u-1 | \"b\" u-2 | [^ab] u-0\n"
                                "u-2 ::= \"a\" | [^a] u-0\n");
    strbuf_clear(&b);
    gbnf_without(&b, "w", "ab");
    assert_string_equal(b.data, "w-0 ::= \"\" | \"a\" w-1 | [^a] w-0\n"
                                "w-1 ::= \"\" | \"a\" w-1 | [^ab] w-0\n");
    strbuf_fini(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_frames),
        cmocka_unit_test(test_strict),
        cmocka_unit_test(test_not_strict),
        cmocka_unit_test(test_not_followed),
        cmocka_unit_test(test_not_strict_types),
        cmocka_unit_test(test_reasoning),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_large),
        cmocka_unit_test(test_elsewhere),
        cmocka_unit_test(test_own_keywords),
        cmocka_unit_test(test_notes),
        cmocka_unit_test(test_named_of_many),
        cmocka_unit_test(test_until),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
