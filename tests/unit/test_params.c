/* Hyper-parameters of the architectures: what the rows of the table say where a file says nothing,
 * and files that are refused by name. */
#include "model/params.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "model/memory_need.h"
#include "tests/unit/gguf_bytes.h"

#include <stdbool.h>
#include <stdlib.h>

enum { LAYERS = 8, N_DELTA_KEYS = 5 };

/* A file of all keys that any row needs. */
struct file {
    const char *arch;
    bool dense; /* without the number of experts */
    uint32_t shared_count;
    const char *key; /* another one of a number, NULL: none */
    uint32_t value;
    float real;                   /* not 0: the value */
    const bool *pattern;          /* by layer: of windows, or of recurrent layers; NULL: none */
    uint64_t n_pattern;           /* 0: of all layers */
    const uint32_t *kv_heads;     /* of each layer; NULL: 1 in all, not a list */
    uint32_t delta[N_DELTA_KEYS]; /* 0: the usual */
};

static void kv_arch(struct strbuf *b, const struct file *f, const char *suffix, uint32_t value)
{
    char key[96];
    snprintf(key, sizeof key, "%s.%s", f->arch, suffix);
    kv_u32(b, key, value);
}

static void kv_real(struct strbuf *b, const struct file *f)
{
    char key[96];
    uint32_t bits;
    snprintf(key, sizeof key, "%s.%s", f->arch, f->key);
    memcpy(&bits, &f->real, sizeof bits);
    str(b, key);
    u32(b, GGUF_F32);
    u32(b, bits);
}

static void kv_pattern(struct strbuf *b, const struct file *f)
{
    char key[96];
    snprintf(key, sizeof key, "%s.attention.%s", f->arch,
             strcmp(f->arch, "qwen35moe") == 0 ? "recurrent_layers" : "sliding_window_pattern");
    str(b, key);
    u32(b, GGUF_ARRAY);
    u32(b, GGUF_BOOL);
    uint64_t n = f->n_pattern ? f->n_pattern : LAYERS;
    u64(b, n);
    for (uint64_t i = 0; i < n; i++)
        strbuf_append(b, f->pattern[i] ? "\1" : "\0", 1);
}

static void kv_heads_list(struct strbuf *b, const struct file *f)
{
    char key[96];
    snprintf(key, sizeof key, "%s.attention.head_count_kv", f->arch);
    str(b, key);
    u32(b, GGUF_ARRAY);
    u32(b, GGUF_I32);
    u64(b, LAYERS);
    for (uint32_t i = 0; i < LAYERS; i++)
        u32(b, f->kv_heads[i]);
}

/* Of qwen35moe, in the order of struct file's delta. */
static const struct {
    const char *suffix;
    uint32_t value;
} delta_keys[] = {{"ssm.conv_kernel", 4},
                  {"ssm.state_size", 8},
                  {"ssm.group_count", 2},
                  {"ssm.time_step_rank", 4},
                  {"ssm.inner_size", 24}};

