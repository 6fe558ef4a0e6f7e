/* Where the dense part of the forward pass is computed: by this process's threads, or by a device. forward.c says what is
 * computed, in these operations; the bits are the same (kernels/kernels.h defines them), but for BLAS: the host's (exec/exec.h)
 * and the device's (multiply_many of device/module.h), each where all rows are one request's.
 *
 * What an operation takes and gives are rows of floats, one a token of the batch, one after the other, in memory that
 * `allocate` gave; the weights lie where it computes too. Operations happen in order, perhaps after they were called: who
 * else wants to see values asks for them (fetch) and waits. It owns the KV cache.
 *
 * One thread uses it, the engine's. */
#ifndef MOED_WORKER_DENSE_H
#define MOED_WORKER_DENSE_H

#include "base/error.h"
#include "batch.h"
#include "device/module.h"
#include "exec/exec.h"
#include "weights.h"

struct cuda_device;
struct dense;
struct experts;

/* Memory that others read too. */
struct dense_values {
    void *own;  /* where the dense part is computed */
    void *host; /* in host memory, once fetched; the same where it is computed there */
};

/* The norms inside latent attention have this epsilon whatever the model's others have: the original's default, which no file
 * states. */
#define LATENT_NORM_EPS 1e-6f

/* For what is to be reserved: it is; it is not, but will when slots are released; there is never so much as things are. */
enum dense_room { ROOM_NOW, ROOM_LATER, ROOM_NEVER };

/* A KV cache in the device's memory; all 0 where it is not there. */
struct dense_kv_use {
    uint64_t bytes;                      /* that it has, or may take at any time */
    uint32_t pages_reserved, pages_free; /* free: that may be reserved now */
    uint64_t most_positions;             /* that may be reserved at all, as things are */
};

struct dense_ops {
    void (*free)(struct dense *d);

    /* As long as d. NULL: there is no memory left. */
    void *(*allocate)(struct dense *d, size_t bytes);
    bool (*allocate_shared)(struct dense *d, size_t bytes, struct dense_values *out);
    /* The first bytes of v are in host memory after the next wait. */
    void (*fetch)(struct dense *d, const struct dense_values *v, size_t bytes);
    /* Until all is done. An error: the device is lost to this process. */
    enum error_code (*wait)(struct dense *d, struct error *e);
    /* Host memory, which may change afterwards, to where it computes; valid for operations that are called before the next
     * wait or bring. At most a batch's rows of d_model floats. */
    const void *(*bring)(struct dense *d, const void *host, size_t bytes);

    /* The batch of the operations that follow. cos_sin [n][2][rope dims / 2], in host memory; both stay until the last
     * of them is done. one_request: forward_run. */
    void (*begin)(struct dense *d, const struct batch_token *batch, uint32_t n,
                  const float *cos_sin, bool one_request);

    /* The KV cache, between batches. A slot's positions have their room reserved before the first of them is in a batch: then it
     * is there until release_slot, after which what the slot holds will not be read again. */
    enum dense_room (*reserve)(struct dense *d, uint32_t slot, uint32_t positions);
    void (*release_slot)(struct dense *d, uint32_t slot);
    /* Of the device's memory it shall have at most so many bytes: what is reserved stays, so it comes down to that as slots are
     * released; and as much of them as it may use. Without effect where it is not there. */
    void (*kv_resize)(struct dense *d, uint64_t bytes);
    struct dense_kv_use (*kv_use)(const struct dense *d);

