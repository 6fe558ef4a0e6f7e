/* moed's cache: what a segment is worth is how often its expert is activated, older activations
 * counting less (half as much after the half-life), over all layers at once. The least valuable
 * resident segment goes, the most valuable absent one comes where there is room. All segments are
 * of one size and a prefix of an expert's is what is kept, so an expert's value is that of each of
 * its segments, and shares between layers and splits of experts follow from it.
 *
 * What is predicted for a layer still to come is worth PREDICTED_COUNTS times what it would be if it were activated so often,
 * until that layer is over: so it comes in, and what is there of it stays. More than once, for it is needed now: if it
 * goes it is missing at once, while what goes for it may have come again by its own turn.
 *
 * A step that activates half of a layer's experts will most likely use what is there of the layers that it has still to come
 * to, so what goes for its loads is of layers that it has passed. (By values alone a prompt's first layers take from its last
 * ones what these then have to load again.)
 *
 * Nothing is decayed: instead each step's activations count more than those of the step before, by
 * 2^(1 / half-life), which leaves the order as it would be and touches only what is activated. Long
 * before the numbers end they are all made smaller by the same power of two. An activation counts
 * by the CPU seconds that it saves to have the expert on the device: where they grow with its
 * tokens, more for more tokens; once a step while costs are not known.
 *
 * Two heaps hold the order: of what has resident segments, the least valuable first; of what lacks
 * some and has been activated, the most valuable first. */
#include "sched/cache_internal.h"
#include "sched/heap.h"

#include <math.h>
#include <stdlib.h>

#define HALF_LIFE_STEPS 32
#define LARGEST         0x1p500
#define MEAN_OVER       256 /* activations */
/* From 2 to 16 the same to 0.2 %; with 1 what was copied for a layer went, unused, for the next copy. */
#define PREDICTED_COUNTS 4

struct value_cache {
    double *values;    /* [layer][expert]: the larger of the next two */
    double *frequency; /* by activations */
    double *predicted; /* for the layer's coming turn; 0: it is not */
    struct heap resident, lacking;
    double now;    /* what an activation counts now */
    double growth; /* from one step to the next */
    double cpu_s, cpu_token_s;
    double saved;         /* by an activation, a moving average; of one token it is 1 */
    uint32_t layers_over; /* of the current step */
    uint32_t n_activated; /* of the current layer */
};

static bool value_init(struct sched_cache *c, const struct sched_cache_options *o)
{
    struct value_cache *v = c->state = calloc(1, sizeof *v);
    if (!v || !(v->values = calloc((size_t)c->n_slabs + 1, sizeof *v->values)) ||
        !(v->frequency = calloc((size_t)c->n_slabs + 1, sizeof *v->frequency)) ||
        !(v->predicted = calloc((size_t)c->n_slabs + 1, sizeof *v->predicted)) ||
        !heap_init(&v->resident, v->values, c->n_slabs, false) ||
        !heap_init(&v->lacking, v->values, c->n_slabs, true))
        return false;
    double half_life = o && o->value_half_life > 0 ? o->value_half_life : HALF_LIFE_STEPS;
    v->now = 1;
    v->saved = 1;
    v->growth = exp2(1 / fmax(half_life, 0.01));
    return true;
}

