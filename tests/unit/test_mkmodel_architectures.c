/* Random models of each architecture: the tensors and keys that its converters write, listed here
 * by hand, and the parameters that moed reads from the file. */
#include "gguf/gguf.h"
#include "mkmodel/mkmodel.h"
#include "model/params.h"
#include "model/pool_plan.h"
#include "model/serving_limits.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char path[64];

static int make_path(void **state)
{
    strcpy(path, "/tmp/moed-test-architectures-XXXXXX");
    int fd = mkstemp(path);
    return fd < 0 ? -1 : close(fd);
}

static int remove_path(void **state)
{
    return unlink(path);
}

/* Two layers; a head has 32 values, or 32 plain and 16 rotated ones. */
static void tiny(struct mkmodel_options *o, const char *arch)
{
    mkmodel_defaults(o);
    o->arch = arch;
    o->type = "F32";
    o->layers = 2;
    o->hidden = 64;
    o->heads = 4;
    o->kv_heads = 2;
    o->head_dim = 32;
    o->experts = 8;
    o->top_k = 3;
    o->expert_width = 96;
    o->vocab = 400;
    o->ctx = 1024;
}

static struct gguf *make(const struct mkmodel_options *o)
{
    struct mkmodel_result result;
    struct error e = {0};
    struct gguf *g = NULL;
    if (mkmodel_write(o, path, NULL, NULL, &result, &e) != ERROR_OK)
        fail_msg("%s: %s", o->arch, e.text);
    if (gguf_open(path, &g, &e) != ERROR_OK)
        fail_msg("%s: %s", o->arch, e.text);
    return g;
}

struct shape {
    const char *name;
    uint64_t columns, rows, matrices;
};

/* Names without "token" or "output" at their start are those of layer 1. */
static void expect(const struct gguf *g, const struct shape *shapes, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        char name[80];
        bool layer = strncmp(shapes[i].name, "token", 5) && strncmp(shapes[i].name, "output", 6) &&
                     strncmp(shapes[i].name, "rope", 4);
        snprintf(name, sizeof name, "%s%s", layer ? "blk.1." : "", shapes[i].name);
        const struct gguf_tensor *t = gguf_tensor_find(g, name);
        if (!t)
            fail_msg("tensor %s is missing", name);
        if (t->ne[0] != shapes[i].columns || t->ne[1] != shapes[i].rows ||
            t->ne[2] != shapes[i].matrices)
            fail_msg("tensor %s is %u x %u x %u", name, (unsigned)t->ne[0], (unsigned)t->ne[1],
                     (unsigned)t->ne[2]);
    }
}

#define EXPECT(g, shapes) expect(g, shapes, sizeof shapes / sizeof shapes[0])

/* The tensors of layer 1. */
static uint64_t layer_tensors(const struct gguf *g)
{
    uint64_t count = 0;
    for (uint64_t i = 0; i < gguf_tensor_count(g); i++)
        count += strncmp(gguf_tensor_at(g, i)->name, "blk.1.", 6) == 0;
    return count;
}

static uint32_t key(const struct gguf *g, const char *name)
{
    struct error e = {0};
    uint32_t value;
    if (gguf_get_u32(g, name, &value, &e) != ERROR_OK)
        fail_msg("%s", e.text);
    return value;
}

static const struct shape ends[] = {
    {"token_embd.weight", 64, 400, 1},
    {"output_norm.weight", 64, 1, 1},
    {"output.weight", 64, 400, 1},
};

static const struct shape experts[] = {
    {"ffn_gate_inp.weight", 64, 8, 1},
    {"ffn_gate_exps.weight", 64, 96, 8},
    {"ffn_up_exps.weight", 64, 96, 8},
    {"ffn_down_exps.weight", 96, 64, 8},
};

static const struct shape grouped[] = {
    {"attn_norm.weight", 64, 1, 1},     {"attn_q.weight", 64, 128, 1},
    {"attn_k.weight", 64, 64, 1},       {"attn_v.weight", 64, 64, 1},
    {"attn_output.weight", 128, 64, 1},
};

static void test_olmoe(void **state)
{
    static const struct shape own[] = {
        {"ffn_norm.weight", 64, 1, 1},
        {"attn_q_norm.weight", 128, 1, 1},
        {"attn_k_norm.weight", 64, 1, 1},
    };
    struct mkmodel_options o;
    tiny(&o, "olmoe");
    struct gguf *g = make(&o);
    EXPECT(g, ends);
    EXPECT(g, grouped);
    EXPECT(g, experts);
    EXPECT(g, own);
    assert_int_equal(layer_tensors(g), 5 + 4 + 3);
    assert_int_equal(key(g, "olmoe.feed_forward_length"), 96);
    gguf_close(g);
}

