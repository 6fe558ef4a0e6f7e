/* bench-kernels [--kernels NAME] [--type NAME] [--mib N]: multiply() on one thread.
 *
 * For each type and both shapes of a Qwen3-30B-A3B expert (768 x 2048 and 2048 x 768), over enough
 * matrices that none is in a cache when its turn comes: weights read a second for one token, beside
 * what a plain sum over the same memory reads, and GFLOP/s for 8 and 64 tokens.
 */
#include "base/clock.h"
#include "kernels/kernels.h"
#include "quant/quant.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_TOKENS = 64, MAX_COLS = 2048, MAX_ROWS = 2048, ROUNDS = 3, BATCH_SAMPLES = 9 };

struct bench {
    uint8_t *weights;
    size_t weight_bytes;
    float *x, *y;
    void *act_memory;
};

/* The fastest plain reading found: four streams a quarter of the memory apart, as one stream leaves
 * the hardware's prefetchers idle at page borders, with prefetches well ahead; 16-byte additions.
 */
typedef uint64_t lanes __attribute__((vector_size(16)));

static double read_seconds(const uint8_t *memory, size_t bytes)
{
    enum { STREAMS = 4, LINE = 64, AHEAD = 1024 };
    size_t part = bytes / STREAMS / LINE * LINE;
    lanes sums[STREAMS][2] = {{{0}}};
    double start = clock_s();
    volatile uint64_t sink;

    for (size_t i = 0; i < part; i += LINE)
        for (size_t k = 0; k < STREAMS; k++) {
            const lanes *p = (const lanes *)(memory + k * part + i);
            __builtin_prefetch((const uint8_t *)p + AHEAD);
            sums[k][0] += p[0] + p[1];
            sums[k][1] += p[2] + p[3];
        }
    for (int k = 0; k < STREAMS; k++)
        sums[0][0] += sums[k][0] + sums[k][1];
    sink = sums[0][0][0];
    (void)sink;
    return (clock_s() - start) * (double)bytes / (double)(part * STREAMS);
}

/* Random quants with sane scales: one matrix quantised and copied to fill the memory. */
static uint32_t fill(struct bench *b, enum tensor_type type, uint32_t rows, uint32_t cols)
{
    size_t bytes = tile_matrix_bytes(type, rows, cols), row_bytes = tile_row_bytes(type, cols);
    size_t stride = quant_row_bytes(type, cols);
    uint32_t count = (uint32_t)(b->weight_bytes / bytes);
    uint8_t *file = malloc(TILE_ROWS * stride);
    float *values = malloc(cols * sizeof *values);

    for (uint32_t t = 0; t < tile_row_count(rows); t++) {
        for (uint32_t r = 0; r < TILE_ROWS; r++) {
            for (uint32_t c = 0; c < cols; c++)
                values[c] = (float)(rand() % 2001 - 1000) * 3e-5f;
            quant_quantize(type, values, file + r * stride, cols);
        }
        tile_pack(type, cols, TILE_ROWS, file, stride, b->weights + t * row_bytes);
    }
    for (uint32_t i = 1; i < count; i++)
        memcpy(b->weights + i * bytes, b->weights, bytes);
    free(values);
    free(file);
    return count;
}

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static double median(double *values, uint32_t n)
{
    qsort(values, n, sizeof *values, compare_doubles);
    return values[n / 2];
}

static double multiply_seconds(const struct bench *b, const struct matrix *m,
                               const struct activations *a)
{
    double start = clock_s();

    kernels_get()->multiply(m, 0, tile_row_count(m->rows), a, NULL, a->n_tokens, b->y, m->rows,
                            false);
    return clock_s() - start;
}

static void bind(const struct bench *b, uint32_t cols, uint32_t n_tokens, struct activations *a)
{
    act_bind(a, b->act_memory, cols, n_tokens, b->x, cols);
    kernels_get()->quantize(a, 0, n_tokens);
}

/* Median bytes a second of multiplying with one matrix and of reading the next one, in turn: what
 * else the machine does meanwhile meets both alike. */
static void bench_decode(struct bench *b, enum tensor_type type, uint32_t rows, uint32_t cols,
                         uint32_t count, double *decode, double *read)
{
    size_t bytes = tile_matrix_bytes(type, rows, cols);
    double *times = malloc(2 * (size_t)(ROUNDS * count) * sizeof *times);
    struct activations a;
    uint32_t n = 0;

    bind(b, cols, 1, &a);
    for (int round = 0; round < ROUNDS; round++)
        for (uint32_t i = 0; i + 1 < count; i += 2, n++) {
            struct matrix m = {type, rows, cols, b->weights + i * bytes};
            times[n] = multiply_seconds(b, &m, &a);
            times[ROUNDS * count + n] = read_seconds(b->weights + (i + 1) * bytes, bytes);
        }
    *decode = (double)bytes / median(times, n);
    *read = (double)bytes / median(times + ROUNDS * count, n);
    free(times);
}

