/* What was predicted of layers still to come; see predict_kept.h. */
#include "sched/predict_kept.h"

#include <stdlib.h>
#include <string.h>

/* Layers that a plan may look ahead: PreScope's window at its widest. */
enum { FARTHEST = 2 };

struct layer_kept {
    uint64_t step;
    uint32_t n; /* 0: nothing */
    struct predicted *experts;
};

struct predict_kept {
    struct predict_shape shape;
    struct layer_kept *layers;  /* [n_layers] */
    struct predict_hits *ranks; /* [n_layers][n_experts]: by the place in a prediction */
    struct predicted *experts;  /* [n_layers][n_experts] */
    bool *activated;            /* [n_experts]; all false between calls */
    struct sched_ahead *ahead;  /* [FARTHEST][n_experts] */
};

struct predict_kept *predict_kept_new(const struct predict_shape *shape)
{
    struct predict_kept *k = calloc(1, sizeof *k);
    if (!k)
        return NULL;
    k->shape = *shape;
    k->layers = calloc((size_t)shape->n_layers + 1, sizeof *k->layers);
    k->ranks = calloc((size_t)shape->n_layers * shape->n_experts + 1, sizeof *k->ranks);
    k->experts = calloc((size_t)shape->n_layers * shape->n_experts + 1, sizeof *k->experts);
    k->activated = calloc((size_t)shape->n_experts + 1, sizeof *k->activated);
    k->ahead = calloc((size_t)FARTHEST * shape->n_experts + 1, sizeof *k->ahead);
    if (!k->layers || !k->ranks || !k->experts || !k->activated || !k->ahead) {
        predict_kept_free(k);
        return NULL;
    }
    for (uint32_t i = 0; i < shape->n_layers; i++)
        k->layers[i].experts = k->experts + (size_t)i * shape->n_experts;
    return k;
}

void predict_kept_free(struct predict_kept *k)
{
    if (!k)
        return;
    free(k->layers);
    free(k->ranks);
    free(k->experts);
    free(k->activated);
    free(k->ahead);
    free(k);
}

struct predicted *predict_kept_room(struct predict_kept *k, uint32_t layer)
{
    return k->layers[layer].experts;
}

void predict_kept_put(struct predict_kept *k, const struct predict_target *target,
                      const struct predicted *experts, uint32_t n)
{
    struct layer_kept *l = &k->layers[target->layer];
    if (n == 0 && l->step == target->step)
        return; /* who has nothing to say leaves what another has said */
    l->step = target->step;
    l->n = n;
    if (experts != l->experts)
        memcpy(l->experts, experts, n * sizeof *experts);
}

void predict_kept_clear(struct predict_kept *k)
{
    for (uint32_t i = 0; i < k->shape.n_layers; i++)
        k->layers[i].n = 0;
    memset(k->ranks, 0, (size_t)k->shape.n_layers * k->shape.n_experts * sizeof *k->ranks);
}

struct predict_hits predict_kept_check(struct predict_kept *k, const struct predict_seen *seen)
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
        ranks[i].guesses++;
        ranks[i].right += k->activated[l->experts[i].expert];
    }
    predict_unmark(k->activated, seen->selected, n_rows);
    l->n = 0;
    return hits;
}

double predict_hit_rate(struct predict_hits hits)
{
    enum { ENOUGH = 100 };
    return hits.guesses >= ENOUGH ? (double)hits.right / (double)hits.guesses : 1;
}

struct sched_ahead *predict_kept_ahead(struct predict_kept *k, const struct predict_target *now,
                                       uint32_t n_tokens, uint32_t *n)
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
            k->ahead[(*n)++] = (struct sched_ahead){
                .expert = l->experts[i].expert,
                .distance = distance,
                .workload = (uint32_t)(predict_workload(p, n_tokens) + 0.5),
                .probability = p,
                .hit_rate = predict_hit_rate(ranks[i])};
        }
    }
    return *n ? k->ahead : NULL;
}
