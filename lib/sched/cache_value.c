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
 * ones what these then have to load again.) Where nobody predicts what the next layer will activate, as in a prompt, an idle
 * link brings that one's most valuable absent experts, in the place of the least valuable ones of the layers passed: nearly
 * all of them will be activated.
 *
 * What is served next may be about something else than what was served of late. So an expert is worth USUAL_ACTIVATIONS beside
 * its activations of late, more or fewer of them as it is activated more or less than the mean expert in the long run: an
 * estimate from few activations and from what is known beforehand (the mean of a Poisson rate with a Gamma prior). This part
 * is reckoned anew every USUAL_TURNS steps and decays like the rest until then.
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
#include "sched/long_run.h"

#include <math.h>
#include <stdlib.h>

#define HALF_LIFE_STEPS 32
#define LARGEST         0x1p500
#define MEAN_OVER       256 /* activations */
/* With fewer, prefill gains less from it; with 6 (and no profile) decode lost up to 0.6 %. */
#define USUAL_ACTIVATIONS 4
#define USUAL_TURNS       8 /* steps, layers in turn: it takes 13 us for 512 experts */
/* From 2 to 16 the same to 0.2 %; with 1 what was copied for a layer went, unused, for the next copy. */
#define PREDICTED_COUNTS 4

struct value_cache {
    double *values;    /* [layer][expert]: the next two added, or the third where it is larger */
    double *frequency; /* by activations of late */
    double *usual;     /* by those in the long run */
    double *predicted; /* for the layer's coming turn; 0: it is not */
    struct heap resident, lacking;
    struct long_run long_run;
    double now;    /* what an activation counts now */
    double growth; /* from one step to the next */
    double cpu_s, cpu_token_s;
    double saved;         /* by an activation, a moving average; of one token it is 1 */
    uint32_t layers_over; /* of the current step */
    uint32_t n_activated; /* of the current layer */
};

/* Puts an expert where it belongs, after its value or its segments have changed. */
static void place(struct sched_cache *c, uint32_t slab)
{
    struct value_cache *v = c->state;
    uint32_t limit = c->limit[cache_layer_of(c, slab)];
    heap_place(&v->resident, slab, c->resident[slab] > 0);
    heap_place(&v->lacking, slab, c->resident[slab] < limit && v->values[slab] > 0);
}

static double value_of(const struct value_cache *v, uint32_t slab)
{
    return fmax(v->frequency[slab] + v->usual[slab], v->predicted[slab]);
}

static void set_value(struct sched_cache *c, uint32_t slab)
{
    struct value_cache *v = c->state;
    v->values[slab] = value_of(v, slab);
    place(c, slab);
}

/* What a layer's experts are worth by the long run. */
static void reckon_usual(struct sched_cache *c, uint32_t layer)
{
    struct value_cache *v = c->state;
    uint32_t first = cache_slab(c, layer, 0);
    for (uint32_t i = first; i < first + c->shape.n_experts; i++) {
        v->usual[i] = USUAL_ACTIVATIONS * v->saved * v->now * long_run_share(&v->long_run, i);
        set_value(c, i);
    }
}

static bool value_init(struct sched_cache *c, const struct sched_cache_options *o)
{
    struct value_cache *v = c->state = calloc(1, sizeof *v);
    if (!v || !(v->values = calloc((size_t)c->n_slabs + 1, sizeof *v->values)) ||
        !(v->frequency = calloc((size_t)c->n_slabs + 1, sizeof *v->frequency)) ||
        !(v->usual = calloc((size_t)c->n_slabs + 1, sizeof *v->usual)) ||
        !(v->predicted = calloc((size_t)c->n_slabs + 1, sizeof *v->predicted)) ||
        !long_run_init(&v->long_run, c->n_slabs, c->expert_layers * c->shape.n_experts,
                       o ? o->profile : NULL, c->expert_layers * c->shape.n_used) ||
        !heap_init(&v->resident, v->values, c->n_slabs, false) ||
        !heap_init(&v->lacking, v->values, c->n_slabs, true))
        return false;
    double half_life = o && o->value_half_life > 0 ? o->value_half_life : HALF_LIFE_STEPS;
    v->now = 1;
    v->saved = 1;
    v->growth = exp2(1 / fmax(half_life, 0.01));
    for (uint32_t layer = c->shape.first_layer; layer < c->shape.n_layers; layer++)
        reckon_usual(c, layer);
    return true;
}

static void value_fini(struct sched_cache *c)
{
    struct value_cache *v = c->state;
    heap_fini(&v->resident);
    heap_fini(&v->lacking);
    long_run_fini(&v->long_run);
    free(v->values);
    free(v->frequency);
    free(v->usual);
    free(v->predicted);
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
    long_run_count(&v->long_run, slab, saved);
    v->predicted[slab] = 0;
    v->n_activated++;
    set_value(c, slab);
}

static void value_changed(struct sched_cache *c, uint32_t slab, uint32_t before)
{
    place(c, slab);
}

/* The smallest may become 0, and equal: the heaps are made anew. */
static void shrink(struct sched_cache *c)
{
    struct value_cache *v = c->state;
    for (uint32_t i = 0; i < c->n_slabs; i++) {
        v->frequency[i] *= 1 / LARGEST;
        v->usual[i] *= 1 / LARGEST;
        v->predicted[i] *= 1 / LARGEST;
        v->values[i] = value_of(v, i);
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
    if ((v->long_run.steps + layer) % USUAL_TURNS == 0)
        reckon_usual(c, layer);
    v->n_activated = 0;
    if (++v->layers_over < c->expert_layers)
        return;
    v->layers_over = 0;
    v->now *= v->growth;
    long_run_step_over(&v->long_run);
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

/* Does the step activate half of a layer's experts? */
static bool uses_most(const struct sched_cache *c)
{
    const struct value_cache *v = c->state;
    return 2 * v->n_activated > c->shape.n_experts;
}

/* Is this the layer that such a step comes to next, of which nothing is predicted? */
static bool is_coming(const struct sched_cache *c, uint32_t layer)
{
    const struct value_cache *v = c->state;
    if (!uses_most(c) || layer != c->layer + 1 || layer >= c->shape.n_layers)
        return false;
    uint32_t first = cache_slab(c, layer, 0);
    for (uint32_t i = first; i < first + c->shape.n_experts; i++)
        if (v->predicted[i] > 0)
            return false;
    return true;
}

static bool value_victim(const struct sched_cache *c, const struct cache_search *s, uint32_t *slab)
{
    const struct value_cache *v = c->state;
    uint32_t least;
    if (!s->demanded && !(s->probability > 0) && is_coming(c, s->layer)) /* its own wish */
        return cache_least_of_passed(c, s, v->values, slab);
    if (!(uses_most(c) && cache_least_of_passed(c, s, v->values, &least)) &&
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
    uint32_t next = c->layer + 1;
    if (is_coming(c, next) && cache_most_lacking(c, s, next, v->values, slab))
        return true;
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
