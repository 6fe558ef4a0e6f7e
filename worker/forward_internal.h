/* What forward.c, attention.c and attention_latent.c share: the scratch of one batch. */
#ifndef MOED_WORKER_FORWARD_INTERNAL_H
#define MOED_WORKER_FORWARD_INTERNAL_H

#include "forward.h"

#include "exec/attention.h"

struct forward {
    const struct pool_map *map;
    const struct model_params *params;
    const struct model_weights *weights;
    struct kv_cache *kv;
    struct exec *exec;
    struct experts *experts;
    const struct kernels *kernels;
    struct attention *attention;
    uint32_t max_tokens;
    double *rope_frequency; /* [rope dims / 2] */
    /* the batch under way */
    const struct batch_token *batch;
    uint32_t n;
    bool one_request;
    bool recorded;                                  /* some row has a recording */
    struct predict_token shown[PREDICT_MAX_TOKENS]; /* whose rows they are */
    /* scratch, rows are tokens of the batch */
    float *x;                 /* [n][d_model]: the residual stream */
    float *h;                 /* [n][d_model]: normed */
    float *q;                 /* [n][n_heads][q_dim] */
    float *k, *v;             /* [n][n_kv_heads][k_dim or v_dim]; latent: k alone */
    float *attended;          /* [n][n_heads][o_dim] */
    struct attention_row *rows; /* [n]: what each attends to, in the layer under way */
    float *rope;              /* [n][rope dims / 2][2] */
    float *router;            /* [n][n_experts] */
    uint32_t *selected;       /* [n][n_used] */
    uint32_t *guessed;        /* [n][n_used]: of a layer to come */
    float *guessed_weights;   /* [n][n_used]: nobody asks for them */
    float *weights_of;        /* [n][n_used] */
    float *ffn_gate, *ffn_up; /* [n][the wider of d_shared and d_dense] */
    float *shared_out;        /* [n][d_model] */
    float *shared_scale;      /* [n] */
    struct latent_scratch {
        float *q_low;       /* [n][q_rank] */
        float *absorbed;    /* [n][n_heads][k_dim]: q as the cached rows see it */
        float *context;     /* [n][n_heads][kv_rank]: the sum of cached rows */
        void **activations; /* [threads] of a head's input */
    } latent;
};

/* h (normed) through layer's attention, added to x; the batch's keys and values enter the cache. */
void forward_attention(struct forward *f, uint32_t layer);
/* Row t's keys and values of all KV heads into the cache. values NULL: they are the keys' first part. */
void forward_cache_row(struct forward *f, uint32_t layer, uint32_t t, const float *keys,
                       const float *values);
void forward_add_bias(const struct forward *f, float *rows, const float *bias, size_t n);

/* Latent attention: its scratch; h to rotated queries (latent.absorbed) and cached rows; latent.context to
 * attended. */
bool latent_allocate(struct forward *f);
void latent_free(struct forward *f);
void latent_project(struct forward *f, uint32_t layer);
void latent_expand(struct forward *f, const struct layer_weights *w);

#endif
