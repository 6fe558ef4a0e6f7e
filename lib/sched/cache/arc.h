/* The lists of ARC, the adaptive replacement cache (Megiddo and Modha, FAST 2003), for the items
 * 0 to n - 1.
 *
 * T1 has the resident items that were used once lately, T2 those that were used more often. B1 and
 * B2 remember the items that left them. A use of an item in B1 shows that T1 is too small, and
 * raises its target p; one in B2 lowers it:
 *
 *     B1: p = min(p + max(1, |B2| / |B1|), c)        B2: p = max(p - max(1, |B1| / |B2|), 0)
 *
 * The oldest of T1 goes while T1 has more than p items, or p of them and the space is for an item
 * of B2; else the oldest of T2. |T1| + |B1| is at most c, and all four together 2 c.
 *
 * The paper's cache loads each page that is missed. Here the CPU may compute a missing expert, and
 * a prefetch brings one that was not activated. Chosen for these: a use adapts p whether or not the
 * item is then loaded; an item enters T1 or T2 when it arrives; a prefetched one stays in T1 at its
 * first use. */
#ifndef MOED_SCHED_CACHE_ARC_H
#define MOED_SCHED_CACHE_ARC_H

#include "sched/cache/slab_lists.h"

enum { ARC_T1, ARC_T2, ARC_B1, ARC_B2 };

struct arc {
    struct slab_lists lists;
    uint64_t *used;    /* [n] the step of the last use */
    uint64_t capacity; /* c */
    double target;     /* p */
};

bool arc_init(struct arc *a, uint32_t n, uint64_t capacity); /* false: no memory */
void arc_fini(struct arc *a);

void arc_used(struct arc *a, uint32_t item, uint64_t step);
void arc_arrived(struct arc *a, uint32_t item, uint64_t step);
void arc_left(struct arc *a, uint32_t item);

/* The list whose oldest item goes for this one, ARC_T1 or ARC_T2. */
uint8_t arc_victims(const struct arc *a, uint32_t item);

#endif
