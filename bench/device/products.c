/* Products: experts of a layer, matrices times one row and times the rows of a batch; see bench.h.
 * The bound of few rows is reading the weights once. */
#include "bench/device/bench.h"

#include "gguf/tensor_type.h"
#include "kernels/kernels.h"

#include <stdio.h>
#include <stdlib.h>

enum { N_USED = 8, D_MODEL = 2048, WIDTH = 768, MOST_TOKENS = 8 };
/* Weights that are read in turn: more than caches hold. */
#define MEASURED_BYTES (512u << 20)

/* ---- experts ---- */

struct expert_bench {
    struct device_segments layout;
    size_t segment_bytes;
    uint32_t n_tokens, n_sets;
    uint8_t *weights; /* [n_sets][N_USED] segments: more than caches hold */
    struct device_activations input;
    float *x, *rows;
    void *scratch;
    /* of experts that the device chose */
    const void **places; /* [n_sets][N_USED] */
    uint8_t *tables;     /* [n_sets] of table_bytes */
    size_t table_bytes;
    uint32_t *row_of, *missed;
};

static uint8_t *segment_of(const struct expert_bench *b, uint32_t set, uint32_t expert)
{
    return b->weights + ((size_t)set * N_USED + expert) * b->segment_bytes;
}

/* As the worker does where the host plans a layer: a table of work is copied to the device. */
static void compute_planned(void *arg, unsigned turn)
{
    const struct expert_bench *b = arg;
    static const uint32_t tokens[MOST_TOKENS] = {0, 1, 2, 3, 4, 5, 6, 7};
    struct device_expert_task tasks[N_USED];
    const void *places[N_USED];
    for (uint32_t i = 0; i < N_USED; i++) {
        places[i] = segment_of(b, turn % b->n_sets, i);
        tasks[i] = (struct device_expert_task){.n_segments = 1,
                                               .n_tokens = b->n_tokens,
                                               .places = &places[i],
                                               .tokens = tokens,
                                               .first_row = i * b->n_tokens};
    }
    module->ops.experts(stream, &b->layout, &b->input, tasks, N_USED, b->rows, b->scratch);
}

static struct device_choice choice_of(const struct expert_bench *b, uint32_t set)
{
    return (struct device_choice){.layout = &b->layout,
                                  .at = {.places = b->places + (size_t)set * N_USED,
                                         .n_experts = N_USED,
                                         .n_segments = 1,
                                         .n_used = N_USED,
                                         .missed = b->missed},
                                  .row_of = b->row_of,
                                  .tables = b->tables + set * b->table_bytes};
}

/* As the worker does where all experts of a layer are on the device. */
static void compute_chosen(void *arg, unsigned turn)
{
    const struct expert_bench *b = arg;
    const struct device_choice choice = choice_of(b, turn % b->n_sets);
    module->ops.experts_chosen(stream, &choice, &b->input, b->rows, b->scratch, NULL);
}

static size_t aligned(size_t n)
{
    return (n + 255) / 256 * 256;
}

static void *to_device(const void *from, size_t bytes)
{
    void *memory = allocate(bytes);
    module->upload(stream, memory, from, bytes);
    finish();
    return memory;
}

/* Every token chooses all experts of every set. */
static void make_choices(struct expert_bench *b)
{
    uint32_t selected[MOST_TOKENS * N_USED], n = b->n_tokens, missed;
    size_t places_bytes = (size_t)b->n_sets * N_USED * sizeof *b->places;
    const void **places = malloc(places_bytes);
    if (!places)
        exit(1);
    for (uint32_t i = 0; i < b->n_sets * N_USED; i++)
        places[i] = segment_of(b, i / N_USED, i % N_USED);
    for (uint32_t i = 0; i < n * N_USED; i++)
        selected[i] = i % N_USED;
    b->places = to_device(places, places_bytes);
    free(places);
    b->table_bytes = aligned(module->ops.chosen_bytes(n, N_USED, 1));
    b->tables = allocate(b->n_sets * b->table_bytes);
    b->row_of = allocate((size_t)n * N_USED * sizeof *b->row_of);
    b->missed = allocate_filled(sizeof *b->missed, 0);
    uint32_t *on = to_device(selected, n * N_USED * sizeof *selected);
    for (uint32_t set = 0; set < b->n_sets; set++) {
        const struct device_choice choice = choice_of(b, set);
        module->ops.choose(stream, &choice, on, n);
    }
    module->download(stream, &missed, b->missed, sizeof missed);
    finish();
    if (missed) { /* nothing would be computed */
        fprintf(stderr, "bench-device: the device finds no experts in its table of places\n");
        exit(1);
    }
    module->release(device, on);
}

