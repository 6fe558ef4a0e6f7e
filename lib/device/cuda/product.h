/* Products of tiles with activations: the description of the work of multiply.cu and experts.cu,
 * which product.cuh's kernel does.
 *
 * The definition (kernels/kernels.h) sums each 256 columns, and then these sums in order. So the
 * unit of work is a slice: 256 columns of the 16 rows of a tile row, for a half-warp, one row for
 * each thread. A block of threads has one or a few tile rows. Some half-warps share the slices of
 * each tile row; the sums meet in shared memory, where they are added in order.
 *
 * A tile row may have parts, which are matrices of one shape whose slices follow each other: the
 * gate and up rows of a segment, or the down rows of all segments of a task. */
#ifndef MOED_DEVICE_CUDA_PRODUCT_H
#define MOED_DEVICE_CUDA_PRODUCT_H

#include "device/cuda/stream.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The most tokens of one block, which decodes the weights once for them. */
enum { PRODUCT_TOKENS = 8 };

/* A block has at least 48 KiB of shared memory: a part for weights that are being copied, the rest
 * for the sums of all slices of its tile rows. */
enum {
    PRODUCT_STAGE_BYTES = 28 << 10,
    PRODUCT_SUMS_BYTES = 20 << 10,
    PRODUCT_ROW_BYTES = TILE_ROWS * sizeof(float), /* of a slice for one token */
};

/* How many tokens a block may take of a product with n_parts parts; 0: not even one. */
static inline uint32_t product_tokens(uint32_t n_parts, uint32_t cols)
{
    uint64_t slices = (uint64_t)n_parts * ((cols + 255) / 256);
    uint64_t fit = PRODUCT_SUMS_BYTES / PRODUCT_ROW_BYTES / (slices ? slices : 1);
    return fit < PRODUCT_TOKENS ? (uint32_t)fit : (uint32_t)PRODUCT_TOKENS;
}

/* Products by tensor cores (product_mma.cuh). A block of threads has 32 tokens and 128 rows, or 64
 * tokens and 64 rows if an item has more than 32. It spends the instructions that product.cuh
 * spends on PRODUCT_MMA_LEAST of 32 tokens. */
enum {
    PRODUCT_MMA_TOKENS = 64, /* of an item, at most */
    PRODUCT_MMA_STEP = 32,
    PRODUCT_MMA_LEAST = 6,
};

/* How many blocks of threads n tokens and some rows take. */
static inline uint64_t product_mma_blocks(uint32_t rows, uint32_t n)
{
    uint64_t narrow = ((uint64_t)rows + 127) / 128, wide = ((uint64_t)rows + 63) / 64;
    return n <= PRODUCT_MMA_STEP ? narrow : wide * ((n + 63) / 64);
}

/* True: tensor cores take less time, with n_tokens in `steps` groups of PRODUCT_MMA_STEP or fewer.
 * product.cuh has many more blocks, so they must not leave most multiprocessors idle. */
static inline bool product_mma_pays(uint64_t n_tokens, uint64_t steps, uint64_t blocks,
                                    uint64_t multiprocessors)
{
    uint64_t busy = blocks < multiprocessors ? blocks : multiprocessors;
    return n_tokens * busy >= steps * PRODUCT_MMA_LEAST * multiprocessors;
}

/* Tensor cores compute experts of float weights for so many tokens of a group, or more. Whether
 * they do must depend on the group only, because the result is not the definition's to the bit. */
enum { PRODUCT_FLOAT_MMA_LEAST = 8 };

/* True: products with weights of that type take quantised activations. */
static inline bool product_quantizes(uint32_t type)
{
    return tensor_type_info(type)->block_values > 1;
}

/* True: tensor cores compute products of so many columns with weights of that type; float types
 * need BF16 matrix functions (product_float_mma.cuh). */
static inline bool product_mma_takes(uint32_t type, uint32_t cols)
{
    return product_quantizes(type) ||
           ((type == TENSOR_BF16 || type == TENSOR_F16) && cols % 32 == 0);
}

/* Some tokens of a task of experts, at most product.tokens; in device memory. The hidden rows of a
 * task are [segment][token]: token i of segment s has row hidden_row + s * task_tokens + i. */
struct product_item {
    uint32_t place, n_segments; /* in places; no segments, no tokens: nothing to do */
    uint32_t token, n_tokens;   /* in tokens */
    uint32_t hidden_row, task_tokens;
    uint32_t out_row;
    uint32_t continues;
};

/* The work of one launch. */
enum product_work {
    PRODUCT_PLANES,   /* matrices plane_bytes apart, each with n rows of `in`; of two parts, where
                         there are two (part_bytes), gate and up */
    PRODUCT_SEGMENTS, /* the rows of gate, of up, or of both as two parts, of each item's segments;
                         results go to the hidden rows */
    PRODUCT_TASKS,    /* the down rows of each item's segments, one part each, added in order */
};

