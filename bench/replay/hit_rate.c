/* Hit rates under demand loading; see hit_rate.h. */
#include "bench/replay/hit_rate.h"

#include "mkmodel/random.h"

#include <math.h>
#include <stdlib.h>

enum { MOST_USED = 256 };

struct demand {
    const struct routes *routes;
    struct sched_cache *cache;
    bool own_share;
    uint32_t cached;
    uint32_t *layer_resident; /* [n_layers] */
    uint64_t resident;
    /* the layer that is computed now */
    uint32_t layer;
    const uint16_t *experts;
    uint16_t ones[MOST_USED]; /* their workloads */
};

/* The experts of the current token stay until they are computed. */
static bool in_use(void *arg, uint32_t layer, uint32_t expert)
{
    const struct demand *d = arg;
    if (layer != d->layer)
        return false;
    for (uint32_t k = 0; k < d->routes->n_used; k++)
        if (d->experts[k] == expert)
            return true;
    return false;
}

static void set_resident(struct demand *d, uint32_t layer, uint32_t expert, bool there)
{
    sched_cache_resident(d->cache, layer, expert, there);
    d->layer_resident[layer] += there ? 1 : -1u;
    d->resident += there ? 1 : -(uint64_t)1;
}

static bool is_full(const struct demand *d)
{
    return d->own_share ? d->layer_resident[d->layer] >= d->cached
                        : d->resident >= (uint64_t)d->cached * d->routes->n_layers;
}

static void load(struct demand *d, uint32_t expert)
{
    uint32_t victim_layer, victim;
    if (is_full(d)) {
        if (!sched_cache_victim(d->cache, d->layer, expert, true, 0, in_use, d, &victim_layer,
                                &victim))
            return;
        set_resident(d, victim_layer, victim, false);
    }
    set_resident(d, d->layer, expert, true);
}

static uint32_t route_layer(struct demand *d, uint64_t step)
{
    uint32_t n = d->routes->n_used, hits = 0;
    bool missing[MOST_USED];
    for (uint32_t k = 0; k < n; k++) {
        missing[k] = sched_cache_segments(d->cache, d->layer, d->experts[k]) == 0;
        hits += !missing[k];
    }
    sched_cache_routed(d->cache, step, d->layer, false, d->experts, d->ones, n);
    for (uint32_t k = 0; k < n; k++)
        if (missing[k])
            load(d, d->experts[k]);
    return hits;
}

static uint64_t count_hits(struct demand *d)
{
    const struct routes *r = d->routes;
    uint64_t hits = 0;
    d->experts = r->selected;
    for (uint32_t t = 0; t < r->n_tokens; t++)
        for (d->layer = 0; d->layer < r->n_layers; d->layer++, d->experts += r->n_used)
            hits += route_layer(d, t + 1);
    return hits;
}

double hit_rate(const struct routes *r, enum sched_cache_kind kind, uint32_t cached)
{
    struct sched_cache_shape shape = {.n_layers = r->n_layers,
                                      .n_experts = r->n_experts,
                                      .n_segments = 1,
                                      .n_used = r->n_used,
                                      .capacity = (uint64_t)cached * r->n_layers};
    bool own_share = sched_cache_takes(kind, BUDGET_UNIFORM);
    struct sched_cache_options options = {.budget = own_share ? BUDGET_UNIFORM : BUDGET_GLOBAL};
    struct demand d = {.routes = r,
                       .own_share = own_share,
                       .cached = cached,
                       .cache = sched_cache_new(kind, &shape, &options),
                       .layer_resident = calloc(r->n_layers + 1, sizeof(uint32_t))};
    double rate = NAN, all = (double)r->n_tokens * r->n_layers * r->n_used;
    for (uint32_t k = 0; k < MOST_USED; k++)
        d.ones[k] = 1;
    if (d.cache && d.layer_resident && all > 0 && r->n_used <= MOST_USED)
        rate = (double)count_hits(&d) / all;
    sched_cache_free(d.cache);
    free(d.layer_resident);
    return rate;
}

/* Caches the first `cached` experts of a shuffled list. */
static void draw_set(const struct routes *r, uint32_t layer, uint32_t cached, uint64_t seed,
                     uint16_t *order, bool *there)
{
    struct random random;
    random_seed(&random, seed, "random set", layer);
    for (uint32_t e = 0; e < r->n_experts; e++) {
        order[e] = (uint16_t)e;
        there[e] = false;
    }
    for (uint32_t i = 0; i < cached && i < r->n_experts; i++) {
        uint32_t k = i + (uint32_t)(random_bits(&random) % (r->n_experts - i));
        uint16_t drawn = order[k];
        order[k] = order[i];
        order[i] = drawn;
        there[drawn] = true;
    }
}

double hit_rate_fixed(const struct routes *r, uint32_t cached, uint64_t seed)
{
    uint16_t *order = calloc(r->n_experts + 1, sizeof *order);
    bool *there = calloc(r->n_experts + 1, sizeof *there);
    double hits = 0, all = (double)r->n_tokens * r->n_layers * r->n_used;
    bool ok = order && there && all > 0;
    for (uint32_t l = 0; l < r->n_layers && ok; l++) {
        draw_set(r, l, cached, seed, order, there);
        for (uint32_t t = 0; t < r->n_tokens; t++)
            for (uint32_t k = 0; k < r->n_used; k++)
                hits += there[r->selected[((size_t)t * r->n_layers + l) * r->n_used + k]];
    }
    free(order);
    free(there);
    return ok ? hits / all : NAN;
}
