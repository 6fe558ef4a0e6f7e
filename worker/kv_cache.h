/* Keys and values of the running requests: for each request a slot of `context` positions.
 * A KV head's keys lie one position after the other, its values behind them, for that is how attention reads them.
 * Memory is reserved at start and touched as positions fill, so an idle slot costs nothing. */
#ifndef MOED_WORKER_KV_CACHE_H
#define MOED_WORKER_KV_CACHE_H

#include "base/error.h"
#include "gguf/tensor_type.h"
#include "model/params.h"

#include <stdint.h>

struct kv_cache {
    uint8_t *memory; /* [n_layers][n_slots][n_kv_heads]: [context] keys, [context] values */
    size_t bytes;
    enum tensor_type type; /* F32, F16 or Q8_0 */
    uint32_t n_layers, n_slots, context;
    size_t key_bytes, value_bytes; /* of a position of a head; latent attention's values are in its keys: 0 */
    size_t values_offset;          /* from a head's keys */
    size_t head_bytes, slot_bytes;
};

/* ERROR_UNSUPPORTED: the type is not for heads of this model's size. */
enum error_code kv_cache_new(const struct model_params *p, enum tensor_type type, uint32_t n_slots,
                             uint32_t context, struct kv_cache *out, struct error *e);
void kv_cache_free(struct kv_cache *c);

/* The keys (values) of KV head 0 of a slot in a layer; head h's are h * head_bytes further. */
uint8_t *kv_cache_keys(const struct kv_cache *c, uint32_t layer, uint32_t slot);
uint8_t *kv_cache_values(const struct kv_cache *c, uint32_t layer, uint32_t slot);
/* From one position's values of a head to the next one's. */
size_t kv_cache_value_stride(const struct kv_cache *c);
/* Give a slot's memory back to the system; its positions read as zero. */
void kv_cache_release(struct kv_cache *c, uint32_t slot);

#endif
