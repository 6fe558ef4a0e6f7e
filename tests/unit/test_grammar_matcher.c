/* The matcher: tokens of several bytes, masks against the check of each token, triggers, rollback,
 * and more configurations than fit. */
#include "grammar_texts.h"

#include "random_numbers.h"

#include "base/strbuf.h"
#include "grammar/configurations.h"

/* The 256 bytes, tokens of several bytes, two with equal bytes, a control and an end token. */
enum { MANY = 256, EXTRA = 16, CONTROL = MANY + EXTRA, END, TOKENS };

static struct grammar_vocabulary *many_vocabulary(void)
{
    static const char *const extra[EXTRA] = {
        "{\"",      "\":",    "\": ", "\",", ", \"", "name", "na", "true}",
        "\xe2\x82", "\xac\"", "\"}",  "12",  "12",   "",     "}{", "ame\":\"x\"}",
    };
    static uint8_t bytes[256];
    const uint8_t *texts[TOKENS];
    uint32_t lengths[TOKENS];
    uint8_t kinds[TOKENS] = {[CONTROL] = GRAMMAR_TOKEN_CONTROL, [END] = GRAMMAR_TOKEN_END};
    struct grammar_vocabulary *v;
    for (unsigned i = 0; i < 256; i++) {
        bytes[i] = (uint8_t)i;
        texts[i] = &bytes[i];
        lengths[i] = 1;
    }
    for (unsigned i = 0; i < EXTRA; i++) {
        texts[MANY + i] = (const uint8_t *)extra[i];
        lengths[MANY + i] = (uint32_t)strlen(extra[i]);
    }
    texts[CONTROL] = (const uint8_t *)"<tool>";
    lengths[CONTROL] = 6;
    texts[END] = (const uint8_t *)"<end>";
    lengths[END] = 5;
    assert_int_equal(grammar_vocabulary_new(TOKENS, texts, lengths, kinds, &v, NULL), 0);
    return v;
}

struct fixture {
    struct grammar *g;
    struct grammar_vocabulary *v;
    struct grammar_matcher *m;
};

static void begin(struct fixture *f, enum grammar_kind kind, const char *definition,
                  const struct grammar_start *start)
{
    f->g = compile_ok(kind, definition);
    f->v = many_vocabulary();
    assert_int_equal(grammar_matcher_new(f->g, f->v, start, &f->m, NULL), 0);
}

static void end(struct fixture *f)
{
    grammar_matcher_free(f->m);
    grammar_vocabulary_free(f->v);
    grammar_free(f->g);
}

static bool take_text(struct grammar_matcher *m, const char *text)
{
    for (; *text; text++)
        if (!grammar_matcher_advance(m, (uint8_t)*text))
            return false;
    return true;
}

static bool allowed(const uint32_t *mask, uint32_t token)
{
    return mask[token / 32] >> token % 32 & 1;
}

/* Walks at random, by masks; at each step the mask is what the check of each token says. */
static void compare_masks(struct fixture *f, uint64_t seed, unsigned steps)
{
    random_state = seed;
    uint32_t mask[(TOKENS + 31) / 32];
    for (unsigned i = 0; i < steps && !grammar_matcher_is_final(f->m); i++) {
        uint32_t choices[TOKENS], n = 0;
        assert_true(grammar_matcher_mask(f->m, mask));
        for (uint32_t t = 0; t < TOKENS; t++) {
            assert_int_equal(allowed(mask, t), grammar_matcher_accepts(f->m, t));
            if (allowed(mask, t) && t != END)
                choices[n++] = t;
        }
        assert_int_equal(allowed(mask, END), grammar_matcher_is_complete(f->m));
        if (n == 0)
            return;
        assert_true(grammar_matcher_advance(f->m, choices[below(n)]));
    }
}

static void test_masks_are_what_checks_say(void **state)
{
    static const struct {
        enum grammar_kind kind;
        const char *text;
    } grammars[] = {
        {GRAMMAR_JSON, ""},
        {GRAMMAR_JSON_SCHEMA,
         "{\"type\":\"object\",\"properties\":{\"name\":{\"type\":\"string\",\"pattern\":\"^[a-c"
         "\\u20ac]{2,5}$\"},\"nat\":{\"type\":\"boolean\"}},\"required\":[\"name\"],"
         "\"additionalProperties\":{\"type\":\"integer\",\"minimum\":7}}"},
        {GRAMMAR_REGEX, "(12)+(\xe2\x82\xac\"|}[{n])*"},
        {GRAMMAR_GBNF, "root ::= \"{\" root? \"}\" root? | \"12\"{1,40}"},
        {GRAMMAR_CHOICE, "[\"name\", \"names\", \"12}{\"]"},
    };
    for (size_t i = 0; i < sizeof grammars / sizeof grammars[0]; i++)
        for (uint64_t seed = 1; seed <= 8; seed++) {
            struct fixture f;
            begin(&f, grammars[i].kind, grammars[i].text, NULL);
            compare_masks(&f, seed, 60);
            end(&f);
        }
}

