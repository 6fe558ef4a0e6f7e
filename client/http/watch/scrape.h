/* The metrics of all deployments' processes, and which of them run, for Prometheus. Asks at the
 * same time, and gives up what does not answer: a scrape ends within SCRAPE_MOST_MS. */
#ifndef MOED_HTTP_SCRAPE_H
#define MOED_HTTP_SCRAPE_H

#include "metrics/merge.h"

#include <limits.h>
#include <stdatomic.h>
#include <stdbool.h>

#define SCRAPE_ANSWER_MS 2000 /* for each process */
#define SCRAPE_BEGIN_MS  2500 /* later no process is asked */
#define SCRAPE_MOST_MS   (SCRAPE_BEGIN_MS + SCRAPE_ANSWER_MS)

/* Borrowed. */
struct scrape_settings {
    const char *own;              /* the frontend's deployment */
    const char *own_run;          /* its runtime directory, without links */
    bool expects_own;             /* it has a model: if it does not run, that is an outage */
    const char *only;             /* this deployment alone; NULL: all */
    const atomic_bool *cancelled; /* ask no more processes */
};

/* Adds the metrics of each process that answers, but of the own deployment's moed-http, with the
 * labels `deployment` and `process`, and moed_deployment_up and its like (docs/metrics.md) of each
 * deployment that runs or should. False: there is no deployment `only`. Any thread; waits for the
 * processes. */
bool scrape(const struct scrape_settings *settings, struct metrics_merge *m);

#endif
