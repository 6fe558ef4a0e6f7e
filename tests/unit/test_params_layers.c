/* Hyper-parameters by layer: heads, windows, rotations and limits that a file lists or its
 * architecture's row says. */
#include "model/published.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "tests/unit/model_file.h"

#include <stdbool.h>

enum { LAYERS = 6 };

static void list(struct file *f, const char *suffix, uint32_t type, const uint32_t *values)
{
    key(f, suffix, GGUF_ARRAY);
    u32(&f->keys, type);
    u64(&f->keys, LAYERS);
    for (int i = 0; i < LAYERS; i++)
        if (type == GGUF_BOOL)
            strbuf_append(&f->keys, values[i] ? "\1" : "\0", 1);
        else
            u32(&f->keys, values[i]);
}

/* The layers from first_router on have experts. */
static struct file file_with_routers(const char *arch, uint32_t first_router)
{
    static const struct {
        const char *suffix;
        uint32_t value;
    } keys[] = {{"block_count", LAYERS},
                {"context_length", 64},
                {"embedding_length", FILE_COLUMNS},
                {"attention.key_length", 4},
                {"attention.value_length", 4},
                {"expert_count", 4},
                {"expert_used_count", 2},
                {"feed_forward_length", 8},
                {"expert_feed_forward_length", 4}};
    struct file f;
    file_begin(&f, arch);
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
        number(&f, keys[i].suffix, keys[i].value);
    for (uint32_t i = first_router; i < LAYERS; i++) {
        char name[64];
        snprintf(name, sizeof name, "blk.%u.ffn_gate_inp.weight", i);
        tensor(&f, name);
    }
    return f;
}

static struct file file_of(const char *arch)
{
    return file_with_routers(arch, 0);
}

static void expect_refused(struct file *f, const char *part)
{
    expect_error(f, ERROR_FORMAT, part);
}

static const uint32_t heads[LAYERS] = {4, 6, 6, 6, 4, 6};
static const uint32_t ones[LAYERS] = {1, 1, 1, 1, 1, 1};

static struct file with_heads(const char *arch)
{
    struct file f = file_of(arch);
    list(&f, "attention.head_count", GGUF_U32, heads);
    number(&f, "attention.head_count_kv", 2);
    return f;
}

/* The first of four layers has no window; the other rotation has no scaling. */
static void test_heads_by_layer(void **state)
{
    struct file f = with_heads("laguna");
    number(&f, "attention.sliding_window", 5);
    number(&f, "rope.dimension_count", 2);
    number(&f, "rope.dimension_count_swa", 4);
    real(&f, "rope.freq_base", 500000);
    real(&f, "rope.freq_base_swa", 20000);
    struct model_params p = params_of(&f);
    for (uint32_t i = 0; i < LAYERS; i++) {
        bool all = i % 4 == 0;
        assert_int_equal(p.layers[i].n_heads, heads[i]);
        assert_int_equal(p.layers[i].n_kv_heads, 2);
        assert_int_equal(p.layers[i].window, all ? 0 : 5);
        assert_int_equal(params_rope(&p, i)->dims, all ? 2 : 4);
        assert_true(params_rope(&p, i)->base == (all ? 500000 : 20000));
        assert_false(p.layers[i].unrotated);
    }
    assert_int_equal(params_most(&p).heads, 6);
    assert_int_equal(p.router.kind, ROUTER_SIGMOID);
    assert_null(params_host_dense(&p));
    f = with_heads("laguna"); /* without a window */
    p = params_of(&f);
    assert_int_equal(params_windows(&p).layers, 0);
    static const uint32_t odd[LAYERS] = {4, 6, 5, 6, 4, 6};
    f = file_of("laguna");
    list(&f, "attention.head_count", GGUF_U32, odd);
    number(&f, "attention.head_count_kv", 2);
    expect_refused(&f, "5 attention heads cannot share 2 key-value heads");
    f = file_of("exaone-moe"); /* where heads do not differ a list is no number of heads */
    list(&f, "attention.head_count", GGUF_U32, heads);
    number(&f, "attention.sliding_window", 5);
    expect_refused(&f, "'exaone-moe.attention.head_count'");
}

