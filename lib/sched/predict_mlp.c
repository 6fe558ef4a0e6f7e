/* ProMoE's learned predictor: of each layer a two-layer network from the gate's input of an earlier layer to what this layer's
 * gate will choose, trained on traces. It runs beside inference, on the CPU, and predicts a stride ahead ("increases the
 * prediction distance by 1", so two layers, unless the learned file says otherwise), so that predicting and copying take
 * turns on different layers. It "selects the same number of experts that the model would activate for one token".
 *
 * A layer without a network is not predicted. */
#include "sched/learned_net.h"
#include "sched/predict_internal.h"

#include <stdlib.h>

struct mlp {
    float *scratch; /* of the largest network */
    float *logits;  /* [max_tokens][n_experts] */
};

static bool mlp_init(struct predictor *p)
{
    const struct predict_shape *s = &p->shape;
    struct mlp *m = p->state = calloc(1, sizeof *m);
    if (!m)
        return false;
    size_t most = 1;
    struct learned_net net;
    for (uint32_t i = 0; predictor_learned(p) && i < s->n_layers; i++)
        if (learned_mlp(s->learned, i, &net) && learned_net_scratch(&net) > most)
            most = learned_net_scratch(&net);
    m->scratch = calloc(most * s->max_tokens, sizeof *m->scratch);
    m->logits = calloc((size_t)s->n_experts * s->max_tokens, sizeof *m->logits);
    return m->scratch && m->logits;
}

static void mlp_fini(struct predictor *p)
{
    struct mlp *m = p->state;
    free(m->scratch);
    free(m->logits);
}

static void mlp_predict(struct predictor *p, const struct predict_seen *seen,
                        const struct predict_target *target, const uint32_t *guessed,
                        double *probability)
{
    struct mlp *m = p->state;
    struct learned_net net;
    if (!predictor_learned(p) || !learned_mlp(p->shape.learned, target->layer, &net)) {
        predict_nothing(&p->shape, probability);
        return;
    }
    learned_net_run(&net, seen->hidden, seen->n_tokens, m->scratch, m->logits);
    learned_probabilities(&p->shape, m->logits, seen->n_tokens, probability);
}

static void mlp_adapt(const struct predict_shape *shape, struct predict_traits *traits)
{
    if (shape->learned && shape->learned->header.stride)
        traits->ahead_first = traits->ahead_last = shape->learned->header.stride;
}

static const struct predictor_rule aside = {
    .init = mlp_init,
    .fini = mlp_fini,
    .predict = mlp_predict,
};

const struct predictor_kind predictor_mlp = {
    .traits = {.answers = true, .reads = PREDICT_READS_HIDDEN, .ahead_first = 2, .ahead_last = 2},
    .aside = &aside,
    .adapt = mlp_adapt,
};
