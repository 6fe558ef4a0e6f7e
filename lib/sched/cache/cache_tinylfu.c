/* W-TinyLFU (Einziger, Friedman and Manes, ACM TOS 2017), over all layers: a small window of what
 * came last, and a main cache that admits an expert only if it is used more often than the one that
 * would go.
 *
 * The window is an LRU list with 1 % of the device. The main cache is a segmented LRU: an expert
 * enters on probation, and its next activation protects it; protected experts have up to 80 % of
 * the main cache, and their oldest goes back on probation. When a slot is needed, the window's
 * oldest and the oldest on probation compare their frequencies, and the less frequent one goes; of
 * equals the window's. A frequency is a count of activations, at most 15; all are halved, and so is
 * the number of activations, whenever that reaches 10 for each expert that fits.
 *
 * The paper counts in a sketch, because it cannot have a counter for each key, and drops first-time
 * keys before it. There are few experts, so each has a counter of its own. */
#include "base/arrays.h"
#include "sched/cache/cache_internal.h"

enum { WINDOW, PROBATION, PROTECTED };
enum { COUNT_MAX = 15, SAMPLE = 10 };
#define WINDOW_SHARE    0.01
#define PROTECTED_SHARE 0.8

struct tinylfu {
    struct slab_lists lists;
    uint8_t *counts; /* [n_slabs] */
    uint64_t sample, n_counted;
    uint32_t window, protected; /* experts, at most */
};

static bool tinylfu_init(struct sched_cache *c, const struct sched_cache_options *o)
{
    uint64_t capacity = cache_capacity_experts(c);
    double window = WINDOW_SHARE * (double)capacity;
    struct tinylfu *t, new = {.sample = SAMPLE * (capacity ? capacity : 1)};
    new.window = window > 1 ? (uint32_t)window : 1;
    new.protected =
        capacity > new.window ? (uint32_t)(PROTECTED_SHARE * (double)(capacity - new.window)) : 0;
    c->state = ARRAYS_NEW(ARRAY(t, 1), ARRAY(new.counts, c->n_slabs));
    if (!c->state)
        return false;
    *t = new;
    return slab_lists_init(&t->lists, c->n_slabs);
}

static void tinylfu_fini(struct sched_cache *c)
{
    struct tinylfu *t = c->state;
    slab_lists_fini(&t->lists);
}

static void count(struct sched_cache *c, uint32_t slab)
{
    struct tinylfu *t = c->state;
    t->counts[slab] += t->counts[slab] < COUNT_MAX;
    if (++t->n_counted < t->sample)
        return;
    t->n_counted /= 2;
    for (uint32_t i = 0; i < c->n_slabs; i++)
        t->counts[i] /= 2;
}

static void tinylfu_activated(struct sched_cache *c, uint32_t slab, uint32_t workload)
{
    struct tinylfu *t = c->state;
    uint8_t list = t->lists.list[slab];
    count(c, slab);
    if (list == SLAB_LIST_NONE)
        return;
    slab_lists_move(&t->lists, slab, list == WINDOW ? WINDOW : PROTECTED);
    if (t->lists.sizes[PROTECTED] > t->protected)
        slab_lists_move(&t->lists, slab_lists_oldest(&t->lists, PROTECTED), PROBATION);
}

static void tinylfu_changed(struct sched_cache *c, uint32_t slab, uint32_t before)
{
    struct tinylfu *t = c->state;
    if (c->resident[slab] == 0)
        slab_lists_move(&t->lists, slab, SLAB_LIST_NONE);
    else if (before == 0)
        slab_lists_move(&t->lists, slab, WINDOW);
    while (t->lists.sizes[WINDOW] > t->window)
        slab_lists_move(&t->lists, slab_lists_oldest(&t->lists, WINDOW), PROBATION);
}

static bool tinylfu_victim(const struct sched_cache *c, const struct cache_search *s,
                           uint32_t *slab)
{
    const struct tinylfu *t = c->state;
    uint32_t candidate, main;
    bool from_window = t->lists.sizes[WINDOW] >= t->window &&
                       cache_oldest_of_list(c, s, &t->lists, WINDOW, 0, &candidate);
    bool from_main = cache_oldest_of_list(c, s, &t->lists, PROBATION, 0, &main) ||
                     cache_oldest_of_list(c, s, &t->lists, PROTECTED, 0, &main);
    if (from_window && from_main)
        *slab = t->counts[candidate] > t->counts[main] ? main : candidate;
    else if (from_window)
        *slab = candidate;
    else if (from_main)
        *slab = main;
    else
        return cache_oldest_of_list(c, s, &t->lists, WINDOW, 0, slab);
    return true;
}

const struct cache_policy cache_policy_tinylfu = {
    .keeps_loads = true,
    .init = tinylfu_init,
    .fini = tinylfu_fini,
    .activated = tinylfu_activated,
    .changed = tinylfu_changed,
    .victim = tinylfu_victim,
};
