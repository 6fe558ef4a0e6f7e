/* The plan of a host pool (model/pool_plan.h): which model files it refuses, and why, and what it
 * reads of files that it takes. */
#include "gguf/gguf_write.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "loaded_model.h"

/* Additions to plan_of's file; reset by extra = (struct extra){0}. */
static struct extra {
    const char *key; /* NULL: none */
    float f32;       /* the key's value, or, where it is 0: */
    uint32_t u32;
    const char *tensor; /* a vector of 16; NULL: none */
} extra;
static struct model_params planned; /* of the last plan_of that succeeded */

/* A file with the keys of a small qwen3moe; a test can omit or change one of them. */
static enum error_code plan_of(const char *without, const char *change, uint32_t value,
                               struct error *e)
{
    static const struct {
        const char *key;
        uint32_t value;
    } keys[] = {{"qwen3moe.block_count", 1},
                {"qwen3moe.context_length", 64},
                {"qwen3moe.embedding_length", 32},
                {"qwen3moe.attention.head_count", 2},
                {"qwen3moe.attention.head_count_kv", 1},
                {"qwen3moe.expert_count", 2},
                {"qwen3moe.expert_used_count", 1},
                {"qwen3moe.expert_feed_forward_length", 16}};
    static const struct {
        const char *name;
        uint64_t ne[3];
    } tensors[] = {
        {"token_embd.weight", {32, 40, 1}},        {"output_norm.weight", {32, 1, 1}},
        {"blk.0.attn_norm.weight", {32, 1, 1}},    {"blk.0.ffn_norm.weight", {32, 1, 1}},
        {"blk.0.attn_q.weight", {32, 32, 1}},      {"blk.0.attn_k.weight", {32, 16, 1}},
        {"blk.0.attn_v.weight", {32, 16, 1}},      {"blk.0.attn_output.weight", {32, 32, 1}},
        {"blk.0.attn_q_norm.weight", {16, 1, 1}},  {"blk.0.attn_k_norm.weight", {16, 1, 1}},
        {"blk.0.ffn_gate_inp.weight", {32, 2, 1}}, {"blk.0.ffn_gate_exps.weight", {32, 16, 2}},
        {"blk.0.ffn_up_exps.weight", {32, 16, 2}}, {"blk.0.ffn_down_exps.weight", {16, 32, 2}}};
    char path[64];
    struct gguf_writer *w;
    static const float zeros[4096];
    snprintf(path, sizeof path, "/tmp/moed-test-plan-%d.gguf", (int)getpid());
    must(gguf_writer_open(path, &w, e), e);
    gguf_writer_string(w, "general.architecture", "qwen3moe", 8);
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (!without || strcmp(without, keys[i].key) != 0)
            gguf_writer_u32(w, keys[i].key,
                            change && strcmp(change, keys[i].key) == 0 ? value : keys[i].value);
    if (extra.key && extra.f32 != 0)
        gguf_writer_f32(w, extra.key, extra.f32);
    else if (extra.key)
        gguf_writer_u32(w, extra.key, extra.u32);
    for (int pass = 0; pass < 2; pass++)
        for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++) {
            if (without && strcmp(without, tensors[i].name) == 0)
                continue;
            uint64_t ne[3] = {tensors[i].ne[0], tensors[i].ne[1], tensors[i].ne[2]};
            if (change && strcmp(change, tensors[i].name) == 0)
                ne[1] = value;
            if (pass == 0)
                gguf_writer_tensor(w, tensors[i].name, TENSOR_F32, 3, ne);
            else
                must(gguf_writer_data(w, zeros, ne[0] * ne[1] * ne[2] * 4, e), e);
            if (!extra.tensor || i + 1 < sizeof tensors / sizeof *tensors)
                continue;
            if (pass == 0)
                gguf_writer_tensor(w, extra.tensor, TENSOR_F32, 1, (uint64_t[]){16});
            else
                must(gguf_writer_data(w, zeros, 16 * 4, e), e);
        }
    must(gguf_writer_close(w, e), e);
    struct gguf *g;
    struct pool_plan plan;
    must(gguf_open(path, &g, e), e);
    enum error_code code = pool_plan_new(g, &plan, e);
    if (!code) {
        planned = plan.header.params;
        pool_plan_free(&plan);
    }
    gguf_close(g);
    unlink(path);
    return code;
}

