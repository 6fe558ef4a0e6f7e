/* Attention in the shapes of three models; see bench.h. Of one token at several depths: the bound
 * is reading the keys and values once. Of a prompt's rows, by the definition and by tensor cores.
 */
#include "bench/device/bench.h"

#include "gguf/tensor_type.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* More than caches hold: each call reads another layer. */
#define KV_BYTES (512u << 20)

/* kv_rows: 1 where values are the keys' first part (latent attention), else 2. F16. */
static const struct attention_model {
    const char *name;
    uint32_t n_heads, n_kv_heads, k_dim, v_dim, kv_rows;
} models[] = {
    {"Qwen3-30B-A3B", 32, 4, 128, 128, 2},
    {"Qwen3.6-35B-A3B", 16, 2, 256, 256, 2},
    {"DeepSeek-V2-Lite", 16, 1, 576, 512, 1},
};

struct attending {
    const struct attention_model *model;
    struct device_attention shape;
    struct device_kv kv;
    uint32_t depth, n_layers, n_rows;
    struct device_row *rows; /* the last ones before `depth` */
    float *q, *out;
    void *scratch;
};

/* Of a position. */
static uint32_t key_bytes(const struct attention_model *m)
{
    return m->n_kv_heads * m->k_dim * 2;
}

static uint32_t kv_bytes(const struct attention_model *m)
{
    return key_bytes(m) + (m->kv_rows == 2 ? m->n_kv_heads * m->v_dim * 2 : 0);
}

static size_t layer_bytes(const struct attention_model *m)
{
    return (size_t)DEVICE_PAGE * kv_bytes(m);
}

static void attend(void *arg, unsigned turn)
{
    struct attending *a = arg;
    a->kv.offset = turn % a->n_layers * layer_bytes(a->model);
    module->ops.attend(stream, &a->kv, a->rows, a->n_rows, a->depth, a->q, &a->shape, a->out, NULL,
                       a->scratch);
}

static void attend_many(void *arg, unsigned turn)
{
    struct attending *a = arg;
    a->kv.offset = turn % a->n_layers * layer_bytes(a->model);
    module->ops.attend_many(stream, &a->kv, a->rows, a->n_rows, a->depth, a->q, &a->shape, a->out,
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
    double s = measure(attend, a), bound = (double)a->depth * kv_bytes(a->model) / bounds.memory;
    char what[64];
    snprintf(what, sizeof what, "1 token at depth %u", a->depth);
    print_time(what, s, bound > bounds.kernel_s ? bound : bounds.kernel_s);
    if (!simulated && a->depth == 32768 && a->model == &models[0])
        printf("figure: attention at 32k %.0f %% of memory\n", 100 * bound / s);
}

static void print_prompt(struct attending *a)
{
    const struct attention_model *m = a->model;
    double defined = measure(attend, a), many = measure(attend_many, a);
    double seen = a->n_rows * (a->depth - (a->n_rows - 1) / 2.0);
    double operations = 2.0 * m->n_heads * (m->k_dim + m->v_dim) * seen; /* scores and values */
    char what[64];
    snprintf(what, sizeof what, "%u rows of a prompt to depth %u", a->n_rows, a->depth);
    if (simulated)
        printf("%-46s %16s\n", what, "ran");
    else
        printf("%-46s %8.2f TFLOP/s, by tensor cores %8.2f\n", what, operations / defined * 1e-12,
               operations / many * 1e-12);
    fflush(stdout);
}

static void bench_depth(const struct attention_model *m, uint32_t depth, uint32_t n_rows,
                        void (*print)(struct attending *a))
{
    struct attending a = {.model = m,
                          .shape = {.n_heads = m->n_heads,
                                    .n_kv_heads = m->n_kv_heads,
                                    .k_dim = m->k_dim,
                                    .v_dim = m->v_dim,
                                    .scale = 1 / sqrtf((float)m->k_dim)},
                          .depth = depth,
                          .n_rows = n_rows};
    uint32_t n_pages = (depth + DEVICE_PAGE - 1) / DEVICE_PAGE;
    size_t rows = (size_t)n_rows * m->n_heads;
    a.n_layers = simulated ? 1 : (uint32_t)(KV_BYTES / (n_pages * layer_bytes(m))) + 1;
    size_t page_bytes = a.n_layers * layer_bytes(m);
    uint8_t *pages = allocate_filled(n_pages * page_bytes, 0x11);
    uint64_t *table = page_table(pages, n_pages, page_bytes);
    a.kv =
        (struct device_kv){.type = TENSOR_F16,
                           .rows = m->kv_rows,
                           .key_values = m->n_kv_heads * m->k_dim,
                           .value_values = m->n_kv_heads * (m->kv_rows == 2 ? m->v_dim : m->k_dim),
                           .key_bytes = key_bytes(m),
                           .pages = table,
                           .pages_a_slot = n_pages};
    a.rows = row_table(depth, n_rows);
    a.q = allocate_filled(rows * m->k_dim * sizeof(float), 0);
    a.out = allocate(rows * m->v_dim * sizeof(float));
    a.scratch = allocate(module->ops.attend_scratch_bytes(n_rows, m->n_heads, m->v_dim, depth));
    print(&a);
    void *all[] = {pages, table, a.rows, a.q, a.out, a.scratch};
    for (unsigned i = 0; i < sizeof all / sizeof *all; i++)
        module->release(device, all[i]);
}

static void bench_model(const struct attention_model *m)
{
    static const uint32_t depths[] = {512, 4096, 32768};
    char heading[128];
    snprintf(heading, sizeof heading, "attention, %s: %u heads of %u, %u of keys", m->name,
             m->n_heads, m->v_dim, m->n_kv_heads);
    print_heading(heading);
    for (unsigned i = 0; i < (simulated ? 1 : sizeof depths / sizeof *depths); i++)
        bench_depth(m, simulated ? 40 : depths[i], 1, print_token);
    if (simulated)
        bench_depth(m, 8, 8, print_prompt);
    else
        for (uint32_t depth = 512; depth <= 8192; depth *= 4)
            bench_depth(m, depth, 512, print_prompt);
}

void bench_attention(void)
{
    for (unsigned i = 0; i < sizeof models / sizeof *models; i++)
        bench_model(&models[i]);
}
