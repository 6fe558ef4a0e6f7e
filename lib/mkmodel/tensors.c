/* The tensors of a model; see tensors.h. Names and shapes: llama.cpp's for these architectures. */
#include "mkmodel/tensors.h"

#include "base/checked.h"
#include "quant/quant.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool windowed(const struct plan *p, uint32_t layer)
{
    switch (p->arch->full) {
    case FULL_UNSAID:
        break;
    case FULL_SIXTH_AND_LAST:
        return (layer + 1) % 6 != 0 && layer + 1 < p->options.layers;
    case FULL_FIRST_AND_SIXTH:
        return (layer + 1) % 6 != 0 && layer != 0;
    case FULL_FIRST_OF_FOUR:
        return layer % 4 != 0;
    }
    return false;
}

struct mkmodel_heads mkmodel_heads_of(const struct plan *p, uint32_t layer)
{
    const struct mkmodel_options *o = &p->options;
    enum { SHARE = 4 }; /* of Gemma's key-value heads */
    struct mkmodel_heads h = {windowed(p, layer), o->heads, o->kv_heads, o->head_dim, o->head_dim};
    if (p->arch->narrow_values)
        h.value_dim = 2 * o->head_dim / 3;
    if (h.windowed && p->arch->windowed_queries) /* by whole groups of queries */
        h.heads += o->heads / o->kv_heads / 2 * o->kv_heads;
    if (h.windowed && p->arch->windowed_keys && o->heads % (2 * o->kv_heads) == 0)
        h.kv_heads *= 2;
    if (p->arch->gemma && !h.windowed) {
        h.kv_heads = o->kv_heads % SHARE ? 1 : o->kv_heads / SHARE;
        h.head_dim = h.value_dim = 2 * o->head_dim;
    }
    return h;
}

/* The requested type, or a type with a smaller block that divides the rows. */
static enum tensor_type type_that_fits(enum tensor_type type, uint64_t columns)
{
    if (columns % tensor_type_info(type)->block_values == 0)
        return type;
    return columns % tensor_type_info(TENSOR_Q8_0)->block_values == 0 ? TENSOR_Q8_0 : TENSOR_F16;
}

static struct planned_tensor *append(struct plan *p)
{
    if (p->count == p->capacity) {
        uint64_t capacity = p->capacity ? 2 * p->capacity : 64;
        struct planned_tensor *grown = realloc(p->tensors, capacity * sizeof *grown);
        if (!grown)
            return NULL;
        p->tensors = grown;
        p->capacity = capacity;
    }
    struct planned_tensor *t = &p->tensors[p->count++];
    memset(t, 0, sizeof *t);
    return t;
}

/* Adds a tensor of shape {columns, rows, matrices}; rows 0: a vector; matrices 0: one matrix. The
 * deviation of a matrix is spread / sqrt(columns), so that a product keeps the scale of its input;
 * that of a vector is `spread`. */
static bool add_tensor(struct plan *p, enum tensor_type type, float mean, float spread,
                       uint64_t columns, uint64_t rows, uint64_t matrices, const char *format, ...)
    __attribute__((format(printf, 8, 9)));

static bool add_tensor(struct plan *p, enum tensor_type type, float mean, float spread,
                       uint64_t columns, uint64_t rows, uint64_t matrices, const char *format, ...)
{
    struct planned_tensor *t = append(p);
    if (!t)
        return false;
    va_list args;
    va_start(args, format);
    vsnprintf(t->name, sizeof t->name, format, args);
    va_end(args);
    t->type = type_that_fits(type, columns);
    t->n_dims = matrices ? 3 : rows ? 2 : 1;
    t->ne[0] = columns;
    t->ne[1] = rows ? rows : 1;
    t->ne[2] = matrices ? matrices : 1;
    t->rows = t->ne[1] * t->ne[2];
    t->row_bytes = quant_row_bytes(t->type, columns);
    t->mean = mean;
    t->deviation = rows ? spread / sqrtf((float)columns) : spread;
    if (!checked_mul(t->rows, t->row_bytes, &t->bytes) ||
        !checked_add(p->bytes, t->bytes, &p->bytes))
        return false;
    p->other_type_count += t->type != type;
    return true;
}

static bool add_norm(struct plan *p, uint64_t width, const char *name)
{
    return add_tensor(p, TENSOR_F32, 1, 0.1f, width, 0, 0, "%s.weight", name) &&
           (!p->arch->norm_bias ||
            add_tensor(p, TENSOR_F32, 0, 0.1f, width, 0, 0, "%s.bias", name));
}