static void test_deepseek(void **state)
{
    static const struct shape own[] = {
        {"ffn_norm.weight", 64, 1, 1},
        {"ffn_gate_shexp.weight", 64, 192, 1},
        {"ffn_up_shexp.weight", 64, 192, 1},
        {"ffn_down_shexp.weight", 192, 64, 1},
    };
    struct mkmodel_options o;
    tiny(&o, "deepseek");
    o.shared_width = 192;
    o.dense_width = 80;
    struct gguf *g = make(&o);
    EXPECT(g, ends);
    EXPECT(g, grouped);
    EXPECT(g, experts);
    EXPECT(g, own);
    assert_int_equal(layer_tensors(g), 5 + 4 + 4);
    assert_null(gguf_tensor_find(g, "blk.0.ffn_gate_inp.weight"));
    assert_int_equal(gguf_tensor_find(g, "blk.0.ffn_down.weight")->ne[0], 80);
    assert_int_equal(key(g, "deepseek.leading_dense_block_count"), 1);
    assert_int_equal(key(g, "deepseek.feed_forward_length"), 80);
    assert_int_equal(key(g, "deepseek.expert_feed_forward_length"), 96);
    assert_int_equal(key(g, "deepseek.expert_shared_count"), 2);
    gguf_close(g);
}

/* Heads of 32 + 16 values, a latent vector of 40. */
static void test_deepseek2(void **state)
{
    static const struct shape own[] = {
        {"attn_norm.weight", 64, 1, 1},      {"attn_kv_a_mqa.weight", 64, 56, 1},
        {"attn_kv_a_norm.weight", 40, 1, 1}, {"attn_k_b.weight", 32, 40, 4},
        {"attn_v_b.weight", 40, 32, 4},      {"attn_output.weight", 128, 64, 1},
        {"ffn_norm.weight", 64, 1, 1},       {"ffn_gate_shexp.weight", 64, 96, 1},
        {"ffn_up_shexp.weight", 64, 96, 1},  {"ffn_down_shexp.weight", 96, 64, 1},
    };
    static const struct shape whole_query[] = {{"attn_q.weight", 64, 192, 1}};
    static const struct shape compressed_query[] = {
        {"attn_q_a.weight", 64, 24, 1},
        {"attn_q_a_norm.weight", 24, 1, 1},
        {"attn_q_b.weight", 24, 192, 1},
        {"exp_probs_b.bias", 8, 1, 1},
    };
    struct mkmodel_options o;
    tiny(&o, "deepseek2");
    o.kv_rank = 40;
    struct gguf *g = make(&o);
    EXPECT(g, ends);
    EXPECT(g, experts);
    EXPECT(g, own);
    EXPECT(g, whole_query);
    assert_int_equal(layer_tensors(g), 4 + 10 + 1);
    assert_int_equal(key(g, "deepseek2.attention.head_count_kv"), 1);
    assert_int_equal(key(g, "deepseek2.attention.key_length"), 56);
    assert_int_equal(key(g, "deepseek2.attention.value_length"), 40);
    assert_int_equal(key(g, "deepseek2.attention.key_length_mla"), 48);
    assert_int_equal(key(g, "deepseek2.attention.value_length_mla"), 32);
    assert_int_equal(key(g, "deepseek2.attention.kv_lora_rank"), 40);
    assert_int_equal(key(g, "deepseek2.rope.dimension_count"), 16);
    assert_int_equal(key(g, "deepseek2.expert_gating_func"), 1);
    assert_null(gguf_find(g, "deepseek2.attention.q_lora_rank"));
    gguf_close(g);

    o.q_rank = 24;
    o.gate = "sigmoid";
    o.groups = 4;
    g = make(&o);
    EXPECT(g, own);
    EXPECT(g, compressed_query);
    assert_int_equal(layer_tensors(g), 4 + 10 + 4);
    assert_int_equal(key(g, "deepseek2.attention.q_lora_rank"), 24);
    assert_int_equal(key(g, "deepseek2.expert_gating_func"), 2);
    assert_int_equal(key(g, "deepseek2.expert_group_count"), 4);
    assert_int_equal(key(g, "deepseek2.expert_group_used_count"), 2);
    gguf_close(g);
}

