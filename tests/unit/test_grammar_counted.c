/* Strings of many characters that must not have a mark: random texts against the definition. */
#include "grammar_texts.h"

#include "base/strbuf.h"
#include "grammar/schema.h"

enum { TEXTS = 40, UNBOUNDED = 0 };

/* An item with a schema, and what stands before and behind its text in an answer. */
static const struct form {
    const char *grammar, *before, *behind, *marks[2], *alphabet[12];
} forms[] = {
    {"root ::= %%text \"</v>\" \"\" %s \"</v>\"",
     "",
     "</v>",
     {"</v>"},
     {"a", "<", "/", "v", "</", "</v", "</v>", "\xc3\xa4", "\xf0\x9f\x98\x80", "\"", "\n"}},
    {"root ::= %%value \"</v>\" {\"type\":\"array\",\"items\":%s} \"</v>\"",
     "[\"",
     "\"]</v>",
     {"</v>"},
     {"a", "<", "/", "v", "</", "</v", "</v>", "\xc3\xa4", "\xe2\x82\xac", "b"}},
    {"root ::= %%gemma {\"type\":\"array\",\"items\":%s}",
     "[<|\"|>",
     "<|\"|>]",
     {"<|\"|>", "<tool_call|>"},
     {"a", "<", "|", "\"", "<|", "<|\"|>", "<tool_call", "<tool_call|>", "\xc3\xa4", "\n", "'"}},
};

static const struct bounds {
    uint32_t min, max; /* UNBOUNDED: no maximum */
} bounds[] = {{0, 17},  {0, 31},    {0, 32},  {3, 33},     {100, 100},
              {5, 100}, {127, 300}, {200, 0}, {999, 1000}, {0, 5000}};

static uint32_t random_state = 1;

static uint32_t below(uint32_t n)
{
    random_state = random_state * 1664525u + 1013904223u;
    return (random_state >> 16) * n >> 16;
}

static uint32_t characters(const char *text)
{
    uint32_t n = 0;
    for (; *text; text++)
        n += ((unsigned char)*text & 0xc0) != 0x80;
    return n;
}

/* A whole mark is rare, else most texts had one. */
static void random_text(const struct form *f, uint32_t length, struct strbuf *out)
{
    uint32_t n_parts = 0, n = 0;
    while (f->alphabet[n_parts])
        n_parts++;
    while (n < length) {
        const char *part = f->alphabet[below(n_parts)];
        bool mark =
            strcmp(part, f->marks[0]) == 0 || (f->marks[1] && strcmp(part, f->marks[1]) == 0);
        if (n + characters(part) > length || (mark && below(length) > 0))
            continue;
        strbuf_append(out, part, strlen(part));
        n += characters(part);
    }
}

static bool has_form(const struct form *f, const struct bounds *b, const char *text)
{
    uint32_t n = characters(text);
    return n >= b->min && (b->max == UNBOUNDED || n <= b->max) && !strstr(text, f->marks[0]) &&
           !(f->marks[1] && strstr(text, f->marks[1]));
}

/* Some token is possible before each byte of the answer. */
static void check_ways_on(const struct grammar *g, const struct strbuf *answer)
{
    struct grammar_vocabulary *v = byte_vocabulary();
    struct grammar_matcher *m;
    uint32_t mask[9];
    assert_int_equal(grammar_matcher_new(g, v, NULL, &m, NULL), 0);
    for (size_t i = 0; i < answer->len; i++) {
        assert_true(grammar_matcher_mask(m, mask));
        assert_true(grammar_matcher_advance(m, (uint8_t)answer->data[i]));
    }
    grammar_matcher_free(m);
    grammar_vocabulary_free(v);
}

static void check_text(const struct grammar *g, const struct form *f, const struct bounds *b,
                       uint32_t length, bool ways_on)
{
    struct strbuf text, answer;
    strbuf_init(&text);
    strbuf_init(&answer);
    random_text(f, length, &text);
    strbuf_append(&text, "", 1);
    strbuf_printf(&answer, "%s%s%s", f->before, text.data, f->behind);
    bool expected = has_form(f, b, text.data);
    if (whole_text(g, answer.data, answer.len) != expected)
        fail_msg("%u to %u: %s: %s", b->min, b->max, expected ? "refused" : "accepted",
                 answer.data);
    if (expected && ways_on)
        check_ways_on(g, &answer);
    strbuf_fini(&text);
    strbuf_fini(&answer);
}

