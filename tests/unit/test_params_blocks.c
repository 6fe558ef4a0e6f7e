/* Files with a block for each part of a layer (lib/model/params_blocks.c): which orders of blocks
 * make layers, and what the others are told. */
#include "gguf/gguf_write.h"
#include "model/params.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#define ARCH "nemotron_h_moe."
enum { MOST = 16 };

static char path[64];
static const char
    *recurrent; /* which blocks the file says are, as '0' and '1'; NULL: it does not */

/* A file of these blocks: M, * and E, as NVIDIA's configurations have them. latent: a key that only
 * the larger models have; 0: none. */
static void write_file(const char *blocks, uint32_t n_listed, uint32_t latent)
{
    static const struct {
        const char *key;
        uint32_t value;
    } numbers[] = {
        {ARCH "embedding_length", 32},    {ARCH "context_length", 64},
        {ARCH "expert_count", 4},         {ARCH "expert_used_count", 2},
        {ARCH "ssm.conv_kernel", 4},      {ARCH "expert_feed_forward_length", 16},
        {ARCH "ssm.state_size", 8},       {ARCH "attention.key_length", 16},
        {ARCH "ssm.group_count", 2},      {ARCH "attention.value_length", 16},
        {ARCH "ssm.inner_size", 24},      {ARCH "ssm.time_step_rank", 4},
        {ARCH "attention.head_count", 4},
    };
    const uint64_t shape[] = {32, 300};
    static const float zeros[32 * 300];
    int32_t heads[MOST] = {0}, widths[MOST] = {0}, states[MOST] = {0};
    struct gguf_writer *w;
    struct error e;
    for (size_t i = 0; blocks[i]; i++) {
        heads[i] = blocks[i] == '*' ? 2 : 0;
        widths[i] = blocks[i] == 'E' ? 16 : 0;
    }
    assert_int_equal(gguf_writer_open(path, &w, &e), ERROR_OK);
    gguf_writer_string(w, "general.architecture", "nemotron_h_moe", 14);
    gguf_writer_u32(w, ARCH "block_count", (uint32_t)strlen(blocks));
    gguf_writer_i32s(w, ARCH "attention.head_count_kv", heads, n_listed);
    gguf_writer_i32s(w, ARCH "feed_forward_length", widths, n_listed);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        gguf_writer_u32(w, numbers[i].key, numbers[i].value);
    for (uint32_t i = 0; recurrent && recurrent[i]; i++)
        states[i] = recurrent[i] == '1';
    if (recurrent)
        gguf_writer_i32s(w, ARCH "attention.recurrent_layers", states, (uint32_t)strlen(recurrent));
    if (latent)
        gguf_writer_u32(w, ARCH "moe_latent_size", latent);
    gguf_writer_tensor(w, "token_embd.weight", TENSOR_F32, 2, shape);
    assert_int_equal(gguf_writer_data(w, zeros, sizeof zeros, &e), ERROR_OK);
    assert_int_equal(gguf_writer_close(w, &e), ERROR_OK);
}

static enum error_code read_file(struct model_params *p, struct error *e)
{
    struct gguf *g;
    assert_int_equal(gguf_open(path, &g, e), ERROR_OK);
    enum error_code code = model_params_read(g, p, e);
    gguf_close(g);
    return code;
}

static void expect_layer(const struct model_params *p, uint32_t i, enum layer_kind kind,
                         struct layer_blocks blocks)
{
    const struct layer_params *l = &p->layers[i];
    assert_int_equal(l->kind, kind);
    assert_int_equal(l->blocks.recurrent, blocks.recurrent);
    assert_int_equal(l->blocks.attention, blocks.attention);
    assert_int_equal(l->blocks.feed_forward, blocks.feed_forward);
    assert_int_equal(l->n_heads, params_attends(l) ? 4 : 0);
    assert_int_equal(l->n_kv_heads, params_attends(l) ? 2 : 0);
    assert_true(l->unrotated);
}

