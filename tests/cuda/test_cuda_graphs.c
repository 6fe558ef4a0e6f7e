/* Graphs and the guard of the CUDA module, and worker/forward/layer_graphs.h, which keeps layers as
 * graphs. */
#include "worker/forward/layer_graphs.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "on_device.h"

enum { WIDTH = 96 };

static void fill_floats(float *x, size_t n, float first)
{
    for (size_t i = 0; i < n; i++)
        x[i] = first + (float)i;
}

/* y += x and y += 2 x each time the test queues it. */
struct adding {
    float *x, *y;
};

static struct adding make_adding(void)
{
    float x[WIDTH], y[WIDTH];
    fill_floats(x, WIDTH, 1);
    fill_floats(y, WIDTH, 100);
    return (struct adding){to_device(x, sizeof x), to_device(y, sizeof y)};
}

static void queue_adding(const struct adding *a)
{
    module->ops.add(stream, a->x, 0, a->y, WIDTH, 1, WIDTH);
    module->ops.add(stream, a->x, 0, a->y, WIDTH, 1, WIDTH);
    module->ops.add(stream, a->x, 0, a->y, WIDTH, 1, WIDTH);
}

static void check_added(const struct adding *a, unsigned times)
{
    float y[WIDTH];
    from_device(y, a->y, sizeof y);
    for (size_t i = 0; i < WIDTH; i++)
        assert_true(y[i] == 100 + (float)i + 3 * (float)times * (1 + (float)i));
}

static void test_graph(void **state)
{
    struct device_graph *g;
    struct error e;
    (void)state;
    struct adding a = make_adding();
    module->graph_begin(stream);
    queue_adding(&a);
    check_code(module->graph_end(stream, &g, &e), &e);
    check_added(&a, 0); /* captured, not executed */
    module->graph_launch(stream, g);
    check_added(&a, 1);
    module->graph_launch(stream, g);
    queue_adding(&a);
    module->graph_launch(stream, g);
    check_added(&a, 4);
    module->graph_free(g);
    module->graph_free(NULL);
    release_all();
}

/* Under a guard an accumulating operation, norm_add and scale do nothing; another operation runs. A
 * graph keeps the guard's address, not its value. */
static void test_guard(void **state)
{
    static const uint32_t stop = 1, go = 0;
    enum tensor_type type = TENSOR_F32;
    float weights[WIDTH * WIDTH], x[WIDTH], weight = 2, got[WIDTH];
    uint32_t row_of = 0, selected = 0;
    struct device_activations in;
    struct device_graph *g;
    struct error e;
    (void)state;
    fill_floats(x, WIDTH, 1);
    for (size_t i = 0; i < (size_t)WIDTH * WIDTH; i++)
        weights[i] = i / WIDTH == i % WIDTH;
    uint8_t *tiles = aligned_alloc(TILE_ALIGN, tile_matrix_bytes(type, WIDTH, WIDTH));
    assert_non_null(tiles);
    struct matrix m = {.type = type, .rows = WIDTH, .cols = WIDTH};
    for (uint32_t i = 0; i < tile_row_count(WIDTH); i++)
        tile_pack(type, WIDTH, TILE_ROWS, weights + (size_t)i * TILE_ROWS * WIDTH,
                  WIDTH * sizeof *weights, tiles + i * tile_row_bytes(type, WIDTH));
    m.tiles = to_device(tiles, tile_matrix_bytes(type, WIDTH, WIDTH));
    struct adding a = make_adding();
    uint32_t *guard = to_device(&stop, sizeof stop);
    module->ops.activations_bind(&in, NULL, WIDTH, 1, a.x, WIDTH, false);
    const float *weight_on = to_device(&weight, sizeof weight);
    const uint32_t *row_on = to_device(&row_of, sizeof row_of),
                   *selected_on = to_device(&selected, sizeof selected);

    module->guard(stream, guard);
    module->graph_begin(stream);
    queue_adding(&a);
    check_code(module->graph_end(stream, &g, &e), &e);
    module->graph_launch(stream, g);
    queue_adding(&a);
    module->ops.multiply(stream, &m, &in, a.y, WIDTH, true);
    module->ops.combine(stream, a.x, row_on, weight_on, selected_on, 1, NULL, NULL, NULL, a.y, 1,
                        WIDTH);
    module->ops.scale(stream, 3, a.x, a.y, WIDTH);
    module->ops.norm_add(stream, a.x, NULL, NULL, 0, 1, WIDTH, 3, a.y);
    check_added(&a, 0);
    module->upload(stream, guard, &go, sizeof go);
    module->graph_launch(stream, g);
    module->ops.multiply(stream, &m, &in, a.y, WIDTH, true);
    module->ops.combine(stream, a.x, row_on, weight_on, selected_on, 1, NULL, NULL, NULL, a.y, 1,
                        WIDTH);
    check_added(&a, 2); /* 3 + 1 + 2 times x */
    module->upload(stream, guard, &stop, sizeof stop);
    module->ops.multiply(stream, &m, &in, a.y, WIDTH, false);
    from_device(got, a.y, sizeof got);
    assert_same_floats(got, x, WIDTH, "a product that does not accumulate");
    module->guard(stream, NULL);
    module->ops.multiply(stream, &m, &in, a.y, WIDTH, true);
    from_device(got, a.y, sizeof got);
    for (size_t i = 0; i < WIDTH; i++)
        assert_true(got[i] == 2 * x[i]);
    module->graph_free(g);
    free(tiles);
    release_all();
}

