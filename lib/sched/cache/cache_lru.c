/* Least recently used over all layers, and `none`, which keeps nothing and evicts in the same
 * order.
 *
 * A doubly linked list of the experts that have a resident segment, the most recent one at the
 * head. Activation and arrival move an expert to the head, so a victim is at the tail unless that
 * is blocked. */
#include "base/arrays.h"
#include "sched/cache/cache_internal.h"

struct list {
    uint32_t *next, *previous; /* [n_slabs + 1]; the last one is the list's head and tail */
};

static bool lru_init(struct sched_cache *c, const struct sched_cache_options *o)
{
    struct list *l, new = {0};
    size_t links = (size_t)c->n_slabs + 1;
    c->state = ARRAYS_NEW(ARRAY(l, 1), ARRAY(new.next, links), ARRAY(new.previous, links));
    if (!c->state)
        return false;
    *l = new;
    l->next[c->n_slabs] = l->previous[c->n_slabs] = c->n_slabs;
    return true;
}

static void take_out(struct list *l, uint32_t slab)
{
    l->next[l->previous[slab]] = l->next[slab];
    l->previous[l->next[slab]] = l->previous[slab];
}

static void put_first(struct sched_cache *c, uint32_t slab)
{
    struct list *l = c->state;
    uint32_t head = c->n_slabs;
    l->next[slab] = l->next[head];
    l->previous[slab] = head;
    l->previous[l->next[head]] = slab;
    l->next[head] = slab;
}

static void lru_activated(struct sched_cache *c, uint32_t slab, uint32_t workload)
{
    if (!c->resident[slab])
        return;
    take_out(c->state, slab);
    put_first(c, slab);
}

static void lru_changed(struct sched_cache *c, uint32_t slab, uint32_t before)
{
    if (before == 0)
        put_first(c, slab);
    else if (c->resident[slab] == 0)
        take_out(c->state, slab);
}

static bool lru_victim(const struct sched_cache *c, const struct cache_search *s, uint32_t *slab)
{
    const struct list *l = c->state;
    for (uint32_t i = l->previous[c->n_slabs]; i != c->n_slabs; i = l->previous[i])
        if (cache_evictable(c, s, i)) {
            *slab = i;
            return true;
        }
    return false;
}

const struct cache_policy cache_policy_lru = {
    .keeps_loads = true,
    .resizes = true,
    .init = lru_init,
    .activated = lru_activated,
    .changed = lru_changed,
    .victim = lru_victim,
};

const struct cache_policy cache_policy_none = {
    .keeps_loads = false,
    .resizes = true,
    .init = lru_init,
    .activated = lru_activated,
    .changed = lru_changed,
    .victim = lru_victim,
};
