/* The keys of a model; see keys.h. */
#include "mkmodel/keys.h"

#include "mkmodel/tensors.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

struct keys {
    struct gguf_writer *writer;
    const struct plan *plan;
    char name[128]; /* of the current key */
};

static const char *arch_key(struct keys *k, const char *suffix)
{
    snprintf(k->name, sizeof k->name, "%s.%s", k->plan->arch->name, suffix);
    return k->name;
}

static void put_u32(struct keys *k, const char *suffix, uint32_t value)
{
    gguf_writer_u32(k->writer, arch_key(k, suffix), value);
}

static void put_f32(struct keys *k, const char *suffix, float value)
{
    gguf_writer_f32(k->writer, arch_key(k, suffix), value);
}

static void put_text(struct keys *k, const char *suffix, const char *text)
{
    gguf_writer_string(k->writer, arch_key(k, suffix), text, strlen(text));
}

/* Values of a head that rotate. */
static uint32_t rotated(const struct plan *p)
{
    const struct mkmodel_options *o = &p->options;
    if (p->arch->latent)
        return o->rope_dim;
    unsigned part = p->arch->rope_part;
    return part && o->head_dim >= 2 * part ? o->head_dim / (2 * part) * 2 : o->head_dim;
}

/* A list by layer, with 0 for short convolutions. */
static void put_kv_heads(struct keys *k)
{
    const struct mkmodel_options *o = &k->plan->options;
    int32_t heads[MKMODEL_MOST_LAYERS];
    for (uint32_t i = 0; i < o->layers; i++)
        heads[i] = mkmodel_attends(k->plan, i) ? (int32_t)o->kv_heads : 0;
    gguf_writer_i32s(k->writer, arch_key(k, "attention.head_count_kv"), heads, o->layers);
    put_u32(k, "shortconv.l_cache", MKMODEL_CONVOLUTION_TAPS);
}

/* Of blocks that are one part each: a number where the block is attention, one where it is experts.
 */
static void put_mamba2(struct keys *k)
{
    const struct mkmodel_options *o = &k->plan->options;
    struct mkmodel_mamba2 m = mkmodel_mamba2_of(o);
    uint32_t n_blocks = mkmodel_first_block(k->plan, o->layers);
    int32_t heads[MKMODEL_MOST_LAYERS] = {0}, widths[MKMODEL_MOST_LAYERS] = {0};
    for (uint32_t i = 0; i < o->layers; i++) {
        uint32_t experts = mkmodel_first_block(k->plan, i + 1) - 1;
        widths[experts] = (int32_t)o->expert_width;
        if (mkmodel_attends(k->plan, i))
            heads[experts - 1] = (int32_t)o->kv_heads;
    }
    gguf_writer_i32s(k->writer, arch_key(k, "attention.head_count_kv"), heads, n_blocks);
    gguf_writer_i32s(k->writer, arch_key(k, "feed_forward_length"), widths, n_blocks);
    put_u32(k, "ssm.conv_kernel", MKMODEL_DELTA_TAPS);
    put_u32(k, "ssm.state_size", m.states);
    put_u32(k, "ssm.group_count", m.groups);
    put_u32(k, "ssm.inner_size", m.heads * m.head_dim);
    put_u32(k, "ssm.time_step_rank", m.heads);
}

/* Of layers that have a window or none: their heads, as lists where they differ, and windows. */
static void put_windows(struct keys *k)
{
    const struct plan *p = k->plan;
    uint32_t layers = p->options.layers;
    int32_t heads[MKMODEL_MOST_LAYERS], kv_heads[MKMODEL_MOST_LAYERS];
    bool windowed[MKMODEL_MOST_LAYERS];
    for (uint32_t i = 0; i < layers; i++) {
        struct mkmodel_heads h = mkmodel_heads_of(p, i);
        heads[i] = (int32_t)h.heads;
        kv_heads[i] = (int32_t)h.kv_heads;
        windowed[i] = h.windowed;
    }
    if (p->arch->windowed_queries)
        gguf_writer_i32s(k->writer, arch_key(k, "attention.head_count"), heads, layers);
    else
        put_u32(k, "attention.head_count", p->options.heads);
    gguf_writer_i32s(k->writer, arch_key(k, "attention.head_count_kv"), kv_heads, layers);
    if (p->arch->window_pattern)
        gguf_writer_bools(k->writer, arch_key(k, "attention.sliding_window_pattern"), windowed,
                          layers);
    put_u32(k, "attention.sliding_window", p->options.window);
    put_f32(k, "rope.freq_base_swa", 10000.0f);
}

