/* Drafts of an answer's next tokens; see draft.h.
 *
 * The index: pairs of neighbouring tokens, hashed. heads has the last place of each hash, earlier
 * the place before each place; places are positions of a pair's second token, plus one. */
#include "draft.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum {
    MOST_HEADS = 1 << 16,
    MOST_STEPS = 8 * DRAFT_LOOKS /* with the places of other pairs that have the same hash */
};
/* How fast rates follow what happens: a request's, and all requests' together. */
#define LEARN_ONE (1.0f / 8)
#define LEARN_ALL (1.0f / 64)

#define LEARN_FORCED (1.0f / 4)

/* How often forced tokens are chosen, and the last one of them: another one may reach into what
 * follows. By their spelling. */
enum { FORCED_INNER, FORCED_LAST, FORCED_CLASSES };
static const float FIRST_FORCED[SPELLINGS][FORCED_CLASSES] = {
    [SPELLING_WHOLE] = {0.8f, 0.6f}, [SPELLING_SHORT] = {0.5f, 0.5f}};

/* A request's own sources are left alone while they are right less often: they are still compared.
 */
#define LEAST_RATE 0.1f

enum draft_source { FROM_CONVERSATION, FROM_PREDICTION, FROM_GRAMMAR };

struct draft {
    uint32_t *heads;   /* [n_heads], a power of two */
    uint32_t *earlier; /* [capacity] */
    uint32_t n_heads, n_entered;
    uint32_t length; /* of the draft; 0: there is none */
    enum draft_source source;
    uint32_t at, n, match;    /* FROM_CONVERSATION: its tokens from `at` to n, again and again */
    const uint32_t *expected; /* FROM_PREDICTION: [length] */
    enum forced_spelling spelling; /* FROM_GRAMMAR */
    struct forced_tokens forced;
    bool spelt[SPELLINGS];                 /* the chosen tokens so far are the forced ones */
    const struct expected_answer *expects; /* borrowed; NULL: none */
    struct draft_rates rates;
    float forced_rates[SPELLINGS][FORCED_CLASSES];
};

struct draft *draft_new(uint32_t capacity, const struct draft_rates *rates)
{
    struct draft *d = calloc(1, sizeof *d);
    if (!d)
        return NULL;
    d->n_heads = 64;
    while (d->n_heads < capacity && d->n_heads < MOST_HEADS)
        d->n_heads *= 2;
    d->n_entered = 1; /* no pair ends with the first token */
    d->rates = *rates;
    memcpy(d->forced_rates, FIRST_FORCED, sizeof d->forced_rates);
    d->heads = calloc(d->n_heads, sizeof *d->heads);
    d->earlier = calloc(capacity, sizeof *d->earlier);
    if (d->heads && d->earlier)
        return d;
    draft_free(d);
    return NULL;
}

void draft_free(struct draft *d)
{
    if (!d)
        return;
    free(d->heads);
    free(d->earlier);
    free(d);
}

void draft_expect(struct draft *d, const struct expected_answer *p)
{
    d->expects = p;
}

static uint32_t *head_of(const struct draft *d, uint32_t first, uint32_t second)
{
    uint64_t pair = (uint64_t)first << 32 | second;
    return &d->heads[pair * 0x9E3779B97F4A7C15u >> 32 & (d->n_heads - 1)];
}

/* Enters the pairs that end before position n. */
static void enter(struct draft *d, const uint32_t *tokens, uint32_t n)
{
    for (; d->n_entered < n; d->n_entered++) {
        uint32_t *head = head_of(d, tokens[d->n_entered - 1], tokens[d->n_entered]);
        d->earlier[d->n_entered] = *head;
        *head = d->n_entered + 1;
    }
}

/* How many tokens up to `place` equal the last ones. */
static uint32_t match_length(const uint32_t *tokens, uint32_t n, uint32_t place)
{
    uint32_t same = 0;
    while (same < DRAFT_LONGEST_MATCH && same <= place &&
           tokens[place - same] == tokens[n - 1 - same])
        same++;
    return same;
}

static void find_earlier(struct draft *d, const uint32_t *tokens, uint32_t n)
{
    d->match = 0;
    if (n < DRAFT_LEAST_MATCH)
        return;
    enter(d, tokens, n - 1);
    uint32_t next = *head_of(d, tokens[n - 2], tokens[n - 1]);
    for (uint32_t looks = 0, steps = 0;
         next && looks < DRAFT_LOOKS && steps < MOST_STEPS && d->match < DRAFT_LONGEST_MATCH;
         next = d->earlier[next - 1], steps++) {
        uint32_t same = match_length(tokens, n, next - 1);
        looks += same >= DRAFT_LEAST_MATCH; /* else another pair with the same hash */
        if (same < DRAFT_LEAST_MATCH || same <= d->match)
            continue;
        d->match = same;
        d->at = next;
        d->n = n;
    }
}

