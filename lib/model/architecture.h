/* The table of architectures: one row each, which the one forward graph reads. Sources: the
 * conventions of the GGUF converters and the original implementations in transformers. */
#ifndef MOED_MODEL_ARCHITECTURE_H
#define MOED_MODEL_ARCHITECTURE_H

#include "kernels/kernels.h"

#include <stdbool.h>
#include <stddef.h>

enum attention_kind {
    ATTENTION_GROUPED, /* a key and a value for each group of query heads */
    ATTENTION_LATENT,  /* MLA: one compressed key-value row that all heads expand */
};

enum norm_kind {
    NORM_RMS,
    NORM_LAYER, /* subtracts the mean, adds a bias */
};

/* How gate logits become the chosen experts and their weights; see router.h. */
enum router_kind {
    ROUTER_SOFTMAX,          /* softmax over all experts, then the largest */
    ROUTER_SIGMOID,          /* a sigmoid for each expert, then the largest */
    ROUTER_SOFTMAX_SELECTED, /* the largest logits, then softmax over those */
    ROUTER_SPARSE_MIXER,     /* per rank: softmax over the logits near the largest remaining one */
};

/* A gate of what attention gives, before its output matrix: the activation of attn_gate . the row's
 * input, with one value for each head or one for each of its values. */
enum output_gate { OUTPUT_GATE_NONE, OUTPUT_GATE_SIGMOID, OUTPUT_GATE_SOFTPLUS };

/* Biases that a file must have. Where a row does not require BIAS_QKV, BIAS_ATTENTION_OUTPUT,
 * BIAS_ROUTER or BIAS_OUTPUT, moed uses them if the file has them. */
enum {
    BIAS_QKV = 1,
    BIAS_ATTENTION_OUTPUT = 2,
    BIAS_ROUTER = 4,
    BIAS_EXPERTS = 8, /* of gate, up and down */
    BIAS_OUTPUT = 16, /* of the logits */
};

