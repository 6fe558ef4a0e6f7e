/* What a calibration computes with, and the statistics of its times; see measure_internal.h. */
#include "measure_internal.h"

#include "worker/links/device_compute.h"

#include "base/clock.h"
#include "base/sort_doubles.h"

#include <math.h>
#include <stdlib.h>
#include <time.h>

#define JOB_BYTES  (16u << 20) /* of weights, about: those of a layer's experts for one token */
#define SET_BYTES  (64u << 20) /* of the weights that the turns cycle through */
#define MOST_TURNS 64
#define PASS_S     200e-6 /* about the dense part of a small model's layer */
/* The engine's jobs have smaller numbers. */
#define FIRST_SEQUENCE (1ull << 63)

bool measure_bench_init(struct measure_bench *b, const struct calibration_parts *p)
{
    const struct model_params *params = &p->memory->map.params;
    const struct pool_slabs *s = &p->memory->map.slabs[params->n_dense];
    uint64_t most = JOB_BYTES / s->segment_bytes;
    uint32_t experts = params->router.n_used < s->n_experts ? params->router.n_used : s->n_experts;
    experts = experts < MEASURE_MOST_EXPERTS ? experts : MEASURE_MOST_EXPERTS;
    most = most < 2 ? 2 : most;
    experts = experts < most ? experts : (uint32_t)most;
    uint64_t each = most / experts;
    uint32_t segments = each < s->n_segments ? (uint32_t)each : s->n_segments;
    uint64_t turns = SET_BYTES / (s->segment_bytes * experts * segments);
    *b = (struct measure_bench){
        .parts = p,
        .n_experts = experts,
        .n_segments = segments,
        .n_turns = turns < 2            ? 2
                   : turns < MOST_TURNS ? (uint32_t)turns
                                        : MOST_TURNS,
        .max_tokens = p->max_tokens < MEASURE_MOST_TOKENS ? p->max_tokens : MEASURE_MOST_TOKENS,
        .sequence = FIRST_SEQUENCE};
    spinner_init(&b->spinner, MEASURE_SPIN_US);
    b->values = calloc((size_t)MEASURE_MOST_TOKENS * params->d_model, sizeof *b->values);
    for (size_t i = 0; b->values && i < (size_t)MEASURE_MOST_TOKENS * params->d_model; i++)
        b->values[i] = (float)((int)(i * 37 % 17) - 8) / 8;
    return b->values != NULL;
}

void measure_bench_fini(struct measure_bench *b)
{
    device_compute_drop(b->parts->compute);
    free(b->values);
}

double measure_quantile(double *values, uint32_t n, double share)
{
    sort_doubles(values, n);
    return values[(uint32_t)(n * share)];
}

void measure_nap(double seconds)
{
    if (seconds <= 1e-6)
        return;
    struct timespec t = {(time_t)seconds, (long)((seconds - floor(seconds)) * 1e9)};
    nanosleep(&t, NULL);
}

void measure_pass_time(void)
{
    for (uint64_t since = clock_ns(); (double)(clock_ns() - since) * 1e-9 < PASS_S;)
        ;
}
