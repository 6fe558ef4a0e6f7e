/* bench-kernels: multiply() against the machine's read rate and multiply-add peak.
 *
 * For each type and shape of a model's experts the program takes so many matrices that none is in a
 * cache when its turn comes. It prints the weights read a second for one token, with a plain sum
 * over the same memory, and GFLOP/s for 8 and 64 tokens, with the bare multiply-adds of the build's
 * best instruction. Builds take turns, and each sample has a yardstick of the same moment, so that
 * other work on the machine meets both; medians of both and of their ratios are printed. Each
 * thread takes a part of each matrix's rows. On a CPU with BF16 instructions BF16 weights have
 * further rows: the products that prompts use (kernels/bf16.h).
 */
#include "base/clock.h"
#include "base/cpu_name.h"
#include "base/sort_doubles.h"
#include "kernels/bf16.h"
#include "kernels/kernels.h"
#include "quant/quant.h"
#include "yardsticks.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    MAX_TOKENS = 64,
    MAX_SIZE = 14336, /* rows or columns of a shape */
    MAX_BUILDS = 4,
    MAX_THREADS = 64,
    MAX_SAMPLES = 4096,
    DECODE_BYTES =
        4 << 20, /* of one sample: many matrices, so that the common start costs nothing */
    BATCH_SAMPLES = 9,
};

static const struct shape {
    const char *model;
    uint32_t rows, cols;
} shapes[] = {
    {"Qwen3-30B", 768, 2048}, {"Qwen3-30B", 2048, 768},      {"Mixtral", 14336, 4096},
    {"Mixtral", 4096, 14336}, {"DeepSeek-V2-L", 1408, 2048}, {"DeepSeek-V2-L", 2048, 1408},
    {"gpt-oss", 2880, 2880},
};

/* One job of all threads; each does its part. */
struct job {
    const struct kernels *kernels; /* NULL: read; with `peak`, its multiply-adds */
    const struct multiply_adds *peak;
    struct matrix m; /* the first of `count` that follow each other */
    uint32_t count;
    const struct activations *a;
    const struct bf16_build *bf16; /* instead of kernels; its a is `packed` */
    const uint32_t *packed;
};

struct bench {
    uint8_t *weights;
    size_t weight_bytes;
    float *x, *y;
    void *act_memory;
    uint32_t *packed;
    const struct kernels *builds[MAX_BUILDS];
    unsigned n_builds, n_threads, rounds;
    int only_type;
    bool all_shapes, bf16; /* bf16: the CPU has its instructions, and the build is among those */
    FILE *json;
    unsigned n_results;
    struct job job;
    _Atomic unsigned turn, n_done; /* a job's number, and how many threads are done with it */
    pthread_t threads[MAX_THREADS];
};

static volatile uint64_t sink; /* keeps the yardsticks' results alive */

static void do_part(struct bench *b, unsigned thread)
{
    const struct job *j = &b->job;
    uint32_t tiles = tile_row_count(j->m.rows);
    uint32_t first = tiles * thread / b->n_threads, end = tiles * (thread + 1) / b->n_threads;
    size_t row_bytes = tile_row_bytes(j->m.type, j->m.cols), bytes = tiles * row_bytes;

    if (j->peak != NULL)
        sink = (uint64_t)j->peak->run();
    else if (j->kernels == NULL)
        sink = yardstick_read((const uint8_t *)j->m.tiles + first * row_bytes * j->count,
                              (end - first) * row_bytes * j->count);
    else if (j->bf16 != NULL)
        j->bf16->multiply(&j->m, first, end - first, j->packed, j->a->n_tokens, b->y, j->m.rows,
                          false);
    else
        for (uint32_t i = 0; i < j->count; i++) {
            struct matrix m = j->m;
            m.tiles = (const uint8_t *)j->m.tiles + i * bytes;
            j->kernels->multiply(&m, first, end - first, j->a, NULL, j->a->n_tokens, b->y, m.rows,
                                 false);
        }
}

/* A thread spins: a sample is shorter than the system takes to wake it. */
struct helper {
    struct bench *bench;
    unsigned index;
};

static void *helper_main(void *arg)
{
    const struct helper *h = arg;
    struct bench *b = h->bench;

    for (unsigned seen = 0;; seen++) {
        while (atomic_load_explicit(&b->turn, memory_order_acquire) == seen)
            ; /* pairs with run_job's release: the job is there */
        if (b->job.count == 0)
            return NULL;
        do_part(b, h->index);
        atomic_fetch_add_explicit(&b->n_done, 1, memory_order_release);
    }
}