/* Every text of up to three of five bytes is a token, and the quote is one. */
enum { SUBTREE_TOKENS = 6 + 25 + 125 + 1 };

static struct grammar_vocabulary *subtree_vocabulary(void)
{
    enum { N = SUBTREE_TOKENS };
    static const char letters[] = "ab1 ,\"";
    static uint8_t bytes[N][3];
    const uint8_t *texts[N];
    uint32_t lengths[N];
    uint8_t kinds[N] = {[N - 1] = GRAMMAR_TOKEN_END};
    struct grammar_vocabulary *v;
    for (unsigned i = 0; i < N; i++) {
        unsigned length = i < 6 ? 1 : i < 31 ? 2 : 3, rest = i - (i < 6 ? 0 : i < 31 ? 6 : 31);
        for (unsigned k = 0; k < length; k++, rest /= 5)
            bytes[i][k] = (uint8_t)letters[length == 1 ? rest : rest % 5];
        texts[i] = bytes[i];
        lengths[i] = i == N - 1 ? 0 : length;
    }
    assert_int_equal(grammar_vocabulary_new(N, texts, lengths, kinds, &v, NULL), 0);
    return v;
}

/* Whole subtrees of the trie can be allowed at once: in unbounded strings, and in bounded ones up
 * to their lengths. */
static void test_masks_of_large_subtrees(void **state)
{
    enum { N = SUBTREE_TOKENS };
    static const char *const schemas[] = {
        "{\"type\":\"string\"}",
        "{\"type\":\"string\",\"maxLength\":4}",
        "{\"type\":\"string\",\"minLength\":3,\"maxLength\":7}",
        "{\"type\":\"string\",\"pattern\":\"^[ab ]*1?$\"}",
        "{\"type\":\"string\",\"pattern\":\"^(ab| ){0,3}[0-9b]*$\",\"maxLength\":5}",
        "{\"type\":[\"string\",\"integer\"],\"minimum\":1}",
    };
    uint32_t mask[(N + 31) / 32];
    struct grammar_vocabulary *v = subtree_vocabulary();
    for (size_t i = 0; i < sizeof schemas / sizeof schemas[0]; i++)
        for (unsigned seed = 1; seed < 20; seed++) {
            random_state = seed;
            struct grammar *g = compile_ok(GRAMMAR_JSON_SCHEMA, schemas[i]);
            struct grammar_matcher *m;
            assert_int_equal(grammar_matcher_new(g, v, NULL, &m, NULL), 0);
            for (unsigned step = 0; step < 12; step++) {
                if (!grammar_matcher_mask(m, mask))
                    break; /* the minus sign is no token here */
                for (uint32_t t = 0; t < N; t++)
                    assert_int_equal(allowed(mask, t), grammar_matcher_accepts(m, t));
                for (unsigned tries = 0; tries < 200; tries++)
                    if (grammar_matcher_advance(m, below(N - 1)))
                        break;
            }
            grammar_matcher_free(m);
            grammar_free(g);
        }
    grammar_vocabulary_free(v);
}

/* Each place of a bounded string is searched for the run of bytes that follows: its 64 look-ups of
 * all bytes are work, though all closures but one are known. */
static void test_searches_are_work(void **state)
{
    uint32_t mask[(SUBTREE_TOKENS + 31) / 32];
    struct grammar_vocabulary *v = subtree_vocabulary();
    struct grammar *g = compile_ok(GRAMMAR_REGEX, ".{1,200}");
    struct grammar_matcher *m;
    assert_int_equal(grammar_matcher_new(g, v, NULL, &m, NULL), 0);
    assert_true(grammar_matcher_mask(m, mask));
    assert_true(grammar_matcher_advance(m, 0));
    uint64_t before = grammar_matcher_steps(m);
    assert_true(grammar_matcher_mask(m, mask));
    assert_true(grammar_matcher_steps(m) - before >= 64);
    grammar_matcher_free(m);
    grammar_vocabulary_free(v);
    grammar_free(g);
}