static struct strbuf bytes_of(const struct file *f)
{
    static const struct {
        const char *suffix;
        uint32_t value;
    } keys[] = {{"block_count", LAYERS},          {"context_length", 64},
                {"embedding_length", 8},          {"attention.head_count", 2},
                {"attention.head_count_kv", 1},   {"expert_count", 4},
                {"expert_used_count", 2},         {"feed_forward_length", 4},
                {"attention.kv_lora_rank", 4},    {"rope.dimension_count", 2},
                {"expert_feed_forward_length", 4}};
    struct strbuf b;
    bool window = strcmp(f->arch, "exaone-moe") == 0 || strcmp(f->arch, "gpt-oss") == 0 ||
                  strcmp(f->arch, "gemma4") == 0;
    bool delta = strcmp(f->arch, "qwen35moe") == 0;
    uint64_t n = sizeof keys / sizeof keys[0];
    strbuf_init(&b);
    header(&b, 3, 1,
           n + 2 - f->dense + window + (delta ? N_DELTA_KEYS : 0) + (f->key != NULL) +
               (f->pattern != NULL));
    str(&b, "general.architecture");
    u32(&b, GGUF_STRING);
    str(&b, f->arch);
    for (uint64_t i = 0; i < n; i++)
        if (f->kv_heads && strcmp(keys[i].suffix, "attention.head_count_kv") == 0)
            kv_heads_list(&b, f);
        else if (!f->dense || strcmp(keys[i].suffix, "expert_count") != 0)
            kv_arch(&b, f, keys[i].suffix, keys[i].value);
    kv_arch(&b, f, "expert_shared_count", f->shared_count);
    if (window)
        kv_arch(&b, f, "attention.sliding_window", 16);
    for (int i = 0; i < N_DELTA_KEYS && delta; i++)
        kv_arch(&b, f, delta_keys[i].suffix, f->delta[i] ? f->delta[i] : delta_keys[i].value);
    if (f->key && f->real != 0)
        kv_real(&b, f);
    else if (f->key)
        kv_arch(&b, f, f->key, f->value);
    if (f->pattern)
        kv_pattern(&b, f);
    tensor2(&b, "token_embd.weight", TENSOR_F32, 8, 5, 0);
    zeros(&b, 8 * 5 * 4);
    return b;
}

static enum error_code read_file(const struct file *f, struct model_params *out, struct error *e)
{
    struct strbuf b = bytes_of(f);
    struct gguf *g;
    if (open_bytes(b.data, b.len, &g, e))
        fail_msg("%s", e->text);
    enum error_code code = model_params_read(g, out, e);
    gguf_close(g);
    strbuf_fini(&b);
    return code;
}

static struct model_params params_of(const struct file *f)
{
    struct model_params p;
    struct error e;
    if (read_file(f, &p, &e))
        fail_msg("%s", e.text);
    return p;
}

static void expect_refused_as(const struct file *f, enum error_code code, const char *text)
{
    struct model_params p;
    struct error e;
    assert_int_equal(read_file(f, &p, &e), code);
    if (!strstr(e.text, text) || strchr(e.text, '\n'))
        fail_msg("expected '%s' in: %s", text, e.text);
}

static void expect_refused(const struct file *f, const char *text)
{
    expect_refused_as(f, ERROR_UNSUPPORTED, text);
}

static void test_refused_by_name(void **state)
{
    expect_refused(&(struct file){.arch = "clip"}, "an mmproj file");
    expect_refused(&(struct file){.arch = "granitehybrid"},
                   "architecture 'granitehybrid' is not supported");
    expect_refused(&(struct file){.arch = "granitehybrid"}, "lfm2moe"); /* the whole list */
    expect_refused(&(struct file){.arch = "qwen3", .dense = true},
                   "a dense model ('qwen3'): moed runs Mixture-of-Experts models");
    expect_refused(&(struct file){.arch = "gptoss"}, "take a file in llama.cpp's form");
}

/* Of the architectures, only those with latent attention scale q with the position. */
static void test_temperature(void **state)
{
    struct file f = {.arch = "dots1", .shared_count = 1, .key = "attention.temperature_scale"};
    f.real = 0.1f;
    expect_refused(&f, "'dots1.attention.temperature_scale' is 0.1");
}

/* The gate of files without expert_gating_func and expert_weights_norm. */
static void test_routers(void **state)
{
    static const struct {
        const char *arch;
        enum router_kind kind;
        bool renormalise;
    } rows[] = {{"glm4moe", ROUTER_SIGMOID, true},     {"minimax-m2", ROUTER_SIGMOID, true},
                {"dots1", ROUTER_SIGMOID, false},      {"qwen3vlmoe", ROUTER_SOFTMAX, true},
                {"bailingmoe2", ROUTER_SIGMOID, true}, {"ernie4_5-moe", ROUTER_SOFTMAX, true},
                {"qwen35moe", ROUTER_SOFTMAX, true},   {"hunyuan-moe", ROUTER_SOFTMAX, true},
                {"exaone-moe", ROUTER_SIGMOID, true}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct file f = {.arch = rows[i].arch, .shared_count = 1};
        struct model_params p = params_of(&f);
        assert_int_equal(p.router.kind, rows[i].kind);
        assert_int_equal(p.router.renormalise, rows[i].renormalise);
    }
}

