/* A random expert of the layer goes, each layer with an equal share: the baseline of MoEpic's
 * Table 1. For replay. Each evictable expert is equally likely; an expert that has lost a segment
 * is evicted whole before the next is drawn. The sequence of numbers begins at the option `seed`,
 * so a run can be repeated. */
#include "base/arrays.h"
#include "sched/cache/cache_internal.h"

struct random_cache {
    uint64_t state;
    uint32_t *drawn; /* [layer] the expert being evicted; n_slabs: none */
};

static bool random_init(struct sched_cache *c, const struct sched_cache_options *o)
{
    struct random_cache *r, new = {.state = o ? o->seed : 0};
    c->state = ARRAYS_NEW(ARRAY(r, 1), ARRAY(new.drawn, c->shape.n_layers));
    if (!c->state)
        return false;
    *r = new;
    for (uint32_t i = 0; i < c->shape.n_layers; i++)
        r->drawn[i] = c->n_slabs;
    return true;
}

/* The drawn expert is gone, or was loaded again. */
static void random_changed(struct sched_cache *c, uint32_t slab, uint32_t before)
{
    struct random_cache *r = c->state;
    uint32_t layer = cache_layer_of(c, slab);
    if (r->drawn[layer] == slab && (c->resident[slab] == 0 || c->resident[slab] > before))
        r->drawn[layer] = c->n_slabs;
}

static bool random_of_layer(const struct sched_cache *c, const struct cache_search *s,
                            uint32_t layer, uint32_t *slab)
{
    struct random_cache *r = c->state;
    uint32_t first = cache_slab(c, layer, 0), n = 0;
    if (r->drawn[layer] != c->n_slabs && cache_evictable(c, s, r->drawn[layer])) {
        *slab = r->drawn[layer];
        return true;
    }
    for (uint32_t i = first; i < first + c->shape.n_experts; i++)
        n += cache_evictable(c, s, i);
    if (n == 0)
        return false;
    uint64_t left = cache_random(&r->state) % n;
    for (*slab = first; !cache_evictable(c, s, *slab) || left--; ++*slab)
        ;
    r->drawn[layer] = *slab;
    return true;
}

static bool random_victim(const struct sched_cache *c, const struct cache_search *s, uint32_t *slab)
{
    return random_of_layer(c, s, cache_layer_to_shrink(c, s), slab) ||
           (s->demanded && cache_oldest_anywhere(c, s, slab));
}

const struct cache_policy cache_policy_random = {
    .keeps_loads = true,
    .init = random_init,
    .changed = random_changed,
    .victim = random_victim,
};
