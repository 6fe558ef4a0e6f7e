/* Binding the dense weights; see weights.h. */
#include "weights.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

struct binder {
    const struct pool_map *map;
    struct error *e;
    enum error_code failed;
};

static const struct pool_tensor *find(struct binder *b, const char *name, bool optional,
                                      enum pool_tensor_form form, uint32_t rows, uint32_t cols)
{
    if (b->failed)
        return NULL;
    const struct pool_tensor *t = pool_map_find(b->map, name);
    if (!t && optional)
        return NULL;
    if (!t || t->form != form || t->rows != rows || t->cols != cols) {
        b->failed = error_set(b->e, ERROR_PROTOCOL,
                              "host pool: tensor '%s' of %" PRIu32 " x %" PRIu32 " is not there",
                              name, rows, cols);
        return NULL;
    }
    return t;
}

static struct matrix matrix(struct binder *b, const char *name, bool optional, uint32_t rows,
                            uint32_t cols)
{
    const struct pool_tensor *t = find(b, name, optional, POOL_MATRIX, rows, cols);
    if (!t)
        return (struct matrix){0};
    return (struct matrix){(enum tensor_type)t->type, rows, cols, b->map->base + t->offset};
}

static const float *vector(struct binder *b, const char *name, bool optional, uint32_t rows)
{
    const struct pool_tensor *t = find(b, name, optional, POOL_VECTOR, rows, 1);
    return t ? (const float *)(b->map->base + t->offset) : NULL;
}

static void bind_layer(struct binder *b, uint32_t layer, struct layer_weights *w)
{
    const struct model_params *p = &b->map->params;
    uint32_t q_rows = p->n_heads * p->k_dim, k_rows = p->n_kv_heads * p->k_dim;
    uint32_t v_rows = p->n_kv_heads * p->v_dim;
    char name[64];
#define NAME(suffix) (snprintf(name, sizeof name, "blk.%" PRIu32 "." suffix, layer), name)
    w->attn_norm = vector(b, NAME("attn_norm.weight"), false, p->d_model);
    w->ffn_norm = vector(b, NAME("ffn_norm.weight"), false, p->d_model);
    if (p->arch->qk_norm || p->arch->qk_norm_whole) {
        bool whole = p->arch->qk_norm_whole;
        w->q_norm = vector(b, NAME("attn_q_norm.weight"), false, whole ? q_rows : p->k_dim);
        w->k_norm = vector(b, NAME("attn_k_norm.weight"), false, whole ? k_rows : p->k_dim);
    }
    w->q = matrix(b, NAME("attn_q.weight"), false, q_rows, p->d_model);
    w->k = matrix(b, NAME("attn_k.weight"), false, k_rows, p->d_model);
    w->v = matrix(b, NAME("attn_v.weight"), false, v_rows, p->d_model);
    w->o = matrix(b, NAME("attn_output.weight"), false, p->d_model, p->n_heads * p->v_dim);
    w->q_bias = vector(b, NAME("attn_q.bias"), true, q_rows);
    w->k_bias = vector(b, NAME("attn_k.bias"), true, k_rows);
    w->v_bias = vector(b, NAME("attn_v.bias"), true, v_rows);
    if (layer < p->n_dense) {
        w->dense_gate = matrix(b, NAME("ffn_gate.weight"), false, p->d_dense, p->d_model);
        w->dense_up = matrix(b, NAME("ffn_up.weight"), false, p->d_dense, p->d_model);
        w->dense_down = matrix(b, NAME("ffn_down.weight"), false, p->d_model, p->d_dense);
        return;
    }
    w->router = matrix(b, NAME("ffn_gate_inp.weight"), false, p->n_experts, p->d_model);
    if (p->d_shared) {
        w->shared_gate = matrix(b, NAME("ffn_gate_shexp.weight"), false, p->d_shared, p->d_model);
        w->shared_up = matrix(b, NAME("ffn_up_shexp.weight"), false, p->d_shared, p->d_model);
        w->shared_down = matrix(b, NAME("ffn_down_shexp.weight"), false, p->d_model, p->d_shared);
        if (p->arch->shared_expert_gate)
            w->shared_gate_input =
                matrix(b, NAME("ffn_gate_inp_shexp.weight"), false, 1, p->d_model);
    }
}
#undef NAME

enum error_code weights_bind(const struct pool_map *map, struct model_weights *out,
                             struct error *e)
{
    const struct model_params *p = &map->params;
    struct binder b = {.map = map, .e = e};
    struct model_weights w = {.layers = calloc(p->n_layers, sizeof *w.layers)};
    if (!w.layers)
        return error_set(e, ERROR_MEMORY, "no memory for the table of weights");
    w.embedding = matrix(&b, "token_embd.weight", false, p->vocab, p->d_model);
    w.output = matrix(&b, "output.weight", p->arch->tied_output, p->vocab, p->d_model);
    if (!w.output.tiles)
        w.output = w.embedding;
    w.output_norm = vector(&b, "output_norm.weight", false, p->d_model);
    w.rope_factors = vector(&b, "rope_freqs.weight", true, p->rope_dims / 2);
    for (uint32_t layer = 0; layer < p->n_layers; layer++)
        bind_layer(&b, layer, &w.layers[layer]);
    if (b.failed) {
        weights_free(&w);
        return b.failed;
    }
    *out = w;
    return ERROR_OK;
}

void weights_free(struct model_weights *w)
{
    free(w->layers);
    w->layers = NULL;
}

bool weights_quantize(const struct matrix *m)
{
    return m->tiles && tensor_type_info(m->type)->block_values > 1;
}
