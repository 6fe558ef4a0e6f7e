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
    const char *arch; /* "llama" (Mixtral), "qwen2moe", "qwen3moe" */
    const char *type; /* F32 F16 BF16 Q8_0 Q4_0 Q4_K Q5_K Q6_K, or the mixes Q4_K_M, Q5_K_M */
    const char *pre;  /* pre-tokenizer that the file names */
    uint32_t layers, hidden, heads, kv_heads;
    uint32_t head_dim; /* 0: hidden / heads */
    uint32_t experts, top_k, expert_width;
    uint32_t shared_width; /* qwen2moe's shared expert; 0: expert_width */
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
