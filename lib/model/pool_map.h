/* The map of the host pool: what lies at which offset, as fixed structs at the pool's start.
 *
 * memd lays the pool out (pool_plan_new), fills it and seals it; everyone else attaches to it
 * (pool_map_attach) and reads. No pointers in it: offsets from the pool's start, TILE_ALIGN aligned.
 *
 * Dense weights: every matrix in tile order (kernels/tile.h), every vector as float32. Routed experts: for
 * each layer slabs, one an expert, one after the other; a slab is n_segments segments, one after the
 * other; a segment has its gate tile rows, its up tile rows, its down tile rows (d_model rows by
 * segment_width columns), and where experts have biases those of its gate and up rows as float32. The bias of
 * down is a dense vector: it belongs to the expert's sum, not to a segment. A matrix keeps the quantisation of the
 * model file.
 *
 * Where host memory is smaller than the model (`tiered`), slabs are no part of the pool: they come and go in slots of
 * the host tier (ipc/host_tier.h). The slab table then describes them all the same, with offsets of 0.
 */
#ifndef MOED_MODEL_POOL_MAP_H
#define MOED_MODEL_POOL_MAP_H

#include "base/error.h"
#include "gguf/gguf.h"
#include "kernels/tile.h"
#include "model/params.h"

#include <stdint.h>

#define POOL_MAGIC          0x4c4f4f504445304dull /* "M0EDPOOL" */
#define POOL_LAYOUT_VERSION 3u
#define POOL_MAX_SEGMENTS   16

enum pool_tensor_form {
    POOL_VECTOR = 1, /* float32 [rows][cols] */
    POOL_MATRIX =
        2, /* tile order, rows x cols, planes of them one after the other (one an attention head) */
};

/* A dense tensor. */
struct pool_tensor {
    char name[64]; /* the file's name, "blk.3.attn_q.weight" */
    uint32_t form;
    uint32_t type; /* enum tensor_type; F32 for vectors */
    uint32_t rows, cols;
    uint32_t planes; /* 1 for most */
    uint32_t reserved;
    uint64_t offset, bytes;
};
_Static_assert(sizeof(struct pool_tensor) == 104, "shared layout");

/* The experts of one layer. A layer without experts has n_experts 0 and nothing else. */
struct pool_slabs {
    uint64_t offset;     /* of expert 0's slab; 0 in a tiered pool */
    uint64_t slab_bytes; /* n_segments * segment_bytes */
    uint64_t segment_bytes;
    uint64_t up_offset, down_offset; /* within a segment; gate is at 0 */
    uint32_t n_experts, n_segments;
    uint32_t segment_width; /* intermediate values a segment */
    uint32_t d_model;
    uint32_t gate_type, up_type, down_type;
    uint32_t reserved;
    uint64_t bias_offset; /* within a segment: gate's segment_width biases, then up's; 0: none */
};
_Static_assert(sizeof(struct pool_slabs) == 80, "shared layout");

/* One segment of an expert, in the pool. */
struct expert_segment {
    struct matrix gate, up, down;
    const float *gate_bias, *up_bias; /* [gate.rows]; NULL: none */
};

struct pool_header {
    uint64_t magic;
    uint32_t layout_version;
    uint32_t params_bytes; /* sizeof(struct model_params), as the writer was built */
    uint64_t generation;   /* of this load */
    uint64_t bytes;        /* of the pool */
    uint64_t metadata_offset, metadata_bytes; /* the GGUF file's keys: tokenizer, template */
    uint64_t tensors_offset;                  /* struct pool_tensor [n_tensors], sorted by name */
    uint64_t slabs_offset;                    /* struct pool_slabs [n_layers] */
    uint32_t n_tensors, n_layers;
    uint32_t tiered; /* 1: the slabs lie in the host tier */
    uint32_t reserved;
    uint64_t expert_bytes, dense_bytes; /* of weights, in the pool or (experts) beside it */
    uint64_t parameters;                /* values of weights in the file */
    uint64_t file_bytes;
    char arch[32];
    char path[256];             /* of the model file, for people */
    struct model_params params; /* arch is NULL in shared memory */
};

/* An attached pool: borrows the mapping. */
struct pool_map {
    const uint8_t *base;
    const struct pool_header *header;
    const struct pool_tensor *tensors;
    const struct pool_slabs *slabs;
    struct model_params params; /* arch resolved */
};

/* Check the whole map (ERROR_VERSION for another layout, ERROR_PROTOCOL for nonsense). */
enum error_code pool_map_attach(const void *base, size_t bytes, struct pool_map *out,
                                struct error *e);
/* NULL when absent. */
const struct pool_tensor *pool_map_find(const struct pool_map *map, const char *name);
/* The part of the pool in which all dense tensors lie, from the first one's first byte to the last one's last, and nothing
 * else but what aligns them: pool_map_attach refuses a pool where it is otherwise. The offset is TILE_ALIGN aligned; bytes
 * 0: there are none. In a copy of the range a tensor lies at its own offset less the range's. */
struct pool_range {
    uint64_t offset, bytes;
};
struct pool_range pool_map_dense(const struct pool_map *map);
/* Of the experts' segments: how many there are in all, the most that an expert has (at least 1), the largest one's bytes. */
uint64_t pool_map_segments(const struct pool_map *map);
uint32_t pool_map_most_segments(const struct pool_map *map);
uint64_t pool_map_largest_segment(const struct pool_map *map);
/* In the host pool, where it is not tiered. */
const uint8_t *pool_map_segment_place(const struct pool_map *map, uint32_t layer, uint32_t expert,
                                      uint32_t segment);
/* A segment of a layer that lies at `place`: in the pool, or a copy of it anywhere. */
struct expert_segment pool_segment_at(const struct pool_slabs *s, const uint8_t *place);

#endif