/* What the originals add to the sum of the weights. */
static void test_weight_sums(void **state)
{
    static const struct {
        const char *arch;
        float eps, least;
    } rows[] = {{"glm4moe", 1e-20f, 0},     {"minimax-m2", 0, 0},        {"dots1", 1e-20f, 0},
                {"bailingmoe2", 1e-20f, 0}, {"ernie4_5-moe", 0, 1e-12f}, {"qwen35moe", 0, 0}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct file f = {.arch = rows[i].arch, .shared_count = 1};
        struct model_params p = params_of(&f);
        assert_true(p.router.weight_sum_eps == rows[i].eps);
        assert_true(p.router.weight_sum_least == rows[i].least);
    }
}

/* ERNIE-4.5-300B has no shared expert and says so. */
static void test_no_shared_expert(void **state)
{
    struct file f = {.arch = "ernie4_5-moe", .shared_count = 2};
    assert_int_equal(params_of(&f).d_shared, 8);
    f.shared_count = 0;
    assert_int_equal(params_of(&f).d_shared, 0);
}

static void test_layers_between(void **state)
{
    struct file f = {.arch = "ernie4_5-moe", .key = "interleave_moe_layer_step", .value = 1};
    (void)params_of(&f);
    f.value = 2;
    expect_refused(&f, "'ernie4_5-moe.interleave_moe_layer_step' is 2");
}

static void check_windows(const struct file *f, const bool *windowed)
{
    struct model_params p = params_of(f);
    uint32_t n = 0;
    for (uint32_t layer = 0; layer < LAYERS; layer++) {
        assert_int_equal(p.layers[layer].window, windowed[layer] ? 16 : 0);
        assert_int_equal(p.layers[layer].unrotated, !windowed[layer]);
        n += windowed[layer];
    }
    assert_int_equal(params_windows(&p).layers, n);
    assert_int_equal(params_windows(&p).largest, 16);
}

static void test_windows(void **state)
{
    static const bool rows[LAYERS] = {true, true, true, false, true, true, true, false};
    static const bool other[LAYERS] = {true, false, true, false, true, false, true, false};
    struct file f = {.arch = "exaone-moe", .shared_count = 1, .pattern = rows};
    check_windows(&f, rows);
    f.pattern = other; /* of the file, not the row's */
    check_windows(&f, other);
    f.pattern = NULL; /* the row's */
    check_windows(&f, rows);
    f.key = "attention.sliding_window_pattern";
    f.value = 2;
    check_windows(&f, other);
    f.value = PARAMS_MAX_LAYERS + 1;
    struct model_params p;
    struct error e;
    assert_int_equal(read_file(&f, &p, &e), ERROR_FORMAT);
    f = (struct file){.arch = "gpt-oss"};
    p = params_of(&f);
    assert_int_equal(p.layers[1].window, 0);
    assert_false(p.layers[1].unrotated); /* a layer without a window rotates in most models */
    f.pattern = rows;
    f.n_pattern = LAYERS - 1;
    assert_int_equal(read_file(&f, &p, &e), ERROR_FORMAT);
    assert_non_null(strstr(e.text, "has 7 values for 8 layers"));
}

static void check_recurrent(const struct file *f, const bool *recurrent, uint32_t n)
{
    struct model_params p = params_of(f);
    for (uint32_t layer = 0; layer < LAYERS; layer++)
        assert_int_equal(p.layers[layer].kind,
                         recurrent[layer] ? LAYER_DELTA_NET : LAYER_ATTENTION);
    assert_int_equal(params_recurrent_layers(&p), n);
    assert_int_equal(p.delta.v_dim, 6);
    assert_int_equal(params_convolved(&p), 2 * 2 * 8 + 4 * 6);
    assert_int_equal(params_state_bytes(&p),
                     n * (3 * 56 + 4 * (16 * 16 + 16 * (16 + 16) + 32)) * sizeof(float));
}

