/* bench-delta: gated DeltaNet's recurrence against the memory's rate of reading and writing.
 *
 * One sample is a token: each head of each layer steps its state once. The states of all layers are
 * larger than the machine's caches, as a model's are. Beside each sample the program measures a
 * yardstick over the same memory: each value is read, multiplied and written, nothing else. A
 * second figure is that of a prompt: one head steps again and again, its state in the cache. All
 * figures are medians.
 */
#include "base/clock.h"
#include "base/sort_doubles.h"
#include "exec/pool.h"
#include "kernels/kernels.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DIM = 128, HEAD_FLOATS = DIM * DIM, MAX_ROUNDS = 1000, CACHED_STEPS = 64 };

struct bench {
    unsigned threads, layers, heads, rounds;
    float *states; /* [layers * heads][DIM][DIM] */
    float q[DIM], k[DIM], v[DIM];
    float (*out)[DIM]; /* [layers * heads] */
    struct pool *pool;
};

static void step(void *arg, unsigned thread, uint32_t head)
{
    struct bench *b = arg;
    (void)thread;
    kernels_get()->delta_step(b->states + (size_t)head * HEAD_FLOATS, DIM, DIM, b->q, b->k, b->v,
                              0.9f, 0.5f, b->out[head]);
}

static void update(void *arg, unsigned thread, uint32_t head)
{
    struct bench *b = arg;
    float *s = b->states + (size_t)head * HEAD_FLOATS;
    (void)thread;
    for (int i = 0; i < HEAD_FLOATS; i++)
        s[i] *= 0.999f;
}

static void step_cached(void *arg, unsigned thread, uint32_t head)
{
    for (int i = 0; i < CACHED_STEPS; i++)
        step(arg, thread, head);
}

static double seconds(struct bench *b, pool_work *work, uint32_t n)
{
    uint64_t started = clock_ns();
    pool_run(b->pool, work, b, n);
    return (double)(clock_ns() - started) * 1e-9;
}

static double median(double *values, unsigned n)
{
    sort_doubles(values, n);
    return values[n / 2];
}

static void measure(struct bench *b)
{
    static double step_s[MAX_ROUNDS], ratio[MAX_ROUNDS], cached_s[MAX_ROUNDS];
    uint32_t n = b->layers * b->heads;
    double bytes = 2.0 * n * HEAD_FLOATS * sizeof(float);
    for (unsigned i = 0; i < b->rounds; i++) {
        double plain = seconds(b, update, n);
        step_s[i] = seconds(b, step, n);
        ratio[i] = plain / step_s[i];
        cached_s[i] = seconds(b, step_cached, b->threads) / CACHED_STEPS;
    }
    double token = median(step_s, b->rounds);
    printf("%s, threads %u: %u layers of %u heads, %d x %d\n", kernels_get()->name, b->threads,
           b->layers, b->heads, DIM, DIM);
    printf("a token        %.2f ms, %.1f GB/s read and written, %.2f of a plain update\n",
           token * 1e3, bytes / token * 1e-9, median(ratio, b->rounds));
    printf("a head's step  %.2f us with the state in the cache\n",
           median(cached_s, b->rounds) * 1e6);
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

static bool allocate(struct bench *b)
{
    size_t n = (size_t)b->layers * b->heads;
    b->states = aligned_alloc(64, n * HEAD_FLOATS * sizeof *b->states);
    b->out = malloc(n * sizeof *b->out);
    if (!b->states || !b->out)
        return false;
    for (size_t i = 0; i < n * HEAD_FLOATS; i++)
        b->states[i] = (float)(rand() % 2001 - 1000) * 1e-3f;
    for (int i = 0; i < DIM; i++) {
        b->q[i] = b->k[i] = (float)(rand() % 2001 - 1000) * 1e-4f;
        b->v[i] = (float)(rand() % 2001 - 1000) * 1e-3f;
    }
    return true;
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
    if (b.layers * b.heads < b.threads)
        b.threads = b.layers * b.heads;
    if (!allocate(&b) || pool_new("bench", b.threads, true, 1000, &b.pool, &e)) {
        fprintf(stderr, "bench-delta: no memory for %u layers; give less\n", b.layers);
        return 1;
    }
    measure(&b);
    pool_free(b.pool);
    free(b.states);
    free(b.out);
    return 0;
}
