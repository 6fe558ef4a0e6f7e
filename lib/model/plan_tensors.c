/* Lists the tensors of a model by its architecture's row; see planner.h. */
#include "model/planner.h"

#include "base/checked.h"

#include <inttypes.h>
#include <stdio.h>

/* The name of a tensor of the block under way: "blk.7.PART.SUFFIX". */
struct tensor_name {
    char text[TENSOR_NAME_BYTES];
};

static struct tensor_name block_tensor(const struct planner *p, const char *part,
                                       const char *suffix)
{
    struct tensor_name name;
    snprintf(name.text, sizeof name.text, "blk.%" PRIu32 ".%s.%s", p->block, part, suffix);
    return name;
}

/* "blk.7.PART": a tensor without a suffix, or whose part has it. */
static struct tensor_name block_scalars(const struct planner *p, const char *part)
{
    struct tensor_name name;
    snprintf(name.text, sizeof name.text, "blk.%" PRIu32 ".%s", p->block, part);
    return name;
}

static void add_matrix(struct planner *p, const char *part, uint32_t rows, uint32_t cols)
{
    planner_add_matrix(p, block_tensor(p, part, "weight").text, rows, cols, 1);
}

static void add_vector(struct planner *p, const char *part, uint32_t rows)
{
    planner_add_vectors(p, block_tensor(p, part, "weight").text, rows, 1, false);
}

static void add_scales(struct planner *p, const char *part, uint32_t rows)
{
    planner_add_vectors(p, block_tensor(p, part, "scale").text, rows, 1, false);
}

/* required: one of the architecture's BIAS_*, or 0. */
static void add_bias(struct planner *p, const char *part, uint32_t rows, unsigned required)
{
    planner_add_vectors(p, block_tensor(p, part, "bias").text, rows, 1,
                        !(p->params->arch->biases & required));
}

/* The norm's weight, and its bias where the architecture's norm has one. */
static void add_norm(struct planner *p, const char *part, uint32_t rows)
{
    add_vector(p, part, rows);
    if (p->params->arch->norm == NORM_LAYER)
        planner_add_vectors(p, block_tensor(p, part, "bias").text, rows, 1, false);
}

static bool has_qk_norm(const struct planner *p)
{
    const struct architecture *arch = p->params->arch;
    if (arch->qk_norm_optional)
        return planner_has(p, block_tensor(p, "attn_q_norm", "weight").text) ||
               planner_has(p, block_tensor(p, "attn_k_norm", "weight").text);
    return arch->qk_norm || arch->qk_norm_whole;
}

/* q, k and v have a tensor each, or share one in this order. The same holds for their biases. */
static void plan_projections(struct planner *p, uint32_t layer)
{
    const struct model_params *m = p->params;
    const struct layer_params *l = &m->layers[layer];
    const struct {
        const char *part;
        uint32_t rows;
    } parts[] = {{"attn_q", l->n_heads * l->k_dim * (m->arch->query_gate ? 2 : 1)},
                 {"attn_k", l->n_kv_heads * l->k_dim},
                 {"attn_v", l->n_kv_heads * l->v_dim}};
    uint32_t rows = parts[0].rows + parts[1].rows + parts[2].rows;
    struct tensor_name whole = block_tensor(p, "attn_qkv", "weight");
    struct tensor_name whole_bias = block_tensor(p, "attn_qkv", "bias");
    struct pool_source fused = {.tensor = NULL}, fused_bias = fused;
    if (planner_has(p, whole.text))
        fused.tensor = planner_require(p, whole.text, rows, m->d_model, 1);
    if (planner_has(p, whole_bias.text))
        fused_bias.tensor = planner_require_vectors(p, whole_bias.text, rows, 1);
    /* v is k then */
    bool no_values = m->arch->value_norm && l->window == 0 && !fused.tensor &&
                     !planner_has(p, block_tensor(p, "attn_v", "weight").text);
    if (no_values && l->k_dim != l->v_dim && !p->failed)
        p->failed = error_set(p->e, ERROR_UNSUPPORTED,
                              "%s: layer %" PRIu32 " has no values, and keys of another size",
                              gguf_path(p->g, 0), layer);
    for (int i = 0; i < (no_values ? 2 : 3) && !p->failed; i++) {
        if (fused.tensor)
            planner_add_part(p, block_tensor(p, parts[i].part, "weight").text, &fused,
                             parts[i].rows, m->d_model, 1);
        else
            add_matrix(p, parts[i].part, parts[i].rows, m->d_model);
        if (fused_bias.tensor)
            planner_add_vector_part(p, block_tensor(p, parts[i].part, "bias").text, &fused_bias,
                                    parts[i].rows);
        else
            add_bias(p, parts[i].part, parts[i].rows, BIAS_QKV);
        fused.first_row += parts[i].rows;
        fused_bias.first_row = fused.first_row;
    }
    if (has_qk_norm(p)) {
        add_vector(p, "attn_q_norm", m->arch->qk_norm_whole ? parts[0].rows : l->k_dim);
        add_vector(p, "attn_k_norm", m->arch->qk_norm_whole ? parts[1].rows : l->k_dim);
    }
}

