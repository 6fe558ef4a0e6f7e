/* The dense part of the forward pass, as operations: computed by this process's threads
 * (dense_host.c) or by a CUDA device (dense_cuda.c). forward.c calls them; a `struct dense` owns
 * the KV cache.
 *
 * Values are rows of floats, one row for each token of the batch, contiguous, in memory from
 * `allocate`. The weights lie on the same device as these values. Operations are asynchronous and
 * happen in order: to read values on the host, call fetch and wait.
 *
 * Both implementations give the same bits, which kernels/kernels.h defines. The exception is BLAS,
 * the host's (exec/exec.h) or the device's (multiply_many of device/module.h), and only in batches
 * whose rows are all one request's.
 *
 * Threads: only the engine's. */
#ifndef MOED_WORKER_FORWARD_DENSE_H
#define MOED_WORKER_FORWARD_DENSE_H

#include "base/error.h"
#include "batch.h"
#include "device/module.h"
#include "exec/exec.h"
#include "model/kv_layout.h"
#include "weights.h"
#include "worker/links/mirrored_values.h"

struct cuda_device;
struct dense;
struct device_choice;
struct device_shared;
struct experts;

/* The epsilon of the norms inside latent attention, whatever the model's other norms have: the
 * default of the original implementation, which no file states. */
#define LATENT_NORM_EPS 1e-6f

/* Use of a KV cache in device memory; all 0 where the cache is in host memory. */
struct dense_kv_use {
    uint64_t bytes;                      /* allocated, or allowed if that is more */
    uint32_t pages_reserved, pages_free; /* free: may be put now */
    uint32_t pages_most;                 /* with all slots released */
    bool lacks_memory;                   /* of the device; kv_resize tries again */
};

/* Where a slot has a page: the index of its positions in the context, and the group. */
struct kv_place {
    uint32_t index, group;
};

/* Products with one input that are computed together: at most so many. */
enum { DENSE_PRODUCTS = 4 };

/* A product of some with one input: y [n][m->rows] (+)= W x, then plus bias. */
struct dense_product {
    const struct matrix *m;
    float *y;
    bool accumulate;
    const float *bias; /* NULL: none */
    bool defined;      /* never through BLAS, which rounds otherwise */
};

#define DELTA_L2_EPS 1e-6f /* of q and k; of the original implementation, no file states it */

/* The products that a gated DeltaNet layer begins with, of a batch. */
struct delta_inputs {
    float *qkv;     /* [n][channels] */
    const float *z; /* [n][v_heads * v_dim] */
    /* [n][v_heads], before their sigmoid and softplus; where the model has both in one
     * (delta_weights.ba), beta has those and alpha is NULL */
    const float *beta, *alpha;
};

/* The products that Mamba2 begins with, of a batch. */
struct mamba2_inputs {
    float *xbc;      /* [n][channels] */
    const float *z;  /* [n][v_heads * v_dim] */
    const float *dt; /* [n][v_heads], before its bias and softplus */
};

/* A layer's gate: model/router.h. */
struct dense_gate {
    const struct layer_weights *w; /* its biases and factors */
    const struct matrix *router;   /* w's router or prediction_router */
    const void *in;                /* prepared */
    float *logits;                 /* [n][n_experts]: as router_select leaves them */
    uint32_t *selected;            /* [n][n_used] */
    float *weights;                /* [n][n_used] */
    float *shared_by; /* [n] = w's shared_gate_input of the same input; NULL: not wanted */
    /* A device makes the table of the experts' work of it (device/module.h); NULL: the host plans
     */
    const struct device_choice *choice;
};

/* What of a layer a graph holds. */
enum dense_graph {
    DENSE_GRAPH_WHOLE, /* all of it, or of several layers in a row */
    DENSE_GRAPH_FRONT, /* what comes before the host's plan */
};

struct dense_ops {
    void (*free)(struct dense *d);

