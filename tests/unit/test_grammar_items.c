/* Items of GBNF that stand for schemas: bare texts, Gemma's notation, and rules for schemas that
 * cannot be followed. Texts are worked out by hand. */
#include "grammar_texts.h"

#include "base/strbuf.h"

static void test_text(void **state)
{
    (void)state;
    /* bare: no quotes, no escapes; without the mark that ends the value */
    CHECK_TEXTS(GRAMMAR_GBNF,
                "root ::= %text \"</v>\" \"\" {\"type\":\"string\",\"minLength\":2} \"</v>\"",
                "ab</v>", "a\"\\\n</v>", "</v</v>", "\xc3\xa4\xc3\xa4</v>", NULL, "a</v>", "ab",
                "a</v></v>", "\xc3\xa4</v>");
    CHECK_TEXTS(GRAMMAR_GBNF,
                "root ::= %text \"\" \"\" {\"anyOf\":[{\"enum\":[\"it's\",\"\",4]},{\"pattern\":"
                "\"^[A-Z]+$\",\"type\":\"string\"},{\"type\":\"array\"}]} \";\"",
                "it's;", ";", "ABC;", NULL, "4;", "a;", "[];");
    /* unlike: what would be read as a number */
    CHECK_TEXTS(GRAMMAR_GBNF,
                "root ::= %text \"\" \"^-?[0-9]+$\" {\"type\":[\"string\",\"integer\"]}", "a", "1a",
                "1 ", "-", NULL, "1", "-17");
}

static void test_value(void **state)
{
    (void)state;
    /* JSON without the mark, in strings of every kind */
    CHECK_TEXTS(GRAMMAR_GBNF, "root ::= %value \"</v>\" {\"type\":\"array\"} \"</v>\"",
                "[\"</v\", \"<</\", \"\\u003c/v>\", \"\\n\\\"\", {\"a\":1}]</v>", NULL,
                "[\"</v>\"]</v>", "[\"<</v>\"]</v>", "[{\"</v>\":1}]</v>", "[\"a\nb\"]</v>");
    CHECK_TEXTS(GRAMMAR_GBNF,
                "root ::= %value \"</v>\" {\"type\":\"object\",\"properties\":{\"</v>\":{\"const\":"
                "\"<</v>\"},\"p\":{\"type\":\"string\",\"pattern\":\"^<\"}}}",
                "{\"\\u003c/v>\":\"\\u003c\\u003c/v>\"}", "{\"p\":\"<a</v\"}", "{\"<v>\":1}", NULL,
                "{\"</v>\":\"<</v>\"}", "{\"p\":\"<a</v>\"}", "{\"a</v>\":1}");
}

#define GREP                                                                                       \
    "{\"type\":\"object\",\"required\":[\"p\",\"q\"],\"properties\":{\"p\":{\"type\":"             \
    "\"integer\"},\"q\":{\"type\":\"null\"},\"qs\":{\"type\":\"boolean\"},\"never\":false,\"in\":" \
    "{"                                                                                            \
    "\"type\":\"object\",\"properties\":{\"a\":true,\"b\":true},\"additionalProperties\":false}}"

