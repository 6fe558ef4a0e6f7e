/* Least recently used over all layers, and `none`, which keeps nothing: what it still has goes in
 * the same order.
 *
 * A doubly linked list of the experts that have a resident segment, the most recent one at the
 * head; activation and arrival move an expert to the head, so a victim is at the tail but for those
 * that are blocked. */
#include "sched/cache_internal.h"

#include <stdlib.h>

struct list {
    uint32_t *next, *previous; /* [n_slabs + 1]; the last is the list's own link */
};

static bool lru_init(struct sched_cache *c, const struct sched_cache_options *o)
{
    struct list *l = c->state = calloc(1, sizeof *l);
    if (!l)
        return false;
    l->next = calloc((size_t)c->n_slabs + 1, sizeof *l->next);
    l->previous = calloc((size_t)c->n_slabs + 1, sizeof *l->previous);
    if (!l->next || !l->previous)
        return false;
    l->next[c->n_slabs] = l->previous[c->n_slabs] = c->n_slabs;
    return true;
}

static void lru_fini(struct sched_cache *c)
{
    struct list *l = c->state;
    free(l->next);
    free(l->previous);
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
    .init = lru_init,
    .fini = lru_fini,
    .activated = lru_activated,
    .changed = lru_changed,
    .victim = lru_victim,
};

const struct cache_policy cache_policy_none = {
    .keeps_loads = false,
    .init = lru_init,
    .fini = lru_fini,
    .activated = lru_activated,
    .changed = lru_changed,
    .victim = lru_victim,
};