/* A layer whose experts are all on the device; then the same where the host plans it. */
static void print_experts(struct expert_bench *b)
{
    char what[64];
    const char *type = tensor_type_info(b->layout.up_type)->name;
    double weights = (double)N_USED * (double)b->segment_bytes, s = measure(compute_chosen, b);
    snprintf(what, sizeof what, "8 experts of %s, %u token%s", type, b->n_tokens,
             b->n_tokens == 1 ? "" : "s");
    print_rate(what, weights, s, bounds.memory);
    if (!simulated && b->n_tokens == 1)
        printf("figure: %s %.0f %% of memory\n", type, 100 * weights / s / bounds.memory);
    print_rate("the same, the host makes the table of work", weights, measure(compute_planned, b),
               bounds.memory);
}

static void bench_type(enum tensor_type type, uint32_t n_tokens)
{
    uint32_t width = simulated ? 256 : WIDTH;
    size_t gate = aligned(tile_matrix_bytes(type, width, D_MODEL)),
           down = aligned(tile_matrix_bytes(type, D_MODEL, width));
    struct expert_bench b = {.layout = {.d_model = D_MODEL,
                                        .width = width,
                                        .gate_type = type,
                                        .up_type = type,
                                        .down_type = type,
                                        .up_offset = gate,
                                        .down_offset = 2 * gate,
                                        .activation = ACTIVATION_SILU},
                             .segment_bytes = 2 * gate + down,
                             .n_tokens = n_tokens};
    b.n_sets = simulated ? 1 : (uint32_t)(MEASURED_BYTES / (N_USED * b.segment_bytes)) + 1;
    bool quantize = tensor_type_info(type)->block_values > 1;
    b.weights = allocate_filled((size_t)b.n_sets * N_USED * b.segment_bytes, 0x11);
    b.x = allocate_filled((size_t)n_tokens * D_MODEL * sizeof(float), 0x3f);
    b.rows = allocate((size_t)n_tokens * N_USED * D_MODEL * sizeof(float));
    b.scratch = allocate(module->ops.experts_scratch_bytes(&b.layout, N_USED, N_USED * n_tokens));
    void *input = allocate(module->ops.activations_bytes(D_MODEL, n_tokens));
    module->ops.activations_bind(&b.input, input, D_MODEL, n_tokens, b.x, D_MODEL, quantize);
    if (quantize)
        module->ops.quantize(stream, &b.input);
    make_choices(&b);
    print_experts(&b);
    void *all[] = {b.weights, b.x,      b.rows,   b.scratch, input,
                   b.places,  b.tables, b.row_of, b.missed};
    for (unsigned i = 0; i < sizeof all / sizeof *all; i++)
        module->release(device, all[i]);
}

void bench_experts(void)
{
    static const enum tensor_type types[] = {
        TENSOR_Q4_K, TENSOR_Q8_0,  TENSOR_BF16,   TENSOR_Q4_0,  TENSOR_Q6_K,
        TENSOR_Q5_K, TENSOR_MXFP4, TENSOR_IQ4_XS, TENSOR_IQ3_S, TENSOR_IQ2_XS};
    print_heading("8 experts of 3 x 768 x 2048");
    for (unsigned i = 0; i < (simulated ? 1 : sizeof types / sizeof *types); i++) {
        bench_type(types[i], 1);
        bench_type(types[i], MOST_TOKENS);
    }
}

/* ---- one row ---- */

struct row_bench {
    struct matrix m;
    uint8_t *weights; /* n_sets matrices */
    size_t bytes;     /* of each */
    uint32_t n_sets;
    struct device_activations input;
    float *y;
};

static void multiply_row(void *arg, unsigned turn)
{
    struct row_bench *b = arg;
    b->m.tiles = b->weights + turn % b->n_sets * b->bytes;
    module->ops.multiply(stream, &b->m, &b->input, b->y, b->m.rows, false);
}

static void bench_row(enum tensor_type type, const char *name, uint32_t rows, uint32_t cols)
{
    struct row_bench b = {.m = {.type = type, .rows = rows, .cols = cols}};
    char what[64];
    b.bytes = aligned(tile_matrix_bytes(type, rows, cols));
    b.n_sets = simulated ? 1 : (uint32_t)(MEASURED_BYTES / b.bytes) + 1;
    b.weights = allocate_filled(b.n_sets * b.bytes, 0x11);
    float *x = allocate_filled(cols * sizeof(float), 0x3f);
    void *input = allocate(module->ops.activations_bytes(cols, 1));
    b.y = allocate(rows * sizeof(float));
    module->ops.activations_bind(&b.input, input, cols, 1, x, cols,
                                 tensor_type_info(type)->block_values > 1);
    if (b.input.q)
        module->ops.quantize(stream, &b.input);
    double s = measure(multiply_row, &b), bound = (double)b.bytes / bounds.memory;
    snprintf(what, sizeof what, "%s, %u x %u of %s", name, rows, cols,
             tensor_type_info(type)->name);
    print_time(what, s, bound > bounds.kernel_s ? bound : bounds.kernel_s);
    void *all[] = {b.weights, x, input, b.y};
    for (unsigned i = 0; i < sizeof all / sizeof *all; i++)
        module->release(device, all[i]);
}

