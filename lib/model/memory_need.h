/* What a model needs of the machine's memory, said before anything is allocated. */
#ifndef MOED_MODEL_MEMORY_NEED_H
#define MOED_MODEL_MEMORY_NEED_H

#include "model/kv_type.h"
#include "model/pool_plan.h"

/* What the processes need beside the pool (loading buffers, scratch, the routers in 8 bits, the first pages of the KV
 * cache): a tenth of it, between 64 and 512 MiB. */
uint64_t memory_margin_bytes(uint64_t weights_bytes);

/* ERROR_MEMORY with the numbers when the plan's pool, and tier_bytes beside it (the host tier and its readers; 0: there is none), do not fit. */
enum error_code memory_need_check(const struct pool_plan *plan, uint64_t tier_bytes,
                                  struct error *e);

/* Bytes of KV cache a token of context, for a type that kv_type_check allows. */
uint64_t memory_kv_bytes_a_token(const struct model_params *p, enum tensor_type type);

#endif
