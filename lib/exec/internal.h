/* Private to lib/exec: what exec.c and experts.c share. */
#ifndef MOED_EXEC_INTERNAL_H
#define MOED_EXEC_INTERNAL_H

#include "exec/exec.h"
#include "exec/numa.h"

/* kernels/bf16.h reads tile rows in pairs. */
#define BF16_TILES 2
/* The least bytes of a chunk for one token, if there is enough work for all threads. */
#define EXEC_CHUNK_BYTES (32 * 1024)
/* The most tile rows of a chunk for several tokens; a multiple of BF16_TILES. */
#define MOST_TILES 16
/* The most parts (an expert's segment for its tokens) and chunks of one pass of exec_experts. More
 * of them run in several passes. */
#define EXEC_MAX_PARTS  1024
#define EXEC_MAX_CHUNKS 32768
/* The most slices (exec/numa.h) of a pass. */
#define EXEC_MAX_SLICES (EXEC_MAX_CHUNKS / 4)

/* Rows [at, at + n) of a product's input: those with the indices tokens[at ...] of a; NULL: rows of
 * a themselves. */
struct exec_rows {
    const struct activations *a;
    const uint32_t *tokens;
    uint32_t at, n;
};

/* Inputs that bf16->pack wrote: these rows, in this step. NULL: bf16 is. */
struct exec_packed {
    uint32_t *inputs;
    struct exec_rows rows;
    uint64_t step;
};

/* One segment of one task. */
struct expert_part {
    const struct expert_task *task;
    struct expert_segment segment;
    uint32_t number; /* of the segment in its expert */
    size_t hidden;   /* offset of its rows in hidden: [n_tokens][width rounded to 16] */
    struct activations h;
};

/* Tile rows of a product. For experts, `product` is the number of its first part; in
 * exec_multiply_several, it is the product's number times the parts of its rows, plus the part. */
struct exec_chunk {
    uint32_t product;
    uint32_t tile_first, tile_count;
};

struct exec {
    struct pool *pool;
    struct exec_limits limits;
    bool rounds;
    struct row_groups groups; /* where products may round; in group_memory */
    struct row_group *group_memory;
    const struct bf16_build *bf16; /* multiplies BF16 weights of groups; NULL: none */
    uint64_t step;                 /* counts the groups of products whose inputs do not change */
    const struct kernels *kernels;
    _Atomic uint64_t *progress;
    struct {
        void *memory;
        struct activations activations;
    } slots[EXEC_SLOTS];
    struct exec_packed *packed; /* [threads] */
    uint32_t *row_numbers;      /* [max_tokens]: 0, 1, ... */
    /* experts */
    float *gate_up; /* of a part, from twice its `hidden` on: [n_tokens][2][width rounded to 16] */
    float *hidden;
    void *hidden_memory;
    size_t hidden_bytes;
    struct expert_part *parts;
    struct exec_chunk *chunks; /* [EXEC_MAX_CHUNKS], of the current call */
    uint32_t n_parts, n_chunks;
    uint32_t cut_parts[EXEC_MAX_PARTS];           /* parts whose gate and up are several chunks */
    uint32_t first_chunk[TOPOLOGY_MAX_NODES + 1]; /* of each memory node */
    const struct activations *input;              /* of the current call */
    struct numa_split split;                      /* of its layer's experts */
    struct gating gating;
};

/* y[i * y_stride + r] (+)= (W x_i)[r] for the rows r of some tile rows, and the rows of `in`, from
 * 0. rows_of[i]: the batch's row, which decides the group; NULL: it is i. */
void exec_multiply_part(struct exec *x, unsigned thread, const struct matrix *m,
                        uint32_t tile_first, uint32_t tile_count, const struct exec_rows *in,
                        const uint32_t *rows_of, float *y, size_t y_stride, bool accumulate);

/* Cuts the tile rows of some products into chunks for n_threads threads. The first chunks are long,
 * because to begin a stream of reads costs as much as 40 KB of it. Later chunks become shorter, so
 * that the threads finish together. */
struct exec_cutting {
    uint64_t left;   /* remaining tile rows times tokens */
    unsigned shares; /* a chunk is 1 / shares of the remaining work */
    uint32_t fair;   /* an equal share of the tile rows for each thread */
};
struct exec_cutting exec_cut_begin(unsigned n_threads, uint64_t tiles, uint64_t tiles_by_tokens);
/* Adds the chunks of tile rows [first, end) of one of the products to those of the current call. */
void exec_cut_product(struct exec *x, struct exec_cutting *c, uint32_t product,
                      const struct matrix *m, uint32_t first, uint32_t end, uint32_t n_tokens);

/* Cuts the gate and up matrices, or the down matrices, of the parts into chunks by their memory
 * nodes. */
void exec_cut_experts(struct exec *x, bool down);

#endif
