/* Tiles: lossless (against lib/quant on the file's rows), as large as the file but for
 * factors, padded with zeros.
 */
#include "tests/unit/kernel_cases.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

static void check_matrix(enum tensor_type type, uint32_t rows, uint32_t cols, enum weights kind)
{
    uint8_t *file = random_rows(type, rows, cols, kind, type * 1000 + rows + cols);
    struct matrix m = tiles_of(type, rows, cols, file);
    float *expected = malloc(cols * sizeof *expected);
    float *row = malloc((size_t)rows * cols * sizeof *row);

    for (uint32_t r = 0; r < rows; r++) {
        case_row(type, r, file + r * quant_row_bytes(type, cols), expected, cols);
        tile_unpack_row(&m, r, row);
        assert_memory_equal(row, expected, cols * sizeof *row);
    }
    /* Several rows at once, not from the first on. */
    uint32_t first = rows / 3;
    tile_unpack_rows(&m, first, rows - first, row);
    for (uint32_t r = first; r < rows; r++) {
        case_row(type, r, file + r * quant_row_bytes(type, cols), expected, cols);
        assert_memory_equal(row + (size_t)(r - first) * cols, expected, cols * sizeof *row);
    }
    free(row);
    free(expected);
    free((void *)m.tiles);
    free(file);
}

static void test_unpack_equals_dequantize(void **state)
{
    static const uint32_t row_counts[] = {1, 7, 16, 17, 33, 48};

    for (int t = 0; t < N_COMPUTED_TYPES; t++) {
        enum tensor_type type = computed_types[t];
        uint32_t block = tensor_type_info(type)->block_values;

        for (size_t i = 0; i < sizeof row_counts / sizeof row_counts[0]; i++)
            for (int kind = 0; kind < N_WEIGHTS; kind++) {
                check_matrix(type, row_counts[i], block, kind);
                check_matrix(type, row_counts[i], block * 3, kind);
                check_matrix(type, row_counts[i], 2048, kind);
            }
    }
}

static void test_odd_columns_of_floats(void **state)
{
    for (int t = 0; t < N_COMPUTED_TYPES; t++) {
        if (tensor_type_info(computed_types[t])->block_values != 1)
            continue;
        for (uint32_t cols = 1; cols < 40; cols++)
            check_matrix(computed_types[t], 19, cols, WEIGHTS_USUAL);
        check_matrix(computed_types[t], 5, 4097, WEIGHTS_USUAL);
    }
}

/* A slice of columns: the rows of the file are further apart than the slice is long. */
static void test_slice_of_columns(void **state)
{
    for (int t = 0; t < N_COMPUTED_TYPES; t++) {
        enum tensor_type type = computed_types[t];
        size_t stride = quant_row_bytes(type, 2048), skipped = quant_row_bytes(type, 768);
        uint8_t *file = random_rows(type, 16, 2048, WEIGHTS_USUAL, 77 + t);
        uint8_t *tiles = aligned_alloc(TILE_ALIGN, tile_row_bytes(type, 512));
        struct matrix m = {.type = type, .rows = 16, .cols = 512, .tiles = tiles};
        float expected[512], row[512];

        tile_pack(type, 512, 16, file + skipped, stride, tiles);
        for (uint32_t r = 0; r < 16; r++) {
            quant_dequantize(type, file + skipped + r * stride, expected, 512);
            tile_unpack_row(&m, r, row);
            assert_memory_equal(row, expected, sizeof row);
        }
        free(tiles);
        free(file);
    }
}

static void test_size(void **state)
{
    for (int t = 0; t < N_COMPUTED_TYPES; t++) {
        enum tensor_type type = computed_types[t];

        size_t factors = tile_has_factors(type) ? 16 * sizeof(float) : 0;

        /* 16 rows of 2048 columns need no padding in any type. */
        assert_int_equal(tile_row_bytes(type, 2048), 16 * quant_row_bytes(type, 2048) + factors);
        assert_int_equal(tile_matrix_bytes(type, 33, 2048), 3 * tile_row_bytes(type, 2048));
        for (uint32_t n = 1; n < 20; n++) {
            uint32_t cols = n * tensor_type_info(type)->block_values;
            size_t bytes = tile_row_bytes(type, cols);
            assert_int_equal(bytes % TILE_ALIGN, 0);
            assert_true(bytes >= 16 * quant_row_bytes(type, cols) + factors);
            assert_true(bytes < 16 * quant_row_bytes(type, cols) + factors + TILE_ALIGN);
        }
    }
    assert_int_equal(tile_row_count(1), 1);
    assert_int_equal(tile_row_count(16), 1);
    assert_int_equal(tile_row_count(17), 2);
}

/* Rows past the last, and the padding at the end, are zero: packed over garbage here. */
static void test_padding_is_zero(void **state)
{
    for (int t = 0; t < N_COMPUTED_TYPES; t++) {
        enum tensor_type type = computed_types[t];
        uint32_t block = tensor_type_info(type)->block_values, cols = 3 * block;
        size_t bytes = tile_row_bytes(type, cols);
        uint8_t *tiles = aligned_alloc(TILE_ALIGN, bytes),
                *again = aligned_alloc(TILE_ALIGN, bytes);
        uint8_t *file = random_rows(type, 16, cols, WEIGHTS_USUAL, 5 + t);
        size_t stride = quant_row_bytes(type, cols);

        memset(tiles, 0xee, bytes);
        tile_pack(type, cols, 5, file, stride, tiles);
        memset(file + 5 * stride, 0, 11 * stride);
        memset(again, 0x11, bytes);
        tile_pack(type, cols, 16, file, stride, again);
        assert_memory_equal(tiles, again, bytes);
        free(file);
        free(again);
        free(tiles);
    }
}

/* Packing sets factors to 1; a factor is that of its tile row only, and multiplies its values. */
static void test_factors(void **state)
{
    enum { COLS = 192, ROWS = 32 };
    size_t stride = quant_row_bytes(TENSOR_NVFP4, COLS), bytes = tile_row_bytes(TENSOR_NVFP4, COLS);
    uint8_t *file = random_rows(TENSOR_NVFP4, ROWS, COLS, WEIGHTS_USUAL, 3);
    uint8_t *tiles = aligned_alloc(TILE_ALIGN, 2 * bytes);
    struct matrix m = {.type = TENSOR_NVFP4, .rows = ROWS, .cols = COLS, .tiles = tiles};
    float expected[COLS], row[COLS];

    for (int i = 0; i < 2; i++)
        tile_pack(TENSOR_NVFP4, COLS, 16, file + 16 * i * stride, stride, tiles + i * bytes);
    tile_set_factor(TENSOR_NVFP4, COLS, 0.375f, tiles + bytes);
    for (uint32_t r = 0; r < ROWS; r++) {
        quant_dequantize(TENSOR_NVFP4, file + r * stride, expected, COLS);
        tile_unpack_row(&m, r, row);
        for (int c = 0; c < COLS; c++)
            assert_true(row[c] == (r < 16 ? expected[c] : expected[c] * 0.375f));
    }
    for (int t = 0; t < N_COMPUTED_TYPES; t++)
        assert_int_equal(tile_has_factors(computed_types[t]), computed_types[t] == TENSOR_NVFP4);
    free(tiles);
    free(file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_unpack_equals_dequantize),
        cmocka_unit_test(test_odd_columns_of_floats),
        cmocka_unit_test(test_slice_of_columns),
        cmocka_unit_test(test_size),
        cmocka_unit_test(test_padding_is_zero),
        cmocka_unit_test(test_factors),
    };
    return cmocka_run_group_tests_name("tile", tests, NULL, NULL);
}
