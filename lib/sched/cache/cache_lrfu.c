/* LRFU (Lee et al., IEEE Transactions on Computers, 2001), over all layers: the expert with the
 * least combined recency and frequency goes,
 *
 *     C = sum over its activations of (1/2)^(lambda x), x the time since then
 *
 * Time counts activations, as the paper's time counts references. lambda between 0 and 1 goes from
 * LFU to LRU; the paper chooses it for each workload. Here 1 / lambda is REFERENCES; a step of a
 * model with many layers has several hundred activations. `value` counts in the same way, in steps,
 * and chooses its half-life.
 *
 * Nothing is multiplied: later activations count more instead, which leaves the order the same.
 * Before the numbers overflow all are divided by the same factor. */
#include "base/arrays.h"
#include "sched/cache/cache_internal.h"

#include <math.h>

#define REFERENCES 1000.0
#define LARGEST    0x1p500

struct lrfu {
    double *values; /* [n_slabs] C 2^(lambda t), t the time now */
    double now;     /* 2^(lambda t) */
    struct heap resident;
};

static bool lrfu_init(struct sched_cache *c, const struct sched_cache_options *o)
{
    struct lrfu *l, new = {.now = 1};
    c->state = ARRAYS_NEW(ARRAY(l, 1), ARRAY(new.values, c->n_slabs));
    if (!c->state)
        return false;
    *l = new;
    return heap_init(&l->resident, l->values, c->n_slabs, false);
}

static void lrfu_fini(struct sched_cache *c)
{
    struct lrfu *l = c->state;
    heap_fini(&l->resident);
}

static void shrink(struct sched_cache *c)
{
    struct lrfu *l = c->state;
    for (uint32_t i = 0; i < c->n_slabs; i++)
        l->values[i] *= 1 / LARGEST;
    l->now *= 1 / LARGEST;
    heap_rebuild(&l->resident); /* the smallest may have become 0, and so equal */
}

static void lrfu_activated(struct sched_cache *c, uint32_t slab, uint32_t workload)
{
    struct lrfu *l = c->state;
    l->now *= exp2(1 / REFERENCES);
    l->values[slab] += l->now;
    if (heap_has(&l->resident, slab))
        heap_moved(&l->resident, slab);
    if (l->now >= LARGEST)
        shrink(c);
}

static void lrfu_changed(struct sched_cache *c, uint32_t slab, uint32_t before)
{
    struct lrfu *l = c->state;
    heap_place(&l->resident, slab, c->resident[slab] > 0);
}

static bool lrfu_victim(const struct sched_cache *c, const struct cache_search *s, uint32_t *slab)
{
    const struct lrfu *l = c->state;
    return cache_first_of_heap(c, s, &l->resident, slab);
}

const struct cache_policy cache_policy_lrfu = {
    .keeps_loads = true,
    .resizes = true,
    .init = lrfu_init,
    .fini = lrfu_fini,
    .activated = lrfu_activated,
    .changed = lrfu_changed,
    .victim = lrfu_victim,
};