    /* out [n][m->cols]: each token's row of m. */
    void (*embed)(struct dense *d, const struct matrix *m, float *out);
    /* [n][width], each row through the norm; out may be x. */
    void (*norm)(struct dense *d, const float *x, const struct norm_weights *w, float eps,
                 uint32_t width, float *out);
    /* x [n][cols] as multiply takes it, until the next call with this slot (of EXEC_SLOTS). */
    const void *(*prepare)(struct dense *d, unsigned slot, const float *x, uint32_t cols,
                           bool quantize);
    /* y [n][m->rows] (+)= W x. */
    void (*multiply)(struct dense *d, const struct matrix *m, const void *input, float *y,
                     bool accumulate);
    /* The same of several matrices, all with this input; each y_stride is m->rows. */
    void (*multiply_several)(struct dense *d, const struct exec_product *products, unsigned n,
                             const void *input);
    /* y [n][m->rows] = W x of a router, whose operands are never rounded for speed: which experts are chosen shall not hang on it. */
    void (*multiply_router)(struct dense *d, const struct matrix *m, const void *input, float *y);
    /* Each head's matrix times that head's part of each row: in [n][n_heads][in_head], of which the first cols count; out
     * [n][n_heads][out_head], the first rows are written. */
    void (*multiply_heads)(struct dense *d, const struct head_matrices *m, const float *in,
                           uint32_t in_head, float *out, uint32_t out_head);
    /* rows [n][width] += bias, which may be NULL. */
    void (*add_bias)(struct dense *d, const float *bias, float *rows, uint32_t width);
    /* q and k normed, where the model does, and rotated; k and v into the cache. */
    void (*place_heads)(struct dense *d, uint32_t layer, const struct layer_weights *w, float *q,
                        float *k, const float *v);
    /* Latent attention: the compressed row normed and its key's own part rotated, then into the cache; each query's part
     * that is rotated, from q [n][n_heads][q_dim] into absorbed [n][n_heads][k_dim]. */
    void (*place_latent)(struct dense *d, uint32_t layer, const struct layer_weights *w, float *row,
                         const float *q, float *absorbed);
    /* All heads of all rows over the positions up to each row's own that the layer's window reaches. q [n][n_heads][k_dim], out
     * [n][n_heads][v_dim]; sinks [n_heads] or NULL. */
    void (*attend)(struct dense *d, uint32_t layer, const float *q, const float *sinks, float *out);
    /* h = act(gate) * up, all [n][width]; h may be gate. */
    void (*gated)(struct dense *d, const float *gate, const float *up, uint32_t width, float *h);
    /* rows [n][width] *= sigmoid(by [n]). */
    void (*scale_by_sigmoid)(struct dense *d, const float *by, float *rows, uint32_t width);
    /* model/router.h: logits [n][n_experts] is overwritten; selected and weights [n][n_used]. */
    void (*route)(struct dense *d, const float *selection_bias, float *logits, uint32_t *selected,
                  float *weights);
    /* The calls from here to keep are those of a layer whose operations follow from the layer, from the number of rows and from
     * how many positions they reach, with memory that stays where it is. True: they are queued, as they were kept for a batch
     * like this one; the caller makes none of them. keep: false where they were not queued and have to be called once more.
     * NULL, both: no layer may be queued so. */
    bool (*again)(struct dense *d, uint32_t layer);
    bool (*keep)(struct dense *d);
    /* x += sum over ranks of weight * (the expert's row, then its down_bias), in rank order, plus shared [n][d_model], which
     * may be NULL. The rows are those of experts_finish. */
    void (*combine)(struct dense *d, const struct experts *experts, const float *down_bias,
                    const float *weights, const uint32_t *selected, const float *shared, float *x);
    /* logits [n][m->rows], in host memory, are there when it returns: the output head of hidden [n][m->cols], n of them
     * whatever the batch is, and one_request as it says of them. As wait. */
    enum error_code (*logits)(struct dense *d, const struct matrix *m, const float *bias,
                              const float *hidden, uint32_t n, bool one_request, float *logits,
                              struct error *e);
    /* Of the same rows the k largest alone, and their places, [n][k] each, largest first, of equal ones the lower place first;
     * what is no number counts as the least. k at most DEVICE_LARGEST, and the vocabulary. NULL: whole rows cost no more. */
    enum error_code (*largest)(struct dense *d, const struct matrix *m, const float *bias, const float *hidden,
                               uint32_t n, uint32_t k, float *values, uint32_t *places, struct error *e);
};

/* The first member of each kind's. */
struct dense {
    const struct dense_ops *ops;
    const struct model_params *params;
    uint32_t max_tokens; /* of a batch */
    /* the batch under way */
    const struct batch_token *batch;
    uint32_t n;
};

struct dense_options {
    const struct pool_map *map;
    uint32_t max_tokens;
    enum tensor_type kv_type;
    uint32_t n_slots, context; /* of the KV cache */
    uint64_t kv_bytes;         /* on a device: as kv_resize, at first */
    bool blas;                 /* on a device: where all rows are one request's and there are many of them */
};

/* Borrows exec. */
enum error_code dense_host_new(const struct dense_options *options, struct exec *exec,
                               struct dense **out, struct error *e);
/* Borrows cuda. ERROR_UNSUPPORTED: a KV cache that the device has not; ERROR_MEMORY: the device has not enough. */
enum error_code dense_cuda_new(const struct dense_options *options, struct cuda_device *cuda,
                               struct dense **out, struct error *e);
void dense_free(struct dense *d); /* takes NULL */

#endif