static void test_phimoe(void **state)
{
    static const struct shape own[] = {
        {"output_norm.bias", 64, 1, 1},
        {"output.bias", 400, 1, 1},
        {"rope_factors_long.weight", 16, 1, 1},
        {"rope_factors_short.weight", 16, 1, 1},
        {"attn_norm.bias", 64, 1, 1},
        {"attn_q.bias", 128, 1, 1},
        {"attn_k.bias", 64, 1, 1},
        {"attn_v.bias", 64, 1, 1},
        {"attn_output.bias", 64, 1, 1},
        {"ffn_norm.weight", 64, 1, 1},
        {"ffn_norm.bias", 64, 1, 1},
    };
    struct mkmodel_options o;
    tiny(&o, "phimoe");
    struct gguf *g = make(&o);
    EXPECT(g, ends);
    EXPECT(g, grouped);
    EXPECT(g, experts);
    EXPECT(g, own);
    assert_int_equal(layer_tensors(g), 5 + 4 + 7);
    assert_int_equal(gguf_tensor_count(g), 3 + 4 + 2 * 16);
    assert_int_equal(key(g, "phimoe.rope.scaling.original_context_length"), 256);
    gguf_close(g);
}

static void test_gpt_oss(void **state)
{
    static const struct shape own[] = {
        {"attn_q.bias", 128, 1, 1},     {"attn_k.bias", 64, 1, 1},
        {"attn_v.bias", 64, 1, 1},      {"attn_output.bias", 64, 1, 1},
        {"attn_sinks.weight", 4, 1, 1}, {"post_attention_norm.weight", 64, 1, 1},
        {"ffn_gate_inp.bias", 8, 1, 1}, {"ffn_gate_exps.bias", 96, 8, 1},
        {"ffn_up_exps.bias", 96, 8, 1}, {"ffn_down_exps.bias", 64, 8, 1},
    };
    struct mkmodel_options o;
    tiny(&o, "gpt-oss");
    struct gguf *g = make(&o);
    EXPECT(g, ends);
    EXPECT(g, grouped);
    EXPECT(g, experts);
    EXPECT(g, own);
    assert_int_equal(layer_tensors(g), 5 + 4 + 10);
    assert_int_equal(key(g, "gpt-oss.attention.sliding_window"), 128);
    assert_int_equal(key(g, "gpt-oss.expert_feed_forward_length"), 96);
    gguf_close(g);
}

static void test_glm4moe(void **state)
{
    static const struct shape own[] = {
        {"post_attention_norm.weight", 64, 1, 1},
        {"attn_q.bias", 128, 1, 1},
        {"attn_k.bias", 64, 1, 1},
        {"attn_v.bias", 64, 1, 1},
        {"attn_q_norm.weight", 32, 1, 1},
        {"attn_k_norm.weight", 32, 1, 1},
        {"exp_probs_b.bias", 8, 1, 1},
        {"ffn_gate_shexp.weight", 64, 96, 1},
        {"ffn_up_shexp.weight", 64, 96, 1},
        {"ffn_down_shexp.weight", 96, 64, 1},
    };
    struct mkmodel_options o;
    tiny(&o, "glm4moe");
    struct gguf *g = make(&o);
    EXPECT(g, ends);
    EXPECT(g, grouped);
    EXPECT(g, experts);
    EXPECT(g, own);
    assert_int_equal(layer_tensors(g), 5 + 4 + 10);
    assert_int_equal(key(g, "glm4moe.rope.dimension_count"), 16);
    assert_int_equal(key(g, "glm4moe.expert_gating_func"), 2);
    assert_int_equal(key(g, "glm4moe.expert_shared_count"), 1);
    assert_int_equal(key(g, "glm4moe.leading_dense_block_count"), 1);
    gguf_close(g);
}

static void test_minimax_m2(void **state)
{
    static const struct shape own[] = {
        {"ffn_norm.weight", 64, 1, 1},
        {"attn_q_norm.weight", 128, 1, 1},
        {"attn_k_norm.weight", 64, 1, 1},
        {"exp_probs_b.bias", 8, 1, 1},
    };
    struct mkmodel_options o;
    tiny(&o, "minimax-m2");
    struct gguf *g = make(&o);
    EXPECT(g, grouped);
    EXPECT(g, experts);
    EXPECT(g, own);
    assert_int_equal(layer_tensors(g), 5 + 4 + 4);
    assert_int_equal(key(g, "minimax-m2.rope.dimension_count"), 16);
    assert_int_equal(key(g, "minimax-m2.expert_gating_func"), 2);
    assert_null(gguf_find(g, "minimax-m2.expert_weights_norm"));
    gguf_close(g);
}

