/* The simulated time of decisions; see deciding.h. */
#include "bench/replay/deciding.h"

/* Planning time relative to `balance`, the slowest assigner, from the table of plans in
 * bench/results/deciding.md. Assigners that are not in the table count as `threshold`. `optimal`
 * takes no time, because no worker could use it. */
static const double plan_share[] = {
    [ASSIGN_LOAD_ALL] = 0.3,
    [ASSIGN_THRESHOLD] = 0.3,
    [ASSIGN_QSTAR] = 0.3,
    [ASSIGN_GREEDY] = 0.65,
    [ASSIGN_LAYERWISE] = 0.3,
    [ASSIGN_PRESCHED] = 1,
    [ASSIGN_BALANCE] = 1,
    [ASSIGN_SCORE_QUEUE] = 0.4,
    [ASSIGN_OPTIMAL] = 0,
    [ASSIGN_QSTAR_STREAM] = 0.3,
    [ASSIGN_GREEDY_UNBOUND] = 0.65,
    [ASSIGN_LAYERWISE_STREAM] = 0.3,
    [ASSIGN_LAYERWISE_OFFLOAD] = 0.3,
};

/* Prediction time relative to `next-gate`, from the first table of prediction times in
 * bench/results/deciding.md, without the 12 us that a float32 gate takes there. */
static const double predict_share[PREDICT_KINDS] = {
    [PREDICT_NONE] = 0,        [PREDICT_NEXT_GATE] = 1,    [PREDICT_RESIDUAL] = 1.5,
    [PREDICT_FREQUENCY] = 1.4, [PREDICT_EXPERT_MAP] = 1.1, [PREDICT_ACTIVATION_MATRIX] = 1,
    [PREDICT_MLP] = 0.1,       [PREDICT_LLAPOR] = 0.2,     [PREDICT_MIXTURE] = 1.4,
    [PREDICT_GATE_SCORES] = 1, [PREDICT_CORRELATION] = 1,  [PREDICT_MTP] = 0.1,
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
