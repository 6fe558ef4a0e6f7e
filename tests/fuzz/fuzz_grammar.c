/* Fuzz target of grammars. The first byte is the kind (5: GBNF with marks), the second the seed of
 * a walk, the rest the definition. Any bytes compile, or are refused in one line; a walk by random
 * masks through what compiled never gets stuck, and the masks say what the check of each token
 * says. Looks ahead agree with the masks, and change nothing. */
#include "grammar/matcher.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { BYTES = 256, TOKENS = 265, STEPS = 40 };

static void require(bool holds)
{
    if (!holds)
        abort();
}

static struct grammar_vocabulary *make_vocabulary(void)
{
    static const char *const more[] = {"{\"",      "\":", "\",", "ab", "00",
                                       "\xc3\xa9", "}]",  "<a>", NULL};
    static uint8_t single[BYTES];
    const uint8_t *bytes[TOKENS];
    uint32_t lengths[TOKENS];
    uint8_t kinds[TOKENS] = {[TOKENS - 2] = GRAMMAR_TOKEN_CONTROL, /* a mark */
                             [TOKENS - 1] = GRAMMAR_TOKEN_END};
    struct grammar_vocabulary *v;
    for (unsigned i = 0; i < TOKENS; i++) {
        const char *text = i < BYTES ? NULL : more[i - BYTES];
        single[i % BYTES] = (uint8_t)(i % BYTES);
        bytes[i] = text ? (const uint8_t *)text : &single[i % BYTES];
        lengths[i] = text ? (uint32_t)strlen(text) : 1;
    }
    lengths[TOKENS - 1] = 0;
    require(!grammar_vocabulary_new(TOKENS, bytes, lengths, kinds, &v, NULL));
    return v;
}

static uint32_t random_state;

/* One of the mask's tokens, or GRAMMAR_NO_TOKEN; checks the mask. */
static uint32_t choose(struct grammar_matcher *m, const uint32_t *mask)
{
    uint32_t n = 0, chosen = GRAMMAR_NO_TOKEN;
    for (uint32_t t = 0; t < TOKENS; t++) {
        bool allowed = mask[t / 32] >> t % 32 & 1;
        require(allowed == grammar_matcher_accepts(m, t));
        random_state = random_state * 1664525u + 1013904223u;
        if (allowed && (uint64_t)random_state * ++n >> 32 == 0)
            chosen = t;
    }
    return chosen;
}

/* Looks ahead: no token that the mask refuses can be tried, no byte but the forced one can come,
 * and nothing changes. False: the answer's limit is reached. */
static bool look_ahead(struct grammar_matcher *m, const uint32_t *mask)
{
    uint32_t after[(TOKENS + 31) / 32], tokens[4], token, n;
    uint8_t bytes[16];
    random_state = random_state * 1664525u + 1013904223u;
    for (unsigned i = 0; i < 4; i++)
        tokens[i] = (random_state >> 8 * i) % TOKENS;
    n = grammar_matcher_try(m, tokens, 4);
    require(n <= 4 && (n == 0 || mask[tokens[0] / 32] >> tokens[0] % 32 & 1));
    n = grammar_matcher_forced(m, bytes, sizeof bytes, &token);
    require(n <= sizeof bytes && (token == GRAMMAR_NO_TOKEN || token < TOKENS));
    for (uint32_t t = 0; n > 0 && t < BYTES; t++)
        require(t == bytes[0] || !(mask[t / 32] >> t % 32 & 1));
    require(!grammar_matcher_error(m, NULL));
    bool any = grammar_matcher_mask(m, after); /* computed again, if the looks made it forgotten */
    if (grammar_matcher_error(m, NULL) == ERROR_LIMIT)
        return false;
    require(any && memcmp(mask, after, sizeof after) == 0);
    return true;
}

static void walk(const struct grammar *g, const struct grammar_vocabulary *v)
{
    struct grammar_matcher *m;
    uint32_t mask[(TOKENS + 31) / 32];
    require(!grammar_matcher_new(g, v, NULL, &m, NULL));
    for (unsigned i = 0; i < STEPS; i++) {
        bool any = grammar_matcher_mask(m, mask);
        if (grammar_matcher_error(m, NULL) == ERROR_LIMIT)
            break;
        require(any);
        uint32_t token = choose(m, mask);
        if (grammar_matcher_error(m, NULL))
            break;
        require(token != GRAMMAR_NO_TOKEN);
        if (!look_ahead(m, mask) || token == TOKENS - 1)
            break;
        require(grammar_matcher_advance(m, token));
        if (i % 8 == 7)
            require(grammar_matcher_rollback(m, 3));
    }
    grammar_matcher_free(m);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct grammar_vocabulary *v;
    const struct grammar_limits limits = {
        .text_bytes = 4096, .states = 20000, .dfa_states = 1024, .alternatives = 64, .depth = 64};
    struct grammar *g = NULL;
    struct error e = {0};
    if (size < 2)
        return 0;
    if (!v)
        v = make_vocabulary();
    random_state = data[1];
    const char *text = (const char *)data + 2, *const marks[] = {"<a>", "{"};
    enum error_code code =
        data[0] % 6 == 5
            ? grammar_compile_marked(text, size - 2, marks, 2, &limits, &g, &e)
            : grammar_compile((enum grammar_kind)(data[0] % 6), text, size - 2, &limits, &g, &e);
    if (code) {
        require(!g && e.code == code && e.text[0] && !strchr(e.text, '\n'));
        return 0;
    }
    walk(g, v);
    grammar_free(g);
    return 0;
}
