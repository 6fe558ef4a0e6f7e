/* A policy over a trace in virtual time, on the cost model of a machine: one row of the table. Deterministic but for
 * replay_result.decision_s. docs/replay.md says what is simulated. */
#ifndef MOED_REPLAY_SIMULATE_H
#define MOED_REPLAY_SIMULATE_H

#include "bench/replay/machine.h"
#include "bench/replay/result.h"
#include "sched/policy.h"
#include "trace/trace.h"

/* What is the same for all policies of one budget and one batch; zeroed before the first. */
struct replay_cell {
    bool counted;
    uint64_t misses; /* of decoding, the fewest that any cache could have (future_least_misses) */
};

enum { REPLAY_PREDICT_TOKENS = 32 }; /* the worker's PREDICT_MAX_TOKENS */

struct replay_run {
    const struct trace *trace;
    const struct machine *machine;
    const struct sched_costs *costs; /* not NULL: these instead of machine_costs */
    const struct sched_policy *policy;
    const struct sched_learned *learned; /* what was trained on other text; NULL: nothing */
    double vram;         /* share of the routed experts' bytes that the device holds */
    uint32_t batch;      /* sequences at once */
    uint64_t max_tokens; /* of the trace; 0: all */
    uint32_t prompt;     /* of each sequence, computed together; 0: as recorded */
    /* nothing is predicted in steps of more; 0: REPLAY_PREDICT_TOKENS; at most PREDICTING_MAX_TOKENS */
    uint32_t predict_tokens;
    struct replay_cell *cell; /* found by the first run and used by the others; NULL: found anew */
};

/* False for a policy that needs a solver, in a build without one. */
bool replay_has(const struct sched_policy *policy);

/* ERROR_USAGE: the trace has fewer sequences than are to be decoded at once. */
enum error_code replay_check_batch(const struct trace *trace, uint32_t batch, struct error *e);

enum error_code replay_simulate(const struct replay_run *run, struct replay_result *out,
                                struct error *e);

#endif
