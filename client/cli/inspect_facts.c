/* Facts of a model that inspect shows: what its tensors say, names, layers that are alike; see
 * inspect.h. */
#include "client/cli/inspect.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool has(const struct inspect *x, uint32_t block, const char *part)
{
    char name[96];
    snprintf(name, sizeof name, "blk.%" PRIu32 ".%s", block, part);
    return gguf_tensor_find(x->g, name) != NULL;
}

struct inspect_tensors inspect_find_tensors(const struct inspect *x)
{
    uint32_t layer = x->params.n_dense; /* the first with experts */
    uint32_t attention = layer;         /* the first of these with attention */
    while (attention + 1 < x->params.n_layers && !params_attends(&x->params.layers[attention]))
        attention++;
    attention = x->params.layers[attention].blocks.attention;
    layer = x->params.layers[layer].blocks.feed_forward;
    const char *bias = architecture_selection_bias(x->params.arch);
    return (struct inspect_tensors){
        .qk_norm = has(x, attention, "attn_q_norm.weight"),
        .qkv_bias = has(x, attention, "attn_q.bias") || has(x, attention, "attn_qkv.bias"),
        .attention_output_bias = has(x, attention, "attn_output.bias"),
        .router_bias = has(x, layer, "ffn_gate_inp.bias"),
        .selection_bias = bias && has(x, layer, bias),
        .expert_bias = has(x, layer, "ffn_down_exps.bias"),
        .output_gate = x->params.arch->output_gate && has(x, attention, "attn_gate.weight"),
        .shared_gate = has(x, layer, "ffn_gate_inp_shexp.weight"),
        .output_bias = gguf_tensor_find(x->g, "output.bias") != NULL,
        .tied_output = gguf_tensor_find(x->g, "output.weight") == NULL,
        .rope_factors = gguf_tensor_find(x->g, "rope_freqs.weight") != NULL,
    };
}

uint32_t inspect_further_layers(const struct inspect *x)
{
    char key[64];
    uint32_t further = 0;
    snprintf(key, sizeof key, "%s.nextn_predict_layers", x->params.arch->name);
    return gguf_get_u32_or(x->g, key, 0, &further, NULL) ? 0 : further;
}

static int more_bytes_first(const void *a, const void *b)
{
    const struct inspect_type *x = a, *y = b;
    return (x->bytes < y->bytes) - (x->bytes > y->bytes);
}

unsigned inspect_count_types(const struct inspect *x, struct inspect_type out[INSPECT_MAX_TYPES])
{
    unsigned n = 0;
    for (uint64_t i = 0; i < gguf_tensor_count(x->g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(x->g, i);
        unsigned at = 0;
        while (at < n && out[at].type != t->type)
            at++;
        if (at == INSPECT_MAX_TYPES)
            abort(); /* our bug: there are more types than entries */
        if (at == n)
            out[n++] = (struct inspect_type){.type = t->type};
        out[at].tensors++;
        out[at].bytes += t->bytes;
    }
    qsort(out, n, sizeof *out, more_bytes_first);
    return n;
}

/* ---- Names ---- */

const char *inspect_attention_name(const struct model_params *p)
{
    if (p->arch->attention == ATTENTION_LATENT)
        return "latent";
    const struct layer_params *l = params_attention(p);
    return l->n_heads == l->n_kv_heads ? "multi-head" : "grouped";
}

const char *inspect_rope_name(enum rope_scaling scaling)
{
    static const char *const names[] = {[ROPE_SCALING_NONE] = "none",
                                        [ROPE_SCALING_LINEAR] = "linear",
                                        [ROPE_SCALING_YARN] = "yarn",
                                        [ROPE_SCALING_LONG] = "longrope"};
    return names[scaling];
}

const char *inspect_router_name(enum router_kind kind)
{
    static const char *const names[] = {[ROUTER_SOFTMAX] = "softmax",
                                        [ROUTER_SIGMOID] = "sigmoid",
                                        [ROUTER_SOFTMAX_SELECTED] = "softmax-selected",
                                        [ROUTER_SPARSE_MIXER] = "sparse-mixer"};
    return names[kind];
}

const char *inspect_activation_name(enum activation activation)
{
    static const char *const names[] = {
        [ACTIVATION_SILU] = "silu",         [ACTIVATION_SWIGLU_CLAMPED] = "clamped-swiglu",
        [ACTIVATION_GELU] = "gelu",         [ACTIVATION_SIGMOID] = "sigmoid",
        [ACTIVATION_SOFTPLUS] = "softplus", [ACTIVATION_RELU_SQUARED] = "relu-squared"};
    return names[activation];
}

const char *inspect_layer_name(enum layer_kind kind)
{
    static const char *const names[] = {[LAYER_ATTENTION] = "attention",
                                        [LAYER_DELTA_NET] = "gated delta net",
                                        [LAYER_SHORT_CONVOLUTION] = "short convolution",
                                        [LAYER_MAMBA2] = "Mamba2",
                                        [LAYER_MAMBA2_ATTENTION] = "Mamba2, then attention"};
    return names[kind];
}

const char *inspect_feed_forward_name(enum feed_forward_kind kind)
{
    return kind == FEED_FORWARD_DENSE ? "dense" : "experts";
}

static bool alike(const struct layer_params *a, const struct layer_params *b)
{
    return a->kind == b->kind && a->feed_forward == b->feed_forward && a->n_heads == b->n_heads &&
           a->n_kv_heads == b->n_kv_heads && a->q_dim == b->q_dim && a->o_dim == b->o_dim &&
           a->window == b->window && a->unrotated == b->unrotated;
}

uint32_t inspect_alike(const struct model_params *p, uint32_t layer)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < p->n_layers; i++) {
        bool same = alike(&p->layers[i], &p->layers[layer]);
        if (same && i < layer)
            return 0;
        n += same;
    }
    return n;
}

uint32_t inspect_limited_layers(const struct model_params *p)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < p->n_layers; i++)
        n += p->layers[i].expert_limit > 0 || p->layers[i].shared_limit > 0;
    return n;
}

const char *inspect_norm_name(enum norm_kind norm)
{
    return norm == NORM_RMS ? "rms" : "layer";
}
