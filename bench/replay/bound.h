/* The bound: how quickly any policy could decode, on a machine's cost model. */
#ifndef MOED_REPLAY_BOUND_H
#define MOED_REPLAY_BOUND_H

#include "sched/assign.h"

struct bound_work {
    /* of the steps, outside of the routed experts: nothing of those goes on then, but copies */
    double outside_s;
    double misses;      /* segments of activated experts that are not on the device, at least */
    const double *uses; /* [most_tokens + 1]: segments of activated experts, by the tokens that activated them */
    uint32_t most_tokens;
};

/* Seconds; no schedule takes less. The CPU computes C segments, those that are missing and not copied, and perhaps some
 * that are on the device; L >= misses - C are copied. That takes no less than
 *     outside + t_cpu of the C with the fewest tokens     the CPU works beside the device, while experts are computed
 *     L t_load                                            the link may work all the time
 *     outside + t_device of all but the C with the most   the device computes what the CPU does not
 * and, link and CPU drawing on the same memory, while both work each at its contended pace, the CPU's the one of those tokens that
 * suffer the least. The least over C. */
double bound_seconds(const struct sched_costs *costs, const struct bound_work *work);

#endif