static void test_plan_refuses(void **state)
{
    struct error e;
    (void)state;
    assert_int_equal(plan_of(NULL, NULL, 0, &e), ERROR_OK);
    static const char *const needed[] = {
        "qwen3moe.block_count", "qwen3moe.attention.head_count", "qwen3moe.expert_used_count",
        "blk.0.attn_q.weight",  "blk.0.attn_q_norm.weight",      "blk.0.ffn_down_exps.weight"};
    for (size_t i = 0; i < sizeof needed / sizeof *needed; i++) {
        assert_int_equal(plan_of(needed[i], NULL, 0, &e), ERROR_NOT_FOUND);
        assert_non_null(strstr(e.text, needed[i]));
    }
    assert_int_equal(plan_of("qwen3moe.expert_count", NULL, 0, &e), ERROR_UNSUPPORTED);
    static const struct {
        const char *what;
        uint32_t value;
    } wrong[] = {{"qwen3moe.block_count", 0},
                 {"qwen3moe.block_count", 4000000000u},
                 {"qwen3moe.attention.head_count_kv", 3},
                 {"qwen3moe.expert_used_count", 3},
                 {"qwen3moe.embedding_length", 0},
                 {"blk.0.attn_k.weight", 17},
                 {"blk.0.ffn_gate_exps.weight", 15}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        assert_int_equal(plan_of(NULL, wrong[i].what, wrong[i].value, &e), ERROR_FORMAT);
        assert_non_null(strstr(e.text, wrong[i].what));
    }
    /* plan_of refuses routers and masks of other models by name */
    static const char *const others[] = {"qwen3moe.expert_gating_func",
                                         "qwen3moe.expert_group_count",
                                         "qwen3moe.attention.sliding_window"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        extra = (struct extra){.key = others[i], .u32 = 2};
        assert_int_equal(plan_of(NULL, NULL, 0, &e), ERROR_UNSUPPORTED);
        assert_non_null(strstr(e.text, others[i]));
    }
    extra = (struct extra){.key = others[2], .u32 = 64}; /* as long as the context */
    assert_int_equal(plan_of(NULL, NULL, 0, &e), ERROR_OK);
    extra = (struct extra){0};
    /* more layers than there are tensors for */
    assert_int_equal(plan_of(NULL, "qwen3moe.block_count", 2, &e), ERROR_NOT_FOUND);
    assert_non_null(strstr(e.text, "blk.1."));
}

/* Keys for features that the architecture's row lacks, or for an impossible rotation. */
static void test_plan_refuses_features(void **state)
{
    static const struct {
        const char *key;
        float value;
        enum error_code code;
    } keys[] = {{"qwen3moe.logit_scale", 0.5f, ERROR_UNSUPPORTED},
                {"qwen3moe.logit_scale", 1, ERROR_OK},
                {"qwen3moe.attn_logit_softcapping", 50, ERROR_UNSUPPORTED},
                {"qwen3moe.attention.scale", 0.1f, ERROR_UNSUPPORTED},
                {"qwen3moe.rope.scaling.attn_factor", 2, ERROR_UNSUPPORTED},
                {"qwen3moe.rope.freq_base", 1, ERROR_FORMAT},
                {"qwen3moe.rope.freq_base", INFINITY, ERROR_FORMAT},
                {"qwen3moe.rope.freq_base", NAN, ERROR_FORMAT},
                {"qwen3moe.rope.scaling.factor", INFINITY, ERROR_FORMAT},
                {"qwen3moe.expert_weights_scale", NAN, ERROR_FORMAT},
                {"qwen3moe.attention.layer_norm_rms_epsilon", NAN, ERROR_FORMAT}};
    struct error e;
    (void)state;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        extra = (struct extra){.key = keys[i].key, .f32 = keys[i].value};
        assert_int_equal(plan_of(NULL, NULL, 0, &e), keys[i].code);
        assert_true(!keys[i].code || strstr(e.text, keys[i].key));
    }
    /* the width of all activated experts together, less than one each */
    extra = (struct extra){.key = "qwen3moe.feed_forward_length", .u32 = 1};
    assert_int_equal(
        plan_of("qwen3moe.expert_feed_forward_length", "qwen3moe.expert_used_count", 2, &e),
        ERROR_FORMAT);
    assert_non_null(strstr(e.text, extra.key));
    extra = (struct extra){0};
}