static double bench_batch(struct bench *b, enum tensor_type type, uint32_t rows, uint32_t cols,
                          uint32_t n_tokens)
{
    double times[BATCH_SAMPLES];
    struct matrix m = {type, rows, cols, b->weights};
    struct activations a;

    bind(b, cols, n_tokens, &a);
    for (int i = 0; i < BATCH_SAMPLES; i++) {
        times[i] = multiply_seconds(b, &m, &a);
        m.tiles = (const uint8_t *)m.tiles + tile_matrix_bytes(type, rows, cols);
    }
    return 2.0 * rows * cols * n_tokens / median(times, BATCH_SAMPLES);
}

static void bench_type(struct bench *b, enum tensor_type type)
{
    static const uint32_t shapes[2][2] = {{768, 2048}, {2048, 768}};

    for (int s = 0; s < 2; s++) {
        uint32_t rows = shapes[s][0], cols = shapes[s][1];
        uint32_t count = fill(b, type, rows, cols);
        double decode, read;

        bench_decode(b, type, rows, cols, count, &decode, &read);
        printf("%-6s %4u x %4u  %7.2f  %7.2f  %5.1f %%  %9.1f  %9.1f\n",
               tensor_type_info(type)->name, rows, cols, decode * 1e-9, read * 1e-9,
               100 * decode / read, bench_batch(b, type, rows, cols, 8) * 1e-9,
               bench_batch(b, type, rows, cols, 64) * 1e-9);
        fflush(stdout);
    }
}

int main(int argc, char **argv)
{
    static const enum tensor_type types[] = {
        TENSOR_F32,  TENSOR_F16,  TENSOR_BF16,   TENSOR_Q8_0,  TENSOR_Q4_0, TENSOR_Q4_1,
        TENSOR_Q5_0, TENSOR_Q5_1, TENSOR_IQ4_NL, TENSOR_MXFP4, TENSOR_Q2_K, TENSOR_Q3_K,
        TENSOR_Q4_K, TENSOR_Q5_K, TENSOR_Q6_K,   TENSOR_IQ4_XS};
    struct bench b = {.weight_bytes = (size_t)1024 << 20};
    int only = -1;

    for (int i = 1; i < argc; i += 2) {
        const char *value = i + 1 < argc ? argv[i + 1] : "";
        if (strcmp(argv[i], "--kernels") == 0 && kernels_select(value))
            continue;
        if (strcmp(argv[i], "--type") == 0 && (only = tensor_type_from_name(value)) >= 0)
            continue;
        if (strcmp(argv[i], "--mib") == 0 && atol(value) >= 64) {
            b.weight_bytes = (size_t)atol(value) << 20;
            continue;
        }
        fprintf(stderr, "usage: bench-kernels [--kernels portable|avx2|avx512] [--type NAME] "
                        "[--mib N (64 or more)]\n");
        return 1;
    }
    b.weights = aligned_alloc(TILE_ALIGN, b.weight_bytes);
    b.x = malloc(MAX_TOKENS * MAX_COLS * sizeof *b.x);
    b.y = malloc(MAX_TOKENS * MAX_ROWS * sizeof *b.y);
    b.act_memory = aligned_alloc(TILE_ALIGN, act_bytes(MAX_COLS, MAX_TOKENS));
    if (b.weights == NULL || b.x == NULL || b.y == NULL || b.act_memory == NULL) {
        fprintf(stderr, "bench-kernels: not enough memory: --mib %zu\n", b.weight_bytes >> 20);
        return 1;
    }
    memset(b.weights, 0, b.weight_bytes);
    for (int i = 0; i < MAX_TOKENS * MAX_COLS; i++)
        b.x[i] = (float)(rand() % 2001 - 1000) * 1e-3f;
    printf("kernels: %s, one thread, %zu MiB\n"
           "               shape  GB/s      GB/s     decode   GFLOP/s    GFLOP/s\n"
           "type    rows   cols   decode    read     / read   8 tokens   64 tokens\n",
           kernels_get()->name, b.weight_bytes >> 20);
    for (size_t t = 0; t < sizeof types / sizeof types[0]; t++)
        if (only < 0 || (int)types[t] == only)
            bench_type(&b, types[t]);
    free(b.act_memory);
    free(b.y);
    free(b.x);
    free(b.weights);
    return 0;
}