/* The matrices that expand the compressed row, one plane per head: k_b maps a head's q to the
 * compressed row's values, v_b maps those to the head's output. Older files have both in attn_kv_b:
 * a head's k rows, which the pool holds transposed, before its v rows. */
static void plan_latent_expansion(struct planner *p, uint32_t layer)
{
    const struct model_params *m = p->params;
    const struct layer_params *l = &m->layers[layer];
    uint32_t nope = l->q_dim - m->rope.dims, head = nope + l->o_dim;
    struct tensor_name k_b = block_tensor(p, "attn_k_b", "weight");
    struct tensor_name v_b = block_tensor(p, "attn_v_b", "weight");
    struct tensor_name both = block_tensor(p, "attn_kv_b", "weight");
    if (planner_has(p, k_b.text) || !planner_has(p, both.text)) {
        planner_add_matrix(p, k_b.text, m->kv_rank, nope, l->n_heads);
        planner_add_matrix(p, v_b.text, l->o_dim, m->kv_rank, l->n_heads);
        return;
    }
    struct pool_source source = {
        .tensor = planner_require(p, both.text, (uint64_t)l->n_heads * head, m->kv_rank, 1),
        .plane_rows = head,
        .transposed = true};
    planner_add_part(p, k_b.text, &source, m->kv_rank, nope, l->n_heads);
    source.first_row = nope;
    source.transposed = false;
    planner_add_part(p, v_b.text, &source, l->o_dim, m->kv_rank, l->n_heads);
}

static void plan_latent_attention(struct planner *p, uint32_t layer)
{
    const struct model_params *m = p->params;
    const struct layer_params *l = &m->layers[layer];
    if (m->q_rank) {
        add_matrix(p, "attn_q_a", m->q_rank, m->d_model);
        add_vector(p, "attn_q_a_norm", m->q_rank);
        add_matrix(p, "attn_q_b", l->n_heads * l->q_dim, m->q_rank);
    } else
        add_matrix(p, "attn_q", l->n_heads * l->q_dim, m->d_model);
    add_matrix(p, "attn_kv_a_mqa", l->k_dim, m->d_model);
    add_vector(p, "attn_kv_a_norm", m->kv_rank);
    plan_latent_expansion(p, layer);
}

/* The projections of linear attention. Early qwen3next files have them in ssm_in, a key head's q,
 * k, v and z after the other. There beta and alpha share a tensor in all files, too, each key
 * head's betas before its alphas. */
static void plan_delta_projections(struct planner *p)
{
    const struct model_params *m = p->params;
    uint32_t values = m->delta.v_heads * m->delta.v_dim, channels = params_convolved(m);
    struct tensor_name early = block_tensor(p, "ssm_in", "weight");
    if (m->arch->delta_grouped && planner_has(p, early.text))
        planner_add_matrix(p, early.text, channels + values, m->d_model, 1);
    else {
        add_matrix(p, "attn_qkv", channels, m->d_model);
        add_matrix(p, "attn_gate", values, m->d_model);
    }
    if (m->arch->delta_grouped)
        add_matrix(p, "ssm_ba", 2 * m->delta.v_heads, m->d_model);
    else {
        add_matrix(p, "ssm_beta", m->delta.v_heads, m->d_model);
        add_matrix(p, "ssm_alpha", m->delta.v_heads, m->d_model);
    }
}

static void plan_delta(struct planner *p)
{
    const struct model_params *m = p->params;
    const struct delta_params *d = &m->delta;
    add_norm(p, "attn_norm", m->d_model);
    plan_delta_projections(p);
    planner_add_vectors(p, block_tensor(p, "ssm_conv1d", "weight").text, d->taps,
                        params_convolved(m), false);
    planner_add_vectors(p, block_tensor(p, "ssm_dt", "bias").text, d->v_heads, 1, false);
    planner_add_vectors(p, block_scalars(p, "ssm_a").text, d->v_heads, 1, false);
    add_vector(p, "ssm_norm", d->v_dim);
    add_matrix(p, "ssm_out", m->d_model, d->v_heads * d->v_dim);
}

