/* Attention of one token at three depths, in the shape of Qwen3-30B-A3B; see bench.h. The bound is
 * reading the keys and values once. */
#include "bench/device/bench.h"

#include "gguf/tensor_type.h"

#include <stdio.h>
#include <stdlib.h>

enum { HEADS = 32, KV_HEADS = 4, DIM = 128, ROW_BYTES = KV_HEADS * DIM * 2 };
/* More than caches hold: each call reads another layer. */
#define KV_BYTES (512u << 20)

struct attending {
    struct device_kv kv;
    uint32_t depth, n_layers;
    struct device_row *row;
    float *q, *out;
    void *scratch;
};

static size_t layer_bytes(void)
{
    return (size_t)2 * DEVICE_PAGE * ROW_BYTES;
}

static void attend(void *arg, unsigned turn)
{
    struct attending *a = arg;
    a->kv.offset = turn % a->n_layers * layer_bytes();
    static const struct device_attention shape = {
        .n_heads = HEADS, .n_kv_heads = KV_HEADS, .k_dim = DIM, .v_dim = DIM, .scale = 0.088f};
    module->ops.attend(stream, &a->kv, a->row, 1, a->depth, a->q, &shape, a->out, NULL, a->scratch);
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

static void bench_depth(uint32_t depth)
{
    struct attending a = {.depth = depth};
    uint32_t n_pages = (depth + DEVICE_PAGE - 1) / DEVICE_PAGE;
    double bytes = 2.0 * depth * ROW_BYTES;
    char what[64];
    a.n_layers = simulated ? 1 : (uint32_t)(KV_BYTES / ((size_t)n_pages * layer_bytes())) + 1;
    size_t page_bytes = a.n_layers * layer_bytes();
    uint8_t *pages = allocate_filled(n_pages * page_bytes, 0x11);
    uint64_t *table = page_table(pages, n_pages, page_bytes);
    struct device_row row = {.slot = 0, .position = depth - 1};
    a.kv = (struct device_kv){.type = TENSOR_F16,
                              .rows = 2,
                              .row_values = KV_HEADS * DIM,
                              .row_bytes = ROW_BYTES,
                              .pages = table,
                              .pages_a_slot = n_pages};
    a.row = allocate(sizeof row);
    module->upload(stream, a.row, &row, sizeof row);
    a.q = allocate_filled(HEADS * DIM * sizeof(float), 0);
    a.out = allocate(HEADS * DIM * sizeof(float));
    a.scratch = allocate(module->ops.attend_scratch_bytes(1, HEADS, DIM, depth));
    double s = measure(attend, &a), bound = bytes / bounds.memory;
    snprintf(what, sizeof what, "1 token at depth %u", depth);
    print_time(what, s, bound > bounds.kernel_s ? bound : bounds.kernel_s);
    if (!simulated && depth == 32768)
        printf("figure: attention at 32k %.0f %% of memory\n", 100 * bound / s);
    void *all[] = {pages, table, a.row, a.q, a.out, a.scratch};
    for (unsigned i = 0; i < sizeof all / sizeof *all; i++)
        module->release(device, all[i]);
}

void bench_attention(void)
{
    static const uint32_t depths[] = {512, 4096, 32768};
    print_heading("attention: 32 heads, 4 of keys, of 128, F16");
    for (unsigned i = 0; i < (simulated ? 1 : sizeof depths / sizeof *depths); i++)
        bench_depth(depths[i]);
}
