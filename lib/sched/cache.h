/* Cache policies: which segments the device keeps. Pure: no clock, no I/O; memory is allocated by sched_cache_new alone.
 *
 * The owner (memd) tells it what was activated, loaded and evicted; it answers what to evict when room is needed and what
 * to load although nobody asked. What is resident of an expert is a prefix of its segments. */
#ifndef MOED_SCHED_CACHE_H
#define MOED_SCHED_CACHE_H

#include <stdbool.h>
#include <stdint.h>

enum sched_cache_kind {
    CACHE_NONE, /* ondemand: a loaded segment is given up after its use */
    CACHE_STATIC, /* the most activated in a profile, of the same layer or of all, fixed; without one, of the first steps seen */
    CACHE_LRU,  /* least recently used, of the same layer or over all layers */
    CACHE_LFU,  /* least frequently used of the same layer */
    CACHE_DALI, /* workload-aware: every w_size steps the u_size most loaded uncached experts of a layer for the u_size
                       least loaded cached ones; on-demand loads do not enter (policies.md) */
    CACHE_LAYERWISE, /* whole layers, the first ones, fixed */
    CACHE_LRU_AHEAD, /* ProMoE: least recently used of the same layer; what is predicted counts as used */
    CACHE_LCP, /* MoEpic: least cache priority of the same layer, frequency times decay; may hold the first part of experts */
    CACHE_SCORE, /* HybriMoE: lowest moving average of gate probabilities of the same layer */
    CACHE_MAP_FREQUENCY, /* FineMoE: lowest predicted probability times frequency, over all layers */
    CACHE_VALUE, /* moed: CPU seconds saved, exponentially decayed, and predictions, over all layers, segment by segment */
    CACHE_DALI_GUARDED, /* as CACHE_DALI; what comes in must have more tokens than what goes out */
    /* for replay alone */
    CACHE_BELADY, /* used the farthest in the future, which sched_cache_options.next_use tells */
    CACHE_RANDOM, /* a random one of the same layer */
};
enum { CACHE_KINDS = CACHE_RANDOM + 1 };

/* True for those that a deployment cannot have. */
static inline bool sched_cache_replay_only(enum sched_cache_kind kind)
{
    return kind >= CACHE_BELADY;
}

/* How many of the device's slots a layer may hold. */
enum sched_budget {
    BUDGET_GLOBAL,  /* layers compete for all of them */
    BUDGET_UNIFORM, /* every layer with experts the same share */
    BUDGET_CONFIGURED, /* MoEpic: each layer's share and split chosen anew every 5,000 tokens (budget_moepic.h) */
};
enum { BUDGET_KINDS = BUDGET_CONFIGURED + 1 };

struct sched_cache_shape {
    uint32_t n_layers, n_experts; /* layers without experts have no activations */
    uint32_t n_segments;          /* of an expert */
    uint32_t first_layer;         /* the first that has experts */
    uint32_t n_used;              /* experts a token activates */
    uint64_t capacity;            /* segments that the device holds */
    /* [n_layers], where layers differ in the segments of an expert; NULL: n_segments everywhere. Borrowed in _new */
    const uint8_t *layer_segments;
};

struct sched_cache_options {
    enum sched_budget budget; /* one that the kind takes */
    /* 0: by the number of experts, as the paper gives: (4, 1) up to 16 experts, (4, 8) for more */
    uint32_t dali_w_size;
    uint32_t dali_u_size;
    double value_half_life; /* steps; 0: 32 */
    /* static, value: activations [n_layers][n_experts]; NULL: none. Borrowed in _new */
    const uint32_t *profile;
    uint64_t buffers; /* static: segments of the capacity that are left to what is copied ahead (sched_prefetch_buffers) */
    double score_alpha; /* score: the share of what is new in the moving average; 0: 0.1 */
    /* belady: when this expert is used next, counted in anything that grows (step * n_layers + layer); UINT64_MAX: never
     * again. Asked when its layer has been routed (then: the use after this one) and when it arrives. NULL: never, of
     * all. */
    uint64_t (*next_use)(void *arg, uint32_t layer, uint32_t expert);
    void *next_use_arg;
    uint64_t seed; /* random */
};