static bool has_sinks(const struct planner *p)
{
    return !p->params->arch->sinks_optional ||
           planner_has(p, block_tensor(p, "attn_sinks", "weight").text);
}

/* A row for each head, or for each value. */
static void plan_output_gate(struct planner *p, uint32_t layer)
{
    const struct model_params *m = p->params;
    const struct layer_params *l = &m->layers[layer];
    struct tensor_name name = block_tensor(p, "attn_gate", "weight");
    const struct gguf_tensor *t = gguf_tensor_find(p->g, name.text);
    if (!t && m->arch->output_gate_optional)
        return;
    bool by_value = t && t->n_dims > 1 && t->ne[1] != l->n_heads;
    planner_add_matrix(p, name.text, by_value ? l->n_heads * l->o_dim : l->n_heads, m->d_model, 1);
}

static void plan_attention(struct planner *p, uint32_t layer)
{
    const struct model_params *m = p->params;
    const struct layer_params *l = &m->layers[layer];
    add_norm(p, "attn_norm", m->d_model);
    if (m->arch->attention == ATTENTION_LATENT)
        plan_latent_attention(p, layer);
    else
        plan_projections(p, layer);
    add_matrix(p, "attn_output", m->d_model, l->n_heads * l->o_dim);
    add_bias(p, "attn_output", m->d_model, BIAS_ATTENTION_OUTPUT);
    if (m->arch->attention_sinks && has_sinks(p))
        add_vector(p, "attn_sinks", l->n_heads);
    if (m->arch->output_gate)
        plan_output_gate(p, layer);
}

static void plan_short_convolution(struct planner *p)
{
    const struct model_params *m = p->params;
    add_norm(p, "attn_norm", m->d_model);
    add_matrix(p, "shortconv.in_proj", 3 * m->d_model, m->d_model);
    planner_add_vectors(p, block_tensor(p, "shortconv.conv", "weight").text, m->delta.taps,
                        m->d_model, false);
    add_matrix(p, "shortconv.out_proj", m->d_model, m->d_model);
}

/* The input matrix gives z, then x, B and C, then dt: the pool has it in three. */
static void plan_mamba2(struct planner *p)
{
    const struct model_params *m = p->params;
    const struct delta_params *d = &m->delta;
    uint32_t values = d->v_heads * d->v_dim, channels = params_convolved(m);
    const struct {
        const char *suffix;
        uint32_t rows;
    } parts[] = {{"z", values}, {"xbc", channels}, {"dt", d->v_heads}};
    struct pool_source in = {.tensor =
                                 planner_require(p, block_tensor(p, "ssm_in", "weight").text,
                                                 values + channels + d->v_heads, m->d_model, 1)};
    add_norm(p, "attn_norm", m->d_model);
    for (int i = 0; i < 3; i++) {
        planner_add_part(p, block_tensor(p, "ssm_in", parts[i].suffix).text, &in, parts[i].rows,
                         m->d_model, 1);
        in.first_row += parts[i].rows;
    }
    planner_add_vectors(p, block_tensor(p, "ssm_conv1d", "weight").text, d->taps, channels, false);
    planner_add_vectors(p, block_tensor(p, "ssm_conv1d", "bias").text, channels, 1, false);
    planner_add_vectors(p, block_tensor(p, "ssm_dt", "bias").text, d->v_heads, 1, false);
    planner_add_vectors(p, block_scalars(p, "ssm_a").text, 1, d->v_heads, false);
    planner_add_vectors(p, block_scalars(p, "ssm_d").text, 1, d->v_heads, false);
    planner_add_vectors(p, block_tensor(p, "ssm_norm", "weight").text, values / d->k_heads,
                        d->k_heads, false);
    add_matrix(p, "ssm_out", m->d_model, values);
}

/* What mixes the positions. */
static void plan_mixer(struct planner *p, uint32_t layer)
{
    const struct layer_params *l = &p->params->layers[layer];
    p->block = l->blocks.recurrent;
    if (params_is_mamba2(l))
        plan_mamba2(p);
    switch (l->kind) {
    case LAYER_MAMBA2:
        return;
    case LAYER_DELTA_NET:
        plan_delta(p);
        return;
    case LAYER_SHORT_CONVOLUTION:
        plan_short_convolution(p);
        return;
    case LAYER_MAMBA2_ATTENTION:
    case LAYER_ATTENTION:
        p->block = l->blocks.attention;
        plan_attention(p, layer);
    }
}

static void plan_ffn(struct planner *p, uint32_t width)
{
    uint32_t d_model = p->params->d_model;
    add_matrix(p, "ffn_gate", width, d_model);
    add_matrix(p, "ffn_up", width, d_model);
    add_matrix(p, "ffn_down", d_model, width);
}