static struct grammar *compile_form(const struct form *f, const struct bounds *b)
{
    char schema[120], text[300];
    int n = snprintf(schema, sizeof schema, "{\"type\":\"string\",\"minLength\":%u", b->min);
    if (b->max != UNBOUNDED)
        n += snprintf(schema + n, sizeof schema - (size_t)n, ",\"maxLength\":%u", b->max);
    snprintf(schema + n, sizeof schema - (size_t)n, "}");
    snprintf(text, sizeof text, f->grammar, schema);
    return compile_ok(GRAMMAR_GBNF, text);
}

static void test_random_texts(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++)
        for (size_t k = 0; k < sizeof bounds / sizeof bounds[0]; k++) {
            const struct bounds *b = &bounds[k];
            struct grammar *g = compile_form(&forms[i], b);
            uint32_t max = b->max == UNBOUNDED ? b->min + 200 : b->max;
            uint32_t texts = max > 500 ? 6 : TEXTS;
            for (uint32_t t = 0; t < texts; t++) {
                uint32_t near = below(3) ? max + 1 - below(3) : b->min + 1 - below(3);
                uint32_t length = t % 4 ? near : b->min + below(max - b->min + 1);
                check_text(g, &forms[i], b, length < max + 2 ? length : b->min, t == 0);
            }
            grammar_free(g);
        }
}

static const char *const unlike[] = {"", "^null$", "^[0-9]+$"};

/* The largest counts need few states, and texts with one mark share the rules that count. */
static void test_size(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++) {
        struct grammar *g = compile_form(&forms[i], &(struct bounds){3, 1000000000});
        assert_true(grammar_states(g) < 3000);
        grammar_free(g);
    }
    struct strbuf text;
    strbuf_init(&text);
    strbuf_printf(&text, "root ::= ");
    for (int i = 0; i < 200; i++)
        strbuf_printf(&text, "%s\"%d\" %%text \"</parameter>\" \"%s\" {\"maxLength\":%d}",
                      i ? "| " : "", i, unlike[i % 3], 2000 + i);
    struct grammar *g = compile_ok(GRAMMAR_GBNF, text.data);
    assert_true(grammar_states(g) < 60000);
    grammar_free(g);
    strbuf_fini(&text);
}

/* Texts that look like other values are left out at every length. */
static void test_unlike(void **state)
{
    (void)state;
    struct grammar *g = compile_ok(
        GRAMMAR_GBNF,
        "root ::= %text \"</v>\" \"^[ ]*(?:null|-?[0-9]+)[ ]*$\" {\"maxLength\":40} \";\"");
    static const struct {
        const char *text;
        int spaces;
        bool accepted;
    } cases[] = {{"null", 0, false}, {"null", 36, false}, {"nulls", 35, true}, {"nulls", 36, false},
                 {"nul", 37, true},  {"12", 38, false},   {"1a", 38, true},    {"", 40, true}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char answer[64];
        int n = snprintf(answer, sizeof answer, "%*s%s;", cases[i].spaces, "", cases[i].text);
        if (whole_text(g, answer, (size_t)n) != cases[i].accepted)
            fail_msg("%s", answer);
    }
    grammar_free(g);
}

/* Where texts may not end anywhere, rules for one count are not taken for another one. */
static void test_not_shared(void **state)
{
    (void)state;
    struct grammar *g = compile_ok(
        GRAMMAR_GBNF,
        "root ::= \"1\" %text \"</v>\" \"^(?:.|[^.]){0,5}$\" {\"maxLength\":100} | "
        "\"2\" %text \"</v>\" \"^(?:.|[^.]){0,5}$\" {\"minLength\":50,\"maxLength\":52}");
    static const uint32_t lengths[][2] = {{6, 100}, {50, 52}};
    for (unsigned i = 0; i < 2; i++)
        for (uint32_t n = 4; n < 104; n++) {
            char answer[120] = {(char)('1' + i)};
            memset(answer + 1, 'a', n);
            assert_int_equal(whole_text(g, answer, n + 1),
                             n >= lengths[i][0] && n <= lengths[i][1]);
        }
    grammar_free(g);
}

