/* Drafts out of the conversation; see draft.h.
 *
 * The index: pairs of neighbouring tokens, hashed. heads has the last place of each hash, earlier
 * the place before each place; places are positions of a pair's second token, plus one. */
#include "draft.h"

#include <stdbool.h>
#include <stdlib.h>

enum {
    MOST_HEADS = 1 << 16,
    MOST_STEPS = 8 * DRAFT_LOOKS /* with the places of other pairs that have the same hash */
};
/* How fast rates follow what happens: a request's, and all requests' together. */
#define LEARN_ONE (1.0f / 8)
#define LEARN_ALL (1.0f / 64)

struct draft {
    uint32_t *heads;   /* [n_heads], a power of two */
    uint32_t *earlier; /* [capacity] */
    uint32_t n_heads, n_entered;
    uint32_t at, n, match; /* the draft: tokens from `at` to n; match 0: none */
    struct draft_rates rates;
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

uint32_t draft_find(struct draft *d, const uint32_t *tokens, uint32_t n)
{
    d->match = 0;
    if (n < DRAFT_LEAST_MATCH)
        return 0;
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
    return d->match;
}

uint32_t draft_token(const struct draft *d, const uint32_t *tokens, uint32_t i)
{
    return tokens[d->at + i % (d->n - d->at)];
}

/* A draft's later tokens have longer matches, if those before them are right. */
static uint32_t class_of(const struct draft *d, uint32_t i)
{
    uint32_t match = d->match + i;
    return match >= 16 ? 4 : match >= 8 ? 3 : match >= 4 ? 2 : match - DRAFT_LEAST_MATCH;
}

float draft_rate(const struct draft *d, uint32_t i)
{
    return d->rates.right[class_of(d, i)];
}

void draft_learn(struct draft *d, const uint32_t *tokens, uint32_t i, uint32_t chosen,
                 struct draft_rates *all)
{
    if (!d->match)
        return;
    float right = draft_token(d, tokens, i) == chosen ? 1 : 0;
    uint32_t class = class_of(d, i);
    d->rates.right[class] += LEARN_ONE * (right - d->rates.right[class]);
    all->right[class] += LEARN_ALL * (right - all->right[class]);
}