static void test_tokens_of_several_bytes(void **state)
{
    struct fixture f;
    begin(
        &f, GRAMMAR_JSON_SCHEMA,
        "{\"type\":\"object\",\"properties\":{\"name\":{\"const\":\"x\"}},\"required\":[\"name\"],"
        "\"additionalProperties\":false}",
        NULL);
    assert_true(grammar_matcher_advance(f.m, MANY + 0));  /* {" */
    assert_false(grammar_matcher_advance(f.m, MANY + 1)); /* ": */
    assert_true(grammar_matcher_accepts(f.m, MANY + 5));  /* name */
    assert_true(grammar_matcher_advance(f.m, 'n'));
    assert_false(grammar_matcher_accepts(f.m, MANY + 13)); /* no bytes */
    assert_false(grammar_matcher_accepts(f.m, CONTROL));
    assert_false(grammar_matcher_accepts(f.m, END));
    assert_false(grammar_matcher_accepts(f.m, TOKENS));
    assert_true(grammar_matcher_advance(f.m, MANY + 15)); /* ame":"x"} */
    assert_true(grammar_matcher_is_complete(f.m));
    assert_true(grammar_matcher_is_final(f.m));
    assert_true(grammar_matcher_accepts(f.m, END));
    end(&f);
}

static void test_half_characters(void **state)
{
    struct fixture f;
    begin(&f, GRAMMAR_JSON_SCHEMA, "{\"type\":\"string\",\"maxLength\":1}", NULL);
    assert_true(take_text(f.m, "\""));
    assert_true(grammar_matcher_advance(f.m, MANY + 8)); /* two of three bytes */
    assert_false(grammar_matcher_accepts(f.m, '"'));     /* a character may not end there */
    assert_true(grammar_matcher_advance(f.m, MANY + 9)); /* the third, and the quote */
    assert_true(grammar_matcher_is_final(f.m));
    end(&f);
}

static void test_trigger(void **state)
{
    const struct grammar_start start = {.trigger = "<tool>"};
    struct fixture f;
    begin(&f, GRAMMAR_REGEX, "12+x", &start);
    assert_true(take_text(f.m, "any <to<tool"));
    assert_false(grammar_matcher_is_active(f.m));
    assert_true(grammar_matcher_accepts(f.m, END)); /* without a call */
    assert_true(grammar_matcher_accepts(f.m, MANY + 13));
    assert_true(take_text(f.m, ">"));
    assert_true(grammar_matcher_is_active(f.m));
    assert_false(grammar_matcher_accepts(f.m, END));
    assert_false(grammar_matcher_accepts(f.m, 'a'));
    assert_true(take_text(f.m, "12x"));
    assert_true(grammar_matcher_accepts(f.m, END));
    end(&f);

    begin(&f, GRAMMAR_REGEX, "12+x", &start);
    assert_true(grammar_matcher_advance(f.m, CONTROL)); /* its text is the trigger */
    assert_true(grammar_matcher_is_active(f.m));
    end(&f);
}

/* The text behind the trigger in the same token counts. */
static void test_trigger_within_a_token(void **state)
{
    const struct grammar_start start = {.trigger = "}", .required = true};
    uint32_t mask[(TOKENS + 31) / 32];
    struct fixture f;
    begin(&f, GRAMMAR_REGEX, "\\{12", &start);
    assert_false(grammar_matcher_accepts(f.m, END)); /* not before the trigger */
    assert_true(take_text(f.m, "thinking"));
    assert_true(grammar_matcher_accepts(f.m, MANY + 14)); /* }{ */
    assert_true(grammar_matcher_mask(f.m, mask));
    for (uint32_t t = 0; t < TOKENS; t++)
        assert_int_equal(allowed(mask, t), grammar_matcher_accepts(f.m, t));
    assert_true(grammar_matcher_advance(f.m, MANY + 14));
    assert_true(take_text(f.m, "12"));
    assert_true(grammar_matcher_is_final(f.m));
    end(&f);
    begin(&f, GRAMMAR_REGEX, "[a-z]", &start);
    assert_false(grammar_matcher_accepts(f.m, MANY + 14)); /* { is not a letter */
    assert_true(grammar_matcher_accepts(f.m, '}'));
    end(&f);
}

