/* From a token's gate logits to its experts and their weights: the definition that every device follows. */
#ifndef MOED_MODEL_ROUTER_H
#define MOED_MODEL_ROUTER_H

#include "model/params.h"

enum { ROUTER_MAX_EXPERTS = 4096, ROUTER_MAX_GROUPS = 256 };

/* logits [n_experts] (the router's bias already added) is overwritten. selection_bias [n_experts], or NULL, is added
 * to the probabilities for the choice, never to the weights. selected and weights [n_used], the first choice
 * first; of equal ones the expert with the lower number.
 *   1. probability: softmax or sigmoid of the logits; the logit itself for SOFTMAX_SELECTED and SPARSE_MIXER.
 *   2. groups (of neighbours): a group's score is its largest selection value under softmax, the sum of its two
 *      largest under sigmoid; experts of the groups that are not among the n_groups_used best are out.
 *   3. the n_used largest selection values.
 *   4. weights: their probabilities; SOFTMAX_SELECTED: softmax over the selected logits; SPARSE_MIXER: for each
 *      rank the softmax, over the logits not chosen before and within 2 % of the rank's (relative to the larger
 *      of the two magnitudes), of the chosen one.
 *   5. renormalise: divided by their sum (at least half precision's smallest normal number), then times scale. */
void router_select(const struct router_params *p, float *logits, const float *selection_bias,
                   uint32_t *selected, float *weights);

/* What router_select leaves in logits are probabilities; of the kinds for which this is true still logits, which a softmax
 * makes probabilities. */
bool router_leaves_logits(enum router_kind kind);
void router_logits_to_probabilities(float *rows, uint32_t n, uint32_t n_experts);

#endif