/* Layers without a window rotate half of the file's number, and the file's pattern wins. */
static void test_half_rotation(void **state)
{
    static const uint32_t windowed[LAYERS] = {0, 1, 0, 1, 0, 1};
    struct file f = with_heads("step35");
    number(&f, "attention.sliding_window", 5);
    number(&f, "rope.dimension_count", 4);
    list(&f, "attention.sliding_window_pattern", GGUF_BOOL, windowed);
    struct model_params p = params_of(&f);
    for (uint32_t i = 0; i < LAYERS; i++) {
        assert_int_equal(p.layers[i].window, windowed[i] ? 5 : 0);
        assert_int_equal(params_rope(&p, i)->dims, windowed[i] ? 4 : 2);
    }
    f = with_heads("step35");
    number(&f, "attention.sliding_window", 5);
    number(&f, "rope.dimension_count", 6); /* half fits in no head of 2 */
    number(&f, "rope.dimension_count_swa", 6);
    expect_refused(&f, "'step35.rope.dimension_count_swa' is 6");
}

static void test_limits(void **state)
{
    const uint32_t limits[LAYERS] = {0, bits_of(7), 0, 0, bits_of(0.5f), 0};
    const uint32_t wrong[LAYERS] = {0, 0, bits_of(-1), 0, 0, 0};
    struct file f = with_heads("step35");
    number(&f, "attention.sliding_window", 5);
    list(&f, "swiglu_clamp_exp", GGUF_F32, limits);
    struct model_params p = params_of(&f);
    assert_true(p.layers[1].expert_limit == 7 && p.layers[4].expert_limit == 0.5f);
    assert_true(p.layers[0].expert_limit == 0 && p.layers[1].shared_limit == 0);
    assert_true(params_expert_gating(&p, 1).limit == 7 && params_shared_gating(&p, 1).limit == 0);
    f = with_heads("step35");
    number(&f, "attention.sliding_window", 5);
    list(&f, "swiglu_clamp_shexp", GGUF_F32, wrong);
    expect_refused(&f, "no limit of layer 2");
}

/* The window is of the positions before the row's own; the first layers without a router are dense;
 * the pattern is one of integers. */
static void test_window_beyond(void **state)
{
    static const uint32_t kv[LAYERS] = {1, 2, 2, 2, 1, 2}, windowed[LAYERS] = {0, 1, 1, 1, 0, 1};
    struct file f = file_with_routers("mimo2", 2);
    number(&f, "attention.head_count", 4);
    list(&f, "attention.head_count_kv", GGUF_I32, kv);
    list(&f, "attention.sliding_window_pattern", GGUF_I32, windowed);
    number(&f, "attention.sliding_window", 5);
    real(&f, "attention.value_scale", 0.5f);
    struct model_params p = params_of(&f);
    for (uint32_t i = 0; i < LAYERS; i++) {
        assert_int_equal(p.layers[i].n_kv_heads, kv[i]);
        assert_int_equal(p.layers[i].window, windowed[i] ? 6 : 0);
        assert_int_equal(p.layers[i].feed_forward,
                         i < 2 ? FEED_FORWARD_DENSE : FEED_FORWARD_EXPERTS);
    }
    assert_int_equal(p.n_dense, 2);
    assert_int_equal(p.d_dense, 8);
    assert_true(p.value_scale == 0.5f);
    assert_int_equal(p.published, 0);
    f = file_of("mimo2"); /* of 2025 */
    number(&f, "attention.head_count", 4);
    number(&f, "attention.head_count_kv", 1);
    number(&f, "attention.sliding_window", 5);
    p = params_of(&f);
    assert_true(p.value_scale == 0.707f);
    assert_int_equal(p.published, PUBLISHED_VALUE_SCALE);
    p.router.n_experts = 384; /* MiMo-V2.5-Pro */
    assert_true(published_value_scale(&p) == 0.612f);
    f = file_with_routers("mimo2", LAYERS);
    number(&f, "attention.head_count", 4);
    list(&f, "attention.head_count_kv", GGUF_I32, ones);
    number(&f, "attention.sliding_window", 5);
    expect_refused(&f, "is 6: expected less than the 6 layers");
}

