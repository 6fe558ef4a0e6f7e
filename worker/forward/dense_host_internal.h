/* What the files of the dense part on this process's threads share: dense_host.c, which has the
 * table, stands on dense_host_attention.c. */
#ifndef MOED_WORKER_FORWARD_DENSE_HOST_INTERNAL_H
#define MOED_WORKER_FORWARD_DENSE_HOST_INTERNAL_H

#include "dense.h"
#include "exec/attention.h"
#include "kv_cache.h"

enum { DENSE_HOST_BUFFERS = 64 };

struct dense_host {
    struct dense base;
    struct exec *exec;
    const struct kernels *kernels;
    struct kv_cache kv;
    struct attention *attention;
    struct delta_states *states;    /* NULL: the model has no recurrent layers */
    struct attention_shape *shapes; /* [n_layers] */
    struct attention_row *rows;     /* [max_tokens] */
    const float *cos_sin;           /* of the batch */
    unsigned n_threads;
    const void *prepared[EXEC_SLOTS];
    float *sums;              /* [threads][d_model]: combine's */
    const float *zeros;       /* [d_model]: biases of norms that have none */
    void **heads_activations; /* [threads]: multiply_heads' */
    void *buffers[DENSE_HOST_BUFFERS];
    unsigned n_buffers;
};

static inline struct dense_host *dense_host_of(struct dense *d)
{
    return (struct dense_host *)d;
}

/* Calls work(job, thread, row) for each row of the batch, on the pool's threads where `share`. */
static inline void dense_host_share_rows(struct dense_host *h, pool_work *work, void *job,
                                         bool share)
{
    if (share)
        exec_each(h->exec, work, job, h->base.n);
    else
        for (uint32_t t = 0; t < h->base.n; t++)
            work(job, 0, t);
}

/* For work of many operations a float: for fewer rows the calling thread alone is faster. */
static inline void dense_host_each_row(struct dense_host *h, pool_work *work, void *job)
{
    enum { SHARED_ROWS = 4 };
    dense_host_share_rows(h, work, job, h->base.n >= SHARED_ROWS);
}

/* h->kv is made already. */
enum error_code dense_host_make_attention(struct dense_host *h, struct error *e);

/* The states of the recurrent layers, where the model has some. */
enum error_code dense_host_make_states(struct dense_host *h, uint32_t n_slots, struct error *e);
void dense_host_free_states(struct dense_host *h); /* before h's buffers */

/* Of dense_ops. */
void dense_host_split_gate(struct dense *d, uint32_t layer, const float *both, float *q,
                           float *gate);
void dense_host_gate_by_sigmoid(struct dense *d, const float *gate, float *rows, uint32_t width);
void dense_host_gate_parts(struct dense *d, struct gating g, float *gate, float *rows,
                           uint32_t n_gates, uint32_t width);
void dense_host_split_delta(struct dense *d, const float *x, float *qkv, float *z);
/* Without `prepare`. */
void dense_host_delta(struct dense *d, uint32_t layer, const struct layer_weights *w,
                      const struct delta_inputs *in, float *out);
void dense_host_mamba2(struct dense *d, uint32_t layer, const struct layer_weights *w,
                       const struct mamba2_inputs *in, float *out);
void dense_host_short_convolution(struct dense *d, uint32_t layer, const struct layer_weights *w,
                                  const float *in, float *out);
bool dense_host_save_state(struct dense *d, uint32_t slot, uint32_t position, void *state);
void dense_host_load_state(struct dense *d, uint32_t slot, const void *state, uint32_t position);

void dense_host_place_heads(struct dense *d, uint32_t layer, const struct layer_weights *w,
                            float *q, float *k, float *v);
void dense_host_place_latent(struct dense *d, uint32_t layer, const struct layer_weights *w,
                             float *row, float *q, float *absorbed);
void dense_host_attend(struct dense *d, uint32_t layer, const float *q, const float *sinks,
                       float *out);

#endif
