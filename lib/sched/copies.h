/* The copy engine's decisions: which segment goes over the link next, and what makes room for it. Pure: no clock, no I/O, no
 * threads; memory is allocated by sched_copies_new alone.
 *
 * The owner (memd's copy thread, the replay) has the slots, the link and the clock. It tells what its askers (workers) activate,
 * predict and ask for; it asks for the next copy, makes it, and says when it is done. One copy at a time.
 *
 *     sched_copies_routed / _predicted / _load / _consumed / _place   what an asker says
 *     sched_copies_next  ->  sched_copies_begin  ->  (the copy)  ->  sched_copies_end
 *
 * Loads on demand are served one at a time, the one that was asked for first of all askers' oldest, and none else holds a part of
 * its segments: every other pin belongs to a load that is served whole, which its asker can consume without anything more.
 * So whatever the number of slots, the load being served gets its room in the end, and no two loads can wait for each other.
 *
 * Everything an owner tells was checked by it: layers and experts there are, prefixes of at most an expert's segments.
 */
#ifndef MOED_SCHED_COPIES_H
#define MOED_SCHED_COPIES_H

#include "sched/assign.h"
#include "sched/cache.h"
#include "sched/cache_queue.h"

enum { COPIES_MAX_ASKERS = 32, COPIES_MAX_SEGMENTS = 16 };

/* In which order what is predicted is copied; what is asked for goes first, but for `value`. A prediction whose layer has
 * been routed is dropped: its layer's plan is made. */
enum sched_prefetcher {
    PREFETCH_PROBABLE, /* the most probable first, an expert's missing segments one after the other */
    PREFETCH_CHUNKED, /* ProMoE: segment by segment, nearest layer first, then as they were predicted */
    PREFETCH_ROTATING, /* PreScope's AsyncIO: two groups of buffers, for the next layer and the one after in turn; as the plan
                          issued them */
    PREFETCH_URGENT,   /* FineMoE: by p / (layers until then) */
    PREFETCH_CLEARED,  /* as chunked, and when any layer has been routed all that is predicted is dropped, not its own alone */
    PREFETCH_LOADED, /* DALI: of each prediction the first k (sched_prefetch_most), in its order; before what the cache
                        policy wants by itself */
    PREFETCH_VALUE, /* one queue with the loads on demand, by the seconds that each is expected to save: a load is outranked once at
                       most, by a prediction of its own asker */
};

/* Segments beside the cache's own for what is copied ahead: PreScope's two groups, each as large as what is kept free for loads. */
static inline uint64_t sched_prefetch_buffers(enum sched_prefetcher kind, uint32_t reserve)
{
    return kind == PREFETCH_ROTATING ? 2 * (uint64_t)reserve : 0;
}

/* Of a layer's predicted experts those that are copied ahead: the first so many. DALI's k: 1 for a few large experts (Mixtral's 8), 4
 * for many small ones (DeepSeek-V2-Lite's 64, Qwen3's 128), as under its figure 12; what the k hold is chosen before it is looked at
 * what is there. All others: no bound. */
static inline uint32_t sched_prefetch_most(enum sched_prefetcher kind, uint32_t n_experts)
{
    return kind != PREFETCH_LOADED ? UINT32_MAX : n_experts > 16 ? 4 : 1;
}

enum copy_reason { COPY_DEMANDED, COPY_WANTED, COPY_PREDICTED };

struct copy_job {
    uint32_t layer, expert, segment;
    enum copy_reason reason;
    uint64_t asked_ns; /* the first copy for a load: when that was asked for; else 0 */
};

/* Slots that are kept free, so that a load starts at once instead of waiting for a victim's grace: what a token's experts of a
 * layer may need (layer_segments), yet an eighth of all at most. None where all segments that there are (total) fit. */
static inline uint32_t sched_copies_reserve(uint32_t n_slots, uint64_t total,
                                            uint32_t layer_segments)
{
    if (n_slots >= total)
        return 0;
    return layer_segments < n_slots / 8 ? layer_segments : n_slots / 8;
}

struct copies_shape {
    uint32_t n_layers, n_experts;
    uint32_t n_slots, reserve;     /* segments; of them, kept free for loads on demand */
    const uint8_t *layer_segments; /* [n_layers]: of an expert; 0: no experts. Borrowed in _new */
    const uint64_t *segment_bytes; /* [n_layers]; likewise */
};

/* What the owner alone knows and does. It must not call back in. */
struct copies_owner {
    void *arg;
    uint32_t (*free_slots)(void *arg);
    uint32_t (*retired_slots)(
        void *arg);             /* given up, and free as soon as nobody can still read them */
    void (*reclaim)(void *arg); /* make those free that can be */
    /* The expert's last resident segment goes: it is retired. */
    void (*evict)(void *arg, uint32_t layer, uint32_t expert, uint32_t segment);
    /* Whether the expert's bytes can be copied now; NULL: always. Where not, wish() tells who can change that. */
    bool (*obtainable)(void *arg, uint32_t layer, uint32_t expert);
    void (*wish)(void *arg, uint32_t layer, uint32_t expert, double probability, bool demanded);
};

