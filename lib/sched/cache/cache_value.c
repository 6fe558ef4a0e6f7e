/* moed's cache (ours): an expert is worth the CPU time that it saves to have it on the device.
 * docs/design/caching.md has the reasons and what was tried.
 *
 * Value. Each activation counts by the CPU seconds that it saves: where they grow with the
 * expert's tokens, more for more tokens; once a step while costs are not known. Older activations
 * count less, half as much after the half-life. half_lives.h counts with several half-lives and
 * chooses the one that would have found the most on the device lately; an expert that its layer's
 * last turn activated counts more. The least valuable resident segment goes; free slots take the
 * most valuable absent one. All segments are of one size and a prefix of an expert is kept, so an
 * expert's value is that of each of its segments. Shares between layers and splits of experts
 * follow from it.
 *
 * Layers. In the middle of a step some layers have had their turn and others not. An expert of a
 * layer that is still to come counts as much as if one step less had passed, because its layer's
 * activations of this step are missing, and one step less again, because it is used sooner. Without
 * this, loads of the first layers evict what the last layers are about to use. And the sooner a
 * layer's turn comes, the more its experts count, up to SOONER: of two marginal experts the one
 * that is used sooner is used once more before it goes.
 *
 * Predictions. An expert predicted for a coming layer is worth PREDICTED_COUNTS times what it
 * would be if it were activated that often, until that layer is over. So it comes in, and its
 * resident segments stay. More than once, because it is needed now, while its victim may come back
 * in its own turn.
 *
 * The long run. The next text may be about something else than the last. So an expert is worth
 * USUAL_SHARE of one that every step activates more, times its share of all activations in the long
 * run by the mean expert's: an estimate from few activations and prior knowledge (the mean of a
 * Poisson rate with a Gamma prior). This part is computed again every USUAL_TURNS steps and decays
 * like the rest until then.
 *
 * Prompts. A prompt that activates half of a layer's experts will most likely use what is resident
 * of its coming layers. So its loads evict from the layers that it has passed. (By values only, a
 * prompt's first layers would evict segments that its last layers then load again.) A batch of
 * answers may activate as many, but the next step comes back to the passed layers. Answers that
 * activate all of a layer's experts count as a prompt: all layers are needed in turn. Where the
 * next layer is not predicted, as in a prompt, an idle link prefetches that layer's most valuable
 * absent experts in place of the least valuable ones of the layers passed: if the tokens of the
 * last layer that lacked experts were MIN_TOKENS_PER_ABSENT or more for each of these. Otherwise
 * experts of passed layers go only for absent ones that are worth EVICT_AHEAD_RATIO times as much.
 *
 * Exchanges. The CPU may compute misses sooner than the link brings them. Where nothing is
 * predicted either, nothing enters the cache then, however often it is activated. So while the link
 * is idle, the most valuable absent expert replaces the least valuable resident one: if it is worth
 * EXCHANGE_RATIO times as much, and if it should save more than the copy costs. Not in prompts, and
 * not beside predictions (transfer_jobs.c).
 *
 * Heaps hold the order: for each layer, of the experts with resident segments, the least valuable
 * first; for all layers, of those that lack some and have been activated, the most valuable
 * first. */
#include "base/arrays.h"
#include "sched/cache/cache_internal.h"
#include "sched/cache/half_lives.h"
#include "sched/cache/heap.h"
#include "sched/cache/long_run.h"

#include <math.h>

#define MEAN_OVER 256 /* activations */
/* With none, prompts lose up to 5 %; with twice as much, decoding of local text up to 3 %. */
#define USUAL_SHARE (1.0 / 24)
#define USUAL_TURNS 8 /* steps, layers in turn: one layer of 512 experts takes 13 us */
/* From 2 to 16 the same to 0.2 %; with 1 the next copy evicted unused prefetches of the same layer.
 */
#define PREDICTED_COUNTS 4

/* The half-lives observe one in so many of a layer's experts in each step, other ones each time. */
#define OBSERVED_TURNS 8
/* One turn of those that a marginal expert stays. 0 and 0.5 give the same speed within 0.3 % on
 * average. */
#define SOONER (1.0 / LAST_TURN_STAYS)

/* A prefetch in a prompt costs two copies: the evicted expert is loaded again in the next step. */
#define MIN_TOKENS_PER_ABSENT 2
/* With 1, what is evicted is often loaded again in the next step; from 1.5 to 4 it is the same. */
#define EVICT_AHEAD_RATIO 2
/* With 1.5, two experts of about the same value take turns. With 2 a link as fast as the memory
 * loses up to 1 % more, with 3 a slow one saves up to 2 % less. */