/* Rules that count are shared by items with %else; a longer item makes more of them. */
static void test_rising_lengths(void **state)
{
    static const struct {
        const char *item, *before, *behind;
    } items[] = {{"%text \"</v>\" \"\" ", "", "</v>"},
                 {"%value \"</v>\" ", "\"", "\"</v>"},
                 {"%gemma ", "<|\"|>", "<|\"|></v>"}};
    static const uint32_t lengths[] = {20, 100, 5000};
    (void)state;
    for (size_t i = 0; i < sizeof items / sizeof items[0]; i++) {
        struct strbuf text, answer;
        strbuf_init(&text);
        strbuf_init(&answer);
        strbuf_printf(&text, "x ::= \"other\"\nroot ::= ");
        for (unsigned k = 0; k < 3; k++)
            strbuf_printf(&text,
                          "%s\"%u\" %s{\"type\":\"string\",\"maxLength\":%u} %%else x \"</v>\"",
                          k ? " | " : "", k, items[i].item, lengths[k]);
        struct grammar *g = compile_ok(GRAMMAR_GBNF, text.data);
        const char *why;
        assert_int_equal(grammar_replaced(g, &why), 0);
        for (unsigned k = 0; k < 6; k++) {
            uint32_t length = lengths[k / 2] + k % 2;
            strbuf_clear(&answer);
            strbuf_printf(&answer, "%u%s%*s%s", k / 2, items[i].before, (int)length, "",
                          items[i].behind);
            assert_int_equal(whole_text(g, answer.data, answer.len), k % 2 == 0);
        }
        grammar_free(g);
        strbuf_fini(&answer);
        strbuf_fini(&text);
    }
}

/* Patterns and lengths; the texts are of these characters, and what they must be is said of them.
 */
static bool has_digit(const char *text)
{
    return text[strcspn(text, "0123456789")];
}

static bool has_ab(const char *text)
{
    return strstr(text, "ab");
}

static bool in_pairs(const char *text)
{
    for (; *text == 'x' || (strncmp(text, "\xc3\xa4y", 3) == 0); text += *text == 'x' ? 1 : 3)
        ;
    return !*text;
}

static const struct pattern {
    const char *pattern;
    bool (*matches)(const char *text);
    const char *alphabet[5];
} patterns[] = {{"[0-9]", has_digit, {"a", "\xc3\xa4", "b", "\xe2\x82\xac", "x"}},
                {"[0-9]", has_digit, {"a", "\xc3\xa4", "7"}},
                {"ab", has_ab, {"a", "\xf0\x9f\x98\x80", "b"}},
                {"ab", has_ab, {"a", "c"}},
                {"^(?:x|\xc3\xa4y)*$", in_pairs, {"x", "\xc3\xa4y"}},
                {"^(?:x|\xc3\xa4y)*$", in_pairs, {"x", "\xc3\xa4"}}};

static void check_pattern(const struct grammar *g, const struct pattern *p, uint32_t min,
                          uint32_t max)
{
    struct strbuf text, answer;
    uint32_t n_parts = 0, length = below(4) ? max + 1 - below(4) : min + below(3);
    while (n_parts < 5 && p->alphabet[n_parts])
        n_parts++;
    strbuf_init(&text);
    strbuf_init(&answer);
    for (uint32_t n = 0; n < length;) {
        const char *part = p->alphabet[below(n_parts)];
        strbuf_append(&text, part, strlen(part));
        n += characters(part);
    }
    strbuf_append(&text, "", 1);
    uint32_t n = characters(text.data);
    bool expected = min <= n && n <= max && p->matches(text.data);
    strbuf_printf(&answer, "\"%s\"", text.data);
    if (whole_text(g, answer.data, answer.len) != expected)
        fail_msg("%s, %u to %u: %s: %s", p->pattern, min, max, expected ? "refused" : "accepted",
                 answer.data);
    if (expected)
        check_ways_on(g, &answer);
    strbuf_fini(&text);
    strbuf_fini(&answer);
}

