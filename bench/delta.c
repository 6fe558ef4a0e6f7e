/* bench-delta: gated DeltaNet against the machine's limits.
 *
 * A token: each head of each layer computes one position. The states of all layers are larger than
 * the machine's caches, as a model's are. The limit is a plain read of the same memory. A prompt:
 * each thread computes PROMPT positions of a head. The limit is bare multiply-adds.
 *
 * Both are compared with the recurrence as the paper writes it, which reads and writes a state for
 * each position, compiled for the best instruction set of the CPU, whatever --kernels says. A round
 * measures all of them in turns, a token at all positions of a chunk. All figures are medians.
 */
#include "base/clock.h"
#include "base/sort_doubles.h"
#include "exec/pool.h"
#include "kernels/kernels.h"
#include "yardsticks.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DIM = 128, PLAIN_FLOATS = DIM * DIM, PROMPT = 256, MAX_ROUNDS = 1000, PEAK_CALLS = 40 };

struct bench {
    unsigned threads, layers, heads, rounds;
    size_t head_floats;
    float *states;          /* [layers * heads][head_floats] */
    float *q, *k, *v, *out; /* [heads][PROMPT][DIM] */
    float decay[PROMPT], beta[PROMPT];
    uint32_t position;
    const struct multiply_adds *peak; /* NULL: this build has none */
    struct pool *pool;
};

/* ---- What is measured ---- */

static void compute(const struct bench *b, uint32_t index, uint32_t position, uint32_t n)
{
    size_t at = (size_t)(index % b->heads) * PROMPT * DIM;
    struct delta_rows rows = {.q = b->q + at,
                              .k = b->k + at,
                              .v = b->v + at,
                              .stride = DIM,
                              .decay = b->decay,
                              .beta = b->beta,
                              .rate_stride = 1,
                              .out = b->out + at,
                              .out_stride = DIM};
    kernels_get()->delta(b->states + index * b->head_floats, DIM, DIM, position, &rows, n);
}

static void token(void *arg, unsigned thread, uint32_t head)
{
    struct bench *b = arg;
    (void)thread;
    compute(b, head, b->position, 1);
}

static void prompt(void *arg, unsigned thread, uint32_t head)
{
    (void)thread;
    compute(arg, head, 0, PROMPT);
}

/* ---- What it is compared with ---- */

#if defined(__x86_64__)
#define CLONES __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define CLONES
#endif

/* One position by the recurrence, 64 columns at a time. */
CLONES static void step(float *restrict state, const float *restrict q, const float *restrict k,
                        const float *restrict v, float decay, float beta, float *restrict out)
{
    enum { COLUMNS = 64 };
    for (int j = 0; j < DIM; j += COLUMNS) {
        float u[COLUMNS] = {0}, o[COLUMNS] = {0};
        for (int i = 0; i < DIM; i++)
            for (int c = 0; c < COLUMNS; c++)
                u[c] += decay * state[i * DIM + j + c] * k[i];
        for (int c = 0; c < COLUMNS; c++)
            u[c] = beta * (v[j + c] - u[c]);
        for (int i = 0; i < DIM; i++)
            for (int c = 0; c < COLUMNS; c++) {
                float s = decay * state[i * DIM + j + c] + k[i] * u[c];
                state[i * DIM + j + c] = s;
                o[c] += s * q[i];
            }
        memcpy(out + j, o, sizeof o);
    }
}

static void step_token(void *arg, unsigned thread, uint32_t head)
{
    struct bench *b = arg;
    size_t at = (size_t)(head % b->heads) * PROMPT * DIM;
    (void)thread;
    step(b->states + head * b->head_floats, b->q + at, b->k + at, b->v + at, 0.9f, 0.5f,
         b->out + at);
}

static void step_prompt(void *arg, unsigned thread, uint32_t head)
{
    struct bench *b = arg;
    (void)thread;
    for (size_t t = 0, at = (size_t)head * PROMPT * DIM; t < PROMPT; t++, at += DIM)
        step(b->states + head * b->head_floats, b->q + at, b->k + at, b->v + at, b->decay[t],
             b->beta[t], b->out + at);
}

