/* The chunks of products for threads: they cover each product once and in order; they are long if
 * there is enough work for all threads; and all threads finish at nearly the same time. */
#include "exec/internal.h"
#include "kernels/bf16.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "loaded_model.h"

enum { MOST_THREADS = 64 };

/* The threads' CPUs lie on the nodes in turn. */
static struct exec *new_exec_on(unsigned n_nodes, unsigned threads, struct pool **pool)
{
    static struct topology t; /* large */
    t = (struct topology){.n_cpus = n_nodes, .n_cores = n_nodes, .n_nodes = n_nodes};
    for (unsigned i = 0; i < n_nodes; i++)
        t.cpus[i] = (struct topology_cpu){(uint16_t)i, (uint16_t)i, (uint16_t)i};
    const struct exec_limits limits = {
        .max_tokens = 1, .max_cols = 64, .max_task_rows = 1, .max_width = 64};
    struct error e;
    struct exec *x;
    must(pool_new_on(&t, "test", threads, false, 0, pool, &e), &e);
    must(exec_new(*pool, &limits, false, &x, &e), &e);
    return x;
}

static struct exec *new_exec(unsigned threads, struct pool **pool)
{
    return new_exec_on(1, threads, pool);
}

/* n products with these tile rows. */
static void cut(struct exec *x, uint32_t n, const struct matrix *m, uint32_t n_tokens)
{
    uint64_t tiles = (uint64_t)n * tile_row_count(m->rows);
    struct exec_cutting c = exec_cut_begin(pool_active_count(x->pool), tiles, tiles * n_tokens);
    x->n_chunks = 0;
    for (uint32_t i = 0; i < n; i++)
        exec_cut_product(x, &c, i, m, 0, tile_row_count(m->rows), n_tokens);
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

/* Experts of one segment, as parts of one token each. */
static void cut_experts(struct exec *x, uint32_t n, uint32_t d_expert, uint32_t d_model, bool down)
{
    static struct expert_task tasks[64];
    x->split = (struct numa_split){pool_node_count(x->pool), 1, true};
    for (x->n_parts = 0; x->n_parts < n; x->n_parts++) {
        struct expert_part *p = &x->parts[x->n_parts];
        tasks[x->n_parts] =
            (struct expert_task){.expert = 7 * x->n_parts, .n_segments = 1, .n_tokens = 1};
        p->task = &tasks[x->n_parts];
        p->segment.gate = (struct matrix){TENSOR_Q4_K, d_expert, d_model, NULL};
        p->segment.down = (struct matrix){TENSOR_Q4_K, d_model, d_expert, NULL};
    }
    exec_cut_experts(x, down);
}

/* On 8 nodes of 8 threads each node's eighth of the rows is cut as on a machine of one node with 8
 * threads, for its own threads and not for all 64; and all rows are in some chunk once. */
static void test_chunks_of_nodes(void **state)
{
    struct pool *one, *eight;
    struct exec *x = new_exec(8, &one), *y = new_exec_on(8, 64, &eight);
    (void)state;
    for (int down = 0; down < 2; down++) {
        cut_experts(x, 8, down ? 1536 : 1536 / 8, down ? 4096 / 8 : 4096, down);
        cut_experts(y, 8, 1536, 4096, down);
        uint32_t n_tiles = down ? 256 : 96, covered[8][256] = {{0}};
        for (unsigned node = 0; node < 8; node++)
            assert_int_equal(y->first_chunk[node + 1] - y->first_chunk[node], x->n_chunks);
        for (uint32_t i = 0; i < y->n_chunks; i++)
            for (uint32_t k = 0; k < y->chunks[i].tile_count; k++)
                covered[y->chunks[i].product][y->chunks[i].tile_first + k]++;
        for (uint32_t i = 0; i < 8 * n_tiles; i++)
            assert_int_equal(covered[i / n_tiles][i % n_tiles], 1);
    }
    exec_free(x);
    exec_free(y);
    pool_free(one);
    pool_free(eight);
}

/* A router, of 8 tile rows, and a prompt: on 32 threads the tokens are cut too, so that all threads
 * have chunks; no chunk is of few tokens; each value is that of one thread. */
static void test_rows_of_prompts(void **state)
{
    enum { ROWS = 120, COLS = 64, MOST = 500 };
    static const uint32_t tokens[] = {MOST, 257, 40, 31, 1};
    static const uint32_t chunks[] = {64, 64, 16, 8, 8};
    static float values[MOST][COLS], y[2][MOST][ROWS];
    const struct exec_limits limits = {MOST, COLS, 1, COLS};
    struct exec *x[2];
    struct pool *pools[2];
    struct error e;
    static const struct topology one = {.n_cpus = 1, .n_cores = 1, .n_nodes = 1};
    struct matrix m = {TENSOR_F32, ROWS, COLS, NULL};
    float *tiles = aligned_alloc(TILE_ALIGN, tile_matrix_bytes(m.type, ROWS, COLS));
    (void)state;
    assert_non_null(tiles);
    uint32_t random = 1;
    for (size_t i = 0; i < tile_matrix_bytes(m.type, ROWS, COLS) / sizeof *tiles; i++)
        tiles[i] = (float)(int32_t)(random = random * 1664525u + 1013904223u) * 0x1p-31f;
    for (int i = 0; i < MOST * COLS; i++)
        values[i / COLS][i % COLS] =
            (float)(int32_t)(random = random * 1664525u + 1013904223u) * 0x1p-31f;
    m.tiles = tiles;
    for (int i = 0; i < 2; i++) {
        must(pool_new_on(&one, "test", i ? 32 : 1, false, 0, &pools[i], &e), &e);
        must(exec_new(pools[i], &limits, false, &x[i], &e), &e);
    }
    for (int k = 0; k < 5; k++) {
        memset(y, 0, sizeof y);
        for (int i = 0; i < 2; i++)
            exec_multiply(x[i], &m, exec_prepare(x[i], 0, values[0], COLS, tokens[k], COLS, false),
                          y[i][0], ROWS, false);
        assert_memory_equal(y[0], y[1], sizeof y[0]);
        assert_int_equal(x[1]->n_chunks, chunks[k]);
    }
    for (int i = 0; i < 2; i++) {
        exec_free(x[i]);
        pool_free(pools[i]);
    }
    free(tiles);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cuts), cmocka_unit_test(test_long_chunks),
        cmocka_unit_test(test_bf16_chunks), cmocka_unit_test(test_chunks_of_nodes),
        cmocka_unit_test(test_rows_of_prompts)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
