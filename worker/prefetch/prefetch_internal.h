/* What the files of prefetch control share.
 *
 *     prefetch.c        the order of a layer, the trial, and which layers are predicted
 *     prefetch_hints.c  the messages to memd
 */
#ifndef MOED_WORKER_PREFETCH_PREFETCH_INTERNAL_H
#define MOED_WORKER_PREFETCH_PREFETCH_INTERNAL_H

#include "prefetch.h"

#include "sched/predict/trained.h"

struct prefetch {
    struct prefetch_options options;
    const struct model_params *params;
    struct trained_predictors trained; /* where memd lends some */
    struct prediction *prediction;
    _Atomic int prefetcher;
    bool all_resident;
    enum device_use use; /* of this step */
    bool shows;          /* the predictor sees this step */
    uint64_t step;       /* of the last layer that began */

    /* the trial, with a prefetcher that selects, where all experts are in memory */
    struct device_trial trial;
    uint64_t step_began_ns;
    double misses_s, cpu_only_s; /* of this step's layers so far: prefetch_missed's,
                                    prefetch_cpu_only's */
    bool on_trial;
    uint64_t trial_of;        /* the predictor's number; 0: nothing is predicted */
    _Atomic int trial_result; /* enum device_use; -1: there was no trial */
    _Atomic double prefetch_saves, copies_save, device_saves;

    /* timed steps */
    uint64_t predict_ns; /* of this layer */
    uint64_t gates_since_ns, gates_began_ns;
    double gate_s; /* of a layer's gates, a moving average; 0: not known */

    void *memory;             /* of the arrays, [n_experts] each */
    struct cache_hint *hints; /* sent to memd */
    double *scores;           /* the batch's mean probabilities */
    float *gate;              /* one token's */
    struct predicted *best;
};

static inline enum sched_assigner prefetch_assigner(const struct prefetch *p)
{
    return (enum sched_assigner)atomic_load(p->options.assigner);
}

static inline enum sched_prefetcher prefetch_prefetcher(const struct prefetch *p)
{
    return (enum sched_prefetcher)atomic_load(&p->prefetcher);
}

/* prefetch_hints.c */

/* Sends the hints of a prediction (layer_predictions_report). */
void prefetch_report(void *prefetch, const struct layer_prediction *prediction);
/* Sends the largest probabilities of a batch's gate, twice as many as a token activates, to a cache
 * policy that reads them. */
void prefetch_report_scores(struct prefetch *p, const struct predict_seen *seen);

#endif
