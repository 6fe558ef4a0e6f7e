/* Writes Mixture-of-Experts models with seeded random weights as GGUF files, for the demo, tests
 * and benchmarks. The weights are noise, scaled so that the logits stay in a normal range. A file
 * has everything that a real one has. The same options give the same bytes, whatever the number of
 * threads. */
#ifndef MOED_MKMODEL_MKMODEL_H
#define MOED_MKMODEL_MKMODEL_H

#include "base/error.h"

#include <stdbool.h>
#include <stdint.h>

struct mkmodel_options {
    /* llama (Mixtral) qwen2moe qwen3moe olmoe deepseek deepseek2 phimoe gpt-oss glm4moe minimax-m2
     * dots1 qwen3vlmoe bailingmoe2 ernie4_5-moe hunyuan-moe exaone-moe glm-dsa deepseek32
     * qwen35moe qwen3next lfm2moe gemma4 laguna step35 mimo2 afmoe cohere2moe hy_v3
     * nemotron_h_moe */
    const char *arch;
    /* F32 F16 BF16 Q8_0 Q4_0 Q4_1 Q5_0 Q5_1 Q2_K Q3_K Q4_K Q5_K Q6_K IQ4_NL IQ4_XS IQ3_S
     * IQ3_XXS IQ2_S IQ2_XS IQ2_XXS IQ1_S IQ1_M MXFP4 NVFP4, or the mixes Q4_K_M, Q5_K_M */
    const char *type;
    const char *pre; /* the file's tokenizer.ggml.pre */
    uint32_t layers, hidden, heads, kv_heads;
    uint32_t head_dim; /* 0: hidden / heads */
    uint32_t experts, top_k, expert_width;
    /* Width of the shared expert, where the architecture has one; 0: expert_width. But for
     * qwen2moe, hunyuan-moe, gemma4, laguna, step35, hy_v3 and nemotron_h_moe a multiple of
     * expert_width. */
    uint32_t shared_width;
    /* deepseek, deepseek2, glm4moe, dots1, bailingmoe2, ernie4_5-moe, exaone-moe, glm-dsa,
     * deepseek32, lfm2moe, laguna, step35, mimo2, afmoe, cohere2moe, hy_v3: leading layers
     * without experts; 0: one, if there are two layers or more. Their width; 0: that of all experts
     * that a token activates. */
    uint32_t dense_layers, dense_width;
    /* deepseek2, glm-dsa, deepseek32. A head has head_dim plain values and rope_dim rotated ones
     * (0: head_dim / 2). q_rank: values of compressed queries; 0: uncompressed (glm-dsa,
     * deepseek32: kv_rank). kv_rank: of compressed keys and values; 0: the width of four heads. */
    uint32_t q_rank, kv_rank, rope_dim;
    /* "softmax", or "sigmoid" with a selection bias; "": the architecture's (deepseek2: softmax) */
    const char *gate;
    /* deepseek2, glm4moe, dots1, bailingmoe2, exaone-moe, glm-dsa, deepseek32, laguna, cohere2moe,
     * hy_v3, nemotron_h_moe: groups of experts; 0: none. groups_used 0: half */
    uint32_t groups, groups_used;
    /* gpt-oss, exaone-moe, gemma4, laguna, step35, mimo2, afmoe, cohere2moe: window of some layers;
     * 0: 128 */
    uint32_t window;
    uint32_t vocab, ctx;
    uint64_t seed;
    uint32_t split;   /* number of files */
    uint32_t threads; /* 0: one per core */
};

struct mkmodel_result {
    uint64_t bytes_written; /* of tensor data */
    uint64_t tensors;
    uint64_t tensors_of_other_type; /* tensors whose rows do not fit the requested type's block */
    char other_type_example[160];   /* "blk.0.ffn_down_exps.weight: Q8_0", or empty */
    char first_file[4096];          /* the path to open */
};

/* The default of every option: a small model. */
void mkmodel_defaults(struct mkmodel_options *o);

/* Calls progress, if not NULL, from the calling thread from time to time. ERROR_USAGE names the
 * wrong option. */
enum error_code mkmodel_write(const struct mkmodel_options *o, const char *path,
                              void (*progress)(uint64_t done, uint64_t total, void *arg), void *arg,
                              struct mkmodel_result *result, struct error *e);

#endif
