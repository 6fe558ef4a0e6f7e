/* Models with random weights: every tensor that the architecture needs, sane statistics, a
 * vocabulary that holds together, the same bytes for the same seed. */
#include "gguf/gguf.h"
#include "mkmodel/mkmodel.h"
#include "mkmodel/vocabulary.h"
#include "quant/quant.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "tests/unit/temporary_directory.h"

#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void tiny(struct mkmodel_options *o, const char *arch, const char *type)
{
    mkmodel_defaults(o);
    o->arch = arch;
    o->type = type;
    o->layers = 2;
    o->hidden = 64;
    o->heads = 4;
    o->kv_heads = 2;
    o->head_dim = 32;
    o->experts = 6;
    o->top_k = 3;
    o->expert_width = 96;
    o->shared_width = 128;
    o->vocab = 400;
}

static struct gguf *make(const struct mkmodel_options *o, const char *name,
                         struct mkmodel_result *result)
{
    struct error e = {0};
    struct gguf *g = NULL;
    if (mkmodel_write(o, in_directory(name), NULL, NULL, result, &e) != ERROR_OK)
        fail_msg("%s", e.text);
    if (gguf_open(result->first_file, &g, &e) != ERROR_OK)
        fail_msg("%s", e.text);
    return g;
}

static void expect(const struct gguf *g, const char *name, enum tensor_type type, uint64_t columns,
                   uint64_t rows, uint64_t matrices)
{
    const struct gguf_tensor *t = gguf_tensor_find(g, name);
    if (!t)
        fail_msg("tensor %s is missing", name);
    assert_int_equal(t->type, type);
    assert_int_equal(t->ne[0], columns);
    assert_int_equal(t->ne[1], rows);
    assert_int_equal(t->ne[2], matrices);
}

/* What all three architectures have in common, with the sizes of tiny(). */
static uint64_t expect_common(const struct gguf *g)
{
    char name[64];
    expect(g, "token_embd.weight", TENSOR_F32, 64, 400, 1);
    expect(g, "output_norm.weight", TENSOR_F32, 64, 1, 1);
    expect(g, "output.weight", TENSOR_F32, 64, 400, 1);
    for (int layer = 0; layer < 2; layer++) {
#define TENSOR(suffix, columns, rows, matrices)                                                    \
    snprintf(name, sizeof name, "blk.%d." suffix, layer);                                          \
    expect(g, name, TENSOR_F32, columns, rows, matrices)
        TENSOR("attn_norm.weight", 64, 1, 1);
        TENSOR("attn_q.weight", 64, 128, 1);
        TENSOR("attn_k.weight", 64, 64, 1);
        TENSOR("attn_v.weight", 64, 64, 1);
        TENSOR("attn_output.weight", 128, 64, 1);
        TENSOR("ffn_norm.weight", 64, 1, 1);
        TENSOR("ffn_gate_inp.weight", 64, 6, 1);
        TENSOR("ffn_gate_exps.weight", 64, 96, 6);
        TENSOR("ffn_up_exps.weight", 64, 96, 6);
        TENSOR("ffn_down_exps.weight", 96, 64, 6);
    }
    return 3 + 2 * 10;
}

static void expect_u32(const struct gguf *g, const char *key, uint32_t value)
{
    struct error e = {0};
    uint32_t found;
    if (gguf_get_u32(g, key, &found, &e) != ERROR_OK)
        fail_msg("%s", e.text);
    assert_int_equal(found, value);
}

static void test_llama(void **state)
{
    struct mkmodel_options o;
    struct mkmodel_result result;
    tiny(&o, "llama", "F32");
    struct gguf *g = make(&o, "llama.gguf", &result);
    assert_int_equal(expect_common(g), gguf_tensor_count(g));
    expect_u32(g, "llama.expert_count", 6);
    expect_u32(g, "llama.expert_used_count", 3);
    expect_u32(g, "llama.feed_forward_length", 96);
    expect_u32(g, "llama.attention.key_length", 32);
    gguf_close(g);
}

static void test_qwen2moe(void **state)
{
    struct mkmodel_options o;
    struct mkmodel_result result;
    tiny(&o, "qwen2moe", "F32");
    struct gguf *g = make(&o, "qwen2moe.gguf", &result);
    uint64_t count = expect_common(g);
    expect(g, "blk.1.attn_q.bias", TENSOR_F32, 128, 1, 1);
    expect(g, "blk.1.attn_k.bias", TENSOR_F32, 64, 1, 1);
    expect(g, "blk.1.attn_v.bias", TENSOR_F32, 64, 1, 1);
    expect(g, "blk.1.ffn_gate_shexp.weight", TENSOR_F32, 64, 128, 1);
    expect(g, "blk.1.ffn_up_shexp.weight", TENSOR_F32, 64, 128, 1);
    expect(g, "blk.1.ffn_down_shexp.weight", TENSOR_F32, 128, 64, 1);
    expect(g, "blk.1.ffn_gate_inp_shexp.weight", TENSOR_F32, 64, 1, 1);
    assert_int_equal(count + 2 * 7, gguf_tensor_count(g));
    expect_u32(g, "qwen2moe.expert_feed_forward_length", 96);
    expect_u32(g, "qwen2moe.expert_shared_feed_forward_length", 128);
    gguf_close(g);
}

