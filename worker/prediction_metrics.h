/* The metrics of predictors. A predictor that was never used has none: they are absent, not 0. */
#ifndef MOED_WORKER_PREDICTION_METRICS_H
#define MOED_WORKER_PREDICTION_METRICS_H

#include "prediction.h"

struct prediction_counters prediction_metrics_counters(struct metrics *m);

/* Of all predictors together. */
uint64_t prediction_metrics_guesses(const struct prediction_counters *counters);
uint64_t prediction_metrics_right(const struct prediction_counters *counters);

#endif