static void test_bailingmoe2(void **state)
{
    static const struct shape own[] = {
        {"attn_qkv.weight", 64, 256, 1},    {"attn_output.weight", 128, 64, 1},
        {"attn_q_norm.weight", 32, 1, 1},   {"exp_probs_b.bias", 8, 1, 1},
        {"ffn_up_shexp.weight", 64, 96, 1},
    };
    struct mkmodel_options o;
    tiny(&o, "bailingmoe2");
    o.groups = 4;
    struct gguf *g = make(&o);
    EXPECT(g, experts);
    EXPECT(g, own);
    assert_int_equal(layer_tensors(g), 1 + 2 + 2 + 1 + 4 + 1 + 3);
    assert_int_equal(key(g, "bailingmoe2.expert_group_count"), 4);
    gguf_close(g);
}

/* Layer 1 is linear attention, layer 3 attention with a gate. Heads of linear attention: 4 of keys
 * and 8 of values, of 16 each. */
static void test_delta(void **state)
{
    static const struct shape own[] = {
        {"post_attention_norm.weight", 64, 1, 1},
        {"attn_norm.weight", 64, 1, 1},
        {"attn_qkv.weight", 64, 256, 1},
        {"attn_gate.weight", 64, 128, 1},
        {"ssm_conv1d.weight", 4, 256, 1},
        {"ssm_dt.bias", 8, 1, 1},
        {"ssm_a", 8, 1, 1},
        {"ssm_norm.weight", 16, 1, 1},
        {"ssm_out.weight", 128, 64, 1},
        {"ffn_gate_inp_shexp.weight", 64, 1, 1},
        {"ffn_up_shexp.weight", 64, 96, 1},
    };
    static const struct shape apart[] = {{"ssm_alpha.weight", 64, 8, 1},
                                         {"ssm_beta.weight", 64, 8, 1}};
    static const struct shape together[] = {{"ssm_ba.weight", 64, 16, 1}};
    struct mkmodel_options o;
    for (int i = 0; i < 2; i++) {
        tiny(&o, i ? "qwen3next" : "qwen35moe");
        o.layers = 4;
        struct gguf *g = make(&o);
        EXPECT(g, experts);
        EXPECT(g, own);
        if (i)
            EXPECT(g, together);
        else
            EXPECT(g, apart);
        assert_int_equal(layer_tensors(g), 2 + 7 + (i ? 1 : 2) + 4 + 4);
        assert_int_equal(gguf_tensor_find(g, "blk.3.attn_q.weight")->ne[1], 256);
        assert_non_null(gguf_tensor_find(g, "blk.3.attn_k_norm.weight"));
        assert_null(gguf_tensor_find(g, "blk.3.ssm_a"));
        assert_int_equal(key(g, i ? "qwen3next.ssm.inner_size" : "qwen35moe.ssm.inner_size"), 128);
        gguf_close(g);
    }
}

/* Layer 1 is a short convolution, layer 3 attention. */
static void test_convolutions(void **state)
{
    static const struct shape own[] = {
        {"attn_norm.weight", 64, 1, 1},           {"ffn_norm.weight", 64, 1, 1},
        {"shortconv.in_proj.weight", 64, 192, 1}, {"shortconv.conv.weight", 3, 64, 1},
        {"shortconv.out_proj.weight", 64, 64, 1}, {"exp_probs_b.bias", 8, 1, 1},
    };
    struct mkmodel_options o;
    tiny(&o, "lfm2moe");
    o.layers = 4;
    struct gguf *g = make(&o);
    EXPECT(g, experts);
    EXPECT(g, own);
    assert_int_equal(layer_tensors(g), 6 + 4);
    assert_non_null(gguf_tensor_find(g, "blk.3.attn_q_norm.weight"));
    assert_non_null(gguf_tensor_find(g, "token_embd_norm.weight"));
    assert_null(gguf_tensor_find(g, "output_norm.weight"));
    assert_int_equal(key(g, "lfm2moe.shortconv.l_cache"), 3);
    gguf_close(g);
}

/* A block of the file is one part. Block 0 is Mamba2, block 1 experts; of the fourth layer block 6
 * is Mamba2, 7 attention, 8 experts. */
