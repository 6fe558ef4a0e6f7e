/* Files without keys that their converters did not write yet: what the published models have. Files
 * that are no model are refused by what they are. */
#include "model/published.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "tests/unit/model_file.h"

enum { LAYERS = 3 };

/* A model with latent attention of which the first layer is dense. */
static struct file file_of(const char *arch, uint32_t experts, uint32_t width)
{
    struct file f;
    file_begin(&f, arch);
    const struct {
        const char *suffix;
        uint32_t value;
    } keys[] = {{"block_count", LAYERS},       {"context_length", 131072},
                {"embedding_length", width},   {"attention.head_count", 2},
                {"attention.key_length", 192}, {"attention.value_length", 128},
                {"attention.kv_lora_rank", 8}, {"rope.dimension_count", 64},
                {"expert_count", experts},     {"expert_used_count", 2},
                {"feed_forward_length", 8},    {"expert_feed_forward_length", 8},
                {"expert_shared_count", 1},    {"leading_dense_block_count", 1}};
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
        number(&f, keys[i].suffix, keys[i].value);
    tensor(&f, "blk.1.ffn_gate_inp.weight");
    tensor(&f, "blk.2.ffn_gate_inp.weight");
    return f;
}

static void expect_refused(struct file *f, const char *part)
{
    expect_error(f, ERROR_UNSUPPORTED, part);
}

/* GLM-4.7-Flash: 64 experts. The bias of the first layer with a router tells of a sigmoid. */
static void test_gate(void **state)
{
    struct file f = file_of("deepseek2", 64, 2048);
    struct model_params p = params_of(&f);
    assert_int_equal(p.router.kind, ROUTER_SOFTMAX);
    assert_int_equal(p.published, 0);
    f = file_of("deepseek2", 64, 2048);
    tensor(&f, "blk.1.exp_probs_b.bias");
    p = params_of(&f);
    assert_int_equal(p.router.kind, ROUTER_SIGMOID);
    assert_int_equal(p.published, PUBLISHED_GATE);
    for (uint32_t id = 1; id <= 2; id++) { /* the file's key decides */
        f = file_of("deepseek2", 64, 2048);
        tensor(&f, "blk.1.exp_probs_b.bias");
        number(&f, "expert_gating_func", id);
        p = params_of(&f);
        assert_int_equal(p.router.kind, id == 1 ? ROUTER_SOFTMAX : ROUTER_SIGMOID);
        assert_int_equal(p.published, 0);
    }
}

static void test_groups(void **state)
{
    static const struct {
        uint32_t experts, width, gate, groups, used; /* 0: none */
    } models[] = {{256, 7168, 2, 8, 4},              /* DeepSeek-V3 */
                  {160, 5120, 1, 8, 3},              /* DeepSeek-V2 */
                  {64, 2048, 1, 0, 0},               /* V2-Lite */
                  {384, 7168, 2, 0, 0},              /* Kimi-K2 */
                  {256, 5120, 2, 0, 0}, {256, 7168, 1, 0, 0}};
    for (size_t i = 0; i < sizeof models / sizeof models[0]; i++)
        for (int with_key = 0; with_key < 2; with_key++) {
            struct file f = file_of("deepseek2", models[i].experts, models[i].width);
            number(&f, "expert_gating_func", models[i].gate);
            if (with_key)
                number(&f, "expert_group_count", 1);
            struct model_params p = params_of(&f);
            bool known = models[i].groups && !with_key;
            assert_int_equal(p.router.n_groups, known ? models[i].groups : 0);
            assert_int_equal(p.router.n_groups_used, known ? models[i].used : 0);
            assert_int_equal(p.published, known ? PUBLISHED_GROUPS | PUBLISHED_GROUPS_USED : 0);
        }
}

static struct file kimi(uint32_t experts, float factor, const char *name)
{
    struct file f = file_of("deepseek2", experts, 7168);
    text(&f, "general.name", name);
    text(&f, "deepseek2.rope.scaling.type", "yarn");
    real(&f, "rope.scaling.factor", factor);
    number(&f, "rope.scaling.original_context_length", 4096);
    return f;
}

static void test_ramp(void **state)
{
    static const struct {
        uint32_t experts;
        float factor;
        const char *name;
        float fast;
    } models[] = {{384, 32, "Kimi K2 Instruct", 1},  {384, 64, "Kimi-K2-Instruct-0905", 1},
                  {384, 64, "Kimi-K2-Thinking", 1},  {384, 64, "Kimi-K2.5", 32},
                  {256, 40, "DeepSeek-V3-0324", 32}, {384, 40, "Kimi K2 Instruct", 32},
                  {384, 32, "Kimi-K2.gguf", 1},      {384, 64, "x-k2.Q4-K2.6.gguf", 32}};
    const uint32_t both = PUBLISHED_BETA_FAST | PUBLISHED_BETA_SLOW;
    for (size_t i = 0; i < sizeof models / sizeof models[0]; i++) {
        struct file f = kimi(models[i].experts, models[i].factor, models[i].name);
        struct model_params p = params_of(&f);
        assert_true(p.rope.beta_fast == models[i].fast && p.rope.beta_slow == 1);
        assert_int_equal(p.published & both, models[i].fast == 1 ? both : 0);
    }
    struct file f = kimi(384, 32, "Kimi K2 Instruct");
    real(&f, "rope.scaling.yarn_beta_fast", 16);
    struct model_params p = params_of(&f);
    assert_true(p.rope.beta_fast == 16);
    assert_int_equal(p.published & both, PUBLISHED_BETA_SLOW);
}

