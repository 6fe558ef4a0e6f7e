/* Mixture-of-Experts models with seeded random weights, written as GGUF: for the demo, for tests
 * and for measuring. The weights are noise, their scale such that logits stay well behaved; the
 * file has all that a real one has. The same options give the same bytes, whatever the number of
 * threads. */
#ifndef MOED_MKMODEL_MKMODEL_H
#define MOED_MKMODEL_MKMODEL_H

#include "base/error.h"

#include <stdbool.h>
#include <stdint.h>

struct mkmodel_options {
    /* llama (Mixtral) qwen2moe qwen3moe olmoe deepseek deepseek2 phimoe gpt-oss */
    const char *arch;
    /* F32 F16 BF16 Q8_0 Q4_0 Q4_1 Q5_0 Q5_1 Q2_K Q3_K Q4_K Q5_K Q6_K IQ4_NL IQ4_XS MXFP4, or the mixes
     * Q4_K_M, Q5_K_M */
    const char *type;
    const char *pre; /* pre-tokenizer that the file names */
    uint32_t layers, hidden, heads, kv_heads;
    uint32_t head_dim; /* 0: hidden / heads */
    uint32_t experts, top_k, expert_width;
    /* qwen2moe's shared expert; deepseek's and deepseek2's, a multiple of expert_width; 0: expert_width */
    uint32_t shared_width;
    /* deepseek's and deepseek2's leading layers without experts; 0: one, where there are two layers or more. Their
     * width; 0: that of the experts a token uses, together */
    uint32_t dense_layers, dense_width;
    /* deepseek2. A head has head_dim plain values and rope_dim rotated ones (0: head_dim / 2). Queries are
     * compressed to q_rank values (0: not), keys and values to kv_rank (0: four heads' width). */
    uint32_t q_rank, kv_rank, rope_dim;
    const char *gate;             /* deepseek2: "softmax", or "sigmoid" with a selection bias */
    uint32_t groups, groups_used; /* deepseek2: groups of experts; 0: none; 0: half of them */
    uint32_t window;              /* gpt-oss: of every other layer; 0: 128 */
    uint32_t vocab, ctx;
    uint64_t seed;
    uint32_t split;   /* number of files, 1 for a single one */
    uint32_t threads; /* 0: one a core */
};

struct mkmodel_result {
    uint64_t bytes_written; /* of tensor data */
    uint64_t tensors;
    uint64_t tensors_of_other_type; /* whose rows did not fit the block of the type asked for */
    char other_type_example[160];   /* "blk.0.ffn_down_exps.weight: Q8_0", empty for none */
    char first_file[4096];          /* the path to open */
};

/* A small model of every option. */
void mkmodel_defaults(struct mkmodel_options *o);

/* progress (may be NULL) is called from this thread now and then. ERROR_USAGE names the option. */
enum error_code mkmodel_write(const struct mkmodel_options *o, const char *path,
                              void (*progress)(uint64_t done, uint64_t total, void *arg), void *arg,
                              struct mkmodel_result *result, struct error *e);

#endif
