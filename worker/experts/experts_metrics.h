/* The metrics of the routed experts. */
#ifndef MOED_WORKER_EXPERTS_EXPERTS_METRICS_H
#define MOED_WORKER_EXPERTS_EXPERTS_METRICS_H

#include "worker/links/cuda_device.h"
#include "experts.h"

/* Registers the counters, before experts_new. cuda: zeroed where there is none. */
struct experts_counters experts_metrics_counters(struct metrics *m,
                                                 const struct memory_client *memory,
                                                 const struct cuda_device *cuda);
/* Registers the cost corrections, which are read on request. Where the device has memory of its
 * own. */
void experts_metrics_corrections(struct metrics *m, struct experts *x);

#endif