static bool add_layer_norm(struct plan *p, uint32_t layer, uint64_t width, const char *name)
{
    char full[64];
    snprintf(full, sizeof full, "blk.%u.%s", layer, name);
    return add_norm(p, width, full);
}

static bool add_bias(struct plan *p, uint32_t layer, uint64_t width, const char *name)
{
    return add_tensor(p, TENSOR_F32, 0, 0.3f, width, 0, 0, "blk.%u.%s.bias", layer, name);
}

/* ---- attention ---- */

/* Twice the spread for queries and keys, so that attention prefers some tokens. */
static bool add_projections(struct plan *p, uint32_t layer, uint64_t query, uint64_t key,
                            uint64_t value, enum tensor_type value_type)
{
    uint64_t hidden = p->options.hidden;
    if (p->arch->delta) /* each head's query and gate */
        query *= 2;
    if (p->arch->fused_qkv)
        return add_tensor(p, p->type, 0, 2, hidden, query + key + value, 0,
                          "blk.%u.attn_qkv.weight", layer);
    return add_tensor(p, p->type, 0, 2, hidden, query, 0, "blk.%u.attn_q.weight", layer) &&
           add_tensor(p, p->type, 0, 2, hidden, key, 0, "blk.%u.attn_k.weight", layer) &&
           add_tensor(p, value_type, 0, 1, hidden, value, 0, "blk.%u.attn_v.weight", layer);
}

static bool add_grouped_attention(struct plan *p, uint32_t layer, enum tensor_type value_type)
{
    const struct mkmodel_options *o = &p->options;
    struct mkmodel_heads h = mkmodel_heads_of(p, layer);
    uint64_t query = (uint64_t)h.heads * h.head_dim, key = (uint64_t)h.kv_heads * h.head_dim;
    uint64_t value = (uint64_t)h.kv_heads * h.value_dim, out = (uint64_t)h.heads * h.value_dim;
    bool ok = add_projections(p, layer, query, key, value, value_type) &&
              add_tensor(p, p->type, 0, 1, out, o->hidden, 0, "blk.%u.attn_output.weight", layer);
    if (ok && p->arch->qkv_bias)
        ok = add_bias(p, layer, query, "attn_q") && add_bias(p, layer, key, "attn_k") &&
             add_bias(p, layer, value, "attn_v");
    if (ok && p->arch->attention_bias)
        ok = add_bias(p, layer, o->hidden, "attn_output");
    if (ok && (p->arch->qk_norm || p->arch->qk_norm_whole)) {
        bool whole = p->arch->qk_norm_whole;
        ok = add_layer_norm(p, layer, whole ? query : o->head_dim, "attn_q_norm") &&
             add_layer_norm(p, layer, whole ? key : o->head_dim, "attn_k_norm");
    }
    if (ok && p->arch->sinks && (h.windowed || p->arch->full == FULL_UNSAID))
        ok = add_tensor(p, TENSOR_F32, 0, 1, h.heads, 0, 0, "blk.%u.attn_sinks.weight", layer);
    if (ok && p->arch->gate)
        ok =
            add_tensor(p, p->type, 0, 1, o->hidden, p->arch->gate == GATE_OF_VALUES ? out : h.heads,
                       0, "blk.%u.attn_gate.weight", layer);
    return ok;
}

/* Attention is not scaled: the norms of q and k keep its logits near 1. */
static bool add_gemma_attention(struct plan *p, uint32_t layer, enum tensor_type value_type)
{
    const struct mkmodel_options *o = &p->options;
    struct mkmodel_heads h = mkmodel_heads_of(p, layer);
    uint64_t hidden = o->hidden, query = (uint64_t)h.heads * h.head_dim;
    uint64_t key = (uint64_t)h.kv_heads * h.head_dim;
    float mean = 1 / sqrtf(sqrtf((float)h.head_dim));
    return add_tensor(p, p->type, 0, 1, hidden, query, 0, "blk.%u.attn_q.weight", layer) &&
           add_tensor(p, p->type, 0, 1, hidden, key, 0, "blk.%u.attn_k.weight", layer) &&
           (!h.windowed ||
            add_tensor(p, value_type, 0, 1, hidden, key, 0, "blk.%u.attn_v.weight", layer)) &&
           add_tensor(p, p->type, 0, 1, query, hidden, 0, "blk.%u.attn_output.weight", layer) &&
           add_tensor(p, TENSOR_F32, mean, 0.1f * mean, h.head_dim, 0, 0,
                      "blk.%u.attn_q_norm.weight", layer) &&
           add_tensor(p, TENSOR_F32, mean, 0.1f * mean, h.head_dim, 0, 0,
                      "blk.%u.attn_k_norm.weight", layer);
}