static void test_blocks(void **state)
{
    struct mkmodel_options o;
    struct model_params p;
    struct error e = {0};
    tiny(&o, "nemotron_h_moe");
    o.layers = 5;
    struct gguf *g = make(&o);
    const struct gguf_tensor *in = gguf_tensor_find(g, "blk.6.ssm_in.weight");
    assert_non_null(in);
    assert_non_null(gguf_tensor_find(g, "blk.7.attn_q.weight"));
    assert_non_null(gguf_tensor_find(g, "blk.8.ffn_up_exps.weight"));
    assert_non_null(gguf_tensor_find(g, "blk.8.attn_norm.weight"));
    assert_non_null(gguf_tensor_find(g, "blk.8.exp_probs_b.bias"));
    assert_null(gguf_tensor_find(g, "blk.8.ffn_gate_exps.weight"));
    assert_null(gguf_tensor_find(g, "blk.8.ffn_gate_shexp.weight"));
    assert_int_equal(model_params_read(g, &p, &e), ERROR_OK);
    assert_int_equal(p.n_blocks, 11);
    assert_int_equal(p.layers[0].kind, LAYER_MAMBA2);
    assert_int_equal(p.layers[3].kind, LAYER_MAMBA2_ATTENTION);
    assert_int_equal(p.layers[3].blocks.recurrent, 6);
    assert_int_equal(p.layers[3].blocks.attention, 7);
    assert_int_equal(p.layers[3].blocks.feed_forward, 8);
    assert_int_equal(p.layers[3].n_kv_heads, o.kv_heads);
    assert_true(p.layers[3].unrotated);
    assert_int_equal(p.layers[4].n_kv_heads, 0);
    assert_int_equal(p.layers[4].blocks.recurrent, 9);
    assert_int_equal(in->ne[1],
                     params_convolved(&p) + p.delta.v_heads * p.delta.v_dim + p.delta.v_heads);
    gguf_close(g);
}

/* Layer 1 has a window; layer 5 and the last have other heads, and no values. */
static void test_gemma(void **state)
{
    static const struct shape own[] = {
        {"attn_v.weight", 64, 64, 1},
        {"attn_q_norm.weight", 32, 1, 1},
        {"post_attention_norm.weight", 64, 1, 1},
        {"ffn_gate.weight", 64, 48, 1},
        {"ffn_gate_up_exps.weight", 64, 192, 8},
        {"ffn_gate_inp.scale", 64, 1, 1},
        {"ffn_down_exps.scale", 8, 1, 1},
        {"layer_output_scale.weight", 1, 1, 1},
    };
    struct mkmodel_options o;
    struct model_params p;
    struct error e = {0};
    tiny(&o, "gemma4");
    o.layers = 8;
    o.shared_width = 48;
    struct gguf *g = make(&o);
    EXPECT(g, own);
    assert_null(gguf_tensor_find(g, "blk.5.attn_v.weight"));
    assert_non_null(gguf_tensor_find(g, "blk.6.attn_v.weight"));
    assert_null(gguf_tensor_find(g, "blk.7.attn_v.weight"));
    assert_int_equal(model_params_read(g, &p, &e), ERROR_OK);
    for (uint32_t i = 0; i < 8; i++) {
        const struct layer_params *l = &p.layers[i];
        bool whole = i == 5 || i == 7;
        assert_int_equal(l->window, whole ? 0 : 128);
        assert_int_equal(l->k_dim, whole ? 64 : 32);
        assert_int_equal(l->n_kv_heads, whole ? 1 : 2);
        assert_int_equal(params_rope(&p, i)->dims, l->k_dim);
    }
    assert_int_equal(p.d_shared, 48);
    assert_true(p.attention_scale == 1 && p.logit_cap == 30);
    gguf_close(g);
}

/* Layer 1 has a window: half as many query heads more. */
static void test_heads_by_layer(void **state)
{
    static const struct shape own[] = {
        {"attn_norm.weight", 64, 1, 1},       {"attn_q.weight", 64, 192, 1},
        {"attn_k.weight", 64, 64, 1},         {"attn_v.weight", 64, 64, 1},
        {"attn_output.weight", 192, 64, 1},   {"attn_q_norm.weight", 32, 1, 1},
        {"attn_k_norm.weight", 32, 1, 1},     {"attn_gate.weight", 64, 6, 1},
        {"ffn_norm.weight", 64, 1, 1},        {"exp_probs_b.bias", 8, 1, 1},
        {"ffn_gate_shexp.weight", 64, 64, 1}, {"ffn_up_shexp.weight", 64, 64, 1},
        {"ffn_down_shexp.weight", 64, 64, 1}};
    static const char *const names[] = {"laguna", "step35"};
    for (int i = 0; i < 2; i++) {
        struct mkmodel_options o;
        struct model_params p;
        struct error e = {0};
        tiny(&o, names[i]);
        o.shared_width = 64;
        o.window = 9;
        struct gguf *g = make(&o);
        EXPECT(g, ends);
        EXPECT(g, experts);
        EXPECT(g, own);
        assert_int_equal(layer_tensors(g), 13 + 4);
        const struct gguf_tensor *first = gguf_tensor_find(g, "blk.0.attn_q.weight");
        assert_int_equal(first->ne[1], 4 * 32);
        assert_int_equal(model_params_read(g, &p, &e), ERROR_OK);
        assert_int_equal(p.layers[0].n_heads, 4);
        assert_int_equal(p.layers[1].n_heads, 6);
        assert_int_equal(p.layers[0].window, 0);
        assert_int_equal(p.layers[1].window, 9);
        bool limits = i == 1;
        assert_true(p.layers[1].expert_limit == (limits ? 7 : 0));
        assert_true(p.layers[1].shared_limit == (limits ? 16 : 0));
        assert_int_equal(gguf_tensor_find(g, "rope_freqs.weight") != NULL, limits);
        gguf_close(g);
    }
}

