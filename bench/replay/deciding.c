/* What deciding takes; see deciding.h. */
#include "bench/replay/deciding.h"

/* By the table of plans in docs/policies.md, of `balance`, which takes the longest. What is not in the table is taken as `threshold`;
 * `optimal` is no policy that could serve, and takes nothing. */
static const double plan_share[] = {
    [ASSIGN_LOAD_ALL] = 0.3, [ASSIGN_THRESHOLD] = 0.3,   [ASSIGN_QSTAR] = 0.3,
    [ASSIGN_GREEDY] = 0.65,  [ASSIGN_LAYERWISE] = 0.3,   [ASSIGN_PRESCHED] = 1,
    [ASSIGN_BALANCE] = 1,    [ASSIGN_SCORE_QUEUE] = 0.4, [ASSIGN_OPTIMAL] = 0,
};

/* By the first table of what prediction takes live in docs/policies.md, less the 12 us that a gate in float32 takes there, of
 * `next-gate`. */
static const double predict_share[PREDICT_KINDS] = {
    [PREDICT_NONE] = 0,         [PREDICT_NEXT_GATE] = 1,         [PREDICT_RESIDUAL] = 1.5,
    [PREDICT_FREQUENCY] = 1.4,  [PREDICT_EXPERT_MAP] = 1.1,      [PREDICT_ACTIVATION_MATRIX] = 1,
    [PREDICT_MLP] = 0.1,        [PREDICT_LLAPOR] = 0.2,          [PREDICT_MIXTURE] = 1.4,
    [PREDICT_GATE_SCORES] = 1,
};

double deciding_plan_s(const struct machine *m, enum sched_assigner assigner, uint32_t n_experts)
{
    return n_experts * plan_share[assigner] * m->plan_expert_s;
}

double deciding_call_s(const struct machine *m, enum sched_predictor predictor)
{
    return predict_share[predictor] * m->predict_call_s;
}

double deciding_gate_s(const struct machine *m, enum sched_predictor predictor,
                       const struct trace_shape *shape, uint32_t layer, uint32_t n_tokens)
{
    const struct predict_traits *traits = sched_predictor_traits(predictor);
    if (!traits->in_line || (layer + 1 >= shape->n_layers && !traits->wraps))
        return 0;
    double gate_bytes = (double)shape->n_experts * shape->d_model * sizeof(float);
    return m->predict_gate_s + machine_dense_s(m, gate_bytes, n_tokens) - m->attention_s;
}
