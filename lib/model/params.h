/* Hyper-parameters of a model, read from a GGUF file's keys and checked for sense. */
#ifndef MOED_MODEL_PARAMS_H
#define MOED_MODEL_PARAMS_H

#include "base/error.h"
#include "gguf/gguf.h"
#include "model/architecture.h"

#include <stdint.h>

struct model_params {
    const struct architecture *arch;
    char name[96]; /* general.name, sanitised; the file's name where absent */
    uint32_t n_layers;
    uint32_t d_model;
    uint32_t n_heads, n_kv_heads;
    uint32_t k_dim, v_dim; /* of a head */
    uint32_t rope_dims;    /* rotated values of a head */
    float rope_base;
    float rope_scale; /* positions are multiplied by it: 1 / factor for linear scaling */
    float rms_eps;
    uint32_t n_experts, n_used; /* routed experts a layer; activated a token */
    uint32_t d_expert;          /* an expert's intermediate width */
    uint32_t d_shared;          /* the shared expert's, 0: none */
    uint32_t n_dense;           /* leading layers without experts */
    uint32_t d_dense;           /* the width of their FFN */
    float weights_scale;        /* routed weights are multiplied by it */
    uint32_t vocab;
    uint32_t context_trained;
};

/* ERROR_UNSUPPORTED for an architecture or a feature that moed does not run, ERROR_NOT_FOUND for a missing
 * key, ERROR_FORMAT for values that make no sense; each names the key and the value. */
enum error_code model_params_read(const struct gguf *g, struct model_params *out, struct error *e);

#endif