static void test_keys_wider_than_values(void **state)
{
    static const struct shape own[] = {
        {"attn_norm.weight", 64, 1, 1}, {"attn_q.weight", 64, 96, 1},
        {"attn_k.weight", 64, 96, 1},   {"attn_v.weight", 64, 64, 1},
        {"attn_sinks.weight", 4, 1, 1}, {"attn_output.weight", 64, 64, 1},
        {"ffn_norm.weight", 64, 1, 1},  {"exp_probs_b.bias", 8, 1, 1}};
    struct mkmodel_options o;
    struct model_params p;
    struct error e = {0};
    tiny(&o, "mimo2");
    o.head_dim = 24;
    o.window = 9;
    struct gguf *g = make(&o);
    EXPECT(g, ends);
    EXPECT(g, experts);
    EXPECT(g, own);
    assert_int_equal(layer_tensors(g), 8 + 4);
    assert_null(gguf_tensor_find(g, "blk.0.attn_sinks.weight"));
    assert_int_equal(gguf_tensor_find(g, "blk.0.attn_k.weight")->ne[1], 2 * 24);
    assert_int_equal(key(g, "mimo2.rope.dimension_count"), 8);
    assert_int_equal(model_params_read(g, &p, &e), ERROR_OK);
    assert_int_equal(p.layers[0].window, 0);
    assert_int_equal(p.layers[1].window, 10); /* the row's own position and nine before it */
    gguf_close(g);
}

static void test_norms_after_the_parts(void **state)
{
    static const struct shape own[] = {
        {"attn_q_norm.weight", 32, 1, 1},    {"attn_k_norm.weight", 32, 1, 1},
        {"attn_gate.weight", 64, 128, 1},    {"post_attention_norm.weight", 64, 1, 1},
        {"ffn_norm.weight", 64, 1, 1},       {"post_ffw_norm.weight", 64, 1, 1},
        {"exp_probs_b.bias", 8, 1, 1},       {"ffn_gate_shexp.weight", 64, 192, 1},
        {"ffn_up_shexp.weight", 64, 192, 1}, {"ffn_down_shexp.weight", 192, 64, 1}};
    struct mkmodel_options o;
    tiny(&o, "afmoe");
    o.shared_width = 192;
    struct gguf *g = make(&o);
    EXPECT(g, ends);
    EXPECT(g, grouped);
    EXPECT(g, experts);
    EXPECT(g, own);
    assert_int_equal(layer_tensors(g), 5 + 4 + 10);
    assert_int_equal(key(g, "afmoe.expert_shared_count"), 2);
    assert_int_equal(key(g, "afmoe.leading_dense_block_count"), 1);
    gguf_close(g);
}

static void test_parallel_parts(void **state)
{
    static const struct shape own[] = {{"ffn_gate_shexp.weight", 64, 192, 1},
                                       {"ffn_up_shexp.weight", 64, 192, 1},
                                       {"ffn_down_shexp.weight", 192, 64, 1}};
    struct mkmodel_options o;
    struct model_params p;
    struct error e = {0};
    tiny(&o, "cohere2moe");
    o.shared_width = 192;
    struct gguf *g = make(&o);
    EXPECT(g, ends);
    EXPECT(g, grouped);
    EXPECT(g, experts);
    EXPECT(g, own);
    assert_int_equal(layer_tensors(g), 5 + 4 + 3);
    assert_int_equal(key(g, "cohere2moe.expert_shared_feed_forward_length"), 192);
    assert_int_equal(model_params_read(g, &p, &e), ERROR_OK);
    assert_non_null(gguf_find(g, "cohere2moe.attention.layer_norm_epsilon"));
    assert_int_equal(p.norm, NORM_RMS);
    assert_true(p.logit_scale == 0.25f);
    gguf_close(g);
}

static void test_unsuffixed_selection_bias(void **state)
{
    static const struct shape own[] = {{"exp_probs_b", 8, 1, 1},
                                       {"ffn_gate_shexp.weight", 64, 64, 1}};
    struct mkmodel_options o;
    tiny(&o, "hy_v3");
    o.shared_width = 64;
    struct gguf *g = make(&o);
    EXPECT(g, own);
    assert_int_equal(gguf_find(g, "hy_v3.leading_dense_block_count") == NULL, true);
    gguf_close(g);
}

