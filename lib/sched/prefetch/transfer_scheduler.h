/* The transfer scheduler decides which segment goes over the link next, and what is evicted for
 * it. Pure: no clock, no I/O, no threads; only transfer_scheduler_new allocates.
 *
 * The owner (memd's copy thread, the replay) has the slots, the link and the clock. It reports
 * what its requesters (workers) activate, predict and ask for. It takes the next copy, makes it,
 * and reports when it is done. Several copies may be under way: each begins before the next one is
 * chosen, and they end in the order in which they began.
 *
 *     transfer_scheduler_routed / _predicted / _load / _consumed / _place    from a requester
 *     transfer_scheduler_next -> transfer_scheduler_begin -> (the copy) -> transfer_scheduler_end
 *
 * Demanded loads are served one at a time, the oldest of all requesters first. Invariant: only the
 * load being served holds a part of its segments; every other pin belongs to a load that is served
 * whole, its segments resident or under way, which its requester can consume without anything more.
 * So whatever the number of slots, the load being served gets its slots in the end, and no two
 * loads can wait for each other.
 *
 * The owner checks all numbers before it passes them: layers and experts exist, prefixes are at
 * most an expert's segments. */
#ifndef MOED_SCHED_PREFETCH_TRANSFER_SCHEDULER_H
#define MOED_SCHED_PREFETCH_TRANSFER_SCHEDULER_H

#include "sched/assign/assign.h"
#include "sched/cache/cache.h"
#include "sched/cache/cache_queue.h"

enum { TRANSFER_MAX_REQUESTERS = 32, TRANSFER_MAX_SEGMENTS = 16, TRANSFER_MAX_UNDER_WAY = 32 };

/* The order in which predictions are copied. Demanded loads go first, except for `value`. A
 * prediction whose layer has been routed is dropped: that layer's plan is made. */
enum sched_prefetcher {
    PREFETCH_PROBABLE, /* the most probable first, an expert's missing segments one by one */
    PREFETCH_CHUNKED,  /* ProMoE: segment by segment, nearest layer first, then as predicted */
    PREFETCH_ROTATING, /* PreScope's AsyncIO: as the plan issued them, into two groups of buffers
                          that take turns by layer */
    PREFETCH_URGENT,   /* FineMoE: by p / (layers until then) */
    PREFETCH_CLEARED,  /* as chunked, but any routed layer drops the predictions of all layers */
    PREFETCH_LOADED,   /* DALI: of each prediction the first k (sched_prefetch_most), in its order,
                          before what the cache policy wants */
    PREFETCH_VALUE, /* one queue with the demanded loads, by the seconds that each copy is expected
                       to save; a prediction of the same requester may outrank a load once */
    PREFETCH_SELECTIVE, /* moed: as probable, of those that are worth their copy */
};

/* True if each prediction is judged by what its copy should save (candidates.h), and a trial may
 * switch copies off where they cost time (device_trial.h). False: all that is predicted is copied.
 */
static inline bool sched_prefetch_selects(enum sched_prefetcher kind)
{
    return kind == PREFETCH_SELECTIVE || kind == PREFETCH_VALUE;
}

/* Segments that prefetches have in addition to the cache's: PreScope's two groups, each as large as
 * the reserve for loads. */
static inline uint64_t sched_prefetch_buffers(enum sched_prefetcher kind, uint32_t reserve)
{
    return kind == PREFETCH_ROTATING ? 2 * (uint64_t)reserve : 0;
}

/* How many of a layer's predicted experts are prefetched. DALI's k: 1 for a few large experts
 * (Mixtral's 8), 4 for many small ones (DeepSeek-V2-Lite's 64, Qwen3's 128), as under its figure
 * 12; the k are chosen whether or not they are resident. No bound for the other prefetchers. */
static inline uint32_t sched_prefetch_most(enum sched_prefetcher kind, uint32_t n_experts)
{
    return kind != PREFETCH_LOADED ? UINT32_MAX : n_experts > 16 ? 4 : 1;
}

enum copy_reason { COPY_DEMANDED, COPY_WANTED, COPY_PREDICTED };