    /* Zeroed memory that lives as long as d. NULL, false: there is no memory left. */
    void *(*allocate)(struct dense *d, size_t bytes);
    bool (*allocate_shared)(struct dense *d, size_t bytes, struct mirrored_values *out);
    /* Copies the first bytes of v to host memory; they are there after the next wait. */
    void (*fetch)(struct dense *d, const struct mirrored_values *v, size_t bytes);
    /* Waits until everything is done. An error: the device is lost to this process. */
    enum error_code (*wait)(struct dense *d, struct error *e);
    /* Copies host memory, which may change afterwards, to where d computes: at most a batch's rows
     * of d_model floats. The result is valid for operations that are called before the next wait or
     * bring. */
    const void *(*bring)(struct dense *d, const void *host, size_t bytes);

    /* Sets the batch of the operations that follow. cos_sin [n][2][rope dims / 2], then the same of
     * the windowed rope, where the model has one; in host memory. The caller keeps all until the
     * last of these operations is done. groups: as in batch_kind. */
    void (*begin)(struct dense *d, const struct batch_token *batch, uint32_t n,
                  const float *cos_sin, const struct row_groups *groups);
    /* All layers have computed the batch. Without this call the states of its slots' requests are
     * of no use (save_state). NULL: nothing to do. */
    void (*end)(struct dense *d);

    /* The KV cache, between batches: pages of KV_PAGE positions of a group of layers in host
     * memory, of kv.page_bytes each, which the caller owns. A slot's pages of a group are put in
     * order, those of group 0 from index 0 on, each before the first of its positions is in a
     * batch; its first `filled` positions are valid. On a device the page is copied there. False:
     * the device has no page free. A page that is put where there is one already has that one's
     * content. */
    bool (*put_page)(struct dense *d, uint32_t slot, struct kv_place place, uint8_t *page,
                     uint32_t filled);
    /* Copies a page that was put back to host memory; it is there after the next wait. */
    void (*save_page)(struct dense *d, uint32_t slot, struct kv_place place);
    /* The slot's pages of the groups after 0 are those of the indices [first, end) now: the ones
     * before serve indices that have none yet, and are released where there are more. */
    void (*pass_pages)(struct dense *d, uint32_t slot, uint32_t first, uint32_t end);
    void (*release_slot)(struct dense *d, uint32_t slot);
    /* Sets how much of the device's memory the cache may have. Pages that were put stay, so a
     * smaller cache reaches its size as slots are released. No effect where the cache is in host
     * memory. */
    void (*kv_resize)(struct dense *d, uint64_t bytes);
    struct dense_kv_use (*kv_use)(const struct dense *d);

