/* Rotation angles; see rope.h. */
#include "model/rope.h"

#include <math.h>

/* The pair that turns `turns` times over the original context, as a fraction of an index. */
static double pair_of_turns(const struct rope_params *p, double turns)
{
    double positions = p->original_context / (turns * 2 * M_PI);
    return p->dims * log(positions) / (2 * log(p->base));
}

/* 1 for pairs that keep their frequency, 0 for pairs that are divided by factor, a ramp between. */
static double undivided_share(const struct rope_params *p, uint32_t pair)
{
    double first = pair_of_turns(p, p->beta_fast), last = pair_of_turns(p, p->beta_slow);
    first = fmax(0, p->exact_ramp ? first : floor(first));
    last = fmin(p->dims - 1, p->exact_ramp ? last : ceil(last));
    double ramp = (pair - first) / fmax(0.001, last - first);
    return 1 - fmin(1, fmax(0, ramp));
}

void rope_frequencies(const struct rope_params *p, const float *factors, double *frequency)
{
    for (uint32_t i = 0; i < p->dims / 2; i++) {
        double f = pow(p->base, -2.0 * i / p->dims);
        if (factors)
            f /= factors[i];
        double share = p->scaling == ROPE_SCALING_YARN     ? undivided_share(p, i)
                       : p->scaling == ROPE_SCALING_LINEAR ? 0
                                                           : 1;
        frequency[i] = f * share + f / p->factor * (1 - share);
    }
}

bool rope_uses_long(const struct rope_params *p, uint32_t context)
{
    return p->scaling == ROPE_SCALING_LONG && context > p->original_context;
}
