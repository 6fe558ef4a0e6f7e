/* The policy's metrics: which one is in force, and the bytes copied under each. Used by the thread
 * that answers requests. */
#ifndef MOED_MEMD_POLICY_METRICS_H
#define MOED_MEMD_POLICY_METRICS_H

#include "memd/device/caches.h"
#include "policy_choice.h"

#include "metrics/metrics.h"

struct policy_metrics;

/* choice: borrowed; its owner calls policy_metrics_changes before it changes it. caches: borrowed.
 */
struct policy_metrics *policy_metrics_new(struct metrics *r, const struct policy_choice *choice,
                                          struct caches *caches, struct error *e);
void policy_metrics_free(struct policy_metrics *p); /* takes NULL; after the last rendering */

/* *choice is about to change. */
void policy_metrics_changes(struct policy_metrics *p);

#endif
