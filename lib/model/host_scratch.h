/* The host memory that a worker takes for the largest batch, in addition to the weights: computed
 * before anything is allocated, so that what does not fit is refused or made smaller. */
#ifndef MOED_MODEL_HOST_SCRATCH_H
#define MOED_MODEL_HOST_SCRATCH_H

#include "model/params.h"

#include <stdint.h>

/* An upper bound, for the dense part and the experts on the host: of lib/exec, of dense_host.c, of
 * worker/forward/scratch.c and of the experts' rows. Not the states of recurrent layers
 * (memory_state_bytes). max_tokens: rows of the batch (serving_batch_tokens). threads: of the
 * worker. packed: bytes of inputs that each thread packs for products of BF16 weights. */
uint64_t host_scratch_bytes(const struct model_params *p, uint32_t max_tokens, unsigned threads,
                            uint64_t packed);
/* Of cpuexec for a worker with such batches: of lib/exec, and of their channel. */
uint64_t host_scratch_executor_bytes(const struct model_params *p, uint32_t max_tokens,
                                     unsigned threads, uint64_t packed);

#endif