static void value_fini(struct sched_cache *c)
{
    struct value_cache *v = c->state;
    heap_fini(&v->resident);
    heap_fini(&v->lacking);
    free(v->values);
    free(v->frequency);
    free(v->predicted);
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

static void set_value(struct sched_cache *c, uint32_t slab)
{
    struct value_cache *v = c->state;
    v->values[slab] = fmax(v->frequency[slab], v->predicted[slab]);
    place_both(c, slab);
}

/* CPU seconds that finding the expert on the device saves, by those of one token. */
static double saved_by(const struct value_cache *v, uint32_t workload)
{
    double one = v->cpu_s + v->cpu_token_s;
    return one > 0 && isfinite(one) ? (v->cpu_s + workload * v->cpu_token_s) / one : 1;
}

static void value_costs(struct sched_cache *c, const struct sched_cache_costs *costs)
{
    struct value_cache *v = c->state;
    v->cpu_s = costs->cpu_s;
    v->cpu_token_s = costs->cpu_token_s;
}

static void value_activated(struct sched_cache *c, uint32_t slab, uint32_t workload)
{
    struct value_cache *v = c->state;
    double saved = saved_by(v, workload);
    v->frequency[slab] += v->now * saved;
    v->saved += (saved - v->saved) / MEAN_OVER;
    v->predicted[slab] = 0;
    v->n_activated++;
    set_value(c, slab);
}

static void value_changed(struct sched_cache *c, uint32_t slab, uint32_t before)
{
    place_both(c, slab);
}

/* The smallest may become 0, and equal: the heaps are made anew. */
static void shrink(struct sched_cache *c)
{
    struct value_cache *v = c->state;
    for (uint32_t i = 0; i < c->n_slabs; i++) {
        v->frequency[i] *= 1 / LARGEST;
        v->predicted[i] *= 1 / LARGEST;
        v->values[i] = fmax(v->frequency[i], v->predicted[i]);
    }
    v->now *= 1 / LARGEST;
    heap_rebuild(&v->resident);
    heap_rebuild(&v->lacking);
}

/* What was predicted for the layer and did not come true is worth no more than before. */
static void forget_predictions(struct sched_cache *c, uint32_t layer)
{
    struct value_cache *v = c->state;
    uint32_t first = cache_slab(c, layer, 0);
    for (uint32_t i = first; i < first + c->shape.n_experts; i++)
        if (v->predicted[i] > 0) {
            v->predicted[i] = 0;
            set_value(c, i);
        }
}

/* A step is over when as many layers are as have experts, also where several workers' steps are
 * mixed. */
static void value_step_over(struct sched_cache *c, uint32_t layer)
{
    struct value_cache *v = c->state;
    forget_predictions(c, layer);
    v->n_activated = 0;
    if (++v->layers_over < c->expert_layers)
        return;
    v->layers_over = 0;
    v->now *= v->growth;
    if (v->now >= LARGEST)
        shrink(c);
}

/* A probability is a share of the value, before this step's activation, of an expert that every step activates. */
static double value_of_predicted(const struct value_cache *v, double probability)
{
    return PREDICTED_COUNTS * probability * v->saved * v->now / (v->growth - 1);
}

static void value_predicted(struct sched_cache *c, uint64_t step, uint32_t slab, uint32_t rank,
                            float probability)
{
    struct value_cache *v = c->state;
    v->predicted[slab] = value_of_predicted(v, (double)probability);
    set_value(c, slab);
}

/* The least valuable one of the layers that this step has passed. They are scanned: a heap of all layers has no order for
 * that. */
static bool least_of_passed(const struct sched_cache *c, const struct cache_search *s,
                            uint32_t *slab)
{
    const struct value_cache *v = c->state;
    bool found = false;
    for (uint32_t i = 0; i < cache_slab(c, c->layer, 0); i++)
        if (c->resident[i] && (!found || v->values[i] < v->values[*slab]) &&
            cache_evictable(c, s, i)) {
            *slab = i;
            found = true;
        }
    return found;
}

static bool value_victim(const struct sched_cache *c, const struct cache_search *s, uint32_t *slab)
{
    const struct value_cache *v = c->state;
    uint32_t least;
    bool uses_most = 2 * v->n_activated > c->shape.n_experts;
    if (!(uses_most && least_of_passed(c, s, &least)) &&
        !cache_first_of_heap(c, s, &v->resident, &least))
        return false;
    double worth = fmax(v->values[cache_slab(c, s->layer, s->expert)],
                        value_of_predicted(v, s->probability));
    if (!s->demanded && v->values[least] >= worth)
        return false;
    *slab = least;
    return true;
}

struct search_in {
    const struct sched_cache *cache;
    const struct cache_search *search;
};

static bool may_come(const void *arg, uint32_t slab)
{
    const struct search_in *s = arg;
    return cache_obtainable(s->cache, s->search, slab);
}

static bool value_wanted(struct sched_cache *c, uint64_t free_segments,
                         const struct cache_search *s, uint32_t *slab)
{
    const struct value_cache *v = c->state;
    struct search_in in = {c, s};
    return free_segments && heap_first(&v->lacking, may_come, &in, slab);
}

const struct cache_policy cache_policy_value = {
    .keeps_loads = true,
    .init = value_init,
    .fini = value_fini,
    .activated = value_activated,
    .step_over = value_step_over,
    .changed = value_changed,
    .predicted = value_predicted,
    .costs = value_costs,
    .victim = value_victim,
    .wanted = value_wanted,
};
