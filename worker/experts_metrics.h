/* What of the routed experts is shown by `moed metrics`. */
#ifndef MOED_WORKER_EXPERTS_METRICS_H
#define MOED_WORKER_EXPERTS_METRICS_H

#include "cuda_device.h"
#include "experts.h"

/* What experts count; before experts_new. cuda: zeroed where there is none. */
struct experts_counters experts_metrics_counters(struct metrics *m, const struct memory_client *memory,
                                                 const struct cuda_device *cuda);
/* What is read of them when asked for, where the device has memory of its own: how far costs have been corrected. */
void experts_metrics_corrections(struct metrics *m, struct experts *x);

#endif
