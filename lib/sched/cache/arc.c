/* ARC's lists; see arc.h. */
#include "sched/cache/arc.h"

#include <math.h>
#include <stdlib.h>

bool arc_init(struct arc *a, uint32_t n, uint64_t capacity)
{
    *a = (struct arc){.capacity = capacity};
    a->used = calloc((size_t)n + 1, sizeof *a->used);
    return a->used && slab_lists_init(&a->lists, n);
}

void arc_fini(struct arc *a)
{
    free(a->used);
    slab_lists_fini(&a->lists);
}

static double size_of(const struct arc *a, uint8_t list)
{
    return a->lists.sizes[list];
}

static void adapt(struct arc *a, uint8_t ghosts)
{
    double b1 = size_of(a, ARC_B1), b2 = size_of(a, ARC_B2);
    a->target = ghosts == ARC_B1 ? fmin(a->target + fmax(1, b2 / b1), (double)a->capacity)
                                 : fmax(a->target - fmax(1, b1 / b2), 0);
}

void arc_used(struct arc *a, uint32_t item, uint64_t step)
{
    uint8_t list = a->lists.list[item];
    bool first = list == ARC_T1 && a->used[item] == 0; /* a prefetch */
    if (list == ARC_B1 || list == ARC_B2)
        adapt(a, list);
    else if (list != SLAB_LIST_NONE)
        slab_lists_move(&a->lists, item, first ? ARC_T1 : ARC_T2);
    a->used[item] = step;
}

static void forget_oldest(struct arc *a, uint8_t ghosts)
{
    slab_lists_move(&a->lists, slab_lists_oldest(&a->lists, ghosts), SLAB_LIST_NONE);
}

void arc_arrived(struct arc *a, uint32_t item, uint64_t step)
{
    bool ghost = a->lists.list[item] != SLAB_LIST_NONE;
    if (a->used[item] != step)
        a->used[item] = 0;
    slab_lists_move(&a->lists, item, ghost ? ARC_T2 : ARC_T1);
    while (size_of(a, ARC_B1) > 0 && size_of(a, ARC_T1) + size_of(a, ARC_B1) > (double)a->capacity)
        forget_oldest(a, ARC_B1);
    while (size_of(a, ARC_B2) > 0 &&
           size_of(a, ARC_T1) + size_of(a, ARC_T2) + size_of(a, ARC_B1) + size_of(a, ARC_B2) >
               2 * (double)a->capacity)
        forget_oldest(a, ARC_B2);
}

void arc_left(struct arc *a, uint32_t item)
{
    slab_lists_move(&a->lists, item, a->lists.list[item] == ARC_T1 ? ARC_B1 : ARC_B2);
}

uint8_t arc_victims(const struct arc *a, uint32_t item)
{
    double t1 = size_of(a, ARC_T1);
    bool of_b2 = a->lists.list[item] == ARC_B2;
    return t1 > 0 && (t1 > a->target || (of_b2 && t1 == floor(a->target))) ? ARC_T1 : ARC_T2;
}
