/* What a worker needs of a CUDA device's memory beside what memd keeps there: known before anything is allocated, so that
 * memd leaves room for it. */
#ifndef MOED_DEVICE_WORKER_ROOM_H
#define MOED_DEVICE_WORKER_ROOM_H

#include "device/module.h"
#include "gguf/tensor_type.h"
#include "model/pool_map.h"

#include <stdbool.h>
#include <stdint.h>

struct worker_room_needs {
    const struct device_module *module;
    const struct pool_map *map; /* of params and slabs; the weights need not be there */
    uint32_t max_tokens;        /* rows of a batch */
    uint32_t parallel, context; /* of the KV cache */
    enum tensor_type kv_type;   /* F32, F16 or Q8_0, as kv_type_check allows */
    bool dense;                 /* the dense part is computed there too: else no KV cache, no scratch for it */
    bool blas;                  /* it may multiply through BLAS, where that is found */
};

/* Bytes; UINT64_MAX: more than can be counted. */
struct worker_room {
    uint64_t kv_bytes;      /* struct device_kv's memory, exactly */
    uint64_t scratch_bytes; /* everything else, at most so much */
};

void worker_room(const struct worker_room_needs *n, struct worker_room *out);

/* Of struct device_kv: row_bytes; a page's, of all layers; those of all pages for so many requests of so many tokens. */
uint64_t worker_room_row(const struct model_params *p, enum tensor_type type);
uint64_t worker_room_page(const struct model_params *p, enum tensor_type type);
uint64_t worker_room_kv(const struct model_params *p, enum tensor_type type, uint32_t parallel, uint32_t context);

/* What the experts operation wants of scratch, in the layer that wants most, for max_rows token rows of all tasks. */
uint64_t worker_room_experts(const struct device_module *module, const struct pool_map *map, uint32_t max_rows);

/* What multiply_many and multiply_many_planes want of scratch, of the dense matrix that wants most, for a batch of
 * max_tokens rows. */
uint64_t worker_room_many(const struct device_module *module, const struct pool_map *map, uint32_t max_tokens);

/* Rows of a batch whose layers the device may run by itself (worker/experts_alone.h): larger ones activate experts that
 * are missing. */
enum { WORKER_ALONE_TOKENS = 8 };

/* Rows of logits that are on the device at once: a row has the size of the vocabulary. With BLAS as many as make it worth
 * to unpack the output head. */
enum { WORKER_LOGITS_ROWS = 16, WORKER_LOGITS_ROWS_BLAS = 64 };
static inline uint32_t worker_logits_rows(bool blas)
{
    return blas ? WORKER_LOGITS_ROWS_BLAS : WORKER_LOGITS_ROWS;
}

/* How a layer's segments are laid out, for the module's operations. */
struct device_segments device_segments_of(const struct pool_map *map, uint32_t layer);

#endif