static void test_unordered(void **state)
{
    (void)state;
    CHECK_TEXTS(GRAMMAR_GBNF, "root ::= %unordered " GREP "}", "{\"p\":1,\"q\":null}",
                "{\"q\": null, \"p\":1}", "{\"qs\":true,\"q\":null,\"p\":1}",
                "{\"in\":{\"b\":1,\"a\":{\"b\":1}},\"q\":null,\"qs\":true,\"p\":1}",
                "{\"q\":null,\"p\":1,\"other\":[],\"qs\":true,\"other\":{\"p\":0}}", NULL,
                /* each once, the required ones, their schemas; others behind the required ones */
                "{\"p\":1,\"p\":1,\"q\":null}", "{\"q\":null}", "{\"q\":null,\"qs\":true}",
                "{\"q\":1,\"p\":1}", "{\"q\":null,\"other\":1,\"p\":1}", "{\"other\":1}", "{}",
                "{\"q\":null,\"p\":1,\"never\":1}", "{\"q\":null,\"p\":1,\"other\":1,\"p\":1}",
                "{\"in\":{\"b\":1,\"b\":1},\"q\":null,\"p\":1}", "{\"q\":null,\"p\":1,}");
    CHECK_TEXTS(GRAMMAR_GBNF, "root ::= %unordered " GREP ",\"additionalProperties\":false}",
                "{\"q\":null,\"p\":1}", NULL, "{\"q\":null,\"p\":1,\"x\":1}",
                /* nothing could follow the comma */
                "{\"in\":{},\"qs\":true,\"q\":null,\"p\":1,");
    CHECK_TEXTS(GRAMMAR_GBNF, "root ::= %json " GREP "}", "{\"p\":1,\"q\":null}", NULL,
                "{\"q\":null,\"p\":1}");
    CHECK_TEXTS(GRAMMAR_GBNF,
                "root ::= %unordered {\"type\":\"object\",\"minProperties\":1,\"properties\":{"
                "\"a\":{\"type\":\"null\"},\"b\":{\"type\":\"null\"}},"
                "\"additionalProperties\":false}",
                "{\"b\":null,\"a\":null}", "{\"b\":null}", NULL, "{}");
    /* a limit that a set cannot keep: in order */
    CHECK_TEXTS(GRAMMAR_GBNF,
                "root ::= %unordered {\"type\":\"object\",\"maxProperties\":2,\"properties\":{"
                "\"a\":{\"type\":\"null\"},\"b\":{\"type\":\"null\"},\"c\":{\"type\":\"null\"}},"
                "\"required\":[\"c\"]}",
                "{\"b\":null,\"c\":null}", NULL, "{\"c\":null,\"b\":null}",
                "{\"a\":null,\"b\":null,\"c\":null}");
    check_refused(GRAMMAR_GBNF,
                  "root ::= %unordered {\"type\":\"object\",\"required\":[\"a\"],\"properties\":{"
                  "\"a\":{\"enum\":[]},\"b\":{}}}",
                  ERROR_USAGE, "no answer can satisfy");
}

/* More members than a set has numbers: the required ones have them first. */
static void test_unordered_many(void **state)
{
    struct strbuf text;
    (void)state;
    for (int required = 60; required <= 70; required += 10) {
        strbuf_init(&text);
        strbuf_printf(&text, "root ::= %%unordered {\"type\":\"object\",\"properties\":{");
        for (int i = 0; i < 100; i++)
            strbuf_printf(&text, "%s\"p%d\":{\"type\":\"null\"}", i ? "," : "", i);
        strbuf_printf(&text, "},\"required\":[");
        for (int i = 0; i < required; i++)
            strbuf_printf(&text, "%s\"p%d\"", i ? "," : "", 99 - i);
        strbuf_printf(&text, "],\"additionalProperties\":false}");
        struct grammar *g = compile_ok(GRAMMAR_GBNF, text.data);
        for (int left_out = 0; left_out < 2; left_out++)
            for (int reversed = 0; reversed < 2; reversed++) {
                strbuf_clear(&text);
                for (int i = left_out; i < required; i++)
                    strbuf_printf(&text, "%s\"p%d\":null", i > left_out ? "," : "{",
                                  reversed ? 99 - i : 100 - required + i);
                strbuf_printf(&text, "}");
                bool fits = !left_out && (required <= 64 || !reversed);
                assert_int_equal(whole_text(g, text.data, text.len), fits);
            }
        grammar_free(g);
        strbuf_fini(&text);
    }
}

