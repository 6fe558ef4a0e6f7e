/* moed inspect: describes a model's layers and its attention. */
#include "client/cli/fold.h"
#include "client/cli/inspect.h"

#include <inttypes.h>

/* Prints the kinds of layers where there are several, each with its number of layers. */
void inspect_print_layers(const struct model_params *p)
{
    for (uint32_t i = 0; i < p->n_layers; i++) {
        const struct layer_params *l = &p->layers[i];
        uint32_t n = inspect_alike(p, i);
        if (n == 0 || n == p->n_layers)
            continue;
        fold_printf("  %" PRIu32 " layer%s from %" PRIu32 ": %s", n, n == 1 ? "" : "s", i,
                    inspect_layer_name(l->kind));
        if (params_attends(l)) {
            fold_printf(", %" PRIu32 " heads of %" PRIu32, l->n_heads, l->q_dim);
            if (l->o_dim != l->q_dim)
                fold_printf(" and values of %" PRIu32, l->o_dim);
            fold_printf(", %" PRIu32 " for keys and values", l->n_kv_heads);
        }
        if (l->window)
            fold_printf(", a window of %" PRIu32, l->window);
        fold_printf("; %s\n", inspect_feed_forward_name(l->feed_forward));
    }
}

static void print_norms(const struct model_params *p, const struct inspect_tensors *has_tensor)
{
    fold_printf("norms           %s, eps %g", p->norm == NORM_RMS ? "RMS" : "layer norm",
                (double)p->norm_eps);
    if (p->arch->qk_norm && has_tensor->qk_norm)
        fold_printf("; of each head of q and k%s",
                    p->arch->qk_norm_after_rope ? " after rope" : "");
    if (p->arch->qk_norm_whole)
        fold_printf("; of all of q and all of k");
    if (p->arch->value_norm)
        fold_printf("; of each head of v, without weights");
    if (p->arch->post_norms)
        fold_printf("; of the outputs of attention and feed-forward");
    if (p->arch->parallel)
        fold_printf("; one a layer, for attention and feed-forward");
    fold_printf("\n");
}

/* The first layer with attention, or the first without a window where those differ. */
static const struct layer_params *full_attention(const struct model_params *p)
{
    const struct layer_params *l = params_attention(p);
    while (p->windowed_rope.dims && l->window && l + 1 < p->layers + p->n_layers)
        l++;
    return l;
}

static void print_attention(const struct model_params *p, const struct inspect_tensors *has_tensor)
{
    const struct layer_params *l = params_attention(p);
    struct params_windows windows = params_windows(p);
    if (p->arch->attention == ATTENTION_LATENT) {
        fold_printf("attention       latent (MLA), %" PRIu32 " heads of %" PRIu32
                    ", values of %" PRIu32 "; keys and values compressed to %" PRIu32 " + %" PRIu32
                    " rotated, ",
                    l->n_heads, l->q_dim, l->o_dim, p->kv_rank, p->rope.dims);
        if (p->q_rank)
            fold_printf("queries to %" PRIu32, p->q_rank);
        else
            fold_printf("queries not compressed");
    } else {
        fold_printf("attention       %s, %" PRIu32 " heads of %" PRIu32,
                    l->n_heads == l->n_kv_heads ? "multi-head" : "grouped (GQA)", l->n_heads,
                    l->k_dim);
        if (l->v_dim != l->k_dim)
            fold_printf(" and values of %" PRIu32, l->v_dim);
        if (l->n_kv_heads != l->n_heads)
            fold_printf(", %" PRIu32 " for keys and values", l->n_kv_heads);
        const struct layer_params *full = full_attention(p);
        if (full->k_dim != l->k_dim || full->n_kv_heads != l->n_kv_heads)
            fold_printf("; in the layers without a window %" PRIu32 " of %" PRIu32 ", %" PRIu32
                        " for keys and values",
                        full->n_heads, full->k_dim, full->n_kv_heads);
    }
    if (has_tensor->qkv_bias || has_tensor->attention_output_bias)
        fold_printf("; biases of %s%s%s", has_tensor->qkv_bias ? "q, k, v" : "",
                    has_tensor->qkv_bias && has_tensor->attention_output_bias ? " and " : "",
                    has_tensor->attention_output_bias ? "the output" : "");
    if (p->arch->attention_sinks)
        fold_printf("; a sink a head%s", p->arch->sinks_optional ? " of some layers" : "");
    if (p->temperature_scale > 0)
        fold_printf("; q grows with the position, by %g times the logarithm of each %" PRIu32,
                    (double)p->temperature_scale, p->temperature_length);
    if (p->arch->query_gate || has_tensor->output_gate)
        fold_printf("; a gate of the output%s",
                    p->arch->output_gate == OUTPUT_GATE_SOFTPLUS ? " (softplus)" : "");
    if (p->value_scale != 1)
        fold_printf("; the output times %g", (double)p->value_scale);
    if (windows.layers)
        fold_printf("; %" PRIu32 " of %" PRIu32 " layers %s the last %" PRIu32 " positions only",
                    windows.layers, p->n_layers, windows.layers == 1 ? "sees" : "see",
                    windows.largest);
    fold_printf("\n");
}

