/* Runs the networks and projections of trained.h on a batch of tokens. The same bits on every
 * machine: a sum is added up in the order of its inputs, whatever the width of the vectors. */
#ifndef MOED_SCHED_PREDICT_TRAINED_NET_H
#define MOED_SCHED_PREDICT_TRAINED_NET_H

#include "sched/predict/trained.h"

/* y = bias + x w. x: [n_tokens][x_stride], of which the first n_in are read; y: [n_tokens][n_out].
 */
void trained_affine_run(const struct trained_affine *a, const float *x, uint32_t x_stride,
                        uint32_t n_tokens, float *y);

float trained_gelu(float x); /* x Phi(x) */

/* Floats of scratch for one token. */
size_t trained_net_scratch(const struct trained_net *n);
/* x: [n_tokens][n.in.n_in]; logits: [n_tokens][n.out.n_out]. Afterwards scratch begins with the
 * input of the last layer, [n_tokens][n.out.n_in]. */
void trained_net_run(const struct trained_net *n, const float *x, uint32_t n_tokens, float *scratch,
                     float *logits);

/* LLaPor's inputs of a token after the components: a 1 for each activated expert, then for each its
 * share of the activated ones' gate probabilities (its weight, if the model makes weights add up to
 * 1). rest: [2 n_experts]. A gate that is 0 or NaN for all of them counts as equal shares. */
void trained_llapor_rest(uint32_t n_experts, uint32_t n_used, const uint32_t *selected,
                         const float *gate, float *rest);

/* The probability that at least one token activates an expert. logits: [n_tokens][n_experts], the
 * log-odds that a token does; tokens count as independent. As in the paper only K experts a token
 * count: an expert that no token has among its n_used best gets 0. probability: [n_experts]. */
void trained_probabilities(const struct predict_shape *s, const float *logits, uint32_t n_tokens,
                           double *probability);

#endif
