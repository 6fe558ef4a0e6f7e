/* ARC, the adaptive replacement cache (Megiddo and Modha, FAST 2003), over all layers.
 *
 * T1 has the resident experts that were activated once lately, T2 those that were activated more
 * often. B1 and B2 remember the experts that were evicted from them. An activation of an expert in
 * B1 shows that T1 is too small, and raises its target p; one in B2 lowers it:
 *
 *     B1: p = min(p + max(1, |B2| / |B1|), c)        B2: p = max(p - max(1, |B1| / |B2|), 0)
 *
 * The oldest of T1 goes while T1 has more than p experts, or p of them and the slot is for an
 * expert of B2; else the oldest of T2. |T1| + |B1| is at most c, and all four together 2 c.
 *
 * The paper's cache loads each page that is missed. Here the CPU may compute a missing expert, and
 * a prefetch brings one that was not activated. Chosen for these: an activation adapts p whether
 * or not the expert is then loaded; an expert enters T1 or T2 when it arrives; a prefetched one
 * stays in T1 at its first activation. c counts whole experts. If the oldest of the chosen list is
 * blocked, the next one goes. */
#include "base/arrays.h"
#include "sched/cache/cache_internal.h"

#include <math.h>

enum { T1, T2, B1, B2 };

struct arc {
    struct slab_lists lists;
    uint64_t *used;    /* [n_slabs] the step of the last activation */
    uint64_t capacity; /* c, in experts */
    double target;     /* p */
};

static bool arc_init(struct sched_cache *c, const struct sched_cache_options *o)
{
    struct arc *a, new = {.capacity = cache_capacity_experts(c)};
    c->state = ARRAYS_NEW(ARRAY(a, 1), ARRAY(new.used, c->n_slabs));
    if (!c->state)
        return false;
    *a = new;
    return slab_lists_init(&a->lists, c->n_slabs);
}

static void arc_fini(struct sched_cache *c)
{
    struct arc *a = c->state;
    slab_lists_fini(&a->lists);
}

static double size_of(const struct arc *a, uint8_t list)
{
    return a->lists.sizes[list];
}

static void adapt(struct arc *a, uint8_t ghosts)
{
    double b1 = size_of(a, B1), b2 = size_of(a, B2);
    a->target = ghosts == B1 ? fmin(a->target + fmax(1, b2 / b1), (double)a->capacity)
                             : fmax(a->target - fmax(1, b1 / b2), 0);
}

static void arc_activated(struct sched_cache *c, uint32_t slab, uint32_t workload)
{
    struct arc *a = c->state;
    uint8_t list = a->lists.list[slab];
    bool first = list == T1 && a->used[slab] == 0; /* a prefetch */
    if (list == B1 || list == B2)
        adapt(a, list);
    else if (list != SLAB_LIST_NONE)
        slab_lists_move(&a->lists, slab, first ? T1 : T2);
    a->used[slab] = c->step;
}

static void forget_oldest(struct arc *a, uint8_t ghosts)
{
    slab_lists_move(&a->lists, slab_lists_oldest(&a->lists, ghosts), SLAB_LIST_NONE);
}

static void arrived(struct sched_cache *c, uint32_t slab)
{
    struct arc *a = c->state;
    bool ghost = a->lists.list[slab] != SLAB_LIST_NONE;
    if (a->used[slab] != c->step)
        a->used[slab] = 0;
    slab_lists_move(&a->lists, slab, ghost ? T2 : T1);
    while (size_of(a, B1) > 0 && size_of(a, T1) + size_of(a, B1) > (double)a->capacity)
        forget_oldest(a, B1);
    while (size_of(a, B2) > 0 && size_of(a, T1) + size_of(a, T2) + size_of(a, B1) + size_of(a, B2) >
                                     2 * (double)a->capacity)
        forget_oldest(a, B2);
}

static void arc_changed(struct sched_cache *c, uint32_t slab, uint32_t before)
{
    struct arc *a = c->state;
    if (before == 0)
        arrived(c, slab);
    else if (c->resident[slab] == 0)
        slab_lists_move(&a->lists, slab, a->lists.list[slab] == T1 ? B1 : B2);
}

static bool arc_victim(const struct sched_cache *c, const struct cache_search *s, uint32_t *slab)
{
    const struct arc *a = c->state;
    bool of_b2 = a->lists.list[cache_slab(c, s->layer, s->expert)] == B2;
    double t1 = size_of(a, T1);
    bool from_t1 = t1 > 0 && (t1 > a->target || (of_b2 && t1 == floor(a->target)));
    return cache_oldest_of_list(c, s, &a->lists, from_t1 ? T1 : T2, slab) ||
           cache_oldest_of_list(c, s, &a->lists, from_t1 ? T2 : T1, slab);
}

const struct cache_policy cache_policy_arc = {
    .keeps_loads = true,
    .init = arc_init,
    .fini = arc_fini,
    .activated = arc_activated,
    .changed = arc_changed,
    .victim = arc_victim,
};