/* ---- Layers ---- */

enum { LAYERS = 3 };

/* True: the caller queued the layer; false: a graph replayed it. Once in both cases. */
static bool layer(struct layer_graphs *g, const struct adding *a, uint32_t i, uint32_t n,
                  uint32_t positions)
{
    const struct layer_graphs_key key = {DENSE_GRAPH_WHOLE, n, positions};
    bool again = layer_graphs_again(g, key, i, 1);
    if (!again) {
        queue_adding(a);
        layer_graphs_keep(g);
    }
    return again;
}

static void test_layers(void **state)
{
    unsigned times[LAYERS] = {0};
    struct adding a[LAYERS];
    (void)state;
    struct layer_graphs *g = layer_graphs_new(module, stream, LAYERS);
    assert_non_null(g);
    for (int i = 0; i < LAYERS; i++)
        a[i] = make_adding();
    for (int round = 0; round < 4; round++)
        for (uint32_t i = 0; i < LAYERS; i++) {
            assert_int_equal(layer(g, &a[i], i, 1, 256), round >= 2);
            check_added(&a[i], ++times[i]);
        }
    assert_false(layer(g, &a[0], 0, 2, 256)); /* another shape */
    assert_false(layer(g, &a[0], 0, 1, 512));
    assert_true(layer(g, &a[0], 0, 1, 256));
    times[0] += 3;
    for (uint32_t n = 3; n < 40; n++, times[0]++) /* many shapes: the oldest graph is freed */
        assert_false(layer(g, &a[0], 0, n, 256));
    for (int round = 0; round < 3; round++, times[0]++)
        assert_int_equal(layer(g, &a[0], 0, 1, 256), round == 2);
    check_added(&a[0], times[0]);
    layer_graphs_free(g);
    layer_graphs_free(NULL);
    release_all();
}

/* All layers as one graph, again after the layers were met one by one, and after another run. */
static void test_runs(void **state)
{
    const struct layer_graphs_key key = {DENSE_GRAPH_WHOLE, 1, 256},
                                  front = {DENSE_GRAPH_FRONT, 1, 256};
    (void)state;
    struct layer_graphs *g = layer_graphs_new(module, stream, LAYERS);
    struct adding a = make_adding();
    unsigned times = 0;
    assert_non_null(g);
    for (int round = 0; round < 3; round++) /* keeps graphs of single layers */
        for (uint32_t i = 0; i < LAYERS; i++, times++)
            layer(g, &a, i, 1, 256);
    for (uint32_t n = LAYERS; n >= LAYERS - 1; n--)
        for (int round = 0; round < 4; round++) {
            bool again = layer_graphs_again(g, key, 0, n);
            assert_int_equal(again, round >= 2);
            for (uint32_t i = 0; i < n && !again; i++)
                queue_adding(&a);
            if (!again)
                layer_graphs_keep(g);
            times += n;
        }
    check_added(&a, times);
    /* the single layers' graphs are freed; another kind has graphs of its own */
    assert_false(layer(g, &a, 0, 1, 256));
    assert_false(layer_graphs_again(g, front, 0, 1));
    assert_true(layer_graphs_keep(g));
    assert_true(layer_graphs_again(g, key, 0, LAYERS - 1));
    times += 1 + LAYERS - 1;
    check_added(&a, times);
    layer_graphs_free(g);
    release_all();
}

static void test_positions(void **state)
{
    (void)state;
    assert_int_equal(layer_graphs_positions(1, 4096), 256);
    assert_int_equal(layer_graphs_positions(256, 4096), 256);
    assert_int_equal(layer_graphs_positions(257, 4096), 512);
    assert_int_equal(layer_graphs_positions(3000, 4096), 4096);
    assert_int_equal(layer_graphs_positions(3000, 3500), 3500);
    assert_int_equal(layer_graphs_positions(1, 100), 100);
    assert_int_equal(layer_graphs_positions(3000000000, UINT32_MAX), UINT32_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_graph),     cmocka_unit_test(test_guard),
        cmocka_unit_test(test_layers),    cmocka_unit_test(test_runs),
        cmocka_unit_test(test_positions),
    };
    return run_group("cuda_graphs", tests, open_all);
}
