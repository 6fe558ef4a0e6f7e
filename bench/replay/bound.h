/* The bound: how quickly any policy could decode, on a machine's cost model. */
#ifndef MOED_REPLAY_BOUND_H
#define MOED_REPLAY_BOUND_H

#include "sched/assign.h"

struct bound_work {
    /* of the steps, outside of the routed experts: nothing of those goes on then, but copies */
    double outside_s;
    double uses;     /* segments of activated experts */
    double misses;   /* of those, at least so many are not on the device */
    double workload; /* tokens of an activated expert, mean */
};

/* Seconds. Of the missing segments L are copied; the CPU computes C segments, those that are missing and not copied, and perhaps
 * some that are on the device: L + C >= misses. No less than
 *     outside + C t_cpu                        the CPU works beside the device, while experts are computed
 *     L t_load                                 the link may work all the time
 *     outside + (uses - C) t_device            the device computes what the CPU does not
 * and, link and CPU drawing on the same memory, while both work each at its contended pace. The least over L. */
double bound_seconds(const struct sched_costs *costs, const struct bound_work *work);

#endif
