/* ProMoE's trained predictor: for each layer a two-layer network, trained on traces, from the gate
 * input of an earlier layer to what this layer's gate will choose. Background half only. It
 * predicts a stride ahead of its input ("increases the prediction distance by 1", so two layers,
 * unless the trained predictors say otherwise), so that predicting and copying work on different
 * layers. It "selects the same number of experts that the model would activate for one token".
 *
 * A layer without a network is not predicted. */
#include "base/arrays.h"
#include "sched/predict/trained_net.h"
#include "sched/predict/predict_internal.h"

struct mlp {
    float *scratch; /* of the largest network */
    float *logits;  /* [max_tokens][n_experts] */
};

static bool mlp_init(struct predictor *p)
{
    const struct predict_shape *s = &p->shape;
    struct mlp *m, new = {0};
    size_t most = 1;
    struct trained_net net;
    for (uint32_t i = 0; predictor_trained(p) && i < s->n_layers; i++)
        if (trained_mlp(s->trained, i, &net) && trained_net_scratch(&net) > most)
            most = trained_net_scratch(&net);
    p->state = ARRAYS_NEW(ARRAY(m, 1), ARRAY(new.scratch, most * s->max_tokens),
                          ARRAY(new.logits, (size_t)s->n_experts * s->max_tokens));
    if (!p->state)
        return false;
    *m = new;
    return true;
}

static void mlp_predict(struct predictor *p, const struct predict_seen *seen,
                        const struct predict_target *target, const uint32_t *predicted_routing,
                        double *probability)
{
    struct mlp *m = p->state;
    struct trained_net net;
    if (!predictor_trained(p) || !trained_mlp(p->shape.trained, target->layer, &net)) {
        predict_nothing(&p->shape, probability);
        return;
    }
    trained_net_run(&net, seen->hidden, seen->n_tokens, m->scratch, m->logits);
    trained_probabilities(&p->shape, m->logits, seen->n_tokens, probability);
}

static void mlp_adapt(const struct predict_shape *shape, struct predict_traits *traits)
{
    if (shape->trained && shape->trained->header.stride)
        traits->distance_first = traits->distance_last = shape->trained->header.stride;
}

static const struct predictor_rule background = {
    .init = mlp_init,
    .predict = mlp_predict,
};

const struct predictor_kind predictor_mlp = {
    .traits = {.answers = true,
               .reads = PREDICT_READS_HIDDEN,
               .distance_first = 2,
               .distance_last = 2},
    .background = &background,
    .adapt = mlp_adapt,
};
