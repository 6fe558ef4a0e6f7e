/* Cache policies: which segments the device keeps. Pure: no clock, no I/O; only sched_cache_new
 * allocates. docs/policies.md names the policies, docs/design/caching.md has their rules.
 *
 * The owner (memd) reports what was activated, loaded and evicted. The cache answers what to evict
 * when a slot is needed, and what to load although no worker demanded it. The resident part of an
 * expert is a prefix of its segments. */
#ifndef MOED_SCHED_CACHE_CACHE_H
#define MOED_SCHED_CACHE_CACHE_H

#include <stdbool.h>
#include <stdint.h>

enum sched_cache_kind {
    CACHE_NONE,   /* ondemand: a loaded segment is evicted after its use */
    CACHE_STATIC, /* the most activated experts of a profile, of the layer or of all, fixed; without
                     a profile, of the first steps */
    CACHE_LRU,    /* least recently used, of the layer or over all layers */
    CACHE_LFU,    /* least frequently used of the layer */
    CACHE_DALI, /* workload-aware: every w_size steps a layer's u_size most loaded uncached experts
                   replace its u_size least loaded cached ones; demanded loads do not enter */
    CACHE_LAYERWISE,    /* whole layers, the first ones, fixed */
    CACHE_LRU_PREFETCH, /* ProMoE: least recently used of the layer; a prediction counts as a use */
    CACHE_LCP,   /* MoEpic: lowest priority of the layer, frequency times decay; may hold the first
                    part of experts */
    CACHE_SCORE, /* HybriMoE: lowest moving average of gate probabilities of the layer */
    CACHE_MAP_FREQUENCY, /* FineMoE: lowest predicted probability times frequency, all layers */
    CACHE_VALUE, /* moed: CPU seconds saved, decayed with the half-life that finds the most, the
                    layer's last turn, and predictions; all layers, segment by segment */
    CACHE_DALI_GUARDED, /* as CACHE_DALI; a swap needs an expert with more tokens than its victim */
    CACHE_ARC,          /* adaptive replacement: recent against frequent experts, all layers */
    CACHE_LRFU,         /* least combined recency and frequency, all layers */
    CACHE_TINYLFU,      /* W-TinyLFU: a window, and admission by frequency, all layers */
    CACHE_LEAST_STALE,  /* SpecMD: what this pass has not used, the first layers first */
    CACHE_PROMPT,    /* KTransformers: the experts that the last long prompt activated most, fixed
                        until   the next one */
    CACHE_STREAMED,  /* MoE-Lightning: an equal part of each layer stays, the rest of the next layer
                        is copied while this one is computed */
    CACHE_LEARNED,   /* FlashMoE: longest time until the next use, as learned from recency and
                        frequency */
    CACHE_ALLOCATED, /* AdapMoE: least recently used of the layer; each layer's share by a dynamic
                        program */
    CACHE_SHALLOW,   /* Fate: the first four layers stay; the others have equal shares, and ARC */
    /* for replay only */
    CACHE_BELADY, /* used the farthest in the future (sched_cache_options.next_use) */
    CACHE_RANDOM, /* a random expert of the layer */
};
enum { CACHE_KINDS = CACHE_RANDOM + 1 };

/* True for the kinds that a deployment cannot have. */
static inline bool sched_cache_replay_only(enum sched_cache_kind kind)
{
    return kind >= CACHE_BELADY;
}

/* How many of the device's slots a layer may hold. */
enum sched_budget {
    BUDGET_GLOBAL,     /* layers compete for all of them */
    BUDGET_UNIFORM,    /* every layer with experts has the same share */
    BUDGET_CONFIGURED, /* MoEpic: each layer's share and split chosen anew every 5,000 tokens
                          (budget_moepic.h) */
};
enum { BUDGET_KINDS = BUDGET_CONFIGURED + 1 };

