/* The dense weights of a model as the forward pass uses them: pointers into the host pool. */
#ifndef MOED_WORKER_WEIGHTS_H
#define MOED_WORKER_WEIGHTS_H

#include "base/error.h"
#include "model/pool_map.h"

struct layer_weights {
    const float *attn_norm, *ffn_norm;
    const float *q_norm, *k_norm; /* NULL: none */
    struct matrix q, k, v, o;
    const float *q_bias, *k_bias, *v_bias; /* NULL: none */
    struct matrix router;                  /* [n_experts][d_model] */
    struct matrix shared_gate, shared_up, shared_down; /* tiles NULL: no shared expert */
    struct matrix shared_gate_input;                   /* one row; tiles NULL: none */
    struct matrix dense_gate, dense_up, dense_down; /* of a layer without experts, which has none of the above */
};

struct model_weights {
    struct matrix embedding, output;
    const float *output_norm;
    const float *rope_factors; /* [rope_dims / 2], frequencies are divided by them; NULL: none */
    struct layer_weights *layers; /* owned */
};

/* ERROR_PROTOCOL names a tensor that the pool lacks or holds in another shape. */
enum error_code weights_bind(const struct pool_map *map, struct model_weights *out,
                             struct error *e);
void weights_free(struct model_weights *w);

/* True where products with this matrix need quantised activations. */
bool weights_quantize(const struct matrix *m);

#endif
