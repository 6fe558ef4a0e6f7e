/* What the files of an architecture have, as their converters write them: the table that tensors.c and keys.c read. */
#ifndef MOED_MKMODEL_ARCH_H
#define MOED_MKMODEL_ARCH_H

#include <stdbool.h>

struct mkmodel_arch {
    const char *name;              /* general.architecture */
    const char *ffn_norm;          /* the norm before the experts */
    bool qk_norm;                  /* attn_q_norm and attn_k_norm of a head's width */
    bool qk_norm_whole;            /* the same of all heads' width */
    bool latent;                   /* one compressed vector for the keys and values of all heads */
    bool sinks;                    /* attn_sinks, and a sliding window in every other layer */
    bool qkv_bias, attention_bias; /* of q, k, v; of attn_output */
    bool norm_bias, logits_bias;
    bool router_bias, expert_bias;
    bool dense_layers;   /* leading layers without experts */
    bool shared_expert;  /* ffn_*_shexp */
    bool shared_gate;    /* ffn_gate_inp_shexp, and a key of the shared expert's width */
    bool router_keys;    /* the file tells how experts are chosen */
    bool expert_width;   /* key expert_feed_forward_length; else feed_forward_length is it */
    bool yarn;           /* rotary scaling by YaRN */
    bool rotary_factors; /* rope_factors_long and rope_factors_short */
};

/* NULL for a name that is not in the table. */
const struct mkmodel_arch *mkmodel_arch_find(const char *name);

#endif