static _Atomic uint64_t sink;

static void read_states(void *arg, unsigned thread, uint32_t head)
{
    const struct bench *b = arg;
    (void)thread;
    sink += yardstick_read((const uint8_t *)(b->states + head * b->head_floats),
                           PLAIN_FLOATS * sizeof(float));
}

static void multiply_add(void *arg, unsigned thread, uint32_t call)
{
    const struct bench *b = arg;
    (void)thread, (void)call;
    sink += (uint64_t)b->peak->run();
}

/* ---- Rounds ---- */

static double seconds(struct bench *b, pool_work *work, uint32_t n)
{
    uint64_t started = clock_ns();
    pool_run(b->pool, work, b, n);
    return (double)(clock_ns() - started) * 1e-9;
}

/* States of ordinary values. */
static void reset(struct bench *b)
{
    size_t n = (size_t)b->layers * b->heads * b->head_floats;
    for (size_t i = 0; i < n; i++)
        b->states[i] = (float)((int)(i * 2654435761u >> 22 & 1023) - 512) * 1e-4f;
}

/* Of each position of a chunk and round; of each round. */
struct samples {
    double token_s[DELTA_CHUNK][MAX_ROUNDS], of_read[DELTA_CHUNK][MAX_ROUNDS];
    double step_token_s[DELTA_CHUNK][MAX_ROUNDS], read_s[DELTA_CHUNK][MAX_ROUNDS];
    double prompt_s[MAX_ROUNDS], step_prompt_s[MAX_ROUNDS], peak_s[MAX_ROUNDS], of_peak[MAX_ROUNDS];
};

/* What the definition needs for a head's prompt. */
static double prompt_flop(void)
{
    double chunks = PROMPT / DELTA_CHUNK, chunk = DELTA_CHUNK;
    return 2 * chunks * (3 * chunk * DIM * DIM + chunk * chunk * 2 * DIM);
}

static void run_tokens(struct bench *b, struct samples *s, unsigned round)
{
    uint32_t n = b->layers * b->heads;
    for (b->position = 0; b->position < DELTA_CHUNK; b->position++) {
        uint32_t at = b->position;
        s->read_s[at][round] = seconds(b, read_states, n);
        s->token_s[at][round] = seconds(b, token, n);
        s->step_token_s[at][round] = seconds(b, step_token, n);
        s->of_read[at][round] = s->read_s[at][round] / s->token_s[at][round];
    }
}

static void run_prompts(struct bench *b, struct samples *s, unsigned round)
{
    s->prompt_s[round] = seconds(b, prompt, b->threads);
    s->step_prompt_s[round] = seconds(b, step_prompt, b->threads);
    if (!b->peak)
        return;
    s->peak_s[round] = seconds(b, multiply_add, PEAK_CALLS * b->threads);
    s->of_peak[round] =
        prompt_flop() / s->prompt_s[round] / (b->peak->flop * PEAK_CALLS / s->peak_s[round]);
}

static double median(double *values, unsigned n)
{
    sort_doubles(values, n);
    return values[n / 2];
}

/* The mean of the positions' medians. */
static double mean(double (*values)[MAX_ROUNDS], unsigned n)
{
    double sum = 0;
    for (int i = 0; i < DELTA_CHUNK; i++)
        sum += median(values[i], n);
    return sum / DELTA_CHUNK;
}

static void print_tokens(struct bench *b, struct samples *s)
{
    double bytes = (double)b->layers * b->heads * PLAIN_FLOATS * sizeof(float);
    double read_s = mean(s->read_s, b->rounds);
    printf("a token: %.2f ms, the recurrence %.2f ms; a plain read of the states %.2f ms "
           "(%.1f GB/s), %.2f of the token\n",
           mean(s->token_s, b->rounds) * 1e3, mean(s->step_token_s, b->rounds) * 1e3, read_s * 1e3,
           bytes / read_s * 1e-9, mean(s->of_read, b->rounds));
}