static void test_recurrent_layers(void **state)
{
    static const bool fourth[LAYERS] = {true, true, true, false, true, true, true, false};
    static const bool third[LAYERS] = {true, true, false, true, true, false, true, true};
    static const bool listed[LAYERS] = {false, true, true, true, false, true, true, true};
    /* no heads that share evenly, no even values, one tap */
    static const uint32_t impossible[][N_DELTA_KEYS] = {{0, 0, 3}, {0, 0, 0, 0, 25}, {1}};
    struct file f = {.arch = "qwen35moe", .shared_count = 1};
    struct model_params p;
    struct error e;
    check_recurrent(&f, fourth, 6);
    p = params_of(&f);
    assert_null(params_host_dense(&p));
    p.delta.k_dim = DELTA_KEY_MOST_ON_DEVICE + 1;
    assert_non_null(params_host_dense(&p));
    f.key = "full_attention_interval";
    f.value = 3;
    check_recurrent(&f, third, 6);
    f.pattern = listed; /* wins */
    check_recurrent(&f, listed, 6);
    f.n_pattern = LAYERS - 1;
    assert_int_equal(read_file(&f, &p, &e), ERROR_FORMAT);
    assert_non_null(strstr(e.text, "one for each of the 8 layers"));
    f = (struct file){.arch = "qwen35moe", .shared_count = 1};
    f.key = "full_attention_interval";
    f.value = LAYERS + 1;
    assert_int_equal(read_file(&f, &p, &e), ERROR_UNSUPPORTED);
    assert_non_null(strstr(e.text, "no layer has attention"));
    for (int i = 0; i < 3; i++) {
        f = (struct file){.arch = "qwen35moe", .shared_count = 1};
        memcpy(f.delta, impossible[i], sizeof f.delta);
        assert_int_equal(read_file(&f, &p, &e), ERROR_FORMAT);
        assert_non_null(strstr(e.text, "make no recurrent layer"));
    }
    expect_refused_as(&(struct file){.arch = "lfm2moe"}, ERROR_FORMAT,
                      "'lfm2moe.attention.head_count_kv': expected a list by layer");
    p = params_of(&(struct file){.arch = "qwen3moe"});
    assert_int_equal(params_recurrent_layers(&p), 0);
    assert_int_equal(params_state_bytes(&p), 0);
}

/* The states of the requests at once: 3 * N + 4 of them, up to 256 MiB, but those of 4 requests. */
static void test_parallel(void **state)
{
    struct model_params p = params_of(&(struct file){.arch = "qwen3moe"});
    assert_int_equal(memory_parallel(&p, 0), 32);
    assert_int_equal(memory_parallel(&p, 200), 200);
    p = params_of(&(struct file){.arch = "qwen35moe", .shared_count = 1});
    assert_int_equal(memory_parallel(&p, 0), 32); /* 100 states of 69 KiB */
    p.delta.v_heads = 4 * 64;                     /* 4.8 MiB: 52 states fit */
    assert_in_range(params_state_bytes(&p), (256 << 20) / 60, (256 << 20) / 52);
    assert_int_equal(memory_parallel(&p, 0), 16);
    p.delta.v_heads = 4 * 2000;
    assert_int_equal(memory_parallel(&p, 0), 4);
    assert_int_equal(memory_parallel(&p, 64), 64);
}

/* Snapshots follow the memory that they may take, from 2 for each request and 4 to 256. */
static void test_snapshots(void **state)
{
    struct model_params p = params_of(&(struct file){.arch = "qwen35moe", .shared_count = 1});
    uint64_t each = params_state_bytes(&p);
    assert_int_equal(memory_state_snapshots_in(&p, 4, 0), 12);
    assert_int_equal(memory_state_snapshots_in(&p, 4, 12 * each), 12);
    assert_int_equal(memory_state_snapshots_in(&p, 4, 40 * each - 1), 39);
    assert_int_equal(memory_state_snapshots_in(&p, 4, 1ull << 50), 256);
    assert_int_equal(memory_state_snapshots_in(&p, 200, 1ull << 50), 404);
    p = params_of(&(struct file){.arch = "qwen3moe"}); /* has no states */
    assert_int_equal(memory_state_snapshots_in(&p, 4, 1ull << 50), 12);
}