struct sched_cache_shape {
    uint32_t n_layers, n_experts; /* layers without experts have no activations */
    uint32_t n_segments;          /* of an expert */
    uint32_t first_layer;         /* the first that has experts */
    uint32_t n_used;              /* experts a token activates */
    uint64_t capacity;            /* segments that the device holds */
    /* [n_layers], where layers differ in the segments of an expert; NULL: n_segments everywhere.
     * Borrowed in _new */
    const uint8_t *layer_segments;
};

struct sched_cache_options {
    enum sched_budget budget; /* one that the kind takes */
    /* 0: by the number of experts, as in the paper: (4, 1) up to 16 experts, (4, 8) for more */
    uint32_t dali_w_size;
    uint32_t dali_u_size;
    double value_half_life; /* steps; 0: adapts to what is activated */
    /* static, value: activations [n_layers][n_experts]; NULL: none. Borrowed in _new */
    const uint32_t *profile;
    uint64_t buffers;   /* static: segments of the capacity that are left to prefetches
                           (sched_prefetch_buffers) */
    double score_alpha; /* score: the weight of the new value in the moving average; 0: 0.5 */
    /* belady: when this expert is used next, in a number that grows (step * n_layers + layer);
     * UINT64_MAX: never again. Called when its layer has been routed (then: the use after this
     * one) and when a segment arrives. NULL: no expert is used again. */
    uint64_t (*next_use)(void *arg, uint32_t layer, uint32_t expert);
    void *next_use_arg;
    uint64_t seed; /* random */
};

/* Costs, for budgets that reckon with time. Seconds, or any unit proportional to them. */
struct sched_cache_costs {
    double load_s;      /* one segment over the link */
    double compute_s;   /* one segment on the device, one token */
    double attention_s; /* a layer without its experts */
    double head_s;      /* from the last layer to the first one's attention */
    double cpu_s,
        cpu_token_s; /* one segment on the CPU: cpu_s + tokens * cpu_token_s; both 0: not known */
};

struct sched_cache;

/* True if the cache can share the device in this way; most can in one way only. */
bool sched_cache_takes(enum sched_cache_kind kind, enum sched_budget budget);
/* The budget that it takes by default. */
enum sched_budget sched_cache_budget(enum sched_cache_kind kind);

/* options NULL: the default budget, everything else 0. Returns NULL: no memory. */
struct sched_cache *sched_cache_new(enum sched_cache_kind kind,
                                    const struct sched_cache_shape *shape,
                                    const struct sched_cache_options *options);
void sched_cache_free(struct sched_cache *c); /* takes NULL */
/* The device holds `capacity` segments from now on; the policy keeps what it has learnt. False:
 * this kind cannot, and nothing has changed. */
bool sched_cache_resize(struct sched_cache *c, uint64_t capacity);

/* True if a step goes through the layers like a stream: a prompt that activates more than half of a
 * layer's experts, or any step that activates all. `value` then may copy the next layer's
 * experts into slots of the layers passed. */
static inline bool sched_cache_streams(bool prompt, uint32_t n_activated, uint32_t n_experts)
{
    return (prompt && 2 * n_activated > n_experts) || n_activated >= n_experts;
}

/* A layer was routed to experts[0..n), with their workloads. step counts forward passes, from 1;
 * layers come in order within a step. prompt: most of the step's tokens are of prompts. A layer may
 * be reported in parts. */
void sched_cache_routed(struct sched_cache *c, uint64_t step, uint32_t layer, bool prompt,
                        const uint16_t *experts, const uint16_t *workloads, uint32_t n);

/* What some caches read in addition; bits of sched_cache_reads. */
enum {
    CACHE_READS_SCORES = 1,      /* gate probabilities */
    CACHE_READS_PREDICTIONS = 2, /* predictions, whether or not they are copied */
};
uint32_t sched_cache_reads(enum sched_cache_kind kind);
/* After sched_cache_routed of the same layer: the largest gate probabilities (means over the
 * batch), about twice as many as are activated. */
void sched_cache_scored(struct sched_cache *c, uint32_t layer, const uint16_t *experts,
                        const float *scores, uint32_t n);
