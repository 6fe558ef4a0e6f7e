/* Keys of features that an architecture's row does not have: refused by name, unless their value
 * changes nothing. */
#include "model/params.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "tests/unit/model_file.h"

#include <stdbool.h>

enum { LAYERS = 6 };

static struct file file_of(const char *arch)
{
    static const struct {
        const char *suffix;
        uint32_t value;
    } keys[] = {{"block_count", LAYERS},
                {"context_length", 64},
                {"embedding_length", FILE_COLUMNS},
                {"attention.head_count", 4},
                {"attention.key_length", 4},
                {"attention.value_length", 4},
                {"attention.sliding_window", 64},
                {"expert_count", 4},
                {"expert_used_count", 2},
                {"expert_shared_count", 0},
                {"feed_forward_length", 8},
                {"expert_feed_forward_length", 4}};
    struct file f;
    file_begin(&f, arch);
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
        number(&f, keys[i].suffix, keys[i].value);
    real(&f, "rope.freq_base", 50000);
    for (int i = 0; i < LAYERS; i++) {
        char name[64];
        snprintf(name, sizeof name, "blk.%d.ffn_gate_inp.weight", i);
        tensor(&f, name);
    }
    return f;
}

static void expect_refused(struct file *f, const char *suffix)
{
    char part[96];
    snprintf(part, sizeof part, "'%s.%s' is", f->arch, suffix);
    expect_error(f, ERROR_UNSUPPORTED, part);
}

static void list(struct file *f, const char *suffix, uint32_t type, uint64_t n, uint32_t value)
{
    key(f, suffix, GGUF_ARRAY);
    u32(&f->keys, type);
    u64(&f->keys, n);
    for (uint64_t i = 0; i < n; i++)
        if (type == GGUF_BOOL)
            strbuf_append(&f->keys, value ? "\1" : "\0", 1);
        else
            u32(&f->keys, value);
}

static void test_numbers(void **state)
{
    static const struct {
        const char *arch, *suffix;
        float neutral, other;
    } keys[] = {
        {"qwen3moe", "attention.value_scale", 1, 0.5f},
        {"qwen3moe", "attention.output_scale", 1, 0.5f},
        {"qwen3moe", "attention.scale", 0, 0.5f},
        {"laguna", "router_logit_softcapping", 0, 30},
        {"hunyuan-moe", "rope.scaling.alpha", 1, 1000},
        {"qwen3moe", "rope.scaling.yarn_ext_factor", -1, 1},
        {"gpt-oss", "rope.freq_base_swa", 50000, 777},
        {"gpt-oss", "rope.freq_base_swa", 0, 777},
        {"cohere2moe", "rope.freq_base_swa", 50000, 777},
        {"glm4moe", "swiglu_clamp_exp", 0, 7},
        {"glm4moe", "swiglu_clamp_shexp", 0, 7},
    };
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        struct file f = file_of(keys[i].arch);
        real(&f, keys[i].suffix, keys[i].neutral);
        (void)params_of(&f);
        f = file_of(keys[i].arch);
        real(&f, keys[i].suffix, keys[i].other);
        expect_refused(&f, keys[i].suffix);
    }
}

static void test_counts(void **state)
{
    static const struct {
        const char *arch, *suffix;
        uint32_t neutral, other;
    } keys[] = {
        {"step35", "moe_every_n_layers", 1, 2},
        {"ernie4_5-moe", "interleave_moe_layer_step", 1, 2},
        {"glm4moe", "hyper_connection.count", 1, 4},
        {"mimo2", "attention.key_length_swa", 4, 2},
        {"mimo2", "attention.value_length_swa", 4, 2},
        {"gpt-oss", "rope.dimension_count_swa", 4, 2},
        {"exaone-moe", "attention.key_length_swa", 4, 2},
        {"qwen3moe", "attention.key_length_swa", 2, 0}, /* it has no window */
        {"mimo2", "attention.key_length_swa", 0, 0},
        {"mimo2", "attention.value_length_swa", 0, 0},
        {"gpt-oss", "rope.dimension_count_swa", 0, 0},
    };
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        struct file f = file_of(keys[i].arch);
        number(&f, keys[i].suffix, keys[i].neutral);
        (void)params_of(&f);
        if (keys[i].other == 0)
            continue;
        f = file_of(keys[i].arch);
        number(&f, keys[i].suffix, keys[i].other);
        expect_refused(&f, keys[i].suffix);
    }
}