static void test_all(void **state)
{
    (void)state;
    CHECK_TEXTS(GRAMMAR_GBNF,
                "root ::= \"[\" part \"]\"\n"
                "part ::= %all ( \"a\" | ? \"b\" [0-9] | ? \"(\" part \")\" |\n * \"x\" )",
                "[a]", "[ab1]", "[b2a]", "[b2(a)a]", "[(b1ax(a))axxb1]", "[axx]", NULL, "[]",
                "[b1]", "[aa]", "[ab1b1]", "[xa]", "[(b1)a]", "[a", "[a(a)(a)]");
    check_refused(GRAMMAR_GBNF, "root ::= %all \"a\"", ERROR_USAGE, "%all wants a group");
    check_refused(GRAMMAR_GBNF, "root ::= %all ( \"a\"", ERROR_USAGE, "without its end");
    check_refused(GRAMMAR_GBNF, "root ::= %all ( ? root | \"a\" )", ERROR_UNSUPPORTED,
                  "calls itself");
    struct strbuf many;
    strbuf_init(&many);
    strbuf_printf(&many, "root ::= %%all ( * \"x\" ");
    for (int i = 0; i < 65; i++)
        strbuf_printf(&many, "| \"%d;\" ", i);
    strbuf_printf(&many, ")");
    check_refused(GRAMMAR_GBNF, many.data, ERROR_LIMIT, "%all has too many parts");
    strbuf_fini(&many);
    /* parts without a text */
    CHECK_TEXTS(GRAMMAR_GBNF, "root ::= %all ( \"a\"? | \"b\" | ? )", "b", "ab", "ba", NULL, "",
                "aab", "bb");
}

static void test_gemma(void **state)
{
    (void)state;
    CHECK_TEXTS(GRAMMAR_GBNF,
                "root ::= %gemma {\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"string\"},"
                "\"b c\":{\"enum\":[\"x\",1]},\"n\":{\"type\":\"array\",\"items\":{\"type\":"
                "\"integer\"}},\"s\":{\"type\":\"string\",\"maxLength\":2}},\"required\":[\"a\"],"
                "\"additionalProperties\":false}",
                "{a:<|\"|>it's \"so\" <|\"<|\"|>}", "{a:<|\"|><|\"|>,<|\"|>b c<|\"|>:1}",
                "{a:<|\"|>\n<|\"|>,<|\"|>b c<|\"|>:<|\"|>x<|\"|>,n:[1,2]}",
                "{a:<|\"|><<|\"|>, s: <|\"|>ab<|\"|>}", NULL, "{a:\"b\"}", "{\"a\":<|\"|>b<|\"|>}",
                "{}", "{a:<|\"|>b<|\"|>,b:1}", "{a:<|\"|>b<|\"|>,<|\"|>b c<|\"|>:2}",
                "{a:<|\"|>b<|\"|>,s:<|\"|>abc<|\"|>}", "{a:<|\"|>b<|\"|>x<|\"|>}");
    /* other members: words as keys, and none that is named */
    CHECK_TEXTS(
        GRAMMAR_GBNF,
        "root ::= %gemma {\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\"}}}",
        "{a:1}", "{b:<|\"|>a<|\"|>}", "{a:1,b-2:{c:[null]}}", "{}", NULL, "{a:true}",
        "{b:1,a:true}");
}

/* Gemma's strings have no escapes: a constant or key with a mark cannot be written. */
static void test_gemma_marks(void **state)
{
    (void)state;
    check_refused(
        GRAMMAR_GBNF, "root ::= %gemma {\"properties\":{\"a\":{\"const\":\"x<|\\\"|>y\"}}}",
        ERROR_UNSUPPORTED,
        "schema at \"#/properties/a/const\": a text that has <|\"|> or <tool_call|> cannot "
        "be written in this format");
    check_refused(
        GRAMMAR_GBNF,
        "root ::= %gemma {\"properties\":{\"a\":{\"enum\":[1,[{\"k\":\"<tool_call|>\"}]]}}}",
        ERROR_UNSUPPORTED, "#/properties/a/enum\"");
    check_refused(GRAMMAR_GBNF, "root ::= %gemma {\"const\":{\"<|\\\"|>\":1}}", ERROR_UNSUPPORTED,
                  "#/const\"");
    check_refused(GRAMMAR_GBNF, "root ::= %gemma {\"properties\":{\"<|\\\"|>\":true}}",
                  ERROR_UNSUPPORTED, "#/properties\"");
    CHECK_TEXTS(
        GRAMMAR_GBNF, "root ::= %gemma {\"enum\":[\"<|\\\"|\",\"<|\\\"|<\",\"<tool_call|\"]}",
        "<|\"|><|\"|<|\"|>", "<|\"|><|\"|<<|\"|>", "<|\"|><tool_call|<|\"|>", NULL, "<|\"|><|\"|>");
    CHECK_TEXTS(GRAMMAR_GBNF, "root ::= %json {\"const\":\"<|\\\"|>\"}", "\"<|\\\"|>\"", NULL,
                "\"\"");
}