/* Whose ramp has ends between pairs; other files of the architecture, as the golden ones, have not.
 */
static void test_exact_ramp(void **state)
{
    static const struct {
        uint32_t width, original_context;
        float factor;
        bool exact;
    } models[] = {{2880, 4096, 32, true},
                  {64, 4096, 32, false},
                  {2880, 4096, 16, false},
                  {2880, 1024, 32, false}};
    (void)state;
    for (size_t i = 0; i < sizeof models / sizeof models[0]; i++) {
        struct file f;
        file_begin(&f, "gpt-oss");
        const struct {
            const char *suffix;
            uint32_t value;
        } keys[] = {{"block_count", LAYERS},
                    {"context_length", 131072},
                    {"embedding_length", models[i].width},
                    {"attention.head_count", 2},
                    {"attention.key_length", 64},
                    {"attention.value_length", 64},
                    {"attention.sliding_window", 128},
                    {"rope.scaling.original_context_length", models[i].original_context},
                    {"expert_count", 32},
                    {"expert_used_count", 4},
                    {"expert_feed_forward_length", 8}};
        for (size_t k = 0; k < sizeof keys / sizeof keys[0]; k++)
            number(&f, keys[k].suffix, keys[k].value);
        text(&f, "gpt-oss.rope.scaling.type", "yarn");
        real(&f, "rope.freq_base", 150000);
        real(&f, "rope.scaling.factor", models[i].factor);
        assert_int_equal(params_of(&f).rope.exact_ramp, models[i].exact);
    }
}

static void test_temperature(void **state)
{
    for (int with_key = 0; with_key < 2; with_key++) {
        struct file f = file_of("mistral4", 128, 4096);
        number(&f, "rope.scaling.original_context_length", 8192);
        if (with_key)
            real(&f, "attention.temperature_scale", 0.25f);
        struct model_params p = params_of(&f);
        assert_true(p.temperature_scale == (with_key ? 0.25f : 0.1f));
        assert_int_equal(p.temperature_length, 8192);
        assert_int_equal(p.published, with_key ? 0 : PUBLISHED_TEMPERATURE);
        assert_int_equal(p.router.kind, ROUTER_SOFTMAX);
    }
}

static void test_names(void **state)
{
    unsigned n = 0;
    while (published_key(n))
        n++;
    assert_int_equal((1u << n) - 1, PUBLISHED_ALL);
}

/* ---- Files that are no model ---- */

static void test_types(void **state)
{
    struct file f = file_of("deepseek2", 64, 2048);
    text(&f, "general.type", "adapter");
    expect_refused(&f, ": a LoRA adapter");
    f = file_of("deepseek2", 64, 2048);
    text(&f, "general.type", "imatrix");
    expect_refused(&f, ": an importance matrix");
    f = file_of("qwen3vl", 64, 2048);
    text(&f, "general.type", "mmproj");
    expect_refused(&f, ": an mmproj file");
    f = file_of("deepseek2", 64, 2048);
    text(&f, "general.type", "model");
    (void)params_of(&f);
}

/* Layers after the trunk, without it; the keys count the whole model's, or these alone. */
static void test_drafts(void **state)
{
    for (uint32_t further = 1; further <= LAYERS; further += LAYERS - 1) {
        struct file f = file_of("deepseek2", 64, 2048);
        number(&f, "nextn_predict_layers", further);
        if (further == LAYERS)
            tensor(&f, "blk.0.attn_norm.weight");
        tensor(&f, "blk.2.nextn.eh_proj.weight");
        expect_refused(&f, "only the layers of a model that predict further tokens");
    }
    struct file f = file_of("deepseek2", 64, 2048);
    number(&f, "nextn_predict_layers", 1);
    tensor(&f, "blk.0.attn_norm.weight");
    tensor(&f, "blk.2.nextn.eh_proj.weight");
    assert_int_equal(params_of(&f).n_layers, LAYERS - 1);
}

static void test_early_mixtral(void **state)
{
    struct file f = file_of("llama", 8, 4096);
    tensor(&f, "blk.0.ffn_gate.0.weight");
    expect_refused(&f, "an early file with a tensor for each expert ('blk.0.ffn_gate.0.weight')");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gate),          cmocka_unit_test(test_groups),
        cmocka_unit_test(test_ramp),          cmocka_unit_test(test_exact_ramp),
        cmocka_unit_test(test_temperature),   cmocka_unit_test(test_names),
        cmocka_unit_test(test_types),         cmocka_unit_test(test_drafts),
        cmocka_unit_test(test_early_mixtral),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