/* In reasoning the trigger does not count. */
static void test_trigger_behind_reasoning(void **state)
{
    static const struct {
        const char *begin, *text;
        bool active;
    } cases[] = {
        {"<thought>", " \n<thought>a <tool> b</end>c<tool>", true},
        {"<thought>", "<thought>a <tool> b</en</end><tool>", true},
        {"<thought>", "<thought>a <tool> b</end", false},
        {"<thought>", "a <thought><tool>", true},
        {"<thought>", "<tool>", true}, /* begins as reasoning does */
        {"<thought>", "<thou<tool>", true},
        {NULL, "<tool> b</end>", false},
        {NULL, "<tool> b</end><tool>", true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct grammar_start start = {
            .trigger = "<tool>", .reasoning_begin = cases[i].begin, .reasoning_end = "</end>"};
        uint32_t mask[(TOKENS + 31) / 32];
        struct fixture f;
        begin(&f, GRAMMAR_REGEX, "b?12+x", &start);
        assert_true(take_text(f.m, cases[i].text));
        assert_int_equal(grammar_matcher_is_active(f.m), cases[i].active);
        assert_true(grammar_matcher_mask(f.m, mask));
        for (uint32_t t = 0; t < TOKENS; t++)
            assert_int_equal(allowed(mask, t), grammar_matcher_accepts(f.m, t));
        end(&f);
    }
}

static void test_rollback(void **state)
{
    uint32_t before[(TOKENS + 31) / 32], after[(TOKENS + 31) / 32];
    struct fixture f;
    begin(&f, GRAMMAR_JSON, "", NULL);
    assert_false(grammar_matcher_rollback(f.m, 1));
    assert_true(take_text(f.m, "{\"a\":[1,"));
    assert_true(grammar_matcher_mask(f.m, before));
    assert_true(take_text(f.m, "{\"b\":2}"));
    assert_true(grammar_matcher_rollback(f.m, 7));
    assert_true(grammar_matcher_mask(f.m, after));
    assert_memory_equal(before, after, sizeof before);
    assert_true(take_text(f.m, "2]}"));
    assert_true(grammar_matcher_is_final(f.m));
    for (unsigned i = 0; i < GRAMMAR_ROLLBACK; i++)
        (void)grammar_matcher_rollback(f.m, 1);
    assert_true(grammar_matcher_accepts(f.m, '{'));
    end(&f);
}

/* Each character of a bounded string has a configuration of its own: more than can be stored. Looks
 * ahead forget some of them, too. */
static void test_more_configurations_than_fit(void **state)
{
    enum { LENGTH = 30000, AHEAD = 6 };
    static const uint32_t ahead[AHEAD] = {'a', 'a', 'a', 'a', 'a', 'a'};
    uint32_t stopped = 0;
    struct fixture f;
    begin(&f, GRAMMAR_JSON_SCHEMA, "{\"type\":\"string\",\"minLength\":29990,\"maxLength\":30000}",
          NULL);
    assert_true(take_text(f.m, "\""));
    for (unsigned i = 0; i < LENGTH; i++) {
        if (i == LENGTH - 10)
            assert_true(grammar_matcher_accepts(f.m, '"'));
        else if (i % 977 == 0)
            assert_false(grammar_matcher_accepts(f.m, '"'));
        stopped += grammar_matcher_try(f.m, ahead, AHEAD) < AHEAD;
        assert_true(grammar_matcher_advance(f.m, 'a'));
    }
    assert_true(stopped >= AHEAD - 1 && stopped < LENGTH / 100); /* at the end, and to forget */
    assert_false(grammar_matcher_accepts(f.m, 'a'));
    assert_true(grammar_matcher_rollback(f.m, GRAMMAR_ROLLBACK));
    for (unsigned i = 0; i < GRAMMAR_ROLLBACK; i++)
        assert_true(grammar_matcher_advance(f.m, 'b'));
    assert_false(grammar_matcher_accepts(f.m, 'b'));
    assert_true(take_text(f.m, "\""));
    assert_true(grammar_matcher_is_final(f.m));
    end(&f);
}

/* A grammar with exponentially many readings: stacks are shared, so a step stays small. */
static void test_ambiguous_grammar(void **state)
{
    struct fixture f;
    begin(&f, GRAMMAR_GBNF,
          "root ::= \"a\" | \"a\" root | \"a\" root \"b\" | \"a\" root root \"b\"", NULL);
    for (unsigned i = 0; i < 60; i++)
        assert_true(grammar_matcher_advance(f.m, 'a'));
    assert_true(take_text(f.m, "bbb"));
    assert_true(grammar_matcher_accepts(f.m, END));
    assert_int_equal(grammar_matcher_error(f.m, NULL), ERROR_OK);
    end(&f);
}

/* ---- Work ---- */

/* Appends n callers of a rule: rule "0"|rule "1"|... */
static void add_callers(struct strbuf *text, const char *rule, unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        strbuf_printf(text, "%s%s \"%u\"", i ? "|" : "", rule, i);
}

/* Opens the configurations of `rules`, where root is n callers of q and n of r. */
static struct grammar *open_callers(struct configurations *c, const char *rules, unsigned n)
{
    struct strbuf text;
    strbuf_init(&text);
    strbuf_printf(&text, "root ::= ");
    add_callers(&text, "q", n);
    strbuf_printf(&text, "|");
    add_callers(&text, "r", n);
    strbuf_printf(&text, "\n%s", rules);
    struct grammar *g = compile_ok(GRAMMAR_GBNF, text.data);
    assert_true(configurations_init(c, g));
    strbuf_fini(&text);
    return g;
}

/* The steps of one byte, from the beginning of an answer. */
static uint64_t steps_of_byte(const char *rules, unsigned n, uint8_t byte, uint32_t *waiting)
{
    struct configurations c;
    struct grammar *g = open_callers(&c, rules, n);
    uint32_t start = configurations_start(&c);
    c.work_done = 0;
    assert_true(configurations_compute(&c, start, byte) >= CONFIGURATION_FIRST);
    *waiting = c.n_waiting;
    uint64_t steps = c.work_done;
    configurations_fini(&c);
    grammar_free(g);
    return steps;
}

/* Loops over a rule's callers count, and the last part of a rule needs no such loop. */
static void test_callers_are_work(void **state)
{
    enum { FEW = 3, MANY_CALLERS = 3000 };
    static const struct {
        const char *rules;
        uint64_t least; /* steps with many callers */
    } cases[] = {
        /* p is called for two stacks of callers, which become one */
        {"q ::= \"a\" p\nr ::= \"a\" p\np ::= \"b\"\n", MANY_CALLERS / 4},
        /* each part that comes copies the callers */
        {"q ::= %all(\"a\"|\"b\")\nr ::= \"c\"\n", MANY_CALLERS / 16},
    };
    uint32_t waiting;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_in_range(steps_of_byte(cases[i].rules, FEW, 'a', &waiting), 1, 100);
        assert_true(steps_of_byte(cases[i].rules, MANY_CALLERS, 'a', &waiting) >= cases[i].least);
    }
    uint64_t steps =
        steps_of_byte("q ::= \"a\" r\nr ::= \"b\" q|\".\"\n", MANY_CALLERS, 'a', &waiting);
    assert_in_range(steps, 1, 100);
    assert_int_equal(waiting, 1);
}

