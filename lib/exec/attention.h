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

/* The heads of a layer, and how they lie in a page. */
struct attention_shape {
    enum tensor_type type;        /* of the cache: F32, F16, Q8_0 */
    uint32_t n_heads, n_kv_heads; /* n_heads is a multiple of n_kv_heads; query head h reads KV
                                     head h / (n_heads / n_kv_heads) */
    uint32_t k_dim, v_dim;
    float scale;
    size_t key_stride, value_stride; /* in bytes, from one position to the next */
    size_t values_offset;            /* in bytes, from a KV head's keys in a page to its values */
    size_t head_stride;  /* in bytes, from one KV head's keys in a page to the next head's */
    size_t layer_offset; /* in bytes, of the keys of KV head 0 in a page */
};

/* A row of a batch: the pages of its request (struct kv_head), and the positions [first, end) that
 * it attends to. Rows of one request have the same `pages`; adjacent ones are computed together. */
struct attention_row {
    const uint8_t *const *pages;
    uint32_t first, end;
};

/* Borrows pool. max_heads, max_k_dim, max_v_dim: of all shapes. */
enum error_code attention_new(struct pool *pool, uint32_t max_heads, uint32_t max_k_dim,
                              uint32_t max_v_dim, uint32_t max_rows, struct attention **out,
                              struct error *e);
void attention_free(struct attention *a); /* takes NULL */

/* q [n_rows][n_heads][k_dim], out [n_rows][n_heads][v_dim]; sinks [n_heads] or NULL. */
void attention_run(struct attention *a, const struct attention_shape *shape,
                   const struct attention_row *rows, uint32_t n_rows, const float *q,
                   const float *sinks, float *out);

#endif
