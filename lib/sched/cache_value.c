/* moed's cache: what a segment is worth is how often its expert is activated, older activations
 * counting less (half as much after the half-life), over all layers at once. The least valuable
 * resident segment goes, the most valuable absent one comes where there is room. All segments are
 * of one size and a prefix of an expert's is what is kept, so an expert's value is that of each of
 * its segments, and shares between layers and splits of experts follow from it. What is predicted for the coming
 * layer is worth at least its probability, as if it were activated so often.
 *
 * Nothing is decayed: instead each step's activations count more than those of the step before, by
 * 2^(1 / half-life), which leaves the order as it would be and touches only what is activated. Long
 * before the numbers end they are all made smaller by the same power of two. An activation counts
 * once a step, whatever its tokens: a copy saves one load.
 *
 * Two heaps hold the order: of what has resident segments, the least valuable first; of what lacks
 * some and has been activated, the most valuable first. */
#include "sched/cache_internal.h"
#include "sched/heap.h"

#include <math.h>
#include <stdlib.h>

#define HALF_LIFE_STEPS 64
#define LARGEST         0x1p500

struct value_cache {
    double *values; /* [layer][expert] */
    struct heap resident, lacking;
    double now;           /* what an activation counts now */
    double growth;        /* from one step to the next */
    uint32_t layers_over; /* of the current step */
};

static bool value_init(struct sched_cache *c, const struct sched_cache_options *o)
{
    struct value_cache *v = c->state = calloc(1, sizeof *v);
    if (!v || !(v->values = calloc((size_t)c->n_slabs + 1, sizeof *v->values)) ||
        !heap_init(&v->resident, v->values, c->n_slabs, false) ||
        !heap_init(&v->lacking, v->values, c->n_slabs, true))
        return false;
    double half_life = o && o->value_half_life > 0 ? o->value_half_life : HALF_LIFE_STEPS;
    v->now = 1;
    v->growth = exp2(1 / fmax(half_life, 0.01));
    return true;
}

static void value_fini(struct sched_cache *c)
{
    struct value_cache *v = c->state;
    heap_fini(&v->resident);
    heap_fini(&v->lacking);
    free(v->values);
}

/* Puts an expert where it belongs, after its value or its segments have changed. */
static void place(struct heap *h, uint32_t slab, bool belongs)
{
    if (heap_has(h, slab) && belongs)
        heap_moved(h, slab);
    else if (belongs)
        heap_insert(h, slab);
    else if (heap_has(h, slab))
        heap_remove(h, slab);
}

static void place_both(struct sched_cache *c, uint32_t slab)
{
    struct value_cache *v = c->state;
    uint32_t limit = c->limit[cache_layer_of(c, slab)];
    place(&v->resident, slab, c->resident[slab] > 0);
    place(&v->lacking, slab, c->resident[slab] < limit && v->values[slab] > 0);
}

static void value_activated(struct sched_cache *c, uint32_t slab, uint32_t workload)
{
    struct value_cache *v = c->state;
    v->values[slab] += v->now;
    place_both(c, slab);
}

static void value_changed(struct sched_cache *c, uint32_t slab, uint32_t before)
{
    place_both(c, slab);
}

/* The smallest may become 0, and equal: the heaps are made anew. */
static void shrink(struct sched_cache *c)
{
    struct value_cache *v = c->state;
    for (uint32_t i = 0; i < c->n_slabs; i++)
        v->values[i] *= 1 / LARGEST;
    v->now *= 1 / LARGEST;
    heap_rebuild(&v->resident);
    heap_rebuild(&v->lacking);
}

/* A step is over when as many layers are as have experts, also where several workers' steps are
 * mixed. */
static void value_step_over(struct sched_cache *c, uint32_t layer)
{
    struct value_cache *v = c->state;
    if (++v->layers_over < c->expert_layers)
        return;
    v->layers_over = 0;
    v->now *= v->growth;
    if (v->now >= LARGEST)
        shrink(c);
}

struct search_in {
    const struct sched_cache *cache;
    const struct cache_search *search;
};

static bool may_go(const void *arg, uint32_t slab)
{
    const struct search_in *s = arg;
    return cache_evictable(s->cache, s->search, slab);
}

/* The value, before this step's activation, of an expert that every step activates: what a probability is a share
 * of. */
static double value_of_always(const struct value_cache *v)
{
    return v->now / (v->growth - 1);
}

static bool value_victim(const struct sched_cache *c, const struct cache_search *s, uint32_t *slab)
{
    const struct value_cache *v = c->state;
    struct search_in in = {c, s};
    uint32_t least;
    if (!heap_first(&v->resident, may_go, &in, &least))
        return false;
    double worth =
        fmax(v->values[cache_slab(c, s->layer, s->expert)], s->probability * value_of_always(v));
    if (!s->demanded && v->values[least] >= worth)
        return false;
    *slab = least;
    return true;
}

static bool value_wanted(struct sched_cache *c, uint64_t free_segments, uint32_t *slab)
{
    const struct value_cache *v = c->state;
    if (!free_segments || !v->lacking.n)
        return false;
    *slab = v->lacking.items[0];
    return true;
}

const struct cache_policy cache_policy_value = {
    .keeps_loads = true,
    .init = value_init,
    .fini = value_fini,
    .activated = value_activated,
    .step_over = value_step_over,
    .changed = value_changed,
    .victim = value_victim,
    .wanted = value_wanted,
};