/* Seconds until all threads have finished. */
static double run_job(struct bench *b, const struct job *job)
{
    b->job = *job;
    atomic_store_explicit(&b->n_done, 1, memory_order_relaxed);

    double start = clock_s();
    atomic_fetch_add_explicit(&b->turn, 1, memory_order_release);
    if (job->count == 0)
        return 0;
    do_part(b, 0);
    while (atomic_load_explicit(&b->n_done, memory_order_acquire) != b->n_threads)
        ; /* pairs with the helpers' release */
    return clock_s() - start;
}

/* Random quants with sane scales: a few tile rows quantised and copied to fill the memory. NVFP4's
 * scales are subnormal, as they are where the matrix has no factor. */
static uint32_t fill(struct bench *b, enum tensor_type type, uint32_t rows, uint32_t cols)
{
    enum { OWN_TILES = 4 };
    size_t bytes = tile_matrix_bytes(type, rows, cols), row_bytes = tile_row_bytes(type, cols);
    size_t stride = quant_row_bytes(type, cols);
    uint32_t count = (uint32_t)(b->weight_bytes / bytes);
    uint8_t *file = malloc(TILE_ROWS * stride);
    float *values = malloc(cols * sizeof *values);

    for (uint32_t t = 0; t < OWN_TILES; t++) {
        for (uint32_t r = 0; r < TILE_ROWS; r++) {
            for (uint32_t c = 0; c < cols; c++)
                values[c] = (float)(rand() % 2001 - 1000) * 3e-5f;
            quant_quantize(type, values, file + r * stride, cols);
        }
        tile_pack(type, cols, TILE_ROWS, file, stride, b->weights + t * row_bytes);
    }
    for (size_t t = OWN_TILES; t < (size_t)count * tile_row_count(rows); t++)
        memcpy(b->weights + t * row_bytes, b->weights + t % OWN_TILES * row_bytes, row_bytes);
    free(values);
    free(file);
    return count;
}

static double median(double *values, uint32_t n)
{
    sort_doubles(values, n);
    return values[n / 2];
}

static void bind(const struct bench *b, const struct kernels *k, uint32_t cols, uint32_t n_tokens,
                 struct activations *a)
{
    act_bind(a, b->act_memory, cols, n_tokens, b->x, cols);
    k->quantize(a, 0, n_tokens);
}

/* Medians of a rate, of its yardstick's rate (0: no yardstick), and of their ratios. */
struct result {
    double rate, yardstick, ratio;
    const char *instruction; /* the yardstick's, if it is an instruction */
};

/* Samples, round after round: of each build and of its yardstick. */
struct samples {
    double rate[MAX_BUILDS][MAX_SAMPLES], yardstick[MAX_BUILDS][MAX_SAMPLES],
        ratio[MAX_BUILDS][MAX_SAMPLES];
    uint32_t n;
};

static void add_sample(struct samples *s, unsigned k, double rate, double yardstick)
{
    s->rate[k][s->n] = rate;
    s->yardstick[k][s->n] = yardstick;
    s->ratio[k][s->n] = yardstick > 0 ? rate / yardstick : 0;
}

static struct result medians(struct samples *s, unsigned k)
{
    return (struct result){median(s->rate[k], s->n), median(s->yardstick[k], s->n),
                           median(s->ratio[k], s->n), NULL};
}

/* Bytes a second of one token's products with some matrices; yardstick: reading the next ones. */
static void bench_decode(struct bench *b, const struct matrix *first, uint32_t count,
                         struct samples *s, struct result *out)
{
    size_t bytes = tile_matrix_bytes(first->type, first->rows, first->cols);
    uint32_t group = bytes < DECODE_BYTES ? (uint32_t)(DECODE_BYTES / bytes) : 1, next = 0;
    uint32_t rounds = b->rounds * (count / group) / (2 * b->n_builds);
    struct activations a;
    struct job job = {.m = *first, .count = group, .a = &a};

    bind(b, b->builds[0], first->cols, 1, &a);
    for (s->n = 0; s->n < rounds && s->n < MAX_SAMPLES; s->n++)
        for (unsigned k = 0; k < b->n_builds; k++) {
            double seconds[2];
            for (int read = 0; read < 2; read++, next += group) {
                next = next + group > count ? 0 : next;
                job.m.tiles = b->weights + next * bytes;
                job.kernels = read ? NULL : b->builds[k];
                seconds[read] = run_job(b, &job);
            }
            add_sample(s, k, (double)(bytes * group) / seconds[0],
                       (double)(bytes * group) / seconds[1]);
        }
    for (unsigned k = 0; k < b->n_builds; k++)
        out[k] = medians(s, k);
}

