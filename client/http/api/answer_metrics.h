/* Metrics of answers: tokens and times, with the bounds that vLLM's dashboards use. */
#ifndef MOED_HTTP_ANSWER_METRICS_H
#define MOED_HTTP_ANSWER_METRICS_H

#include "metrics/metrics.h"

struct answer_metrics {
    struct counter *tokens_in, *tokens_out;
    struct counter *ended[6]; /* by enum moed_reason */
    struct counter *failed;
    struct counter *refused; /* because too many run */
    struct gauge *running;
    struct histogram *first_token, *between_tokens, *whole;
};

void answer_metrics_register(struct answer_metrics *m, struct metrics *registry);

#endif
