/* What forward.c and attention.c share: the scratch of one batch. */
#ifndef MOED_WORKER_FORWARD_INTERNAL_H
#define MOED_WORKER_FORWARD_INTERNAL_H

#include "forward.h"

struct forward {
    const struct pool_map *map;
    const struct model_params *params;
    const struct model_weights *weights;
    struct kv_cache *kv;
    struct exec *exec;
    struct experts *experts;
    const struct kernels *kernels;
    uint32_t max_tokens;
    /* the batch under way */
    const struct batch_token *batch;
    uint32_t n;
    bool one_request;
    /* scratch, rows are tokens of the batch */
    float *x;                  /* [n][d_model]: the residual stream */
    float *h;                  /* [n][d_model]: normed */
    float *q;                  /* [n][n_heads][k_dim] */
    float *k, *v;              /* [n][n_kv_heads][dim] */
    float *attended;           /* [n][n_heads][v_dim] */
    float *scores;             /* [threads][context] */
    float *rope;               /* [n][rope_dims / 2][2] */
    float *router;             /* [n][n_experts] */
    uint32_t *selected;        /* [n][n_used] */
    float *weights_of;         /* [n][n_used] */
    float *ffn_gate, *ffn_up;  /* [n][the wider of d_shared and d_dense] */
    float *shared_out;         /* [n][d_model] */
    float *shared_scale;       /* [n] */
};

/* h (normed) through layer's attention, added to x; the batch's keys and values enter the cache. */
void forward_attention(struct forward *f, uint32_t layer);

#endif
