/* The table of architectures for tensors.c and keys.c: what their files have, as the converters
 * write them. */
#ifndef MOED_MKMODEL_ARCH_H
#define MOED_MKMODEL_ARCH_H

#include <stdbool.h>

struct mkmodel_arch {
    const char *name;              /* general.architecture */
    const char *ffn_norm;          /* the norm before the experts */
    bool qk_norm;                  /* attn_q_norm and attn_k_norm of a head's width */
    bool qk_norm_whole;            /* the same, of all heads' width */
    bool latent;                   /* one compressed vector for the keys and values of all heads */
    bool indexer;                  /* latent, and an indexer that chooses positions */
    bool delta;                    /* linear attention in all layers but every fourth; attn_q has
                                      each head's gate, too */
    bool delta_grouped;            /* ssm_ba instead of ssm_beta and ssm_alpha */
    bool convolutions;             /* short convolutions instead; token_embd_norm */
    bool quarter_rope;             /* a quarter of each head's values rotate */
    bool fused_qkv;                /* attn_qkv instead of attn_q, attn_k, attn_v */
    bool half_rope;                /* half of each head's values rotate */
    bool sinks;                    /* attn_sinks */
    bool window;                   /* a sliding window in some layers */
    bool gemma;                    /* Gemma 4: every sixth layer and the last without a window, with
                                      heads of twice the width, a quarter of the key-value heads and
                                      no attn_v; a norm after each part; the shared expert is
                                      ffn_gate, ffn_up, ffn_down of feed_forward_length */
    bool qkv_bias, attention_bias; /* of q, k, v; of attn_output */
    bool norm_bias, logits_bias;
    bool router_bias, expert_bias;
    bool dense_layers;  /* leading layers without experts */
    bool shared_expert; /* ffn_*_shexp */
    bool shared_gate;   /* ffn_gate_inp_shexp */
    bool shared_width; /* a key of the shared expert's width; else of the number of experts in it */
    bool weights_scale;  /* key expert_weights_scale */
    bool router_keys;    /* keys for the choice of experts */
    bool gating_key;     /* of those only expert_gating_func */
    bool sigmoid;        /* the gate is always a sigmoid */
    bool selection_bias; /* exp_probs_b whatever the gate */
    bool layer_step;     /* key interleave_moe_layer_step */
    bool deepstack;      /* keys of the image part: rope.dimension_sections, n_deepstack_layers */
    bool expert_width;   /* key expert_feed_forward_length; else feed_forward_length */
    bool yarn;           /* rotary scaling by YaRN */
    bool rotary_factors; /* rope_factors_long and rope_factors_short */
};

enum {
    MKMODEL_CONVOLUTION_TAPS = 3,
    MKMODEL_DELTA_TAPS = 4,
};

/* NULL for an unknown name. */
const struct mkmodel_arch *mkmodel_arch_find(const char *name);

#endif
