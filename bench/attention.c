/* bench-attention: attention against the machine's memory rate and multiply-add peak.
 *
 * One row, as in decode, or the last rows of a prompt attend to `depth` positions, again and again.
 * Each time they read another part of a cache that is larger than the machine's caches, as the
 * layers of a model do. For each sample the program measures two yardsticks at the same moment: a
 * plain read of as much of the same memory, and the bare multiply-add instruction. It prints keys
 * and values read a second and multiply-adds a second, each with its ratio to the yardstick; a
 * ratio near 1 is the bound. All figures are medians.
 */
#include "base/clock.h"
#include "base/sort_doubles.h"
#include "exec/attention.h"
#include "model/kv_type.h"
#include "yardsticks.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum {
    MAX_QUERY = 128 * 576, /* floats of a row */
    MAX_ROWS = 512,
    SAMPLE_BYTES = 32 << 20,
    MAX_SAMPLES = 1000,
    MAX_DEPTH = 16384,
};

static const struct shape {
    const char *name;
    uint32_t n_heads, n_kv_heads, k_dim, v_dim;
    bool latent; /* values are the first part of the keys */
} shapes[] = {
    {"4:1, heads of 64", 16, 4, 64, 64, false},    {"grouped 4:1", 16, 4, 128, 128, false},
    {"grouped 8:1", 32, 4, 128, 128, false},       {"latent, 16 heads", 16, 1, 576, 512, true},
    {"latent, 128 heads", 128, 1, 576, 512, true},
};

struct bench {
    const char *kernels;
    unsigned threads, mib, rounds, rows;
    uint8_t *memory;
    size_t bytes;
    const uint8_t *pages[MAX_DEPTH / KV_PAGE]; /* of the current rows */
    struct attention_row row[MAX_ROWS];
    float *q, *out;
    struct pool *pool;
    size_t next; /* byte of the memory where the next sample begins */
    /* of the current plain read */
    size_t read_bytes;
};

static volatile uint64_t sink; /* keeps the yardsticks' results alive */

static size_t row_bytes(enum tensor_type type, uint32_t n)
{
    const struct tensor_type_info *info = tensor_type_info(type);
    return (size_t)n / info->block_values * info->block_bytes;
}

/* The next `bytes` of the memory; begins at the start again near the end. */
static uint8_t *take(struct bench *b, size_t bytes)
{
    if (b->next + bytes > b->bytes)
        b->next = 0;
    b->next += bytes;
    return b->memory + b->next - bytes;
}

struct cache_layout {
    struct attention_shape attention;
    size_t page_bytes; /* of all heads */
    size_t bytes;      /* of all pages */
    uint32_t depth;
};

static size_t pages_of(uint32_t depth)
{
    return (depth + KV_PAGE - 1) / KV_PAGE;
}

static struct cache_layout lay_out(const struct shape *s, enum tensor_type type, uint32_t depth)
{
    size_t key = row_bytes(type, s->k_dim), value = s->latent ? 0 : row_bytes(type, s->v_dim);
    size_t head = KV_PAGE * (key + value);
    return (struct cache_layout){.attention = {.type = type,
                                               .n_heads = s->n_heads,
                                               .n_kv_heads = s->n_kv_heads,
                                               .k_dim = s->k_dim,
                                               .v_dim = s->v_dim,
                                               .scale = 0.1f,
                                               .key_stride = key,
                                               .value_stride = s->latent ? key : value,
                                               .values_offset = s->latent ? 0 : KV_PAGE * key,
                                               .head_stride = head},
                                 .page_bytes = s->n_kv_heads * head,
                                 .bytes = pages_of(depth) * s->n_kv_heads * head,
                                 .depth = depth};
}

/* Any values: a few rows, copied to fill the memory. */
static void fill(struct bench *b, enum tensor_type type)
{
    float values[64];
    size_t bytes = row_bytes(type, 64);
    for (int i = 0; i < 64; i++)
        values[i] = (float)(rand() % 2001 - 1000) * 1e-3f;
    kernels_get()->kv_write(type, values, 64, b->memory);
    for (size_t at = bytes; at + bytes <= b->bytes; at += bytes)
        memcpy(b->memory + at, b->memory, bytes);
}

static double attend_s(struct bench *b, struct attention *a, const struct cache_layout *l, size_t n)
{
    double start = clock_s();
    for (size_t i = 0; i < n; i++) {
        const uint8_t *first = take(b, l->bytes);
        for (size_t page = 0; page < pages_of(l->depth); page++)
            b->pages[page] = first + page * l->page_bytes;
        for (uint32_t r = 0; r < b->rows; r++)
            b->row[r] = (struct attention_row){b->pages, 0, l->depth - b->rows + 1 + r};
        attention_run(a, &l->attention, b->row, b->rows, b->q, NULL, b->out);
    }
    return clock_s() - start;
}

static void read_part(void *arg, unsigned thread, uint32_t chunk)
{
    const struct bench *b = arg;
    size_t bytes = b->read_bytes / b->threads / 64 * 64;
    (void)thread;
    sink = yardstick_read(b->memory + b->next - b->read_bytes + chunk * bytes, bytes);
}

static double read_s(struct bench *b, size_t bytes)
{
    take(b, bytes);
    b->read_bytes = bytes;
    double start = clock_s();
    pool_run(b->pool, read_part, b, b->threads);
    return clock_s() - start;
}

static void multiply_part(void *arg, unsigned thread, uint32_t chunk)
{
    const struct multiply_adds *peak = arg;
    (void)thread;
    (void)chunk;
    for (int i = 0; i < 20; i++)
        sink = (uint64_t)peak->run();
}