    /* out [n][m->cols]: each token's row of m. */
    void (*embed)(struct dense *d, const struct matrix *m, float *out);
    /* [n][width], each row through the norm; out may be x. */
    void (*norm)(struct dense *d, const float *x, const struct norm_weights *w, float eps,
                 uint32_t width, float *out);
    /* rows [n][width] = (rows + the norm of x) * by; x is scratch. */
    void (*norm_add)(struct dense *d, float *x, const struct norm_weights *w, float eps,
                     uint32_t width, float by, float *rows);
    /* Makes x [n][cols] an input of multiply. Valid until the next call with this slot (of
     * EXEC_SLOTS). */
    const void *(*prepare)(struct dense *d, unsigned slot, const float *x, uint32_t cols,
                           bool quantize);
    /* prepare's result, where the values have been prepared already, as by a graph. */
    const void *(*prepared)(struct dense *d, unsigned slot, const float *x, uint32_t cols,
                            bool quantize);
    /* norm, then prepare of its result. */
    const void *(*norm_prepare)(struct dense *d, unsigned slot, const float *x,
                                const struct norm_weights *w, float eps, uint32_t width, float *out,
                                bool quantize);
    /* y [n][m->rows] (+)= W x. */
    void (*multiply)(struct dense *d, const struct matrix *m, const void *input, float *y,
                     bool accumulate);
    /* Several products with this input. */
    void (*multiply_several)(struct dense *d, const struct dense_product *products, unsigned n,
                             const void *input);
    /* h [n][up->rows] = act(gate x) * (up x), prepared in a slot that input is not in; h need not
     * be written where it is quantised. up_values: scratch, as h. gate->tiles may be NULL where the
     * activation takes none, and no device computes those. */
    const void *(*multiply_gated)(struct dense *d, unsigned slot, struct gating g,
                                  const struct matrix *gate, const struct matrix *up,
                                  const void *input, float *h, float *up_values, bool quantize);
    /* Multiplies each head's matrix by that head's part of each row: in [n][n_heads][in_head], of
     * which the first cols count; out [n][n_heads][out_head], of which the first rows are written.
     */
    void (*multiply_heads)(struct dense *d, const struct head_matrices *m, const float *in,
                           uint32_t in_head, float *out, uint32_t out_head);
    /* Norms (where the model does) and rotates q and k, and writes k and v into the cache. Values
     * that have a norm, or come from k, are made in v. */
    void (*place_heads)(struct dense *d, uint32_t layer, const struct layer_weights *w, float *q,
                        float *k, float *v);
    /* Latent attention. Norms the compressed row, rotates the key's own part in it, and writes the
     * row into the cache. Scales q by its position (params_query_scale). Copies each query's rotary
     * part from q [n][n_heads][q_dim] into absorbed
     * [n][n_heads][k_dim], and rotates it there. */
    void (*place_latent)(struct dense *d, uint32_t layer, const struct layer_weights *w, float *row,
                         float *q, float *absorbed);
    /* Attention of all heads of all rows, over the positions up to each row's own, within the
     * layer's window. q [n][n_heads][k_dim], out [n][n_heads][v_dim]; sinks [n_heads] or NULL. */
    void (*attend)(struct dense *d, uint32_t layer, const float *q, const float *sinks, float *out);
    /* attend, then out *= sigmoid(gate), which may be NULL, then prepare of out. */
    const void *(*attend_prepare)(struct dense *d, unsigned slot, uint32_t layer, const float *q,
                                  const float *sinks, const float *gate, float *out, bool quantize);
    /* Separates each head's query and gate, both [n][n_heads][k_dim], from both
     * [n][n_heads][2][k_dim]. */
    void (*split_gate)(struct dense *d, uint32_t layer, const float *both, float *q, float *gate);
    /* rows [n][n_gates][width] *= act(gate [n][n_gates]), by ACTIVATION_SIGMOID or
     * ACTIVATION_SOFTPLUS; may overwrite gate. */
    void (*gate_parts)(struct dense *d, struct gating g, float *gate, float *rows, uint32_t n_gates,
                       uint32_t width);
    /* Separates x [n][channels + v_heads * v_dim], which is in the order of delta_weights.in, into
     * qkv [n][channels] and z [n][v_heads * v_dim]. */
    void (*split_delta)(struct dense *d, const float *x, float *qkv, float *z);
    /* Gated DeltaNet of all heads of all rows: convolves qkv [n][channels], which may change, norms
     * q and k, and steps each request's state from its rows in order. out [n][v_heads * v_dim] =
     * the heads' outputs, normed and gated by silu(z), then prepared. A slot's rows are adjacent;
     * its state begins at 0 with position 0. */
    const void *(*delta_prepare)(struct dense *d, unsigned slot, uint32_t layer,
                                 const struct layer_weights *w, const struct delta_inputs *in,
                                 float *out, bool quantize);
    /* The same of Mamba2: convolves xbc, which may change. out = the heads' outputs, gated by
     * silu(z) and normed by groups, then prepared. NULL: no
     * architecture of this dense part has it. */
    const void *(*mamba2_prepare)(struct dense *d, unsigned slot, uint32_t layer,
                                  const struct layer_weights *w, const struct mamba2_inputs *in,
                                  float *out, bool quantize);
    /* Short convolution: in [n][3][d_model] is b, c and x; out [n][d_model] = c * the convolution
     * of b * x. Steps the states as delta_prepare does. */
    void (*short_convolution)(struct dense *d, uint32_t layer, const struct layer_weights *w,
                              const float *in, float *out);
    /* Copy a slot's state of all recurrent layers, params_state_bytes, between batches. `position`
     * is the next one. save, false: the state is that of another position, after a batch that
     * failed. NULL: the model has no such layers. */
    bool (*save_state)(struct dense *d, uint32_t slot, uint32_t position, void *state);
    void (*load_state)(struct dense *d, uint32_t slot, const void *state, uint32_t position);

