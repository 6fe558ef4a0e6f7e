/* The dense weights of a model, as the forward pass uses them: pointers into the host pool, or into
 * a device's copy of it. */
#ifndef MOED_WORKER_FORWARD_WEIGHTS_H
#define MOED_WORKER_FORWARD_WEIGHTS_H

#include "base/error.h"
#include "model/pool_map.h"

/* One matrix for each head, of equal shape, contiguous. */
struct head_matrices {
    struct matrix first;
    size_t bytes; /* from one to the next */
    uint32_t n;
};

struct norm_weights {
    const float *weight, *bias; /* bias NULL: an RMS norm, unless */
    bool centred;               /* a layer norm without biases */
};

struct layer_weights {
    struct norm_weights attn_norm, ffn_norm;
    /* Of what is added to x (architecture.post_norms); weight NULL: none. */
    struct norm_weights attn_post_norm, ffn_post_norm;
    float output_scale;           /* then multiplies x */
    const float *q_norm, *k_norm; /* NULL: none */
    struct matrix q, k, v, o;     /* latent attention: q where it is not compressed; no k, no v;
                                     v with tiles NULL: the values are k before its norm */
    const float *q_bias, *k_bias, *v_bias, *o_bias; /* NULL: none */
    const float *sinks;                             /* [n_heads]; NULL: none */
    struct matrix output_gate; /* a row for each head or for each value; tiles NULL: none */
    /* Latent attention. */
    struct matrix q_a, q_b; /* tiles NULL: q is not compressed */
    const float *q_a_norm, *kv_a_norm;
    struct matrix kv_a;       /* to the compressed row and the key's rotated part */
    struct head_matrices k_b; /* [kv_rank][q_dim - rope dims] */
    struct head_matrices v_b; /* [o_dim][kv_rank] */
    /* Linear attention, which has an output matrix (ssm_out) in o and none of the above. */
    struct delta_weights {
        struct matrix qkv, z;      /* tiles NULL: `in` */
        struct matrix in;          /* of each key head: q, k, its value heads' v, then their z */
        struct matrix beta, alpha; /* [v_heads][d_model]; tiles NULL: `ba` */
        struct matrix ba;          /* of each key head: its value heads' beta, then alpha */
        const float *conv;         /* [channels][taps] */
        const float *dt, *a;       /* [v_heads] */
        const float *norm;         /* [v_dim] */
    } delta;
    /* Mamba2, before any attention of the layer. */
    struct mamba2_weights {
        struct norm_weights input_norm;
        struct matrix z, xbc, dt;        /* to z; x, B and C; a value for each head */
        const float *conv, *conv_bias;   /* [channels][taps], [channels] */
        const float *dt_bias, *a, *skip; /* [v_heads] */
        const float *norm;               /* [k_heads][values of a group] */
        struct matrix out;
    } mamba2;
    /* A short convolution, which has an output matrix in o, too. */
    struct {
        struct matrix in;  /* to b, c and x, of d_model each */
        const float *taps; /* [d_model][delta.taps] */
    } convolution;
    /* FFN. */
    struct matrix router;                      /* [n_experts][d_model] */
    struct matrix prediction_router;           /* only for predictions: router, or a copy of it in
                                                  fewer bits (prediction_routers.h) */
    const float *router_bias, *selection_bias; /* [n_experts]; NULL: none */
    const float *router_scale;                 /* [d_model]: architecture.router_norm; NULL: none */
    const float *expert_scales;                /* [n_experts]; NULL: none */
    const float *down_bias;                    /* [n_experts][d_model]; NULL: none */
    struct matrix shared_gate, shared_up, shared_down; /* tiles NULL: no shared expert; gate: none
                                                          where the activation takes none */
    struct matrix shared_gate_input;                   /* one row; tiles NULL: none */
    /* Of the shared expert's input and output, and of the routed experts' sum; weight NULL: none */
    struct norm_weights shared_norm, shared_post_norm, experts_post_norm;
    struct matrix dense_gate, dense_up,
        dense_down; /* of a layer without experts, which has none of the above */
};

struct model_weights {
    struct matrix embedding, output;
    struct norm_weights output_norm;
    const float *output_bias; /* [vocab]; NULL: none */
    /* in host memory: [rope dims / 2], divisors of the frequencies; NULL: none */
    const float *rope_factors;
    const float *rope_long_factors; /* used instead where rope_uses_long; NULL: none */
    struct layer_weights *layers;   /* owned */
    uint8_t *prediction_tiles;      /* of prediction_router; owned; NULL: it is router */
};

/* base: the address of the pool's first byte where the weights are computed with: map->base in host
 * memory; on a device the address that the byte would have. ERROR_PROTOCOL: the pool lacks a tensor
 * or has it in another shape; the text names it. */
enum error_code weights_bind(const struct pool_map *map, const uint8_t *base,
                             struct model_weights *out, struct error *e);
void weights_free(struct model_weights *w);

/* True: products with this matrix need quantised activations. */
bool weights_quantize(const struct matrix *m);
/* True: the products of all layers are those of the definition whatever the batch: the host's
 * (exec/exec.h), and with `device` those of experts on a CUDA device. Dense products there are not
 * considered. */
bool weights_all_defined(const struct model_weights *w, const struct pool_map *map, bool device);

#endif
