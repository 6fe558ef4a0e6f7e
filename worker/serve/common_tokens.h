/* How far two prompts have the same tokens. */
#ifndef MOED_WORKER_SERVE_COMMON_TOKENS_H
#define MOED_WORKER_SERVE_COMMON_TOKENS_H

#include "ipc/kv_pool.h"

/* How many of the first n tokens of a and b are the same, from the first one on; 0 where that is
 * less than from + KV_POOL_TOKENS. Looks at the page at `from` first, so that prompts that differ
 * there cost no more than that, however long their beginning is. */
uint32_t common_tokens(const uint32_t *a, const uint32_t *b, uint32_t n, uint32_t from);

#endif
