/* How much of a CUDA device's memory a worker needs, in addition to memd's. memd computes it before
 * it allocates anything, and leaves that much free. */
#ifndef MOED_DEVICE_WORKER_MEMORY_H
#define MOED_DEVICE_WORKER_MEMORY_H

#include "device/module.h"
#include "gguf/tensor_type.h"
#include "model/pool_map.h"

#include <stdbool.h>
#include <stdint.h>

struct worker_memory_needs {
    const struct device_module *module;
    const struct pool_map *map; /* params and slabs; the weights are not read */
    uint32_t max_tokens;        /* rows of a batch */
    uint32_t parallel, context; /* requests at once, and tokens of one */
    uint32_t kv_requests;       /* of a whole context, for which the KV cache has memory */
    enum tensor_type kv_type;   /* F32, F16 or Q8_0, as kv_type_check allows */
    bool dense; /* the device computes the dense part; else no KV cache and no scratch for it */
    bool blas;  /* the worker may multiply through BLAS, where it is found */
};

/* Bytes; UINT64_MAX: more than can be counted. */
struct worker_memory {
    uint64_t kv_bytes;      /* struct device_kv's memory, exactly */
    uint64_t scratch_bytes; /* everything else: an upper bound */
    uint64_t state_bytes;   /* of that, the states of recurrent layers */
};

void worker_memory(const struct worker_memory_needs *n, struct worker_memory *out);

/* Bytes of struct device_kv's memory: of all pages (model/kv_layout.h) for `requests` requests of
 * `context` tokens, in batches of up to max_tokens rows. */
uint64_t worker_memory_kv(const struct model_params *p, enum tensor_type type, uint32_t requests,
                          uint32_t context, uint32_t max_tokens);

/* Scratch of the experts operation, in the layer that needs most, for max_rows token rows of all
 * tasks. */
uint64_t worker_memory_experts(const struct device_module *module, const struct pool_map *map,
                               uint32_t max_rows);

/* Scratch of attend, in the layer that needs most. */
uint64_t worker_memory_attend(const struct device_module *module, const struct model_params *p,
                              uint32_t max_tokens, uint32_t context);

/* Scratch of multiply_many and multiply_many_planes, for the dense matrix that needs most, and a
 * batch of max_tokens rows. */
uint64_t worker_memory_many(const struct device_module *module, const struct pool_map *map,
                            uint32_t max_tokens);

/* The largest batch with device-only layers (worker/experts/device_only.h), and whose layers are
 * kept as graphs. Prompts have more rows. */
enum { WORKER_DEVICE_ONLY_TOKENS = 64 };

/* Rows of logits on the device at once: a row has the size of the vocabulary. With BLAS there are
 * more, so that unpacking the output head pays. */
enum { WORKER_LOGITS_ROWS = 16, WORKER_LOGITS_ROWS_BLAS = 64 };
static inline uint32_t worker_logits_rows(bool blas)
{
    return blas ? WORKER_LOGITS_ROWS_BLAS : WORKER_LOGITS_ROWS;
}

/* The layout of a layer's segments, for the module's operations. */
struct device_segments device_segments_of(const struct pool_map *map, uint32_t layer);

#endif