static void test_qwen3moe(void **state)
{
    struct mkmodel_options o;
    struct mkmodel_result result;
    tiny(&o, "qwen3moe", "F32");
    struct gguf *g = make(&o, "qwen3moe.gguf", &result);
    uint64_t count = expect_common(g);
    expect(g, "blk.0.attn_q_norm.weight", TENSOR_F32, 32, 1, 1);
    expect(g, "blk.1.attn_k_norm.weight", TENSOR_F32, 32, 1, 1);
    assert_int_equal(count + 2 * 2, gguf_tensor_count(g));
    gguf_close(g);
}

/* A mix; rows of 96 fit no block of 256, rows of 80 no block of 32. */
static void test_types(void **state)
{
    struct mkmodel_options o;
    struct mkmodel_result result;
    tiny(&o, "llama", "Q4_K_M");
    o.hidden = 256;
    struct gguf *g = make(&o, "mix.gguf", &result);
    expect(g, "output.weight", TENSOR_Q6_K, 256, 400, 1);
    expect(g, "token_embd.weight", TENSOR_Q4_K, 256, 400, 1);
    expect(g, "blk.0.attn_v.weight", TENSOR_Q6_K, 256, 64, 1);
    expect(g, "blk.1.attn_v.weight", TENSOR_Q4_K, 256, 64, 1);
    expect(g, "blk.0.ffn_gate_inp.weight", TENSOR_F32, 256, 6, 1);
    expect(g, "blk.0.ffn_gate_exps.weight", TENSOR_Q4_K, 256, 96, 6);
    expect(g, "blk.0.ffn_down_exps.weight", TENSOR_Q8_0, 96, 256, 6);
    assert_int_equal(result.tensors_of_other_type, 4); /* and attn_output, rows of 128 */
    assert_non_null(strstr(result.other_type_example, "Q8_0"));
    gguf_close(g);

    tiny(&o, "llama", "Q4_0");
    o.expert_width = 80;
    g = make(&o, "odd.gguf", &result);
    expect(g, "blk.0.ffn_down_exps.weight", TENSOR_F16, 80, 64, 6);
    expect(g, "blk.0.ffn_up_exps.weight", TENSOR_Q4_0, 64, 80, 6);
    gguf_close(g);
}

/* Mean and deviation of a whole tensor, through the quantisation. */
static void check_statistics(const struct gguf *g, const char *name, double mean, double deviation)
{
    const struct gguf_tensor *t = gguf_tensor_find(g, name);
    uint64_t n = t->ne[0] * t->ne[1] * t->ne[2];
    float *v = malloc(n * sizeof *v);
    double sum = 0, squares = 0;
    quant_dequantize(t->type, gguf_tensor_data(g, t), v, n);
    for (uint64_t i = 0; i < n; i++)
        sum += v[i];
    for (uint64_t i = 0; i < n; i++)
        squares += (v[i] - sum / (double)n) * (v[i] - sum / (double)n);
    double found = sqrt(squares / (double)n), tolerance = 5 * deviation / sqrt((double)n);
    assert_true(fabs(sum / (double)n - mean) < tolerance + 0.02 * deviation);
    assert_true(fabs(found / deviation - 1) < 0.05 + 5 / sqrt((double)n));
    free(v);
}

static void test_statistics(void **state)
{
    static const char *const types[] = {"F32",  "F16",  "BF16", "Q8_0",
                                        "Q4_0", "Q4_K", "Q5_K", "Q6_K"};
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        struct mkmodel_options o;
        struct mkmodel_result result;
        tiny(&o, "llama", types[i]);
        o.hidden = 256;
        o.expert_width = 256;
        struct gguf *g = make(&o, "statistics.gguf", &result);
        check_statistics(g, "token_embd.weight", 0, 1);
        check_statistics(g, "blk.1.attn_q.weight", 0, 2 / sqrt(256));
        check_statistics(g, "blk.0.ffn_down_exps.weight", 0, 1.5 / sqrt(256));
        check_statistics(g, "blk.0.attn_norm.weight", 1, 0.1);
        gguf_close(g);
    }
}

