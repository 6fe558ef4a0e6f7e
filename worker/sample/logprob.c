/* Log-probabilities; see logprob.h. */
#include "logprob.h"

#include "kernels/kernels.h"
#include "sampler_internal.h"

#include <math.h>

enum { BLOCK = 256 };

double logprob_norm(const float *logits, uint32_t n)
{
    const struct kernels *kernels = kernels_get();
    float most = logits[select_largest(logits, n)];
    double sum = 0;
    for (uint32_t i = 0; i < n; i += BLOCK)
        sum += (double)kernels->exp_sum(logits + i, most, n - i < BLOCK ? n - i : BLOCK);
    return (double)most + log(sum);
}

static float minus_norm(float logit, double norm)
{
    double logprob = (double)logit - norm;
    return (float)(logprob > 0 ? 0 : logprob); /* the sum's rounding */
}

float logprob_of(const float *logits, double norm, uint32_t token)
{
    return minus_norm(logits[token], norm);
}

void logprob_top(struct sampler *s, const float *logits, double norm, uint32_t n_top,
                 uint32_t *tokens, float *logprobs)
{
    if (n_top)
        sampler_top(s, logits, n_top, logprobs, tokens);
    for (uint32_t i = 0; i < n_top; i++)
        logprobs[i] = minus_norm(logprobs[i], norm);
}
