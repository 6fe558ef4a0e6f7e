/* AdapMoE's cache without its skipping of experts (Zhong et al., ICCAD 2024): least recently used
 * of each layer, with as many experts for each layer as its dynamic program gives it. The program
 * minimises the sum over the layers of the expected loads on demand:
 *
 *     f(t) = (1 - b) E[m] + b E[max(m - 1, 0)] = E[m] - b P(m > 0)
 *
 *     t  the layer's experts on the device
 *     b  how often the layer's prefetch of one missing expert is right
 *     m  how many of the K of N experts that a token activates are missing
 *
 * Any K experts are equally likely: E[m] = K (N - t) / N, P(m = 0) = C(t, K) / C(N, K). (The
 * published code has this for N = 8 and K = 2.) So a layer that is hard to predict gets more.
 *
 * f falls, and by less for each expert more, so that giving one expert after the other to the layer
 * that gains the most reaches the program's optimum. Of equal gains the layer with fewer experts
 * goes first, then the lower one.
 *
 * Departures. The paper measures b before serving. Here a layer's b is the share of its most
 * probable predictions that came true in decode steps, counted as half of two at first. The shares
 * are chosen again after the first 64 steps and then every 1,024. Where a layer has several tokens
 * in a step, its first prediction counts as well. Shares are whole experts; what the division
 * leaves over is used by layers above their share, as in every cache with shares. */
#include "base/arrays.h"
#include "sched/cache/cache_internal.h"

#include <math.h>

enum { FIRST_STEPS = 64, STEPS_BETWEEN = 1024 };
#define NOTHING UINT32_MAX

struct allocated {
    uint32_t *experts;      /* [n_layers] each layer's share */
    uint64_t *shares;       /* [n_layers] the same in segments */
    double *gain;           /* [n_layers] scratch */
    double *log_factor;     /* [n_experts + 1] log(n!) */
    uint32_t *predicted;    /* [n_layers] the most probable expert, a slab; NOTHING: none waits */
    uint32_t *made, *right; /* [n_layers] predictions */
    uint64_t steps;         /* that are over */
    uint64_t next;          /* choice, by these */
};

/* log C(n, k); -INFINITY where that is 0. */
static double log_choose(const struct allocated *a, uint32_t n, uint32_t k)
{
    return k > n ? -INFINITY : a->log_factor[n] - a->log_factor[k] - a->log_factor[n - k];
}

/* f(t) - f(t + 1) = K / N - b C(t, K - 1) / C(N, K) */
static double gain_of(const struct sched_cache *c, uint32_t layer, uint32_t t)
{
    const struct allocated *a = c->state;
    uint32_t n = c->shape.n_experts, k = c->shape.n_used < n ? c->shape.n_used : n;
    if (t >= n || !k)
        return -1;
    double b = (a->right[layer] + 1.0) / (a->made[layer] + 2.0);
    return (double)k / n - b * exp(log_choose(a, t, k - 1) - log_choose(a, n, k));
}

static void choose(struct sched_cache *c)
{
    struct allocated *a = c->state;
    uint64_t left = c->shape.capacity;
    for (uint32_t l = c->shape.first_layer; l < c->shape.n_layers; l++) {
        a->experts[l] = 0;
        a->shares[l] = 0;
        a->gain[l] = gain_of(c, l, 0);
    }
    for (;;) {
        uint32_t best = c->shape.n_layers;
        for (uint32_t l = c->shape.first_layer; l < c->shape.n_layers; l++)
            if (a->experts[l] < c->shape.n_experts && c->limit[l] <= left &&
                (best == c->shape.n_layers || a->gain[l] > a->gain[best] ||
                 (a->gain[l] == a->gain[best] && a->experts[l] < a->experts[best])))
                best = l;
        if (best == c->shape.n_layers || !c->limit[best])
            return;
        left -= c->limit[best];
        a->shares[best] += c->limit[best];
        a->gain[best] = gain_of(c, best, ++a->experts[best]);
    }
}

static bool allocated_init(struct sched_cache *c, const struct sched_cache_options *o)
{
    struct allocated *a, new = {.next = FIRST_STEPS};
    uint32_t layers = c->shape.n_layers;
    c->state =
        ARRAYS_NEW(ARRAY(a, 1), ARRAY(new.experts, layers), ARRAY(new.gain, layers),
                   ARRAY(new.shares, layers), ARRAY(new.log_factor, c->shape.n_experts + 1),
                   ARRAY(new.predicted, layers), ARRAY(new.made, layers), ARRAY(new.right, layers));
    if (!c->state)
        return false;
    *a = new;
    for (uint32_t i = 1; i <= c->shape.n_experts; i++)
        a->log_factor[i] = a->log_factor[i - 1] + log(i);
    for (uint32_t l = 0; l < layers; l++)
        a->predicted[l] = NOTHING;
    choose(c);
    return true;
}

/* Of a layer's turn the first prediction counts. Its step is not compared: it is the worker's, and
 * that of a routed layer is memd's. */
static void allocated_predicted(struct sched_cache *c, uint64_t step, uint32_t slab, uint32_t rank,
                                float probability)
{
    struct allocated *a = c->state;
    uint32_t layer = cache_layer_of(c, slab);
    (void)step;
    if (rank || a->predicted[layer] != NOTHING)
        return;
    a->predicted[layer] = slab;
    a->made[layer]++;
}

static void allocated_activated(struct sched_cache *c, uint32_t slab, uint32_t workload)
{
    struct allocated *a = c->state;
    uint32_t layer = cache_layer_of(c, slab);
    a->right[layer] += a->predicted[layer] == slab;
}

static void allocated_step_over(struct sched_cache *c, uint32_t layer)
{
    struct allocated *a = c->state;
    a->predicted[layer] = NOTHING;
    if (layer + 1 < c->shape.n_layers || ++a->steps < a->next)
        return;
    a->next = a->steps + STEPS_BETWEEN;
    choose(c);
}

static bool allocated_victim(const struct sched_cache *c, const struct cache_search *s,
                             uint32_t *slab)
{
    const struct allocated *a = c->state;
    return cache_oldest_of_layer(c, s, cache_layer_over_share(c, s, a->shares), slab) ||
           (s->demanded && cache_oldest_anywhere(c, s, slab));
}

static void allocated_configuration(const struct sched_cache *c, uint32_t layer, uint64_t *segments,
                                    uint32_t *n_experts)
{
    const struct allocated *a = c->state;
    *segments = a->shares[layer];
    *n_experts = a->experts[layer];
}

const struct cache_policy cache_policy_allocated = {
    .keeps_loads = true,
    .resizes = true,
    .resized = choose,
    .init = allocated_init,
    .activated = allocated_activated,
    .step_over = allocated_step_over,
    .victim = allocated_victim,
    .predicted = allocated_predicted,
    .configuration = allocated_configuration,
};