/* One byte whose closure would need millions of steps: it ends at the limit. */
static void test_work_of_one_byte(void **state)
{
    enum { CALLERS = 3000, RULES = 400 };
    struct strbuf text;
    struct fixture f;
    struct error e;
    strbuf_init(&text);
    strbuf_printf(&text, "root ::= ");
    add_callers(&text, "q", CALLERS);
    strbuf_printf(&text, "|");
    add_callers(&text, "r", CALLERS);
    for (const char *rule = "qr"; *rule; rule++) {
        strbuf_printf(&text, "\n%c ::= \"a\" (p0", *rule);
        for (unsigned i = 1; i < RULES; i++)
            strbuf_printf(&text, "|p%u", i);
        strbuf_printf(&text, ")");
    }
    for (unsigned i = 0; i < RULES; i++)
        strbuf_printf(&text, "\np%u ::= \"a%u\"", i, i);
    begin(&f, GRAMMAR_GBNF, text.data, NULL);
    strbuf_fini(&text);
    assert_false(grammar_matcher_accepts(f.m, 'a'));
    assert_int_equal(grammar_matcher_error(f.m, &e), ERROR_LIMIT);
    assert_non_null(strstr(e.text, "%all"));
    end(&f);
}

static void test_no_token_continues(void **state)
{
    static const uint8_t *const texts[] = {(const uint8_t *)"a"};
    static const uint32_t lengths[] = {1};
    static const uint8_t kinds[] = {GRAMMAR_TOKEN_TEXT};
    struct grammar_vocabulary *v;
    struct grammar_matcher *m;
    struct grammar *g = compile_ok(GRAMMAR_REGEX, "ab");
    struct error e;
    uint32_t mask[1];
    assert_int_equal(grammar_vocabulary_new(1, texts, lengths, kinds, &v, NULL), 0);
    assert_int_equal(grammar_matcher_new(g, v, NULL, &m, NULL), 0);
    assert_true(grammar_matcher_mask(m, mask));
    assert_true(grammar_matcher_advance(m, 0));
    assert_false(grammar_matcher_mask(m, mask));
    assert_int_equal(grammar_matcher_error(m, &e), ERROR_UNAVAILABLE);
    grammar_matcher_free(m);
    grammar_vocabulary_free(v);
    grammar_free(g);
}

