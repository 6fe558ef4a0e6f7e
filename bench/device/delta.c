/* A layer of linear attention in the shape of Qwen3.6-35B-A3B, from the products to the output
 * matrix; see bench.h. Of one token the bound is reading the states once. */
#include "bench/device/bench.h"

#include "kernels/kernels.h"

#include <stdio.h>
#include <stdlib.h>

enum { K_HEADS = 16, V_HEADS = 32, DIM = 128, TAPS = 4, ROWS = 512, LAYERS = 64 };
#define CHANNELS (2 * K_HEADS * DIM + V_HEADS * DIM)

struct stepping {
    struct device_recurrent r;
    struct device_delta d;
    float *states;
    unsigned n_layers; /* more than caches hold: each call steps another one */
    size_t layer_floats;
};

static void step(void *arg, unsigned turn)
{
    struct stepping *s = arg;
    s->r.states = s->states + turn % s->n_layers * s->layer_floats;
    module->ops.delta(stream, &s->r, &s->d, NULL);
}

/* n rows from `position` on. */
static void bench_rows_of(struct stepping *s, uint32_t n, uint32_t position)
{
    struct device_row rows[ROWS];
    struct device_run run = {0, n};
    for (uint32_t t = 0; t < n; t++)
        rows[t] = (struct device_row){0, position + t};
    module->upload(stream, (void *)(uintptr_t)s->r.rows, rows, n * sizeof *rows);
    module->upload(stream, (void *)(uintptr_t)s->r.runs, &run, sizeof run);
    finish();
    s->r.n = n;
    double seconds = measure(step, s), bound = 4.0 * V_HEADS * DIM * DIM / bounds.memory;
    char what[64];
    snprintf(what, sizeof what, n == 1 ? "a token" : "%u rows of a prompt", n);
    print_time(what, seconds,
               n > 1                         ? 0
               : bound > 3 * bounds.kernel_s ? bound
                                             : 3 * bounds.kernel_s);
}

static float *floats(size_t n, uint8_t byte)
{
    return allocate_filled(n * sizeof(float), byte);
}

void bench_delta(void)
{
    struct stepping s = {.n_layers = simulated ? 1 : LAYERS};
    s.layer_floats = (TAPS - 1) * CHANNELS + V_HEADS * delta_state_floats(DIM, DIM);
    s.states = floats(s.n_layers * s.layer_floats, 0);
    s.r = (struct device_recurrent){.slot_floats = s.layer_floats,
                                    .rows = allocate(ROWS * sizeof(struct device_row)),
                                    .runs = allocate(sizeof(struct device_run)),
                                    .n_runs = 1};
    s.d = (struct device_delta){.k_heads = K_HEADS,
                                .v_heads = V_HEADS,
                                .k_dim = DIM,
                                .v_dim = DIM,
                                .taps = TAPS,
                                .qkv = floats((size_t)ROWS * CHANNELS, 0x11),
                                .z = floats((size_t)ROWS * V_HEADS * DIM, 0x11),
                                .beta = floats((size_t)ROWS * V_HEADS, 0x11),
                                .alpha = floats((size_t)ROWS * V_HEADS, 0x11),
                                .conv = floats(CHANNELS * TAPS, 0x11),
                                .dt = floats(V_HEADS, 0x11),
                                .a = floats(V_HEADS, 0x91),
                                .q_scale = 1,
                                .k_scale = 1,
                                .l2_eps = 1e-6f,
                                .norm = floats(DIM, 0x11),
                                .eps = 1e-6f,
                                .placed = floats((size_t)ROWS * CHANNELS, 0),
                                .rates = floats((size_t)ROWS * 2 * V_HEADS, 0),
                                .out = floats((size_t)ROWS * V_HEADS * DIM, 0)};
    print_heading("linear attention: 32 heads of 128 x 128, float32");
    bench_rows_of(&s, 1, 1024 + DELTA_CHUNK / 2); /* half of a chunk is there */
    bench_rows_of(&s, simulated ? 2 : ROWS, 1024);
    const void *all[] = {s.states, s.r.rows, s.r.runs, s.d.qkv,  s.d.z,      s.d.beta,  s.d.alpha,
                         s.d.conv, s.d.dt,   s.d.a,    s.d.norm, s.d.placed, s.d.rates, s.d.out};
    for (unsigned i = 0; i < sizeof all / sizeof *all; i++)
        module->release(device, (void *)(uintptr_t)all[i]);
}