enum product_finish {
    PRODUCT_SUM,   /* adds the parts' sums in order, to the old value where the work accumulates */
    PRODUCT_GATED, /* the last part's sum is up; the sum before it, or the old value if there is
                      none, is gate (of no effect where the activation takes none); biased and
                      activated */
};

struct product {
    enum product_work work;
    enum product_finish finish;
    uint32_t rows, cols;
    const float *x; /* for float types: row r of `in` begins at x + shift + r * x_stride */
    size_t x_stride;
    const int8_t *q;       /* as struct device_activations */
    const float *d, *bias; /* bias NULL: made from d and sum, but not by tensor cores */
    const int32_t *sum;
    float *out; /* [.][out_stride] */
    size_t out_stride;
    /* GATED: not NULL: results are quantised, as a struct device_activations of `rows` columns
     * without its biases, and out is not written; not by tensor cores. Whole tile rows. */
    int8_t *out_q;
    float *out_d;
    int32_t *out_sum;
    const uint32_t *guard; /* if it is not NULL and *guard is not 0, nothing is written */

    /* PLANES */
    const uint8_t *tiles;
    size_t plane_bytes, in_plane, out_plane;
    uint32_t n_planes, n;
    bool accumulate;
    const float *row_bias; /* [rows], added last; NULL: none */

    /* SEGMENTS and TASKS; tables in device memory */
    const struct product_item *items;
    const uint8_t *const *places;
    const uint32_t *tokens;
    uint32_t n_items;
    uint32_t n_segments, n_tokens; /* the most of any item */
    uint64_t offset;               /* of the first part in a segment */
    uint64_t part_bytes;  /* from the first part to the second, modulo 2^64; 0: there is one */
    uint64_t bias_offset; /* GATED: in a segment, [2][rows]; 0: none */
    uint32_t activation;
    float limit;

    /* The items have as many tokens as product_item_tokens says; PLANES: n tokens. */
    bool tensor_cores; /* of float types SEGMENTS and TASKS only (product_mma_takes) */

    /* Set by product_launch. */
    bool x_aligned; /* every row is aligned to 16 bytes */
    uint64_t row_bytes;
    uint32_t groups;   /* of 256 columns */
    uint32_t halves;   /* half-warps that share a tile row */
    uint32_t n_tiles;  /* tile rows of a block */
    uint32_t n_blocks; /* blocks of threads for the tile rows of one item */
    uint32_t tokens_a_block;
};

/* Every row of x begins at a multiple of 16 bytes. */
static inline bool product_rows_aligned(const struct product *p)
{
    return ((uintptr_t)p->x % 16 | p->x_stride % 4 | p->in_plane % 4) == 0;
}

/* Some products in one launch, of types of one family. */
enum product_family { PRODUCT_ALONE, PRODUCT_QUANTIZED, PRODUCT_FLOATS };
enum { PRODUCT_SET = 4 };
struct product_set {
    enum product_family family; /* where n > 0 */
    uint32_t n;
    uint32_t first[PRODUCT_SET]; /* of each product's blocks; set by product_set_launch */
    uint32_t type[PRODUCT_SET];  /* enum tensor_type */
    struct product of[PRODUCT_SET];
};

/* PRODUCT_ALONE: product_set_launch does not take the type. It uses no tensor cores. */
enum product_family product_family_of(uint32_t type);
/* As product_launch, of set->n products. */
void product_set_launch(struct device_stream *s, struct product_set *set);
/* Adds a product that does not depend on others of the set. It is launched at once where it cannot
 * be in a set, else at the latest by product_flush. */
void product_add(struct device_stream *s, struct product_set *set, uint32_t type,
                 const struct product *p);
void product_flush(struct device_stream *s, struct product_set *set);

/* The product of a matrix; without its out. */
struct product product_of_matrix(const struct matrix *m, const struct device_activations *a);
/* Chooses tensor cores where they take less time. False: the operation is refused, or there is no
 * work. */
bool product_prepare(struct device_stream *s, enum tensor_type type, struct product *p);
/* True: gate and up may be one product of two parts, by product_pair, which multiplies and
 * activates; *quantized, where it is quantised, gets quants without biases. */
bool product_pairs(const struct device_stream *s, const struct matrix *gate,
                   const struct matrix *up, const struct device_activations *a);
struct product product_pair(const struct matrix *gate, const struct matrix *up,
                            const struct device_activations *a, struct device_gating gating,
                            struct device_activations *hidden);

/* Launches p and sets p's last fields. p must have work, and product_tokens must not be 0. */
void product_launch(struct device_stream *s, enum tensor_type type, struct product *p);

/* As product_launch, for the types of one file. False: type is none of them. */
bool product_launch_float(struct device_stream *s, enum tensor_type type, struct product *p);
bool product_launch_32(struct device_stream *s, enum tensor_type type, struct product *p);
bool product_launch_256(struct device_stream *s, enum tensor_type type, struct product *p);
bool product_launch_iq(struct device_stream *s, enum tensor_type type, struct product *p);

#ifdef __cplusplus
}
#endif
#endif
