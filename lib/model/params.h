/* Hyper-parameters of a model, read from a GGUF file's keys and checked. */
#ifndef MOED_MODEL_PARAMS_H
#define MOED_MODEL_PARAMS_H

#include "base/error.h"
#include "gguf/gguf.h"
#include "kernels/kernels.h"
#include "model/architecture.h"

#include <stdint.h>

enum rope_scaling { ROPE_SCALING_NONE, ROPE_SCALING_LINEAR, ROPE_SCALING_YARN, ROPE_SCALING_LONG };

/* How positions become angles; rope.h computes them. */
struct rope_params {
    enum rope_scaling scaling;
    uint32_t dims; /* rotated values of a head */
    float base;
    float factor;              /* linear, yarn: context length / original context length */
    uint32_t original_context; /* yarn, long */
    /* yarn: rotations over the original context where the ramp begins (fast) and ends (slow) */
    float beta_fast, beta_slow;
    float magnitude; /* factor of the cosines and sines */
    bool exact_ramp; /* yarn: the ends of the ramp are not rounded to whole pairs */
};

/* How a layer's gate logits choose experts; see router.h. */
struct router_params {
    enum router_kind kind;
    uint32_t n_experts, n_used; /* per layer; activated per token */
    uint32_t n_groups;          /* of equal size; 0: no groups */
    uint32_t n_groups_used;     /* a token's experts come from this many best groups */
    bool renormalise;           /* divides the weights by their sum */
    float scale;                /* then multiplies them */
    float weight_sum_eps;       /* is added to the sum before */
    float weight_sum_least;     /* the least that they are divided by */
};

/* What mixes the positions of a request in a layer. Only attention has keys and values; the other
 * kinds keep a state of fixed size for each request. */
enum layer_kind {
    LAYER_ATTENTION,
    LAYER_DELTA_NET,         /* the gated delta rule, behind a short convolution */
    LAYER_SHORT_CONVOLUTION, /* a gated convolution alone */
    LAYER_MAMBA2,            /* a selective state space, behind a short convolution */
    LAYER_MAMBA2_ATTENTION,  /* Mamba2, then attention */
};

/* Gated DeltaNet, the linear attention of the layers of kind LAYER_DELTA_NET (kernels/kernels.h has
 * the recurrence), or Mamba2: its groups are the key heads, B and C their keys and queries of
 * k_dim, the state's size; its heads are the value heads. Short convolutions have `taps` only. All
 * 0: the model has none of these. */
struct delta_params {
    uint32_t taps;             /* of the causal convolution over positions */
    uint32_t k_heads, v_heads; /* each key head serves v_heads / k_heads value heads */
    uint32_t k_dim, v_dim;     /* values of a head; a head's state is [k_dim][v_dim] */
};

enum feed_forward_kind { FEED_FORWARD_EXPERTS, FEED_FORWARD_DENSE };

/* The blocks of the file ("blk.7") that have a layer's parts: all the layer's number, unless the
 * architecture's files have a block for each part (architecture.block_parts). */
struct layer_blocks {
    uint32_t recurrent, attention, feed_forward;
};

/* A layer by itself. The sizes of heads are those of its attention; 0 in a layer without. */
struct layer_params {
    enum layer_kind kind;
    struct layer_blocks blocks;
    enum feed_forward_kind feed_forward;
    uint32_t n_heads, n_kv_heads; /* latent: one key-value head */
    /* Values per head. q_dim, o_dim: of the projections of q and k, and of v and the output. k_dim,
     * v_dim: of keys and values in the KV cache. They are equal except with latent attention, which
     * caches the compressed row (kv_rank values, which serve as values too) and the rotated part of
     * the key. */
    uint32_t q_dim, o_dim;
    uint32_t k_dim, v_dim;
    uint32_t window; /* the most positions that it attends to, its own included; 0: all */
    bool unrotated;  /* q and k do not turn with their positions */
    /* Of silu(gate) and of up, in the routed experts, and in the shared expert or the dense FFN
     * (struct gating); 0: none. */
    float expert_limit, shared_limit;
};

/* No model comes near it. */
enum { PARAMS_MAX_LAYERS = 1024 };