static void test_other_attention(void **state)
{
    for (uint32_t value = 0; value < 2; value++) {
        struct file f = file_of("qwen3moe");
        key(&f, "attention.causal", GGUF_BOOL);
        strbuf_append(&f.keys, value ? "\1" : "\0", 1);
        if (value)
            (void)params_of(&f);
        else
            expect_refused(&f, "attention.causal");
        f = file_of("qwen3moe");
        list(&f, "attention.recurrent_layers", GGUF_BOOL, LAYERS, value);
        if (value)
            expect_refused(&f, "attention.recurrent_layers");
        else
            (void)params_of(&f);
    }
    struct file f = file_of("qwen3moe");
    list(&f, "attention.recurrent_layers", GGUF_BOOL, LAYERS - 1, 1);
    expect_error(&f, ERROR_FORMAT, "'qwen3moe.attention.recurrent_layers': expected a list of");
    f = file_of("qwen3moe");
    number(&f, "attention.recurrent_layers", 1);
    expect_error(&f, ERROR_FORMAT, "one for each of the 6 layers");
}

static void test_activation(void **state)
{
    static const struct {
        const char *arch, *name;
        bool same;
    } cases[] = {{"qwen3moe", "silu", true},
                 {"qwen3moe", "gelu", false},
                 {"gemma4", "gelu_pytorch_tanh", true},
                 {"gemma4", "gelu", true}, /* of files: the same */
                 {"gemma4", "gelu_erf", false},
                 {"gemma4", "silu", false}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char suffix[64];
        struct file f = file_of(cases[i].arch);
        snprintf(suffix, sizeof suffix, "%s.hidden_activation", cases[i].arch);
        text(&f, suffix, cases[i].name);
        if (cases[i].same)
            (void)params_of(&f);
        else
            expect_refused(&f, "hidden_activation");
    }
}

/* YaRN's ramp is whole. */
static void test_part_of_ramp(void **state)
{
    for (int i = 0; i < 3; i++) {
        struct file f = file_of("gpt-oss");
        text(&f, "gpt-oss.rope.scaling.type", "yarn");
        real(&f, "rope.scaling.factor", 4);
        real(&f, "rope.scaling.yarn_ext_factor", (float)(1 - i)); /* 1, 0, -1: unsaid */
        if (i == 1)
            expect_refused(&f, "rope.scaling.yarn_ext_factor");
        else
            (void)params_of(&f);
    }
}

/* Where only the layers with a window rotate, theirs is the base. */
static void test_base_of_windows(void **state)
{
    static const char *const names[] = {"exaone-moe", "afmoe"};
    for (int i = 0; i < 2; i++) {
        struct file f = file_of(names[i]);
        real(&f, "rope.freq_base_swa", 777);
        struct model_params p = params_of(&f);
        assert_true(params_rope(&p, 0)->base == 777 && p.layers[0].window && p.layers[3].unrotated);
    }
}

/* One number for all layers; no list of other lengths or types. */
static void test_limits(void **state)
{
    struct file f = file_of("step35");
    real(&f, "swiglu_clamp_exp", 7);
    list(&f, "swiglu_clamp_shexp", GGUF_F32, LAYERS + 1, bits_of(16)); /* of further layers, too */
    struct model_params p = params_of(&f);
    for (int i = 0; i < LAYERS; i++)
        assert_true(p.layers[i].expert_limit == 7 && p.layers[i].shared_limit == 16);
    f = file_of("step35");
    list(&f, "swiglu_clamp_exp", GGUF_F32, LAYERS - 1, bits_of(7));
    expect_error(&f, ERROR_FORMAT, "'step35.swiglu_clamp_exp': expected a number, or a list");
    f = file_of("step35");
    key(&f, "swiglu_clamp_exp", GGUF_ARRAY);
    u32(&f.keys, GGUF_F64);
    u64(&f.keys, LAYERS);
    for (int i = 0; i < LAYERS; i++)
        u64(&f.keys, 0);
    expect_error(&f, ERROR_FORMAT, "one for each of the 6 layers");
    f = file_of("step35");
    real(&f, "swiglu_clamp_shexp", -1);
    expect_error(&f, ERROR_FORMAT, "'step35.swiglu_clamp_shexp': no limit of layer 0: -1");
    f = file_of("glm4moe");
    list(&f, "swiglu_clamp_exp", GGUF_F32, LAYERS, bits_of(7));
    expect_refused(&f, "swiglu_clamp_exp");
    f = file_of("glm4moe");
    list(&f, "swiglu_clamp_exp", GGUF_F32, LAYERS, 0);
    (void)params_of(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_numbers),         cmocka_unit_test(test_counts),
        cmocka_unit_test(test_other_attention), cmocka_unit_test(test_activation),
        cmocka_unit_test(test_part_of_ramp),    cmocka_unit_test(test_base_of_windows),
        cmocka_unit_test(test_limits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
