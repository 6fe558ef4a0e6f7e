/* Doubly linked lists of experts (slabs), each of which is in one list at most. The first of a
 * list is the most recent one, the last the oldest. All operations take constant time. */
#ifndef MOED_SCHED_CACHE_SLAB_LISTS_H
#define MOED_SCHED_CACHE_SLAB_LISTS_H

#include <stdbool.h>
#include <stdint.h>

enum { SLAB_LISTS_MAX = 4, SLAB_LIST_NONE = SLAB_LISTS_MAX };

struct slab_lists {
    uint32_t n_slabs;
    uint32_t *next, *previous; /* [n_slabs + SLAB_LISTS_MAX]; the last ones are the lists' ends */
    uint8_t *list;             /* [n_slabs] the list of a slab, or SLAB_LIST_NONE */
    uint32_t sizes[SLAB_LISTS_MAX];
};

bool slab_lists_init(struct slab_lists *l, uint32_t n_slabs); /* false: no memory */
void slab_lists_fini(struct slab_lists *l);

/* Moves a slab to the front of a list, from whichever list it is in. SLAB_LIST_NONE: to none. */
void slab_lists_move(struct slab_lists *l, uint32_t slab, uint8_t list);

/* For the slabs of a list, the oldest first:
 *
 *     for (uint32_t i = slab_lists_oldest(l, list); i < l->n_slabs; i = slab_lists_newer(l, i))
 */
static inline uint32_t slab_lists_newer(const struct slab_lists *l, uint32_t slab)
{
    return l->previous[slab];
}

static inline uint32_t slab_lists_oldest(const struct slab_lists *l, uint8_t list)
{
    return slab_lists_newer(l, l->n_slabs + list);
}

#endif
