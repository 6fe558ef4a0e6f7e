/* Sampling parameters that a user gives as 0. */
#ifndef MOED_CLIENT_CHAT_SAMPLING_ZEROS_H
#define MOED_CLIENT_CHAT_SAMPLING_ZEROS_H

#include "client/include/moed.h"

#include <float.h>
#include <stddef.h>

/* Keeps a 0 of the parameters whose 0 libmoed takes for their usual value. */
static inline void sampling_keep_zeros(struct moed_sampling *s)
{
    float *const all[] = {&s->top_p,         &s->typical_p,    &s->dynamic_exponent,
                          &s->xtc_threshold, &s->mirostat_tau, &s->mirostat_eta};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (*all[i] == 0)
            *all[i] = FLT_MIN;
}

#endif
