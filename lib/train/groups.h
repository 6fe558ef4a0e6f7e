/* Layer groups: input, middle, output (PreScope, 3.1). */
#ifndef MOED_TRAIN_GROUPS_H
#define MOED_TRAIN_GROUPS_H

#include <stdint.h>

enum layer_group { GROUP_INPUT, GROUP_MIDDLE, GROUP_OUTPUT };
enum { LAYER_GROUPS = GROUP_OUTPUT + 1 };

/* Of n layers in order, from what a trace shows of each: how like its gate input is to that of the layer before, and how much
 * of a token's gate weight its first choice has. The paper: "in input and output layer groups, certain expert weights
 * dominate ...; in middle layer groups, balanced expert weights lead to the gating inputs highly similar across layers". It gives
 * no rule. Ours:
 *     score(l) = similarity(l), standardised over the layers, minus skew(l), likewise standardised
 * and the middle is the run of layers that, of all runs that leave at least one layer on either side, fits two levels best: the
 * largest between-class variance n_in n_out / n (mean inside - mean outside)^2 with the inside above (of equal ones the longest, then
 * the first). With fewer than three layers, or no run above, all are GROUP_INPUT. */
void groups_find(uint32_t n, const double *similarity, const double *skew, enum layer_group *group);

#endif