struct copies_counts {
    uint64_t asked_bytes; /* of loads: what was not there yet, on its way or not */
    uint64_t demanded_bytes, prefetched_bytes;      /* copied because an asker waits, or ahead */
    uint64_t used_bytes;                            /* copied, whyever, and of use since; each copy once */
    uint64_t predicted_bytes, predicted_used_bytes; /* on a prediction; of those, used since */
    uint64_t wasted_bytes;                          /* given up without having been used */
    uint64_t merged,
        dropped; /* loads of what was under way already; predictions whose layer came first, or that had no room in the queue */
    uint64_t evictions;
};

struct sched_copies;

/* NULL: no memory. */
struct sched_copies *sched_copies_new(const struct copies_shape *shape,
                                      const struct copies_owner *owner);
void sched_copies_free(struct sched_copies *c); /* takes NULL */

/* The cache policy (borrowed), from now on: what is resident stays and is judged by the new one. Before anything else is told. */
void sched_copies_use(struct sched_copies *c, struct sched_cache *policy);
/* The policy is another one than before: what it neither wants nor would have kept is given up in due course, where it keeps no
 * loads. (What is wanted stays, else it would be copied again.) */
void sched_copies_tidy(struct sched_copies *c);
/* The order of what is predicted, from now on; at first PREFETCH_PROBABLE. */
void sched_copies_order(struct sched_copies *c, enum sched_prefetcher prefetcher);
/* The owner uses so many slots from now on, and keeps so many of them free. Loads that want more segments than that
 * want as many. What is resident stays, be it more. */
void sched_copies_resize(struct sched_copies *c, uint32_t n_slots, uint32_t reserve);
/* All but the first `keep` resident segments of an expert go. False: one is pinned, or on its way, so nothing went:
 * try again. */
bool sched_copies_shorten(struct sched_copies *c, uint32_t layer, uint32_t expert, uint32_t keep);
/* What copying and computing cost, for PREFETCH_VALUE; while it is not told, loads go first there too. */
void sched_copies_costs(struct sched_copies *c, const struct sched_costs *costs);

/* An asker comes, with a zeroed queue (borrowed), and goes: what it asked for is forgotten. */
void sched_copies_join(struct sched_copies *c, uint32_t asker, struct cache_queue *queue);
void sched_copies_forget(struct sched_copies *c, uint32_t asker);
void sched_copies_leave(struct sched_copies *c, uint32_t asker);

/* A layer of this asker activates these. step: forward passes of all askers, from 1; place: the asker's own, as in _place: until it
 * has moved on nothing of these experts is given up, as long as there is anything else. */
void sched_copies_routed(struct sched_copies *c, uint32_t asker, uint64_t step, uint64_t place,
                         const uint16_t *experts, const uint16_t *workloads, uint32_t n);
/* The first `prefix` segments of an expert are asked for; the queue has room. */
void sched_copies_load(struct sched_copies *c, uint32_t asker, uint32_t layer, uint32_t expert,
                       uint32_t prefix, uint64_t now_ns);
/* A layer still to come is predicted to activate these, in the predictor's order (the most probable first, or those of most tokens), at most CACHE_PREDICTIONS; probabilities: of
 * 65535. _expected: all of them, where the cache policy reads predictions. _predicted: those that are worth copying ahead. */
void sched_copies_expected(struct sched_copies *c, uint64_t step, uint32_t layer,
                           const uint16_t *experts, const uint16_t *probabilities, uint32_t n);
void sched_copies_predicted(struct sched_copies *c, uint32_t asker, uint64_t step, uint32_t layer,
                            const uint16_t *experts, const uint16_t *probabilities, uint32_t n);
/* Where the asker is: step << 16 | layer, as routed last. */
void sched_copies_place(struct sched_copies *c, uint32_t asker, uint64_t place);
/* The asker is done with its first so many loads, in the order in which it asked; more than it asked for: with all. */
void sched_copies_consumed(struct sched_copies *c, uint32_t asker, uint64_t loads);

/* JOB: to be begun, there is a free slot. BLOCKED: somebody waits for a load that has no room yet, or is not obtainable. */
enum copies_next { COPIES_NOTHING, COPIES_BLOCKED, COPIES_JOB };
enum copies_next sched_copies_next(struct sched_copies *c, uint64_t now_ns, struct copy_job *job);
void sched_copies_begin(struct sched_copies *c, const struct copy_job *job);
void sched_copies_end(struct sched_copies *c, const struct copy_job *job);

/* Of an expert: its leading segments on the device; whether one more is on its way. */
uint32_t sched_copies_resident(const struct sched_copies *c, uint32_t layer, uint32_t expert);
bool sched_copies_filling(const struct sched_copies *c, uint32_t layer, uint32_t expert);
/* A load that was served is not consumed. */
bool sched_copies_outstanding(const struct sched_copies *c);
const struct copies_counts *sched_copies_counts(const struct sched_copies *c);

#endif
