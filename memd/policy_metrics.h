/* What says in Prometheus' text which policy is in force, and what was copied under each. Of the thread that answers requests. */
#ifndef MOED_MEMD_POLICY_METRICS_H
#define MOED_MEMD_POLICY_METRICS_H

#include "cache.h"
#include "policy_choice.h"

#include "metrics/metrics.h"

struct policy_metrics;

/* choice: its owner changes it, and tells before (policy_metrics_changes). cache: NULL: nothing is copied. */
struct policy_metrics *policy_metrics_new(struct metrics *r, const struct policy_choice *choice,
                                          struct cache *cache, struct error *e);
void policy_metrics_free(struct policy_metrics *p); /* takes NULL; the registry is read no more */

/* *choice is about to change. */
void policy_metrics_changes(struct policy_metrics *p);

#endif
