/* The table of architectures for tensors.c and keys.c: what their files have, as the converters
 * write them. */
#ifndef MOED_MKMODEL_ARCH_H
#define MOED_MKMODEL_ARCH_H

#include <stdbool.h>

/* Where only some layers have a window and the file or its tensors say which: those without. */
enum mkmodel_full {
    FULL_UNSAID,
    FULL_SIXTH_AND_LAST,
    FULL_FIRST_AND_SIXTH,
    FULL_FIRST_OF_FOUR,
};

enum mkmodel_gate { GATE_NONE, GATE_OF_HEADS, GATE_OF_VALUES };

struct mkmodel_arch {
    const char *name;     /* general.architecture */
    const char *ffn_norm; /* the norm before the experts */
    bool qk_norm;         /* attn_q_norm and attn_k_norm of a head's width */
    bool qk_norm_whole;   /* the same, of all heads' width */
    bool latent;          /* one compressed vector for the keys and values of all heads */
    bool indexer;         /* latent, and an indexer that chooses positions */
    bool delta;           /* linear attention in all layers but every fourth; attn_q has
                             each head's gate, too */
    bool delta_grouped;   /* ssm_ba instead of ssm_beta and ssm_alpha */
    bool convolutions;    /* short convolutions instead; token_embd_norm */
    bool mamba2;          /* Mamba2 in all layers, attention behind it in every fourth; a block of
                             the file for each part */
    unsigned rope_part;   /* of each head's values one in so many rotates; 0: all */
    bool fused_qkv;       /* attn_qkv instead of attn_q, attn_k, attn_v */
    bool sinks;           /* attn_sinks; in layers with a window only, if `full` says which
                             those are */
    bool window;          /* a sliding window in some layers */
    enum mkmodel_full full;
    bool window_pattern;           /* and key attention.sliding_window_pattern */
    bool windowed_rope;            /* keys *_swa of the rotation, which is of all values there */
    bool windowed_queries;         /* half as many query heads more where there is a window */
    bool windowed_keys;            /* twice the key-value heads there */
    bool narrow_values;            /* values have two thirds of a key's width */
    enum mkmodel_gate gate;        /* attn_gate */
    bool rope_freqs;               /* factors of the frequencies where there is no window */
    bool value_scale;              /* key attention.value_scale */
    bool gemma;                    /* Gemma 4: layers without a window have heads of twice the
                                      width, a quarter of the key-value heads and no attn_v; the
                                      shared expert is ffn_gate, ffn_up, ffn_down of
                                      feed_forward_length */
    bool post_norms;               /* a norm after each part */
    bool parallel;                 /* no norm before the experts */
    bool layer_norm_eps;           /* the file has the epsilon of layer norms, too */
    bool embedding_scale;          /* embeddings are multiplied by the root of their width */
    bool logit_scale;              /* key logit_scale */
    bool qkv_bias, attention_bias; /* of q, k, v; of attn_output */
    bool norm_bias, logits_bias;
    bool router_bias, expert_bias;
    bool dense_layers;  /* leading layers without experts */
    bool dense_unsaid;  /* without the key of their number */
    bool shared_expert; /* ffn_*_shexp */
    bool ungated;       /* no ffn_gate_exps, no ffn_gate_shexp */
    bool shared_gate;   /* ffn_gate_inp_shexp */
    bool shared_width; /* a key of the shared expert's width; else of the number of experts in it */
    bool shared_both;  /* both keys */
    bool limits;       /* keys swiglu_clamp_exp, swiglu_clamp_shexp */
    bool weights_scale;        /* key expert_weights_scale */
    bool router_keys;          /* keys for the choice of experts */
    bool gating_key;           /* of those only expert_gating_func */
    bool sigmoid;              /* the gate is always a sigmoid */
    bool selection_bias;       /* exp_probs_b whatever the gate */
    bool selection_plain;      /* none whatever the gate */
    bool selection_unsuffixed; /* exp_probs_b, not exp_probs_b.bias */
    bool layer_step;           /* key interleave_moe_layer_step */
    bool rope_sections;        /* key rope.dimension_sections, which an image's positions have */
    bool deepstack;            /* key n_deepstack_layers, of the image part */
    bool expert_width;         /* key expert_feed_forward_length; else feed_forward_length */
    bool yarn;                 /* rotary scaling by YaRN */
    bool rotary_factors;       /* rope_factors_long and rope_factors_short */
};

enum {
    MKMODEL_CONVOLUTION_TAPS = 3,
    MKMODEL_DELTA_TAPS = 4, /* Mamba2's, too */
};

/* NULL for an unknown name. */
const struct mkmodel_arch *mkmodel_arch_find(const char *name);

#endif
