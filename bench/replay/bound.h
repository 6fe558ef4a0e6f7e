/* The bound: the fastest decoding that any policy could reach on a machine's cost model. */
#ifndef MOED_REPLAY_BOUND_H
#define MOED_REPLAY_BOUND_H

#include "sched/assign/assign.h"

struct bound_work {
    /* time of the steps outside the routed experts; only copies overlap it */
    double outside_s;
    double misses;      /* fewest possible segments of activated experts that are not resident */
    const double *uses; /* [most_tokens + 1]: segments of activated experts, by number of
                           tokens */
    uint32_t most_tokens;
};

/* Returns a time in seconds that no schedule can beat. The CPU computes C segments: those that are
 * missing and not copied, and perhaps some resident ones. The link copies L >= misses - C. Each of
 * these is a lower bound:
 *     outside + t_cpu of the C with the fewest tokens     the CPU works only during expert layers
 *     L t_load                                            the link may work at any time
 *     outside + t_device of all but the C with the most   the device computes the other segments
 * Link and CPU share the host's memory, so both run at their contended pace while they overlap. For
 * the CPU that is the pace of the number of tokens with the least slowdown. The result is the
 * minimum over C. */
double bound_seconds(const struct sched_costs *costs, const struct bound_work *work);

#endif
