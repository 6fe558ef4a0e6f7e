/* The map of the host pool: fixed structs at the pool's start that say what lies at which offset.
 *
 * memd lays the pool out (pool_plan_new), fills it and seals it. Other processes attach to it
 * (pool_map_attach) and read. The pool holds no pointers: offsets count from its start and are
 * TILE_ALIGN aligned.
 *
 *     header | tensor table | slab table | metadata | dense tensors | slabs of layer 0 | 1 | ...
 *     slabs of a layer:    slab of expert 0 | 1 | ...
 *     slab:                n_segments segments
 *     segment:             gate tile rows | up tile rows | down tile rows | gate and up biases
 *                          (no gate in models whose activation takes none)
 *
 * A matrix is in tile order (kernels/tile.h) and keeps the quantisation of the model file; a vector
 * is float32. A segment's down part is d_model rows by segment_width columns. Biases of gate and up
 * are float32 and exist only in models that have them. The bias of down is a dense vector, because
 * it belongs to the expert's sum, not to a segment.
 *
 * If host memory is smaller than the model (`tiered`), the pool holds no slabs: they lie in slots
 * of the host tier (ipc/host_tier.h). The slab table then describes them with offsets of 0. */
#ifndef MOED_MODEL_POOL_MAP_H
#define MOED_MODEL_POOL_MAP_H

#include "base/error.h"
#include "gguf/gguf.h"
#include "kernels/tile.h"
#include "model/params.h"

#include <stdint.h>

#define POOL_MAGIC          0x4c4f4f504445304dull /* "M0EDPOOL" */
#define POOL_LAYOUT_VERSION 6u
#define POOL_MAX_SEGMENTS   16

enum pool_tensor_form {
    POOL_VECTOR = 1, /* float32 [rows][cols] */
    POOL_MATRIX = 2, /* tile order, rows x cols; planes stand one after the other (one per head) */
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
    /* Within a segment; gate is at 0. up_offset 0: the experts have no gate, and gate_type is up's
     */
    uint64_t up_offset, down_offset;
    uint32_t n_experts, n_segments;
    uint32_t segment_width; /* intermediate values of a segment */
    uint32_t d_model;
    uint32_t gate_type, up_type, down_type;
    uint32_t reserved;
    uint64_t bias_offset; /* within a segment: gate's segment_width biases, then up's; 0: none */
};
_Static_assert(sizeof(struct pool_slabs) == 80, "shared layout");

/* One segment of an expert, in the pool. */
struct expert_segment {
    struct matrix gate, up, down;     /* gate.tiles NULL: none */
    const float *gate_bias, *up_bias; /* [gate.rows]; NULL: none */
};

struct pool_header {
    uint64_t magic;
    uint32_t layout_version;
    uint32_t params_bytes; /* sizeof(struct model_params), as the writer was built */
    uint64_t generation;   /* of this load of the model */
    uint64_t bytes;        /* of the pool */
    uint64_t metadata_offset, metadata_bytes; /* the GGUF file's keys: tokenizer, template */
    uint64_t tensors_offset;                  /* struct pool_tensor [n_tensors], sorted by name */
    uint64_t slabs_offset;                    /* struct pool_slabs [n_layers] */
    uint32_t n_tensors, n_layers;
    uint32_t tiered; /* 1: the slabs lie in the host tier */
    uint32_t
        split_rows; /* 1: experts lie on memory nodes by tile rows, 0: by segments (exec/numa.h) */
    uint64_t expert_bytes, dense_bytes; /* of weights, in the pool or (experts) in the host tier */
    uint64_t parameters;                /* values of weights in the file */
    uint64_t file_bytes;
    char arch[32];
    char path[256];             /* of the model file, for people */
    struct model_params params; /* arch is NULL in shared memory */
};
_Static_assert(sizeof(struct pool_header) == 62160, "shared layout");

/* An attached pool: borrows the mapping. */
struct pool_map {
    const uint8_t *base;
    const struct pool_header *header;
    const struct pool_tensor *tensors;
    const struct pool_slabs *slabs;
    struct model_params params; /* arch resolved */
};

/* Checks the whole map. ERROR_VERSION: another layout; ERROR_PROTOCOL: an impossible map. */
enum error_code pool_map_attach(const void *base, size_t bytes, struct pool_map *out,
                                struct error *e);
/* NULL: no such tensor. */
const struct pool_tensor *pool_map_find(const struct pool_map *map, const char *name);
/* The part of the pool from the first byte of the first dense tensor to the last byte of the last
 * one. It holds only dense tensors and their padding; pool_map_attach refuses other pools. The
 * offset is TILE_ALIGN aligned. bytes 0: no dense tensors. In a copy of the range, a tensor lies at
 * its own offset minus the range's. */
struct pool_range {
    uint64_t offset, bytes;
};
struct pool_range pool_map_dense(const struct pool_map *map);
/* The number of segments of all experts, the most segments of an expert (at least 1), and the bytes
 * of the largest segment. */
uint64_t pool_map_segments(const struct pool_map *map);
uint32_t pool_map_most_segments(const struct pool_map *map);
uint64_t pool_map_largest_segment(const struct pool_map *map);
/* A segment's place in a host pool that is not tiered. */
const uint8_t *pool_map_segment_place(const struct pool_map *map, uint32_t layer, uint32_t expert,
                                      uint32_t segment);
/* The parts of a layer's segment that lies at `place`: in the pool, or a copy anywhere. */
struct expert_segment pool_segment_at(const struct pool_slabs *s, const uint8_t *place);

#endif
