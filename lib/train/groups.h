/* Layer groups: input, middle, output (PreScope, 3.1). */
#ifndef MOED_TRAIN_GROUPS_H
#define MOED_TRAIN_GROUPS_H

#include <stdint.h>

enum layer_group { GROUP_INPUT, GROUP_MIDDLE, GROUP_OUTPUT };
enum { LAYER_GROUPS = GROUP_OUTPUT + 1 };

/* Assigns n consecutive layers to groups. similarity, skew: [n], of struct sample_facts.
 *
 * The paper: "in input and output layer groups, certain expert weights dominate ...; in middle
 * layer groups, balanced expert weights lead to the gating inputs highly similar across layers". It
 * gives no rule. Ours, with both quantities standardised over the layers:
 *
 *     score(l) = similarity(l) - skew(l)
 *
 * The middle group is the run of layers with the largest between-class variance
 *
 *     n_in n_out / n (mean inside - mean outside)^2
 *
 * among the runs with the larger mean inside that leave at least one layer on either side. Among
 * equals the longest wins, then the first. With fewer than three layers, or without such a run, all
 * layers are GROUP_INPUT. */
void groups_find(uint32_t n, const double *similarity, const double *skew, enum layer_group *group);

#endif
