/* What deciding takes of virtual time: planning a layer, and predicting in the way of it. Measured once (docs/policies.md) and the same in
 * every run; replay_result.decision_s is what planning took here. */
#ifndef MOED_REPLAY_DECIDING_H
#define MOED_REPLAY_DECIDING_H

#include "bench/replay/machine.h"
#include "sched/predict.h"

/* Of a layer's activated experts. */
double deciding_plan_s(const struct machine *m, enum sched_assigner assigner, uint32_t n_experts);
/* In the engine's thread, at a layer: looking for answers, checking, showing, telling. */
double deciding_call_s(const struct machine *m, enum sched_predictor predictor);
/* Of who predicts in line, a coming layer's gate for n_tokens, which the device computes; 0: there is none. */
double deciding_gate_s(const struct machine *m, enum sched_predictor predictor,
                       const struct trace_shape *shape, uint32_t layer, uint32_t n_tokens);

#endif
