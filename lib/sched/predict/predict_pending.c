/* Predictions of coming layers; see predict_pending.h. */
#include "base/arrays.h"
#include "sched/predict/predict_pending.h"

#include <stdlib.h>
#include <string.h>

/* The farthest layer that a plan considers: PreScope's window at its widest. */
enum { FARTHEST = 2 };

struct layer_kept {
    uint64_t step;
    uint32_t n; /* 0: nothing */
    struct predicted *experts;
};

struct predict_pending {
    struct predict_shape shape;
    struct layer_kept *layers;       /* [n_layers] */
    struct predict_hits *ranks;      /* [n_layers][n_experts]: by the place in a prediction */
    struct predicted *experts;       /* [n_layers][n_experts] */
    bool *activated;                 /* [n_experts]; all false between calls */
    struct sched_upcoming *upcoming; /* [FARTHEST][n_experts] */
};

struct predict_pending *predict_pending_new(const struct predict_shape *shape)
{
    struct predict_pending *k, new = {.shape = *shape};
    size_t n_experts = shape->n_experts, n_slabs = shape->n_layers * n_experts;
    if (!ARRAYS_NEW(ARRAY(k, 1), ARRAY(new.layers, shape->n_layers), ARRAY(new.ranks, n_slabs),
                    ARRAY(new.experts, n_slabs), ARRAY(new.activated, n_experts),
                    ARRAY(new.upcoming, FARTHEST * n_experts)))
        return NULL;
    *k = new;
    for (uint32_t i = 0; i < shape->n_layers; i++)
        k->layers[i].experts = k->experts + (size_t)i * shape->n_experts;
    return k;
}

void predict_pending_free(struct predict_pending *k)
{
    free(k);
}

struct predicted *predict_pending_list(struct predict_pending *k, uint32_t layer)
{
    return k->layers[layer].experts;
}

void predict_pending_put(struct predict_pending *k, const struct predict_target *target,
                         const struct predicted *experts, uint32_t n)
{
    struct layer_kept *l = &k->layers[target->layer];
    if (n == 0 && l->step == target->step)
        return; /* an empty prediction does not replace another */
    l->step = target->step;
    l->n = n;
    if (experts != l->experts)
        memcpy(l->experts, experts, n * sizeof *experts);
}

void predict_pending_clear(struct predict_pending *k)
{
    for (uint32_t i = 0; i < k->shape.n_layers; i++)
        k->layers[i].n = 0;
    memset(k->ranks, 0, (size_t)k->shape.n_layers * k->shape.n_experts * sizeof *k->ranks);
}

struct predict_hits predict_pending_check(struct predict_pending *k,
                                          const struct predict_seen *seen)
{
    struct layer_kept *l = &k->layers[seen->layer];
    struct predict_hits hits = {0};
    if (l->step != seen->step || !l->n)
        return hits;
    uint32_t n_rows = seen->n_tokens * k->shape.n_used;
    uint32_t m = predict_mark(k->activated, seen->selected, n_rows);
    hits = predict_count_hits(l->experts, l->n, k->activated, m);
    struct predict_hits *ranks = k->ranks + (size_t)seen->layer * k->shape.n_experts;
    for (uint32_t i = 0; i < l->n; i++) {
        ranks[i].predictions++;
        ranks[i].right += k->activated[l->experts[i].expert];
    }
    predict_unmark(k->activated, seen->selected, n_rows);
    l->n = 0;
    return hits;
}

double predict_hit_rate(struct predict_hits hits)
{
    enum { ENOUGH = 100 };
    return hits.predictions >= ENOUGH ? (double)hits.right / (double)hits.predictions : 1;
}

struct sched_upcoming *predict_pending_upcoming(struct predict_pending *k,
                                                const struct predict_target *now, uint32_t n_tokens,
                                                uint32_t *n)
{
    *n = 0;
    for (uint32_t distance = 1; distance <= FARTHEST; distance++) {
        uint32_t layer = now->layer + distance;
        if (layer >= k->shape.n_layers || k->layers[layer].step != now->step)
            continue;
        const struct layer_kept *l = &k->layers[layer];
        const struct predict_hits *ranks = k->ranks + (size_t)layer * k->shape.n_experts;
        for (uint32_t i = 0; i < l->n; i++) {
            double p = (double)l->experts[i].probability;
            k->upcoming[(*n)++] =
                (struct sched_upcoming){.expert = l->experts[i].expert,
                                        .distance = distance,
                                        .workload = (uint32_t)(predict_workload(p, n_tokens) + 0.5),
                                        .probability = p,
                                        .hit_rate = predict_hit_rate(ranks[i])};
        }
    }
    return *n ? k->upcoming : NULL;
}
