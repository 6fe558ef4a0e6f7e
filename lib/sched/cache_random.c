/* A random expert of the layer goes, each layer with an equal share: what other caches are compared with (MoEpic's Table 1). For
 * replay. Each resident expert that may go is as likely as any other; one that was begun with is given up whole before the
 * next is drawn. The row of numbers begins at the option `seed`, so a run can be repeated. */
#include "sched/cache_internal.h"

#include <stdlib.h>

struct random_cache {
    uint64_t state;
    uint32_t *drawn; /* [layer] the expert that was begun with; n_slabs: none */
};

static bool random_init(struct sched_cache *c, const struct sched_cache_options *o)
{
    struct random_cache *r = c->state = calloc(1, sizeof *r);
    if (!r || !(r->drawn = calloc((size_t)c->shape.n_layers + 1, sizeof *r->drawn)))
        return false;
    r->state = o ? o->seed : 0;
    for (uint32_t i = 0; i < c->shape.n_layers; i++)
        r->drawn[i] = c->n_slabs;
    return true;
}

static void random_fini(struct sched_cache *c)
{
    struct random_cache *r = c->state;
    free(r->drawn);
}

/* It is gone, or has come anew. */
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
    .fini = random_fini,
    .changed = random_changed,
    .victim = random_victim,
};
