/* The next layer's gate on this layer's gate input: Mixtral-offloading's speculative loading, also
 * HybriMoE's and AdapMoE's. The residual stream changes little from layer to layer, so that gate
 * chooses much as it will on its own input. */
#include "sched/predict/predict_internal.h"

static bool next_gate_init(struct predictor *p)
{
    return (p->state = predict_ranks_new(&p->shape)) != NULL;
}

static void next_gate_fini(struct predictor *p)
{
    predict_ranks_free(p->state);
    p->state = NULL;
}

static void next_gate_observe(struct predictor *p, const struct predict_seen *seen)
{
    predict_ranks_check(p->state, seen);
}

static void next_gate_predict(struct predictor *p, const struct predict_seen *seen,
                              const struct predict_target *target,
                              const uint32_t *predicted_routing, double *probability)
{
    predict_ranks_routing(p->state, target, predicted_routing, seen->n_tokens, probability);
}

static const struct predictor_rule in_line = {
    .init = next_gate_init,
    .fini = next_gate_fini,
    .observe = next_gate_observe,
    .predict = next_gate_predict,
};

const struct predictor_kind predictor_next_gate = {
    .traits = {.in_line = true, .distance_first = 1, .distance_last = 1},
    .in_line = &in_line,
};
