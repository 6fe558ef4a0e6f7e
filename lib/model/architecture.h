/* What distinguishes the architectures: a table that one graph reads, one row an architecture.
 * Facts: the GGUF converters' conventions and the original implementations in transformers. */
#ifndef MOED_MODEL_ARCHITECTURE_H
#define MOED_MODEL_ARCHITECTURE_H

#include "kernels/kernels.h"

#include <stdbool.h>

enum attention_kind {
    ATTENTION_GROUPED, /* a key and a value for each group of query heads */
    ATTENTION_LATENT,  /* MLA: one compressed key-value row that all heads expand */
};

enum norm_kind {
    NORM_RMS,
    NORM_LAYER, /* the mean is subtracted, a bias added */
};

/* How gate logits become the chosen experts and their weights; see router.h. */
enum router_kind {
    ROUTER_SOFTMAX,          /* softmax over all experts, then the largest */
    ROUTER_SIGMOID,          /* a sigmoid each, then the largest */
    ROUTER_SOFTMAX_SELECTED, /* the largest logits, then softmax over those */
    ROUTER_SPARSE_MIXER,     /* each rank: softmax over the logits near the largest that is left */
};

/* Biases that a file must have. Others (BIAS_QKV, BIAS_ATTENTION_OUTPUT, BIAS_ROUTER, BIAS_OUTPUT) are used where
 * the file has them. */
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
    enum router_kind router; /* where the file does not say: ARCH.expert_gating_func */
    enum activation activation;
    unsigned biases;    /* BIAS_*: required */
    bool rope_neox;     /* rotate pairs (i, i + n/2); else (2i, 2i + 1) */
    bool qk_norm;       /* RMS norm of each head of q and k before rope */
    bool qk_norm_whole; /* RMS norm of all of q, all of k, before rope */
    bool renormalise;   /* selected probabilities are divided by their sum */
    /* The file says: expert_gating_func, expert_weights_norm, expert_group_count; it may have exp_probs_b. */
    bool router_keys;
    bool shared_expert;      /* ffn_*_shexp, added to the routed experts' sum */
    bool shared_expert_gate; /* times sigmoid(ffn_gate_inp_shexp . x) */
    bool leading_dense;      /* the first leading_dense_block_count layers have a plain FFN */
    bool tied_output;        /* output.weight may be absent: token_embd.weight serves */
    bool attention_sinks;    /* attn_sinks: a logit a head in the softmax that has no value */
    unsigned window_period;  /* of so many layers all but the last have a sliding window; 0: none */
    float rope_magnitude; /* of a longrope model's cosines, instead of the file's; 0: the file's */
    const char *ffn_norm; /* the tensor of the norm before the FFN; NULL: ffn_norm */
    /* After "ARCH.": an expert's width, feed_forward_length where NULL; the number of shared experts of that width,
     * NULL: a width of their own. */
    const char *expert_width_key, *shared_count_key;
};

/* NULL for a name that the table does not have. */
const struct architecture *architecture_find(const char *name, unsigned long len);
/* The names, separated by ", ". */
const char *architecture_names(void);
/* The i-th row, NULL after the last. */
const struct architecture *architecture_at(unsigned i);

#endif
