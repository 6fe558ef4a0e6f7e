/* Prefetch control: shows layers to the predictor, judges its predictions, and sends the fetch
 * hints to memd. On trial it leaves copies, or the device, out for whole
 * steps (device_trial.h).
 *
 *     forward -- show, gates --> prediction --> layer_judge -- hints --> device_cache, host_experts
 *
 * The engine's thread; functions that say "any thread" may be called by others. */
#ifndef MOED_WORKER_PREFETCH_PREFETCH_H
#define MOED_WORKER_PREFETCH_PREFETCH_H

#include "device_trial.h"
#include "prediction.h"
#include "sched/layer/layer.h"
#include "sched/prefetch/transfer_scheduler.h"
#include "worker/calibrate/cost_model.h"
#include "worker/links/device_cache.h"
#include "worker/links/host_experts.h"

/* A larger batch activates most of a layer's experts: predicting them is of no use. */
#define PREDICT_MAX_TOKENS 32

struct prefetch_counters {
    struct counter *declined;           /* experts predicted, and not worth the copy */
    struct counter *without;            /* steps without prefetch: slower with it, or on trial */
    struct counter *without_loads;      /* steps without any copy */
    struct counter *without_device;     /* steps whose routed experts the CPU computed */
    struct histogram *predict_seconds;  /* of a layer, in the engine's thread; of timed steps */
    struct counter *predict_exposed_ns; /* the same, of layers that waited for nothing afterwards */
};

struct prefetch_options {
    const struct memory_client *memory;
    struct layer *layer; /* the decisions; residency is read within the cache's epoch */
    const struct cost_model *costs;
    struct device_cache *cache;  /* NULL: the device has no memory of its own */
    struct host_experts *host;   /* NULL: all experts are in the pool */
    const _Atomic int *assigner; /* enum sched_assigner */
    enum sched_predictor predictor;
    enum sched_prefetcher prefetcher; /* memd's: which experts are hinted at, and
                                         whether there is a trial */
    bool fine_tune;                   /* predict_shape's */
    struct prediction_counters prediction_counters;
    struct prefetch_counters counters;
};

struct prefetch;

/* Borrows all. */
enum error_code prefetch_new(const struct prefetch_options *options, struct prefetch **out,
                             struct error *e);
void prefetch_free(struct prefetch *p); /* takes NULL */

/* Another predictor or prefetcher, from the next layer on. One thread at a time, any. */
enum error_code prefetch_set_predictor(struct prefetch *p, enum sched_predictor predictor,
                                       struct error *e);
void prefetch_set_prefetcher(struct prefetch *p, enum sched_prefetcher prefetcher);
const struct prediction *prefetch_prediction(const struct prefetch *p);

/* The result of the trials. Any thread. */
struct device_trial_result {
    bool tried;                                       /* else the rest is not known */
    enum device_use use;                              /* between the trials */
    double prefetch_saves, copies_save, device_saves; /* as device_trial's */
};
struct device_trial_result prefetch_trial_result(const struct prefetch *p);

/* decodes: no rows of prompts and no drafts. */
struct prefetch_step {
    uint32_t n_tokens;
    bool decodes;
};

/* A step has ended, and the next one, of the next number, begins. has_cpu: cpuexec computes experts
 * now. */
void prefetch_step(struct prefetch *p, struct prefetch_step ended, struct prefetch_step next,
                   bool has_cpu);
/* What a layer's misses cost in this step (layer_plan.misses_s). */
void prefetch_missed(struct prefetch *p, double misses_s);
/* By how much longer than it took a layer of this step should have taken, had the CPU computed all.
 */
void prefetch_cpu_only(struct prefetch *p, double longer_s);
/* Whether the present step may load what the device lacks, and compute on the device. */
bool prefetch_may_load(const struct prefetch *p);
bool prefetch_may_use_device(const struct prefetch *p);
/* A layer of this step begins. Hints are judged by the step of the last layer that began: an answer
 * that arrives between two steps counts in the first of them. */
void prefetch_enter(struct prefetch *p, uint64_t step);
/* Whether every activated expert is on the device: if so, nothing is predicted. */
void prefetch_set_all_resident(struct prefetch *p, bool all_resident);
/* A layer must be shown before the next one is begun, to predict or to report its scores. */
bool prefetch_watches(const struct prefetch *p);

/* In this order for each layer. look: before the layer, any number of times; takes the answers of
 * the background predictor. routed: after its gate. Then show, the gates, and before_wait. done:
 * after its end; has_waited: it waited for cpuexec or for a load. */
void prefetch_look(struct prefetch *p, uint64_t step, uint32_t layer);
void prefetch_routed(struct prefetch *p, const struct predict_seen *seen);
void prefetch_done(struct prefetch *p, uint64_t step, bool has_waited);

/* Shows a layer, or a step's embedding (PREDICT_EMBEDDING) before its first layer. */
void prefetch_show(struct prefetch *p, const struct predict_seen *seen);
bool prefetch_reads_embedding(const struct prefetch *p, uint32_t n_tokens);
bool prefetch_reads_scores(const struct prefetch *p);

/* The i-th layer whose gate the caller evaluates on *input; false: no more. from_gate follows with
 * the gate's choice, and gates_end after the last one. */
bool prefetch_gate(struct prefetch *p, const struct predict_seen *seen, uint32_t i,
                   struct predict_target *target, const float **input);
void prefetch_from_gate(struct prefetch *p, const struct predict_seen *seen,
                        const struct predict_target *target, const uint32_t *routing);
void prefetch_gates_end(struct prefetch *p);

/* Before the engine waits: wakes the background predictor, if that was put off. */
void prefetch_before_wait(struct prefetch *p, uint64_t step);

/* The prediction of the next layers, for an assigner that plans prefetches. NULL: none, or the
 * present step prefetches nothing. */
struct sched_upcoming *prefetch_upcoming(struct prefetch *p, const struct predict_target *now,
                                         uint32_t n_tokens, uint32_t *n);
/* Sends the prefetches of a plan to memd. */
void prefetch_send_plan(struct prefetch *p, const struct layer_state *state,
                        const struct layer_plan *plan);

#endif