struct copy_job {
    uint32_t layer, expert, segment;
    enum copy_reason reason;
    uint64_t asked_ns; /* of the first copy for a load: when the load was requested; else 0 */
};

/* Slots that are kept free, so that a load starts at once instead of waiting until a victim's slot
 * can be reused: what a token's experts of a layer may need (layer_segments), an eighth of all
 * slots at most. 0 where all segments of the model (total) fit. */
static inline uint32_t transfer_scheduler_reserve(uint32_t n_slots, uint64_t total,
                                                  uint32_t layer_segments)
{
    if (n_slots >= total)
        return 0;
    return layer_segments < n_slots / 8 ? layer_segments : n_slots / 8;
}

struct transfer_shape {
    uint32_t n_layers, n_experts;
    uint32_t n_slots, reserve;     /* segments; of them, kept free for demanded loads */
    const uint8_t *layer_segments; /* [n_layers]: of an expert; 0: no experts. Borrowed in _new */
    const uint64_t *segment_bytes; /* [n_layers]; borrowed in _new */
};

/* What only the owner knows and does. These functions must not call the scheduler. */
struct transfer_owner {
    void *arg;
    uint32_t (*free_slots)(void *arg);
    uint32_t (*retired_slots)(void *arg); /* evicted, free once no worker can read them any more */
    void (*reclaim)(void *arg);           /* free the retired slots that no worker can read */
    /* Retires the slot of the expert's last resident segment. */
    void (*evict)(void *arg, uint32_t layer, uint32_t expert, uint32_t segment);
    /* Whether the expert's bytes are in host memory; NULL: always. If not, hint() asks for them. */
    bool (*obtainable)(void *arg, uint32_t layer, uint32_t expert);
    void (*hint)(void *arg, uint32_t layer, uint32_t expert, double probability, bool demanded);
};

struct transfer_counts {
    uint64_t asked_bytes; /* of loads: segments not resident when requested, on their way or not */
    uint64_t demanded_bytes,
        prefetched_bytes; /* copied for a load that a requester waits for; all others */
    uint64_t used_bytes;  /* copied for any reason and used since; each copy once */
    uint64_t predicted_bytes,
        predicted_used_bytes; /* copied on a prediction; of those, used since */
    uint64_t wasted_bytes;    /* evicted without having been used */
    uint64_t merged, dropped; /* loads of segments already under way; predictions whose layer came
                                 first, or that did not fit the queue */
    uint64_t evictions;
};

struct transfer_scheduler;

/* NULL: no memory. */
struct transfer_scheduler *transfer_scheduler_new(const struct transfer_shape *shape,
                                                  const struct transfer_owner *owner);
void transfer_scheduler_free(struct transfer_scheduler *c); /* takes NULL */

/* Sets the cache policy (borrowed). Resident segments stay and the new policy judges them. Call
 * this before anything else is reported. */
void transfer_scheduler_use(struct transfer_scheduler *c, struct sched_cache *policy);
/* Call after a change of policy. If the new one keeps no loads, segments that it neither wants nor
 * would have kept are evicted over time. (Wanted ones stay, else they would be copied again.) */
void transfer_scheduler_tidy(struct transfer_scheduler *c);
/* Sets the order of predictions; at first PREFETCH_PROBABLE. */
void transfer_scheduler_order(struct transfer_scheduler *c, enum sched_prefetcher prefetcher);
/* Sets the number of slots and of those kept free. Loads that want more segments than there are
 * slots are cut. Resident segments stay, even if there are more. */
void transfer_scheduler_resize(struct transfer_scheduler *c, uint32_t n_slots, uint32_t reserve);
/* Evicts what is worth the least until `most` segments are resident, if the policy says what that
 * is and will copy better ones into free slots (sched_cache_least). Spares what is in use. */
void transfer_scheduler_keep_best(struct transfer_scheduler *c, uint64_t most);
/* Evicts all but the first `keep` resident segments of an expert. False: nothing was evicted,
 * because the expert is pinned or a segment is on its way; try again. */
