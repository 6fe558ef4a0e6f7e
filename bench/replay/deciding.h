/* The simulated time of decisions: planning a layer, and predicting in the engine's thread. It is
 * computed from measured constants (bench/results/deciding.md), so every run gives the same result.
 * replay_result.decision_s is the real time of planning. */
#ifndef MOED_REPLAY_DECIDING_H
#define MOED_REPLAY_DECIDING_H

#include "bench/replay/machine.h"
#include "sched/predict/predict.h"

/* Seconds to plan n_experts activated experts. */
double deciding_plan_s(const struct machine *m, enum sched_assigner assigner, uint32_t n_experts);
/* Seconds of the engine's thread at a layer: receiving predictions, checking them, showing the
 * layer to the predictor, and sending hints. */
double deciding_call_s(const struct machine *m, enum sched_predictor predictor);
/* Seconds of the device for a later layer's gate and n_tokens; 0: the predictor evaluates no gate.
 */
double deciding_gate_s(const struct machine *m, enum sched_predictor predictor,
                       const struct trace_shape *shape, uint32_t layer, uint32_t n_tokens);

#endif