struct model_params {
    const struct architecture *arch;
    char name[96]; /* general.name, sanitised; the file's name if absent */
    uint32_t n_layers;
    uint32_t n_blocks;  /* of the file that have these layers; mostly as many */
    uint32_t n_further; /* blocks of the file after them, which predict further tokens; not run */
    uint32_t d_model;
    uint32_t q_rank;       /* latent: values of the compressed q; 0: q is not compressed */
    uint32_t kv_rank;      /* latent: values of compressed keys and values; 0: grouped attention */
    float attention_scale; /* of q . k */
    /* latent: q grows with the position (params_query_scale); 0: it does not */
    float temperature_scale;
    uint32_t temperature_length;
    struct rope_params rope;
    struct rope_params windowed_rope; /* of layers with a window; dims 0: `rope` */
    struct delta_params delta;
    enum norm_kind norm;
    float norm_eps;
    struct router_params router;
    uint32_t d_expert; /* an expert's intermediate width */
    uint32_t d_shared; /* the shared expert's, 0: none */
    float logit_cap;   /* logits go through cap * tanh(x / cap); 0: they do not */
    float logit_scale; /* multiplies them; 1: nothing */
    float value_scale; /* multiplies what attention gives; 1: nothing */
    uint32_t n_dense;  /* leading layers without experts */
    uint32_t d_dense;  /* the width of their FFN */
    uint32_t vocab;
    uint32_t context_trained;
    uint32_t context_most; /* longer contexts are not computed (architecture.indexer); 0: any */
    uint32_t published;    /* PUBLISHED_* of published.h: values that the file has no keys for */
    struct layer_params layers[PARAMS_MAX_LAYERS]; /* [n_layers] */
};

/* ERROR_UNSUPPORTED: an architecture or feature that moed does not run. ERROR_NOT_FOUND: a missing
 * key. ERROR_FORMAT: an impossible value. Each names the key and the value. */
enum error_code model_params_read(const struct gguf *g, struct model_params *out, struct error *e);

/* Hyper-parameters from a process that is not believed: that every number is in the range in which
 * model_params_read leaves it. arch is set. ERROR_PROTOCOL: they cannot be. */
enum error_code model_params_check(const struct model_params *p, struct error *e);

/* The most that any layer's attention has of each. */
struct params_most {
    uint32_t heads, k_dim, v_dim;
    uint32_t q, k, v, attended; /* values of all heads of a row */
};
struct params_most params_most(const struct model_params *p);
/* Of a layer. */
bool params_attends(const struct layer_params *l);
bool params_is_recurrent(const struct layer_params *l); /* it has a state */
bool params_is_mamba2(const struct layer_params *l);
/* Some layer has it. */
bool params_has_mamba2(const struct model_params *p);
/* The first layer with attention. Every model has one. */
const struct layer_params *params_attention(const struct model_params *p);
/* ERROR_UNSUPPORTED: the model is not computed in a context of so many tokens. */
enum error_code params_check_context(const struct model_params *p, uint64_t context,
                                     struct error *e);
/* Layers with a window, and the largest of their windows. */
struct params_windows {
    uint32_t layers, largest;
};
struct params_windows params_windows(const struct model_params *p);
/* How positions turn q and k of a layer. */
const struct rope_params *params_rope(const struct model_params *p, uint32_t layer);
/* Values of the cosines and sines of a position, of all rotations of the model. */
uint32_t params_angles(const struct model_params *p);
/* How an FFN's gate and up become its hidden values: the routed experts' of a layer, and those of
 * its shared expert or dense FFN. */
struct gating params_expert_gating(const struct model_params *p, uint32_t layer);
struct gating params_shared_gating(const struct model_params *p, uint32_t layer);
/* What a CUDA device does not compute of the dense part ("linear attention with ..."), so that the
 * host computes all of it; NULL: nothing. */
const char *params_host_dense(const struct model_params *p);
/* Layers with a state, beside or instead of keys and values. */
uint32_t params_recurrent_layers(const struct model_params *p);
/* index: [n_layers], how many recurrent layers come before each: the order of a state's parts. */
void params_recurrent_index(const struct model_params *p, uint32_t *index);
/* Channels of a recurrent layer's convolution. Gated DeltaNet: the values of q, k and v of all
 * heads, in this order; Mamba2: of x, B and C, in this order; short convolution: d_model. */
uint32_t params_convolved(const struct model_params *p);
/* Floats of the state of one recurrent layer: the convolution's last taps - 1 inputs
 * [taps - 1][channels], then the heads' states [v_heads][params_head_state_floats]. */
uint64_t params_layer_state_floats(const struct model_params *p);
/* delta_state_floats or mamba2_state_floats of kernels/kernels.h. */
uint64_t params_head_state_floats(const struct model_params *p);
/* Bytes of the state of one request, of all its recurrent layers. 0: the model has none. */
uint64_t params_state_bytes(const struct model_params *p);
/* The factor of q at a position: 1 + temperature_scale * ln(1 + floor(position /
 * temperature_length)). */
float params_query_scale(const struct model_params *p, uint32_t position);
/* Rows per position in the KV cache of a layer: 2, keys and values; 1 with latent attention, whose
 * values are the first part of the key. */
uint32_t params_cache_rows(const struct model_params *p);
/* The most columns of any matrix, and of any matrix that exists once per head (latent attention).
 */
uint32_t params_widest_input(const struct model_params *p);
uint32_t params_head_input(const struct model_params *p);

#endif