void bench_rows(void)
{
    static const enum tensor_type types[] = {TENSOR_Q4_K, TENSOR_Q8_0, TENSOR_Q6_K, TENSOR_BF16};
    static const struct {
        const char *name;
        uint32_t rows, cols;
    } shapes[] = {{"q", 4096, 2048},
                  {"k or v", 512, 2048},
                  {"attention's output", 2048, 4096},
                  {"an expert's gate", 768, 2048},
                  {"head", 151936, 2048}};
    print_heading("one row; the bound: weights read, or a launch");
    for (unsigned i = 0; i < (simulated ? 1 : sizeof types / sizeof *types); i++)
        for (unsigned k = 0; k < (simulated ? 2 : sizeof shapes / sizeof *shapes); k++)
            bench_row(types[i], shapes[k].name, shapes[k].rows, shapes[k].cols);
    bench_row(TENSOR_F32, "router", 128, 2048);
}

/* ---- products ---- */

struct product_bench {
    struct matrix m; /* on the device */
    struct device_activations input;
    float *x, *y;
    void *scratch; /* multiply_many's */
};

static void multiply_as_defined(void *arg, unsigned turn)
{
    const struct product_bench *b = arg;
    (void)turn;
    if (b->input.q)
        module->ops.quantize(stream, &b->input);
    module->ops.multiply(stream, &b->m, &b->input, b->y, b->m.rows, false);
}

static void multiply_by_blas(void *arg, unsigned turn)
{
    const struct product_bench *b = arg;
    (void)turn;
    module->ops.multiply_many(stream, &b->m, b->x, b->m.cols, b->input.n_tokens, b->input.n_tokens,
                              b->y, b->m.rows, false, b->scratch);
}

/* blas: cuBLAS takes such weights. */
static void print_product(struct product_bench *b, bool blas)
{
    char what[64];
    uint32_t n = b->input.n_tokens;
    double operations = 2.0 * b->m.rows * b->m.cols * n;
    double own = measure(multiply_as_defined, b), many = blas ? measure(multiply_by_blas, b) : 0;
    const char *type = tensor_type_info(b->m.type)->name;
    snprintf(what, sizeof what, "%u x %u of %s, %u rows", b->m.rows, b->m.cols, type, n);
    if (simulated)
        printf("%-46s %16s\n", what, "ran");
    else if (!blas)
        printf("%-46s %8.2f TFLOP/s\n", what, operations / own * 1e-12);
    else
        printf("%-46s %8.2f TFLOP/s, cuBLAS %8.2f: %.2f times\n", what, operations / own * 1e-12,
               operations / many * 1e-12, own / many);
    if (!simulated && blas && n == 256)
        printf("figure: %u rows of %s by cuBLAS %.2f times as quick\n", n, type, own / many);
}

static void bench_product(enum tensor_type type, uint32_t n, bool blas)
{
    struct product_bench b = {
        .m = {.type = type, .rows = simulated ? 64 : 4096, .cols = simulated ? 256 : D_MODEL}};
    size_t bytes = tile_matrix_bytes(type, b.m.rows, b.m.cols),
           x_bytes = (size_t)n * b.m.cols * sizeof(float);
    void *tiles = allocate(bytes), *input = allocate(module->ops.activations_bytes(b.m.cols, n));
    b.m.tiles = tiles;
    b.x = allocate(x_bytes);
    b.y = allocate((size_t)n * b.m.rows * sizeof(float));
    b.scratch = allocate(module->ops.multiply_many_scratch_bytes(&b.m, 1, n));
    module->fill(stream, tiles, 0x11, bytes);
    module->fill(stream, b.x, 0x3f, x_bytes);
    module->ops.activations_bind(&b.input, input, b.m.cols, n, b.x, b.m.cols,
                                 tensor_type_info(type)->block_values > 1);
    print_product(&b, blas);
    void *all[] = {tiles, input, b.x, b.y, b.scratch};
    for (unsigned i = 0; i < sizeof all / sizeof *all; i++)
        module->release(device, all[i]);
}

void bench_products(void)
{
    static const enum tensor_type types[] = {TENSOR_Q4_K, TENSOR_Q8_0, TENSOR_F16, TENSOR_BF16,
                                             TENSOR_F32};
    static const uint32_t columns[] = {32, 128, 256};
    struct device_blas takes = {false, false, false};
    struct error e;
    struct device_facts facts;
    print_heading("the rows of a batch");
    if (module->load_blas(device, &takes, &e)) {
        printf("no cuBLAS: %s\n", e.text);
    } else {
        module->facts(device, &facts);
        printf("cuBLAS: %s\nfigure: %s\n", facts.blas, facts.blas);
    }
    for (unsigned i = 0; i < sizeof types / sizeof *types; i++)
        for (unsigned k = 0; k < sizeof columns / sizeof *columns; k++)
            bench_product(types[i], columns[k], device_blas_takes(&takes, types[i]));
}