/* A quarter of the KV cache, and half of what is left when it is full: the same whatever it has
 * already. */
static void test_snapshot_bytes(void **state)
{
    enum { KV = 800 };
    (void)state;
    for (uint64_t used = 0; used <= KV; used += 100) {
        assert_int_equal(memory_snapshot_bytes(KV, used, 3000 - used), KV / 4);
        assert_int_equal(memory_snapshot_bytes(KV, used, KV + 100 - used), 50);
        assert_int_equal(memory_snapshot_bytes(KV, used, KV - used), 0);
    }
}

/* Layers with a window have heads and a rotation of their own. */
static void test_windowed_heads(void **state)
{
    static const uint32_t heads[LAYERS] = {2, 2, 2, 2, 2, 1, 2, 2};
    static const uint32_t uneven[LAYERS] = {3, 3, 3, 3, 3, 1, 3, 3};
    struct file f = {.arch = "gemma4", .kv_heads = heads};
    f.key = "attention.key_length_swa";
    f.value = 6;
    struct model_params p = params_of(&f);
    for (uint32_t i = 0; i < LAYERS; i++) {
        bool whole = i == 5; /* the row's: the sixth */
        assert_int_equal(p.layers[i].window, whole ? 0 : 16);
        assert_int_equal(p.layers[i].n_kv_heads, heads[i]);
        assert_int_equal(p.layers[i].k_dim, whole ? 4 : 6);
        assert_int_equal(params_rope(&p, i)->dims, whole ? 2 : 6);
        assert_true(params_rope(&p, i)->base == 10000);
    }
    assert_int_equal(params_angles(&p), 8);
    assert_null(params_host_dense(&p));
    assert_int_equal(p.d_shared, 4);
    assert_true(p.logit_cap == 0 && p.attention_scale == 1);
    f.kv_heads = uneven;
    expect_refused_as(&f, ERROR_FORMAT, "2 attention heads cannot share 3 key-value heads");
    f = (struct file){.arch = "gemma4", .key = "rope.dimension_count_swa", .value = 6};
    expect_refused_as(&f, ERROR_FORMAT, "'gemma4.rope.dimension_count_swa' is 6: expected an even");
    assert_null(params_host_dense(&(struct model_params){.n_layers = 1}));
}

static void test_of_other_gemmas(void **state)
{
    struct file f = {.arch = "gemma4", .key = "attention.shared_kv_layers"};
    (void)params_of(&f); /* 0 */
    f.value = 2;
    expect_refused(&f, "'gemma4.attention.shared_kv_layers' is 2");
    f.key = "embedding_length_per_layer_input";
    expect_refused(&f, "'gemma4.embedding_length_per_layer_input' is 2");
    f = (struct file){.arch = "gemma4", .key = "final_logit_softcapping", .real = 30};
    assert_true(params_of(&f).logit_cap == 30);
    f.arch = "qwen3moe";
    expect_refused(&f, "'qwen3moe.final_logit_softcapping' is 30");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_refused_by_name),  cmocka_unit_test(test_temperature),
        cmocka_unit_test(test_routers),          cmocka_unit_test(test_weight_sums),
        cmocka_unit_test(test_no_shared_expert), cmocka_unit_test(test_layers_between),
        cmocka_unit_test(test_windows),          cmocka_unit_test(test_recurrent_layers),
        cmocka_unit_test(test_parallel),         cmocka_unit_test(test_snapshots),
        cmocka_unit_test(test_snapshot_bytes),   cmocka_unit_test(test_windowed_heads),
        cmocka_unit_test(test_of_other_gemmas),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
