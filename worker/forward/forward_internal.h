/* The scratch of one batch, and the parts of the forward pass that have files of their own. */
#ifndef MOED_WORKER_FORWARD_FORWARD_INTERNAL_H
#define MOED_WORKER_FORWARD_FORWARD_INTERNAL_H

#include "forward.h"

/* How many coming layers' gates are evaluated before the host waits for the results. */
#define PREDICTED_LAYERS_AT_ONCE 4

struct forward {
    const struct model_params *params;
    const struct model_weights *weights;
    struct dense *dense;
    const struct dense_ops *ops; /* dense's */
    struct experts *experts;
    struct heartbeat *heartbeat; /* of the thread that computes; NULL: none */
    void *rope_memory;           /* holds both */
    double *rope_frequency;      /* [rope dims / 2], then the windowed rope's, where there is one */
    float *rope; /* [n][2][rope dims / 2], then the same of the windowed rope; host */
    /* the batch under way */
    const struct batch_token *batch;
    uint32_t n;
    struct batch_kind kind;
    bool recorded;                                  /* some row has a recording */
    struct predict_token shown[PREDICT_MAX_TOKENS]; /* the request and position of each row */
    /* scratch, where the dense part is computed; rows are tokens of the batch */
    struct mirrored_values x; /* float [n][d_model]: the residual stream */
    /* What is fetched of a layer that the host plans: h, gate_in where the gate has an input of its
     * own, router and selected, in this order, so that one copy fetches all of it. */
    struct mirrored_values fetched;
    size_t fetched_bytes;               /* of the batch */
    struct mirrored_values h;           /* float [n][d_model]: normed */
    struct mirrored_values gate_in;     /* float [n][d_model]: of a layer's gate; mostly h itself */
    struct mirrored_values router;      /* float [n][n_experts] */
    struct mirrored_values selected;    /* uint32_t [n][n_used] */
    struct mirrored_values device_only; /* uint32_t [n_layers][device_only_stride]: [n][n_used] of
                                           each device-only layer */
    uint32_t device_only_stride;        /* of the batch */
    struct mirrored_values
        predicted_routing[PREDICTED_LAYERS_AT_ONCE]; /* uint32_t [n][n_used]: of coming layers */
    struct mirrored_values predicted_router;         /* float [n][n_experts]: of the last of them */
    float *q;                                        /* [n][n_heads][q_dim] */
    float *k, *v;             /* [n][n_kv_heads][k_dim or v_dim]; latent: only k */
    float *attended;          /* [n][n_heads][o_dim] */
    float *predicted_weights; /* [n][n_used], which nothing reads */
    float *expert_weights;    /* [n][n_used] */
    float *ffn_gate, *ffn_up; /* [n][the wider of d_shared and d_dense] */
    float *shared_out;        /* [n][d_model] */
    float *added;             /* [n][d_model]: what a part adds to x; NULL: no post_norms */
    float *kept; /* [n][d_model]: h of a device-only layer; NULL: no architecture.parallel */
    float *shared_scale;            /* [n] */
    float *q_and_gate, *query_gate; /* [n][n_heads][2][k_dim], [n][n_heads][k_dim]; NULL: none */
    struct {
        float *in;           /* [n][channels + values], where delta_weights has `in` */
        float *qkv, *z;      /* [n][channels], [n][values]; values: v_heads * v_dim */
        float *beta, *alpha; /* [n][2 * v_heads], [n][v_heads] */
        float *out;          /* [n][values] */
    } delta;                 /* Mamba2: qkv is x, B and C; alpha is dt */
    struct {
        float *in, *out; /* [n][3][d_model], [n][d_model] */
    } convolution;
    struct {
        float *q_low;    /* [n][q_rank] */
        float *absorbed; /* [n][n_heads][k_dim]: q as the cached rows see it */
        float *context;  /* [n][n_heads][kv_rank]: the sum of cached rows */
    } latent;
};

/* Inputs of products (dense_ops.prepare). While experts are computed their input is needed: on a
 * CUDA device it is in FORWARD_SLOT, on an emulated one in slot 1 (device_compute_emu.c). */
enum {
    FORWARD_SLOT = 0,
    FORWARD_OTHER_SLOT = 2, /* gates and shared experts with an input of their own, predictions */
    FORWARD_HIDDEN_SLOT = 3 /* between gate and up and down */
};

/* Allocates the scratch of dense->max_tokens rows (scratch.c). False: no memory; dense frees the
 * rest. */
bool forward_allocate(struct forward *f);
/* Sets where the batch of f->n rows has what is fetched. */
void forward_place_fetched(struct forward *f);

/* h = norm of x, prepared. */
static inline const void *forward_norm(struct forward *f, const struct norm_weights *w,
                                       bool quantize)
{
    return f->ops->norm_prepare(f->dense, FORWARD_SLOT, f->x.own, w, f->params->norm_eps,
                                f->params->d_model, f->h.own, quantize);
}

/* x += the layer's linear attention of the norm of x; steps the states of the batch's requests. */
void forward_delta(struct forward *f, uint32_t layer);
/* The same of Mamba2, which has a norm of its own, and of a short convolution. */
void forward_mamba2(struct forward *f, uint32_t layer);
void forward_short_convolution(struct forward *f, uint32_t layer);
/* x += the layer's attention of the norm of x; writes the batch's keys and values into the cache.
 */
void forward_attention(struct forward *f, uint32_t layer);

/* Writes the input of a gate that has a norm of its own to `out`; returns out (gate_prediction.c).
 */
const float *forward_norm_gate(struct forward *f, const struct layer_weights *w, float *out);
/* Predicts the routing of coming layers, from the inputs that the predictor gives for their gates.
 */
enum error_code forward_predict_layers(struct forward *f, const struct predict_seen *seen,
                                       struct error *e);

#endif