/* Multiply-adds a second of one product; yardstick: the bare instruction (NULL: none). */
static void sample_batch(struct bench *b, const struct job *job, const struct multiply_adds *peak,
                         unsigned k, struct samples *s)
{
    double flop = 2.0 * job->m.rows * job->m.cols * job->a->n_tokens;
    double rate = flop / run_job(b, job), most = 0;

    if (peak != NULL)
        most = peak->flop * b->n_threads /
               run_job(b, &(struct job){.peak = peak, .m = job->m, .count = 1});
    add_sample(s, k, rate, most);
}

static const struct multiply_adds *peak_of(const struct kernels *build, enum tensor_type type)
{
    return yardstick_multiply_adds(build->name, tensor_type_info(type)->block_values > 1);
}

static void bench_batch(struct bench *b, const struct matrix *m, uint32_t n_tokens,
                        struct samples *s, struct result *out)
{
    struct activations a;
    struct job job = {.m = *m, .count = 1, .a = &a};

    bind(b, b->builds[0], m->cols, n_tokens, &a);
    for (s->n = 0; s->n < BATCH_SAMPLES; s->n++)
        for (unsigned k = 0; k < b->n_builds; k++) {
            job.kernels = b->builds[k];
            sample_batch(b, &job, peak_of(b->builds[k], m->type), k, s);
        }
    for (unsigned k = 0; k < b->n_builds; k++) {
        const struct multiply_adds *peak = peak_of(b->builds[k], m->type);
        out[k] = medians(s, k);
        out[k].instruction = peak != NULL ? peak->instruction : NULL;
    }
}

/* The products of kernels/bf16.h; inputs are packed before, as quantised ones are. */
static struct result bench_bf16(struct bench *b, const struct bf16_build *build,
                                const struct matrix *m, uint32_t n_tokens, struct samples *s)
{
    const struct multiply_adds *peak = yardstick_multiply_adds_bf16(build->instruction);
    struct activations a;
    struct job job = {
        .kernels = b->builds[0], .m = *m, .count = 1, .a = &a, .bf16 = build, .packed = b->packed};

    act_bind(&a, b->act_memory, m->cols, n_tokens, b->x, m->cols);
    build->pack(&a, NULL, n_tokens, b->packed);
    for (s->n = 0; s->n < BATCH_SAMPLES; s->n++)
        sample_batch(b, &job, peak, 0, s);

    struct result r = medians(s, 0);
    r.instruction = peak->instruction;
    return r;
}

static void print_rate(const struct result *r)
{
    if (r->rate == 0)
        printf("  %23s", "");
    else if (r->yardstick == 0)
        printf("  %7.1f /      -       ", r->rate * 1e-9);
    else
        printf("  %7.1f / %6.1f %4.0f %%", r->rate * 1e-9, r->yardstick * 1e-9, 100 * r->ratio);
}

static void begin_json_result(struct bench *b, enum tensor_type type, const struct shape *shape)
{
    fprintf(b->json, "%s\n  {\"type\": \"%s\", \"model\": \"%s\", \"rows\": %u, \"cols\": %u, ",
            b->n_results++ ? "," : "", tensor_type_info(type)->name, shape->model, shape->rows,
            shape->cols);
}

/* r: one token, 8 and 64; rate 0: not measured. */
static void print_result(struct bench *b, enum tensor_type type, const struct shape *shape,
                         const char *build, const struct result r[3])
{
    printf("%-6s %-13s %5u x %5u  %-9s", tensor_type_info(type)->name, shape->model, shape->rows,
           shape->cols, build);
    for (int i = 0; i < 3; i++)
        print_rate(&r[i]);
    putchar('\n');
    fflush(stdout);
    if (b->json == NULL)
        return;
    begin_json_result(b, type, shape);
    fprintf(b->json, "\"kernels\": \"%s\"", build);
    if (r[0].rate > 0)
        fprintf(
            b->json,
            ", \"decode_bytes_per_s\": %.4g, \"read_bytes_per_s\": %.4g, \"decode_of_read\": %.4f",
            r[0].rate, r[0].yardstick, r[0].ratio);
    for (int i = 1; i < 3; i++) {
        const char *tokens = i == 1 ? "8" : "64";
        fprintf(b->json, ", \"flop_per_s_%s\": %.4g", tokens, r[i].rate);
        if (r[i].yardstick > 0)
            fprintf(b->json, ", \"peak_flop_per_s_%s\": %.4g, \"of_peak_%s\": %.4f", tokens,
                    r[i].yardstick, tokens, r[i].ratio);
    }
    if (r[1].instruction != NULL)
        fprintf(b->json, ", \"peak\": \"%s\"", r[1].instruction);
    fputc('}', b->json);
}

