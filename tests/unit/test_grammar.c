/* Regular expressions, GBNF and choices: accepted and refused texts, worked by hand from ECMA-262
 * and from llama.cpp's description of GBNF. */
#include "grammar_texts.h"

#define REGEX(definition, ...)  CHECK_TEXTS(GRAMMAR_REGEX, definition, __VA_ARGS__)
#define GBNF(definition, ...)   CHECK_TEXTS(GRAMMAR_GBNF, definition, __VA_ARGS__)
#define CHOICE(definition, ...) CHECK_TEXTS(GRAMMAR_CHOICE, definition, __VA_ARGS__)

static void test_regex_basics(void **state)
{
    REGEX("abc", "abc", NULL, "", "ab", "abcd");
    REGEX("", "", NULL, "a");
    REGEX("a|bc|", "a", "bc", "", NULL, "b", "abc");
    REGEX("(ab)*c", "c", "abababc", NULL, "abac");
    REGEX("(?:a|b)+?", "a", "abba", NULL, "", "c");
    REGEX("(?<name>x)?y", "y", "xy", NULL, "xxy");
    REGEX("a{2}", "aa", NULL, "a", "aaa");
    REGEX("a{2,}", "aa", "aaaaa", NULL, "a");
    REGEX("a{0,2}b", "b", "ab", "aab", NULL, "aaab");
    REGEX("(a{2,3}){2}", "aaaa", "aaaaa", "aaaaaa", NULL, "aaa", "aaaaaaa");
    REGEX("(a?){3}b", "b", "aaab", NULL, "aaaab");
}

static void test_regex_classes(void **state)
{
    REGEX("[a-c]", "a", "c", NULL, "d", "");
    REGEX("[^a-c]", "d", "\n", "\xc3\xa9", NULL, "b");
    REGEX("[a-]", "a", "-", NULL, "b");
    REGEX("[\\d.]+", "1.5", NULL, "a");
    REGEX("\\w\\W\\s\\S", "a. b", "_- \xc3\xa9", NULL, "a..b");
    REGEX(".", "a", "\xe2\x82\xac", NULL, "\n", "\xe2\x82", "\xe2\x80\xa8");
    REGEX("\\u20ac\\x41\\u{1F600}\\t\\\\",
          "\xe2\x82\xac"
          "A\xf0\x9f\x98\x80\t\\",
          NULL, "A");
    REGEX("\\ud83d\\ude00", "\xf0\x9f\x98\x80", NULL, "\xed\xa0\xbd");
    REGEX("[\xc3\xa0-\xc3\xbf]", "\xc3\xa9", NULL, "\xc3\x80", "\xa9");
}

static void test_regex_anchors(void **state)
{
    REGEX("^a$", "a", NULL, "", "aa");
}

static void test_regex_empty_language(void **state)
{
    check_refused(GRAMMAR_REGEX, "a^b", ERROR_USAGE, "no answer");
    check_refused(GRAMMAR_REGEX, "a$b", ERROR_USAGE, "no answer");
    REGEX("(^a|b)$", "a", "b", NULL, "ab");
    REGEX("(?:$^)", "", NULL, "a");
    REGEX("(a$|ab)c?", "a", "abc", "ab", NULL, "ac");
}

