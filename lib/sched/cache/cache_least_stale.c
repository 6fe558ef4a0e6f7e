/* Least-stale (SpecMD, arXiv 2602.03921), over all layers. An expert is current if it was
 * activated, predicted or loaded in this forward pass, else stale. Stale experts go first, those of
 * the first layers before those of later ones: their turn is over, or comes again the latest. Of a
 * layer, and of the current ones, the least recently used goes.
 *
 * Of the paper only the abstract and summaries were at hand: that staleness is by forward pass, and
 * that the order of the layers decides. The order within a layer is chosen. */
#include "base/arrays.h"
#include "sched/cache/cache_internal.h"

/* Keys are exact in a double: a layer's number above the clock, and above that the current ones. */
#define LAYER_KEY   0x1p40
#define CURRENT_KEY 0x1p52

struct least_stale {
    double *keys;   /* [n_slabs] */
    uint64_t *step; /* [n_slabs] in which it was current last */
    uint64_t now;   /* the step of the keys */
    struct heap resident;
};

static bool least_stale_init(struct sched_cache *c, const struct sched_cache_options *o)
{
    struct least_stale *l, new = {0};
    c->state = ARRAYS_NEW(ARRAY(l, 1), ARRAY(new.keys, c->n_slabs), ARRAY(new.step, c->n_slabs));
    if (!c->state)
        return false;
    *l = new;
    return heap_init(&l->resident, l->keys, c->n_slabs, false);
}

static void least_stale_fini(struct sched_cache *c)
{
    struct least_stale *l = c->state;
    heap_fini(&l->resident);
}

static void set_key(struct sched_cache *c, uint32_t slab)
{
    struct least_stale *l = c->state;
    bool current = l->step[slab] == l->now;
    l->keys[slab] =
        (current ? CURRENT_KEY : cache_layer_of(c, slab) * LAYER_KEY) + (double)c->last_use[slab];
}

/* When another pass begins, all experts are stale. */
static void begin_pass(struct sched_cache *c, uint64_t step)
{
    struct least_stale *l = c->state;
    if (l->now == step)
        return;
    l->now = step;
    for (uint32_t i = 0; i < c->n_slabs; i++)
        set_key(c, i);
    heap_rebuild(&l->resident);
}

static void make_current(struct sched_cache *c, uint32_t slab)
{
    struct least_stale *l = c->state;
    begin_pass(c, c->step);
    l->step[slab] = l->now;
    set_key(c, slab);
    heap_place(&l->resident, slab, c->resident[slab] > 0);
}

static void least_stale_activated(struct sched_cache *c, uint32_t slab, uint32_t workload)
{
    make_current(c, slab);
}

static void least_stale_predicted(struct sched_cache *c, uint64_t step, uint32_t slab,
                                  uint32_t rank, float probability)
{
    make_current(c, slab);
}

static void least_stale_changed(struct sched_cache *c, uint32_t slab, uint32_t before)
{
    struct least_stale *l = c->state;
    if (c->resident[slab] > before)
        make_current(c, slab);
    else
        heap_place(&l->resident, slab, c->resident[slab] > 0);
}

static bool least_stale_victim(const struct sched_cache *c, const struct cache_search *s,
                               uint32_t *slab)
{
    const struct least_stale *l = c->state;
    return cache_first_of_heap(c, s, &l->resident, slab);
}

const struct cache_policy cache_policy_least_stale = {
    .keeps_loads = true,
    .resizes = true,
    .init = least_stale_init,
    .fini = least_stale_fini,
    .activated = least_stale_activated,
    .changed = least_stale_changed,
    .victim = least_stale_victim,
    .predicted = least_stale_predicted,
};
