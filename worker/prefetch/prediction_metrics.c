/* The metrics of predictors; see prediction_metrics.h. */
#include "prediction_metrics.h"

#include "sched/policy.h"

#include <stdio.h>

struct prediction_counters prediction_metrics_counters(struct metrics *m)
{
    struct prediction_counters k = {0};
    for (int i = 0; i < PREDICT_KINDS; i++) {
        char labels[64];
        snprintf(labels, sizeof labels, "predictor=\"%s\"",
                 sched_predictor_name((enum sched_predictor)i));
        k.predictions[i] = metrics_counter_after(m, NULL, "moed_worker_predictions_total", labels,
                                                 "Experts predicted for a layer, checked.");
        k.right[i] =
            metrics_counter_after(m, k.predictions[i], "moed_worker_predictions_right_total",
                                  labels, "Of those, activated.");
    }
    k.shown = metrics_counter_after(m, NULL, "moed_worker_predict_shown_total", NULL,
                                    "Layers shown to the background predictor.");
    k.dropped = metrics_counter_after(m, k.shown, "moed_worker_predict_dropped_total", NULL,
                                      "Layers not shown: no free buffer.");
    const char *answers = "Answers of the background predictor.";
    k.in_time = metrics_counter_after(m, k.shown, "moed_worker_predict_answers_total",
                                      "when=\"in_time\"", answers);
    k.late = metrics_counter_after(m, k.shown, "moed_worker_predict_answers_total", "when=\"late\"",
                                   answers);
    return k;
}

static uint64_t sum(struct counter *const counters[PREDICT_KINDS])
{
    uint64_t total = 0;
    for (int i = 0; i < PREDICT_KINDS; i++)
        total += counter_read(counters[i]);
    return total;
}

uint64_t prediction_metrics_predictions(const struct prediction_counters *counters)
{
    return sum(counters->predictions);
}

uint64_t prediction_metrics_right(const struct prediction_counters *counters)
{
    return sum(counters->right);
}
