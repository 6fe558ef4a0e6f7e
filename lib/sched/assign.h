/* Assigners: what becomes of each activated expert of a layer, from what is resident and what things cost. Pure: no
 * clock, no I/O, no allocation. What a policy is, and where each comes from, says docs/policies.md.
 *
 * An expert is n_segments segments. The first `resident` lie on the device; after them `in_flight` are on their way. A plan
 * splits the expert in three: [0, device) is computed on the device from what is there, [device, device + load) on the
 * device when it has been copied (in order), the rest on the CPU. Where whole is set a split is not allowed: either
 * device + load is n_segments or the CPU computes all (device and load are 0).
 */
#ifndef MOED_SCHED_ASSIGN_H
#define MOED_SCHED_ASSIGN_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>

/* Seconds, as measured. w: tokens of the expert. */
struct sched_costs {
    double load_s;                   /* one segment over the link, alone */
    double load_contended_s;         /* while the CPU computes experts */
    double device_s, device_token_s; /* a segment on the device: device_s + w * device_token_s */
    double cpu_s, cpu_token_s;       /* a segment on the CPU, alone */
    double cpu_contended_s, cpu_contended_token_s; /* while the link copies */
    double cpu_share; /* of the time, that the CPU computes experts, in replay on a machine file; 0: not known, taken for all of it */
    double layer_slowdown; /* how many times longer a whole layer takes beside a copy; 0: not known, what the CPU loses counts */
};

/* Seconds of one segment of an expert with so many tokens. */
static inline double sched_cpu_s(const struct sched_costs *c, uint32_t workload)
{
    return c->cpu_s + workload * c->cpu_token_s;
}

static inline double sched_cpu_contended_s(const struct sched_costs *c, uint32_t workload)
{
    return c->cpu_contended_s + workload * c->cpu_contended_token_s;
}

static inline double sched_device_s(const struct sched_costs *c, uint32_t workload)
{
    return c->device_s + workload * c->device_token_s;
}

/* Seconds that copying a segment ahead of its layer is expected to save: what computing it there would take off the CPU, if it
 * is activated (probability p), less what is lost to the copy meanwhile: of whole layers, or else of what the CPU computes. Where there is
 * no CPU (cpu_s infinite) it saves the wait for the load. */
static inline double sched_prefetch_gain(const struct sched_costs *c, double p)
{
    double cpu_s = sched_cpu_s(c, 1), contended_s = sched_cpu_contended_s(c, 1);
    if (isinf(cpu_s))
        return p * c->load_s;
    if (c->layer_slowdown > 0)
        return p * cpu_s - c->load_s * (1 - 1 / c->layer_slowdown);
    double share = c->cpu_share > 0 ? c->cpu_share : 1;
    return p * cpu_s - (contended_s > cpu_s ? share * c->load_s * (1 - cpu_s / contended_s) : 0);
}

enum sched_assigner {
    ASSIGN_LOAD_ALL,  /* ondemand, static, lru, lfu: every missing segment is loaded */
    ASSIGN_THRESHOLD, /* Fiddler: CPU when t_cpu(w) < T_load + t_device(w), each expert by itself */
    ASSIGN_QSTAR,  /* FreeToken: m missing experts, F loaded: floor or ceiling of m f that minimises
                          max(F (1 - f), (m - F) f), f = link / (link + cpu), both measured while both run; the
                          most recently active first */
    ASSIGN_GREEDY, /* DALI: by |t_device - t_cpu| descending, each to the side that is done sooner */
    ASSIGN_LAYERWISE, /* what is resident whole on the device, the rest on the CPU; nothing moves */
    ASSIGN_PRESCHED, /* PreScope's PreSched: loads of this layer and prefetches for the next weighed in one queue; looks
                          ahead */
    ASSIGN_SCORE_QUEUE, /* HybriMoE: the CPU takes missing experts from the end of few tokens, the device from that of many */
    ASSIGN_BALANCE, /* moed: segments of missing experts off the CPU onto the link, in order of CPU seconds saved a link
                          second, until link and CPU finish together */
    /* for replay alone */
    ASSIGN_OPTIMAL, /* the exact 0-1 assignment, by a solver of the owner's; sched_assign plans as for greedy */
};

