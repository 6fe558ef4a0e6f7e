/* The cost model of a worker's layers: what the calibration measured, corrected by what layers
 * took, and the time that a step spends outside of its routed experts. The corrections are
 * published to memd, which outlives the worker, and stored with the calibration.
 *
 * The engine's thread owns it; functions that say "any thread" read atomics. */
#ifndef MOED_WORKER_CALIBRATE_COST_MODEL_H
#define MOED_WORKER_CALIBRATE_COST_MODEL_H

#include "base/error.h"
#include "calibration/calibration.h"
#include "calibration/layer_costs.h"
#include "device/device.h"

#include <stdatomic.h>

/* Corrections of the calibrated costs: real by measured, moving averages. */
struct cost_corrections {
    double device, cpu, slowdown, link;
};

struct cost_model {
    struct calibration calibration;
    struct layer_costs costs;
    bool has_cpu; /* cpuexec takes jobs now; else the CPU costs infinitely much */
    /* Seconds outside of the routed experts, moving averages: from a layer's end to the next
     * layer's gate, and to the next step's first gate. 0: not known. */
    double attention_s, head_s;
    double layer_s;          /* of a layer from end to end, a moving average; 0: not known */
    double misses_s;         /* layer_plan.misses_s, a moving average of steps with predictions */
    uint64_t n_gaps;         /* attentions of a step: layers with experts less one */
    uint64_t finished_ns;    /* end of the last layer; 0: there was none */
    uint64_t copies;         /* device_cache_copies at that time */
    uint32_t finished_layer; /* COST_MODEL_NO_LAYER: not one that the host planned */
    _Atomic double outside_s;
    _Atomic double shown[4];     /* struct cost_corrections, for other threads */
    _Atomic uint64_t *published; /* [RESIDENCY_COSTS], memd's; NULL: not yet calibrated */
};

#define COST_MODEL_NO_LAYER UINT32_MAX

/* One step in 16 is timed: reading a thread's clock is a system call, and in a timed step the host
 * does nothing while the device computes. Not one of those in which nothing is prefetched, or all
 * (PREFETCH_EXPLORE_STEPS): what is measured there is not what serves. */
enum { COST_MODEL_TIMED_STEPS = 16, COST_MODEL_TIMED = 8 };
static inline bool cost_model_is_timed(uint64_t step)
{
    return step % COST_MODEL_TIMED_STEPS == COST_MODEL_TIMED;
}

/* After `calibration` was measured. `known`: words of memd's with the corrections of the worker
 * before this one; `published`: where this one's go, as [RESIDENCY_COSTS] words each. */
void cost_model_start(struct cost_model *m, const struct device_spec *device,
                      const _Atomic uint64_t *known, _Atomic uint64_t *published);
/* Into the calibration's file, for the next deployment. Nothing where no layer was computed. */
void cost_model_store(const struct cost_model *m);

/* What things cost now. */
struct sched_costs cost_model_now(const struct cost_model *m);
/* By how much a job of cpuexec takes longer than a call of the device. */
double cost_model_call_s(const struct cost_model *m);

/* A layer's gate, `since_ns` after boot; is_next: of the same step as the last layer. */
void cost_model_gate(struct cost_model *m, uint64_t since_ns, bool is_next);
/* n layers ended that the host did not plan; their experts took experts_s of took_s. n is 0 where
 * the device did not complete all queued layers: then their time is not known. */
void cost_model_unplanned(struct cost_model *m, uint32_t n, double took_s, double experts_s);

/* A layer has ended now. Returns when the one before it did; 0: there was none. */
uint64_t cost_model_end(struct cost_model *m);
/* That layer was planned by the host; the one before ended at before_ns. expected_s: what it should
 * have taken since then without any copy (0: not known); undisturbed: it loaded nothing and waited
 * for no disk. copies: device_cache_copies now. */
void cost_model_layer(struct cost_model *m, uint32_t layer, uint64_t before_ns, double expected_s,
                      bool undisturbed, uint64_t copies);
/* Publishes the corrections to memd and to other threads. */
void cost_model_publish(struct cost_model *m);

/* Any thread. */
struct cost_corrections cost_model_corrections(const struct cost_model *m);
/* Seconds of a step outside of its layers' experts, a moving average; 0: not known. */
double cost_model_outside_s(const struct cost_model *m);

#endif
