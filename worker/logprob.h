/* How probable a token is by a row of logits. */
#ifndef MOED_WORKER_LOGPROB_H
#define MOED_WORKER_LOGPROB_H

#include <stdint.h>

/* ln softmax(logits[n])[token], at most 0. The sum is in double precision: the error is that of the logits
 * and of rounding the result, whatever n is. A logit that is not a number gives NaN. */
float logprob_of(const float *logits, uint32_t n, uint32_t token);

#endif