    /* rows [n][width] *= by. */
    void (*scale)(struct dense *d, float by, float *rows, uint32_t width);
    /* On a device: to [n][width] = rows [n][width], unless a device-only layer has missed an
     * expert. */
    void (*copy_rows)(struct dense *d, const float *rows, float *to, uint32_t width);
    /* rows [n][width] = 0. */
    void (*clear)(struct dense *d, float *rows, uint32_t width);
    /* The products never go through BLAS: its rounding would change which experts are chosen. */
    void (*gate)(struct dense *d, const struct dense_gate *g);
    /* On a device: the shared expert of a layer, for device_only_queue, with its result in out
     * [n][d_model]; h and up_values as in multiply_gated. */
    void (*shared)(struct dense *d, unsigned slot, struct gating g, const struct layer_weights *w,
                   float *h, float *up_values, float *out, struct device_shared *shared);
    /* The operations of layers [layer, layer + n_layers) as a graph. The calls between again and
     * keep depend only on the layers, the number of rows and the reach of positions, and use the
     * same memory each time.
     *
     * again: true: the operations, kept for a batch like this one, are queued; the caller makes no
     * calls. keep: false: the calls were lost; make them once more. */
    bool (*again)(struct dense *d, enum dense_graph kind, uint32_t layer, uint32_t n_layers);
    bool (*keep)(struct dense *d);
    /* x += sum over ranks of weight * (the expert's row, then its down_bias), in order of rank,
     * plus shared [n][d_model] * sigmoid(shared_by [n]); either may be NULL. The rows are the
     * result of experts_finish. shared may change. */
    void (*combine)(struct dense *d, const struct experts *experts, const float *down_bias,
                    const float *weights, const uint32_t *selected, float *shared,
                    const float *shared_by, float *x);
    /* logits [n][m->rows], in host memory = the output head of hidden [n][m->cols]; n is of these
     * rows, not of the batch; bulk: they are a group. Waits; errors as wait. */
    enum error_code (*logits)(struct dense *d, const struct matrix *m, const float *bias,
                              const float *hidden, uint32_t n, bool bulk, float *logits,
                              struct error *e);
    /* As logits, but only the k largest values of each row and their places, [n][k] each, largest
     * first, of equal values the lower place first; NaN counts as the least. k is at most
     * DEVICE_LARGEST, and at most the vocabulary. NULL: whole rows cost no more. */
    enum error_code (*largest)(struct dense *d, const struct matrix *m, const float *bias,
                               const float *hidden, uint32_t n, uint32_t k, float *values,
                               uint32_t *places, struct error *e);
};

/* The first member of each kind's own struct. */
struct dense {
    const struct dense_ops *ops;
    const struct model_params *params;
    uint32_t max_tokens; /* of a batch */
    bool rounds;         /* in groups, products of weights of any type may round otherwise */
    struct kv_layout kv; /* of the pages of the KV cache */
    /* the batch under way */
    const struct batch_token *batch;
    uint32_t n;
};

struct dense_options {
    const struct pool_map *map;
    uint32_t max_tokens;
    enum tensor_type kv_type;
    uint32_t n_slots, context; /* of the KV cache */
    uint32_t kv_requests;      /* on a device: how many requests of a whole context it holds */
    uint64_t kv_bytes;         /* on a device: as kv_resize, at first */
    bool blas; /* on a device: products may go through BLAS, in large batches of one request */
};

/* Borrows exec. */
enum error_code dense_host_new(const struct dense_options *options, struct exec *exec,
                               struct dense **out, struct error *e);
/* Borrows cuda. ERROR_UNSUPPORTED: the device has no KV cache of this kind; ERROR_MEMORY: the
 * device has not enough memory. */
enum error_code dense_cuda_new(const struct dense_options *options, struct cuda_device *cuda,
                               struct dense **out, struct error *e);
static inline void dense_free(struct dense *d) /* takes NULL */
{
    if (d)
        d->ops->free(d);
}

#endif
