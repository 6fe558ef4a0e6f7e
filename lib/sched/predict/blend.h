/* Blends several predictions of the same layer into one. What each part predicts for an expert, as
 * log-odds, is weighted by a logistic regression that is fitted to what was activated (logistic.h):
 *
 *     logit p(e) = b + sum over the parts that have spoken of w[i] logit p[i](e)
 *
 * A part may give no answer, or a late one. The set of parts that answered is a pattern, and each
 * pattern has weights of its own, so the remaining parts are used as well as they can be without
 * the rest. Weights are a layer's. Until a layer has seen LAYER_STEPS steps of a pattern it uses
 * the weights of its group, a third of the layers (the first, the middle, the last), which all of
 * them update. Then it goes on from there, with the group's certainty cut to that of LAYER_STEPS
 * steps. A group starts with the mean of the log-odds.
 *
 * A layer has weights of its own for the first BLEND_OWN patterns that reach LAYER_STEPS; further
 * patterns keep the group's. So a further part does not double the memory.
 *
 * Layers count from 0, only those with experts. */
#ifndef MOED_SCHED_PREDICT_BLEND_H
#define MOED_SCHED_PREDICT_BLEND_H

#include <stdbool.h>
#include <stdint.h>

enum { BLEND_MOST = 7 }; /* parts; logistic.h's features */

struct blend_shape {
    uint32_t n_layers, n_experts, n_parts;
    uint32_t keeps[BLEND_MOST]; /* how many steps a part's prediction of a layer stays valid;
                                   0: for its step only */
};

enum { BLEND_OWN = 16 };

struct blend;
struct blend *blend_new(const struct blend_shape *shape); /* NULL: no memory */
void blend_free(struct blend *b);                         /* takes NULL */

/* A part speaks: returns the row to fill with its log-odds, [n_experts], for this layer and step
 * and a batch of n_tokens. */
float *blend_row(struct blend *b, uint32_t layer, uint32_t part, uint64_t step, uint32_t n_tokens);

/* probability: [n_experts]. False: no part has spoken; nothing is written. */
bool blend_predict(struct blend *b, uint32_t layer, uint64_t step, uint32_t n_tokens,
                   double *probability);
/* The layer activated `selected`, [n_tokens][n_used]. Updates the weights if this layer was
 * predicted last, for as many tokens. */
void blend_check(struct blend *b, uint32_t layer, uint64_t step, const uint32_t *selected,
                 uint32_t n_tokens, uint32_t n_used);

/* Log-odds of a probability, clipped to [2^-10, 1 - 2^-10]: a part that is certain and wrong is
 * wrong by ten bits. */
float blend_logit(double probability);

#endif
