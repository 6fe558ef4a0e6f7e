/* What the parts of `moed inspect` share: inspect.c (the verb, what a model needs), inspect_model.c (what it is, in
 * words), inspect_json.c. */
#ifndef MOED_CLI_INSPECT_H
#define MOED_CLI_INSPECT_H

#include "gguf/gguf.h"
#include "model/pool_plan.h"

#include <stdbool.h>

struct inspect {
    bool tensors, json;
    const char *kv_type_name;
    enum tensor_type kv_type; /* what the KV cache would have */
    struct gguf *g;
    struct pool_plan plan;
    struct model_params
        params; /* the plan's, with the architecture that a header in the pool cannot point to */
};

/* What a model has in a way that the hyper-parameters do not say: it is in the tensors that the file holds. */
struct inspect_tensors {
    bool qkv_bias, attention_output_bias, router_bias, selection_bias, expert_bias, output_bias;
    bool shared_gate, tied_output, rope_factors;
};
struct inspect_tensors inspect_find_tensors(const struct inspect *x);

/* Tensors of one type. */
struct inspect_type {
    enum tensor_type type;
    uint64_t tensors, bytes;
};
enum { INSPECT_MAX_TYPES = 64 };
/* Those that the file has, the most bytes first; returns how many. */
unsigned inspect_count_types(const struct inspect *x, struct inspect_type out[INSPECT_MAX_TYPES]);

/* "latent", "yarn", "softmax" ... as the JSON object has them. */
const char *inspect_attention_name(const struct model_params *p);
const char *inspect_rope_name(enum rope_scaling scaling);
const char *inspect_router_name(enum router_kind kind);
const char *inspect_activation_name(enum activation activation);
const char *inspect_norm_name(enum norm_kind norm);

/* "1.53 GB", "12.3 MB", "7.0 kB". */
void inspect_print_bytes(uint64_t bytes);
void inspect_print_model(const struct inspect *x);
void inspect_print_json(const struct inspect *x);

/* moed inspect TRACE (inspect_trace.c). Whether the file begins as a trace does; print what it holds, or (not
 * NULL) the token ids of the sequence of that number, to an exit code. */
bool inspect_is_trace(const char *path);
int inspect_trace(const char *path, const char *sequence, bool json);

/* moed inspect --calibration [MODEL or deployment]: of the running deployment, of a model's file, or (NULL) of the default
 * deployment where it runs, else all that are stored. Returns the exit code. */
int inspect_calibration(const char *argument, bool json);

#endif
