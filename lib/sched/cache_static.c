/* The experts most activated in a profile, fixed, each layer with an equal share (PreScope's hot
 * experts without the rest). Without a profile, a layer's first STEPS_SEEN steps are one, and until
 * then nothing is kept.
 *
 * A share that is not a whole number of experts ends with the first segments of the next one. */
#include "sched/cache_target.h"

#include <stdlib.h>

#define STEPS_SEEN 32

struct hot_set {
    struct cache_target target;
    uint64_t *tokens; /* [layer][expert] */
    uint32_t *steps;  /* [layer] seen so far; STEPS_SEEN: the layer is fixed */
};

/* The untaken expert with the most tokens, of equal ones the first. */
static uint32_t hottest(const struct sched_cache *c, const struct hot_set *h, uint32_t layer)
{
    uint32_t first = cache_slab(c, layer, 0), best = c->n_slabs;
    for (uint32_t i = first; i < first + c->shape.n_experts; i++)
        if (!h->target.segments[i] && (best == c->n_slabs || h->tokens[i] > h->tokens[best]))
            best = i;
    return best;
}

static void fix_layer(struct sched_cache *c, uint32_t layer)
{
    struct hot_set *h = c->state;
    uint64_t left = c->layer_share;
    for (uint32_t n = 0; n < c->shape.n_experts && left; n++) {
        uint32_t segments = left < c->limit[layer] ? (uint32_t)left : c->limit[layer];
        cache_target_set(c, &h->target, hottest(c, h, layer), segments);
        left -= segments;
    }
    h->steps[layer] = STEPS_SEEN;
}

static bool static_init(struct sched_cache *c, const struct sched_cache_options *o)
{
    struct hot_set *h = c->state = calloc(1, sizeof *h);
    if (!h || !cache_target_init(c, &h->target))
        return false;
    h->tokens = calloc((size_t)c->n_slabs + 1, sizeof *h->tokens);
    h->steps = calloc((size_t)c->shape.n_layers + 1, sizeof *h->steps);
    if (!h->tokens || !h->steps)
        return false;
    if (!o || !o->profile)
        return true;
    for (uint32_t i = 0; i < c->n_slabs; i++)
        h->tokens[i] = o->profile[i];
    for (uint32_t layer = c->shape.first_layer; layer < c->shape.n_layers; layer++)
        fix_layer(c, layer);
    return true;
}

static void static_fini(struct sched_cache *c)
{
    struct hot_set *h = c->state;
    cache_target_fini(&h->target);
    free(h->tokens);
    free(h->steps);
}

static void static_activated(struct sched_cache *c, uint32_t slab, uint32_t workload)
{
    struct hot_set *h = c->state;
    h->tokens[slab] += workload;
}

static void static_step_over(struct sched_cache *c, uint32_t layer)
{
    struct hot_set *h = c->state;
    if (h->steps[layer] < STEPS_SEEN && ++h->steps[layer] == STEPS_SEEN)
        fix_layer(c, layer);
}

static void static_changed(struct sched_cache *c, uint32_t slab, uint32_t before)
{
    struct hot_set *h = c->state;
    cache_target_changed(c, &h->target, slab, before);
}

static bool static_victim(const struct sched_cache *c, const struct cache_search *s, uint32_t *slab)
{
    const struct hot_set *h = c->state;
    return cache_target_victim(c, &h->target, s, slab);
}

static bool static_wanted(struct sched_cache *c, uint64_t free_segments,
                          const struct cache_search *s, uint32_t *slab)
{
    const struct hot_set *h = c->state;
    return cache_target_wanted(c, &h->target, free_segments, s, slab);
}

const struct cache_policy cache_policy_static = {
    .keeps_loads = false,
    .init = static_init,
    .fini = static_fini,
    .activated = static_activated,
    .step_over = static_step_over,
    .changed = static_changed,
    .victim = static_victim,
    .wanted = static_wanted,
};