/* What things take, for budgets that reckon with time. Seconds, or anything that they are proportional to. */
struct sched_cache_costs {
    double load_s;      /* one segment over the link */
    double compute_s;   /* one segment on the device, one token */
    double attention_s; /* a layer without its experts */
    double head_s;      /* from the last layer to the first one's attention */
    double cpu_s, cpu_token_s; /* one segment on the CPU: cpu_s + tokens * cpu_token_s; both 0: not known */
};

struct sched_cache;

/* Most caches share the device in one way alone; lru in either. */
bool sched_cache_takes(enum sched_cache_kind kind, enum sched_budget budget);
/* The one that it takes where none was chosen. */
enum sched_budget sched_cache_budget(enum sched_cache_kind kind);

/* options NULL: its own budget, and everything else 0. NULL: no memory. */
struct sched_cache *sched_cache_new(enum sched_cache_kind kind,
                                    const struct sched_cache_shape *shape,
                                    const struct sched_cache_options *options);
void sched_cache_free(struct sched_cache *c); /* takes NULL */

/* A layer was routed: experts[0..n) with their workloads. step counts forward passes, from 1; layers come in order within
 * a step. */
void sched_cache_routed(struct sched_cache *c, uint64_t step, uint32_t layer,
                        const uint16_t *experts, const uint16_t *workloads, uint32_t n);

/* What some caches read beside; bits of sched_cache_reads. */
enum {
    CACHE_READS_SCORES = 1,      /* gate probabilities */
    CACHE_READS_PREDICTIONS = 2, /* what is predicted, whether or not it is copied */
};
uint32_t sched_cache_reads(enum sched_cache_kind kind);
/* After sched_cache_routed of the same layer: the largest gate probabilities, the mean over the batch, about twice as many as are
 * activated. */
void sched_cache_scored(struct sched_cache *c, uint32_t layer, const uint16_t *experts,
                        const float *scores, uint32_t n);
/* The layer was predicted to activate these, in the predictor's order. */
void sched_cache_predicted(struct sched_cache *c, uint64_t step, uint32_t layer,
                           const uint16_t *experts, const float *probabilities, uint32_t n);

/* May be told any time; a budget that does not reckon with time takes no notice. */
void sched_cache_costs(struct sched_cache *c, const struct sched_cache_costs *costs);
/* lcp: a layer holds this many segments in all, the first ones of this many experts (0, or fewer than fill them: whole experts).
 * Other caches take no notice. */
void sched_cache_configure(struct sched_cache *c, uint32_t layer, uint64_t segments,
                           uint32_t n_experts);
/* What a layer may hold now: segments, of how many experts; false where the cache has no such share. */
bool sched_cache_configuration(const struct sched_cache *c, uint32_t layer, uint64_t *segments,
                               uint32_t *n_experts);

/* Segments of this expert that are resident now; the owner tells after each load and each eviction. */
void sched_cache_resident(struct sched_cache *c, uint32_t layer, uint32_t expert,
                          uint32_t segments);
uint32_t sched_cache_segments(const struct sched_cache *c, uint32_t layer, uint32_t expert);

/* True where a segment that was loaded on demand stays after its use. */
bool sched_cache_keeps_loads(const struct sched_cache *c);

/* Whose last segment goes first, to make room for one of (layer, expert). blocked(arg, layer, expert) tells which may not be
 * touched now (being copied, or pinned). False: nothing may go (all blocked, or the policy thinks all resident
 * ones worth more than the new one and `demanded` is false). `demanded`: an on-demand load; it must get room if anything is
 * evictable at all. `probability`: that the coming layer activates the expert, where that was predicted; else 0. */
typedef bool sched_blocked(void *arg, uint32_t layer, uint32_t expert);
bool sched_cache_victim(const struct sched_cache *c, uint32_t layer, uint32_t expert, bool demanded,
                        double probability, sched_blocked *blocked, void *arg,
                        uint32_t *victim_layer, uint32_t *victim_expert);

/* blocked: as for victims, what cannot be copied now; NULL: nothing.
 * The next segment that the policy wants on the device by itself (static's and layerwise's filling, dali's swaps, value's
 * filling of free room, and the next layer's in a step that activates most): the segment after the resident prefix of the expert given back. free_segments: room there is
 * without evicting. False: nothing. */
bool sched_cache_wanted(struct sched_cache *c, uint64_t free_segments, sched_blocked *blocked,
                        void *arg, uint32_t *layer, uint32_t *expert);

#endif
