/* Runs matrix products and experts on the threads of one process.
 *
 * The results are those of kernels.h's definition for every token, whatever the number of threads
 * and the batch. The exception is `rounds`: with it, in each of the row groups, products of BF16
 * weights with BF16_MIN_TOKENS tokens or more use kernels/bf16.h if the CPU has the instructions,
 * which is faster and rounds the tokens' values to BF16.
 *
 * One thread uses a struct exec at a time. */
#ifndef MOED_EXEC_EXEC_H
#define MOED_EXEC_EXEC_H

#include "base/error.h"
#include "exec/pool.h"
#include "exec/row_groups.h"
#include "kernels/kernels.h"
#include "model/pool_map.h"

#include <stdatomic.h>

#define BF16_MIN_TOKENS 8

struct exec;

/* The limits of the largest call: exec_new allocates for it, later calls allocate nothing. */
struct exec_limits {
    uint32_t max_tokens;
    uint32_t max_cols;      /* of any matrix */
    uint32_t max_task_rows; /* token rows of all tasks of one exec_experts call together */
    uint32_t max_width;     /* d_expert */
};
/* Borrows pool. */
enum error_code exec_new(struct pool *pool, const struct exec_limits *limits, bool rounds,
                         struct exec **out, struct error *e);
void exec_free(struct exec *x); /* takes NULL */
/* The groups of rows that may round otherwise in the following calls; none at first. Copies them,
 * at most max_tokens. Rows of several requests are in different groups, so that one request's
 * result does not depend on the others. No effect without `rounds`. */
void exec_set_groups(struct exec *x, const struct row_groups *groups);
/* The groups that were set last; none without `rounds`. Valid until they are set again. */
struct row_groups exec_groups(const struct exec *x);
struct pool *exec_pool(const struct exec *x);
/* The threads increment *progress for each finished chunk, so that another process can watch the
 * progress. NULL: no counter. */
void exec_set_progress(struct exec *x, _Atomic uint64_t *progress);

/* Activations of n_tokens rows values[t * stride] of cols values each, quantised if `quantize`. x
 * owns the memory, one of EXEC_SLOTS slots; the next call with the same slot overwrites it. */
enum { EXEC_SLOTS = 4 };
const struct activations *exec_prepare(struct exec *x, unsigned slot, const float *values,
                                       size_t stride, uint32_t n_tokens, uint32_t cols,
                                       bool quantize);
bool exec_quantizes(enum tensor_type type);
bool exec_experts_quantize(const struct pool_slabs *slabs); /* the experts' gate or up does */

/* y[t * y_stride + r] (+)= (W x_t)[r] for all tokens of a. */
void exec_multiply(struct exec *x, const struct matrix *m, const struct activations *a, float *y,
                   size_t y_stride, bool accumulate);

/* Multiplies several matrices by the same inputs; the threads share the products as one job. */
struct exec_product {
    const struct matrix *m;
    float *y; /* [n_tokens][y_stride] */
    size_t y_stride;
    bool accumulate;
};
void exec_multiply_several(struct exec *x, const struct exec_product *products, unsigned n,
                           const struct activations *a);

/* As exec_multiply, always by the definition. For routers: which experts are chosen must not depend
 * on the batch. */
void exec_multiply_defined(struct exec *x, const struct matrix *m, const struct activations *a,
                           float *y, size_t y_stride, bool accumulate);

/* A task: one expert's segments [first_segment, first_segment + n_segments) for some tokens.
 * Segment s gives token tokens[i] the row r_s = down_s(act(gate_s x, up_s x)). With f =
 * first_segment, `out` receives
 *   EXPERT_SUM       out[i] = (r_f + r_f+1) + ...
 *   EXPERT_CONTINUE  out[i] = ((out[i] + r_f) + r_f+1) + ...: out holds the sum of earlier segments
 *   EXPERT_APART     out[s * n_tokens + i] = r_f+s
 * A sum that one side began can so be finished on another with the same bits. The bias of down is
 * not included: it belongs to the whole expert. */
enum expert_output { EXPERT_SUM, EXPERT_CONTINUE, EXPERT_APART };

struct expert_task {
    uint32_t expert;
    uint32_t first_segment, n_segments;
    uint32_t n_tokens;
    const uint32_t *tokens; /* indices into the activations */
    float *out;             /* [n_tokens][d_model]; APART: [n_segments][n_tokens][d_model] */
    enum expert_output output;
    const uint8_t *const *places; /* [n_segments]: the place of each segment; NULL: in the slab */
    const uint8_t *slab;          /* the place of the whole expert; NULL: in the host pool */
};
void exec_experts(struct exec *x, const struct pool_map *map, uint32_t layer,
                  const struct activations *a, const struct expert_task *tasks, uint32_t n_tasks);

/* Runs `work` over chunks, for the caller's own loops. */
void exec_each(struct exec *x, pool_work *work, void *arg, uint32_t n_chunks);

#endif