/* A head's query and key have head_dim plain values and rope_dim rotated ones, its value head_dim.
 */
static bool add_latent_attention(struct plan *p, uint32_t layer)
{
    const struct mkmodel_options *o = &p->options;
    uint64_t query = (uint64_t)o->heads * (o->head_dim + o->rope_dim);
    uint64_t value = (uint64_t)o->heads * o->head_dim;
    /* attn_k_b is stored transposed: a key sums over its rows. */
    float key_spread = 2 * sqrtf((float)o->head_dim / (float)o->kv_rank);
    bool ok;
    if (o->q_rank)
        ok = add_tensor(p, p->type, 0, 1, o->hidden, o->q_rank, 0, "blk.%u.attn_q_a.weight",
                        layer) &&
             add_layer_norm(p, layer, o->q_rank, "attn_q_a_norm") &&
             add_tensor(p, p->type, 0, 2, o->q_rank, query, 0, "blk.%u.attn_q_b.weight", layer);
    else
        ok = add_tensor(p, p->type, 0, 2, o->hidden, query, 0, "blk.%u.attn_q.weight", layer);
    return ok &&
           add_tensor(p, p->type, 0, 2, o->hidden, (uint64_t)o->kv_rank + o->rope_dim, 0,
                      "blk.%u.attn_kv_a_mqa.weight", layer) &&
           add_layer_norm(p, layer, o->kv_rank, "attn_kv_a_norm") &&
           add_tensor(p, p->type, 0, key_spread, o->head_dim, o->kv_rank, o->heads,
                      "blk.%u.attn_k_b.weight", layer) &&
           add_tensor(p, p->type, 0, 1, o->kv_rank, o->head_dim, o->heads, "blk.%u.attn_v_b.weight",
                      layer) &&
           add_tensor(p, p->type, 0, 1, value, o->hidden, 0, "blk.%u.attn_output.weight", layer);
}

/* Linear attention. The decays of a position, exp(ssm_a * softplus(about -1)), are near 0.7. */
static bool add_delta(struct plan *p, uint32_t layer)
{
    const struct mkmodel_options *o = &p->options;
    struct mkmodel_delta d = mkmodel_delta_of(o);
    uint64_t values = (uint64_t)d.v_heads * d.head_dim;
    uint64_t channels = 2 * (uint64_t)d.k_heads * d.head_dim + values;
    bool ok =
        add_tensor(p, p->type, 0, 1, o->hidden, channels, 0, "blk.%u.attn_qkv.weight", layer) &&
        add_tensor(p, p->type, 0, 1, o->hidden, values, 0, "blk.%u.attn_gate.weight", layer);
    if (ok && p->arch->delta_grouped)
        ok = add_tensor(p, TENSOR_F32, 0, 1, o->hidden, 2 * d.v_heads, 0, "blk.%u.ssm_ba.weight",
                        layer);
    else if (ok)
        ok = add_tensor(p, TENSOR_F32, 0, 1, o->hidden, d.v_heads, 0, "blk.%u.ssm_beta.weight",
                        layer) &&
             add_tensor(p, TENSOR_F32, 0, 1, o->hidden, d.v_heads, 0, "blk.%u.ssm_alpha.weight",
                        layer);
    return ok &&
           add_tensor(p, TENSOR_F32, 0, 1, MKMODEL_DELTA_TAPS, channels, 0,
                      "blk.%u.ssm_conv1d.weight", layer) &&
           add_tensor(p, TENSOR_F32, -1, 0.5f, d.v_heads, 0, 0, "blk.%u.ssm_dt.bias", layer) &&
           add_tensor(p, TENSOR_F32, -1, 0.1f, d.v_heads, 0, 0, "blk.%u.ssm_a", layer) &&
           add_layer_norm(p, layer, d.head_dim, "ssm_norm") &&
           add_tensor(p, p->type, 0, 1, values, o->hidden, 0, "blk.%u.ssm_out.weight", layer);
}