static void test_patterns(void **state)
{
    static const uint32_t limits[][2] = {{0, 300}, {7, 1000}, {250, 260}};
    (void)state;
    for (size_t i = 0; i < sizeof patterns / sizeof patterns[0]; i++)
        for (size_t k = 0; k < sizeof limits / sizeof limits[0]; k++) {
            char schema[200];
            snprintf(schema, sizeof schema,
                     "{\"type\":\"string\",\"pattern\":\"%s\",\"minLength\":%u,\"maxLength\":%u}",
                     patterns[i].pattern, limits[k][0], limits[k][1]);
            struct grammar *g = compile_ok(GRAMMAR_JSON_SCHEMA, schema);
            for (unsigned t = 0; t < 8; t++)
                check_pattern(g, &patterns[i], limits[k][0], limits[k][1]);
            grammar_free(g);
        }
}

#define LABEL "abcdefghijklmnopqrstuvwxyzabcdefghijklmno."

/* Texts of a format, to each of which letters can be added. */
static const struct counted_format {
    const char *name;
    uint32_t min, max; /* UNBOUNDED: no maximum */
    const char *begins[3];
    const char *refused; /* of a good length */
} counted_formats[] = {
    {"uri", 1, 2083, {"http://", "http://[1:2:3:4:5:6:7:8]/", "https://x.org/?q="}, "http//:x"},
    {"uri", 40, 90, {"a:", "http://[::1]/"}, "a b:0123456789012345678901234567890123456789"},
    {"uri", 2000, 0, {"a:"}, "a:"},
    {"uri-reference", 0, 5000, {"", "../", "a:b/"}, "["},
    {"email", 0, 110, {"a.b@" LABEL LABEL "a"}, "a..b@c.de"},
    {"hostname", 0, 110, {LABEL LABEL "a"}, "a..b"},
    {"json-pointer", 3, 700, {"/a~0", "/"}, "/~2a"},
};

static char letters[6000]; /* x */

static void check_counted_format(const struct counted_format *f)
{
    struct strbuf text;
    struct grammar *g;
    strbuf_init(&text);
    strbuf_printf(&text, "{\"type\":\"string\",\"format\":\"%s\",\"minLength\":%u", f->name,
                  f->min);
    if (f->max)
        strbuf_printf(&text, ",\"maxLength\":%u", f->max);
    strbuf_printf(&text, "}");
    g = compile_ok(GRAMMAR_JSON_SCHEMA, text.data);
    for (unsigned i = 0; i < 3 && f->begins[i]; i++) {
        uint32_t begin = (uint32_t)strlen(f->begins[i]);
        const uint32_t lengths[] = {f->min - 1, f->min, f->max, f->max + 1};
        for (unsigned k = 0; k < (f->max ? 4 : 2); k++) {
            uint32_t n = lengths[k] == UINT32_MAX || lengths[k] < begin ? begin : lengths[k];
            strbuf_clear(&text);
            strbuf_printf(&text, "\"%s%.*s\"", f->begins[i], (int)(n - begin), letters);
            assert_int_equal(text.len, n + 2);
            assert_int_equal(whole_text(g, text.data, text.len),
                             n >= f->min && (!f->max || n <= f->max));
            if (k == 2)
                check_ways_on(g, &text);
        }
    }
    strbuf_clear(&text);
    strbuf_printf(&text, "\"%s\"", f->refused);
    assert_false(whole_text(g, text.data, text.len));
    grammar_free(g);
    strbuf_fini(&text);
}

static void test_formats(void **state)
{
    (void)state;
    memset(letters, 'x', sizeof letters - 1);
    for (size_t i = 0; i < sizeof counted_formats / sizeof *counted_formats; i++)
        check_counted_format(&counted_formats[i]);
}