/* ---- what moed reads from them ---- */

static const struct {
    const char *name;
    bool dense_first;
} rows[] = {
    {"llama", false},         {"qwen2moe", false},    {"qwen3moe", false},    {"olmoe", false},
    {"deepseek", true},       {"deepseek2", true},    {"phimoe", false},      {"gpt-oss", false},
    {"glm4moe", true},        {"minimax-m2", false},  {"dots1", true},        {"qwen3vlmoe", false},
    {"bailingmoe2", true},    {"ernie4_5-moe", true}, {"hunyuan-moe", false}, {"exaone-moe", true},
    {"qwen35moe", false},     {"qwen3next", false},   {"gemma4", false},      {"lfm2moe", true},
    {"glm-dsa", true},        {"deepseek32", true},   {"laguna", true},       {"step35", true},
    {"mimo2", true},          {"afmoe", true},        {"cohere2moe", true},   {"hy_v3", true},
    {"nemotron_h_moe", false}};
enum { N_ROWS = sizeof rows / sizeof rows[0] };

static bool is_dense_first(const char *arch)
{
    for (int i = 0; i < N_ROWS; i++)
        if (strcmp(rows[i].name, arch) == 0)
            return rows[i].dense_first;
    fail_msg("%s is not in the table", arch);
    return false;
}

static void expect_accepted(const struct mkmodel_options *o)
{
    struct model_params p;
    struct pool_plan plan;
    struct error e = {0};
    struct gguf *g = make(o);
    if (model_params_read(g, &p, &e) != ERROR_OK || pool_plan_new(g, &plan, &e) != ERROR_OK)
        fail_msg("%s, %s: %s", o->arch, o->type, e.text);
    assert_string_equal(p.arch->name, o->arch);
    assert_int_equal(p.n_layers, o->layers);
    assert_int_equal(p.router.n_experts, o->experts);
    assert_int_equal(p.router.n_used, o->top_k);
    assert_int_equal(p.d_expert, o->expert_width);
    assert_int_equal(p.n_dense, is_dense_first(o->arch));
    assert_int_equal(p.router.n_groups, o->groups);
    assert_int_equal(p.q_rank, p.arch->indexer && !o->q_rank ? p.kv_rank : o->q_rank);
    assert_int_equal(p.context_most, p.arch->indexer ? 2048 : 0);
    pool_plan_free(&plan);
    gguf_close(g);
}

/* Each type is tried with a quarter of the architectures. */
static void test_every_architecture_is_accepted(void **state)
{
    static const char *const types[] = {
        "F32",   "F16",     "BF16",  "Q8_0",   "Q4_0",    "Q4_1",   "Q5_0",  "Q5_1",  "Q2_K",
        "Q3_K",  "Q4_K",    "Q5_K",  "Q6_K",   "IQ4_NL",  "IQ4_XS", "MXFP4", "NVFP4", "Q4_K_M",
        "IQ3_S", "IQ3_XXS", "IQ2_S", "IQ2_XS", "IQ2_XXS", "IQ1_S",  "IQ1_M"};
    for (int i = 0; i < N_ROWS; i++)
        for (size_t j = (size_t)i % 4; j < sizeof types / sizeof types[0]; j += 4) {
            struct mkmodel_options o;
            tiny(&o, rows[i].name);
            o.type = types[j];
            o.hidden = 256;
            o.expert_width = 256;
            o.experts = 3; /* quick to make */
            o.vocab = 259;
            expect_accepted(&o);
        }
}

static void test_every_form_of_deepseek2_is_accepted(void **state)
{
    for (int form = 0; form < 8; form++) {
        struct mkmodel_options o;
        tiny(&o, "deepseek2");
        o.q_rank = form & 1 ? 48 : 0;
        o.gate = form & 2 ? "sigmoid" : "softmax";
        o.groups = form & 4 ? 4 : 0;
        o.shared_width = 2 * o.expert_width;
        expect_accepted(&o);
    }
}

