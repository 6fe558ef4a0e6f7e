/* Ranks to probabilities; see predict_internal.h. */
#include "base/arrays.h"
#include "sched/predict/predict_internal.h"

#include <stdlib.h>
#include <string.h>

/* A share starts at one half, with the weight of SHARE_FIRST predictions, and becomes an average
 * over about SHARE_LAST of them. */
enum { SHARE_FIRST = 8, SHARE_LAST = 512 };

struct rank_share {
    float share;
    uint32_t weight; /* predictions that it represents */
};

struct predict_ranks {
    struct predict_shape shape;
    struct predict_target target; /* of the last prediction; n_tokens 0: none */
    uint32_t n_tokens;
    uint32_t *predicted_routing; /* [n_tokens][n_used] */
    struct rank_share *shares;   /* [n_layers][n_used] */
};

struct predict_ranks *predict_ranks_new(const struct predict_shape *shape)
{
    struct predict_ranks *r, new = {.shape = *shape};
    size_t n_shares = (size_t)shape->n_layers * shape->n_used;
    if (!ARRAYS_NEW(ARRAY(r, 1),
                    ARRAY(new.predicted_routing, (size_t)shape->max_tokens * shape->n_used),
                    ARRAY(new.shares, n_shares)))
        return NULL;
    *r = new;
    for (size_t i = 0; i < n_shares; i++)
        r->shares[i] = (struct rank_share){0.5f, SHARE_FIRST};
    return r;
}

void predict_ranks_free(struct predict_ranks *r)
{
    free(r);
}

/* p = 1 - product over the tokens predicted to activate the expert of (1 - share of its rank) */
void predict_ranks_routing(struct predict_ranks *r, const struct predict_target *target,
                           const uint32_t *predicted_routing, uint32_t n_tokens,
                           double *probability)
{
    uint32_t n_used = r->shape.n_used, n_predicted = n_tokens * n_used;
    const struct rank_share *shares = r->shares + (size_t)target->layer * n_used;
    r->target = *target;
    r->n_tokens = n_tokens;
    memcpy(r->predicted_routing, predicted_routing, n_predicted * sizeof *predicted_routing);
    for (uint32_t i = 0; i < r->shape.n_experts; i++)
        probability[i] = 0;
    for (uint32_t i = 0; i < n_predicted; i++) {
        double *p = &probability[predicted_routing[i]];
        *p += (1 - *p) * shares[i % n_used].share;
    }
}

void predict_ranks_check(struct predict_ranks *r, const struct predict_seen *seen)
{
    uint32_t n_used = r->shape.n_used;
    if (!r->n_tokens || seen->step != r->target.step || seen->layer != r->target.layer ||
        seen->n_tokens != r->n_tokens)
        return;
    struct rank_share *shares = r->shares + (size_t)seen->layer * n_used;
    for (uint32_t i = 0; i < r->n_tokens * n_used; i++) {
        const uint32_t *chosen = seen->selected + i / n_used * n_used;
        bool hit = false;
        for (uint32_t k = 0; k < n_used && !hit; k++)
            hit = chosen[k] == r->predicted_routing[i];
        struct rank_share *s = &shares[i % n_used];
        if (s->weight < SHARE_LAST)
            s->weight++;
        s->share += ((float)hit - s->share) / (float)s->weight;
    }
    r->n_tokens = 0;
}