/* A factor without a type of scaling means linear scaling. */
static void test_linear_scaling(void **state)
{
    static const char *const keys[] = {"qwen3moe.rope.scaling.factor",
                                       "qwen3moe.rope.scale_linear"};
    struct error e;
    (void)state;
    must(plan_of(NULL, NULL, 0, &e), &e);
    assert_int_equal(planned.rope.scaling, ROPE_SCALING_NONE);
    for (int i = 0; i < 2; i++) {
        extra = (struct extra){.key = keys[i], .f32 = 4};
        must(plan_of(NULL, NULL, 0, &e), &e);
        assert_int_equal(planned.rope.scaling, ROPE_SCALING_LINEAR);
        assert_true(planned.rope.factor == 4);
    }
    extra = (struct extra){0};
}

/* A tensor that the plan does not use would change the answers, so plan_of refuses it unless it is
 * known to have no effect. */
static void test_plan_refuses_unused(void **state)
{
    static const char *const refused[] = {
        "blk.0.attn_qkv.scale",       "blk.0.attn_norm.bias",      "blk.0.exp_probs_b.bias",
        "blk.0.ffn_gate_exps.bias",   "blk.0.attn_sinks.weight",   "blk.0.post_ffw_norm.weight",
        "blk.0.attn_sub_norm.weight", "blk.0.attn_kv_b.weight",    "blk.1.attn_norm.weight",
        "token_embd_norm.weight",     "rope_factors_short.weight", "blk.0.ffn_up_shexp.weight"};
    struct error e;
    (void)state;
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        extra.tensor = refused[i];
        assert_int_equal(plan_of(NULL, NULL, 0, &e), ERROR_UNSUPPORTED);
        assert_non_null(strstr(e.text, refused[i]));
    }
    extra.tensor = "blk.0.attn_rot_embd.weight";
    assert_int_equal(plan_of(NULL, NULL, 0, &e), ERROR_OK);
    /* three layers; the last two predict further tokens, and moed does not run them */
    extra = (struct extra){.key = "qwen3moe.nextn_predict_layers", .u32 = 2};
    extra.tensor = "blk.2.nextn.enorm.weight";
    assert_int_equal(plan_of(NULL, "qwen3moe.block_count", 3, &e), ERROR_OK);
    extra.tensor = "blk.3.nextn.enorm.weight";
    assert_int_equal(plan_of(NULL, "qwen3moe.block_count", 3, &e), ERROR_UNSUPPORTED);
    extra = (struct extra){0};
}

/* Of a model of NVFP4 matrices, without one tensor of its file and with another: F32, or F16. */
struct beside {
    const char *without, *with;
    uint64_t values;
    float value; /* each */
    bool half;
};