/* A restarted matcher has the masks of a new one, at each place of random answers. */
static void test_restart(void **state)
{
    enum { ANSWERS = 40, STEPS = 50 };
    static const struct grammar_start starts[] = {
        {0}, {.trigger = "<tool>", .required = true}, {.trigger = "a"}};
    uint32_t fresh[(TOKENS + 31) / 32], again[(TOKENS + 31) / 32];
    uint64_t random = 7;
    struct fixture f;
    begin(&f, GRAMMAR_JSON_SCHEMA,
          "{\"type\":\"array\",\"items\":{\"enum\":[\"a\",1,[\"b\"]]},\"maxItems\":9}", NULL);
    for (uint32_t answer = 0; answer < ANSWERS; answer++) {
        const struct grammar_start *start = &starts[answer % 3];
        struct grammar_matcher *m;
        assert_int_equal(grammar_matcher_new(f.g, f.v, start, &m, NULL), ERROR_OK);
        assert_int_equal(grammar_matcher_restart(f.m, start, NULL), ERROR_OK);
        assert_true(grammar_matcher_mask(f.m, again));
        for (uint32_t t = 0; t < TOKENS; t++)
            assert_int_equal(allowed(again, t), grammar_matcher_accepts(m, t));
        if (start->trigger)
            assert_true(grammar_matcher_advance(m, CONTROL) &&
                        grammar_matcher_advance(f.m, CONTROL));
        for (uint32_t i = 0; i < STEPS && !grammar_matcher_is_final(m); i++) {
            assert_int_equal(grammar_matcher_is_active(m), grammar_matcher_is_active(f.m));
            bool any = grammar_matcher_mask(m, fresh);
            assert_int_equal(grammar_matcher_mask(f.m, again), any);
            assert_memory_equal(fresh, again, sizeof fresh);
            uint32_t token = 0;
            do
                random = random * 6364136223846793005u + 1442695040888963407u;
            while (!allowed(fresh, token = (uint32_t)(random >> 33) % TOKENS));
            (void)grammar_matcher_advance(m, token);
            (void)grammar_matcher_advance(f.m, token);
        }
        assert_int_equal(grammar_matcher_is_final(m), grammar_matcher_is_final(f.m));
        grammar_matcher_free(m);
    }
    assert_false(grammar_matcher_rollback(f.m, STEPS + 2)); /* not into the answer before */
    end(&f);
}

static void check_forced(struct fixture *f, const char *expected)
{
    uint8_t bytes[64];
    uint32_t token, n = grammar_matcher_forced(f->m, bytes, sizeof bytes, &token);
    assert_int_equal(n, strlen(expected));
    assert_memory_equal(bytes, expected, n);
    assert_int_equal(token, GRAMMAR_NO_TOKEN);
}

/* Up to a choice, or to where the answer may end. */
static void test_forced(void **state)
{
    struct fixture f;
    uint8_t bytes[4];
    uint32_t token;
    (void)state;
    begin(&f, GRAMMAR_GBNF, "root ::= \"{name: \" [0-9]+ (\"abc\" | \"abd\") \"xyz\" \"!\"?", NULL);
    check_forced(&f, "{name: ");
    assert_int_equal(grammar_matcher_forced(f.m, bytes, 4, &token), 4);
    assert_memory_equal(bytes, "{nam", 4);
    assert_true(take_text(f.m, "{na"));
    check_forced(&f, "me: ");
    assert_true(take_text(f.m, "me: 1"));
    check_forced(&f, "");
    assert_true(take_text(f.m, "2a"));
    check_forced(&f, "b");
    assert_true(take_text(f.m, "bc"));
    check_forced(&f, "xyz");
    assert_true(take_text(f.m, "xyz"));
    check_forced(&f, "");
    assert_true(take_text(f.m, "!"));
    check_forced(&f, "");
    assert_true(grammar_matcher_is_final(f.m));
    end(&f);
    struct grammar_start start = {.trigger = "<tool>"};
    begin(&f, GRAMMAR_REGEX, "abc", &start);
    check_forced(&f, "");
    assert_true(grammar_matcher_advance(f.m, CONTROL));
    check_forced(&f, "abc");
    end(&f);
}

