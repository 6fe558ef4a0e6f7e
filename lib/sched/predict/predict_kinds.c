/* The predictors by name; see predict.h. Each has a file of its own, predict_*.c. */
#include "sched/predict/predict_internal.h"

static const struct predictor_kind none;

static const struct predictor_kind *const kinds[] = {
    [PREDICT_NONE] = &none,
    [PREDICT_NEXT_GATE] = &predictor_next_gate,
    [PREDICT_RESIDUAL] = &predictor_residual,
    [PREDICT_FREQUENCY] = &predictor_frequency,
    [PREDICT_EXPERT_MAP] = &predictor_expert_map,
    [PREDICT_ACTIVATION_MATRIX] = &predictor_activation_matrix,
    [PREDICT_MLP] = &predictor_mlp,
    [PREDICT_LLAPOR] = &predictor_llapor,
    [PREDICT_MIXTURE] = &predictor_mixture,
    [PREDICT_GATE_SCORES] = &predictor_gate_scores,
    [PREDICT_CORRELATION] = &predictor_correlation,
    [PREDICT_MTP] = &predictor_mtp,
};

const struct predictor_kind *predictor_kind_of(enum sched_predictor kind)
{
    return kinds[kind];
}

const struct predict_traits *sched_predictor_traits(enum sched_predictor kind)
{
    return &kinds[kind]->traits;
}

struct predict_traits predictor_traits(enum sched_predictor kind, const struct predict_shape *shape)
{
    return predictor_traits_of(kinds[kind], shape);
}

struct predictor *predictor_new(enum sched_predictor kind, enum predict_half half,
                                const struct predict_shape *shape)
{
    return predictor_new_of(
        half == PREDICT_BACKGROUND ? kinds[kind]->background : kinds[kind]->in_line, shape);
}

uint32_t predictor_update_floats(enum sched_predictor kind, const struct predict_shape *shape)
{
    return kinds[kind]->update_floats ? kinds[kind]->update_floats(shape) : 0;
}
