/* Running matrix products and experts on the threads of one process.
 *
 * Results are those of kernels.h's definition for every token, whatever the number of threads and the batch,
 * with one exception: where blas is set, products of BLAS_MIN_TOKENS tokens and more with float weights go
 * through OpenBLAS (quick, but rounded in its own order), and of BF16_MIN_TOKENS and more with BF16 weights through kernels/bf16.h
 * where the CPU has that (quicker, and the tokens' values are rounded to BF16).
 *
 * One thread uses a struct exec at a time.
 */
#ifndef MOED_EXEC_EXEC_H
#define MOED_EXEC_EXEC_H

#include "base/error.h"
#include "exec/pool.h"
#include "kernels/kernels.h"
#include "model/pool_map.h"

#include <stdatomic.h>

#define BLAS_MIN_TOKENS 32
#define BF16_MIN_TOKENS 8

struct exec;

/* Limits are those of the largest call, so that nothing is allocated later. max_rows: token rows of all
 * tasks of one exec_experts call together. */
struct exec_limits {
    uint32_t max_tokens;
    uint32_t max_cols; /* of any matrix */
    uint32_t max_task_rows;
    uint32_t max_width; /* d_expert */
};
/* Borrows pool. */
enum error_code exec_new(struct pool *pool, const struct exec_limits *limits, bool blas,
                         struct exec **out, struct error *e);
void exec_free(struct exec *x); /* takes NULL */
/* For the calls that follow: false where tokens of several requests are batched, so that one's result does not
 * depend on the others. Without effect where blas was not set. At first allowed. */
void exec_allow_blas(struct exec *x, bool allow);
struct pool *exec_pool(const struct exec *x);
/* Bumped by the threads as chunks finish, for a watcher in another process to see progress. NULL: none. */
void exec_set_progress(struct exec *x, _Atomic uint64_t *progress);

/* Activations of n_tokens rows x[t * stride], cols values each, quantised where `type` needs it. The memory
 * is the exec's own, one of EXEC_SLOTS (a slot is reused by the next call with the same slot number). */
enum { EXEC_SLOTS = 3 };
const struct activations *exec_prepare(struct exec *x, unsigned slot, const float *values,
                                       size_t stride, uint32_t n_tokens, uint32_t cols,
                                       bool quantize);
bool exec_quantizes(enum tensor_type type);
bool exec_experts_quantize(const struct pool_slabs *slabs); /* a layer's experts: gate or up does */

/* y[t * y_stride + r] (+)= (W x_t)[r] for all tokens of a. */
void exec_multiply(struct exec *x, const struct matrix *m, const struct activations *a, float *y,
                   size_t y_stride, bool accumulate);

/* Several matrices times the same inputs, which the threads share as one piece of work. */
struct exec_product {
    const struct matrix *m;
    float *y; /* [n_tokens][y_stride] */
    size_t y_stride;
    bool accumulate;
};
void exec_multiply_several(struct exec *x, const struct exec_product *products, unsigned n,
                           const struct activations *a);

/* As exec_multiply, and float inputs are as they are: not through kernels/bf16.h. */
void exec_multiply_unrounded(struct exec *x, const struct matrix *m, const struct activations *a,
                             float *y, size_t y_stride, bool accumulate);

/* One expert's segments [first_segment, first_segment + n_segments) for some tokens. Segment s gives token tokens[i]
 * the row down_s(act(gate_s x, up_s x)); out gets their sum in order of the segments, or each apart:
 *   SUM       out[i] = (row_first + row_first+1) + ...
 *   CONTINUE  out[i] = ((out[i] + row_first) + row_first+1) + ..., the sum of the segments before being there
 *   APART     out[s * n_tokens + i] = row_first+s
 * so that a sum that was begun in one place can be finished in another with the same bits. down's bias is not in
 * it: it belongs to the whole expert. */
enum expert_output { EXPERT_SUM, EXPERT_CONTINUE, EXPERT_APART };

struct expert_task {
    uint32_t expert;
    uint32_t first_segment, n_segments;
    uint32_t n_tokens;
    const uint32_t *tokens; /* indices into the activations */
    float *out;             /* [n_tokens][d_model]; APART: [n_segments][n_tokens][d_model] */
    enum expert_output output;
    const uint8_t *const *places; /* [n_segments]: where each lies; NULL: */
    const uint8_t *slab;          /* where the whole expert lies; NULL: in the host pool */
};
void exec_experts(struct exec *x, const struct pool_map *map, uint32_t layer,
                  const struct activations *a, const struct expert_task *tasks, uint32_t n_tasks);

/* work over chunks, for the caller's own loops. */
void exec_each(struct exec *x, pool_work *work, void *arg, uint32_t n_chunks);

#endif