static void test_regex_refused(void **state)
{
    /* Python's spellings */
    REGEX("\\A(?P<year>\\d{4})-(?P<rest>.)\\Z", "1999-x", NULL, "199-x", "1999-\n");
    REGEX("(a|\\Ab)\\z", "a", "b", NULL, "ab");
    REGEX("(?s)a.b", "a\nb",
          "a\xe2\x80\xa8"
          "b",
          NULL, "ab");
    REGEX("[[:alpha]x[:]", "[x:", "ax:", NULL, "bx:");
    check_refused(GRAMMAR_REGEX, "(?i)abc", ERROR_UNSUPPORTED, "(?i)");
    check_refused(GRAMMAR_REGEX, "a(?s)b", ERROR_UNSUPPORTED, "column 2");
    check_refused(GRAMMAR_REGEX, "(?P<a>b)(?P=a)", ERROR_UNSUPPORTED, "references");
    check_refused(GRAMMAR_REGEX, "(?<!a)b", ERROR_UNSUPPORTED, "look-around");
    check_refused(GRAMMAR_REGEX, "x[[:alpha:]_]+", ERROR_UNSUPPORTED, "column 3");
    check_refused(GRAMMAR_REGEX, "[^[:^space:]]", ERROR_UNSUPPORTED, "POSIX");
    check_refused(GRAMMAR_REGEX, "(?P<a", ERROR_USAGE, "name");
    check_refused(GRAMMAR_REGEX, "a(?=b)", ERROR_UNSUPPORTED, "column 2");
    check_refused(GRAMMAR_REGEX, "(a)\\1", ERROR_UNSUPPORTED, "column 4");
    check_refused(GRAMMAR_REGEX, "\\bword", ERROR_UNSUPPORTED, "column 1");
    check_refused(GRAMMAR_REGEX, "\\p{L}", ERROR_UNSUPPORTED, "\\p");
    check_refused(GRAMMAR_REGEX, "(a", ERROR_USAGE, "group");
    check_refused(GRAMMAR_REGEX, "a)", ERROR_USAGE, "column 2");
    check_refused(GRAMMAR_REGEX, "[a", ERROR_USAGE, "column 3");
    check_refused(GRAMMAR_REGEX, "[b-a]", ERROR_USAGE, "order");
    check_refused(GRAMMAR_REGEX, "*a", ERROR_USAGE, "nothing to repeat");
    check_refused(GRAMMAR_REGEX, "a{,2}", ERROR_USAGE, "column 2");
    check_refused(GRAMMAR_REGEX, "a{3,2}", ERROR_USAGE, "bounds");
    check_refused(GRAMMAR_REGEX, "\\q", ERROR_USAGE, "escape");
    check_refused(GRAMMAR_REGEX, "(a{1000}){1000}", ERROR_LIMIT, "100000 states");
}

static void test_gbnf(void **state)
{
    GBNF("root ::= \"a\" b # comment\nb ::= \"x\" | \"y\"\n", "ax", "ay", NULL, "a", "axy");
    GBNF("root ::= (\"a\" |\n \"b\")* [0-9]+ .?", "1", "ab12", "a1z", NULL, "ab", "a1zz");
    GBNF("root ::= \"\\x41\\u20ac\\n\\\"\" [^\\n\\]]", "A\xe2\x82\xac\n\"z", NULL,
         "A\xe2\x82\xac\n\"]");
    GBNF("root ::= \"(\" root \")\" | \"x\"", "x", "((x))", NULL, "(x", "(x))", "");
    GBNF("root ::= item{2,3}\nitem ::= \"a\" | \"bb\"", "aa", "bbabb", NULL, "a", "aaaa");
    GBNF("root ::= [a]{20} [b]{17,40}", "aaaaaaaaaaaaaaaaaaaabbbbbbbbbbbbbbbbb",
         "aaaaaaaaaaaaaaaaaaaabbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb", NULL,
         "aaaaaaaaaaaaaaaaaaabbbbbbbbbbbbbbbbb", "aaaaaaaaaaaaaaaaaaaabbbbbbbbbbbbbbbb",
         "aaaaaaaaaaaaaaaaaaaabbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb");
    /* ambiguous, and with empty repetitions */
    GBNF("root ::= (\"a\"* b)* \"c\"\nb ::= \"a\"? | \"b\"", "c", "aabac", NULL, "ab");
}

static void test_gbnf_refused(void **state)
{
    check_refused(GRAMMAR_GBNF, "root ::= \"a\" missing", ERROR_USAGE, "line 1, column 14");
    check_refused(GRAMMAR_GBNF, "start ::= \"a\"", ERROR_USAGE, "root");
    check_refused(GRAMMAR_GBNF, "root ::= \"a", ERROR_USAGE, "line 1, column 10");
    check_refused(GRAMMAR_GBNF, "root ::= \"a\"\nroot ::= \"b\"", ERROR_USAGE, "line 2, column 1");
    check_refused(GRAMMAR_GBNF, "root ::= e\ne ::= e \"+\" \"1\" | \"1\"", ERROR_UNSUPPORTED,
                  "\"e\"");
    check_refused(GRAMMAR_GBNF, "root ::= a? root \"x\" | \"y\"\na ::= \"b\"", ERROR_UNSUPPORTED,
                  "\"root\"");
    check_refused(GRAMMAR_GBNF, "root ::= \"(\" root \")\"", ERROR_USAGE, "no answer");
    check_refused(GRAMMAR_GBNF, "root ::= <think> \"a\"", ERROR_UNSUPPORTED, "tokens");
    check_refused(GRAMMAR_GBNF, "root ::= [a]{3,2}", ERROR_USAGE, "repetition");
}