struct sched_expert {
    uint32_t expert;
    uint32_t workload;            /* tokens */
    uint32_t resident, in_flight; /* segments */
    uint64_t last_use;            /* step of the last activation before this one; 0: never */
    /* the plan */
    uint32_t device, load;
};

/* An expert that the next layer is predicted to activate, as far as that is known when this one is planned. */
struct sched_ahead {
    uint32_t expert;
    uint32_t distance; /* layers: 1 (or 0) the next, 2 the one after it, if that is known too */
    uint32_t workload; /* tokens, as expected; at least 1 */
    uint32_t missing;  /* segments, neither resident nor on their way */
    double probability;
    double hit_rate; /* of what was predicted of that layer at the expert's rank, what was activated; 1 while that is not known */
    /* the plan: copy what is missing ahead of its layer, after this layer's loads */
    bool prefetch;
};

struct sched_layer {
    uint32_t n_segments;
    uint32_t spare_slots; /* segments that may be loaded for this layer at once */
    bool whole;
    double device_call_s; /* of computing anything on the device, once for what is resident and for each arrival */
    bool never_waits;     /* the device computes what is resident first in any case (sched_device_waits) */
    double cpu_busy_s; /* what the CPU side still has to do before this layer's experts */
    /* likewise: the rest of the copy under way. What is in flight is there when it is over, and costs the link nothing more */
    double link_busy_s;
    /* for assigners that look ahead (sched_assigner_looks_ahead); others leave them alone */
    struct sched_ahead *ahead;
    uint32_t n_ahead;
    double attention_s; /* from this layer's end to the next one's gate */
};

/* True where the plan of a layer says what is copied ahead for the next one: what is predicted is not copied otherwise. */
bool sched_assigner_looks_ahead(enum sched_assigner kind);

/* Segments that may be loaded for a layer at once: DALI loads into the slots beside its cache (n_beside), where there are some;
 * the others may use up half of the device. */
uint32_t sched_spare_slots(enum sched_assigner kind, uint64_t n_slots, uint64_t n_beside);

/* DALI's two figures for an expert (its equations 4 to 6): seconds on the CPU, and on the device, where loading and computing
 * overlap. Of what can be decided about: all of a whole expert or of one that is on the device, else the missing segments. */
struct sched_sides {
    double cpu_s, device_s;
};
struct sched_sides sched_sides(const struct sched_costs *costs, const struct sched_layer *layer,
                               const struct sched_expert *e);

/* The largest n that sched_assign takes. */
enum { SCHED_MAX_EXPERTS = 4096 };

/* Fills device and load of experts[0..n), whose order is not changed. Returns the predicted seconds of the layer's routed
 * experts (the later of device, link and CPU). It reckons with loads in the order of falling
 * workload. Deterministic; ties by the lower expert number. The CPU may be missing
 * (cpu_s infinite): then everything is loaded, whatever the assigner. More loads than spare_slots are allowed for assigners
 * that load all (the layer runs in waves); the others keep within it as long as the CPU can take the rest. */
double sched_assign(enum sched_assigner kind, const struct sched_costs *costs,
                    const struct sched_layer *layer, struct sched_expert *experts, uint32_t n);

/* How the device goes about a plan. True: it waits for the load and computes it with what is resident in one call, for that is
 * sooner than beginning with what is resident (a call takes long, the load is soon there). Only where one expert alone is
 * loaded. */
bool sched_device_waits(const struct sched_costs *costs, const struct sched_layer *layer,
                        const struct sched_expert *experts, uint32_t n);

#endif
