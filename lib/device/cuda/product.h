/* Products of tiles with activations: one description of work for multiply.cu and experts.cu, which product.cuh's kernel does.
 *
 * The definition (kernels/kernels.h) sums 256 columns by themselves, and these sums in order. So the unit of work is a piece:
 * 256 columns of the 16 rows of a tile row, for half a warp, a row a thread. A block of threads has one or a few tile rows,
 * and for each some halves of warps that share its pieces; the sums meet in shared memory, where they are added in order.
 * A tile row may have parts, matrices of one shape whose pieces follow each other: the gate and the up rows of a segment, or
 * the down rows of all of a task's segments. */
#ifndef MOED_DEVICE_CUDA_PRODUCT_H
#define MOED_DEVICE_CUDA_PRODUCT_H

#include "device/cuda/internal.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Tokens that one block takes at most: the weights are decoded once for them. */
enum { PRODUCT_TOKENS = 8 };

/* A block has at least 48 KiB of shared memory: a part for weights on their way, the rest for the sums of all pieces of its
 * tile rows. */
enum {
    PRODUCT_STAGE_BYTES = 28 << 10,
    PRODUCT_SUMS_BYTES = 20 << 10,
    PRODUCT_ROW_BYTES = TILE_ROWS * sizeof(float), /* of a piece for one token */
};

/* How many tokens a block may take of a product of so many parts; 0: not even one. */
static inline uint32_t product_tokens(uint32_t n_parts, uint32_t cols)
{
    uint64_t pieces = (uint64_t)n_parts * ((cols + 255) / 256);
    uint64_t fit = PRODUCT_SUMS_BYTES / PRODUCT_ROW_BYTES / (pieces ? pieces : 1);
    return fit < PRODUCT_TOKENS ? (uint32_t)fit : (uint32_t)PRODUCT_TOKENS;
}

/* Whether products with such weights take quantised activations. */
static inline bool product_quantizes(uint32_t type)
{
    return tensor_type_info(type)->block_values > 1;
}

/* Some tokens of a task of experts, at most product.tokens; in device memory. Hidden rows are of [segment][token], for each
 * task: row of token i of segment s at hidden_row + s * task_tokens + i. */
struct product_item {
    uint32_t place, n_segments; /* of places; no segments, no tokens: nothing to do */
    uint32_t token, n_tokens;   /* of tokens */
    uint32_t hidden_row, task_tokens;
    uint32_t out_row;
    uint32_t continues;
};

/* What the blocks of one launch do. */
enum product_work {
    PRODUCT_PLANES,   /* matrices as far apart as plane_bytes, each with n rows of `in` */
    PRODUCT_SEGMENTS, /* of each item's segments the rows of gate, of up, or of both as two parts, to hidden rows */
    PRODUCT_TASKS,    /* of each item the down rows of its segments, as many parts, added in order */
};

enum product_finish {
    PRODUCT_SUM,   /* the parts' sums in order; onto what stands there, where the work adds */
    PRODUCT_GATED, /* the last part's sum is up, that before it, else what stands there, is gate: biased, activated */
};

struct product {
    enum product_work work;
    enum product_finish finish;
    uint32_t rows, cols;
    const float *x; /* where a row r of `in` begins, for float types: x + shift + r * x_stride */
    size_t x_stride;
    const int8_t *q; /* as struct device_activations */
    const float *d, *bias;
    const int32_t *sum;
    float *out; /* [.][out_stride] */
    size_t out_stride;
    const uint32_t *guard; /* where it is not NULL and what it points to is not 0, nothing is written */

    /* PLANES */
    const uint8_t *tiles;
    size_t plane_bytes, in_plane, out_plane;
    uint32_t n_planes, n;
    bool accumulate;

    /* SEGMENTS and TASKS; tables in device memory */
    const struct product_item *items;
    const uint8_t *const *places;
    const uint32_t *tokens;
    uint32_t n_items;
    uint32_t n_segments, n_tokens; /* the most of any item */
    uint64_t offset;               /* of the first part in a segment */
    uint64_t part_bytes;           /* SEGMENTS: from the first part to the second; 0: there is one */
    uint64_t bias_offset;          /* GATED: in a segment, [2][rows]; 0: none */
    uint32_t activation;

    /* Set by product_launch. */
    bool x_aligned; /* every row, to 16 bytes */
    uint64_t row_bytes;
    uint32_t groups;   /* of 256 columns */
    uint32_t halves;   /* of warps, that share a tile row */
    uint32_t n_tiles;  /* tile rows of a block */
    uint32_t n_blocks; /* of threads, for the tile rows of one item */
    uint32_t tokens_a_block;
};

/* Starts p on the stream; p's last fields are filled in. p has something to do, and product_tokens is not 0. */
void product_launch(struct device_stream *s, enum tensor_type type, struct product *p);

/* The same for the types of one file; false: type is none of them. */
bool product_launch_float(struct device_stream *s, enum tensor_type type, struct product *p);
bool product_launch_32(struct device_stream *s, enum tensor_type type, struct product *p);
bool product_launch_256(struct device_stream *s, enum tensor_type type, struct product *p);

#ifdef __cplusplus
}
#endif
#endif
