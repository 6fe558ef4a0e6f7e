/* What the parts of the transfer scheduler share.
 *
 *     transfer_scheduler.c   reports and requests of the requesters
 *     transfer_jobs.c        which segment is copied next
 *     transfer_slots.c       which slot it gets, and what is evicted
 *     prefetch.c             the order of predictions
 *
 * Invariant: an expert that is pinned or filling is never evicted from. */
#ifndef MOED_SCHED_PREFETCH_TRANSFER_INTERNAL_H
#define MOED_SCHED_PREFETCH_TRANSFER_INTERNAL_H

#include "sched/prefetch/transfer_scheduler.h"

#include <stddef.h>

struct transfer_expert {
    uint8_t resident;    /* leading segments */
    uint8_t used;        /* leading segments that were used since they were copied */
    uint8_t transient;   /* last resident segments, which are evicted after their use */
    uint16_t predicted;  /* a bit a segment: copied on a prediction, not used since */
    uint8_t filling;     /* segments after the resident ones that are being copied */
    uint32_t pins;       /* loads served but not consumed, and the one being served */
    uint32_t queued;     /* loads not served */
    uint8_t user;        /* the requester that activated it last, */
    uint64_t user_place; /* and its place then; 0: none */
};

/* The layer that a requester has routed last. */
struct transfer_routed {
    uint64_t place;
    uint32_t n_experts; /* activated, as reported so far */
};

/* A copy that has begun. */
struct transfer_under_way {
    uint32_t layer, expert;
};

enum { TRANSFER_NOBODY = TRANSFER_MAX_REQUESTERS };

struct transfer_scheduler {
    struct transfer_shape shape; /* its arrays are NULL */
    struct transfer_owner owner;
    uint8_t *layer_segments;
    uint32_t most_segments; /* of any layer's expert */
    uint64_t *segment_bytes;
    struct transfer_expert *experts; /* [n_layers][n_experts] */
    struct sched_cache *policy;
    bool keeps_loads;
    bool tidying; /* an earlier policy may have left segments that this one does not keep */
    enum sched_prefetcher prefetcher;
    struct sched_costs costs;
    bool has_costs;
    struct transfer_counts counts;

    struct cache_queue *queues[TRANSFER_MAX_REQUESTERS]; /* NULL: no such requester */
    uint32_t n_requesters; /* all that have ever joined are below this number */
    uint64_t places[TRANSFER_MAX_REQUESTERS];
    uint32_t
        serving; /* the requester whose next load is being served, and pinned; TRANSFER_NOBODY */
    uint64_t
        sparing_since_ns; /* since when that load waits for other loads' slots; 0: it does not */
    struct transfer_routed routed[TRANSFER_MAX_REQUESTERS];
    bool hinting;       /* the policy wants the next segment of this expert, */
    bool hint_exchange; /* in place of a resident one */
    uint32_t hint_layer, hint_expert;
    uint32_t unpredicted;                 /* layers that were routed since a prediction */
    bool unused[TRANSFER_MAX_REQUESTERS]; /* the requester leaves the device out */
    /* Segments copied on a prediction, not used, and those being copied: of even and odd layers. */
    uint32_t upcoming[2];
    struct transfer_under_way under_way[TRANSFER_MAX_UNDER_WAY]; /* the oldest first */
    uint32_t n_under_way;
};

static inline struct transfer_expert *transfer_expert_at(const struct transfer_scheduler *c,
                                                         uint32_t layer, uint32_t expert)
{
    return &c->experts[(size_t)layer * c->shape.n_experts + expert];
}

/* The expert's segments that are on the device or on their way: the number of the next to copy. */
static inline uint32_t transfer_there(const struct transfer_scheduler *c, uint32_t layer,
                                      uint32_t expert)
{
    const struct transfer_expert *x = transfer_expert_at(c, layer, expert);
    return (uint32_t)x->resident + x->filling;
}

/* No segment of the expert is left to copy. */
static inline bool transfer_is_whole(const struct transfer_scheduler *c, uint32_t layer,
                                     uint32_t expert)
{
    return transfer_there(c, layer, expert) >= c->layer_segments[layer];
}

/* What a policy wants to be copied: a policy's mistake must not break the scheduler. */
static inline bool transfer_may_copy(const struct transfer_scheduler *c, uint32_t layer,
                                     uint32_t expert)
{
    return layer < c->shape.n_layers && expert < c->shape.n_experts &&
           !transfer_is_whole(c, layer, expert);
}

/* The owner can copy segments of this expert now. */
static inline bool transfer_is_obtainable(const struct transfer_scheduler *c, uint32_t layer,
                                          uint32_t expert)
{
    return !c->owner.obtainable || c->owner.obtainable(c->owner.arg, layer, expert);
}

/* transfer_slots.c */

/* Clears the mask in transfer_expert.predicted. */
void transfer_clear_predicted(struct transfer_scheduler *c, uint32_t layer, uint32_t expert,
                              uint32_t mask);
void transfer_evict(struct transfer_scheduler *c, uint32_t layer, uint32_t expert);
/* Evicts the transient segments whose use is over, unless a load wants them. */
void transfer_settle(struct transfer_scheduler *c, uint32_t layer, uint32_t expert);
/* Evicts a few segments that an earlier policy has left. */
void transfer_tidy(struct transfer_scheduler *c);
/* Finds a free slot for the next segment of this expert, by evicting where that is right. False:
 * not now. */
bool transfer_evict_for_demand(struct transfer_scheduler *c, uint32_t layer, uint32_t expert,
                               uint64_t now_ns);
/* An expert for an exchange (sched_cache_exchange). */
bool transfer_find_exchange(struct transfer_scheduler *c, double copy_s, uint32_t *layer,
                            uint32_t *expert);
bool transfer_evict_for_prefetch(struct transfer_scheduler *c, uint32_t layer, uint32_t expert,
                                 double probability);
/* Evicts a few segments of the layers that a large step has passed (sched_cache_passed), until
 * enough slots are free or will be: a slot that is evicted while a layer is computed can be used
 * when that layer is over. */
void transfer_free_ahead(struct transfer_scheduler *c);

/* prefetch.c: the prediction to be copied next, of all requesters; drops those that are resident
 * whole or have passed. False: none that is obtainable and that the rule allows now. Sends a fetch
 * hint for the first that is not obtainable. */
bool prefetch_next(struct transfer_scheduler *c, struct cache_prediction *out, uint32_t *requester);

#endif
