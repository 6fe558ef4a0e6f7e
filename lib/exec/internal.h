/* What exec.c and experts.c share. */
#ifndef MOED_EXEC_INTERNAL_H
#define MOED_EXEC_INTERNAL_H

#include "exec/exec.h"

/* Tile rows of one product through BLAS. */
#define BLAS_TILES 4
/* A chunk for one token is at least so long where there is enough for all threads. */
#define EXEC_CHUNK_BYTES (32 * 1024)
/* And one for several at most so many tile rows; a multiple of BLAS_TILES. */
#define MOST_TILES 16
/* Parts (an expert's segment for its tokens) and chunks of one exec_experts pass; more run in several
 * passes. */
#define EXEC_MAX_PARTS  1024
#define EXEC_MAX_CHUNKS 16384

struct exec_scratch {
    float *weights; /* [BLAS_TILES * TILE_ROWS][max_cols] */
    float *inputs;  /* [max_tokens][max_cols] */
    /* what inputs hold as bf16_pack makes them: of these tokens, in this step; 0: something else */
    const struct activations *packed_of;
    const uint32_t *packed_tokens;
    uint32_t packed_n;
    uint64_t packed_step;
};

/* One segment of one task. */
struct expert_part {
    const struct expert_task *task;
    struct expert_segment segment;
    size_t hidden; /* offset of its rows in hidden: [n_tokens][width rounded to 16] */
    struct activations h;
};

/* Tile rows of a product; of experts these are numbered by their first part. */
struct exec_chunk {
    uint32_t product;
    uint32_t tile_first, tile_count;
};

struct exec {
    struct pool *pool;
    struct exec_limits limits;
    bool blas, blas_allowed;
    bool bf16;     /* BF16 weights are multiplied by bf16_multiply instead */
    uint64_t step; /* of products whose inputs stay as they are */
    const struct kernels *kernels;
    _Atomic uint64_t *progress;
    struct {
        void *memory;
        struct activations activations;
    } slots[EXEC_SLOTS];
    struct exec_scratch *scratch; /* [threads] */
    /* experts */
    float *gate_up; /* of a part, from twice its `hidden` on: [n_tokens][2][width rounded to 16] */
    float *hidden;
    void *hidden_memory;
    size_t hidden_bytes;
    struct expert_part *parts;
    struct exec_chunk *chunks; /* [EXEC_MAX_CHUNKS], of the call under way */
    uint32_t n_parts, n_chunks;
    uint32_t cut_parts[EXEC_MAX_PARTS]; /* whose gate and up are several chunks */
    uint32_t first_chunk[TOPOLOGY_MAX_NODES + 1]; /* of each memory node's */
    const struct activations *input; /* of the call under way */
    uint32_t n_experts; /* of its layer */
    enum activation activation;
};

void exec_multiply_part(struct exec *x, unsigned thread, const struct matrix *m,
                        uint32_t tile_first, uint32_t tile_count, const struct activations *a,
                        const uint32_t *tokens, uint32_t n_tokens, float *y, size_t y_stride,
                        bool accumulate);

/* Cutting the tile rows of some products into chunks for all threads. The first are long, for to begin a stream of reads costs
 * as much as 40 KB of it; what is left becomes shorter and shorter, for the threads to finish together. */
struct exec_cutting {
    uint64_t left;   /* tile rows times tokens */
    unsigned shares; /* of what is left, a chunk is one */
    uint32_t fair;   /* tile rows a thread, were each to have as many */
};
struct exec_cutting exec_cut_begin(const struct exec *x, uint64_t tiles, uint64_t tiles_by_tokens);
/* Adds the chunks of one of the products to those of the call under way. */
void exec_cut_product(struct exec *x, struct exec_cutting *c, uint32_t product, const struct matrix *m,
                      uint32_t n_tokens);

#endif
