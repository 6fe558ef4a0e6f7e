/* kernels/bf16.h against float64 sums of the values rounded to BF16: every number of tokens of a
 * panel and some panels, odd columns, rows that end in mid-tile, gathered tokens, accumulation. */
#include "confine/calls.h"
#include "kernels/bf16.h"
#include "tests/unit/kernel_cases.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

enum { TOKENS = 70, MOST_COLS = 300, MOST_ROWS = 100 };

static float rounded(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    bits = (bits + 0x7fffu + (bits >> 16 & 1)) & 0xffff0000u;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static void check_build(const struct bf16_build *build, uint32_t rows, uint32_t cols,
                        const uint32_t *tokens, uint32_t n, uint32_t first, uint32_t count,
                        bool accumulate)
{
    uint8_t *file = random_rows(TENSOR_BF16, rows, cols, WEIGHTS_USUAL, rows + cols);
    struct matrix m = tiles_of(TENSOR_BF16, rows, cols, file);
    struct inputs_of in = make_inputs(kernels_get(), cols, TOKENS, INPUTS_USUAL, 7);
    uint32_t *packed = malloc((size_t)n * (cols + 1) / 2 * 4 + (size_t)n * 4);
    float *y = malloc((size_t)n * (rows + 3) * sizeof *y), w[MOST_COLS];

    for (size_t i = 0; i < (size_t)n * (rows + 3); i++)
        y[i] = (float)(i % 97);
    build->pack(&in.a, tokens, n, packed);
    build->multiply(&m, first, count, packed, n, y, rows + 3, accumulate);
    for (uint32_t r = 0; r < rows + 3; r++) {
        bool asked = r < rows && r / TILE_ROWS >= first && r / TILE_ROWS < first + count;
        if (asked)
            tile_unpack_row(&m, r, w);
        for (uint32_t i = 0; i < n; i++) {
            const float *x = in.x + (tokens ? tokens[i] : i) * in.a.x_stride;
            size_t at = (size_t)i * (rows + 3) + r;
            double before = (double)(at % 97), sum = accumulate || !asked ? before : 0,
                   size = fabs(sum);
            for (uint32_t c = 0; asked && c < cols; c++) {
                double term = (double)w[c] * rounded(x[c]);
                sum += term;
                size += fabs(term);
            }
            if (!(fabs(y[at] - sum) <= 1e-5 * size))
                fail_msg("%s: %u x %u, %u tokens: row %u, token %u is %g, expected %g",
                         build->instruction, rows, cols, n, r, i, (double)y[at], sum);
        }
    }
    free(y);
    free(packed);
    free_inputs(&in);
    free((void *)m.tiles);
    free(file);
}

static void check(uint32_t rows, uint32_t cols, const uint32_t *tokens, uint32_t n, uint32_t first,
                  uint32_t count, bool accumulate)
{
    for (const struct bf16_build *const *b = bf16_available(); *b; b++)
        check_build(*b, rows, cols, tokens, n, first, count, accumulate);
}

static void test_sizes(void **state)
{
    (void)state;
    for (uint32_t n = 1; n <= TOKENS; n++)
        check(48, 64, NULL, n, 0, 3, n % 2);
}

static void test_shapes(void **state)
{
    static const uint32_t all[][2] = {{1, 1},   {16, 2},    {17, 3},  {33, 31},
                                      {47, 33}, {100, 300}, {64, 95}, {100, 288}};
    static const uint32_t tokens[] = {39, 0, 7, 7, 20, 31, 1, 2, 3, 38, 11, 12, 13, 5};
    (void)state;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        uint32_t rows = all[i][0], cols = all[i][1], tiles = tile_row_count(rows);
        check(rows, cols, NULL, 13, 0, tiles, false);
        check(rows, cols, tokens, 14, 0, tiles, true);
        check(rows, cols, tokens, 1, tiles - 1, 1, false);
    }
}

/* A daemon asks for AMX before it confines its system calls, and computes behind that. */
static void test_confined(void **state)
{
    (void)state;
    pid_t child = fork();
    if (child == 0) {
        const struct bf16_build *before = bf16_available()[0];
        confine_calls(CONFINE_DAEMON, false);
        if (bf16_available()[0] != before)
            _exit(1);
        check_build(before, 33, 64, NULL, 20, 0, 3, false);
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

static int setup(void **state)
{
    (void)state;
    if (bf16_available()[0])
        return 0;
    fprintf(stderr, "skipped: this CPU has no BF16 instructions\n");
    exit(77);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_shapes),
        cmocka_unit_test(test_confined),
    };
    return cmocka_run_group_tests_name("bf16", tests, setup, NULL);
}