static void print_recurrent(const struct model_params *p)
{
    const struct delta_params *d = &p->delta;
    if (d->v_heads == 0) {
        fold_printf("recurrent       %" PRIu32 " of %" PRIu32
                    " layers: a gated convolution of %" PRIu32 " positions\n",
                    params_recurrent_layers(p), p->n_layers, d->taps);
        return;
    }
    if (params_has_mamba2(p)) {
        fold_printf("recurrent       %" PRIu32 " of %" PRIu32 " layers: Mamba2, %" PRIu32
                    " heads of %" PRIu32 " in %" PRIu32 " groups, %" PRIu32
                    " states, a convolution of %" PRIu32 " positions\n",
                    params_recurrent_layers(p), p->n_layers, d->v_heads, d->v_dim, d->k_heads,
                    d->k_dim, d->taps);
        return;
    }
    fold_printf("recurrent       %" PRIu32 " of %" PRIu32
                " layers: linear attention (gated DeltaNet), %" PRIu32 " value heads of %" PRIu32
                " on %" PRIu32 " key heads of %" PRIu32 ", a convolution of %" PRIu32
                " positions\n",
                params_recurrent_layers(p), p->n_layers, d->v_heads, d->v_dim, d->k_heads, d->k_dim,
                d->taps);
}

static void print_rope(const struct model_params *p, const struct inspect_tensors *has_tensor)
{
    const struct rope_params *r = &p->rope;
    const struct layer_params *l = full_attention(p);
    uint32_t dims = p->arch->attention == ATTENTION_LATENT ? l->q_dim : l->k_dim;
    if (p->arch->no_rope) {
        fold_printf("rope            none: no layer turns by positions\n");
        return;
    }
    fold_printf("rope            %" PRIu32 " of a head's %" PRIu32 " values, %s pairs, base %.9g",
                r->dims, dims, p->arch->rope_neox ? "half-apart" : "adjacent", (double)r->base);
    if (r->scaling == ROPE_SCALING_LINEAR)
        fold_printf("; linear, factor %g", (double)r->factor);
    if (r->scaling == ROPE_SCALING_YARN)
        fold_printf("; YaRN, factor %g over %" PRIu32 " tokens, ramp from %g to %g rotations",
                    (double)r->factor, r->original_context, (double)r->beta_fast,
                    (double)r->beta_slow);
    if (r->scaling == ROPE_SCALING_LONG)
        fold_printf("; long and short factors, beyond and within %" PRIu32 " tokens",
                    r->original_context);
    if (has_tensor->rope_factors)
        fold_printf("; factors of the file");
    if (p->windowed_rope.dims)
        fold_printf("; in the layers with a window %" PRIu32 " values, base %.9g",
                    p->windowed_rope.dims, (double)p->windowed_rope.base);
    if (p->arch->rope_windowed_only)
        fold_printf("; in the layers with a window%s only",
                    p->arch->rope_dense ? " and the dense ones" : "");
    fold_printf("\n");
}

/* The lines about norms, attention, recurrent layers and rotation. */
void inspect_print_attention(const struct model_params *p, const struct inspect_tensors *has_tensor)
{
    print_norms(p, has_tensor);
    print_attention(p, has_tensor);
    if (params_recurrent_layers(p))
        print_recurrent(p);
    print_rope(p, has_tensor);
}