static void print_skipped(struct bench *b, enum tensor_type type, const struct shape *shape,
                          const char *reason)
{
    printf("%-6s %-13s %5u x %5u  skipped: %s\n", tensor_type_info(type)->name, shape->model,
           shape->rows, shape->cols, reason);
    if (b->json == NULL)
        return;
    begin_json_result(b, type, shape);
    fprintf(b->json, "\"skipped\": \"%s\"}", reason);
}

static void bench_shape(struct bench *b, enum tensor_type type, const struct shape *shape)
{
    static struct samples samples;
    const struct tensor_type_info *info = tensor_type_info(type);
    struct matrix m = {type, shape->rows, shape->cols, b->weights};
    size_t bytes = tile_matrix_bytes(type, shape->rows, shape->cols);
    struct result results[3][MAX_BUILDS];
    char reason[96];

    if (shape->cols % info->block_values != 0) {
        snprintf(reason, sizeof reason, "rows of %u values have no whole blocks of %u", shape->cols,
                 info->block_values);
        print_skipped(b, type, shape, reason);
        return;
    }
    if (8 * bytes > b->weight_bytes) {
        snprintf(reason, sizeof reason,
                 "eight of it, to leave the caches between two turns, take --mib %zu",
                 (8 * bytes + (1 << 20) - 1) >> 20);
        print_skipped(b, type, shape, reason);
        return;
    }
    bench_decode(b, &m, fill(b, type, shape->rows, shape->cols), &samples, results[0]);
    bench_batch(b, &m, 8, &samples, results[1]);
    bench_batch(b, &m, 64, &samples, results[2]);
    for (unsigned k = 0; k < b->n_builds; k++)
        print_result(b, type, shape, b->builds[k]->name,
                     (struct result[3]){results[0][k], results[1][k], results[2][k]});
    if (type != TENSOR_BF16 || !b->bf16)
        return;
    for (const struct bf16_build *const *build = bf16_available(); *build; build++) {
        struct result bf16[3] = {
            {0}, bench_bf16(b, *build, &m, 8, &samples), bench_bf16(b, *build, &m, 64, &samples)};
        print_result(b, type, shape, (*build)->instruction, bf16);
    }
}

/* "avx512,avx2": the builds of that name, then the usual choice again. */
static bool select_builds(struct bench *b, const char *names)
{
    char name[16];

    b->n_builds = 0;
    b->bf16 = false;
    for (const char *p = names; p != NULL; p = strchr(p, ',') ? strchr(p, ',') + 1 : NULL) {
        if (b->n_builds == MAX_BUILDS || sscanf(p, "%15[^,]", name) != 1 || !kernels_select(name))
            return false;
        b->builds[b->n_builds++] = kernels_get();
        b->bf16 |= bf16_get() != NULL;
    }
    return kernels_select("auto");
}

static bool parse_option(struct bench *b, const char *name, const char *value)
{
    if (strcmp(name, "--kernels") == 0)
        return select_builds(b, value);
    if (strcmp(name, "--type") == 0)
        return (b->only_type = tensor_type_from_name(value)) >= 0;
    if (strcmp(name, "--shapes") == 0)
        return (b->all_shapes = strcmp(value, "all") == 0) || strcmp(value, "qwen3") == 0;
    if (strcmp(name, "--mib") == 0)
        return (b->weight_bytes = (size_t)atol(value) << 20) >= (size_t)64 << 20;
    if (strcmp(name, "--threads") == 0)
        return (b->n_threads = (unsigned)atoi(value)) >= 1 && b->n_threads <= MAX_THREADS;
    if (strcmp(name, "--rounds") == 0)
        return (b->rounds = (unsigned)atoi(value)) >= 1 && b->rounds <= 100;
    if (strcmp(name, "--json") == 0)
        return (b->json = fopen(value, "w")) != NULL;
    return false;
}

