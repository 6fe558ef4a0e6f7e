/* Hyper-parameters of a model, read from a GGUF file's keys and checked for sense. */
#ifndef MOED_MODEL_PARAMS_H
#define MOED_MODEL_PARAMS_H

#include "base/error.h"
#include "gguf/gguf.h"
#include "model/architecture.h"

#include <stdint.h>

enum rope_scaling { ROPE_SCALING_NONE, ROPE_SCALING_LINEAR, ROPE_SCALING_YARN, ROPE_SCALING_LONG };

/* How positions become angles; rope.h computes them. */
struct rope_params {
    enum rope_scaling scaling;
    uint32_t dims; /* rotated values of a head */
    float base;
    float factor;              /* linear, yarn: the context is this many times the original one */
    uint32_t original_context; /* yarn, long */
    /* yarn: rotations over the original context where the ramp begins (fast) and ends (slow) */
    float beta_fast, beta_slow;
    float magnitude; /* cosines and sines are multiplied by it */
};

/* How a layer's gate logits choose experts; router.h. */
struct router_params {
    enum router_kind kind;
    uint32_t n_experts, n_used; /* a layer; activated a token */
    uint32_t n_groups;          /* of equal size; 0: no groups */
    uint32_t n_groups_used;     /* a token's experts are chosen from the best so many */
    bool renormalise;           /* weights are divided by their sum */
    float scale;                /* then multiplied */
};

struct model_params {
    const struct architecture *arch;
    char name[96]; /* general.name, sanitised; the file's name where absent */
    uint32_t n_layers;
    uint32_t d_model;
    uint32_t n_heads, n_kv_heads; /* latent: one key-value head */
    /* Of a head: what q and k are before they meet and what v is after (the projections' widths), and what
     * the KV cache holds. The same but for latent attention, where the cached row is the compressed one (kv_rank
     * values, which are the values too) and the rotated part of the key. */
    uint32_t q_dim, o_dim;
    uint32_t k_dim, v_dim;
    uint32_t q_rank;       /* latent: q is compressed to it first; 0: not */
    uint32_t kv_rank;      /* latent: of the compressed keys and values; 0: grouped attention */
    float attention_scale; /* of q . k */
    uint32_t window;       /* positions that a windowed layer attends to; 0: all. params_window */
    struct rope_params rope;
    float norm_eps;
    struct router_params router;
    uint32_t d_expert; /* an expert's intermediate width */
    uint32_t d_shared; /* the shared expert's, 0: none */
    uint32_t n_dense;  /* leading layers without experts */
    uint32_t d_dense;  /* the width of their FFN */
    uint32_t vocab;
    uint32_t context_trained;
};

/* ERROR_UNSUPPORTED for an architecture or a feature that moed does not run, ERROR_NOT_FOUND for a missing
 * key, ERROR_FORMAT for values that make no sense; each names the key and the value. */
enum error_code model_params_read(const struct gguf *g, struct model_params *out, struct error *e);

/* The positions that `layer` attends to at most, its own included; 0: all. */
uint32_t params_window(const struct model_params *p, uint32_t layer);
/* What a position takes in the KV cache of a layer. Two rows, keys and values; one with latent attention, whose values are the
 * first part of the key. */
uint32_t params_cache_rows(const struct model_params *p);
/* The most columns of any matrix; and of those that there is one of for each head (latent attention). */
uint32_t params_widest_input(const struct model_params *p);
uint32_t params_head_input(const struct model_params *p);

#endif
