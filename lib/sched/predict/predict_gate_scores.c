/* MoEpic's speculative prefetcher (its section 3.2): softmax(R(l+1)(h(l))), equation 3, the scores
 * that the next layer's gate gives all its experts on this layer's gate input. "The experts are
 * prefetched one by one in descending order of their predicted scores", until the layer's gate has
 * spoken ("terminates the prefetch operation"), which drops the rest (transfer_scheduler.h). So
 * all experts are predicted, not the K that the gate would choose. "Since the first layer lacks
 * previous results, we [...] use the last layer's intermediate activation of previous token": the
 * last layer predicts the first one of the next step.
 *
 * Chosen where the paper leaves it open: a gate whose scores are sigmoids gives those. Of a batch
 * a score is 1 - product (1 - s) over its tokens: at least one activates the expert, as if s were
 * the probability that one does. */
#include "sched/predict/predict_internal.h"

static void scores_predict(struct predictor *p, const struct predict_seen *seen,
                           const struct predict_target *target, const uint32_t *predicted_routing,
                           double *probability)
{
    uint32_t n = p->shape.n_experts;
    predict_nothing(&p->shape, probability);
    for (uint32_t t = 0; t < seen->n_tokens && seen->scores; t++)
        for (uint32_t i = 0; i < n; i++) {
            double s = (double)seen->scores[(size_t)t * n + i];
            if (s > 0) /* false for NaN */
                probability[i] += (1 - probability[i]) * (s < 1 ? s : 1);
        }
}

static const struct predictor_rule in_line = {.predict = scores_predict};

const struct predictor_kind predictor_gate_scores = {
    .traits = {.in_line = true,
               .scores = true,
               .unbounded = true,
               .distance_first = 1,
               .distance_last = 1,
               .wraps = true},
    .in_line = &in_line,
};
