/* Attention in the shape of Qwen3-30B-A3B; see bench.h. Of one token at three depths: the bound is
 * reading the keys and values once. Of a prompt's rows, by the definition and by tensor cores. */
#include "bench/device/bench.h"

#include "gguf/tensor_type.h"

#include <stdio.h>
#include <stdlib.h>

enum { HEADS = 32, KV_HEADS = 4, DIM = 128, ROW_BYTES = KV_HEADS * DIM * 2 };
/* More than caches hold: each call reads another layer. */
#define KV_BYTES (512u << 20)

struct attending {
    struct device_kv kv;
    uint32_t depth, n_layers, n_rows;
    struct device_row *rows; /* the last ones before `depth` */
    float *q, *out;
    void *scratch;
};

static size_t layer_bytes(void)
{
    return (size_t)2 * DEVICE_PAGE * ROW_BYTES;
}

static const struct device_attention shape = {
    .n_heads = HEADS, .n_kv_heads = KV_HEADS, .k_dim = DIM, .v_dim = DIM, .scale = 0.088f};

static void attend(void *arg, unsigned turn)
{
    struct attending *a = arg;
    a->kv.offset = turn % a->n_layers * layer_bytes();
    module->ops.attend(stream, &a->kv, a->rows, a->n_rows, a->depth, a->q, &shape, a->out, NULL,
                       a->scratch);
}

static void attend_many(void *arg, unsigned turn)
{
    struct attending *a = arg;
    a->kv.offset = turn % a->n_layers * layer_bytes();
    module->ops.attend_many(stream, &a->kv, a->rows, a->n_rows, a->depth, a->q, &shape, a->out,
                            NULL, a->scratch);
}

/* The addresses of the pages, on the device. */
static uint64_t *page_table(const uint8_t *pages, uint32_t n, size_t page_bytes)
{
    uint64_t *table = malloc(n * sizeof *table), *there = allocate(n * sizeof *table);
    if (!table)
        exit(1);
    for (uint32_t i = 0; i < n; i++)
        table[i] = (uint64_t)(uintptr_t)(pages + i * page_bytes);
    module->upload(stream, there, table, n * sizeof *table);
    finish();
    free(table);
    return there;
}

static struct device_row *row_table(uint32_t depth, uint32_t n)
{
    struct device_row *rows = calloc(n, sizeof *rows), *there = allocate(n * sizeof *rows);
    if (!rows)
        exit(1);
    for (uint32_t i = 0; i < n; i++)
        rows[i].position = depth - n + i;
    module->upload(stream, there, rows, n * sizeof *rows);
    finish();
    free(rows);
    return there;
}

static void print_token(struct attending *a)
{
    double s = measure(attend, a), bound = 2.0 * a->depth * ROW_BYTES / bounds.memory;
    char what[64];
    snprintf(what, sizeof what, "1 token at depth %u", a->depth);
    print_time(what, s, bound > bounds.kernel_s ? bound : bounds.kernel_s);
    if (!simulated && a->depth == 32768)
        printf("figure: attention at 32k %.0f %% of memory\n", 100 * bound / s);
}

static void print_prompt(struct attending *a)
{
    double defined = measure(attend, a), many = measure(attend_many, a);
    double seen = a->n_rows * (a->depth - (a->n_rows - 1) / 2.0);
    double operations = 4.0 * HEADS * DIM * seen; /* scores and values */
    char what[64];
    snprintf(what, sizeof what, "%u rows of a prompt to depth %u", a->n_rows, a->depth);
    if (simulated)
        printf("%-46s %16s\n", what, "ran");
    else
        printf("%-46s %8.2f TFLOP/s, by tensor cores %8.2f\n", what, operations / defined * 1e-12,
               operations / many * 1e-12);
    fflush(stdout);
}

static void bench_depth(uint32_t depth, uint32_t n_rows, void (*print)(struct attending *a))
{
    struct attending a = {.depth = depth, .n_rows = n_rows};
    uint32_t n_pages = (depth + DEVICE_PAGE - 1) / DEVICE_PAGE;
    size_t values = (size_t)n_rows * HEADS * DIM;
    a.n_layers = simulated ? 1 : (uint32_t)(KV_BYTES / ((size_t)n_pages * layer_bytes())) + 1;
    size_t page_bytes = a.n_layers * layer_bytes();
    uint8_t *pages = allocate_filled(n_pages * page_bytes, 0x11);
    uint64_t *table = page_table(pages, n_pages, page_bytes);
    a.kv = (struct device_kv){.type = TENSOR_F16,
                              .rows = 2,
                              .key_values = KV_HEADS * DIM,
                              .value_values = KV_HEADS * DIM,
                              .key_bytes = ROW_BYTES,
                              .pages = table,
                              .pages_a_slot = n_pages};
    a.rows = row_table(depth, n_rows);
    a.q = allocate_filled(values * sizeof(float), 0);
    a.out = allocate(values * sizeof(float));
    a.scratch = allocate(module->ops.attend_scratch_bytes(n_rows, HEADS, DIM, depth));
    print(&a);
    void *all[] = {pages, table, a.rows, a.q, a.out, a.scratch};
    for (unsigned i = 0; i < sizeof all / sizeof *all; i++)
        module->release(device, all[i]);
}

void bench_attention(void)
{
    static const uint32_t depths[] = {512, 4096, 32768};
    print_heading("attention: 32 heads, 4 of keys, of 128, F16");
    for (unsigned i = 0; i < (simulated ? 1 : sizeof depths / sizeof *depths); i++)
        bench_depth(depths[i], 1, print_token);
    if (simulated)
        bench_depth(8, 8, print_prompt);
    else
        for (uint32_t depth = 512; depth <= 8192; depth *= 4)
            bench_depth(depth, 512, print_prompt);
}
