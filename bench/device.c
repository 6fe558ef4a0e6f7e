/* bench-device: the speed of a device module. Each figure stands with its bound, measured in the
 * same run:
 *
 *   copies    from pinned host memory, by size: queued, and each waited for; the bound is one large
 *             copy
 *   memory    a copy within the device: bytes read and written a second
 *   experts   1 token and 8 tokens through 8 experts of a Qwen3-30B layer, by tensor type: bytes of
 *             weights a second; the bound is memory
 *   products  a matrix of a layer's attention times the rows of a batch, by tensor type: the
 *             module's own kernels, which keep to the definition, and cuBLAS, if it is there; in
 *             arithmetic operations a second, and as a ratio
 *   sharing   the time of exporting and importing the arena, and of pinning host memory
 *
 * On a simulated device it runs everything once and prints no speed. tests/gpu/run reads lines
 * "figure: ...". Exit codes: 77 no module or no device, 1 another error. */
#include "base/clock.h"
#include "device/module.h"
#include "gguf/tensor_type.h"
#include "kernels/kernels.h"

#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { N_USED = 8, D_MODEL = 2048, WIDTH = 768, MOST_RUNS = 15, MOST_TOKENS = 8 };

static const struct device_module *module;
static struct device *device;
static struct device_stream *stream;
static double seconds = 0.2;
static bool simulated, facts_only;

static void fail(const struct error *e)
{
    fprintf(stderr, "bench-device: %s\n", e->text);
    exit(1);
}

static void finish(void)
{
    struct error e;
    if (module->finish(stream, &e))
        fail(&e);
}

