/* Attention of a batch over the KV cache, on the threads of one process.
 *
 * Queries of one KV head and one request go together, so that its keys and values are read once for all of them: a
 * group's heads, and rows of a prompt that stand next to each other. Results are those of kernels.h's definition whatever
 * goes together and on which thread.
 *
 * One thread uses a struct attention at a time.
 */
#ifndef MOED_EXEC_ATTENTION_H
#define MOED_EXEC_ATTENTION_H

#include "base/error.h"
#include "exec/pool.h"
#include "kernels/kernels.h"

struct attention;

/* What does not change from call to call. */
struct attention_shape {
    enum tensor_type type;         /* of the cache: F32, F16, Q8_0 */
    uint32_t n_heads, n_kv_heads;  /* a multiple of n_kv_heads; query head h reads KV head h / (n_heads / n_kv_heads) */
    uint32_t k_dim, v_dim;
    float scale;
    size_t key_stride, value_stride; /* in bytes, from a position to the next */
    size_t head_stride;              /* in bytes, from a KV head's keys or values to those of the next */
};

/* A row of a batch: the keys and values of KV head 0 of its request, and the positions [first, end) that it attends to.
 * Rows of one request have the same `keys`; those that stand together are computed together. */
struct attention_row {
    const void *keys, *values;
    uint32_t first, end;
};

/* Borrows pool. */
enum error_code attention_new(struct pool *pool, const struct attention_shape *shape,
                              uint32_t max_rows, struct attention **out, struct error *e);
void attention_free(struct attention *a); /* takes NULL */

/* q [n_rows][n_heads][k_dim], out [n_rows][n_heads][v_dim]; sinks [n_heads] or NULL. */
void attention_run(struct attention *a, const struct attention_row *rows, uint32_t n_rows,
                   const float *q, const float *sinks, float *out);

#endif