/* A literal that a control token spells, too: that token is what must come. */
static void test_forced_control_token(void **state)
{
    static const char text[] = "root ::= \"a<tool>b\"";
    static const char *const mark = "<tool>";
    struct fixture f = {.v = many_vocabulary()};
    uint8_t bytes[8];
    uint32_t token;
    (void)state;
    assert_int_equal(grammar_compile_marked(text, strlen(text), &mark, 1, NULL, &f.g, NULL), 0);
    assert_int_equal(grammar_matcher_new(f.g, f.v, NULL, &f.m, NULL), 0);
    assert_int_equal(grammar_matcher_forced(f.m, bytes, sizeof bytes, &token), 1);
    assert_true(bytes[0] == 'a' && token == CONTROL);
    assert_true(take_text(f.m, "a"));
    assert_int_equal(grammar_matcher_forced(f.m, bytes, sizeof bytes, &token), 0);
    assert_int_equal(token, CONTROL);
    const uint32_t rest[] = {CONTROL, 'b', END, 'c'};
    assert_int_equal(grammar_matcher_try(f.m, rest, 4), 3);
    assert_true(grammar_matcher_advance(f.m, CONTROL));
    check_forced(&f, "b");
    end(&f);
}

/* As many as one after the other are taken; then nothing has changed. */
static void test_try(void **state)
{
    enum { LONG = 12, ROUNDS = 400 };
    struct fixture f;
    uint32_t before[(TOKENS + 31) / 32], after[(TOKENS + 31) / 32], tried[LONG], some = 0;
    (void)state;
    begin(&f, GRAMMAR_JSON, "", NULL);
    random_state = 3;
    for (int round = 0; round < ROUNDS; round++) {
        if (grammar_matcher_is_final(f.m))
            assert_int_equal(grammar_matcher_restart(f.m, NULL, NULL), 0);
        assert_true(grammar_matcher_mask(f.m, before));
        for (int i = 0; i < LONG; i++) { /* mostly what may come after one another */
            static const char likely[] = "{\"a\":1,\"b\":[2]}";
            tried[i] =
                below(4) ? (uint8_t)likely[(round + i) % (sizeof likely - 1)] : below(TOKENS);
        }
        uint64_t steps = grammar_matcher_steps(f.m);
        uint32_t n = grammar_matcher_try(f.m, tried, LONG), taken = 0;
        assert_true(grammar_matcher_steps(f.m) >= steps);
        assert_true(grammar_matcher_mask(f.m, after));
        assert_memory_equal(before, after, sizeof before);
        while (taken < LONG && grammar_matcher_advance(f.m, tried[taken]))
            taken++;
        bool at_end = taken < LONG && tried[taken] == END && grammar_matcher_is_complete(f.m);
        assert_int_equal(n, taken + at_end);
        some += n > 1;
        assert_true(grammar_matcher_rollback(f.m, taken));
        do
            tried[0] = below(TOKENS);
        while (!allowed(after, tried[0]) || tried[0] == END);
        assert_true(grammar_matcher_advance(f.m, tried[0]));
    }
    assert_true(some > 10);
    end(&f);
}

/* Looks ahead leave a rollback as far as it was. */
static void test_try_and_rollback(void **state)
{
    uint32_t tried[GRAMMAR_ROLLBACK], before[(TOKENS + 31) / 32], after[(TOKENS + 31) / 32];
    struct fixture f;
    (void)state;
    begin(&f, GRAMMAR_REGEX, "(a|b)*c(1|2)*", NULL);
    for (unsigned i = 0; i < GRAMMAR_ROLLBACK; i++)
        tried[i] = '1';
    for (unsigned taken = 5; taken < 4 * GRAMMAR_ROLLBACK; taken += 37) {
        unsigned back = taken < GRAMMAR_ROLLBACK ? taken : GRAMMAR_ROLLBACK;
        assert_int_equal(grammar_matcher_restart(f.m, NULL, NULL), 0);
        for (unsigned i = 0; i < taken - back; i++)
            assert_true(grammar_matcher_advance(f.m, 'a' + i % 2));
        assert_true(grammar_matcher_mask(f.m, before));
        for (unsigned i = 0; i + 1 < back; i++)
            assert_true(grammar_matcher_advance(f.m, 'a' + i % 2));
        assert_true(grammar_matcher_advance(f.m, 'c'));
        for (unsigned i = 0; i < 3; i++)
            assert_int_equal(grammar_matcher_try(f.m, tried, GRAMMAR_ROLLBACK), GRAMMAR_ROLLBACK);
        assert_false(grammar_matcher_rollback(f.m, back + 1));
        assert_true(grammar_matcher_rollback(f.m, back));
        assert_true(grammar_matcher_mask(f.m, after));
        assert_memory_equal(before, after, sizeof before);
    }
    end(&f);
}

