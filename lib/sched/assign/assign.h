/* Assigners decide where each activated expert of a layer is computed, from what is resident and
 * what things cost. Pure: no clock, no I/O, no allocation. docs/policies.md names the assigners,
 * docs/design/assignment.md has their rules.
 *
 * An expert is n_segments segments. The first `resident` lie on the device; the next `in_flight`
 * are on their way. A plan splits the expert in three: the device computes [0, device) from what
 * is there and [device, device + load) once they have been copied (in order); the CPU computes the
 * rest. With `whole` an expert is not split: either device + load is n_segments, or the CPU
 * computes all (device and load are 0). */
#ifndef MOED_SCHED_ASSIGN_ASSIGN_H
#define MOED_SCHED_ASSIGN_ASSIGN_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>

/* Seconds, as measured. w: tokens of the expert. */
struct sched_costs {
    double load_s;                   /* one segment over the link, the CPU idle */
    double load_contended_s;         /* while the CPU computes experts */
    double device_s, device_token_s; /* a segment on the device: device_s + w * device_token_s */
    double cpu_s, cpu_token_s;       /* a segment on the CPU, the link idle */
    double cpu_contended_s, cpu_contended_token_s; /* while the link copies */
    double cpu_share; /* share of the time in which the CPU computes experts; set by a replay on a
                         machine file. 0: not known, taken for 1 */
    double layer_slowdown; /* how many times longer a whole layer takes while a copy runs. 0: not
                              known, then the CPU's loss counts */
};

/* Seconds for one segment of an expert with `workload` tokens. */
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

/* Seconds that prefetching a segment is expected to save: the CPU time of the segment if it is
 * activated (probability p), less what the copy slows down while it runs: whole layers
 * (layer_slowdown), or else the CPU. Without a CPU (cpu_s infinite) a prefetch saves the wait for
 * the load. */
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
    ASSIGN_LOAD_ALL,  /* every missing segment is loaded (ondemand, static, lru, lfu) */
    ASSIGN_THRESHOLD, /* Fiddler: CPU when t_cpu(w) < T_load + t_device(w), each expert separately
                       */
    ASSIGN_QSTAR,  /* FreeToken: m missing experts, F loaded: floor or ceiling of m f that minimises
                          max(F (1 - f), (m - F) f), f = link / (link + cpu), both measured while
                      both run; the  most recently active first */
    ASSIGN_GREEDY, /* DALI: by falling |t_device - t_cpu|, each to the side that finishes sooner */
    ASSIGN_LAYERWISE, /* whole resident experts on the device, the rest on the CPU; nothing moves */
    ASSIGN_PRESCHED, /* PreScope's PreSched: loads of this layer and prefetches for the next weighed
                        in one queue */
    ASSIGN_SCORE_QUEUE,  /* HybriMoE: the CPU takes missing experts from the fewest tokens up, the
                            device from the most down */
    ASSIGN_BALANCE,      /* moed: segments of missing experts move from the CPU to the link, by CPU
                            seconds saved a link second, until both finish together */
    ASSIGN_QSTAR_STREAM, /* as qstar; a prompt loads all that is missing */
    ASSIGN_GREEDY_UNBOUND,    /* as greedy; loads may use half of the device */
    ASSIGN_LAYERWISE_STREAM,  /* KTransformers: as layerwise; a prompt of 512 tokens loads all */
    ASSIGN_LAYERWISE_OFFLOAD, /* llama.cpp: the same for a step of 32 tokens */
    /* for replay only */
    ASSIGN_OPTIMAL, /* the exact 0-1 assignment, by the owner's solver; sched_assign itself plans as
                       for greedy */
};

struct sched_expert {
    uint32_t expert;
    uint32_t workload;            /* tokens */
    uint32_t resident, in_flight; /* segments */
    uint64_t last_use;            /* step of the last activation before this one; 0: never */
    /* the plan */
    uint32_t device, load;
};

/* An expert that one of the next two layers is predicted to activate, as known when this layer is
 * planned. */
struct sched_upcoming {
    uint32_t expert;
    uint32_t distance; /* layers: 1 (or 0) the next, 2 the one after it */
    uint32_t workload; /* expected tokens; at least 1 */
    uint32_t missing;  /* segments neither resident nor on their way */
    double probability;
    double hit_rate; /* share of the predictions of that layer at this rank that came true; 1 while
                        not known */
    /* the plan: copy the missing segments after this layer's loads */
    bool prefetch;
};

struct sched_layer {
    uint32_t n_segments;
    uint32_t spare_slots; /* segments that may be loaded at once for this layer */
    uint32_t free_slots;  /* of them, copied before the device's first call ends; 0: all */
    bool whole;
    uint32_t n_tokens;    /* of the step */
    bool prompt;          /* most of them are of prompts */
    double device_call_s; /* of a device call: one for the resident part, one for each arrival */
    bool never_waits;     /* the device begins with the resident part in any case */
    double cpu_busy_s;    /* work that the CPU still has before this layer's experts */
    /* The rest of the copy under way. Segments in flight are there when it is over, and cost the
     * link nothing more. */
    double link_busy_s;
    uint32_t prefetches; /* segments of the next layer, copied after this layer's loads */
    /* read by assigners that plan prefetches (sched_assigner_plans_prefetch) */
    struct sched_upcoming *upcoming;
    uint32_t n_upcoming;
    double attention_s; /* from this layer's end to the next layer's gate */
};

/* True if the plan of a layer decides what is prefetched; no other prediction is copied then. */
bool sched_assigner_plans_prefetch(enum sched_assigner kind);

/* Segments that may be loaded at once for a layer. DALI loads into the slots outside of its cache
 * (n_outside), if there are any; the other assigners may use half of the device. */
uint32_t sched_spare_slots(enum sched_assigner kind, uint64_t n_slots, uint64_t n_outside);

/* DALI's two figures for an expert (its equations 4 to 6): seconds on the CPU, and on the device,
 * where loading and computing overlap. They cover all of an expert that is resident or not to be
 * split, else its missing segments. */
struct sched_sides {
    double cpu_s, device_s;
};
struct sched_sides sched_sides(const struct sched_costs *costs, const struct sched_layer *layer,
                               const struct sched_expert *e);

/* The largest n that sched_assign takes. */
enum { SCHED_MAX_EXPERTS = 4096 };

/* Fills device and load of experts[0..n), without changing their order. Returns the expected
 * seconds of the layer's routed experts (the later of device, link and CPU), with loads in the
 * order of falling workload. Deterministic; ties go to the lower expert number.
 *
 * Without a CPU (cpu_s infinite) everything is loaded, whatever the assigner. Assigners that load
 * all may exceed spare_slots (the layer runs in waves), and so may `balance` if free_slots and
 * device_call_s are set; the others keep within it as long as the CPU can take the rest. */
double sched_assign(enum sched_assigner kind, const struct sched_costs *costs,
                    const struct sched_layer *layer, struct sched_expert *experts, uint32_t n);

/* True if the device should wait for the load and compute it with the resident part in one call,
 * because that is sooner than a call for each. Only where a single expert is loaded. */
bool sched_device_waits(const struct sched_costs *costs, const struct sched_layer *layer,
                        const struct sched_expert *experts, uint32_t n);

#endif