uint32_t draft_token(const struct draft *d, const uint32_t *tokens, uint32_t i)
{
    switch (d->source) {
    case FROM_PREDICTION:
        return d->expected[i];
    case FROM_GRAMMAR:
        return d->forced.tokens[d->spelling][i];
    case FROM_CONVERSATION:
        break;
    }
    return tokens[d->at + i % (d->n - d->at)];
}

/* A draft's later tokens have longer matches, if those before them are right. */
static uint32_t class_of(const struct draft *d, uint32_t i)
{
    uint32_t match = d->match + i;
    return match >= 16 ? 4 : match >= 8 ? 3 : match >= 4 ? 2 : match - DRAFT_LEAST_MATCH;
}

static uint32_t forced_class(const struct draft *d, enum forced_spelling s, uint32_t i)
{
    return i + 1 == d->forced.n[s] && i + 1 < FORCED_TOKENS_MOST ? FORCED_LAST : FORCED_INNER;
}

float draft_rate(const struct draft *d, uint32_t i)
{
    switch (d->source) {
    case FROM_PREDICTION:
        return expected_answer_rate(d->expects, i);
    case FROM_GRAMMAR:
        return d->forced_rates[d->spelling][forced_class(d, d->spelling, i)];
    case FROM_CONVERSATION:
        break;
    }
    return d->rates.right[class_of(d, i)];
}

uint32_t draft_find(struct draft *d, const uint32_t *tokens, uint32_t n)
{
    find_earlier(d, tokens, n);
    memset(d->spelt, 0, sizeof d->spelt);
    d->source = FROM_CONVERSATION;
    d->length = d->match ? UINT32_MAX : 0;
    uint32_t rest = d->expects ? expected_answer_rest(d->expects, &d->expected) : 0;
    float rate = rest ? expected_answer_rate(d->expects, 0) : 0;
    if (rate >= LEAST_RATE && (!d->length || rate >= draft_rate(d, 0))) {
        d->source = FROM_PREDICTION;
        d->length = rest;
    }
    return d->match;
}

uint32_t draft_length(const struct draft *d)
{
    return d->length;
}

void draft_cut(struct draft *d, uint32_t n)
{
    d->length = n < d->length ? n : d->length;
}

/* How many of the draft's first tokens are likely to be right. */
static float likely_right(const struct draft *d, uint32_t most)
{
    float probability = 1, sum = 0;
    for (uint32_t i = 0; i < most && i < d->length; i++) {
        probability *= draft_rate(d, i);
        sum += probability;
    }
    return sum;
}

void draft_force(struct draft *d, const struct forced_tokens *forced, uint32_t most)
{
    enum draft_source best = d->source;
    enum forced_spelling spelling = SPELLING_WHOLE;
    uint32_t length = d->length;
    float likely = likely_right(d, most);
    d->forced = *forced;
    d->source = FROM_GRAMMAR;
    for (int s = 0; s < SPELLINGS; s++) {
        d->spelling = (enum forced_spelling)s;
        d->length = forced->n[s];
        d->spelt[s] = true;
        float other = likely_right(d, most);
        if (other <= likely || draft_rate(d, 0) < LEAST_RATE)
            continue;
        likely = other;
        best = FROM_GRAMMAR;
        spelling = d->spelling;
        length = d->length;
    }
    d->source = best;
    d->spelling = spelling;
    d->length = length;
}

/* Both spellings are compared, whichever the draft has. */
static void learn_forced(struct draft *d, uint32_t i, uint32_t chosen)
{
    for (int s = 0; s < SPELLINGS; s++) {
        if (!d->spelt[s] || i >= d->forced.n[s])
            continue;
        float *rate = &d->forced_rates[s][forced_class(d, (enum forced_spelling)s, i)];
        d->spelt[s] = d->forced.tokens[s][i] == chosen;
        *rate += LEARN_FORCED * ((d->spelt[s] ? 1.0f : 0.0f) - *rate);
    }
}

void draft_learn(struct draft *d, const uint32_t *tokens, uint32_t i, uint32_t chosen,
                 struct draft_rates *all)
{
    learn_forced(d, i, chosen);
    if (i >= d->length || d->source != FROM_CONVERSATION)
        return;
    float right = draft_token(d, tokens, i) == chosen ? 1 : 0;
    uint32_t class = class_of(d, i);
    d->rates.right[class] += LEARN_ONE * (right - d->rates.right[class]);
    all->right[class] += LEARN_ALL * (right - all->right[class]);
}
