/* Running what was trained: networks and projections of learned.h on a batch of tokens. The same bits on every machine: a sum is
 * added up in the order of its inputs, whatever the width of the vectors. */
#ifndef MOED_SCHED_LEARNED_NET_H
#define MOED_SCHED_LEARNED_NET_H

#include "sched/learned.h"

/* y = bias + x w. x: [n_tokens][x_stride], of which the first n_in are read; y: [n_tokens][n_out]. */
void learned_affine_run(const struct learned_affine *a, const float *x, uint32_t x_stride,
                        uint32_t n_tokens, float *y);

float learned_gelu(float x); /* x Phi(x) */

/* Floats of scratch that a token takes. */
size_t learned_net_scratch(const struct learned_net *n);
/* x: [n_tokens][n.in.n_in]; logits: [n_tokens][n.out.n_out]. scratch begins with the input of the last layer,
 * [n_tokens][n.out.n_in], afterwards. */
void learned_net_run(const struct learned_net *n, const float *x, uint32_t n_tokens, float *scratch,
                     float *logits);

/* LLaPor's inputs of a token: the components are there already, behind them a 1 for each activated expert, then for each its
 * share of the activated ones' gate probabilities (their weight, where the model makes those add up to 1). rest:
 * [2 n_experts]. A gate that is 0 or no number for all of them counts as equal shares. */
void learned_llapor_rest(uint32_t n_experts, uint32_t n_used, const uint32_t *selected,
                         const float *gate, float *rest);

/* The probability that at least one token activates an expert, from the logits of each token, [n_tokens][n_experts], which
 * are the log-odds that this one does; tokens are taken as independent. The paper hands K experts a token
 * on: one that no token has among its n_used best is 0. probability: [n_experts]. */
void learned_probabilities(const struct predict_shape *s, const float *logits, uint32_t n_tokens,
                           double *probability);

#endif
