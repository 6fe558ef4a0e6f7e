/* Several predictions of the same layer into one: what each part says of each expert, as log-odds, is weighed by a logistic
 * regression that learns from what was activated (logistic.h),
 *
 *     logit p(e) = b + sum over the parts that have spoken of w[i] logit p[i](e)
 *
 * A part may be silent, or late: which have spoken is a pattern, and each pattern has weights of its own, so what
 * is there is used as well as it can be without the rest. Weights are a layer's. Until it has seen LAYER_STEPS
 * steps of a pattern it uses those of its group, a third of the layers (the first, the middle, the last), which all of them
 * teach; then it goes on from there, with the group's certainty cut to that of LAYER_STEPS steps. A group starts with
 * the mean of the log-odds.
 *
 * Layers count from 0, those with experts alone. */
#ifndef MOED_SCHED_BLEND_H
#define MOED_SCHED_BLEND_H

#include <stdbool.h>
#include <stdint.h>

enum { BLEND_MOST = 7 }; /* parts; logistic.h's features */

struct blend_shape {
    uint32_t n_layers, n_experts, n_parts;
    uint32_t keeps
        [BLEND_MOST]; /* for how many steps what a part said of a layer stays good; 0: for that step alone */
};

struct blend;
struct blend *blend_new(const struct blend_shape *shape); /* NULL: no memory */
void blend_free(struct blend *b);                         /* takes NULL */

/* A part speaks: where its log-odds go, [n_experts]. They are for this layer and step, and a batch of so many tokens. */
float *blend_row(struct blend *b, uint32_t layer, uint32_t part, uint64_t step, uint32_t n_tokens);

/* probability: [n_experts]. False, and nothing is written: no part has spoken. */
bool blend_predict(struct blend *b, uint32_t layer, uint64_t step, uint32_t n_tokens,
                   double *probability);
/* What the layer activated, [n_tokens][n_used]: learns, if it is what was predicted last, of as many tokens. */
void blend_check(struct blend *b, uint32_t layer, uint64_t step, const uint32_t *selected,
                 uint32_t n_tokens, uint32_t n_used);

/* Log-odds of a probability, between those of 2^-10 and 1 - 2^-10: a part that is certain and wrong is wrong by ten bits. */
float blend_logit(double probability);

#endif