static bool allocate(struct bench *b)
{
    b->weights = aligned_alloc(TILE_ALIGN, b->weight_bytes);
    b->x = malloc(MAX_TOKENS * MAX_SIZE * sizeof *b->x);
    b->y = malloc(MAX_TOKENS * MAX_SIZE * sizeof *b->y);
    b->act_memory = aligned_alloc(TILE_ALIGN, act_bytes(MAX_SIZE, MAX_TOKENS));
    b->packed = malloc(MAX_TOKENS * (2 * MAX_SIZE + 2));
    if (b->weights == NULL || b->x == NULL || b->y == NULL || b->act_memory == NULL ||
        b->packed == NULL)
        return false;
    memset(b->weights, 0, b->weight_bytes);
    for (int i = 0; i < MAX_TOKENS * MAX_SIZE; i++)
        b->x[i] = (float)(rand() % 2001 - 1000) * 1e-3f;
    return true;
}

static void bench_all(struct bench *b)
{
    static const enum tensor_type types[] = {
        TENSOR_F32,     TENSOR_F16,   TENSOR_BF16,   TENSOR_Q8_0,    TENSOR_Q4_0,   TENSOR_Q4_1,
        TENSOR_Q5_0,    TENSOR_Q5_1,  TENSOR_IQ4_NL, TENSOR_MXFP4,   TENSOR_NVFP4,  TENSOR_Q2_K,
        TENSOR_Q3_K,    TENSOR_Q4_K,  TENSOR_Q5_K,   TENSOR_Q6_K,    TENSOR_IQ4_XS, TENSOR_IQ3_S,
        TENSOR_IQ3_XXS, TENSOR_IQ2_S, TENSOR_IQ2_XS, TENSOR_IQ2_XXS, TENSOR_IQ1_S,  TENSOR_IQ1_M};
    size_t n_shapes = b->all_shapes ? sizeof shapes / sizeof shapes[0] : 2;

    char cpu[128];

    cpu_name(cpu, sizeof cpu);
    cpu[strcspn(cpu, "\"\\")] = 0; /* no character that JSON escapes */
    printf("%s, %u thread%s, %zu MiB, moed " MOED_VERSION "\n"
           "%-45s  %-25s%-25s%s\n"
           "%-6s %-13s %5s x %5s  %-9s  %-25s%-25s%s\n",
           cpu, b->n_threads, b->n_threads == 1 ? "" : "s", b->weight_bytes >> 20, "",
           " one token, GB/s", "8 tokens, GFLOP/s", "64 tokens, GFLOP/s", "type", "model", "rows",
           "cols", "kernels", "weights /   read", "product /   peak", "product /   peak");
    if (b->json != NULL)
        fprintf(b->json,
                "{\"version\": \"" MOED_VERSION
                "\", \"cpu\": \"%s\", \"threads\": %u, \"results\": [",
                cpu, b->n_threads);
    for (size_t t = 0; t < sizeof types / sizeof types[0]; t++)
        for (size_t s = 0; s < n_shapes; s++)
            if (b->only_type < 0 || (int)types[t] == b->only_type)
                bench_shape(b, types[t], &shapes[s]);
    if (b->json != NULL)
        fprintf(b->json, "\n]}\n");
}

int main(int argc, char **argv)
{
    static struct bench b = {
        .weight_bytes = (size_t)1024 << 20, .n_threads = 1, .rounds = 3, .only_type = -1};
    static struct helper helpers[MAX_THREADS];

    select_builds(&b, "auto");
    for (int i = 1; i < argc; i += 2)
        if (!parse_option(&b, argv[i], i + 1 < argc ? argv[i + 1] : "")) {
            fprintf(
                stderr,
                "usage: bench-kernels [--kernels NAME[,NAME]] [--type NAME] [--shapes qwen3|all] "
                "[--threads N] [--mib N (64 or more)] [--rounds N] [--json FILE]\n");
            return 1;
        }
    if (!allocate(&b)) {
        fprintf(stderr, "bench-kernels: no memory for --mib %zu; give less\n",
                b.weight_bytes >> 20);
        return 1;
    }
    for (unsigned i = 1; i < b.n_threads; i++) {
        helpers[i] = (struct helper){&b, i};
        if (pthread_create(&b.threads[i], NULL, helper_main, &helpers[i]) != 0) {
            fprintf(stderr, "bench-kernels: cannot start thread %u\n", i + 1);
            return 1;
        }
    }
    bench_all(&b);
    run_job(&b, &(struct job){.count = 0}); /* ends the helpers */
    for (unsigned i = 1; i < b.n_threads; i++)
        pthread_join(b.threads[i], NULL);
    if (b.json != NULL && fclose(b.json) != 0) {
        perror("bench-kernels: --json");
        return 1;
    }
    free(b.packed);
    free(b.act_memory);
    free(b.y);
    free(b.x);
    free(b.weights);
    return 0;
}