static enum error_code plan_of_nvfp4(const struct beside *b, struct error *e)
{
    static const char *const keys[] = {"block_count",
                                       "context_length",
                                       "embedding_length",
                                       "attention.head_count",
                                       "attention.head_count_kv",
                                       "attention.key_length",
                                       "attention.value_length",
                                       "expert_count",
                                       "expert_used_count",
                                       "expert_feed_forward_length"};
    struct mkmodel_options o;
    struct mkmodel_result result;
    struct gguf_writer *w;
    struct gguf *g;
    struct pool_plan plan;
    char from[64], to[64], key[64];
    small_model(&o, "qwen3moe", "NVFP4");
    snprintf(from, sizeof from, "/tmp/moed-test-nvfp4-%d.gguf", (int)getpid());
    snprintf(to, sizeof to, "/tmp/moed-test-scaled-%d.gguf", (int)getpid());
    must(mkmodel_write(&o, from, NULL, NULL, &result, e), e);
    must(gguf_open(from, &g, e), e);
    must(gguf_writer_open(to, &w, e), e);
    gguf_writer_string(w, "general.architecture", "qwen3moe", 8);
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        uint32_t value;
        snprintf(key, sizeof key, "qwen3moe.%s", keys[i]);
        must(gguf_get_u32(g, key, &value, e), e);
        gguf_writer_u32(w, key, value);
    }
    for (int write = 0; write < 2; write++) {
        for (uint64_t i = 0; i < gguf_tensor_count(g); i++) {
            const struct gguf_tensor *t = gguf_tensor_at(g, i);
            if (b->without && strcmp(t->name, b->without) == 0)
                continue;
            if (write)
                must(gguf_writer_data(w, gguf_tensor_data(g, t), t->bytes, e), e);
            else
                gguf_writer_tensor(w, t->name, t->type, t->n_dims, t->ne);
        }
        if (b->with && !write)
            gguf_writer_tensor(w, b->with, b->half ? TENSOR_F16 : TENSOR_F32, 1, &b->values);
        for (uint64_t i = 0; b->with && write && i < b->values; i++)
            must(gguf_writer_data(w, &b->value, b->half ? 2 : sizeof b->value, e), e);
    }
    must(gguf_writer_close(w, e), e);
    gguf_close(g);
    must(gguf_open(to, &g, e), e);
    enum error_code code = pool_plan_new(g, &plan, e);
    if (!code) {
        code = pool_plan_read_factors(&plan, g, e);
        pool_plan_free(&plan);
    }
    gguf_close(g);
    unlink(from);
    unlink(to);
    return code;
}

/* A file may have factors for some matrices only. One, or one an expert, is the right shape; others
 * are refused, and the message says so. The scale of inputs, which are not of 4 bits here, is left
 * alone. */
static void test_plan_of_nvfp4(void **state)
{
    static const char up[] = "blk.0.ffn_up_exps.scale", q[] = "blk.0.attn_q.scale";
    const struct {
        struct beside beside;
        enum error_code code;
        const char *words;
    } cases[] = {
        {{0}, ERROR_OK, NULL},
        {{.without = up}, ERROR_OK, NULL},
        {{.without = "output.scale"}, ERROR_OK, NULL},
        {{up, up, 3, 2, false}, ERROR_OK, NULL},
        {{up, up, 1, 2, false}, ERROR_OK, NULL},
        {{up, up, 2, 2, false}, ERROR_FORMAT, "'blk.0.ffn_up_exps.scale' has type F32 and shape 2"},
        {{up, up, 3, 2, true}, ERROR_FORMAT, "expected F32 and 1 value or 3"},
        {{up, up, 3, INFINITY, false}, ERROR_FORMAT, "'blk.0.ffn_up_exps.scale' has a value that"},
        {{q, q, 3, 2, false}, ERROR_FORMAT, "the factors of 'blk.0.attn_q.weight'"},
        {{q, q, 1, NAN, false}, ERROR_FORMAT, "is not a finite number"},
        {{NULL, "blk.0.attn_norm.scale", 1, 2, false}, ERROR_UNSUPPORTED, "is no part of"},
        {{NULL, "blk.0.ffn_up_exps.input_scale", 1, 2, false}, ERROR_OK, NULL},
        {{NULL, "blk.0.attn_norm.input_scale", 1, 2, false}, ERROR_UNSUPPORTED, "is no part of"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct error e = {0};
        if (plan_of_nvfp4(&cases[i].beside, &e) != cases[i].code ||
            (cases[i].words && !strstr(e.text, cases[i].words)))
            fail_msg("case %zu: %s", i, e.text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plan_refuses),        cmocka_unit_test(test_plan_refuses_features),
        cmocka_unit_test(test_plan_refuses_unused), cmocka_unit_test(test_plan_of_nvfp4),
        cmocka_unit_test(test_linear_scaling),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