static void print_prompts(struct bench *b, struct samples *s)
{
    double prompt_s = median(s->prompt_s, b->rounds), peak_s = median(s->peak_s, b->rounds);
    printf("a position of a prompt, a head: %.2f us, the recurrence %.2f us; a thread's products "
           "%.0f GFLOP/s",
           prompt_s / PROMPT * 1e6, median(s->step_prompt_s, b->rounds) / PROMPT * 1e6,
           prompt_flop() / prompt_s * 1e-9);
    if (b->peak)
        printf(", %.2f of %s (%.0f)", median(s->of_peak, b->rounds), b->peak->instruction,
               b->peak->flop * PEAK_CALLS / peak_s * 1e-9);
    printf("\n");
}

static void measure(struct bench *b)
{
    static struct samples s;
    for (unsigned i = 0; i < b->rounds; i++) {
        reset(b);
        run_tokens(b, &s, i);
        run_prompts(b, &s, i);
    }
    printf("%s, threads %u: %u layers of %u heads, %d x %d\n", kernels_get()->name, b->threads,
           b->layers, b->heads, DIM, DIM);
    print_tokens(b, &s);
    print_prompts(b, &s);
}

static bool parse_option(struct bench *b, const char *name, const char *value)
{
    unsigned n = (unsigned)atoi(value);
    if (strcmp(name, "--kernels") == 0)
        return kernels_select(value);
    if (strcmp(name, "--threads") == 0)
        return (b->threads = n) >= 1 && n <= 1024;
    if (strcmp(name, "--layers") == 0)
        return (b->layers = n) >= 1 && n <= 1024;
    if (strcmp(name, "--heads") == 0)
        return (b->heads = n) >= 1 && n <= 1024;
    if (strcmp(name, "--rounds") == 0)
        return (b->rounds = n) >= 1 && n <= MAX_ROUNDS;
    return false;
}

static float *random_floats(size_t n, float scale)
{
    float *values = aligned_alloc(64, n * sizeof *values);
    for (size_t i = 0; values && i < n; i++)
        values[i] = (float)(rand() % 2001 - 1000) * 1e-3f * scale;
    return values;
}

static bool allocate(struct bench *b)
{
    size_t rows = (size_t)b->heads * PROMPT * DIM;
    b->head_floats = delta_state_floats(DIM, DIM);
    b->states = aligned_alloc(64, b->layers * b->heads * b->head_floats * sizeof *b->states);
    b->q = random_floats(rows, 0.1f);
    b->k = random_floats(rows, 0.15f); /* near unit vectors */
    b->v = random_floats(rows, 1);
    b->out = random_floats(rows, 1);
    for (int t = 0; t < PROMPT; t++) {
        b->decay[t] = 0.8f + 0.2f * (float)rand() / (float)RAND_MAX;
        b->beta[t] = (float)rand() / (float)RAND_MAX;
    }
    return b->states && b->q && b->k && b->v && b->out;
}

int main(int argc, char **argv)
{
    /* the sizes of Qwen3.6-35B-A3B */
    static struct bench b = {.threads = 1, .layers = 30, .heads = 32, .rounds = 21};
    struct error e;
    for (int i = 1; i < argc; i += 2)
        if (!parse_option(&b, argv[i], i + 1 < argc ? argv[i + 1] : "")) {
            fprintf(stderr, "usage: bench-delta [--kernels NAME] [--threads N] [--layers N] "
                            "[--heads N] [--rounds N]\n");
            return 1;
        }
    if (b.heads < b.threads)
        b.threads = b.heads;
    b.peak = yardstick_multiply_adds(kernels_get()->name, false);
    if (!allocate(&b) || pool_new("bench", b.threads, true, 1000, &b.pool, &e)) {
        fprintf(stderr, "bench-delta: no memory for %u layers; give less\n", b.layers);
        return 1;
    }
    measure(&b);
    pool_free(b.pool);
    free(b.states);
    free(b.q);
    free(b.k);
    free(b.v);
    free(b.out);
    return 0;
}