static void test_layers(void **state)
{
    struct model_params p;
    struct error e = {0};
    (void)state;
    write_file("MEM*E*EME", 9, 0);
    if (read_file(&p, &e))
        fail_msg("%s", e.text);
    assert_int_equal(p.n_layers, 4);
    assert_int_equal(p.n_blocks, 9);
    /* a part that a layer lacks has the number of its experts */
    expect_layer(&p, 0, LAYER_MAMBA2, (struct layer_blocks){0, 1, 1});
    expect_layer(&p, 1, LAYER_MAMBA2_ATTENTION, (struct layer_blocks){2, 3, 4});
    expect_layer(&p, 2, LAYER_ATTENTION, (struct layer_blocks){6, 5, 6});
    expect_layer(&p, 3, LAYER_MAMBA2, (struct layer_blocks){7, 8, 8});
    assert_int_equal(params_recurrent_layers(&p), 3);
    uint32_t index[MOST];
    params_recurrent_index(&p, index);
    assert_int_equal(index[1], 1);
    assert_int_equal(index[3], 2);
    assert_int_equal(params_convolved(&p), 24 + 2 * 2 * 8);
    assert_int_equal(params_state_bytes(&p), 3 * (3 * 56 + 4 * 8 * 16) * sizeof(float));
    assert_non_null(params_host_dense(&p));
    assert_int_equal(p.router.kind, ROUTER_SIGMOID);
    assert_true(p.router.renormalise);
    /* what a process that is not believed may not say */
    assert_int_equal(model_params_check(&p, &e), ERROR_OK);
    p.layers[3].blocks.recurrent = 9;
    assert_int_equal(model_params_check(&p, &e), ERROR_PROTOCOL);
    p.layers[3].blocks.recurrent = 7;
    p.n_blocks = 3;
    assert_int_equal(model_params_check(&p, &e), ERROR_PROTOCOL);
}

static void expect_refused(const char *blocks, enum error_code code, const char *text)
{
    struct model_params p;
    struct error e;
    write_file(blocks, (uint32_t)strlen(blocks), 0);
    assert_int_equal(read_file(&p, &e), code);
    if (!strstr(e.text, text))
        fail_msg("%s: %s", blocks, e.text);
}

static void test_refused(void **state)
{
    struct model_params p;
    struct error e;
    (void)state;
    expect_refused("M*EE", ERROR_UNSUPPORTED, "block 3 (experts) does not continue a layer");
    expect_refused("EM*E", ERROR_UNSUPPORTED, "block 0 (experts)");
    expect_refused("MM*E", ERROR_UNSUPPORTED, "block 1 (Mamba2)");
    expect_refused("*ME", ERROR_UNSUPPORTED, "block 1 (Mamba2)");
    expect_refused("M**E", ERROR_UNSUPPORTED, "block 2 (attention)");
    expect_refused("M*EM", ERROR_UNSUPPORTED, "block 3 (Mamba2)");
    expect_refused("MEME", ERROR_UNSUPPORTED, "no layer has attention");
    write_file("M*E", 2, 0); /* lists that are too short */
    assert_int_equal(read_file(&p, &e), ERROR_FORMAT);
    assert_non_null(strstr(e.text, "expected lists of the 3 blocks"));
    write_file("M*E", 3, 8);
    assert_int_equal(read_file(&p, &e), ERROR_UNSUPPORTED);
    assert_non_null(strstr(e.text, "moe_latent_size"));
}

/* A list of the recurrent blocks says what the file's other lists do. */
static void test_recurrent_list(void **state)
{
    struct model_params p;
    struct error e;
    (void)state;
    recurrent = "10010";
    write_file("M*EME", 5, 0);
    if (read_file(&p, &e))
        fail_msg("%s", e.text);
    recurrent = "11010";
    expect_refused("M*EME", ERROR_UNSUPPORTED, "recurrent_layers' is 1");
    recurrent = "10000";
    expect_refused("M*EME", ERROR_UNSUPPORTED, "recurrent_layers' is 0");
    recurrent = "100";
    expect_refused("M*EME", ERROR_FORMAT, "one for each of the 5 layers");
    recurrent = NULL;
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_layers),
                                       cmocka_unit_test(test_recurrent_list),
                                       cmocka_unit_test(test_refused)};
    snprintf(path, sizeof path, "/tmp/moed-blocks-%ld.gguf", (long)getpid());
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    unlink(path);
    return failed;
}