/* Up to top_k positions the indexer chooses all; more are refused, and not taken by default. */
static void test_contexts_of_an_indexer(void **state)
{
    struct mkmodel_options o;
    struct model_params p;
    struct error e = {0};
    tiny(&o, "glm-dsa");
    o.ctx = 8192;
    struct gguf *g = make(&o);
    assert_int_equal(model_params_read(g, &p, &e), ERROR_OK);
    gguf_close(g);
    assert_int_equal(p.context_trained, 8192);
    assert_int_equal(params_check_context(&p, 0, &e), ERROR_OK);
    assert_int_equal(params_check_context(&p, 2048, &e), ERROR_OK);
    assert_int_equal(params_check_context(&p, 2049, &e), ERROR_UNSUPPORTED);
    assert_non_null(strstr(e.text, "--ctx 2049: moed computes this model up to 2048 tokens"));
    assert_int_equal(serving_context(&p, 0, UINT32_MAX, false), 2048);
    assert_int_equal(serving_context(&p, 0, 1000, false), 1000);
    assert_int_equal(serving_context(&p, 512, UINT32_MAX, true), 512);
    tiny(&o, "deepseek2");
    o.ctx = 8192;
    g = make(&o);
    assert_int_equal(model_params_read(g, &p, &e), ERROR_OK);
    gguf_close(g);
    assert_int_equal(params_check_context(&p, 100000, &e), ERROR_OK);
    assert_int_equal(serving_context(&p, 0, UINT32_MAX, false), 8192);
}

static void expect_refused(const struct mkmodel_options *o, const char *text)
{
    struct mkmodel_result result;
    struct error e = {0};
    enum error_code code = mkmodel_write(o, path, NULL, NULL, &result, &e);
    if (code != ERROR_USAGE || !strstr(e.text, text))
        fail_msg("expected '%s', got %s: %s", text, error_name(code), e.text);
}

static void test_wrong_options(void **state)
{
    static const struct {
        const char *arch, *text;
        size_t offset;
        uint32_t value;
    } wrong[] = {
#define ROW(arch, member, value, text) {arch, text, offsetof(struct mkmodel_options, member), value}
        ROW("llama", dense_layers, 1, "--dense-layers: a model of architecture llama has no such"),
        ROW("deepseek", q_rank, 8, "--q-rank: a model of architecture deepseek has no such thing"),
        ROW("deepseek", groups, 2, "--groups: a model"),
        ROW("deepseek2", window, 8, "--window: a model"),
        ROW("deepseek2", dense_layers, 2, "--dense-layers 2: expected less than --layers 2"),
        ROW("deepseek2", shared_width, 100, "--shared-width 100 is no multiple"),
        ROW("deepseek2", groups, 3, "--groups 3: expected groups of equal size"),
        ROW("deepseek2", groups, 8, "--groups 8: expected groups of equal size"),
        ROW("deepseek2", groups_used, 1, "--groups-used 1: give --groups too"),
        ROW("deepseek2", rope_dim, 7, "--rope-dim 7: odd"),
        ROW("deepseek2", kv_rank, 1 << 20, "--kv-rank 1048576: out of range"),
        ROW("gpt-oss", kv_rank, 8, "--kv-rank: a model"),
#undef ROW
    };
    struct mkmodel_options o;
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        tiny(&o, wrong[i].arch);
        memcpy((char *)&o + wrong[i].offset, &wrong[i].value, sizeof wrong[i].value);
        expect_refused(&o, wrong[i].text);
    }
    tiny(&o, "deepseek2");
    o.groups = 4;
    o.groups_used = 1; /* two experts, but three are used */
    expect_refused(&o, "--groups-used 1: expected up to 4, with --top-k 3 experts");
    tiny(&o, "deepseek2");
    o.gate = "tanh";
    expect_refused(&o, "--gate tanh: unknown");
    tiny(&o, "glm4moe");
    o.gate = "softmax";
    expect_refused(&o, "--gate softmax: a model of architecture glm4moe has no such thing");
    tiny(&o, "olmoe");
    o.gate = "sigmoid";
    expect_refused(&o, "--gate sigmoid: a model of architecture olmoe has no such thing");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_olmoe),
        cmocka_unit_test(test_deepseek),
        cmocka_unit_test(test_deepseek2),
        cmocka_unit_test(test_phimoe),
        cmocka_unit_test(test_gpt_oss),
        cmocka_unit_test(test_glm4moe),
        cmocka_unit_test(test_minimax_m2),
        cmocka_unit_test(test_bailingmoe2),
        cmocka_unit_test(test_delta),
        cmocka_unit_test(test_convolutions),
        cmocka_unit_test(test_blocks),
        cmocka_unit_test(test_gemma),
        cmocka_unit_test(test_heads_by_layer),
        cmocka_unit_test(test_keys_wider_than_values),
        cmocka_unit_test(test_norms_after_the_parts),
        cmocka_unit_test(test_parallel_parts),
        cmocka_unit_test(test_unsuffixed_selection_bias),
        cmocka_unit_test(test_every_architecture_is_accepted),
        cmocka_unit_test(test_every_form_of_deepseek2_is_accepted),
        cmocka_unit_test(test_contexts_of_an_indexer),
        cmocka_unit_test(test_wrong_options),
    };
    return cmocka_run_group_tests(tests, make_path, remove_path);
}
