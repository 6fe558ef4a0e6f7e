/* Routers of 8 bits: every layer's is its own router rounded by blocks of 32. The originals stay
 * unchanged, and the products differ from the originals' by no more than the rounding allows. */
#include "kernel_cases.h"
#include "worker/forward/prediction_routers.h"

#include "base/error.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <cmocka.h>

enum { ROWS = 19, COLS = 64, LAYERS = 6 };
enum { DENSE, F32, BF16, F16, Q8, ODD }; /* the layers; of ODD the columns are no whole blocks */

static const enum tensor_type types[LAYERS] = {TENSOR_F32, TENSOR_F32,  TENSOR_BF16,
                                               TENSOR_F16, TENSOR_Q8_0, TENSOR_F32};

struct routers {
    struct layer_weights layers[LAYERS];
    uint8_t *rows[LAYERS]; /* as the file has them */
    struct model_weights weights;
    struct model_params params;
};

static uint32_t cols_of(uint32_t layer)
{
    return layer == ODD ? COLS - 16 : COLS;
}

static struct matrix tiles(enum tensor_type type, uint32_t cols, const uint8_t *rows)
{
    struct matrix m = {type, ROWS, cols, NULL};
    size_t stride = quant_row_bytes(type, cols), bytes = tile_row_bytes(type, cols);
    uint8_t *memory = aligned_alloc(TILE_ALIGN, tile_matrix_bytes(type, ROWS, cols));
    assert_non_null(memory);
    tile_pack(type, cols, TILE_ROWS, rows, stride, memory);
    tile_pack(type, cols, ROWS - TILE_ROWS, rows + TILE_ROWS * stride, stride, memory + bytes);
    m.tiles = memory;
    return m;
}

/* Weights within (-1, 1), but for the first block of each layer's last row: -127, then 2.4, 2.6,
 * and integers. */
static void fill(float *values, uint32_t cols, uint64_t *random)
{
    for (uint32_t i = 0; i < ROWS * cols; i++)
        values[i] = random_float(random);
    float *last = values + (ROWS - 1) * cols;
    for (uint32_t i = 0; i < 32; i++)
        last[i] = (float)i;
    last[0] = -127;
    last[1] = 2.4f;
    last[2] = 2.6f;
}

static void make_routers(struct routers *r)
{
    float values[ROWS * COLS];
    uint64_t random = 7;
    memset(r, 0, sizeof *r);
    r->weights.layers = r->layers;
    r->params.n_layers = LAYERS;
    r->params.d_model = COLS;
    for (uint32_t i = F32; i < LAYERS; i++) {
        size_t stride = quant_row_bytes(types[i], cols_of(i));
        fill(values, cols_of(i), &random);
        r->rows[i] = malloc(ROWS * stride);
        assert_non_null(r->rows[i]);
        quant_quantize(types[i], values, r->rows[i], (size_t)ROWS * cols_of(i));
        r->layers[i].router = r->layers[i].prediction_router =
            tiles(types[i], cols_of(i), r->rows[i]);
    }
}

static void free_routers(struct routers *r)
{
    for (uint32_t i = 0; i < LAYERS; i++) {
        free((void *)r->layers[i].router.tiles);
        free(r->rows[i]);
    }
    free(r->weights.prediction_tiles); /* the layers are not on the heap */
}

/* Each weight differs from the router's by at most half a step. A step is the block's largest
 * magnitude by 127, rounded to half precision (a relative error of up to 2^-11). */
static void check_weights(const struct routers *r, uint32_t layer)
{
    float want[COLS], have[COLS];
    for (uint32_t row = 0; row < ROWS; row++) {
        tile_unpack_row(&r->layers[layer].router, row, want);
        tile_unpack_row(&r->layers[layer].prediction_router, row, have);
        for (uint32_t block = 0; block < COLS; block += 32) {
            float most = 0;
            for (uint32_t i = block; i < block + 32; i++)
                most = fmaxf(most, fabsf(want[i]));
            for (uint32_t i = block; i < block + 32; i++)
                assert_true(fabsf(have[i] - want[i]) <= most * (0.5f / 127 + 0x1p-11f) * 1.001f);
        }
    }
    assert_true(have[0] == -127 && have[1] == 2 && have[2] == 3 && have[3] == 3 && have[31] == 31);
}