/* ---- A rule for a schema that cannot be followed ---- */

static struct grammar *compile_with(const char *text, const struct grammar_limits *limits)
{
    struct grammar *g;
    struct error e;
    if (grammar_compile(GRAMMAR_GBNF, text, strlen(text), limits, &g, &e))
        fail_msg("%s: %s", text, e.text);
    return g;
}

#define ANY    " %else any "
#define STRING "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"string\"}}}"

static void test_else(void **state)
{
    static const struct {
        const char *schema, *why;
    } cases[] = {
        {"{\"not\":{},\"enum\":[]}", "edit at #/not\""},
        {"{\"type\":\"dict\",\"enum\":[]}", "edit at #/type\""},
        {"{\"type\":\"object\",\"properties\":{\"a\":{\"enum\":[]}},\"required\":[\"a\"]}",
         "edit at #\": no value satisfies"},
        {"{\"$ref\":\"#/$defs/x\",\"enum\":[]}", "names nothing"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[1024];
        const char *why;
        /* the schemas before and behind it are followed, and share their rules */
        snprintf(text, sizeof text,
                 "root ::= \"0\" %%json " STRING "%s| \"1\" %%json \"edit at #\" %s%s"
                 "| \"2\" %%json " STRING "\nany ::= \"any\"\n",
                 ANY, cases[i].schema, ANY);
        struct grammar *g = compile_with(text, NULL);
        assert_int_equal(grammar_replaced(g, &why), 1);
        if (!strstr(why, cases[i].why))
            fail_msg("%s: %s", cases[i].schema, why);
        assert_true(whole_text(g, "0{\"a\": \"b\"}", 11));
        assert_true(whole_text(g, "1any", 4));
        assert_true(whole_text(g, "2{\"a\":\"\\n\"}", 11));
        assert_false(whole_text(g, "0any", 4));
        assert_false(whole_text(g, "1{}", 3));
        assert_false(whole_text(g, "2{\"a\":1}", 8));
        grammar_free(g);
    }
    struct grammar *g = compile_with("root ::= %json " STRING ANY "\nany ::= \"any\"\n", NULL);
    const char *why;
    assert_int_equal(grammar_replaced(g, &why), 0);
    assert_string_equal(why, "");
    grammar_free(g);
}

/* Only the keywords that cannot be followed are left out, the lengths of a pattern with too many
 * states among them. */
static void test_else_without_keywords(void **state)
{
    static const struct {
        const char *schema, *why;
        bool any_text;
    } cases[] = {
        {"{\"uniqueItems\":true}", "edit at #/properties/b/uniqueItems\"", true},
        {"{\"pattern\":\"^(a|b)*a(a|b){10}$\",\"maxLength\":900}",
         "edit at #/properties/b/maxLength\"", false},
        {"{\"type\":\"dict\"}", "edit at #/properties/b/type\"", true},
        {"{\"$ref\":\"#/$defs/x\"}", "names nothing", true},
        {"{\"enum\":[{},\"aaaaaaaaaaaa\"],\"minProperties\":1}",
         "edit at #/properties/b/minProperties\"", false},
        {"{\"allOf\":[{\"enum\":[{},\"aaaaaaaaaaaa\"]},{\"minProperties\":1}]}",
         "edit at #/properties/b/allOf/1/minProperties\"", false},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[512];
        const char *why;
        snprintf(text, sizeof text,
                 "root ::= %%unordered \"edit at #\" {\"type\":\"object\",\"properties\":{\"u\":{"
                 "\"type\":\"integer\"},\"b\":%s},\"required\":[\"u\"]}%s\nany ::= \"any\"\n",
                 cases[i].schema, ANY);
        struct grammar *g = compile_with(text, NULL);
        assert_int_equal(grammar_replaced(g, &why), 1);
        assert_non_null(strstr(why, cases[i].why));
        assert_true(whole_text(g, "{\"u\": 1}", 8));
        assert_true(whole_text(g, "{\"b\":\"aaaaaaaaaaaa\",\"u\":1}", 26));
        assert_int_equal(whole_text(g, "{\"b\":\"c\",\"u\":1}", 15), cases[i].any_text);
        assert_false(whole_text(g, "{\"b\":null}", 10));
        assert_false(whole_text(g, "any", 3));
        grammar_free(g);
    }
}

/* As many required members as a large record has, and objects within objects: followed, not
 * replaced. */
static void test_else_of_many_members(void **state)
{
    static const unsigned sizes[] = {1, 16, 40, 200};
    (void)state;
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        for (int nested = 0; nested <= 1; nested++) {
            struct strbuf text, answer;
            const char *why;
            strbuf_init(&text);
            strbuf_init(&answer);
            strbuf_printf(&text, "root ::= %%json {\"type\":\"object\",\"properties\":{");
            for (unsigned k = 0; k < sizes[i]; k++) {
                strbuf_printf(&text, "%s\"p%u\":", k ? "," : "", k);
                strbuf_printf(&text, nested ? "{\"$ref\":\"#/$defs/g%u\"}" : "{\"type\":\"null\"}",
                              k / 8);
            }
            strbuf_printf(&text, "},\"required\":[");
            for (unsigned k = 0; k < sizes[i]; k++)
                strbuf_printf(&text, "%s\"p%u\"", k ? "," : "", k);
            strbuf_printf(&text, "],\"$defs\":{\"g0\":{\"type\":\"null\"}");
            for (unsigned k = 1; k <= sizes[i] / 8; k++)
                strbuf_printf(&text,
                              ",\"g%u\":{\"type\":\"object\",\"properties\":{\"p\":{\"$ref\":\"#/"
                              "$defs/g%u\"}},\"required\":[\"p\"],\"additionalProperties\":false}",
                              k, k - 1);
            strbuf_printf(&text, "}}%s\nany ::= \"any\"\n", ANY);
            struct grammar *g = compile_with(text.data, NULL);
            assert_int_equal(grammar_replaced(g, &why), 0);
            for (unsigned k = 0; k < sizes[i]; k++) {
                strbuf_printf(&answer, "%c\"p%u\":", k ? ',' : '{', k);
                for (unsigned d = 0; nested && d < k / 8; d++)
                    strbuf_printf(&answer, "{\"p\":");
                strbuf_printf(&answer, "null");
                for (unsigned d = 0; nested && d < k / 8; d++)
                    strbuf_printf(&answer, "}");
            }
            strbuf_printf(&answer, "}");
            assert_true(whole_text(g, answer.data, answer.len));
            assert_false(whole_text(g, "any", 3));
            grammar_free(g);
            strbuf_fini(&answer);
            strbuf_fini(&text);
        }
}

/* Where the states are too few for all schemas, the first ones are followed. */
static void test_else_at_the_limit(void **state)
{
    enum { SCHEMAS = 40 };
    struct grammar_limits limits = grammar_limits_default;
    struct strbuf text;
    const char *why;
    char answer[64];
    (void)state;
    limits.states = 2000;
    strbuf_init(&text);
    strbuf_printf(&text, "root ::= ");
    for (unsigned i = 0; i < SCHEMAS; i++)
        strbuf_printf(
            &text,
            "%s\"%u\" %%json {\"type\":\"object\",\"properties\":{\"property%u\":{\"type\":"
            "\"integer\",\"minimum\":%u}},\"required\":[\"property%u\"],"
            "\"additionalProperties\":false}%s",
            i ? "| " : "", i, i, i * 7, i, ANY);
    strbuf_printf(&text, "\nany ::= \"any\"\n");
    struct grammar *g = compile_with(text.data, &limits);
    uint32_t replaced = grammar_replaced(g, &why), lines = 1;
    for (const char *c = why; *c; c++)
        lines += *c == '\n';
    assert_true(replaced > 0 && replaced < SCHEMAS);
    assert_int_equal(lines, replaced < GRAMMAR_REPLACED_MAX ? replaced : GRAMMAR_REPLACED_MAX);
    assert_non_null(strstr(why, "states"));
    for (unsigned i = 0; i < SCHEMAS; i++) {
        int n = snprintf(answer, sizeof answer, "%u{\"property%u\": %u}", i, i, i * 7);
        bool followed = whole_text(g, answer, (size_t)n);
        n = snprintf(answer, sizeof answer, "%uany", i);
        assert_int_equal(whole_text(g, answer, (size_t)n), !followed);
        assert_int_equal(followed, i < SCHEMAS - replaced);
    }
    grammar_free(g);
    strbuf_fini(&text);
}

/* Behind many schemas that take too much work, a small one is left out, too; behind few it is not.
 */
static void test_else_too_much_work(void **state)
{
    (void)state;
    for (unsigned heavy = 3; heavy <= 20; heavy += 17) {
        struct strbuf text;
        const char *why;
        strbuf_init(&text);
        strbuf_printf(&text, "root ::= ");
        for (unsigned i = 0; i < heavy; i++) /* 2^13 states and more */
            strbuf_printf(&text, "\"h\" %%json {\"pattern\":\"(a|b)*a(a|b){12}%u\"}%s| ", i, ANY);
        strbuf_printf(&text, "\"s\" %%json {\"type\":\"null\"}%s\nany ::= \"any\"\n", ANY);
        struct grammar *g = compile_with(text.data, NULL);
        assert_int_equal(grammar_replaced(g, &why), heavy == 3 ? 3 : heavy + 1);
        assert_int_equal(whole_text(g, "snull", 5), heavy == 3);
        assert_int_equal(whole_text(g, "sany", 4), heavy != 3);
        assert_true(whole_text(g, "h1", 2)); /* without its pattern */
        assert_int_equal(whole_text(g, "hany", 4), heavy != 3);
        grammar_free(g);
        strbuf_fini(&text);
    }
}

/* Loops over listed values and over the document's nodes count as work. */
static void test_lists_and_anchors_are_work(void **state)
{
    struct strbuf lists, anchors;
    struct error e;
    struct grammar *g;
    (void)state;
    strbuf_init(&lists);
    strbuf_init(&anchors);
    strbuf_printf(&lists, "{\"allOf\":[{\"enum\":[0");
    for (unsigned i = 1; i < 6000; i++)
        strbuf_printf(&lists, "%s%u", i == 3000 ? "]},{\"enum\":[" : ",", 10000 + i);
    strbuf_printf(&lists, "]}]}");
    strbuf_printf(&anchors, "{\"allOf\":[{\"anyOf\":[{}");
    for (unsigned i = 0; i < 9; i++)
        strbuf_printf(&anchors, ",{\"title\":\"%u\"}", i);
    strbuf_printf(&anchors, "]}");
    for (unsigned i = 0; i < 100; i++)
        strbuf_printf(&anchors, ",{\"$ref\":\"#z\"}");
    strbuf_printf(&anchors, "],\"default\":[0");
    for (unsigned i = 0; i < 10000; i++)
        strbuf_printf(&anchors, ",0");
    strbuf_printf(&anchors, "],\"$defs\":{\"z\":{\"$anchor\":\"z\",\"type\":\"string\"}}}");
    assert_int_equal(grammar_compile(GRAMMAR_JSON_SCHEMA, lists.data, lists.len, NULL, &g, &e),
                     ERROR_LIMIT);
    assert_int_equal(grammar_compile(GRAMMAR_JSON_SCHEMA, anchors.data, anchors.len, NULL, &g, &e),
                     ERROR_LIMIT);
    strbuf_fini(&anchors);
    strbuf_fini(&lists);
}

/* An item that no value satisfies is left out; for one that cannot be followed, and where no item
 * has values, the rule stands for all. */
static void test_any(void **state)
{
    static const struct {
        const char *text, *integer;
        bool text_follows, integer_follows, replaced;
        uint32_t noted;
    } cases[] = {
        {"{\"pattern\":\"^[a-z]*$\"}", "{\"type\":\"integer\"}", true, true, false, 0},
        {"{\"pattern\":\"^[0-9]*$\"}", "{\"type\":\"integer\"}", false, true, false, 0},
        {"{\"pattern\":\"^[a-z]*$\"}", "{\"enum\":[]}", true, false, false, 0},
        {"{\"pattern\":\"^[0-9]*$\"}", "{\"enum\":[]}", false, false, true, 2},
        {"{\"$ref\":\"#/x\",\"pattern\":\"^[a-z]*$\"}", "{\"type\":\"integer\"}", true, true, false,
         1},
        {"{\"pattern\":\"^[a-z]*$\"}", "{\"type\":\"x\"}", true, true, false, 1},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[1024];
        const char *why;
        /* twice: the second ones are known */
        snprintf(
            text, sizeof text,
            "root ::= one-1 one-2\n"
            "one-1 ::= %%any ( \"t:\" %%text \"\" \"^[0-9]*$\" %s | \"i:\" %%json %s ) %%else any\n"
            "one-2 ::= %%any ( \"t:\" %%text \"\" \"^[0-9]*$\" %s | %%json %s ) %%else any\n"
            "any ::= \"any\"\n",
            cases[i].text, cases[i].integer, cases[i].text, cases[i].integer);
        struct grammar *g = compile_with(text, NULL);
        assert_int_equal(grammar_replaced(g, &why), cases[i].noted);
        assert_int_equal(whole_text(g, "t:at:b", 6), cases[i].text_follows);
        assert_int_equal(whole_text(g, "i:12", 4), cases[i].integer_follows);
        assert_int_equal(whole_text(g, "t:ai:1", 6), false);
        assert_int_equal(whole_text(g, "anyany", 6), cases[i].replaced);
        grammar_free(g);
    }
    CHECK_TEXTS(GRAMMAR_GBNF, "root ::= %any (\n%json {\"enum\":[]} | %json {\"const\":1}\n) \";\"",
                "1;", NULL, ";", "2;");
}

static void test_note(void **state)
{
    const char *why;
    (void)state;
    struct grammar *g = compile_with("root ::= %note \"too\\nlarge\" \"a\"", NULL);
    assert_int_equal(grammar_replaced(g, &why), 1);
    assert_string_equal(why, "too?large");
    assert_true(whole_text(g, "a", 1));
    grammar_free(g);
}

static void test_refused(void **state)
{
    (void)state;
    check_refused(GRAMMAR_GBNF, "root ::= %json {\"not\":{}}", ERROR_UNSUPPORTED, "#/not");
    check_refused(GRAMMAR_GBNF, "root ::= %json \"x at #/a\" {\"not\":{}}", ERROR_UNSUPPORTED,
                  "x at #/a/not");
    check_refused(GRAMMAR_GBNF, "root ::= %json nope", ERROR_USAGE, "%json wants a schema");
    check_refused(GRAMMAR_GBNF, "root ::= %text \"a\" {}", ERROR_USAGE, "%text two");
    check_refused(GRAMMAR_GBNF, "root ::= %value \"aba\" {}", ERROR_UNSUPPORTED, "a mark");
    check_refused(GRAMMAR_GBNF, "root ::= %json {} %else", ERROR_USAGE, "name of a rule");
    check_refused(GRAMMAR_GBNF, "root ::= %json {} %else other", ERROR_USAGE, "not defined");
    check_refused(GRAMMAR_GBNF, "root ::= %any %json {}", ERROR_USAGE, "wants a group");
    check_refused(GRAMMAR_GBNF, "root ::= %any ( %json {} | \"a\" )", ERROR_USAGE, "wants items");
    check_refused(GRAMMAR_GBNF,
                  "root ::= %any ( %json {} | %json {} | %json {} | %json {} | %json {} )",
                  ERROR_LIMIT, "too many items");
    check_refused(GRAMMAR_GBNF, "root ::= %any ( %json {\"not\":{}} )", ERROR_UNSUPPORTED, "#/not");
    check_refused(GRAMMAR_GBNF, "root ::= %note 4", ERROR_USAGE, "literal");
    check_refused(GRAMMAR_GBNF, "root ::= %json \"a", ERROR_USAGE, "unexpected end");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_text),
        cmocka_unit_test(test_value),
        cmocka_unit_test(test_unordered),
        cmocka_unit_test(test_unordered_many),
        cmocka_unit_test(test_all),
        cmocka_unit_test(test_gemma),
        cmocka_unit_test(test_gemma_marks),
        cmocka_unit_test(test_else),
        cmocka_unit_test(test_else_without_keywords),
        cmocka_unit_test(test_else_of_many_members),
        cmocka_unit_test(test_else_at_the_limit),
        cmocka_unit_test(test_else_too_much_work),
        cmocka_unit_test(test_lists_and_anchors_are_work),
        cmocka_unit_test(test_any),
        cmocka_unit_test(test_note),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