/* The layer was predicted to activate these, in the predictor's order. */
void sched_cache_predicted(struct sched_cache *c, uint64_t step, uint32_t layer,
                           const uint16_t *experts, const float *probabilities, uint32_t n);

/* At any time. Budgets that do not reckon with time ignore it. */
void sched_cache_costs(struct sched_cache *c, const struct sched_cache_costs *costs);
/* For tests, in place of what MoEpic's configuration says. lcp: a layer holds this many segments in
 * all, the first ones of this many experts (0, or fewer than fill them: whole experts). Other
 * caches ignore it. */
void sched_cache_configure(struct sched_cache *c, uint32_t layer, uint64_t segments,
                           uint32_t n_experts);
/* What a layer may hold now: segments, of how many experts; false where the cache has no such
 * share. */
bool sched_cache_configuration(const struct sched_cache *c, uint32_t layer, uint64_t *segments,
                               uint32_t *n_experts);

/* Reports the resident segments of an expert; the owner calls it after each load and eviction. */
void sched_cache_resident(struct sched_cache *c, uint32_t layer, uint32_t expert,
                          uint32_t segments);
uint32_t sched_cache_segments(const struct sched_cache *c, uint32_t layer, uint32_t expert);

/* True if a segment that was loaded on demand stays after its use. */
bool sched_cache_keeps_loads(const struct sched_cache *c);

/* Finds the expert whose last segment is evicted for a segment of (layer, expert). blocked(arg,
 * layer, expert): true if that expert must not be touched now (being copied, or pinned). demanded:
 * the segment is for a demanded load, which gets a slot if anything is evictable at all.
 * probability: that the coming layer activates the expert, if that was predicted; else 0. False:
 * nothing may go (all are blocked, or, for a prefetch, the policy values all resident segments
 * more). */
typedef bool sched_blocked(void *arg, uint32_t layer, uint32_t expert);
bool sched_cache_victim(const struct sched_cache *c, uint32_t layer, uint32_t expert, bool demanded,
                        double probability, sched_blocked *blocked, void *arg,
                        uint32_t *victim_layer, uint32_t *victim_expert);

/* Finds the resident expert that is worth the least, of a policy that then fills free slots with
 * what is worth more (value). blocked: as above. False: there is none, or the policy does not say.
 */
bool sched_cache_least(const struct sched_cache *c, sched_blocked *blocked, void *arg,
                       uint32_t *layer, uint32_t *expert);

/* In a step that streams, where the policy is about to want an absent expert: finds the expert of
 * the layers up to the one routed last whose last segment is evicted first, so that the copy finds
 * a free slot. blocked: also what the layer routed last uses, until it is computed. unobtainable:
 * true if that expert cannot be copied now; NULL: none is. False: there is no such step, nothing is
 * wanted, or nothing may go. */
bool sched_cache_passed(const struct sched_cache *c, sched_blocked *blocked,
                        sched_blocked *unobtainable, void *arg, uint32_t *layer, uint32_t *expert);

/* Finds the expert whose next segment, the one after its resident prefix, the policy wants without
 * a demand: filling (static, layerwise, value), swaps (dali), the next layer's experts in a step
 * that activates most of a layer (value). free_segments: free slots. blocked: true if that expert
 * cannot be copied now; NULL: none. False: nothing is wanted. */
bool sched_cache_wanted(struct sched_cache *c, uint64_t free_segments, sched_blocked *blocked,
                        void *arg, uint32_t *layer, uint32_t *expert);

/* While the link has nothing else to copy: finds an absent expert that is worth a copy in place of
 * the least valuable resident one, which sched_cache_victim then finds for it (value). copy_s: what
 * a copy of a segment costs others. blocked, unobtainable: as in sched_cache_passed. */
bool sched_cache_exchange(const struct sched_cache *c, double copy_s, sched_blocked *blocked,
                          sched_blocked *unobtainable, void *arg, uint32_t *layer,
                          uint32_t *expert);

#endif