static void test_layers(void **state)
{
    struct routers r;
    struct error e;
    make_routers(&r);
    struct layer_weights before[LAYERS];
    memcpy(before, r.layers, sizeof before);
    assert_int_equal(prediction_routers_make(&r.weights, &r.params, &e), ERROR_OK);
    for (uint32_t i = 0; i < LAYERS; i++) {
        const struct matrix *m = &r.layers[i].prediction_router;
        assert_memory_equal(&r.layers[i].router, &before[i].router, sizeof *m);
        if (i == DENSE || i == Q8 || i == ODD) {
            assert_memory_equal(m, &before[i].router, sizeof *m);
            continue;
        }
        assert_int_equal(m->type, TENSOR_Q8_0);
        assert_true(m->rows == ROWS && m->cols == COLS);
        check_weights(&r, i);
    }
    free_routers(&r);
}

/* y of both for one token, and the bound of their difference: half a step of each weight times its
 * activation, and half a step of each activation (the largest of its 16 by 127) times its weight,
 * which may itself differ by half a step. */
static void test_products(void **state)
{
    struct routers r;
    struct error e;
    make_routers(&r);
    assert_int_equal(prediction_routers_make(&r.weights, &r.params, &e), ERROR_OK);
    float x[COLS], y[2][ROWS], w[COLS];
    uint64_t random = 3;
    for (uint32_t i = 0; i < COLS; i++)
        x[i] = random_float(&random);
    void *memory =
        aligned_alloc(TILE_ALIGN, (act_bytes(COLS, 1) + TILE_ALIGN - 1) / TILE_ALIGN * TILE_ALIGN);
    assert_non_null(memory);
    struct activations a;
    act_bind(&a, memory, COLS, 1, x, COLS);
    kernels_get()->quantize(&a, 0, 1);
    for (uint32_t layer = F32; layer <= F16; layer++) {
        const struct matrix *both[] = {&r.layers[layer].router, &r.layers[layer].prediction_router};
        for (int k = 0; k < 2; k++)
            kernels_get()->multiply(both[k], 0, tile_row_count(ROWS), &a, NULL, 1, y[k], ROWS,
                                    false);
        for (uint32_t row = 0; row < ROWS; row++) {
            double capacity = 1e-4;
            tile_unpack_row(both[0], row, w);
            for (uint32_t i = 0; i < COLS; i++) {
                float w_most = 0, x_most = 0;
                for (uint32_t k = i / 32 * 32; k < i / 32 * 32 + 32; k++)
                    w_most = fmaxf(w_most, fabsf(w[k]));
                for (uint32_t k = i / 16 * 16; k < i / 16 * 16 + 16; k++)
                    x_most = fmaxf(x_most, fabsf(x[k]));
                double dw = (double)w_most * (0.5 / 127 + 0x1p-11), dx = (double)x_most * 0.5 / 127;
                capacity += dw * (double)fabsf(x[i]) + dx * ((double)fabsf(w[i]) + dw);
            }
            assert_true(fabs((double)y[1][row] - (double)y[0][row]) <= capacity);
        }
    }
    free(memory);
    free_routers(&r);
}

/* No router to compress: the call takes no memory. */
static void test_none(void **state)
{
    static struct layer_weights layers[2];
    struct model_weights w = {.layers = layers};
    struct model_params p = {.n_layers = 2, .d_model = COLS};
    struct error e;
    assert_int_equal(prediction_routers_make(&w, &p, &e), ERROR_OK);
    assert_null(w.prediction_tiles);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_layers),
        cmocka_unit_test(test_products),
        cmocka_unit_test(test_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