#define EXCHANGE_RATIO 3
#define DOUBT          1

struct value_cache {
    /* [layer][expert]: by recent activations and the next one added, or the last where it is larger
     */
    double *values;
    double *usual;     /* by the long run */
    double *predicted; /* for the layer's coming turn; 0: not predicted */
    bool *absent;      /* nothing of it was resident when the layer before was routed */
    struct half_lives recent;
    struct heap *resident; /* [layers], of a layer's experts */
    struct heap lacking;   /* of all slabs */
    struct long_run long_run;
    double cpu_s, cpu_token_s;
    double sooner; /* SOONER by the number of layers */
    double saved;  /* by an activation, a moving average; an activation of one token saves 1 */
    uint32_t layers_over;     /* of the current step */
    uint32_t n_activated;     /* of the current layer */
    uint32_t n_absent;        /* of the current layer's experts, */
    uint64_t absent_tokens;   /* and the tokens that activated these */
    double tokens_per_absent; /* in the last layer of a step that uses most and lacked some */
    uint32_t noted_layer;     /* the next layer, whose `absent` is set; UINT32_MAX: none */
    uint32_t noted_absent;    /* how many of it are */
};

/* Updates the heaps after an expert's value or segments have changed. */
static void place(struct sched_cache *c, uint32_t slab)
{
    struct value_cache *v = c->state;
    uint32_t limit = c->limit[cache_layer_of(c, slab)];
    heap_place(&v->resident[cache_layer_of(c, slab)], slab % c->shape.n_experts,
               c->resident[slab] > 0);
    heap_place(&v->lacking, slab, c->resident[slab] < limit && v->values[slab] > 0);
}

static double value_of(const struct value_cache *v, uint32_t slab)
{
    return fmax(half_lives_recent(&v->recent, slab) + v->usual[slab], v->predicted[slab]);
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
    double worth = USUAL_SHARE * v->saved * half_lives_always(&v->recent);
    for (uint32_t i = first; i < first + c->shape.n_experts; i++) {
        v->usual[i] = worth * long_run_share(&v->long_run, i);
        set_value(c, i);
    }
}

static bool init_resident(struct sched_cache *c)
{
    struct value_cache *v = c->state;
    bool ok = true;
    for (uint32_t layer = 0; layer < c->shape.n_layers; layer++)
        ok &= heap_init(&v->resident[layer], v->values + cache_slab(c, layer, 0),
                        c->shape.n_experts, false);
    return ok;
}

static bool value_init(struct sched_cache *c, const struct sched_cache_options *o)
{
    struct value_cache *v, new = {0};
    c->state = ARRAYS_NEW(ARRAY(v, 1), ARRAY(new.values, c->n_slabs), ARRAY(new.usual, c->n_slabs),
                          ARRAY(new.predicted, c->n_slabs), ARRAY(new.absent, c->n_slabs),
                          ARRAY(new.resident, c->shape.n_layers));
    if (!c->state)
        return false;
    *v = new;
    if (!long_run_init(&v->long_run, c->n_slabs, c->expert_layers * c->shape.n_experts,
                       o ? o->profile : NULL, c->expert_layers * c->shape.n_used) ||
        !half_lives_init(&v->recent, c->n_slabs, cache_capacity_experts(c),
                         o ? o->value_half_life : 0) ||
        !init_resident(c) || !heap_init(&v->lacking, v->values, c->n_slabs, true))
        return false;
    v->saved = 1;
    v->sooner = SOONER / c->shape.n_layers;
    v->noted_layer = UINT32_MAX;
    for (uint32_t layer = c->shape.first_layer; layer < c->shape.n_layers; layer++)
        reckon_usual(c, layer);
    return true;
}

