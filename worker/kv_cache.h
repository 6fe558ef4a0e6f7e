/* Keys and values of the running requests: for each request a slot of `context` positions, float32.
 * Memory is reserved at start and touched as positions fill, so an idle slot costs nothing. */
#ifndef MOED_WORKER_KV_CACHE_H
#define MOED_WORKER_KV_CACHE_H

#include "base/error.h"
#include "model/params.h"

#include <stdint.h>

struct kv_cache {
    float *memory; /* [n_layers][n_slots][rows][context][row_values] */
    size_t bytes;
    uint32_t n_layers, n_slots, context;
    uint32_t rows, row_values; /* of a position: params_cache_rows and params_cache_row */
};

enum error_code kv_cache_new(const struct model_params *p, uint32_t n_slots, uint32_t context,
                             struct kv_cache *out, struct error *e);
void kv_cache_free(struct kv_cache *c);

/* The keys (values) of a slot in a layer: [context][row_values], head h of them at h * its dimension.
 * With one row a position, values are the keys' first part: both are the same. */
float *kv_cache_keys(const struct kv_cache *c, uint32_t layer, uint32_t slot);
float *kv_cache_values(const struct kv_cache *c, uint32_t layer, uint32_t slot);
/* Give a slot's memory back to the system; its positions read as zero. */
void kv_cache_release(struct kv_cache *c, uint32_t slot);

#endif
