/* Log-probabilities; see logprob.h. */
#include "logprob.h"

#include <math.h>

float logprob_of(const float *logits, uint32_t n, uint32_t token)
{
    float most = logits[0];
    for (uint32_t i = 1; i < n; i++)
        most = logits[i] > most ? logits[i] : most;
    double sum = 0;
    for (uint32_t i = 0; i < n; i++)
        sum += (double)expf(logits[i] - most);
    /* sum >= 1: the likeliest token's part */
    return (float)((double)logits[token] - (double)most - log(sum));
}