static void value_fini(struct sched_cache *c)
{
    struct value_cache *v = c->state;
    for (uint32_t layer = 0; layer < c->shape.n_layers; layer++)
        heap_fini(&v->resident[layer]);
    heap_fini(&v->lacking);
    half_lives_fini(&v->recent);
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

/* Segments of an expert, in experts. */
static double share_of(const struct sched_cache *c, uint32_t slab, uint32_t segments)
{
    uint32_t limit = c->limit[cache_layer_of(c, slab)];
    return limit ? (double)segments / limit : 0;
}

static void note_absent(struct sched_cache *c, uint32_t layer)
{
    struct value_cache *v = c->state;
    uint32_t first = cache_slab(c, layer, 0);
    v->noted_layer = layer;
    v->noted_absent = 0;
    for (uint32_t i = first; i < first + c->shape.n_experts; i++)
        v->noted_absent += v->absent[i] = c->resident[i] == 0;
}

/* The first of the layer's activations. */
static void begin_layer(struct sched_cache *c, uint32_t layer)
{
    struct value_cache *v = c->state;
    if (v->noted_layer != layer) /* no layer was routed before this one in its step */
        note_absent(c, layer);
    v->n_absent = v->noted_absent;
    v->noted_layer = UINT32_MAX;
    if (layer + 1 < c->shape.n_layers)
        note_absent(c, layer + 1);
}

static void value_activated(struct sched_cache *c, uint32_t slab, uint32_t workload)
{
    struct value_cache *v = c->state;
    double saved = saved_by(v, workload);
    half_lives_missed(&v->recent,
                      share_of(c, slab, c->limit[cache_layer_of(c, slab)] - c->resident[slab]));
    half_lives_count(&v->recent, slab, saved, c->prompt);
    v->saved += (saved - v->saved) / MEAN_OVER;
    long_run_count(&v->long_run, slab, saved);
    v->predicted[slab] = 0;
    if (v->n_activated++ == 0)
        begin_layer(c, cache_layer_of(c, slab));
    v->absent_tokens += v->absent[slab] ? workload : 0;
    set_value(c, slab);
}

static void value_changed(struct sched_cache *c, uint32_t slab, uint32_t before)
{
    struct value_cache *v = c->state;
    if (c->resident[slab] > before)
        half_lives_arrived(&v->recent, share_of(c, slab, c->resident[slab] - before));
    place(c, slab);
}

/* Recomputes all values, of which the parts that are not counts are now `scale` times what they
 * were. The smallest may become 0, and so equal: the heaps are rebuilt. */
static void revalue(struct sched_cache *c, double scale)
{
    struct value_cache *v = c->state;
    for (uint32_t i = 0; i < c->n_slabs; i++) {
        v->usual[i] *= scale;
        v->predicted[i] *= scale;
        v->values[i] = value_of(v, i);
    }
    for (uint32_t layer = 0; layer < c->shape.n_layers; layer++)
        heap_rebuild(&v->resident[layer]);
    heap_rebuild(&v->lacking);
}

static bool uses_most(const struct sched_cache *c)
{
    const struct value_cache *v = c->state;
    return sched_cache_streams(c->prompt, v->n_activated, c->shape.n_experts);
}

/* What counted for the layer's turn counts no more: what the turn before activated, and predictions
 * that did not come true. */
static void end_turn(struct sched_cache *c, uint32_t layer)
{
    struct value_cache *v = c->state;
    uint32_t first = cache_slab(c, layer, 0);
    for (uint32_t i = first; i < first + c->shape.n_experts; i++) {
        bool changes = half_lives_turn_over(&v->recent, i);
        changes |= v->predicted[i] > 0;
        v->predicted[i] = 0;
        if (changes)
            set_value(c, i);
    }
}

static double tokens_per_absent(const struct value_cache *v)
{
    return v->n_absent ? (double)v->absent_tokens / v->n_absent : v->tokens_per_absent;
}

/* A step is over after as many layers as have experts, also where several workers' steps mix. */
static void value_step_over(struct sched_cache *c, uint32_t layer)
{
    struct value_cache *v = c->state;
    uint32_t first = cache_slab(c, layer, 0);
    if (!c->prompt)
        half_lives_observe(&v->recent, first + v->long_run.steps % OBSERVED_TURNS,
                           first + c->shape.n_experts, OBSERVED_TURNS);
    end_turn(c, layer);
    if ((v->long_run.steps + layer) % USUAL_TURNS == 0)
        reckon_usual(c, layer);
    half_lives_layer_over(&v->recent, !c->prompt && !uses_most(c));
    if (uses_most(c))
        v->tokens_per_absent = tokens_per_absent(v);
    v->n_activated = 0;
    v->absent_tokens = 0;
    if (++v->layers_over < c->expert_layers)
        return;
    v->layers_over = 0;
    double before = half_lives_always(&v->recent);
    enum half_lives_change change = half_lives_step_over(&v->recent);
    long_run_step_over(&v->long_run);
    if (change == HALF_LIVES_RESCALED)
        revalue(c, half_lives_scale());
    if (change == HALF_LIVES_CHANGED)
        revalue(c, half_lives_always(&v->recent) / before);
}

/* A probability scales the value, before this step's activation, of an expert that every step
 * activates. */
static double value_of_predicted(const struct value_cache *v, double probability)
{
    return PREDICTED_COUNTS * probability * v->saved * half_lives_always(&v->recent);
}

static void value_predicted(struct sched_cache *c, uint64_t step, uint32_t slab, uint32_t rank,
                            float probability)
{
    struct value_cache *v = c->state;
    v->predicted[slab] = value_of_predicted(v, (double)probability);
    set_value(c, slab);
}

/* True if a step that activates most experts comes to this layer next, nothing is predicted of it,
 * and what it lacks will be activated, going by the last layer. */
static bool is_coming(const struct sched_cache *c, uint32_t layer)
{
    const struct value_cache *v = c->state;
    if (!uses_most(c) || layer != c->layer + 1 || layer >= c->shape.n_layers ||
        tokens_per_absent(v) < MIN_TOKENS_PER_ABSENT)
        return false;
    uint32_t first = cache_slab(c, layer, 0);
    for (uint32_t i = first; i < first + c->shape.n_experts; i++)
        if (v->predicted[i] > 0)
            return false;
    return true;
}

/* What a value of this layer counts now by the place in the step. */
static double by_turn(const struct sched_cache *c, uint32_t layer)
{
    const struct value_cache *v = c->state;
    double growth = half_lives_used(&v->recent)->growth;
    bool is_to_come = layer > c->layer;
    uint32_t n = c->shape.n_layers, until = is_to_come ? layer - c->layer : layer + n - c->layer;
    return (is_to_come ? growth * growth : 1) * (1 + v->sooner * (n - until));
}

static void value_resized(struct sched_cache *c)
{
    struct value_cache *v = c->state;
    half_lives_resize(&v->recent, cache_capacity_experts(c));
}

struct search_in {
    const struct sched_cache *cache;
    const struct cache_search *search;
    uint32_t first; /* slab of the heap's first item */
};

static bool may_go(const void *arg, uint32_t item)
{
    const struct search_in *s = arg;
    return cache_evictable(s->cache, s->search, s->first + item);
}

/* The evictable expert that counts least now, of the layers before `end`; its value by turn in
 * *least. */
static bool least_resident(const struct sched_cache *c, const struct cache_search *s, uint32_t end,
                           uint32_t *slab, double *least)
{
    const struct value_cache *v = c->state;
    bool found = false;
    for (uint32_t layer = c->shape.first_layer; layer < end; layer++) {
        const struct heap *h = &v->resident[layer];
        struct search_in in = {c, s, cache_slab(c, layer, 0)};
        double turn = by_turn(c, layer);
        uint32_t item;
        if (h->n == 0 || (found && h->values[h->items[0]] * turn >= *least))
            continue;
        if (heap_first(h, may_go, &in, &item) && (!found || h->values[item] * turn < *least)) {
            *slab = in.first + item;
            *least = h->values[item] * turn;
            found = true;
        }
    }
    return found;
}

static bool value_least(const struct sched_cache *c, const struct cache_search *s, uint32_t *slab)
{
    double value;
    return least_resident(c, s, c->shape.n_layers, slab, &value);
}

/* In a step that activates most experts: of the layers up to the one routed last. While that one is
 * computed, its experts are blocked. */
static bool least_of_passed(const struct sched_cache *c, const struct cache_search *s,
                            uint32_t *slab, double *least)
{
    return uses_most(c) && least_resident(c, s, c->layer + 1, slab, least);
}

static bool value_victim(const struct sched_cache *c, const struct cache_search *s, uint32_t *slab)
{
    const struct value_cache *v = c->state;
    uint32_t least;
    double value = 0, turn = by_turn(c, s->layer);
    if (!s->demanded && !(s->probability > 0) &&
        is_coming(c, s->layer)) /* a segment that this policy wants */
        return least_of_passed(c, s, slab, &value);
    if (!least_of_passed(c, s, &least, &value) &&
        !least_resident(c, s, c->shape.n_layers, &least, &value))
        return false;
    double worth =
        fmax(v->values[cache_slab(c, s->layer, s->expert)], value_of_predicted(v, s->probability));
    if (!s->demanded && value >= worth * turn)
        return false;
    *slab = least;
    return true;
}

static bool may_come(const void *arg, uint32_t slab)
{
    const struct search_in *s = arg;
    return cache_obtainable(s->cache, s->search, slab);
}

/* The most valuable expert of the next layer that lacks some. */
static bool most_lacking(const struct sched_cache *c, const struct cache_search *s, uint32_t layer,
                         uint32_t *slab)
{
    const struct value_cache *v = c->state;
    uint32_t first = cache_slab(c, layer, 0);
    bool found = false;
    for (uint32_t i = first; i < first + c->shape.n_experts; i++)
        if (c->resident[i] < c->limit[layer] && (!found || v->values[i] > v->values[*slab]) &&
            cache_obtainable(c, s, i)) {
            *slab = i;
            found = true;
        }
    return found;
}

static bool value_passed(const struct sched_cache *c, const struct cache_search *s, uint32_t *slab)
{
    const struct value_cache *v = c->state;
    struct cache_search obtainable = {.blocked = s->unobtainable, .arg = s->arg};
    struct search_in in = {c, &obtainable, 0};
    uint32_t next = c->layer + 1, best;
    double least;
    if (next >= c->shape.n_layers || !least_of_passed(c, s, slab, &least))
        return false;
    if (is_coming(c, next) && c->layer_resident[next] < c->shape.n_experts * c->limit[next])
        return true;
    return heap_first(&v->lacking, may_come, &in, &best) &&
           v->values[best] * by_turn(c, cache_layer_of(c, best)) > EVICT_AHEAD_RATIO * least;
}

static bool value_wanted(struct sched_cache *c, uint64_t free_segments,
                         const struct cache_search *s, uint32_t *slab)
{
    const struct value_cache *v = c->state;
    struct search_in in = {c, s, 0};
    uint32_t next = c->layer + 1;
    if (is_coming(c, next) && most_lacking(c, s, next, slab))
        return true;
    return free_segments && heap_first(&v->lacking, may_come, &in, slab);
}

/* CPU seconds that a segment of one expert saves over one of another. Counts last for as long as
 * their half-life says, the last turn for LAST_TURN_STAYS turns. Two counts that chance has made
 * differ are expected to be alike again: counts of activations have about half their number as
 * variance, and DOUBT deviations do not count. */
static double saved_over(const struct value_cache *v, uint32_t slab, uint32_t victim)
{
    const struct half_lives *h = &v->recent;
    const struct half_life *u = half_lives_used(h);
    double a = h->counts[slab][h->used], b = h->counts[victim][h->used];
    double turn_a = half_lives_recent(h, slab) - a, turn_b = half_lives_recent(h, victim) - b;
    double doubt = DOUBT * sqrt((a + b) / 2 * u->now * v->saved);
    double lasting = a + v->usual[slab] - b - v->usual[victim] - doubt;
    double counted = lasting / (u->growth - 1) + (turn_a - turn_b) * LAST_TURN_STAYS;
    return counted / half_lives_always(h) * (v->cpu_s + v->cpu_token_s);
}

struct exchange_search {
    struct search_in in;
    double too_small; /* a value that no turn makes worth an exchange: the search ends there */
};

static bool ends_search(const void *arg, uint32_t slab)
{
    const struct exchange_search *x = arg;
    const struct value_cache *v = x->in.cache->state;
    return v->values[slab] <= x->too_small || cache_obtainable(x->in.cache, x->in.search, slab);
}

static bool value_exchange(const struct sched_cache *c, double copy_s, const struct cache_search *s,
                           uint32_t *slab)
{
    const struct value_cache *v = c->state;
    const struct cache_search obtainable = {.blocked = s->unobtainable, .arg = s->arg};
    uint32_t victim, best;
    double least;
    if (c->prompt || uses_most(c) || !least_resident(c, s, c->shape.n_layers, &victim, &least))
        return false;
    double growth = half_lives_used(&v->recent)->growth;
    double most_turn = growth * growth * (1 + v->sooner * c->shape.n_layers);
    const struct exchange_search x = {{c, &obtainable, 0}, EXCHANGE_RATIO * least / most_turn};
    if (!heap_first(&v->lacking, ends_search, &x, &best) || v->values[best] <= x.too_small)
        return false;
    double worth = v->values[best] * by_turn(c, cache_layer_of(c, best));
    if (worth <= EXCHANGE_RATIO * least || !(saved_over(v, best, victim) > copy_s))
        return false;
    *slab = best;
    return true;
}

const struct cache_policy cache_policy_value = {
    .keeps_loads = true,
    .resizes = true,
    .resized = value_resized,
    .init = value_init,
    .fini = value_fini,
    .activated = value_activated,
    .step_over = value_step_over,
    .changed = value_changed,
    .predicted = value_predicted,
    .costs = value_costs,
    .victim = value_victim,
    .least = value_least,
    .passed = value_passed,
    .wanted = value_wanted,
    .exchange = value_exchange,
};
