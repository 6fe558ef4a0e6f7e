/* Attention of a batch over the KV cache, on the threads of one process.
 *
 * The queries of one KV head and one request (a group's heads, adjacent rows of a prompt) are
 * computed together, so that the threads read its keys and values once for all of them. The results
 * are those of kernels.h's definition, whatever the grouping and the thread.
 *
 * One thread uses a struct attention at a time. */
#ifndef MOED_EXEC_ATTENTION_H
#define MOED_EXEC_ATTENTION_H

#include "base/error.h"
#include "exec/pool.h"
#include "kernels/kernels.h"

struct attention;

/* The parameters that are the same in all calls. */
struct attention_shape {
    enum tensor_type type;        /* of the cache: F32, F16, Q8_0 */
    uint32_t n_heads, n_kv_heads; /* n_heads is a multiple of n_kv_heads; query head h reads KV
                                     head h / (n_heads / n_kv_heads) */
    uint32_t k_dim, v_dim;
    float scale;
    size_t key_stride, value_stride; /* in bytes, from one position to the next */
    size_t values_offset;            /* in bytes, from a KV head's keys in a page to its values */
    size_t head_stride; /* in bytes, from one KV head's keys in a page to the next head's */
};

/* A row of a batch: the pages of its request (struct kv_head), and the positions [first, end) that
 * it attends to. Rows of one request have the same `pages`; adjacent ones are computed together. */
struct attention_row {
    const uint8_t *const *pages;
    uint32_t first, end;
};

/* Borrows pool. */
enum error_code attention_new(struct pool *pool, const struct attention_shape *shape,
                              uint32_t max_rows, struct attention **out, struct error *e);
void attention_free(struct attention *a); /* takes NULL */

/* q [n_rows][n_heads][k_dim], out [n_rows][n_heads][v_dim]; sinks [n_heads] or NULL. layer_offset:
 * of the keys of KV head 0 in a page, in bytes. */
void attention_run(struct attention *a, const struct attention_row *rows, uint32_t n_rows,
                   size_t layer_offset, const float *q, const float *sinks, float *out);

#endif
