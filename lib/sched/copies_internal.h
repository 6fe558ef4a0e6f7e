/* What the parts of copies.h share.
 *
 *     copies.c        what askers say
 *     copies_jobs.c   which segment is copied next
 *     copies_room.c   what makes room for it
 *     prefetch.c      the order of what is predicted
 *
 * Invariant: a pinned expert, and one that is filling, is never evicted from.
 */
#ifndef MOED_SCHED_COPIES_INTERNAL_H
#define MOED_SCHED_COPIES_INTERNAL_H

#include "sched/copies.h"

#include <stddef.h>

struct copies_expert {
    uint8_t resident;   /* leading segments */
    uint8_t used;       /* leading segments that have served since they were copied */
    uint8_t transient;  /* last resident segments, which are given up after their use */
    uint16_t predicted; /* a bit a segment: copied on a prediction and not used since */
    bool filling;       /* the segment after the resident ones is being copied */
    uint32_t pins;      /* loads served and not consumed, and the one being served */
    uint32_t queued;    /* loads not served */
    uint8_t user;       /* the asker that activated it last, */
    uint64_t user_place; /* and there; 0: none */
};

enum { COPIES_NOBODY = COPIES_MAX_ASKERS };

struct sched_copies {
    struct copies_shape shape; /* its arrays are NULL */
    struct copies_owner owner;
    uint8_t *layer_segments;
    uint64_t *segment_bytes;
    struct copies_expert *experts; /* [n_layers][n_experts] */
    struct sched_cache *policy;
    bool keeps_loads;
    bool tidying; /* there may be what an earlier policy has left and this one would not have */
    enum sched_prefetcher prefetcher;
    struct sched_costs costs;
    bool has_costs;
    struct copies_counts counts;

    struct cache_queue *queues[COPIES_MAX_ASKERS]; /* NULL: no such asker */
    uint64_t places[COPIES_MAX_ASKERS];
    uint32_t serving; /* the asker whose next load is being served, and is pinned; COPIES_NOBODY */
    uint64_t sparing_since_ns; /* that load has waited for others' room; 0: it has not */
    bool wishing;              /* the policy wants the next segment of this expert */
    uint32_t wish_layer, wish_expert;
    uint32_t ahead[2]; /* segments copied on a prediction and not used, of even and odd layers */
};

static inline struct copies_expert *copies_expert_at(const struct sched_copies *c, uint32_t layer,
                                                     uint32_t expert)
{
    return &c->experts[(size_t)layer * c->shape.n_experts + expert];
}

static inline bool copies_is_whole(const struct sched_copies *c, uint32_t layer, uint32_t expert)
{
    return copies_expert_at(c, layer, expert)->resident >= c->layer_segments[layer];
}

/* copies.c: the segments of the mask are predicted ones no more. */
void copies_clear_predicted(struct sched_copies *c, uint32_t layer, uint32_t expert, uint32_t mask);

/* copies_room.c */
void copies_evict(struct sched_copies *c, uint32_t layer, uint32_t expert);
/* Gives up what was loaded for a use that is over, unless somebody still wants it. */
void copies_settle(struct sched_copies *c, uint32_t layer, uint32_t expert);
/* Gives up a few segments of what an earlier policy has left. */
void copies_tidy(struct sched_copies *c);
/* A free slot for the next segment of this expert, evicting where that is right. False: not now. */
bool copies_room_for_demand(struct sched_copies *c, uint32_t layer, uint32_t expert,
                            uint64_t now_ns);
bool copies_room_for_prefetch(struct sched_copies *c, uint32_t layer, uint32_t expert,
                              double probability);

/* prefetch.c: the prediction to be copied next, of all askers'; what is whole, or has passed, is forgotten on the way. False:
 * none that is obtainable and that the rule allows now. The first that is not obtainable is wished for. */
bool prefetch_next(struct sched_copies *c, struct cache_prediction *out, uint32_t *asker);

#endif
