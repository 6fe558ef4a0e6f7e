/* The metrics of predictors. Those of a predictor that was never used are absent, not 0. */
#ifndef MOED_WORKER_PREFETCH_PREDICTION_METRICS_H
#define MOED_WORKER_PREFETCH_PREDICTION_METRICS_H

#include "prediction.h"

struct prediction_counters prediction_metrics_counters(struct metrics *m);

/* Of all predictors together. */
uint64_t prediction_metrics_predictions(const struct prediction_counters *counters);
uint64_t prediction_metrics_right(const struct prediction_counters *counters);

#endif