struct architecture {
    const char *name;   /* general.architecture */
    const char *models; /* for people */
    enum attention_kind attention;
    enum norm_kind norm;
    enum router_kind router; /* unless the file has ARCH.expert_gating_func */
    enum activation activation;
    unsigned biases;         /* BIAS_*: required */
    bool rope_neox;          /* rotates pairs (i, i + n/2); else (2i, 2i + 1) */
    bool rope_windowed_only; /* layers without a window do not rotate */
    bool no_rope;            /* no layer rotates, whatever the file says */
    bool rope_dense;         /* of rope_windowed_only: leading dense layers rotate, too */
    /* Layers without a window rotate half of rope.dimension_count, and they alone have rope_freqs.
     */
    bool rope_half;
    bool qk_norm;            /* RMS norm of each head of q and k before rope */
    bool qk_norm_after_rope; /* qk_norm comes after rope */
    bool qk_norm_optional;   /* a file may lack the weights of qk_norm; it then has no such norm */
    bool qk_norm_whole;      /* RMS norm of all of q, all of k, before rope */
    bool value_norm;         /* RMS norm without weights of each head of v; a layer without a window
                                may lack attn_v: its values are k before norm and rope */
    bool unscaled_attention; /* q . k is not divided by the root of the head's size */
    bool heads_by_layer;     /* attention.head_count and head_count_kv may be lists by layer */
    bool windowed_heads; /* layers with a window have sizes of heads of their own (*_swa keys) */
    /* Layers with a window have a rotation of their own (*_swa keys). rope_freqs and the scaling of
     * positions are of the other layers. */
    bool windowed_rope;
    enum output_gate output_gate;
    bool output_gate_optional; /* a layer may lack attn_gate */
    /* What attention gives is multiplied by attention.value_scale, by this number if the file has
     * no such key; 0: it is not. */
    float value_scale;
    /* What attention.temperature_scale is if the file has no such key; 0: q does not grow. */
    float temperature_scale;
    /* What attention and the feed-forward part add to x goes through a norm first
     * (post_attention_norm, post_ffw_norm). */
    bool post_norms;
    bool output_scale; /* x is then multiplied by layer_output_scale */
    /* Attention and the feed-forward part both take the layer's one norm of x. */
    bool parallel;
    /* The shared expert is ffn_gate, ffn_up, ffn_down of feed_forward_length, with an input norm of
     * its own (shared_norm), and both its output and the routed experts' sum have a norm
     * (post_ffw_norm_1, post_ffw_norm_2). */
    bool shared_expert_normed;
    /* The router's input is x through an RMS norm with the weights ffn_gate_inp.scale, divided by
     * the root of d_model. */
    bool router_norm;
    bool expert_scales;   /* ffn_down_exps.scale: a factor of each expert's weight */
    bool embedding_scale; /* embeddings are multiplied by the root of d_model */
    bool logit_cap;       /* logits go through cap * tanh(x / cap): final_logit_softcapping */
    bool logit_scale;     /* logits are multiplied by the key of this name */
    /* The norms are layer norms without biases if the file has attention.layer_norm_epsilon and no
     * attention.layer_norm_rms_epsilon. */
    bool norm_by_key;
    bool renormalise; /* divides the selected probabilities by their sum */
    /* As the original does: a number that is added to that sum, and the least divisor. */
    float weight_sum_eps, weight_sum_least;
    /* The file has keys for the router (expert_gating_func, expert_weights_norm,
     * expert_group_count) and may have exp_probs_b. */
    bool router_keys;
    bool plain_selection_bias; /* whose tensor is exp_probs_b, not exp_probs_b.bias */
    bool shared_expert;        /* ffn_*_shexp, added to the routed experts' sum */
    bool shared_expert_gate;   /* multiplies it by sigmoid(ffn_gate_inp_shexp . x) */
    bool shared_average;       /* half of the sum of both is added to x */
    /* silu(gate) is at most, and up within, limits by layer: swiglu_clamp_exp of the routed
     * experts, swiglu_clamp_shexp of the shared one and of dense layers; 0: none. */
    bool activation_limits;
    bool leading_dense;    /* the first leading_dense_block_count layers have a plain FFN */
    bool dense_by_tensors; /* the same of the first layers without a router */
    bool tied_output;      /* output.weight may be absent: token_embd.weight serves */
    /* An indexer chooses the positions that a layer attends to, attention.indexer.top_k of them:
     * all of a context that is no longer. Only such contexts are computed. */
    bool indexer;
    bool attention_sinks; /* attn_sinks: per head one softmax logit that has no value */
    bool sinks_optional;  /* a layer may lack them */
    /* Linear attention (gated DeltaNet) in all layers but every full_attention_interval-th. */
    bool delta_layers;
    bool delta_grouped;      /* value head j reads key head j / (value heads / key heads); else
                                key head j mod key heads */
    bool short_convolutions; /* layers without key-value heads are gated convolutions */
    /* A block of the file ("blk.7") is one part, with a norm of its own: Mamba2 where both lists
     * attention.head_count_kv and feed_forward_length have 0, attention where only the second has
     * 0, else routed experts. A layer has the parts up to its experts. */
    bool block_parts;
    bool query_gate; /* attn_q has for each head the query, then a gate: attention's output is
                        multiplied by sigmoid(gate) */
    unsigned window_period;  /* unless the file says which: in each run of so many layers, all but
                                the last have a sliding window; 0: no layer */
    bool window_after_first; /* all but the first of the run */
    bool window_optional;    /* a file without attention.sliding_window has no such layer */
    bool window_beyond;      /* attention.sliding_window does not count the row's own position */
    float rope_magnitude;    /* of a longrope model's cosines; 0: the file's */
    /* The tensor of the norm before the output head; NULL: output_norm. */
    const char *output_norm;
    /* The tensors of the norms before the FFN or the routed experts (NULL: ffn_norm), and before a
     * shared expert that has one of its own. */
    const char *ffn_norm, *shared_norm;
    /* Keys after "ARCH.": an expert's width (NULL: feed_forward_length), and the number of shared
     * experts of that width (NULL: the shared expert has a width of its own). */
    const char *expert_width_key, *shared_count_key;
};

/* NULL for an unknown name. */
const struct architecture *architecture_find(const char *name, unsigned long len);
/* All names, separated by ", ". */
void architecture_names(char *out, size_t size);
/* The tensor of a layer's selection bias, without "blk.7."; NULL: the architecture has none. */
const char *architecture_selection_bias(const struct architecture *a);

#endif