static bool add_convolution(struct plan *p, uint32_t layer)
{
    uint64_t hidden = p->options.hidden;
    return add_tensor(p, p->type, 0, 1, hidden, 3 * hidden, 0, "blk.%u.shortconv.in_proj.weight",
                      layer) &&
           add_tensor(p, TENSOR_F32, 0, 1, MKMODEL_CONVOLUTION_TAPS, hidden, 0,
                      "blk.%u.shortconv.conv.weight", layer) &&
           add_tensor(p, p->type, 0, 1, hidden, hidden, 0, "blk.%u.shortconv.out_proj.weight",
                      layer);
}

/* Decays as those of linear attention. */
static bool add_mamba2(struct plan *p, uint32_t block)
{
    const struct mkmodel_options *o = &p->options;
    struct mkmodel_mamba2 m = mkmodel_mamba2_of(o);
    uint64_t values = (uint64_t)m.heads * m.head_dim;
    uint64_t channels = values + 2 * (uint64_t)m.groups * m.states;
    return add_tensor(p, p->type, 0, 1, o->hidden, values + channels + m.heads, 0,
                      "blk.%u.ssm_in.weight", block) &&
           add_tensor(p, TENSOR_F32, 0, 1, MKMODEL_DELTA_TAPS, channels, 0,
                      "blk.%u.ssm_conv1d.weight", block) &&
           add_bias(p, block, channels, "ssm_conv1d") &&
           add_tensor(p, TENSOR_F32, -1, 0.5f, m.heads, 0, 0, "blk.%u.ssm_dt.bias", block) &&
           add_tensor(p, TENSOR_F32, -1, 0.1f, 1, m.heads, 0, "blk.%u.ssm_a", block) &&
           add_tensor(p, TENSOR_F32, 1, 0.1f, 1, m.heads, 0, "blk.%u.ssm_d", block) &&
           add_tensor(p, TENSOR_F32, 1, 0.1f, values / m.groups, m.groups, 0,
                      "blk.%u.ssm_norm.weight", block) &&
           add_tensor(p, p->type, 0, 1, values, o->hidden, 0, "blk.%u.ssm_out.weight", block);
}

static bool add_indexer(struct plan *p, uint32_t layer)
{
    const struct mkmodel_options *o = &p->options;
    uint32_t head = 2 * o->rope_dim;
    return add_tensor(p, p->type, 0, 1, o->q_rank, INDEXER_HEADS * head, 0,
                      "blk.%u.indexer.attn_q_b.weight", layer) &&
           add_tensor(p, p->type, 0, 1, o->hidden, head, 0, "blk.%u.indexer.attn_k.weight",
                      layer) &&
           add_tensor(p, TENSOR_F32, 1, 0, head, 0, 0, "blk.%u.indexer.k_norm.weight", layer) &&
           add_tensor(p, TENSOR_F32, 0, 0, head, 0, 0, "blk.%u.indexer.k_norm.bias", layer) &&
           add_tensor(p, TENSOR_F32, 0, 1, o->hidden, INDEXER_HEADS, 0,
                      "blk.%u.indexer.proj.weight", layer);
}

/* ---- feed-forward ---- */

/* suffix: "" for a dense layer, "_shexp" for the shared expert. */
static bool add_ffn(struct plan *p, uint32_t layer, uint64_t width, const char *suffix)
{
    uint64_t hidden = p->options.hidden;
    return (p->arch->ungated || add_tensor(p, p->type, 0, 1, hidden, width, 0,
                                           "blk.%u.ffn_gate%s.weight", layer, suffix)) &&
           add_tensor(p, p->type, 0, 1, hidden, width, 0, "blk.%u.ffn_up%s.weight", layer,
                      suffix) &&
           add_tensor(p, p->type, 0, 1, width, hidden, 0, "blk.%u.ffn_down%s.weight", layer,
                      suffix);
}

static bool add_router(struct plan *p, uint32_t layer)
{
    const struct mkmodel_options *o = &p->options;
    /* The gate spreads wider than other matrices, so that its choices have few near ties. */
    return add_tensor(p, TENSOR_F32, 0, 4, o->hidden, o->experts, 0, "blk.%u.ffn_gate_inp.weight",
                      layer) &&
           (!p->arch->router_bias || add_bias(p, layer, o->experts, "ffn_gate_inp")) &&
           (!(p->sigmoid || p->arch->selection_bias) || p->arch->selection_plain ||
            add_tensor(p, TENSOR_F32, 0, 0.05f, o->experts, 0, 0,
                       p->arch->selection_unsuffixed ? "blk.%u.exp_probs_b"
                                                     : "blk.%u.exp_probs_b.bias",
                       layer));
}

