/* A trace's description of a model (trace/trace_model.h), compared with the weights of a worker
 * that memd loaded into a pool. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "tests/unit/loaded_model.h"

#include "kernels/tile.h"
#include "trace/trace_model.h"
#include "worker/forward/weights.h"

#include <string.h>

static void same_row(const struct matrix *m, uint32_t row, const float *values)
{
    float unpacked[4096];
    assert_true(m->cols <= 4096);
    tile_unpack_row(m, row, unpacked);
    assert_memory_equal(unpacked, values, m->cols * sizeof *values);
}

static void same_vector(const float *a, const float *b, uint32_t n)
{
    assert_int_equal(!a, !b);
    if (a)
        assert_memory_equal(a, b, n * sizeof *a);
}

static void same_layer(const struct loaded_model *m, const struct layer_weights *w,
                       const struct trace_layer *l, uint32_t layer)
{
    uint32_t n = m->map.params.router.n_experts;
    for (uint32_t i = 0; i < n; i++)
        same_row(&w->router, i, l->matrix + (size_t)i * w->router.cols);
    same_vector(w->router_bias, l->bias, n);
    same_vector(w->selection_bias, l->selection_bias, n);
    assert_int_equal(l->n_segments, m->map.slabs[layer].n_segments);
    assert_int_equal(l->segment_bytes, m->map.slabs[layer].segment_bytes);
}

/* Models with every kind of router and of final layer. */
static const struct {
    const char *name;
    uint32_t first_layer;
    bool bias, selection_bias;
} models[] = {
    {"mixtral", 0, false, false},      {"qwen2moe", 0, false, false},
    {"deepseek2-v3", 1, false, true},  {"phimoe", 0, false, false},
    {"quant-gpt-oss", 0, true, false}, {"quant-Q4_K", 0, false, false},
};

static void check_model(const char *name, uint32_t first_layer, bool bias, bool selection_bias)
{
    struct loaded_model m;
    struct model_weights w;
    struct trace_model t;
    struct error e;
    char path[512];
    snprintf(path, sizeof path, MOED_SOURCE_DIR "/tests/golden/%s.gguf", name);
    load_file(&m, path);
    must(weights_bind(&m.map, m.map.base, &w, &e), &e);
    must(trace_model_read(m.g, &t, &e), &e);
    const struct model_params *p = &m.map.params;
    assert_string_equal(t.shape.model, p->name);
    assert_int_equal(t.shape.n_layers, p->n_layers);
    assert_int_equal(t.shape.first_layer, first_layer);
    assert_int_equal(t.shape.n_experts, p->router.n_experts);
    assert_int_equal(t.shape.n_used, p->router.n_used);
    assert_int_equal(t.shape.d_model, p->d_model);
    assert_memory_equal(&t.shape.router, &p->router, sizeof p->router);
    assert_true(t.shape.dense_bytes > 0 && t.shape.dense_bytes <= m.plan.header.dense_bytes);
    for (uint32_t l = first_layer; l < p->n_layers; l++)
        same_layer(&m, &w.layers[l], &t.layers[l], l);
    assert_int_equal(t.layers[first_layer].bias != NULL, bias);
    assert_int_equal(t.layers[first_layer].selection_bias != NULL, selection_bias);
    float embedding[4096];
    assert_int_equal(t.vocab, p->vocab);
    for (uint32_t id = 0; id < p->vocab; id++) {
        trace_model_embedding(&t, id, embedding);
        same_row(&w.embedding, id, embedding);
    }
    trace_model_fini(&t);
    weights_free(&w);
    unload_model(&m);
}

static void every_model(void **state)
{
    (void)state;
    for (unsigned i = 0; i < sizeof models / sizeof *models; i++)
        check_model(models[i].name, models[i].first_layer, models[i].bias,
                    models[i].selection_bias);
}

/* A file with only a tokenizer. */
static void no_model(void **state)
{
    (void)state;
    struct trace_model t = {0};
    struct gguf *g;
    struct error e;
    must(gguf_open(MOED_SOURCE_DIR "/tests/golden/vocab-small.gguf", &g, &e), &e);
    assert_true(trace_model_read(g, &t, &e) != ERROR_OK);
    assert_null(t.layers);
    trace_model_fini(&t);
    gguf_close(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_model),
        cmocka_unit_test(no_model),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
