/* Simulates a policy on a trace in virtual time, on the cost model of a machine: one row of the
 * table. Deterministic except for replay_result.decision_s. docs/design/replay.md describes the
 * simulation. */
#ifndef MOED_REPLAY_SIMULATE_H
#define MOED_REPLAY_SIMULATE_H

#include "bench/replay/machine.h"
#include "bench/replay/result.h"
#include "bench/replay/shared.h"
#include "sched/policy.h"
#include "trace/trace.h"

/* Values that are the same for all policies of one budget, batch and machine. Zeroed before the
 * first run. */
struct replay_cell {
    bool known;
    double bound_s; /* bound_seconds */
};

enum { REPLAY_PREDICT_TOKENS = 32 }; /* the worker's PREDICT_MAX_TOKENS */

struct replay_run {
    const struct trace *trace;
    const struct machine *machine;
    const struct sched_costs *costs; /* NULL: machine_costs */
    const struct sched_policy *policy;
    const struct trained_predictors *predictors; /* trained on other text; NULL: none */
    double vram;         /* share of the routed experts' bytes that the device holds */
    uint32_t batch;      /* sequences at once */
    uint64_t max_tokens; /* of the trace; 0: all */
    uint32_t prompt;     /* tokens of each sequence's prompt; 0: as recorded */
    uint32_t chunk;      /* tokens of a prompt in one step; 0: STEPS_CHUNK */
    /* steps of more tokens have no predictions; 0: REPLAY_PREDICT_TOKENS; at most
     * PREDICTING_MAX_TOKENS */
    uint32_t predict_tokens;
    double half_life;         /* of cache `value`, in steps; 0: it adapts */
    struct replay_cell *cell; /* the first run fills it, the other runs read it; NULL: none */
    struct shared *shared;    /* what runs on this trace share; NULL: none */
};

/* False: the policy needs a solver, and this build has none. */
bool replay_has(const struct sched_policy *policy);

/* ERROR_USAGE: the trace has fewer sequences than `batch`. */
enum error_code replay_check_batch(const struct trace *trace, uint32_t batch, struct error *e);

enum error_code replay_simulate(const struct replay_run *run, struct replay_result *out,
                                struct error *e);

#endif