static bool add_expert_biases(struct plan *p, uint32_t layer)
{
    const struct mkmodel_options *o = &p->options;
    const struct {
        const char *name;
        uint64_t width;
    } biases[] = {{"ffn_gate_exps", o->expert_width},
                  {"ffn_up_exps", o->expert_width},
                  {"ffn_down_exps", o->hidden}};
    for (int i = 0; i < 3; i++) /* rows of biases, with the spread of vectors */
        if (!add_tensor(p, TENSOR_F32, 0, 0.1f * sqrtf((float)biases[i].width), biases[i].width,
                        o->experts, 0, "blk.%u.%s.bias", layer, biases[i].name))
            return false;
    return true;
}

static bool add_ones(struct plan *p, uint32_t layer, uint64_t width, const char *name)
{
    return add_tensor(p, TENSOR_F32, 1, 0.1f, width, 0, 0, "blk.%u.%s", layer, name);
}

/* The router divides its input by the root of its width. */
static bool add_gemma_experts(struct plan *p, uint32_t layer, enum tensor_type down_type)
{
    const struct mkmodel_options *o = &p->options;
    uint64_t hidden = o->hidden, width = o->expert_width;
    static const char *const norms[] = {"post_ffw_norm_1", "pre_ffw_norm_2", "post_ffw_norm_2"};
    bool ok = add_ffn(p, layer, o->shared_width, "");
    for (int i = 0; i < 3 && ok; i++)
        ok = add_layer_norm(p, layer, hidden, norms[i]);
    return ok &&
           add_tensor(p, TENSOR_F32, 0, 4 * sqrtf((float)hidden), hidden, o->experts, 0,
                      "blk.%u.ffn_gate_inp.weight", layer) &&
           add_ones(p, layer, hidden, "ffn_gate_inp.scale") &&
           add_tensor(p, p->type, 0, 1.5f, hidden, 2 * width, o->experts,
                      "blk.%u.ffn_gate_up_exps.weight", layer) &&
           add_tensor(p, down_type, 0, 1.5f, width, hidden, o->experts,
                      "blk.%u.ffn_down_exps.weight", layer) &&
           add_ones(p, layer, o->experts, "ffn_down_exps.scale") &&
           add_ones(p, layer, 1, "layer_output_scale.weight");
}

static bool add_experts(struct plan *p, uint32_t layer, enum tensor_type down_type)
{
    const struct mkmodel_options *o = &p->options;
    uint64_t hidden = o->hidden, width = o->expert_width;
    bool ok = add_router(p, layer) &&
              (p->arch->ungated || add_tensor(p, p->type, 0, 1.5f, hidden, width, o->experts,
                                              "blk.%u.ffn_gate_exps.weight", layer)) &&
              add_tensor(p, p->type, 0, 1.5f, hidden, width, o->experts,
                         "blk.%u.ffn_up_exps.weight", layer) &&
              add_tensor(p, down_type, 0, 1.5f, width, hidden, o->experts,
                         "blk.%u.ffn_down_exps.weight", layer);
    if (ok && p->arch->expert_bias)
        ok = add_expert_biases(p, layer);
    if (ok && p->arch->shared_expert)
        ok = add_ffn(p, layer, o->shared_width, "_shexp");
    if (ok && p->arch->shared_gate)
        ok = add_tensor(p, TENSOR_F32, 0, 1 / sqrtf((float)hidden), hidden, 0, 0,
                        "blk.%u.ffn_gate_inp_shexp.weight", layer);
    return ok;
}

/* ---- the model ---- */

/* A layer whose parts are blocks. */
static bool add_blocks(struct plan *p, uint32_t layer, enum tensor_type finer)
{
    uint32_t hidden = p->options.hidden, block = mkmodel_first_block(p, layer);
    bool ok = add_layer_norm(p, block, hidden, "attn_norm") && add_mamba2(p, block);
    block++;
    if (ok && mkmodel_attends(p, layer)) {
        ok =
            add_layer_norm(p, block, hidden, "attn_norm") && add_grouped_attention(p, block, finer);
        block++;
    }
    return ok && add_layer_norm(p, block, hidden, "attn_norm") && add_experts(p, block, finer);
}

