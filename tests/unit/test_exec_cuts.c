/* The chunks of products for threads: they cover each product once and in order; they are long if
 * there is enough work for all threads; and all threads finish at nearly the same time. */
#include "exec/internal.h"
#include "kernels/bf16.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "loaded_model.h"

enum { MOST_THREADS = 64 };

static struct exec *new_exec(unsigned threads, struct pool **pool)
{
    static const struct topology one = {
        .n_cpus = 1, .n_cores = 1, .n_nodes = 1, .cpus = {{0, 0, 0}}};
    const struct exec_limits limits = {
        .max_tokens = 1, .max_cols = 64, .max_task_rows = 1, .max_width = 64};
    struct error e;
    struct exec *x;
    must(pool_new_on(&one, "test", threads, false, 0, pool, &e), &e);
    must(exec_new(*pool, &limits, false, &x, &e), &e);
    return x;
}

/* n products with these tile rows. */
static void cut(struct exec *x, uint32_t n, const struct matrix *m, uint32_t n_tokens)
{
    uint64_t tiles = (uint64_t)n * tile_row_count(m->rows);
    struct exec_cutting c = exec_cut_begin(x, tiles, tiles * n_tokens);
    x->n_chunks = 0;
    for (uint32_t i = 0; i < n; i++)
        exec_cut_product(x, &c, i, m, n_tokens);
}

static void expect_all_once(const struct exec *x, uint32_t n, uint32_t n_tiles)
{
    uint32_t product = 0, tile = 0;
    for (uint32_t i = 0; i < x->n_chunks; i++) {
        assert_int_equal(x->chunks[i].product, product);
        assert_int_equal(x->chunks[i].tile_first, tile);
        assert_true(x->chunks[i].tile_count > 0);
        tile += x->chunks[i].tile_count;
        if (tile == n_tiles) {
            product++;
            tile = 0;
        }
    }
    assert_int_equal(product, n);
    assert_int_equal(tile, 0);
}

/* The tile rows that the busiest thread computes. */
static uint32_t busiest(const struct exec *x, unsigned threads)
{
    uint32_t done[MOST_THREADS] = {0}, most = 0;
    for (uint32_t i = 0; i < x->n_chunks; i++) {
        unsigned first = 0;
        for (unsigned t = 1; t < threads; t++)
            first = done[t] < done[first] ? t : first;
        done[first] += x->chunks[i].tile_count;
    }
    for (unsigned t = 0; t < threads; t++)
        most = done[t] > most ? done[t] : most;
    return most;
}

static void test_cuts(void **state)
{
    static const unsigned threads[] = {1, 2, 3, 4, 8, 16, 64};
    static const uint32_t experts[] = {1, 2, 8, 60}, rows[] = {16, 100, 512, 768, 14336},
                          tokens[] = {1, 3, 64};
    (void)state;
    for (unsigned t = 0; t < 7; t++) {
        struct pool *pool;
        struct exec *x = new_exec(threads[t], &pool);
        for (int i = 0; i < 4 * 5 * 3; i++) {
            uint32_t n = experts[i % 4], n_tiles = tile_row_count(rows[i / 4 % 5]),
                     w = tokens[i / 20];
            const struct matrix m = {TENSOR_Q4_0, rows[i / 4 % 5], 1024, NULL};
            cut(x, n, &m, w);
            expect_all_once(x, n, n_tiles);
            /* 4 tile rows of this width are the least that a chunk for one token should have */
            uint32_t fair = (n * n_tiles + threads[t] - 1) / threads[t], least = w == 1 ? 4 : 1;
            if (busiest(x, threads[t]) > fair + fair / 4 + 2 * least)
                fail_msg("%u of %u rows for %u tokens on %u threads: %u tile rows on one, %u would "
                         "be fair",
                         n, m.rows, w, threads[t], busiest(x, threads[t]), fair);
        }
        exec_free(x);
        pool_free(pool);
    }
}

/* Eight experts of 32 tile rows, one token: whole ones first, and no short chunk before the last
 * quarter. */
static void test_long_chunks(void **state)
{
    const struct matrix m = {TENSOR_Q4_0, 512, 1024, NULL};
    struct pool *pool;
    (void)state;
    struct exec *x = new_exec(2, &pool);
    cut(x, 8, &m, 1);
    for (uint32_t i = 0; i < 5; i++)
        assert_int_equal(x->chunks[i].tile_count, 32);
    assert_true(x->n_chunks <= 16);
    exec_free(x);
    pool_free(pool);
    x = new_exec(1, &pool); /* no second thread to share with */
    cut(x, 8, &m, 1);
    assert_int_equal(x->n_chunks, 8);
    cut(x, 8, &m, 0); /* nothing to do */
    assert_int_equal(x->n_chunks, 0);
    exec_free(x);
    pool_free(pool);
}

/* For the BF16 instructions in pairs from the first tile row on, whatever the number of threads. */
static void test_bf16_chunks(void **state)
{
    static const struct bf16_build any;
    const struct matrix m = {TENSOR_BF16, 1000, 64, NULL};
    (void)state;
    for (unsigned threads = 1; threads <= 5; threads++) {
        struct pool *pool;
        struct exec *x = new_exec(threads, &pool);
        x->groups.n = 1;
        x->bf16 = &any;
        cut(x, 3, &m, 64);
        expect_all_once(x, 3, tile_row_count(1000));
        for (uint32_t i = 0; i < x->n_chunks; i++)
            assert_int_equal(x->chunks[i].tile_first % 2, 0);
        exec_free(x);
        pool_free(pool);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_cuts),
                                       cmocka_unit_test(test_long_chunks),
                                       cmocka_unit_test(test_bf16_chunks)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
