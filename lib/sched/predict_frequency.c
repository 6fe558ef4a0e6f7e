/* How often a layer's experts were activated lately: of a token's worth of activations, half as much after HALF_LIFE tokens.
 *
 *     f(e) = (sum over tokens that activated e of 2^(-age / HALF_LIFE) + n_used / n_experts)
 *            / (sum over tokens of 2^(-age / HALF_LIFE) + 1)
 *
 * age counts the layer's tokens since; those of one batch are of one age. The + 1 is a token that activates all alike. Of a
 * batch of n tokens, taken as independent, at least one activates e with probability 1 - (1 - f(e))^n.
 *
 * It knows nothing of the step under way, so it loses nothing by predicting the layer after the next, for which there is
 * time to copy. */
#include "sched/predict_internal.h"

#include <math.h>
#include <stdlib.h>

#define HALF_LIFE 32.0

struct frequency {
    double *tokens; /* [n_layers][n_experts]: decayed, that activated it */
    double *total;  /* [n_layers]: decayed, of all */
};

static bool frequency_init(struct predictor *p)
{
    const struct predict_shape *s = &p->shape;
    struct frequency *f = p->state = calloc(1, sizeof *f);
    if (!f)
        return false;
    f->tokens = calloc((size_t)s->n_layers * s->n_experts, sizeof *f->tokens);
    f->total = calloc(s->n_layers, sizeof *f->total);
    return f->tokens && f->total;
}

static void frequency_fini(struct predictor *p)
{
    struct frequency *f = p->state;
    free(f->tokens);
    free(f->total);
}

static void frequency_observe(struct predictor *p, const struct predict_seen *seen)
{
    struct frequency *f = p->state;
    double *tokens = f->tokens + (size_t)seen->layer * p->shape.n_experts;
    double decay = exp2(-(double)seen->n_tokens / HALF_LIFE);
    for (uint32_t i = 0; i < p->shape.n_experts; i++)
        tokens[i] *= decay;
    for (uint32_t i = 0; i < seen->n_tokens * p->shape.n_used; i++)
        tokens[seen->selected[i]] += 1;
    f->total[seen->layer] = f->total[seen->layer] * decay + seen->n_tokens;
}

static void frequency_predict(struct predictor *p, const struct predict_seen *seen,
                              const struct predict_target *target, const uint32_t *guessed,
                              double *probability)
{
    const struct frequency *f = p->state;
    uint32_t n = p->shape.n_experts;
    const double *tokens = f->tokens + (size_t)target->layer * n;
    double total = f->total[target->layer], evenly = (double)p->shape.n_used / n;
    for (uint32_t i = 0; i < n; i++) /* of a layer that was never seen nothing is known */
        probability[i] =
            total > 0 ? 1 - pow(1 - (tokens[i] + evenly) / (total + 1), seen->n_tokens) : 0;
}

static const struct predictor_rule aside = {
    .init = frequency_init,
    .fini = frequency_fini,
    .observe = frequency_observe,
    .predict = frequency_predict,
};

const struct predictor_kind predictor_frequency = {
    .traits = {.answers = true,
               .reads = PREDICT_READS_SELECTED,
               .ahead_first = 2,
               .ahead_last = 2,
               .wraps = true},
    .aside = &aside,
};
