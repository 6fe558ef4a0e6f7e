/* What distinguishes the architectures: a table that one graph reads, one row an architecture.
 * Facts: the GGUF converters' conventions and the original implementations in transformers. */
#ifndef MOED_MODEL_ARCHITECTURE_H
#define MOED_MODEL_ARCHITECTURE_H

#include <stdbool.h>

struct architecture {
    const char *name;        /* general.architecture */
    const char *models;      /* for people */
    bool rope_neox;          /* rotate pairs (i, i + n/2); else (2i, 2i + 1) */
    bool qk_norm;            /* RMS norm of each head of q and k before rope */
    bool qk_norm_whole;      /* RMS norm of all of q, all of k, before rope */
    bool renormalise;        /* selected gate probabilities are divided by their sum */
    bool shared_expert;      /* ffn_*_shexp, added to the routed experts' sum */
    bool shared_expert_gate; /* times sigmoid(ffn_gate_inp_shexp . x) */
    bool leading_dense;      /* the first leading_dense_block_count layers have a plain FFN */
    bool tied_output;        /* output.weight may be absent: token_embd.weight serves */
    const char *expert_width_key; /* after "ARCH."; feed_forward_length where NULL */
    const char *shared_count_key; /* shared experts of the routed ones' width; NULL: a width of their own */
};

/* NULL for a name that the table does not have. */
const struct architecture *architecture_find(const char *name, unsigned long len);
/* The names, separated by ", ". */
const char *architecture_names(void);

#endif
