/* How often a layer's experts were activated recently (ours): of a token's activations, half as
 * much after HALF_LIFE tokens.
 *
 *     f(e) = (sum over tokens that activated e of 2^(-age / HALF_LIFE) + n_used / n_experts)
 *            / (sum over tokens of 2^(-age / HALF_LIFE) + 1)
 *
 * age counts the layer's tokens since; those of one batch have one age. The + 1 is a token that
 * activates all experts equally. Of a batch of n tokens, taken as independent, at least one
 * activates e with probability 1 - (1 - f(e))^n. */
#include "base/arrays.h"
#include "sched/predict/predict_history.h"

#define HALF_LIFE 32.0

struct frequency {
    double *tokens; /* [n_layers][n_experts]: that activated it, decayed */
    double *total;  /* [n_layers]: all, decayed */
};

static bool frequency_init(struct predictor *p)
{
    const struct predict_shape *s = &p->shape;
    struct frequency *f, new = {0};
    p->state = ARRAYS_NEW(ARRAY(f, 1), ARRAY(new.tokens, (size_t)s->n_layers * s->n_experts),
                          ARRAY(new.total, s->n_layers));
    if (!p->state)
        return false;
    *f = new;
    return true;
}

static void frequency_observe(struct predictor *p, const struct predict_seen *seen)
{
    struct frequency *f = p->state;
    double *tokens = f->tokens + (size_t)seen->layer * p->shape.n_experts;
    double decay = predict_history_decay(seen->n_tokens, HALF_LIFE);
    for (uint32_t i = 0; i < p->shape.n_experts; i++)
        tokens[i] = predict_history_decayed(tokens[i], decay);
    for (uint32_t i = 0; i < seen->n_tokens * p->shape.n_used; i++)
        tokens[seen->selected[i]] += 1;
    f->total[seen->layer] = f->total[seen->layer] * decay + seen->n_tokens;
}

static void frequency_predict(struct predictor *p, const struct predict_seen *seen,
                              const struct predict_target *target,
                              const uint32_t *predicted_routing, double *probability)
{
    const struct frequency *f = p->state;
    uint32_t n = p->shape.n_experts;
    const double *tokens = f->tokens + (size_t)target->layer * n;
    double total = f->total[target->layer], evenly = (double)p->shape.n_used / n;
    for (uint32_t i = 0; i < n; i++) /* a layer that was never seen is not predicted */
        probability[i] =
            total > 0 ? predict_history_any((tokens[i] + evenly) / (total + 1), seen->n_tokens) : 0;
}

static const struct predictor_rule background = {
    .init = frequency_init,
    .observe = frequency_observe,
    .predict = frequency_predict,
};

const struct predictor_kind predictor_frequency = PREDICT_HISTORY_KIND(&background);