/* Layers without a window do not rotate, but dense ones do; layer norms by the file's epsilon; half
 * the sum of all experts. */
static void test_dense_layers_rotate(void **state)
{
    struct file f = file_of("cohere2moe");
    number(&f, "attention.head_count", 4);
    number(&f, "attention.head_count_kv", 2);
    number(&f, "attention.sliding_window", 5);
    number(&f, "leading_dense_block_count", 1);
    number(&f, "expert_shared_count", 1);
    real(&f, "attention.layer_norm_epsilon", 1e-5f);
    real(&f, "logit_scale", 0.25f);
    struct model_params p = params_of(&f);
    for (uint32_t i = 0; i < LAYERS; i++)
        assert_int_equal(p.layers[i].unrotated, i == 4);
    assert_int_equal(p.norm, NORM_LAYER);
    assert_true(p.norm_eps == 1e-5f && p.logit_scale == 0.25f);
    assert_true(p.router.scale == 0.5f);
    f = file_of("cohere2moe");
    number(&f, "attention.head_count", 4);
    number(&f, "attention.sliding_window", 5);
    number(&f, "expert_shared_count", 0);
    real(&f, "attention.layer_norm_rms_epsilon", 1e-5f);
    p = params_of(&f);
    assert_int_equal(p.norm, NORM_RMS);
    assert_true(p.router.scale == 1);
}

/* Published files have both epsilons, and their models RMS norms. */
static void test_both_epsilons(void **state)
{
    static const char *const names[] = {"cohere2moe", "exaone-moe"};
    for (int i = 0; i < 4; i++) {
        struct file f = file_of(names[i / 2]);
        number(&f, "attention.head_count", 4);
        number(&f, "attention.sliding_window", 5);
        number(&f, "expert_shared_count", 0);
        real(&f, i % 2 ? "attention.layer_norm_epsilon" : "attention.layer_norm_rms_epsilon",
             i % 2 ? 1e-3f : 1e-6f);
        real(&f, i % 2 ? "attention.layer_norm_rms_epsilon" : "attention.layer_norm_epsilon",
             i % 2 ? 1e-6f : 1e-3f);
        struct model_params p = params_of(&f);
        assert_int_equal(p.norm, NORM_RMS);
        assert_true(p.norm_eps == 1e-6f);
    }
}

/* The last of four layers has no window and does not rotate. */
static void test_trinity(void **state)
{
    struct file f = file_of("afmoe");
    number(&f, "attention.head_count", 4);
    number(&f, "attention.sliding_window", 5);
    number(&f, "expert_shared_count", 2);
    struct model_params p = params_of(&f);
    for (uint32_t i = 0; i < LAYERS; i++) {
        assert_int_equal(p.layers[i].window, i == 3 ? 0 : 5);
        assert_int_equal(p.layers[i].unrotated, i == 3);
    }
    assert_int_equal(p.d_shared, 8);
    assert_int_equal(p.router.kind, ROUTER_SIGMOID);
    assert_true(p.router.renormalise);
    f = file_of("afmoe");
    number(&f, "attention.head_count", 4);
    struct error e;
    assert_int_equal(read_params(&f, &p, &e), ERROR_NOT_FOUND); /* the window */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_heads_by_layer),
        cmocka_unit_test(test_half_rotation),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_window_beyond),
        cmocka_unit_test(test_dense_layers_rotate),
        cmocka_unit_test(test_both_epsilons),
        cmocka_unit_test(test_trinity),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
