/* What a moed-replay without GLPK has in the place of optimal.c. replay_has() leaves the policy
 * out. */
#include "bench/replay/optimal.h"

#include <stdlib.h>

bool optimal_is_built(void)
{
    return false;
}

double optimal_assign(const struct sched_costs *costs, const struct sched_layer *layer,
                      struct sched_expert *experts, uint32_t n,
                      const struct optimal_options *options, bool *proven)
{
    abort();
}