/* Multiplications and additions a second; 0: there is no such yardstick. */
static double peak_rate(struct bench *b)
{
    const struct multiply_adds *peak = yardstick_multiply_adds(kernels_get()->name, false);
    if (!peak)
        return 0;
    double start = clock_s();
    pool_run(b->pool, multiply_part, (void *)(uintptr_t)peak, b->threads);
    return 20 * b->threads * peak->flop / (clock_s() - start);
}

static double median(double *values, size_t n)
{
    sort_doubles(values, n);
    return values[n / 2];
}

static int measure(struct bench *b, const struct shape *s, enum tensor_type type, uint32_t depth)
{
    static double rate[MAX_SAMPLES], of_read[MAX_SAMPLES], of_peak[MAX_SAMPLES];
    struct cache_layout l = lay_out(s, type, depth);
    struct attention *a;
    struct error e;
    if (l.bytes > b->bytes || SAMPLE_BYTES > b->bytes ||
        attention_new(b->pool, s->n_heads, s->k_dim, s->v_dim, b->rows, &a, &e))
        return -1;
    size_t calls = SAMPLE_BYTES / l.bytes / b->rows ? SAMPLE_BYTES / l.bytes / b->rows : 1;
    double positions = (double)b->rows * (depth - 0.5 * (b->rows - 1));
    double flop = 2.0 * s->n_heads * positions * (s->k_dim + s->v_dim);
    attend_s(b, a, &l, 1);
    for (unsigned i = 0; i < b->rounds; i++) {
        double seconds = attend_s(b, a, &l, calls), read = read_s(b, calls * l.bytes);
        double peak = peak_rate(b);
        rate[i] = (double)(calls * l.bytes) / seconds;
        of_read[i] = read / seconds;
        of_peak[i] = peak > 0 ? flop * (double)calls / seconds / peak : 0;
    }
    attention_free(a);
    printf(
        "%-18s %-5s %6u  %8.2f %6.1f %%  %8.1f %6.1f %%\n", s->name, tensor_type_info(type)->name,
        depth, median(rate, b->rounds) * 1e-9, 100 * median(of_read, b->rounds),
        flop / (double)l.bytes * median(rate, b->rounds) * 1e-9, 100 * median(of_peak, b->rounds));
    fflush(stdout);
    return 0;
}

static int bench_all(struct bench *b)
{
    static const enum tensor_type types[] = {TENSOR_F32, TENSOR_F16, TENSOR_Q8_0};
    static const uint32_t depths[] = {512, 4096, MAX_DEPTH};
    printf("%s, %u thread%s, %u MiB\n"
           "                                    keys and values    multiply-adds\n"
           "attention          type   depth      GB/s / read      GFLOP/s / peak\n",
           kernels_get()->name, b->threads, b->threads == 1 ? "" : "s", b->mib);
    for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
        fill(b, types[t]);
        for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
            for (size_t d = 0; d < sizeof depths / sizeof *depths; d++)
                if (measure(b, &shapes[s], types[t], depths[d]))
                    return -1;
    }
    return 0;
}

static bool parse_option(struct bench *b, const char *name, const char *value)
{
    if (strcmp(name, "--kernels") == 0)
        return kernels_select(b->kernels = value);
    if (strcmp(name, "--threads") == 0)
        return (b->threads = (unsigned)atoi(value)) >= 1 && b->threads <= 1024;
    if (strcmp(name, "--mib") == 0)
        return (b->mib = (unsigned)atoi(value)) >= 128 && b->mib <= 1u << 20;
    if (strcmp(name, "--rounds") == 0)
        return (b->rounds = (unsigned)atoi(value)) >= 1 && b->rounds <= MAX_SAMPLES;
    if (strcmp(name, "--rows") == 0)
        return (b->rows = (unsigned)atoi(value)) >= 1 && b->rows <= MAX_ROWS;
    return false;
}

/* Ordinary pages, as the worker's cache has. */
static bool allocate(struct bench *b)
{
    b->bytes = (size_t)b->mib << 20;
    b->memory = mmap(NULL, b->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    size_t n = (size_t)MAX_QUERY * b->rows;
    b->q = malloc(n * sizeof *b->q);
    b->out = malloc(n * sizeof *b->out);
    if (b->memory == MAP_FAILED || !b->q || !b->out)
        return false;
    for (size_t i = 0; i < n; i++)
        b->q[i] = (float)(rand() % 2001 - 1000) * 1e-3f;
    return true;
}

int main(int argc, char **argv)
{
    static struct bench b = {.kernels = "auto", .threads = 1, .mib = 512, .rounds = 9, .rows = 1};
    struct error e;
    for (int i = 1; i < argc; i += 2)
        if (!parse_option(&b, argv[i], i + 1 < argc ? argv[i + 1] : "")) {
            fprintf(stderr,
                    "usage: bench-attention [--kernels NAME] [--threads N] [--mib N (128 or "
                    "more)] [--rounds N] [--rows N (of a prompt, at most 512)]\n");
            return 1;
        }
    if (!allocate(&b) || pool_new("bench", b.threads, true, 1000, &b.pool, &e)) {
        fprintf(stderr, "bench-attention: no memory for --mib %u; give less\n", b.mib);
        return 1;
    }
    int failed = bench_all(&b);
    if (failed)
        fprintf(stderr, "bench-attention: a sample does not fit; give a larger --mib\n");
    pool_free(b.pool);
    free(b.q);
    free(b.out);
    munmap(b.memory, b.bytes);
    return failed ? 1 : 0;
}
