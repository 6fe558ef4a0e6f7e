/* Belady's cache: the expert that is used the farthest in the future goes. For replay, which knows
 * the future (sched_cache_options.next_use). Where all segments are demanded and of one size, no
 * cache misses less often. A prefetch never replaces what is used before it. Over all layers, or
 * of a layer with an equal share.
 *
 * An expert's next use changes only when it is used, so it is asked for at each activation and
 * arrival, and a heap holds the order. */
#include "base/arrays.h"
#include "sched/cache/cache_internal.h"
#include "sched/cache/heap.h"

struct belady_cache {
    uint64_t (*next_use)(void *arg, uint32_t layer, uint32_t expert);
    void *arg;
    double *values; /* [layer][expert] the next use, of resident experts */
    struct heap resident;
};

static bool belady_init(struct sched_cache *c, const struct sched_cache_options *o)
{
    struct belady_cache *b, new = {0};
    c->state = ARRAYS_NEW(ARRAY(b, 1), ARRAY(new.values, c->n_slabs));
    if (!c->state)
        return false;
    *b = new;
    b->next_use = o ? o->next_use : NULL;
    b->arg = o ? o->next_use_arg : NULL;
    return heap_init(&b->resident, b->values, c->n_slabs, true);
}

static void belady_fini(struct sched_cache *c)
{
    struct belady_cache *b = c->state;
    heap_fini(&b->resident);
}

static double ask(const struct sched_cache *c, uint32_t slab)
{
    const struct belady_cache *b = c->state;
    uint64_t next = b->next_use
                        ? b->next_use(b->arg, cache_layer_of(c, slab), slab % c->shape.n_experts)
                        : UINT64_MAX;
    return (double)next;
}

static void belady_activated(struct sched_cache *c, uint32_t slab, uint32_t workload)
{
    struct belady_cache *b = c->state;
    if (!heap_has(&b->resident, slab))
        return;
    b->values[slab] = ask(c, slab);
    heap_moved(&b->resident, slab);
}

static void belady_changed(struct sched_cache *c, uint32_t slab, uint32_t before)
{
    struct belady_cache *b = c->state;
    if (before == 0) {
        b->values[slab] = ask(c, slab);
        heap_insert(&b->resident, slab);
    } else if (c->resident[slab] == 0) {
        heap_remove(&b->resident, slab);
    }
}

static bool farthest_of_layer(const struct sched_cache *c, const struct cache_search *s,
                              uint32_t layer, uint32_t *slab)
{
    const struct belady_cache *b = c->state;
    uint32_t first = cache_slab(c, layer, 0);
    bool found = false;
    for (uint32_t i = first; i < first + c->shape.n_experts; i++)
        if (c->resident[i] && (!found || b->values[i] > b->values[*slab]) &&
            cache_evictable(c, s, i)) {
            *slab = i;
            found = true;
        }
    return found;
}

static bool belady_victim(const struct sched_cache *c, const struct cache_search *s, uint32_t *slab)
{
    const struct belady_cache *b = c->state;
    uint32_t farthest;
    bool found = c->budget == BUDGET_UNIFORM &&
                 farthest_of_layer(c, s, cache_layer_to_shrink(c, s), &farthest);
    if (!found && (c->budget == BUDGET_GLOBAL || s->demanded))
        found = cache_first_of_heap(c, s, &b->resident, &farthest);
    if (!found ||
        (!s->demanded && b->values[farthest] <= ask(c, cache_slab(c, s->layer, s->expert))))
        return false;
    *slab = farthest;
    return true;
}

const struct cache_policy cache_policy_belady = {
    .keeps_loads = true,
    .init = belady_init,
    .fini = belady_fini,
    .activated = belady_activated,
    .changed = belady_changed,
    .victim = belady_victim,
};
