/* What exec.c and experts.c share. */
#ifndef MOED_EXEC_INTERNAL_H
#define MOED_EXEC_INTERNAL_H

#include "exec/exec.h"

/* Tile rows of one product through BLAS. */
#define BLAS_TILES 4
/* Tile rows of one chunk of work at most. */
#define EXEC_CHUNK_TILES 16
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
    size_t hidden; /* offset of its rows in gate, up, hidden: [n_tokens][width rounded to 16] */
    struct activations h;
};

struct expert_chunk {
    uint32_t part; /* the part, or the first part of the task for `down` */
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
    float *gate, *up, *hidden;
    void *hidden_memory;
    size_t hidden_bytes;
    struct expert_part *parts;
    struct expert_chunk *chunks;
    uint32_t n_parts, n_chunks;
    uint32_t first_chunk[TOPOLOGY_MAX_NODES + 1]; /* of each memory node's */
    const struct activations *input; /* of the call under way */
    uint32_t n_experts; /* of its layer */
    enum activation activation;
};

void exec_multiply_part(struct exec *x, unsigned thread, const struct matrix *m,
                        uint32_t tile_first, uint32_t tile_count, const struct activations *a,
                        const uint32_t *tokens, uint32_t n_tokens, float *y, size_t y_stride,
                        bool accumulate);
uint32_t exec_tiles_a_chunk(const struct exec *x, uint32_t n_tiles);

#endif
