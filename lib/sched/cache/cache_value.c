/* moed's cache (ours): an expert is worth the CPU time that it saves to have it on the device.
 * docs/design/caching.md has the reasons and what was tried.
 *
 * Value. Each activation counts by the CPU seconds that it saves: where they grow with the
 * expert's tokens, more for more tokens; once a step while costs are not known. Older activations
 * count less, half as much after the half-life, over all layers. The least valuable resident
 * segment goes; free slots take the most valuable absent one. All segments are of one size and a
 * prefix of an expert is kept, so an expert's value is that of each of its segments, and shares
 * between layers and splits of experts follow from it.
 *
 * Predictions. An expert predicted for a coming layer is worth PREDICTED_COUNTS times what it
 * would be if it were activated that often, until that layer is over. So it comes in, and its
 * resident segments stay. More than once, because it is needed now, while its victim may come back
 * in its own turn.
 *
 * The long run. The next text may be about something else than the last. So an expert is worth
 * USUAL_ACTIVATIONS more, times its share of all activations in the long run by the mean expert's:
 * an estimate from few activations and prior knowledge (the mean of a Poisson rate with a Gamma
 * prior). This part is computed again every USUAL_TURNS steps and decays like the rest until then.
 *
 * Prompts. A step that activates half of a layer's experts will most likely use what is resident
 * of its coming layers, so its loads evict from the layers that it has passed. (By values only,
 * a prompt's first layers would evict segments that its last layers then load again.) Where the
 * next layer is not predicted, as in a prompt, an idle link brings that layer's most valuable
 * absent experts in place of the least valuable ones of the layers passed: nearly all of them will
 * be activated.
 *
 * Decay. Nothing is multiplied: each step's activations count more than the last step's, by 2^(1 /
 * half-life), which leaves the order the same and touches only what is activated. Long before the
 * numbers overflow all are divided by the same power of two.
 *
 * Two heaps hold the order: of the experts with resident segments, the least valuable first; of
 * those that lack some and have been activated, the most valuable first. */
#include "base/arrays.h"
#include "sched/cache/cache_internal.h"
#include "sched/cache/heap.h"
#include "sched/cache/long_run.h"

#include <math.h>

#define HALF_LIFE_STEPS 32
#define LARGEST         0x1p500
#define MEAN_OVER       256 /* activations */
/* With fewer, prefill gains less; with 6 (and no profile) decode lost up to 0.6 %. */
#define USUAL_ACTIVATIONS 4
#define USUAL_TURNS       8 /* steps, layers in turn: one layer of 512 experts takes 13 us */
/* From 2 to 16 the same to 0.2 %; with 1 the next copy evicted unused prefetches of the same layer.
 */
#define PREDICTED_COUNTS 4

struct value_cache {
    double *values;    /* [layer][expert]: the next two added, or the third where it is larger */
    double *frequency; /* by recent activations */
    double *usual;     /* by the long run */
    double *predicted; /* for the layer's coming turn; 0: not predicted */
    struct heap resident, lacking;
    struct long_run long_run;
    double now;    /* the weight of an activation now */
    double growth; /* from one step to the next */
    double cpu_s, cpu_token_s;
    double saved; /* by an activation, a moving average; an activation of one token saves 1 */
    uint32_t layers_over; /* of the current step */
    uint32_t n_activated; /* of the current layer */
};

/* Updates the heaps after an expert's value or segments have changed. */
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

/* Recomputes what a layer's experts are worth by the long run. */
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
    struct value_cache *v, new = {0};
    c->state =
        ARRAYS_NEW(ARRAY(v, 1), ARRAY(new.values, c->n_slabs), ARRAY(new.frequency, c->n_slabs),
                   ARRAY(new.usual, c->n_slabs), ARRAY(new.predicted, c->n_slabs));
    if (!c->state)
        return false;
    *v = new;
    if (!long_run_init(&v->long_run, c->n_slabs, c->expert_layers * c->shape.n_experts,
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
}

/* CPU seconds that an expert on the device saves, in units of one token's. */
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

/* The smallest may become 0, and so equal: the heaps are rebuilt. */
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

/* A prediction for the layer that did not come true adds nothing any more. */
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

/* A step is over after as many layers as have experts, also where several workers' steps mix. */
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

/* A probability scales the value, before this step's activation, of an expert that every step
 * activates. */
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

/* True if the step activates half of a layer's experts. */
static bool uses_most(const struct sched_cache *c)
{
    const struct value_cache *v = c->state;
    return 2 * v->n_activated > c->shape.n_experts;
}

/* True if such a step comes to this layer next and nothing is predicted of it. */
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
    if (!s->demanded && !(s->probability > 0) &&
        is_coming(c, s->layer)) /* a segment that this policy wants */
        return cache_least_of_passed(c, s, v->values, slab);
    if (!(uses_most(c) && cache_least_of_passed(c, s, v->values, &least)) &&
        !cache_first_of_heap(c, s, &v->resident, &least))
        return false;
    double worth =
        fmax(v->values[cache_slab(c, s->layer, s->expert)], value_of_predicted(v, s->probability));
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
