/* The decisions of one MoE layer: the plan of its experts, and the fetch hints for memd.
 *
 *     residency, costs, predictions ---> struct layer ---> plan: device, load, CPU for each expert
 *                                                     ---> hints: experts of later layers to copy
 *
 * The worker and moed-replay call the same object, so a replayed policy decides as a served one.
 * Pure: no clock, no I/O, no threads; only layer_new allocates memory. One thread. */
#ifndef MOED_SCHED_LAYER_LAYER_H
#define MOED_SCHED_LAYER_LAYER_H

#include "sched/assign/assign.h"
#include "sched/predict/predict.h"
#include "sched/prefetch/candidates.h"

#include <stdbool.h>
#include <stdint.h>

/* Segments of one expert on the device: the leading ones that are resident, and those after them
 * that are being copied. */
struct layer_residency {
    uint32_t resident, in_flight;
};

struct layer_options {
    uint32_t n_layers, n_experts;
    const uint32_t *n_segments; /* [n_layers]: of an expert; copied */
    /* The residency view: what the device holds of any expert now. */
    struct layer_residency (*residency)(void *arg, uint32_t layer, uint32_t expert);
    void *residency_arg;
    /* NULL: sched_assign. Takes its place where a solver plans (replay's optimal). */
    double (*assign)(void *arg, enum sched_assigner assigner, const struct sched_costs *costs,
                     const struct sched_layer *layer, struct sched_expert *experts, uint32_t n);
    void *assign_arg;
};

struct layer;

struct layer *layer_new(const struct layer_options *options); /* NULL: no memory */
void layer_free(struct layer *l);                             /* takes NULL */

/* ---- The plan ---- */

/* One activated expert. */
struct layer_expert {
    uint32_t expert, workload; /* tokens */
    struct layer_residency there;
};

/* The circumstances of a plan. */
struct layer_state {
    uint64_t step;
    uint32_t layer;
    enum sched_assigner assigner;
    const struct sched_costs *costs;
    uint32_t n_slots, n_spare; /* of the device: all, and those kept free for loads */
    uint32_t n_tokens;         /* of the step */
    bool prompt;               /* most of them are of prompts */
    uint32_t n_activated;      /* experts of the layer, in all its rounds */
    bool whole;                /* an expert must not be split */
    bool no_loads;             /* the CPU computes what is not resident, in flight or not */
    bool no_device;            /* the CPU computes all; no_loads, too */
    bool prefetches;           /* in this step, which may use half of n_spare */
    bool never_waits;          /* as sched_layer's, and the next four */
    double device_call_s, cpu_busy_s, link_busy_s, attention_s;
    /* The prediction of the next layers (predict_pending_upcoming), read by assigners that plan
     * prefetches; `missing` and `prefetch` are filled in. */
    struct sched_upcoming *upcoming;
    uint32_t n_upcoming;
};

struct layer_plan {
    const struct sched_expert *experts; /* [n], in the given order: device and load are set */
    double predicted_s;                 /* of the layer's routed experts */
    double misses_s;                    /* by how much that exceeds all of them being resident */
    bool device_waits;                  /* sched_device_waits */
    bool all_resident;                  /* every segment of the given experts */
    const struct sched_upcoming *upcoming;
    uint32_t n_upcoming;
};

/* Plans experts[0..n), and notes this step as their last use. The plan is valid until the next
 * call for the same object. */
void layer_plan(struct layer *l, const struct layer_state *state,
                const struct layer_expert *experts, uint32_t n, struct layer_plan *out);
/* An expert was used by a layer that was not planned. */
void layer_used(struct layer *l, uint64_t step, uint32_t layer, uint32_t expert);

/* ---- Hints ---- */

/* value: 65535 times the probability that the layer activates the expert. */
struct layer_hint {
    uint16_t expert, value;
};

/* The prefetches of a plan, one later layer at a time: zero *next, then call until it returns
 * false. hints: valid until the next call for the same object. */
struct layer_hints {
    uint32_t layer;
    const struct layer_hint *hints;
    uint32_t n; /* may be 0 */
};
bool layer_plan_hints(struct layer *l, const struct layer_state *state,
                      const struct layer_plan *plan, uint32_t *next, struct layer_hints *out);

/* A prediction of one later layer, as predictor_list gives it. */
struct layer_prediction {
    struct predict_target target;
    const struct predicted *experts;
    uint32_t n, n_known;
};

/* The circumstances of a judgement. */
struct layer_judge {
    enum sched_assigner assigner;
    enum sched_prefetcher prefetcher;
    const struct sched_costs *costs;
    double call_s; /* by how much a call of the CPU's side takes longer than one of the device's */
    uint64_t step; /* the present one */
    bool expected; /* the cache policy reads predictions (CACHE_READS_PREDICTIONS) */
    bool nothing;  /* hint at nothing, to measure a step without prefetches */
};

struct layer_judgement {
    const struct layer_hint *expected; /* all predictions, for the cache policy only */
    uint32_t n_expected;
    const struct layer_hint *fetch; /* experts worth copying, and not resident */
    uint32_t n_fetch;
    uint32_t n_declined; /* predicted, missing and not worth the copy */
};

/* Decides which hints of a prediction memd gets. None, where the assigner plans prefetches itself.
 * The lists are valid until the next call for the same object. */
void layer_judge(struct layer *l, const struct layer_judge *judge,
                 const struct layer_prediction *prediction, struct layer_judgement *out);

/* ---- Moving averages ---- */

/* The mean of about the last 64 values; *mean 0: there was none yet. */
static inline void layer_mean_add(double *mean, double value)
{
    *mean += (value - *mean) / (*mean > 0 ? 64 : 1);
}

#endif
