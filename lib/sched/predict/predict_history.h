/* Predictors from what a layer activated so far (predict_frequency.c, predict_recency.c): what they
 * are, and the arithmetic that both use.
 *
 * They read nothing of the current step. So they lose nothing by predicting the layer after the
 * next one, which leaves twice the time to copy. */
#ifndef MOED_SCHED_PREDICT_PREDICT_HISTORY_H
#define MOED_SCHED_PREDICT_PREDICT_HISTORY_H

#include "sched/predict/predict_internal.h"

#include <math.h>

/* A kind with only a background half, of this rule. */
#define PREDICT_HISTORY_KIND(rule)                                                                 \
    {                                                                                              \
        .traits = {.answers = true,                                                                \
                   .reads = PREDICT_READS_SELECTED,                                                \
                   .distance_first = 2,                                                            \
                   .distance_last = 2,                                                             \
                   .wraps = true},                                                                 \
        .background = (rule),                                                                      \
    }

/* What a count keeps of its value after so many tokens. */
static inline double predict_history_decay(uint32_t n_tokens, double half_life)
{
    return exp2(-(double)n_tokens / half_life);
}

/* A count that decays. What has nearly gone becomes 0: on the way there a processor takes many
 * times as long for numbers that are too small for it. */
static inline double predict_history_decayed(double count, double decay)
{
    double left = count * decay;
    return left > 1e-30 ? left : 0;
}

/* The probability that at least one of n tokens activates an expert that a token activates with
 * probability `share`; tokens count as independent of each other. */
static inline double predict_history_any(double share, uint32_t n_tokens)
{
    return 1 - pow(1 - share, n_tokens);
}

#endif
