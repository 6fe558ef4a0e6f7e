/* What a model needs of the machine's memory, said before anything is allocated. */
#ifndef MOED_MODEL_MEMORY_NEED_H
#define MOED_MODEL_MEMORY_NEED_H

#include "model/pool_plan.h"

/* Beyond the pool: loading buffers, processes, the first pages of the KV cache. */
#define MEMORY_MARGIN_BYTES (256ull << 20)

/* Bytes that can still be allocated: the machine's available memory, or less where a cgroup limits it.
 * 0 where it cannot be told. */
uint64_t memory_available_bytes(void);

/* ERROR_MEMORY with the numbers when the plan's pool does not fit. */
enum error_code memory_need_check(const struct pool_plan *plan, struct error *e);

/* Bytes of KV cache a token of context. */
uint64_t memory_kv_bytes_a_token(const struct model_params *p);

#endif