/* A length that no text of the format exceeds costs nothing. */
static void test_idle_lengths(void **state)
{
    static const struct {
        const char *format;
        uint32_t max;
    } cases[] = {{"email", 254}, {"hostname", 255}, {"uuid", 36}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char with[120], without[120];
        snprintf(with, sizeof with,
                 "{\"type\":\"string\",\"format\":\"%s\",\"minLength\":1,\"maxLength\":%u}",
                 cases[i].format, cases[i].max);
        snprintf(without, sizeof without, "{\"type\":\"string\",\"format\":\"%s\"}",
                 cases[i].format);
        struct grammar *a = compile_ok(GRAMMAR_JSON_SCHEMA, with);
        struct grammar *b = compile_ok(GRAMMAR_JSON_SCHEMA, without);
        assert_int_equal(grammar_states(a), grammar_states(b));
        grammar_free(a);
        grammar_free(b);
    }
    CHECK_TEXTS(GRAMMAR_JSON_SCHEMA, "{\"type\":\"string\",\"format\":\"email\",\"maxLength\":7}",
                "\"ab@c.de\"", NULL, "\"abc@d.ef\"");
}

/* Strings of one format share the rules that count them. */
static void test_shared_formats(void **state)
{
    struct strbuf text;
    (void)state;
    strbuf_init(&text);
    strbuf_printf(&text, "{\"prefixItems\":[");
    for (uint32_t i = 0; i < 60; i++)
        strbuf_printf(&text,
                      "%s{\"type\":\"string\",\"format\":\"%s\",\"minLength\":%u,"
                      "\"maxLength\":%u}",
                      i ? "," : "", i % 2 ? "uri" : "uri-reference", i % 3, 2000 + i);
    strbuf_printf(&text, "]}");
    struct grammar *g = compile_ok(GRAMMAR_JSON_SCHEMA, text.data);
    assert_in_range(grammar_states(g), 0, 60000);
    grammar_free(g);
    strbuf_fini(&text);
}

/* `count` strings of a pattern. Without a length if max is 0. */
static uint64_t steps_of(const char *pattern, uint32_t count, uint32_t max, enum error_code *error)
{
    struct schema_steps steps = {.most = SCHEMA_STEPS};
    struct json_rules rules;
    struct network n;
    struct error e;
    struct strbuf text;
    uint32_t root;
    strbuf_init(&text);
    network_init(&n, grammar_limits_default.states);
    json_rules_init(&rules);
    strbuf_printf(&text, "{\"prefixItems\":[");
    for (uint32_t i = 0; i < count; i++) {
        strbuf_printf(&text, "%s{\"type\":\"string\",\"pattern\":\"%s\"", i ? "," : "", pattern);
        if (max)
            strbuf_printf(&text, ",\"maxLength\":%u", max + i);
        strbuf_printf(&text, "}");
    }
    strbuf_printf(&text, "]}");
    const struct schema_source source = {.text = text.data, .len = text.len, .place = SCHEMA_PLACE};
    const struct schema_context c = {&grammar_limits_default, &n, &rules, &steps};
    *error = schema_build(&source, &c, &root, &e);
    network_fini(&n);
    strbuf_fini(&text);
    return steps.done;
}

/* The search for what can be counted takes few steps, and they count. */
static void test_steps(void **state)
{
    static const char *const last[] = {"^[^x]*[^x]{0,1}\xf4\x8f\xbf\xbf$", "\xf4\x8f\xbf\xbf$"};
    enum error_code error;
    (void)state;
    for (size_t i = 0; i < sizeof last / sizeof last[0]; i++) {
        assert_true(steps_of(last[i], 1, 5000, &error) > steps_of(last[i], 1, 0, &error));
        assert_int_equal(error, ERROR_OK);
        assert_true(steps_of(last[i], 200, 5000, &error) < 20000000);
    }
    /* only what the points lead to is in the network */
    (void)steps_of("^(?:[^x]{10})*$", 40, 5000, &error);
    assert_int_equal(error, ERROR_OK);
}