/* Up to n and exactly n, for numbers around the powers of two, of an ambiguous item. */
static void test_counted_repetitions(void **state)
{
    static const unsigned bounds[][2] = {{0, 17}, {16, 31}, {17, 17}, {5, 64}, {33, 100}, {0, 127}};
    char text[200];
    memset(text, 'a', sizeof text);
    for (size_t i = 0; i < sizeof bounds / sizeof bounds[0]; i++) {
        char definition[64];
        snprintf(definition, sizeof definition, "root ::= i{%u,%u}\ni ::= \"a\" | \"b\"",
                 bounds[i][0], bounds[i][1]);
        struct grammar *g = compile_ok(GRAMMAR_GBNF, definition);
        for (unsigned n = 0; n < 140; n++)
            assert_int_equal(whole_text(g, text, n), n >= bounds[i][0] && n <= bounds[i][1]);
        grammar_free(g);
    }
}

static void test_choice(void **state)
{
    CHOICE("[\"yes\", \"no\", \"not now\", \"\\u20ac\"]", "yes", "no", "not now", "\xe2\x82\xac",
           NULL, "not", "yesno", "");
    check_refused(GRAMMAR_CHOICE, "[]", ERROR_USAGE, "non-empty");
    check_refused(GRAMMAR_CHOICE, "[\"a\", 1]", ERROR_USAGE, "choice 1");
    check_refused(GRAMMAR_CHOICE, "yes", ERROR_USAGE, "line 1");
}

/* Schemas as items: each with its own $ref, repeated, and with text on both sides. */
static void test_gbnf_json(void **state)
{
    (void)state;
    GBNF("root ::= \"<\" %json {\"type\": \"integer\"} \">\"", "<-7>", NULL, "<x>", "<7", "7");
    GBNF("root ::= ( \"k=\" %json {\"$ref\":\"#/$defs/d\",\"$defs\":{\"d\":{\"enum\":[1,2]}}} "
         "\";\" )+ | %json{\"const\": \"a}\\\"b\"}\n",
         "k=1;", "k=2;k=1;", "\"a}\\\"b\"", NULL, "k=3;", "");
    GBNF("root ::= a %json true\na ::= %json\t{\n \"type\":\n\"null\"}{2}", "nullnull[1]", NULL,
         "null[1]", "nullnull");
    check_refused(GRAMMAR_GBNF, "root ::= \"a\"\n  %json {\"type\": 1}", ERROR_USAGE,
                  "line 2, column 3");
    check_refused(GRAMMAR_GBNF, "root ::= %json {\"properties\": {\"a\": {\"not\": {}}}}",
                  ERROR_UNSUPPORTED,
                  "line 1, column 16 of the grammar: schema at \"#/properties/a/not\"");
    check_refused(GRAMMAR_GBNF, "root ::= %json {\"type\": ", ERROR_USAGE,
                  "line 1, column 16 of the grammar: %json");
    check_refused(GRAMMAR_GBNF, "root ::= %json", ERROR_USAGE, "line 1, column 15");
}

static void test_limits(void **state)
{
    struct grammar_limits limits = grammar_limits_default;
    struct grammar *g = NULL;
    struct error e;
    limits.text_bytes = 3;
    assert_int_equal(grammar_compile(GRAMMAR_REGEX, "abcd", 4, &limits, &g, &e), ERROR_LIMIT);
    limits = grammar_limits_default;
    limits.states = 20;
    assert_int_equal(grammar_compile(GRAMMAR_REGEX, "abcdefghij", 10, &limits, &g, &e),
                     ERROR_LIMIT);
    assert_null(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_regex_basics),  cmocka_unit_test(test_regex_classes),
        cmocka_unit_test(test_regex_anchors), cmocka_unit_test(test_regex_empty_language),
        cmocka_unit_test(test_regex_refused), cmocka_unit_test(test_gbnf),
        cmocka_unit_test(test_gbnf_refused),  cmocka_unit_test(test_counted_repetitions),
        cmocka_unit_test(test_choice),        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_gbnf_json),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
