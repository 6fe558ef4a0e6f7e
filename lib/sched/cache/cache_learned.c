/* FlashMoE's learned replacement (Kim et al., arXiv 2601.17063): of the layer, the expert goes
 * whose next use is expected to be the farthest away, by a regression of that distance on the
 * expert's recency and its frequency, so that it approximates Belady's rule. Each layer has an
 * equal share. Of equal ones the least recently used goes.
 *
 * The regression. The paper trains a network for each layer before serving: three layers of 128, on
 * recency 1 / r and frequency f / max f of the layer's experts, by the mean squared error. It
 * learns Belady's distance, which a public reimplementation caps at about three quarters of the
 * number of experts. Departures: here the regression is a table of classes of recency and of
 * frequency. It holds the mean distance, which has the least squared error of any function of these
 * classes. All layers share it, and it is fitted while serving. In steps of the layer:
 *
 *     age        0 (this step), 1, 2-3, 4-7, ... 256 and more, never
 *     frequency  eighths of the most that an expert of the layer has: steps that activated it
 *
 * A class has seen PRIOR experts at first whose distance is their age plus one: least recently
 * used. Samples are complete, so that a long distance counts as often as it occurs: of a layer the
 * classes of all experts are noted after a step, and CAP steps later the time until each one's
 * first use, or CAP; then the layer's next sample begins. */
#include "base/arrays.h"
#include "sched/cache/cache_internal.h"

#define NO_LAYER UINT32_MAX

enum { AGES = 11, NEVER = AGES - 1, OLDEST = NEVER - 1, SHARES = 8 };

/* A class has this many experts at first. */
#define PRIOR 8.0

struct sums {
    double distance, n;
};

struct learned {
    struct sums classes[AGES * SHARES];
    uint64_t *used;     /* [n_slabs] the layer's step that activated it last; 0: never */
    uint32_t *count;    /* [n_slabs] steps that activated it */
    uint8_t *noted;     /* [n_slabs] its class in the sample */
    uint32_t *first;    /* [n_slabs] steps from the sample to its first use; 0: none yet */
    double *values;     /* [n_slabs] less the expected distance: of the layer `valued` */
    uint32_t valued;    /* NO_LAYER: none is up to date */
    uint64_t valued_at; /* that layer's step */
    uint64_t *steps;    /* [n_layers] of the layer */
    uint64_t *sampled;  /* [n_layers] the step of its sample; 0: none */
    uint32_t *most;     /* [n_layers] the largest count */
    uint32_t cap;       /* steps */
};

static uint32_t age_class(uint64_t age)
{
    uint32_t class = 0;
    for (; age && class < OLDEST; age /= 2)
        class ++;
    return class;
}

/* The step under way counts as the layer's last. */
static uint32_t class_of(const struct sched_cache *c, uint32_t slab, uint64_t now)
{
    const struct learned *l = c->state;
    uint32_t most = l->most[cache_layer_of(c, slab)];
    uint32_t age = l->used[slab] ? age_class(now - l->used[slab]) : NEVER;
    uint64_t share = most ? (uint64_t)l->count[slab] * SHARES / most : 0;
    return age * SHARES + (share < SHARES ? (uint32_t)share : SHARES - 1);
}

static bool learned_init(struct sched_cache *c, const struct sched_cache_options *o)
{
    struct learned *l, new = {0};
    uint32_t layers = c->shape.n_layers;
    c->state = ARRAYS_NEW(ARRAY(l, 1), ARRAY(new.used, c->n_slabs), ARRAY(new.count, c->n_slabs),
                          ARRAY(new.noted, c->n_slabs), ARRAY(new.first, c->n_slabs),
                          ARRAY(new.values, c->n_slabs), ARRAY(new.steps, layers),
                          ARRAY(new.sampled, layers), ARRAY(new.most, layers));
    if (!c->state)
        return false;
    *l = new;
    l->valued = NO_LAYER;
    l->cap = c->shape.n_experts * 3 / 4 > 2 ? c->shape.n_experts * 3 / 4 : 2;
    for (uint32_t i = 0; i < AGES * SHARES; i++) {
        uint32_t age = i / SHARES;
        double distance = age == NEVER ? l->cap : age ? (1u << (age - 1)) + 1 : 1;
        l->classes[i] = (struct sums){PRIOR * (distance < l->cap ? distance : l->cap), PRIOR};
    }
    return true;
}

static void learned_activated(struct sched_cache *c, uint32_t slab, uint32_t workload)
{
    struct learned *l = c->state;
    uint32_t layer = cache_layer_of(c, slab);
    uint64_t now = l->steps[layer] + 1;
    if (l->used[slab] == now) /* reported twice */
        return;
    l->valued = NO_LAYER;
    l->used[slab] = now;
    if (++l->count[slab] > l->most[layer])
        l->most[layer] = l->count[slab];
    if (!l->first[slab])
        l->first[slab] = (uint32_t)(now - l->sampled[layer]);
}

/* The sample of a layer is complete. */
static void fit(struct sched_cache *c, uint32_t layer)
{
    struct learned *l = c->state;
    uint32_t begin = cache_slab(c, layer, 0);
    for (uint32_t i = begin; i < begin + c->shape.n_experts; i++) {
        l->classes[l->noted[i]].distance += l->first[i] ? l->first[i] : l->cap;
        l->classes[l->noted[i]].n += 1;
    }
}

static void learned_step_over(struct sched_cache *c, uint32_t layer)
{
    struct learned *l = c->state;
    uint64_t now = ++l->steps[layer];
    l->valued = NO_LAYER;
    if (l->sampled[layer] && now - l->sampled[layer] < l->cap)
        return;
    if (l->sampled[layer])
        fit(c, layer);
    l->sampled[layer] = now;
    uint32_t begin = cache_slab(c, layer, 0);
    for (uint32_t i = begin; i < begin + c->shape.n_experts; i++) {
        l->noted[i] = (uint8_t)class_of(c, i, now);
        l->first[i] = 0;
    }
}

/* The values of a layer change when experts are activated, and from one step to the next. */
static void find_values(const struct sched_cache *c, uint32_t layer)
{
    struct learned *l = c->state;
    uint32_t begin = cache_slab(c, layer, 0);
    uint64_t now = l->steps[layer] + (c->reported && c->layer == layer);
    if (l->valued == layer && l->valued_at == now)
        return;
    l->valued = layer;
    l->valued_at = now;
    for (uint32_t i = begin; i < begin + c->shape.n_experts; i++) {
        const struct sums *x = &l->classes[class_of(c, i, now)];
        l->values[i] = -x->distance / x->n;
    }
}

static bool learned_victim(const struct sched_cache *c, const struct cache_search *s,
                           uint32_t *slab)
{
    const struct learned *l = c->state;
    find_values(c, cache_layer_to_shrink(c, s));
    return cache_least_of_share(c, s, l->values, slab);
}

const struct cache_policy cache_policy_learned = {
    .keeps_loads = true,
    .init = learned_init,
    .activated = learned_activated,
    .step_over = learned_step_over,
    .victim = learned_victim,
};