static void *allocate(size_t bytes)
{
    struct error e;
    void *memory;
    if (module->allocate(device, bytes, &memory, &e))
        fail(&e);
    return memory;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Seconds of one call of work, the median over runs of as many calls as fill a share of `seconds`;
 * the device is done with all of a run at its end. */
static double measure(void (*work)(void *arg, unsigned turn), void *arg)
{
    double runs[MOST_RUNS];
    unsigned calls = 1, turn = 0;
    work(arg, turn++);
    finish();
    if (simulated)
        return 1;
    for (;;) { /* how many calls a run has */
        uint64_t since = clock_ns();
        for (unsigned i = 0; i < calls; i++)
            work(arg, turn++);
        finish();
        if ((double)(clock_ns() - since) * 1e-9 > seconds / MOST_RUNS || calls > 1u << 20)
            break;
        calls *= 2;
    }
    for (unsigned r = 0; r < MOST_RUNS; r++) {
        uint64_t since = clock_ns();
        for (unsigned i = 0; i < calls; i++)
            work(arg, turn++);
        finish();
        runs[r] = (double)(clock_ns() - since) * 1e-9 / calls;
    }
    qsort(runs, MOST_RUNS, sizeof *runs, by_size);
    return runs[MOST_RUNS / 2];
}

/* Prints a rate of `bytes` in `s` seconds, with its bound in bytes a second (0: none). */
static void print_rate(const char *what, double bytes, double s, double bound)
{
    if (simulated)
        printf("%-44s ran\n", what);
    else if (bound > 0)
        printf("%-44s %8.1f GB/s  %5.1f %%\n", what, bytes / s * 1e-9, 100 * bytes / s / bound);
    else
        printf("%-44s %8.1f GB/s\n", what, bytes / s * 1e-9);
}

/* ---- copies ---- */

struct copying {
    uint8_t *to, *from;
    size_t bytes, all;
    bool wait;
};

static void copy_one(void *arg, unsigned turn)
{
    const struct copying *c = arg;
    size_t at = (size_t)turn * c->bytes % (c->all - c->bytes + 1) / 256 * 256;
    module->upload(stream, c->to + at, c->from + at, c->bytes);
    if (c->wait)
        finish();
}

static void copy_within(void *arg, unsigned turn)
{
    const struct copying *c = arg;
    (void)turn;
    module->copy(stream, c->to, c->to + c->all / 2, c->all / 2);
}

static double bench_copies(void)
{
    struct error e;
    struct copying c = {.all = simulated ? 4u << 20 : 512u << 20};
    void *from;
    if (module->allocate_pinned(device, c.all, &from, &e))
        fail(&e);
    memset(from, 1, c.all);
    c.from = from;
    c.to = allocate(c.all);
    c.bytes = c.all;
    double link = (double)c.bytes / measure(copy_one, &c);
    print_rate("one large copy from pinned memory", link, 1, 0);
    static const unsigned kib[] = {64, 256, 512, 1024, 2048, 4096, 16384};
    for (unsigned i = 0; i < sizeof kib / sizeof *kib; i++)
        for (unsigned wait = 0; wait < 2; wait++) {
            char what[64];
            c.bytes = (size_t)kib[i] << 10;
            if (c.bytes > c.all)
                continue;
            c.wait = wait;
            snprintf(what, sizeof what, "copies of %u KiB, %s", kib[i],
                     wait ? "each waited for" : "queued");
            double s = measure(copy_one, &c);
            print_rate(what, (double)c.bytes, s, link);
            if (kib[i] == 1024 && !simulated)
                printf("figure: copies of 1 MiB %s %.0f %% of the link\n",
                       wait ? "waited for" : "queued", 100 * (double)c.bytes / s / link);
        }
    double memory = (double)c.all / measure(copy_within, &c); /* half is read, half written */
    print_rate("memory: a copy within the device", memory, 1, 0);
    if (!simulated)
        printf("figure: link %.1f GB/s, memory %.0f GB/s\n", link * 1e-9, memory * 1e-9);
    module->release(device, c.to);
    module->release_pinned(device, from);
    return memory;
}

/* ---- experts ---- */

struct expert_bench {
    struct device_segments layout;
    size_t segment_bytes;
    uint32_t n_tokens, n_sets;
    uint8_t *weights; /* [n_sets][N_USED] segments: more than caches hold */
    struct device_activations input;
    float *x, *rows;
    void *scratch;
};

static void compute_layer(void *arg, unsigned turn)
{
    const struct expert_bench *b = arg;
    static const uint32_t tokens[MOST_TOKENS] = {0, 1, 2, 3, 4, 5, 6, 7};
    struct device_expert_task tasks[N_USED];
    const void *places[N_USED];
    uint8_t *set = b->weights + (size_t)(turn % b->n_sets) * N_USED * b->segment_bytes;
    for (uint32_t i = 0; i < N_USED; i++) {
        places[i] = set + i * b->segment_bytes;
        tasks[i] = (struct device_expert_task){.n_segments = 1,
                                               .n_tokens = b->n_tokens,
                                               .places = &places[i],
                                               .tokens = tokens,
                                               .first_row = i * b->n_tokens};
    }
    module->ops.quantize(stream, &b->input);
    module->ops.experts(stream, &b->layout, &b->input, tasks, N_USED, b->rows, b->scratch);
}

static size_t aligned(size_t n)
{
    return (n + 255) / 256 * 256;
}

static void bench_type(enum tensor_type type, uint32_t n_tokens, double memory)
{
    size_t gate = aligned(tile_matrix_bytes(type, WIDTH, D_MODEL)),
           down = aligned(tile_matrix_bytes(type, D_MODEL, WIDTH));
    struct expert_bench b = {.layout = {.d_model = D_MODEL,
                                        .width = WIDTH,
                                        .gate_type = type,
                                        .up_type = type,
                                        .down_type = type,
                                        .up_offset = gate,
                                        .down_offset = 2 * gate,
                                        .activation = ACTIVATION_SILU},
                             .segment_bytes = 2 * gate + down,
                             .n_tokens = n_tokens};
    b.n_sets = simulated ? 1 : (uint32_t)((1u << 30) / (N_USED * b.segment_bytes)) + 1;
    size_t bytes = (size_t)b.n_sets * N_USED * b.segment_bytes;
    bool quantize = tensor_type_info(type)->block_values > 1;
    b.weights = allocate(bytes);
    b.x = allocate((size_t)n_tokens * D_MODEL * sizeof(float));
    b.rows = allocate((size_t)n_tokens * N_USED * D_MODEL * sizeof(float));
    b.scratch = allocate(module->ops.experts_scratch_bytes(&b.layout, N_USED, N_USED * n_tokens));
    void *input = allocate(module->ops.activations_bytes(D_MODEL, n_tokens));
    module->fill(stream, b.weights, 0x11, bytes);
    module->fill(stream, b.x, 0x3f, (size_t)n_tokens * D_MODEL * sizeof(float));
    module->ops.activations_bind(&b.input, input, D_MODEL, n_tokens, b.x, D_MODEL, quantize);
    double s = measure(compute_layer, &b), weights = (double)N_USED * (double)b.segment_bytes;
    char what[64];
    snprintf(what, sizeof what, "8 experts of %s, %u token%s", tensor_type_info(type)->name,
             n_tokens, n_tokens == 1 ? "" : "s");
    print_rate(what, weights, s, memory);
    if (!simulated && n_tokens == 1)
        printf("figure: %s %.0f %% of memory\n", tensor_type_info(type)->name,
               100 * weights / s / memory);
    void *all[] = {b.weights, b.x, b.rows, b.scratch, input};
    for (unsigned i = 0; i < sizeof all / sizeof *all; i++)
        module->release(device, all[i]);
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
    module->ops.multiply_many(stream, &b->m, b->x, b->m.cols, b->input.n_tokens, b->y, b->m.rows,
                              false, b->scratch);
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
        printf("%-44s ran\n", what);
    else if (!blas)
        printf("%-44s %8.2f TFLOP/s\n", what, operations / own * 1e-12);
    else
        printf("%-44s %8.2f TFLOP/s, cuBLAS %8.2f: %.2f times\n", what, operations / own * 1e-12,
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

static void bench_products(void)
{
    static const enum tensor_type types[] = {TENSOR_Q4_K, TENSOR_Q8_0, TENSOR_F16, TENSOR_BF16,
                                             TENSOR_F32};
    static const uint32_t columns[] = {32, 128, 256};
    struct device_blas takes = {false, false, false};
    struct error e;
    if (module->load_blas(device, &takes, &e))
        printf("no products through cuBLAS: %s\n", e.text);
    for (unsigned i = 0; i < sizeof types / sizeof *types; i++)
        for (unsigned k = 0; k < sizeof columns / sizeof *columns; k++)
            bench_product(types[i], columns[k], device_blas_takes(&takes, types[i]));
}

/* ---- sharing ---- */

static struct device_facts read_facts(void)
{
    struct device_facts facts;
    module->facts(device, &facts);
    simulated = strstr(facts.name, "cusim") != NULL;
    return facts;
}

/* Runs in a process of its own, as a worker does. */
static int import_and_close(int fd, unsigned ordinal)
{
    struct device_handle handle;
    struct error e;
    void *memory;
    if (read(fd, &handle, sizeof handle) != (ssize_t)sizeof handle)
        return 0; /* the parent had nothing to share, and reports why */
    if (module->open(ordinal, &device, &e))
        fail(&e);
    read_facts();
    uint64_t since = clock_ns();
    if (module->import_memory(device, &handle, &memory, &e))
        fail(&e);
    double s = (double)(clock_ns() - since) * 1e-9;
    if (!simulated)
        printf("%-44s %8.2f ms\nfigure: importing %.2f ms\n",
               "importing the arena in another process", s * 1e3, s * 1e3);
    fflush(stdout);
    module->close_imported(device, memory);
    return 0;
}

static void bench_sharing(int fd)
{
    struct error e;
    struct device_facts facts = read_facts();
    size_t bytes = simulated ? 1u << 20 : facts.free_bytes / 2 >> 21 << 21;
    void *arena = allocate(bytes);
    struct device_handle handle;
    uint64_t since = clock_ns();
    if (module->export_memory(device, arena, &handle, &e))
        fail(&e);
    if (!simulated)
        printf("%-44s %8.2f ms (%.1f GB)\n", "exporting the arena",
               (double)(clock_ns() - since) * 1e-6, (double)bytes * 1e-9);
    fflush(stdout);
    if (write(fd, &handle, sizeof handle) != (ssize_t)sizeof handle)
        exit(1);
    int status;
    if (wait(&status) < 0 || status != 0)
        exit(1);
    module->release(device, arena);
}

static void bench_pinning(void)
{
    struct error e;
    size_t bytes = simulated ? 1u << 20 : 4ull << 30;
    void *memory = aligned_alloc(4096, bytes);
    if (!memory)
        return;
    memset(memory, 1, bytes);
    uint64_t since = clock_ns();
    if (module->pin(device, memory, bytes, &e))
        fail(&e);
    double s = (double)(clock_ns() - since) * 1e-9;
    if (!simulated)
        printf("%-44s %8.3f s a GB\nfigure: pinning %.3f s a GB\n", "pinning host memory",
               s / ((double)bytes * 1e-9), s / ((double)bytes * 1e-9));
    module->unpin(device, memory);
    free(memory);
}

static unsigned read_options(int argc, char **argv)
{
    unsigned ordinal = 0;
    static const struct option options[] = {{"device", required_argument, NULL, 'd'},
                                            {"seconds", required_argument, NULL, 's'},
                                            {"facts", no_argument, NULL, 'f'},
                                            {0}};
    for (int o; (o = getopt_long(argc, argv, "", options, NULL)) != -1;)
        if (o == 'd' && strncmp(optarg, "cuda", 4) == 0)
            ordinal = optarg[4] == ':' ? (unsigned)atoi(optarg + 5) : 0;
        else if (o == 's' && atof(optarg) > 0)
            seconds = atof(optarg);
        else if (o == 'f')
            facts_only = true;
        else {
            fprintf(stderr, "usage: bench-device [--device cuda[:N]] [--seconds S] [--facts]\n"
                            "  --device   measure this device (cuda:0)\n"
                            "  --seconds  measure each figure for about S seconds\n"
                            "  --facts    print only the device's name and memory\n");
            exit(2);
        }
    return ordinal;
}

int main(int argc, char **argv)
{
    struct error e;
    unsigned ordinal = read_options(argc, argv);
    int ends[2];
    if (device_module_load("cuda", &module, &e)) {
        fprintf(stderr, "bench-device: %s\n", e.text);
        return 77;
    }
    /* before this process opens the device: a context does not survive a fork */
    if (pipe(ends))
        return 1;
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        close(ends[1]);
        return import_and_close(ends[0], ordinal);
    }
    close(ends[0]);
    if (module->open(ordinal, &device, &e)) {
        fprintf(stderr, "bench-device: %s\n", e.text);
        return 77;
    }
    if (module->stream_new(device, &stream, &e))
        fail(&e);
    struct device_facts facts = read_facts();
    printf("%s, %s, %.1f GB of memory, %u multiprocessors\n", facts.name, facts.version,
           (double)facts.memory_bytes * 1e-9, facts.multiprocessors);
    if (facts_only)
        return 0;
    double memory = bench_copies();
    static const enum tensor_type types[] = {
        TENSOR_Q4_K, TENSOR_Q8_0,  TENSOR_BF16,   TENSOR_Q4_0,  TENSOR_Q6_K,
        TENSOR_Q5_K, TENSOR_MXFP4, TENSOR_IQ4_XS, TENSOR_IQ3_S, TENSOR_IQ2_XS};
    for (unsigned i = 0; i < (simulated ? 1 : sizeof types / sizeof *types); i++) {
        bench_type(types[i], 1, memory);
        bench_type(types[i], MOST_TOKENS, memory);
    }
    bench_products();
    bench_pinning();
    bench_sharing(ends[1]);
    module->stream_free(stream);
    module->close(device);
    return 0;
}
