/* moed inspect: what inspect.c (the verb, what a model needs), inspect_model.c (what a model is),
 * inspect_json.c and inspect_facts.c, which both of them show, share. */
#ifndef MOED_CLI_INSPECT_H
#define MOED_CLI_INSPECT_H

#include "base/strbuf.h"
#include "gguf/gguf.h"
#include "model/pool_plan.h"

#include <stdbool.h>

struct inspect {
    bool tensors, json;
    const char *kv_type_name;
    enum tensor_type kv_type; /* of the KV cache that is sized */
    struct gguf *g;
    struct pool_plan plan;
    struct model_params
        params; /* the plan's, with the architecture that a header in the pool cannot point to */
};

/* Properties of a model that show only in its tensors, not in its hyper-parameters. */
struct inspect_tensors {
    bool qk_norm, qkv_bias, attention_output_bias, router_bias, selection_bias, expert_bias,
        output_bias;
    bool shared_gate, tied_output, rope_factors, output_gate;
};
struct inspect_tensors inspect_find_tensors(const struct inspect *x);
/* Layers after the trunk that predict further tokens (MTP), which moed does not run. */
uint32_t inspect_further_layers(const struct inspect *x);

/* Tensors of one type. */
struct inspect_type {
    enum tensor_type type;
    uint64_t tensors, bytes;
};
enum { INSPECT_MAX_TYPES = 64 };
/* Lists the types that the file has, the most bytes first. Returns how many. */
unsigned inspect_count_types(const struct inspect *x, struct inspect_type out[INSPECT_MAX_TYPES]);

/* "latent", "yarn", "softmax" ... as the JSON object has them. */
const char *inspect_attention_name(const struct model_params *p);
const char *inspect_rope_name(enum rope_scaling scaling);
const char *inspect_router_name(enum router_kind kind);
const char *inspect_activation_name(enum activation activation);
const char *inspect_layer_name(enum layer_kind kind);
const char *inspect_feed_forward_name(enum feed_forward_kind kind);
/* How many layers are alike with this one, itself included; 0 if an earlier one is. */
uint32_t inspect_alike(const struct model_params *p, uint32_t layer);
/* How many limit what their activation gives. */
uint32_t inspect_limited_layers(const struct model_params *p);
const char *inspect_norm_name(enum norm_kind norm);

/* "1.53 GB", "12.3 MB", "7.0 kB". */
void inspect_format_bytes(uint64_t bytes, char out[24]);
void inspect_print_bytes(uint64_t bytes); /* with fold_printf */
void inspect_print_model(const struct inspect *x);
/* The kinds of layers where there are several, and the lines about norms and attention
 * (inspect_attention.c). */
void inspect_print_layers(const struct model_params *p);
void inspect_print_attention(const struct model_params *p,
                             const struct inspect_tensors *has_tensor);
/* The sampling defaults: a line, a member of a JSON object (inspect_sampling.c). */
void inspect_print_sampling(const struct gguf *g);
void inspect_add_sampling(struct strbuf *b, const struct gguf *g);
void inspect_print_json(const struct inspect *x);

/* moed inspect TRACE (inspect_trace.c). Prints what a trace holds, or the token ids of sequence
 * number `sequence` (NULL: none). Returns an exit code. */
int inspect_trace(const char *path, const char *sequence, bool json);

/* moed inspect FILE.predictors (inspect_predictors.c). Prints what trained predictors hold, and
 * whether memd takes them for a model (a path of model_file_find; NULL: none). Returns an exit
 * code. */
int inspect_predictors(const char *path, const char *model, bool json);

/* moed inspect --calibration [MODEL or deployment] (inspect_calibration.c). Prints the calibration
 * of a running deployment or of a model file; NULL: of the default deployment where it runs, else
 * all that are stored. Returns an exit code. */
int inspect_calibration(const char *argument, bool json);

#endif