/* What is forced is a look at each of a configuration's places: many of them take long, even where
 * all steps are known. */
static void test_work_of_forced(void **state)
{
    enum { RULES = 700, LONG = 90, SOME = 4096 };
    struct strbuf text;
    struct fixture f;
    uint8_t bytes[2 * LONG];
    uint32_t token;
    (void)state;
    strbuf_init(&text);
    strbuf_printf(&text, "root ::= r0");
    for (unsigned i = 1; i < RULES; i++)
        strbuf_printf(&text, "|r%u", i);
    for (unsigned i = 0; i < RULES; i++)
        strbuf_printf(&text, "\nr%u ::= \"%0*d\" r%u? \"%u\"", i, LONG, 0, i, i + 1);
    begin(&f, GRAMMAR_GBNF, text.data, NULL);
    strbuf_fini(&text);
    for (unsigned i = 0; i < LONG; i++) /* all steps are known then */
        assert_true(grammar_matcher_advance(f.m, '0'));
    assert_int_equal(grammar_matcher_restart(f.m, NULL, NULL), 0);
    uint64_t steps = grammar_matcher_steps(f.m);
    uint32_t n = grammar_matcher_forced(f.m, bytes, sizeof bytes, &token);
    assert_true(n > 0 && n < LONG);
    assert_true(grammar_matcher_steps(f.m) > steps);
    assert_true(grammar_matcher_steps(f.m) - steps <= SOME);
    assert_int_equal(grammar_matcher_error(f.m, NULL), 0);
    end(&f);
}

static void test_trigger_too_long(void **state)
{
    char trigger[GRAMMAR_TRIGGER_BYTES + 1];
    struct grammar_start start = {.trigger = trigger};
    struct grammar *g = compile_ok(GRAMMAR_REGEX, "a");
    struct grammar_vocabulary *v = many_vocabulary();
    struct grammar_matcher *m;
    memset(trigger, 'x', sizeof trigger);
    trigger[GRAMMAR_TRIGGER_BYTES] = 0;
    assert_int_equal(grammar_matcher_new(g, v, &start, &m, NULL), ERROR_USAGE);
    assert_int_equal(grammar_matcher_new(g, v, NULL, &m, NULL), ERROR_OK);
    assert_true(grammar_matcher_advance(m, 'a'));
    assert_int_equal(grammar_matcher_restart(m, &start, NULL), ERROR_USAGE);
    assert_true(grammar_matcher_is_final(m)); /* as before */
    grammar_matcher_free(m);
    grammar_vocabulary_free(v);
    grammar_free(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_masks_are_what_checks_say),
        cmocka_unit_test(test_masks_of_large_subtrees),
        cmocka_unit_test(test_searches_are_work),
        cmocka_unit_test(test_tokens_of_several_bytes),
        cmocka_unit_test(test_half_characters),
        cmocka_unit_test(test_trigger),
        cmocka_unit_test(test_trigger_within_a_token),
        cmocka_unit_test(test_restart),
        cmocka_unit_test(test_trigger_behind_reasoning),
        cmocka_unit_test(test_rollback),
        cmocka_unit_test(test_more_configurations_than_fit),
        cmocka_unit_test(test_ambiguous_grammar),
        cmocka_unit_test(test_callers_are_work),
        cmocka_unit_test(test_work_of_one_byte),
        cmocka_unit_test(test_no_token_continues),
        cmocka_unit_test(test_trigger_too_long),
        cmocka_unit_test(test_forced),
        cmocka_unit_test(test_forced_control_token),
        cmocka_unit_test(test_try),
        cmocka_unit_test(test_try_and_rollback),
        cmocka_unit_test(test_work_of_forced),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
