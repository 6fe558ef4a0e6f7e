/* Guesses of the next layer's experts; see prediction.h. */
#include "prediction.h"

#include <stdlib.h>
#include <string.h>

/* A rank's share is a moving average over about so many guesses, from one half at first. */
#define SHARE_WEIGHT (1.0 / 512)

struct prediction {
    uint32_t n_experts, n_used;
    uint32_t layer, n_tokens; /* of the guess; n_tokens 0: none */
    uint32_t *guessed;        /* [n_tokens][n_used] */
    double *miss;             /* [n_experts]: the probability that no token activates it */
    double *share;            /* [n_used] */
};

struct prediction *prediction_new(uint32_t n_experts, uint32_t n_used, uint32_t max_tokens)
{
    struct prediction *p = calloc(1, sizeof *p);
    if (!p)
        return NULL;
    p->n_experts = n_experts;
    p->n_used = n_used;
    p->guessed = calloc((size_t)max_tokens * n_used, sizeof *p->guessed);
    p->miss = calloc(n_experts, sizeof *p->miss);
    p->share = calloc(n_used, sizeof *p->share);
    if (!p->guessed || !p->miss || !p->share) {
        prediction_free(p);
        return NULL;
    }
    for (uint32_t rank = 0; rank < n_used; rank++)
        p->share[rank] = 0.5;
    return p;
}

void prediction_free(struct prediction *p)
{
    if (!p)
        return;
    free(p->guessed);
    free(p->miss);
    free(p->share);
    free(p);
}

void prediction_make(struct prediction *p, uint32_t layer, const uint32_t *guessed,
                     uint32_t n_tokens)
{
    p->layer = layer;
    p->n_tokens = n_tokens;
    memcpy(p->guessed, guessed, (size_t)n_tokens * p->n_used * sizeof *guessed);
    for (uint32_t i = 0; i < p->n_experts; i++)
        p->miss[i] = 1;
    for (uint32_t i = 0; i < n_tokens * p->n_used; i++)
        p->miss[guessed[i]] *= 1 - p->share[i % p->n_used];
}

double prediction_of(const struct prediction *p, uint32_t expert)
{
    return p->n_tokens ? 1 - p->miss[expert] : 0;
}

uint32_t prediction_check(struct prediction *p, uint32_t layer, const uint32_t *selected,
                          uint32_t n_tokens, uint32_t *right)
{
    *right = 0;
    if (!p->n_tokens || layer != p->layer || n_tokens != p->n_tokens)
        return 0;
    for (uint32_t i = 0; i < n_tokens * p->n_used; i++) {
        const uint32_t *chosen = selected + i / p->n_used * p->n_used;
        bool hit = false;
        for (uint32_t k = 0; k < p->n_used && !hit; k++)
            hit = chosen[k] == p->guessed[i];
        double *share = &p->share[i % p->n_used];
        *share += SHARE_WEIGHT * (hit - *share);
        *right += hit;
    }
    p->n_tokens = 0;
    return n_tokens * p->n_used;
}