/* With the least depth that a grammar needs no text is left without a way on. */
static void test_least_depth(void **state)
{
    static const char *const schemas[] = {
        "{\"type\":\"string\",\"pattern\":\"[0-9]\",\"minLength\":20}",
        "{\"type\":\"string\",\"pattern\":\"[0-9]\",\"minLength\":17,\"maxLength\":90}"};
    (void)state;
    for (size_t i = 0; i < sizeof schemas / sizeof schemas[0]; i++) {
        struct grammar_limits limits = grammar_limits_default;
        struct grammar *g = NULL;
        struct strbuf answer;
        limits.depth = 0;
        while (
            grammar_compile(GRAMMAR_JSON_SCHEMA, schemas[i], strlen(schemas[i]), &limits, &g, NULL))
            assert_true(limits.depth++ < 20);
        strbuf_init(&answer);
        strbuf_printf(&answer, "\"");
        for (unsigned k = 0; k < 60; k++)
            strbuf_printf(&answer, "%s", k % 3 ? "\xc3\xa4" : "\xf0\x9f\x98\x80");
        strbuf_printf(&answer, "7\"");
        check_ways_on(g, &answer);
        assert_true(whole_text(g, answer.data, answer.len));
        strbuf_fini(&answer);
        grammar_free(g);
    }
}

/* JSON's escapes; a length beyond those of a deterministic automaton. */
static void test_escapes(void **state)
{
    static char text[20003];
    (void)state;
    struct grammar *g =
        compile_ok(GRAMMAR_JSON_SCHEMA,
                   "{\"type\":\"string\",\"pattern\":\"^[a-z\\n]*$\",\"maxLength\":9999}");
    for (int n = 9999; n <= 10000; n++) {
        size_t len = 0;
        text[len++] = '"';
        for (int i = 0; i < n; i++) {
            if (i % 7 == 0)
                text[len++] = '\\';
            text[len++] = i % 7 ? 'a' : 'n';
        }
        text[len++] = '"';
        assert_int_equal(whole_text(g, text, len), n == 9999);
        text[len - 2] = 'A';
        assert_false(whole_text(g, text, len));
    }
    grammar_free(g);
}

/* Only bytes with which the text can still end are possible, also at the last character. */
static void check_last(const char *schema, uint32_t length, const char *possible)
{
    struct grammar *g = compile_ok(GRAMMAR_JSON_SCHEMA, schema);
    struct grammar_vocabulary *v = byte_vocabulary();
    struct grammar_matcher *m;
    uint32_t mask[9];
    assert_int_equal(grammar_matcher_new(g, v, NULL, &m, NULL), 0);
    assert_true(grammar_matcher_advance(m, '"'));
    for (uint32_t i = 0; i + 1 < length; i++)
        assert_true(grammar_matcher_advance(m, 'x'));
    assert_true(grammar_matcher_mask(m, mask));
    for (unsigned byte = 0; byte < 256; byte++)
        if ((mask[byte / 32] >> byte % 32 & 1) != (byte && strchr(possible, (int)byte)))
            fail_msg("%s: byte %02x", schema, byte);
    grammar_matcher_free(m);
    grammar_vocabulary_free(v);
    grammar_free(g);
}

static void test_last_character(void **state)
{
    (void)state;
    check_last("{\"type\":\"string\",\"pattern\":\"[0-9]\",\"maxLength\":5000}", 5000,
               "0123456789");
    check_last("{\"type\":\"string\",\"pattern\":\"^(?:x|[^a-z]b)*$\",\"maxLength\":5000}", 5000,
               "x\"");
    check_last("{\"type\":\"string\",\"pattern\":\"^(?:x|[\\\\n0]b)*$\",\"maxLength\":5000}", 5000,
               "x\"");
    /* some texts end before the least length */
    check_last(
        "{\"type\":\"string\",\"pattern\":\"^(?:b{30}|x+)$\",\"minLength\":100,\"maxLength\":"
        "900}",
        1, "x");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_texts),   cmocka_unit_test(test_size),
        cmocka_unit_test(test_unlike),         cmocka_unit_test(test_not_shared),
        cmocka_unit_test(test_patterns),       cmocka_unit_test(test_escapes),
        cmocka_unit_test(test_last_character), cmocka_unit_test(test_rising_lengths),
        cmocka_unit_test(test_formats),        cmocka_unit_test(test_idle_lengths),
        cmocka_unit_test(test_shared_formats), cmocka_unit_test(test_steps),
        cmocka_unit_test(test_least_depth),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