/* The gate of the shared expert is a vector in the file. It takes part in a product, so the pool
 * holds it as a matrix of one row. */
static void plan_shared_expert(struct planner *p)
{
    const struct model_params *m = p->params;
    if (m->arch->shared_expert_normed) {
        plan_ffn(p, m->d_shared);
        add_norm(p, m->arch->shared_norm, m->d_model);
        add_norm(p, "post_ffw_norm_1", m->d_model);
        add_norm(p, "post_ffw_norm_2", m->d_model);
        return;
    }
    if (activation_has_gate(m->arch->activation))
        add_matrix(p, "ffn_gate_shexp", m->d_shared, m->d_model);
    add_matrix(p, "ffn_up_shexp", m->d_shared, m->d_model);
    add_matrix(p, "ffn_down_shexp", m->d_model, m->d_shared);
    if (m->arch->shared_expert_gate)
        add_matrix(p, "ffn_gate_inp_shexp", 1, m->d_model);
}

/* Segments per slab: the fewest that keep a segment within segment_bytes. A segment is a whole
 * number of quantisation blocks of the down matrix (cut by columns) and of tile rows of gate and up
 * (cut by rows). */
static uint32_t choose_segments(uint32_t width, uint64_t expert_bytes, uint32_t block,
                                uint64_t segment_bytes)
{
    uint32_t granule = block > TILE_ROWS ? block : TILE_ROWS;
    uint32_t best = 1;
    for (uint32_t n = 1; n <= POOL_MAX_SEGMENTS; n++) {
        if (n > 1 && (width % n || (width / n) % granule))
            continue;
        best = n;
        if (expert_bytes / n <= segment_bytes)
            break;
    }
    return best;
}

/* Bytes of one expert's matrix in the file. */
static uint64_t matrix_bytes(const struct pool_source *s, uint32_t rows, uint32_t cols)
{
    const struct tensor_type_info *type = tensor_type_info(s->tensor->type);
    return (uint64_t)rows * cols / type->block_values * type->block_bytes;
}

static void lay_out_segments(struct planner *p, uint32_t layer)
{
    const struct model_params *m = p->params;
    const struct pool_expert_sources *from = &p->plan->experts[layer];
    struct pool_slabs *s = &p->plan->slabs[layer];
    uint32_t n_experts = m->router.n_experts;
    bool gated = from->gate.tensor != NULL;
    s->up_type = from->up.tensor->type;
    s->gate_type = gated ? from->gate.tensor->type : s->up_type;
    s->down_type = from->down.tensor->type;
    s->n_experts = n_experts;
    s->d_model = m->d_model;
    uint64_t expert_bytes = (gated ? matrix_bytes(&from->gate, m->d_expert, m->d_model) : 0) +
                            matrix_bytes(&from->up, m->d_expert, m->d_model) +
                            matrix_bytes(&from->down, m->d_model, m->d_expert);
    s->n_segments = choose_segments(m->d_expert, expert_bytes,
                                    tensor_type_info(s->down_type)->block_values, p->segment_bytes);
    s->segment_width = m->d_expert / s->n_segments;
    if (gated)
        s->up_offset = tile_matrix_bytes(from->gate.tensor->type, s->segment_width, m->d_model);
    s->down_offset =
        s->up_offset + tile_matrix_bytes(from->up.tensor->type, s->segment_width, m->d_model);
    s->segment_bytes =
        s->down_offset + tile_matrix_bytes(from->down.tensor->type, m->d_model, s->segment_width);
    if (from->gate_bias.tensor) {
        s->bias_offset = s->segment_bytes;
        s->segment_bytes += round_up(2 * sizeof(float) * s->segment_width, TILE_ALIGN);
        p->plan->header.parameters += 2ull * n_experts * m->d_expert;
    }
    s->slab_bytes = s->segment_bytes * s->n_segments;
    p->plan->header.expert_bytes += s->slab_bytes * n_experts;
    p->plan->header.parameters += (gated ? 3ull : 2ull) * n_experts * m->d_expert * m->d_model;
}

/* gate and up have a tensor each, or share one: an expert's gate rows before its up rows. There is
 * no gate where the activation takes none. */