static uint64_t hash_file(const char *path)
{
    uint64_t h = 14695981039346656037u;
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    for (int c; (c = getc(f)) != EOF;)
        h = (h ^ (uint64_t)c) * 1099511628211u;
    fclose(f);
    return h;
}

static void test_the_seed_alone_decides(void **state)
{
    struct mkmodel_options o;
    struct mkmodel_result result;
    uint64_t hashes[3];
    tiny(&o, "qwen3moe", "Q4_0");
    o.vocab = 20000; /* several chunks */
    for (int i = 0; i < 3; i++) {
        o.threads = i == 0 ? 1 : 7;
        o.seed = i == 2 ? 2 : 1;
        gguf_close(make(&o, "seed.gguf", &result));
        hashes[i] = hash_file(in_directory("seed.gguf"));
    }
    assert_true(hashes[0] == hashes[1]);
    assert_true(hashes[0] != hashes[2]);
}

/* Split, a model has the same tensors with the same bytes. */
static void test_split(void **state)
{
    struct mkmodel_options o;
    struct mkmodel_result result;
    tiny(&o, "qwen3moe", "Q8_0");
    struct gguf *whole = make(&o, "whole.gguf", &result);
    o.split = 3;
    struct gguf *split = make(&o, "parts.gguf", &result);
    assert_non_null(strstr(result.first_file, "parts-00001-of-00003.gguf"));
    assert_int_equal(gguf_file_count(split), 3);
    assert_int_equal(gguf_tensor_count(split), gguf_tensor_count(whole));
    for (uint64_t i = 0; i < gguf_tensor_count(whole); i++) {
        const struct gguf_tensor *a = gguf_tensor_at(whole, i);
        const struct gguf_tensor *b = gguf_tensor_find(split, a->name);
        assert_int_equal(a->bytes, b->bytes);
        assert_memory_equal(gguf_tensor_data(whole, a), gguf_tensor_data(split, b), a->bytes);
    }
    gguf_close(whole);
    gguf_close(split);
}

static int compare_strings(const void *a, const void *b)
{
    const struct gguf_string *x = a, *y = b;
    int order = memcmp(x->data, y->data, x->len < y->len ? x->len : y->len);
    return order ? order : (x->len > y->len) - (x->len < y->len);
}

static void check_vocabulary(uint32_t count)
{
    struct vocabulary v;
    struct error e;
    assert_int_equal(vocabulary_init(&v, count, &e), ERROR_OK);
    assert_int_equal(v.count, count);
    assert_int_equal(v.merge_count, count - 259);
    struct gguf_string *sorted = malloc(count * sizeof *sorted);
    memcpy(sorted, v.tokens, count * sizeof *sorted);
    qsort(sorted, count, sizeof *sorted, compare_strings);
    for (uint32_t i = 1; i < count; i++)
        assert_true(compare_strings(&sorted[i - 1], &sorted[i]) < 0); /* distinct */
    for (uint32_t i = 0; i < v.merge_count; i++) {
        const struct gguf_string *m = &v.merges[i], *t = &v.tokens[256 + i];
        const char *space = memchr(m->data, ' ', m->len);
        assert_non_null(space);
        struct gguf_string left = {m->data, (uint64_t)(space - m->data)};
        struct gguf_string right = {space + 1, m->len - left.len - 1};
        assert_int_equal(t->len, m->len - 1); /* the token is the two parts joined */
        assert_memory_equal(t->data, left.data, left.len);
        assert_memory_equal(t->data + left.len, right.data, right.len);
        assert_non_null(bsearch(&left, sorted, count, sizeof *sorted, compare_strings));
        assert_non_null(bsearch(&right, sorted, count, sizeof *sorted, compare_strings));
    }
    assert_int_equal(v.im_end, count - 1);
    assert_memory_equal(v.tokens[v.im_end].data, "<|im_end|>", 10);
    assert_int_equal(v.token_types[v.im_end], 3);
    assert_int_equal(v.token_types[v.im_end - 3], 1);
    free(sorted);
    vocabulary_fini(&v);
}

static void test_vocabulary(void **state)
{
    struct vocabulary v;
    struct error e;
    check_vocabulary(259);
    check_vocabulary(260);
    check_vocabulary(4096);
    check_vocabulary(151936);
    assert_int_equal(vocabulary_init(&v, 320, &e), ERROR_OK);
    assert_memory_equal(v.tokens['A'].data, "A", 1);
    assert_memory_equal(v.tokens[' '].data, "\xc4\xa0", 2);  /* U+0120 */
    assert_memory_equal(v.tokens['\n'].data, "\xc4\x8a", 2); /* U+010A */
    assert_memory_equal(v.tokens[127].data, "\xc4\xa1", 2);  /* U+0121 */
    assert_memory_equal(v.tokens[160].data, "\xc5\x82", 2);  /* U+0142 */
    assert_memory_equal(v.tokens[173].data, "\xc5\x83", 2);  /* U+0143 */
    assert_memory_equal(v.tokens[0xe9].data, "\xc3\xa9", 2); /* itself, U+00E9 */
    vocabulary_fini(&v);
}

