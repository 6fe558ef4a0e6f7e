/* Probabilities according to a row of logits. */
#ifndef MOED_WORKER_SAMPLE_LOGPROB_H
#define MOED_WORKER_SAMPLE_LOGPROB_H

#include "sampler.h"

#include <stdint.h>

/* ln of the sum of e^logit: a logit minus it is the logarithm of its token's probability. Of each
 * 256 logits the kernels compute the sum (kernels.h, exp_sum), which is the same on every CPU. The
 * sums are added in double precision, so the error does not grow with n. */
double logprob_norm(const float *logits, uint32_t n);

/* The token's log-probability, at most 0. A logit that is NaN gives NaN. */
float logprob_of(const float *logits, double norm, uint32_t token);

/* The n_top most probable tokens of a row of s's vocabulary, and their log-probabilities, largest
 * first; of equal ones the lower tokens. */
void logprob_top(struct sampler *s, const float *logits, double norm, uint32_t n_top,
                 uint32_t *tokens, float *logprobs);

#endif