static void find_expert_sources(struct planner *p, uint32_t layer)
{
    const struct model_params *m = p->params;
    struct pool_expert_sources *x = &p->plan->experts[layer];
    uint32_t width = m->d_expert, n = m->router.n_experts;
    struct tensor_name both = block_tensor(p, "ffn_gate_up_exps", "weight");
    if (activation_has_gate(m->arch->activation) && planner_has(p, both.text)) {
        const struct gguf_tensor *t = planner_require(p, both.text, 2ull * width, m->d_model, n);
        x->gate = (struct pool_source){.tensor = t, .plane_rows = 2 * width};
        x->up = (struct pool_source){.tensor = t, .first_row = width, .plane_rows = 2 * width};
    } else {
        if (activation_has_gate(m->arch->activation))
            x->gate.tensor = planner_require(p, block_tensor(p, "ffn_gate_exps", "weight").text,
                                             width, m->d_model, n);
        x->up.tensor =
            planner_require(p, block_tensor(p, "ffn_up_exps", "weight").text, width, m->d_model, n);
        x->gate.plane_rows = x->up.plane_rows = width;
    }
    x->down.tensor =
        planner_require(p, block_tensor(p, "ffn_down_exps", "weight").text, m->d_model, width, n);
    x->down.plane_rows = m->d_model;
    if (!(m->arch->biases & BIAS_EXPERTS))
        return;
    x->gate_bias.tensor =
        planner_require_vectors(p, block_tensor(p, "ffn_gate_exps", "bias").text, width, n);
    x->up_bias.tensor =
        planner_require_vectors(p, block_tensor(p, "ffn_up_exps", "bias").text, width, n);
    x->gate_bias.plane_rows = x->up_bias.plane_rows = 1;
    planner_add_vectors(p, block_tensor(p, "ffn_down_exps", "bias").text, m->d_model, n, false);
}

static void plan_experts(struct planner *p, uint32_t layer)
{
    const struct model_params *m = p->params;
    add_matrix(p, "ffn_gate_inp", m->router.n_experts, m->d_model);
    add_bias(p, "ffn_gate_inp", m->router.n_experts, BIAS_ROUTER);
    const char *selection_bias = architecture_selection_bias(m->arch);
    if (selection_bias)
        planner_add_vectors(p, block_scalars(p, selection_bias).text, m->router.n_experts, 1, true);
    if (m->arch->router_norm)
        add_scales(p, "ffn_gate_inp", m->d_model);
    if (m->arch->expert_scales)
        add_scales(p, "ffn_down_exps", m->router.n_experts);
    find_expert_sources(p, layer);
    if (!p->failed)
        lay_out_segments(p, layer);
    if (m->d_shared)
        plan_shared_expert(p);
}

static void plan_ends(struct planner *p)
{
    const struct model_params *m = p->params;
    planner_add_matrix(p, "token_embd.weight", m->vocab, m->d_model, 1);
    char norm[TENSOR_NAME_BYTES];
    snprintf(norm, sizeof norm, "%s.weight",
             m->arch->output_norm ? m->arch->output_norm : "output_norm");
    planner_add_vectors(p, norm, m->d_model, 1, false);
    if (m->arch->norm == NORM_LAYER)
        planner_add_vectors(p, "output_norm.bias", m->d_model, 1, false);
    if (planner_has(p, "output.weight") || !m->arch->tied_output)
        planner_add_matrix(p, "output.weight", m->vocab, m->d_model, 1);
    planner_add_vectors(p, "output.bias", m->vocab, 1, !(m->arch->biases & BIAS_OUTPUT));
    if (m->rope.scaling == ROPE_SCALING_LONG) {
        planner_add_vectors(p, "rope_factors_long.weight", m->rope.dims / 2, 1, false);
        planner_add_vectors(p, "rope_factors_short.weight", m->rope.dims / 2, 1, false);
    } else
        planner_add_vectors(p, "rope_freqs.weight",
                            m->arch->rope_half ? m->rope.dims : m->rope.dims / 2, 1,
                            !m->arch->windowed_heads);
}

static void plan_post_norms(struct planner *p)
{
    uint32_t d_model = p->params->d_model;
    add_norm(p, "post_attention_norm", d_model);
    add_norm(p, "post_ffw_norm", d_model);
    if (p->params->arch->output_scale)
        add_vector(p, "layer_output_scale", 1);
}

void plan_model(struct planner *p)
{
    const struct model_params *m = p->params;
    plan_ends(p);
    for (uint32_t layer = 0; layer < m->n_layers && !p->failed; layer++) {
        plan_mixer(p, layer);
        p->block = m->layers[layer].blocks.feed_forward;
        if (!m->arch->parallel)
            add_norm(p, m->arch->ffn_norm ? m->arch->ffn_norm : "ffn_norm", m->d_model);
        if (m->layers[layer].feed_forward == FEED_FORWARD_DENSE)
            plan_ffn(p, m->d_dense);
        else
            plan_experts(p, layer);
        if (m->arch->post_norms)
            plan_post_norms(p);
    }
}