static void test_wrong_options(void **state)
{
    static const struct {
        const char *arch, *type, *named;
        uint32_t hidden, heads, kv_heads, head_dim, top_k, vocab;
    } rows[] = {
        {"gpt2", "F32", "--arch gpt2", 64, 4, 2, 16, 3, 400},
        {"llama", "Q9_9", "--type Q9_9", 64, 4, 2, 16, 3, 400},
        {"llama", "TQ1_0", "--type TQ1_0", 64, 4, 2, 16, 3, 400},
        {"llama", "F32", "--hidden 64 is no multiple of --heads 3", 64, 3, 3, 0, 3, 400},
        {"llama", "F32", "--heads 4 is no multiple of --kv-heads 3", 64, 4, 3, 16, 3, 400},
        {"llama", "F32", "--heads 0", 64, 0, 2, 0, 3, 400},
        {"llama", "F32", "--kv-heads 0", 64, 4, 0, 16, 3, 400},
        {"llama", "F32", "--head-dim 15", 64, 4, 2, 15, 3, 400},
        {"llama", "F32", "--top-k 7", 64, 4, 2, 16, 7, 400},
        {"llama", "F32", "--top-k 0", 64, 4, 2, 16, 0, 400},
        {"llama", "F32", "--vocab 258", 64, 4, 2, 16, 3, 258},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct mkmodel_options o;
        struct mkmodel_result result;
        struct error e = {0};
        tiny(&o, rows[i].arch, rows[i].type);
        o.hidden = rows[i].hidden;
        o.heads = rows[i].heads;
        o.kv_heads = rows[i].kv_heads;
        o.head_dim = rows[i].head_dim;
        o.top_k = rows[i].top_k;
        o.vocab = rows[i].vocab;
        enum error_code code = mkmodel_write(&o, in_directory("w"), NULL, NULL, &result, &e);
        if (code != ERROR_USAGE || !strstr(e.text, rows[i].named))
            fail_msg("row %zu: code %s, text: %s", i, error_name(code), e.text);
        assert_int_equal(access(in_directory("w"), F_OK), -1);
    }
}

static void test_no_place_to_write(void **state)
{
    struct mkmodel_options o;
    struct mkmodel_result result;
    struct error e = {0};
    tiny(&o, "llama", "F32");
    assert_int_equal(mkmodel_write(&o, "/no/such/place/m.gguf", NULL, NULL, &result, &e), ERROR_IO);
    assert_non_null(strstr(e.text, "/no/such/place/m.gguf"));
    assert_int_equal(mkmodel_write(&o, directory, NULL, NULL, &result, &e), ERROR_IO);
    assert_non_null(strstr(e.text, "no regular file"));

    /* The second of three parts cannot be written: moed removes the first one. */
    o.split = 3;
    assert_int_equal(mkdir(in_directory("cut-00002-of-00003.gguf"), 0700), 0);
    assert_int_equal(mkmodel_write(&o, in_directory("cut.gguf"), NULL, NULL, &result, &e),
                     ERROR_IO);
    assert_non_null(strstr(e.text, "cut-00002-of-00003.gguf"));
    assert_int_equal(access(in_directory("cut-00001-of-00003.gguf"), F_OK), -1);
    assert_int_equal(rmdir(in_directory("cut-00002-of-00003.gguf")), 0);
    o.split = 1;

    o.layers = 1000; /* some 500 TB */
    o.hidden = 1 << 16;
    o.expert_width = 1 << 16;
    o.experts = 64;
    assert_int_equal(mkmodel_write(&o, in_directory("huge.gguf"), NULL, NULL, &result, &e),
                     ERROR_IO);
    assert_non_null(strstr(e.text, "MB left"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_llama),         cmocka_unit_test(test_qwen2moe),
        cmocka_unit_test(test_qwen3moe),      cmocka_unit_test(test_types),
        cmocka_unit_test(test_statistics),    cmocka_unit_test(test_the_seed_alone_decides),
        cmocka_unit_test(test_split),         cmocka_unit_test(test_vocabulary),
        cmocka_unit_test(test_wrong_options), cmocka_unit_test(test_no_place_to_write),
    };
    return cmocka_run_group_tests(tests, make_directory, remove_directory);
}