static void put_gemma_attention(struct keys *k)
{
    const struct plan *p = k->plan;
    const struct mkmodel_options *o = &p->options;
    uint32_t whole = mkmodel_heads_of(p, o->layers - 1).head_dim;
    put_u32(k, "attention.key_length", whole);
    put_u32(k, "attention.value_length", whole);
    put_u32(k, "attention.key_length_swa", o->head_dim);
    put_u32(k, "attention.value_length_swa", o->head_dim);
    put_u32(k, "attention.shared_kv_layers", 0);
    put_u32(k, "rope.dimension_count", whole);
    put_u32(k, "rope.dimension_count_swa", o->head_dim);
    put_f32(k, "final_logit_softcapping", 30.0f);
    put_u32(k, "embedding_length_per_layer_input", 0);
}

/* DeepSeek-V2's files count one key-value head of the cached row's size, and have further keys for
 * the heads' own sizes. */
static void put_attention(struct keys *k)
{
    const struct mkmodel_options *o = &k->plan->options;
    const struct mkmodel_arch *arch = k->plan->arch;
    bool latent = arch->latent;
    put_f32(k, "attention.layer_norm_rms_epsilon", 1e-6f);
    if (arch->layer_norm_eps)
        put_f32(k, "attention.layer_norm_epsilon", 1e-5f);
    put_f32(k, "rope.freq_base", 1000000.0f);
    if (arch->full)
        put_windows(k);
    else
        put_u32(k, "attention.head_count", o->heads);
    if (arch->gemma) {
        put_gemma_attention(k);
        return;
    }
    if (arch->convolutions)
        put_kv_heads(k);
    else if (arch->mamba2)
        put_mamba2(k);
    else if (!arch->full)
        put_u32(k, "attention.head_count_kv", latent ? 1 : o->kv_heads);
    put_u32(k, "attention.key_length", latent ? o->kv_rank + o->rope_dim : o->head_dim);
    put_u32(k, "attention.value_length",
            latent ? o->kv_rank : mkmodel_heads_of(k->plan, 0).value_dim);
    put_u32(k, "rope.dimension_count", rotated(k->plan));
    if (arch->windowed_rope && arch->rope_part == 2)
        put_u32(k, "rope.dimension_count_swa", o->head_dim);
    if (arch->value_scale)
        put_f32(k, "attention.value_scale", 0.707f);
    if (latent) {
        if (o->q_rank)
            put_u32(k, "attention.q_lora_rank", o->q_rank);
        put_u32(k, "attention.kv_lora_rank", o->kv_rank);
        put_u32(k, "attention.key_length_mla", o->head_dim + o->rope_dim);
        put_u32(k, "attention.value_length_mla", o->head_dim);
    }
    if (arch->indexer) {
        put_u32(k, "attention.indexer.head_count", INDEXER_HEADS);
        put_u32(k, "attention.indexer.key_length", 2 * o->rope_dim);
        put_u32(k, "attention.indexer.top_k", INDEXER_TOP_K);
    }
    if (arch->window && !arch->full)
        put_u32(k, "attention.sliding_window", o->window);
}

/* The pairs of a head that turn by each axis of an image's position. A token of text has the same
 * position on all axes. */
static void put_rope_sections(struct keys *k)
{
    uint32_t rope_part = k->plan->arch->rope_part ? k->plan->arch->rope_part : 1;
    int32_t pairs = (int32_t)(k->plan->options.head_dim / rope_part) / 2, part = pairs / 3;
    const int32_t sections[] = {pairs - 2 * part, part, part, 0};
    gguf_writer_i32s(k->writer, arch_key(k, "rope.dimension_sections"), sections, 4);
}

static void put_delta(struct keys *k)
{
    struct mkmodel_delta d = mkmodel_delta_of(&k->plan->options);
    put_u32(k, "full_attention_interval", mkmodel_attention_interval(&k->plan->options));
    put_u32(k, "ssm.conv_kernel", MKMODEL_DELTA_TAPS);
    put_u32(k, "ssm.state_size", d.head_dim);
    put_u32(k, "ssm.group_count", d.k_heads);
    put_u32(k, "ssm.time_step_rank", d.v_heads);
    put_u32(k, "ssm.inner_size", d.v_heads * d.head_dim);
}