static bool add_layer(struct plan *p, uint32_t layer)
{
    const struct mkmodel_options *o = &p->options;
    enum tensor_type finer = p->mixed && layer % 2 == 0 ? TENSOR_Q6_K : p->type;
    if (p->arch->mamba2)
        return add_blocks(p, layer, finer);
    bool ok = add_layer_norm(p, layer, o->hidden, "attn_norm");
    if (ok && !mkmodel_attends(p, layer))
        ok = p->arch->delta ? add_delta(p, layer) : add_convolution(p, layer);
    else if (ok && p->arch->latent)
        ok = add_latent_attention(p, layer) && (!p->arch->indexer || add_indexer(p, layer));
    else if (ok && p->arch->gemma)
        ok = add_gemma_attention(p, layer, finer);
    else if (ok)
        ok = add_grouped_attention(p, layer, finer);
    if (ok && p->arch->post_norms)
        ok = add_layer_norm(p, layer, o->hidden, "post_attention_norm") &&
             add_layer_norm(p, layer, o->hidden, "post_ffw_norm");
    if (ok && !p->arch->parallel)
        ok = add_layer_norm(p, layer, o->hidden, p->arch->ffn_norm);
    if (layer < o->dense_layers)
        return ok && add_ffn(p, layer, o->dense_width, "");
    if (p->arch->gemma)
        return ok && add_gemma_experts(p, layer, finer);
    return ok && add_experts(p, layer, finer);
}

/* ---- factors ---- */

static bool has_tensor(const struct plan *p, const char *name)
{
    for (uint64_t i = 0; i < p->count; i++)
        if (strcmp(p->tensors[i].name, name) == 0)
            return true;
    return false;
}

/* NVFP4 matrices get factors beside them, as converters write them: the 8-bit scales can then be as
 * large as they may, up to 448 times the largest 4-bit value, 6. Converters leave the embedding in
 * another type, so it has none. Where the architecture has a tensor of that name, it has that one.
 */
static bool add_factors(struct plan *p)
{
    const float most = 3.5f / (6 * 448); /* of a deviation; random.h */
    uint64_t count = p->count;
    for (uint64_t i = 0; i < count; i++) {
        const struct planned_tensor *t = &p->tensors[i];
        char name[GGUF_NAME_BYTES];
        int stem = (int)strlen(t->name) - (int)strlen(".weight");
        if (t->type != TENSOR_NVFP4 || stem < 0 || strcmp(t->name, "token_embd.weight") == 0)
            continue;
        snprintf(name, sizeof name, "%.*s.scale", stem, t->name);
        if (has_tensor(p, name))
            continue;
        float factor = p->tensors[i].factor = most * t->deviation;
        if (!add_tensor(p, TENSOR_F32, 0, 0, t->ne[2], 0, 0, "%s", name))
            return false;
        p->tensors[p->count - 1].factor = factor;
        p->tensors[p->count - 1].scale = true;
    }
    return true;
}

enum error_code tensors_list(struct plan *p, struct error *e)
{
    const struct mkmodel_options *o = &p->options;
    enum tensor_type head = p->mixed ? TENSOR_Q6_K : p->type;
    /* Embeddings have a deviation of 1, like the norms' outputs. */
    float embedding = p->arch->embedding_scale ? 1 : sqrtf((float)o->hidden);
    float logits = p->arch->logit_scale ? 2 / MKMODEL_LOGIT_SCALE : 2;
    bool ok = add_tensor(p, p->type, 0, embedding, o->hidden, o->vocab, 0, "token_embd.weight") &&
              add_norm(p, o->hidden, p->arch->convolutions ? "token_embd_norm" : "output_norm") &&
              add_tensor(p, head, 0, logits, o->hidden, o->vocab, 0, "output.weight");
    if (ok && p->arch->logits_bias)
        ok = add_tensor(p, TENSOR_F32, 0, 0.3f, o->vocab, 0, 0, "output.bias");
    if (ok && p->arch->rotary_factors) /* divisors of frequencies: never near 0 */
        ok = add_tensor(p, TENSOR_F32, 1.1f, 0.02f, o->head_dim / 2, 0, 0,
                        "rope_factors_short.weight") &&
             add_tensor(p, TENSOR_F32, 4, 0.5f, o->head_dim / 2, 0, 0, "rope_factors_long.weight");
    if (ok && p->arch->rope_freqs) /* divisors, too, of Gemma's heads of twice the width */
        ok = add_tensor(p, TENSOR_F32, 1, 0, p->arch->gemma ? o->head_dim : o->head_dim / 2, 0, 0,
                        "rope_freqs.weight");
    for (uint32_t layer = 0; ok && layer < o->layers; layer++)
        ok = add_layer(p, layer);
    if (ok)
        ok = add_factors(p);
    if (!ok)
        return error_set(e, ERROR_MEMORY, "no memory to plan a model of this size");
    return ERROR_OK;
}
