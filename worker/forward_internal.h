/* What forward.c and attention.c share: the scratch of one batch. */
#ifndef MOED_WORKER_FORWARD_INTERNAL_H
#define MOED_WORKER_FORWARD_INTERNAL_H

#include "forward.h"

/* Layers whose gates are asked at a time what they would choose. */
#define GUESSES_AT_ONCE 4

struct forward {
    const struct model_params *params;
    const struct model_weights *weights;
    struct dense *dense;
    const struct dense_ops *ops; /* dense's */
    struct experts *experts;
    double *rope_frequency; /* [rope dims / 2] */
    float *rope;            /* [n][rope dims / 2][2], in host memory */
    /* the batch under way */
    const struct batch_token *batch;
    uint32_t n;
    bool one_request;
    bool recorded;                                  /* some row has a recording */
    struct predict_token shown[PREDICT_MAX_TOKENS]; /* whose rows they are */
    /* scratch, where the dense part is computed; rows are tokens of the batch */
    struct dense_values x;        /* float [n][d_model]: the residual stream */
    struct dense_values h;        /* float [n][d_model]: normed */
    struct dense_values router;   /* float [n][n_experts] */
    /* uint32_t [n][n_used]: of a layer that the host waits for; and for each layer that the device runs by itself as many,
     * alone_stride apart */
    struct dense_values selected, alone;
    uint32_t alone_stride;
    struct dense_values guessed[GUESSES_AT_ONCE]; /* uint32_t [n][n_used]: of layers to come */
    struct dense_values guessed_router; /* float [n][n_experts]: of the last of them */
    float *q;                     /* [n][n_heads][q_dim] */
    float *k, *v;                 /* [n][n_kv_heads][k_dim or v_dim]; latent: k alone */
    float *attended;              /* [n][n_heads][o_dim] */
    float *guessed_weights;       /* [n][n_used], for which nobody asks */
    float *expert_weights;    /* [n][n_used] */
    float *ffn_gate, *ffn_up; /* [n][the wider of d_shared and d_dense] */
    float *shared_out;        /* [n][d_model] */
    float *shared_scale;      /* [n] */
    struct {
        float *q_low;    /* [n][q_rank] */
        float *absorbed; /* [n][n_heads][k_dim]: q as the cached rows see it */
        float *context;  /* [n][n_heads][kv_rank]: the sum of cached rows */
    } latent;
};

/* h (normed) through layer's attention, added to x; the batch's keys and values enter the cache. */
void forward_attention(struct forward *f, uint32_t layer);

#endif
