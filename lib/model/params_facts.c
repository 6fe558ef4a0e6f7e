/* What follows from hyper-parameters; see params.h. */
#include "model/params.h"

#include "kernels/kernels.h"

#include <inttypes.h>
#include <math.h>

enum error_code params_check_context(const struct model_params *p, uint64_t context,
                                     struct error *e)
{
    if (!p->context_most || context <= p->context_most)
        return ERROR_OK;
    return error_set(e, ERROR_UNSUPPORTED,
                     "--ctx %" PRIu64 ": moed computes this model up to %" PRIu32
                     " tokens, because it does not run the indexer that chooses among more: give "
                     "--ctx %" PRIu32 " or less",
                     context, p->context_most, p->context_most);
}

static uint32_t larger(uint32_t a, uint32_t b)
{
    return a > b ? a : b;
}

struct params_most params_most(const struct model_params *p)
{
    struct params_most most = {0};
    for (const struct layer_params *l = p->layers; l < p->layers + p->n_layers; l++) {
        most.heads = larger(most.heads, l->n_heads);
        most.k_dim = larger(most.k_dim, l->k_dim);
        most.v_dim = larger(most.v_dim, l->v_dim);
        most.q = larger(most.q, l->n_heads * l->q_dim);
        most.k = larger(most.k, l->n_kv_heads * l->k_dim);
        most.v = larger(most.v, l->n_kv_heads * l->v_dim);
        most.attended = larger(most.attended, l->n_heads * l->o_dim);
    }
    return most;
}

bool params_attends(const struct layer_params *l)
{
    return l->kind == LAYER_ATTENTION || l->kind == LAYER_MAMBA2_ATTENTION;
}

bool params_is_recurrent(const struct layer_params *l)
{
    return l->kind != LAYER_ATTENTION;
}

bool params_is_mamba2(const struct layer_params *l)
{
    return l->kind == LAYER_MAMBA2 || l->kind == LAYER_MAMBA2_ATTENTION;
}

bool params_has_mamba2(const struct model_params *p)
{
    uint32_t i = 0;
    while (i < p->n_layers && !params_is_mamba2(&p->layers[i]))
        i++;
    return i < p->n_layers;
}

const struct layer_params *params_attention(const struct model_params *p)
{
    const struct layer_params *l = p->layers, *last = p->layers + p->n_layers - 1;
    while (l < last && !params_attends(l))
        l++;
    return l;
}

struct params_windows params_windows(const struct model_params *p)
{
    struct params_windows w = {0};
    for (uint32_t i = 0; i < p->n_layers; i++) {
        w.layers += p->layers[i].window > 0;
        w.largest = p->layers[i].window > w.largest ? p->layers[i].window : w.largest;
    }
    return w;
}

const struct rope_params *params_rope(const struct model_params *p, uint32_t layer)
{
    return p->windowed_rope.dims && p->layers[layer].window ? &p->windowed_rope : &p->rope;
}

uint32_t params_angles(const struct model_params *p)
{
    return p->rope.dims + p->windowed_rope.dims;
}

struct gating params_expert_gating(const struct model_params *p, uint32_t layer)
{
    return (struct gating){p->arch->activation, p->layers[layer].expert_limit};
}

struct gating params_shared_gating(const struct model_params *p, uint32_t layer)
{
    return (struct gating){p->arch->activation, p->layers[layer].shared_limit};
}

const char *params_host_dense(const struct model_params *p)
{
    if (params_has_mamba2(p))
        return "Mamba2";
    if (p->delta.k_dim > DELTA_KEY_MOST_ON_DEVICE)
        return "linear attention with keys of more than 128 values";
    return NULL;
}

uint32_t params_recurrent_layers(const struct model_params *p)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < p->n_layers; i++)
        n += params_is_recurrent(&p->layers[i]);
    return n;
}

void params_recurrent_index(const struct model_params *p, uint32_t *index)
{
    for (uint32_t layer = 0, n = 0; layer < p->n_layers; layer++) {
        index[layer] = n;
        n += params_is_recurrent(&p->layers[layer]);
    }
}

uint32_t params_convolved(const struct model_params *p)
{
    const struct delta_params *d = &p->delta;
    return d->v_heads ? 2 * d->k_heads * d->k_dim + d->v_heads * d->v_dim : p->d_model;
}

uint64_t params_head_state_floats(const struct model_params *p)
{
    const struct delta_params *d = &p->delta;
    return params_has_mamba2(p) ? mamba2_state_floats(d->k_dim, d->v_dim)
                                : delta_state_floats(d->k_dim, d->v_dim);
}

uint64_t params_layer_state_floats(const struct model_params *p)
{
    const struct delta_params *d = &p->delta;
    if (d->taps == 0)
        return 0;
    return (uint64_t)(d->taps - 1) * params_convolved(p) +
           (d->v_heads ? d->v_heads * params_head_state_floats(p) : 0);
}

uint64_t params_state_bytes(const struct model_params *p)
{
    return params_recurrent_layers(p) * params_layer_state_floats(p) * sizeof(float);
}

float params_query_scale(const struct model_params *p, uint32_t position)
{
    if (p->temperature_scale == 0)
        return 1;
    return (float)(1 + (double)p->temperature_scale * log1p(position / p->temperature_length));
}

uint32_t params_cache_rows(const struct model_params *p)
{
    return p->kv_rank ? 1 : 2; /* arch is NULL in shared memory */
}

uint32_t params_widest_input(const struct model_params *p)
{
    uint32_t widths[] = {
        p->d_model, params_most(p).attended,          p->q_rank, p->d_shared, p->d_expert,
        p->d_dense, p->delta.v_heads * p->delta.v_dim};
    uint32_t most = 0;
    for (size_t i = 0; i < sizeof widths / sizeof *widths; i++)
        most = larger(most, widths[i]);
    return most;
}

uint32_t params_head_input(const struct model_params *p)
{
    return larger(params_attention(p)->q_dim - p->rope.dims, p->kv_rank);
}
