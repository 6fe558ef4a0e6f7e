/* Where an answer stands in its prediction; see expected_answer.h.
 *
 *   certain --difference--> lost --a match of EXPECTED_LONGEST_MATCH--> certain
 *
 * `at` is the place of the next token in both; while it is lost it may move with each token. */
#include "expected_answer.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define LEARN (1.0f / 8)

static const float FIRST_RATES[EXPECTED_CLASSES] = {0.3f, 0.6f, 0.8f, 0.9f, 0.95f};

struct expected_answer {
    uint32_t n;
    uint32_t at;      /* of the next token */
    uint32_t match;   /* tokens before it that are the answer's last ones */
    uint32_t lost_at; /* the place of the last difference */
    uint32_t n_lost;  /* tokens since then without a match; 0: none */
    uint32_t unfound; /* the answer's last tokens that do not count as found */
    uint32_t n_found;
    bool lost;
    float rates[EXPECTED_CLASSES];
    uint32_t tokens[]; /* [n] */
};

struct expected_answer *expected_answer_new(const uint32_t *tokens, uint32_t n)
{
    struct expected_answer *p = calloc(1, sizeof *p + n * sizeof *tokens);
    if (!p)
        return NULL;
    p->n = n;
    p->match = EXPECTED_LONGEST_MATCH; /* it begins with the answer: that is a promise */
    memcpy(p->rates, FIRST_RATES, sizeof p->rates);
    memcpy(p->tokens, tokens, n * sizeof *tokens);
    return p;
}

void expected_answer_free(struct expected_answer *p)
{
    free(p);
}

uint64_t expected_answer_bytes(const struct expected_answer *p)
{
    return p ? sizeof *p + p->n * sizeof *p->tokens : 0;
}

static uint32_t class_of(uint32_t match)
{
    return match >= EXPECTED_LONGEST_MATCH ? 4 : match >= 4 ? 3 : match >= 2 ? 2 : match;
}

/* How many tokens before `place` are the answer's last ones. */
static uint32_t match_before(const struct expected_answer *p, uint32_t place,
                             const uint32_t *answer, uint32_t n)
{
    uint32_t same = 0;
    while (same < EXPECTED_LONGEST_MATCH && same < place && same < n &&
           p->tokens[place - 1 - same] == answer[n - 1 - same])
        same++;
    return same;
}

/* The places from `from` on in steps of 1 or -1: moves to one with a longer match. */
static void look(struct expected_answer *p, uint32_t from, int step, const uint32_t *answer,
                 uint32_t n)
{
    uint32_t place = from;
    for (uint32_t i = 0; i < EXPECTED_SPAN && place >= EXPECTED_LEAST_MATCH && place <= p->n &&
                         p->match < EXPECTED_LONGEST_MATCH;
         i++, place += (uint32_t)step) {
        if (p->tokens[place - 1] != answer[n - 1])
            continue;
        uint32_t match = match_before(p, place, answer, n);
        if (match < EXPECTED_LEAST_MATCH || match <= p->match)
            continue;
        p->match = match;
        p->at = place;
    }
}

static void search(struct expected_answer *p, const uint32_t *answer, uint32_t n)
{
    uint32_t first = p->lost_at + 1;
    look(p, first < EXPECTED_LEAST_MATCH ? EXPECTED_LEAST_MATCH : first, 1, answer, n);
    look(p, p->lost_at, -1, answer, n);
}

static void learn(struct expected_answer *p, bool right)
{
    float *rate = &p->rates[class_of(p->match)];
    *rate += LEARN * ((right ? 1.0f : 0.0f) - *rate);
}

/* The answer's last tokens are in the prediction, too. */
static void count_found(struct expected_answer *p)
{
    uint32_t most = p->n - p->n_found, n = p->match < p->unfound ? p->match : p->unfound;
    p->n_found += n < most ? n : most;
    p->unfound = 0;
}

void expected_answer_follow(struct expected_answer *p, const uint32_t *answer, uint32_t n)
{
    if (!p)
        return;
    bool expected = p->at < p->n, right = expected && p->tokens[p->at] == answer[n - 1];
    if (expected && p->n_lost < 2)
        learn(p, right);
    p->unfound++;
    if (right) {
        p->match++;
    } else {
        p->lost_at = p->lost ? p->lost_at : p->at;
        p->lost = true;
        p->match = 0;
    }
    p->at += expected;
    if (p->lost)
        search(p, answer, n);
    p->n_lost = p->match ? 0 : p->n_lost + 1;
    p->lost = p->lost && p->match < EXPECTED_LONGEST_MATCH;
    if (p->match && (!p->lost || p->match >= EXPECTED_LEAST_MATCH))
        count_found(p);
}

uint32_t expected_answer_rest(const struct expected_answer *p, const uint32_t **tokens)
{
    *tokens = p->tokens + p->at;
    return p->n_lost < 2 ? p->n - p->at : 0;
}

float expected_answer_rate(const struct expected_answer *p, uint32_t i)
{
    return p->rates[class_of(p->match + i)];
}

uint32_t expected_answer_length(const struct expected_answer *p)
{
    return p ? p->n : 0;
}

uint32_t expected_answer_found(const struct expected_answer *p)
{
    return p ? p->n_found : 0;
}
