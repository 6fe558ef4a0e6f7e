/* Chooses a token's experts and their weights from its gate logits. This is the definition that
 * every device follows. */
#ifndef MOED_MODEL_ROUTER_H
#define MOED_MODEL_ROUTER_H

#include "model/params.h"

enum { ROUTER_MAX_EXPERTS = 4096, ROUTER_MAX_GROUPS = 256 };

/* logits [n_experts], the router's bias included: overwritten. selection_bias [n_experts], or NULL:
 * added to the probabilities for the choice, never to the weights. selected, weights [n_used]: the
 * first choice first; among equals the lower expert number wins.
 *   1. Probability: softmax or sigmoid of the logits. SOFTMAX_SELECTED and SPARSE_MIXER take the
 *      logit itself.
 *   2. Groups of neighbours: a group's score is its largest selection value under softmax, the sum
 *      of its two largest under sigmoid. Only experts of the n_groups_used best groups remain.
 *   3. Choice: the n_used largest selection values; under sigmoid without groups and selection_bias
 *      the largest logits. The order is the same, but sigmoids of logits above 17 are all 1.
 *   4. Weights: the probabilities of the chosen experts.
 *      SOFTMAX_SELECTED: the softmax over the selected logits.
 *      SPARSE_MIXER, for each rank: the chosen expert's share of the softmax over the logits that
 *      are not chosen yet and within 2 % of its own, relative to the larger magnitude of the two.
 *   5. renormalise: divide by their sum plus weight_sum_eps, or by weight_sum_least if that is
 * more. If that is 0, the weights stay 0. Then multiply by scale. */
void router_select(const struct router_params *p, float *logits, const float *selection_bias,
                   uint32_t *selected, float *weights);

/* router_select leaves probabilities in `logits`, except for the kinds for which this is true: they
 * leave logits, which router_logits_to_probabilities turns into probabilities by softmax. */
bool router_leaves_logits(enum router_kind kind);
void router_logits_to_probabilities(float *rows, uint32_t n, uint32_t n_experts);

#endif