bool transfer_scheduler_shorten(struct transfer_scheduler *c, uint32_t layer, uint32_t expert,
                                uint32_t keep);
/* Sets what copying and computing cost, for PREFETCH_VALUE; until then loads go first there too. */
void transfer_scheduler_costs(struct transfer_scheduler *c, const struct sched_costs *costs);

/* A requester joins with a zeroed queue (borrowed). _forget and _leave drop its requests. */
void transfer_scheduler_join(struct transfer_scheduler *c, uint32_t requester,
                             struct cache_queue *queue);
void transfer_scheduler_forget(struct transfer_scheduler *c, uint32_t requester);
void transfer_scheduler_leave(struct transfer_scheduler *c, uint32_t requester);

/* A layer of this requester activates these experts. step: forward passes of all requesters, from
 * 1. place: the requester's own, as in _place; until it has moved on, these experts are evicted
 * only if there is nothing else. prompt: as in sched_cache_routed. */
void transfer_scheduler_routed(struct transfer_scheduler *c, uint32_t requester, uint64_t step,
                               uint64_t place, bool prompt, const uint16_t *experts,
                               const uint16_t *workloads, uint32_t n);
/* Demands the first `prefix` segments of an expert; the queue must have a free entry. */
/* Whether the requester leaves the device's experts out for now. While all do, nothing is exchanged
 * (sched_cache_exchange). */
void transfer_scheduler_unused(struct transfer_scheduler *c, uint32_t requester, bool unused);
void transfer_scheduler_load(struct transfer_scheduler *c, uint32_t requester, uint32_t layer,
                             uint32_t expert, uint32_t prefix, uint64_t now_ns);
/* A coming layer is predicted to activate these experts, in the predictor's order (the most
 * probable first, or those with the most tokens), at most CACHE_PREDICTIONS; probabilities: of
 * 65535. _expected: all of them, for cache policies that read predictions. _predicted: those to be
 * prefetched. */
void transfer_scheduler_expected(struct transfer_scheduler *c, uint64_t step, uint32_t layer,
                                 const uint16_t *experts, const uint16_t *probabilities,
                                 uint32_t n);
void transfer_scheduler_predicted(struct transfer_scheduler *c, uint32_t requester, uint64_t step,
                                  uint32_t layer, const uint16_t *experts,
                                  const uint16_t *probabilities, uint32_t n);
/* The requester's place: step << 16 | layer, as routed last. */
void transfer_scheduler_place(struct transfer_scheduler *c, uint32_t requester, uint64_t place);
/* The requester has consumed its first `loads` loads, in the order of its requests; more than it
 * requested: all. */
void transfer_scheduler_consumed(struct transfer_scheduler *c, uint32_t requester, uint64_t loads);

/* JOB: *job can begin, there is a free slot. BLOCKED: a requester waits for a load that has no slot
 * yet, or whose bytes are not in host memory. */
enum transfer_next { TRANSFER_NOTHING, TRANSFER_BLOCKED, TRANSFER_JOB };
enum transfer_next transfer_scheduler_next(struct transfer_scheduler *c, uint64_t now_ns,
                                           struct copy_job *job);
/* The same for demanded loads alone (and for a prediction that outranks one). NOTHING: no load
 * waits for a copy. */
enum transfer_next transfer_scheduler_next_load(struct transfer_scheduler *c, uint64_t now_ns,
                                                struct copy_job *job);
void transfer_scheduler_begin(struct transfer_scheduler *c, const struct copy_job *job);
void transfer_scheduler_end(struct transfer_scheduler *c, const struct copy_job *job);

/* The expert's leading segments on the device; how many after those are on their way. */
uint32_t transfer_scheduler_resident(const struct transfer_scheduler *c, uint32_t layer,
                                     uint32_t expert);
uint32_t transfer_scheduler_filling(const struct transfer_scheduler *c, uint32_t layer,
                                    uint32_t expert);
/* True if a served load is not consumed yet. */
bool transfer_scheduler_outstanding(const struct transfer_scheduler *c);
const struct transfer_counts *transfer_scheduler_counts(const struct transfer_scheduler *c);

#endif