/* The context is four times the original one. */
static void put_rope_scaling(struct keys *k)
{
    uint32_t ctx = k->plan->options.ctx, original = ctx / 4 ? ctx / 4 : 1;
    if (k->plan->arch->yarn) {
        put_text(k, "rope.scaling.type", "yarn");
        put_f32(k, "rope.scaling.factor", 4);
        put_u32(k, "rope.scaling.original_context_length", original);
        if (k->plan->arch->latent)
            put_f32(k, "rope.scaling.yarn_log_multiplier", 0.0707f);
    }
    if (k->plan->arch->rotary_factors) {
        put_u32(k, "rope.scaling.original_context_length", original);
        put_f32(k, "rope.scaling.attn_factor",
                original > 1 ? sqrtf(1 + logf(4) / logf((float)original)) : 1);
    }
}

static void put_router(struct keys *k)
{
    const struct mkmodel_options *o = &k->plan->options;
    const struct mkmodel_arch *arch = k->plan->arch;
    bool sigmoid = k->plan->sigmoid;
    if (arch->weights_scale)
        put_f32(k, "expert_weights_scale", sigmoid ? 2.5f : 1);
    if ((arch->router_keys && !arch->mamba2) || arch->gating_key)
        put_u32(k, "expert_gating_func", sigmoid ? 2 : 1);
    if (!arch->router_keys)
        return;
    gguf_writer_bool(k->writer, arch_key(k, "expert_weights_norm"), sigmoid);
    if (o->groups) {
        put_u32(k, "expert_group_count", o->groups);
        put_u32(k, "expert_group_used_count", o->groups_used);
    }
}

/* Of the last layer's experts, as in the published model. */
static void put_limits(struct keys *k)
{
    float limits[MKMODEL_MOST_LAYERS] = {0};
    uint32_t layers = k->plan->options.layers;
    limits[layers - 1] = 7;
    gguf_writer_f32s(k->writer, arch_key(k, "swiglu_clamp_exp"), limits, layers);
    limits[layers - 1] = 16;
    gguf_writer_f32s(k->writer, arch_key(k, "swiglu_clamp_shexp"), limits, layers);
}

static void put_experts(struct keys *k)
{
    const struct mkmodel_options *o = &k->plan->options;
    const struct mkmodel_arch *arch = k->plan->arch;
    if (!arch->mamba2)
        put_u32(k, "feed_forward_length",
                arch->dense_layers ? o->dense_width
                : arch->gemma      ? o->shared_width
                                   : o->expert_width);
    put_u32(k, "expert_count", o->experts);
    put_u32(k, "expert_used_count", o->top_k);
    if (arch->expert_width)
        put_u32(k, "expert_feed_forward_length", o->expert_width);
    if (arch->shared_width && !arch->gemma)
        put_u32(k, "expert_shared_feed_forward_length", o->shared_width);
    else if (arch->shared_expert && !arch->gemma)
        put_u32(k, "expert_shared_count", o->shared_width / o->expert_width);
    if (arch->shared_both)
        put_u32(k, "expert_shared_feed_forward_length", o->shared_width);
    if (arch->limits)
        put_limits(k);
    if (arch->dense_layers && !arch->dense_unsaid)
        put_u32(k, "leading_dense_block_count", o->dense_layers);
    if (arch->layer_step)
        put_u32(k, "interleave_moe_layer_step", 1);
    put_router(k);
}

void keys_write(struct gguf_writer *w, const struct plan *p)
{
    const struct mkmodel_options *o = &p->options;
    struct keys k = {.writer = w, .plan = p};
    char name[128];
    int len = snprintf(name, sizeof name, "random %s, seed %" PRIu64, o->arch, o->seed);
    gguf_writer_string(w, "general.architecture", o->arch, strlen(o->arch));
    gguf_writer_string(w, "general.name", name, (size_t)len);
    gguf_writer_u32(w, "general.file_type", p->file_type);
    gguf_writer_u32(w, "general.quantization_version", 2);
    put_u32(&k, "vocab_size", o->vocab);
    put_u32(&k, "block_count", mkmodel_first_block(p, o->layers));
    put_u32(&k, "context_length", o->ctx);
    put_u32(&k, "embedding_length", o->hidden);
    put_attention(&k);
    put_rope_scaling(&k);
    if (p->arch->delta)
        put_delta(&k);
    if (p->arch->rope_sections)
        put_rope_sections(&k);
    if (p->arch->deepstack)
        put_u32(&k, "n_deepstack_layers", 3);
    if (p->arch->logit_scale)
        put_f32(&k, "logit_scale", MKMODEL_LOGIT_SCALE);
    put_experts(&k);
}
