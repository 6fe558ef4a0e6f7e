/* The most activated experts of a profile, fixed: PreScope's hot experts. Under `global` as in its
 * section 5: "identified offline by ranking all (layer, expert_id) pairs by empirical activation
 * frequency", and of those "the top-ranked experts up to the computed limit", which is what the
 * device holds less the prefetch buffers. Of equal counts the lower layer goes first, and the
 * lower number.
 *
 * `moed train` counts the profile. Departures: without one the first STEPS_SEEN steps serve as the
 * profile, of a layer or, under `global`, of all; until then nothing is kept. Under `uniform` each
 * layer has an equal share. Where the limit is not a whole number of experts it ends with the
 * first segments of the next one. */
#include "base/arrays.h"
#include "sched/cache/cache_target.h"

#include <stdlib.h>

#define STEPS_SEEN 32

struct ranked {
    uint64_t tokens;
    uint32_t slab;
};

struct hot_set {
    struct cache_target target;
    uint64_t *tokens;      /* [layer][expert] */
    uint32_t *steps;       /* [layer] seen so far; STEPS_SEEN: enough */
    uint32_t layers_left;  /* layers that have not seen enough */
    struct ranked *ranked; /* [layer][expert]: scratch */
    uint64_t buffers;      /* segments left to prefetches */
};

static int compare(const void *a, const void *b)
{
    const struct ranked *x = a, *y = b;
    return x->tokens != y->tokens ? (x->tokens < y->tokens) - (x->tokens > y->tokens)
                                  : (x->slab > y->slab) - (x->slab < y->slab);
}

/* Fixes the hottest experts of layers [first, end), as many as fill `segments`. */
static void fix(struct sched_cache *c, uint32_t first, uint32_t end, uint64_t segments)
{
    struct hot_set *h = c->state;
    size_t n = 0;
    for (uint32_t i = cache_slab(c, first, 0); i < cache_slab(c, end, 0); i++)
        h->ranked[n++] = (struct ranked){h->tokens[i], i};
    qsort(h->ranked, n, sizeof *h->ranked, compare);
    for (size_t i = 0; i < n && segments; i++) {
        uint32_t limit = c->limit[cache_layer_of(c, h->ranked[i].slab)];
        uint32_t taken = segments < limit ? (uint32_t)segments : limit;
        cache_target_set(c, &h->target, h->ranked[i].slab, taken);
        segments -= taken;
    }
}

/* A layer has seen enough steps, or has a profile. */
static void layer_is_known(struct sched_cache *c, uint32_t layer)
{
    struct hot_set *h = c->state;
    uint64_t share = h->buffers / (c->expert_layers ? c->expert_layers : 1);
    h->steps[layer] = STEPS_SEEN;
    h->layers_left--;
    if (c->budget == BUDGET_UNIFORM)
        fix(c, layer, layer + 1, c->layer_share > share ? c->layer_share - share : 0);
    else if (h->layers_left == 0)
        fix(c, c->shape.first_layer, c->shape.n_layers, c->shape.capacity - h->buffers);
}

static bool static_init(struct sched_cache *c, const struct sched_cache_options *o)
{
    struct hot_set *h, new = {0};
    c->state = ARRAYS_NEW(ARRAY(h, 1), ARRAY(new.tokens, c->n_slabs),
                          ARRAY(new.steps, c->shape.n_layers), ARRAY(new.ranked, c->n_slabs));
    if (!c->state)
        return false;
    *h = new;
    if (!cache_target_init(c, &h->target))
        return false;
    h->layers_left = c->expert_layers;
    h->buffers = !o ? 0 : o->buffers < c->shape.capacity ? o->buffers : c->shape.capacity;
    if (!o || !o->profile)
        return true;
    for (uint32_t i = 0; i < c->n_slabs; i++)
        h->tokens[i] = o->profile[i];
    for (uint32_t layer = c->shape.first_layer; layer < c->shape.n_layers; layer++)
        layer_is_known(c, layer);
    return true;
}

static void static_fini(struct sched_cache *c)
{
    struct hot_set *h = c->state;
    cache_target_fini(&h->target);
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
        layer_is_known(c, layer);
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
