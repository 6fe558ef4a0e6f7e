/* Activity; see activity.h.
 *
 * An expert's share is an exponential average: each step of its layer has the weight
 * 2^(-age / ACTIVITY_HALF_STEPS), and the weights of the steps since counting began are scaled so
 * that they add up to 1. A cell keeps the sum of its weights at the step that last activated it, so
 * a step touches only the experts that it activates. */
#include "activity.h"

#include "base/arrays.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define DECAY_STEPS 1024 /* after so many steps nothing of a weight is left */

struct cell {
    float sum;     /* of the weights, when `step` was the latest */
    uint32_t step; /* of the layer's counted steps, from 1; 0: never activated */
};

struct activity {
    uint32_t n_dense, n_rows, n_experts;
    _Atomic uint64_t watched_until_ns;
    pthread_mutex_t lock; /* guards all below; held for a layer, or for a reading */
    uint64_t step;        /* the engine's */
    uint32_t *steps;      /* [n_rows]: that were counted of the layer */
    struct cell *cells;   /* [n_rows][n_experts] */
    float decay[DECAY_STEPS];
};

struct activity *activity_new(uint32_t n_layers, uint32_t n_dense, uint32_t n_experts)
{
    struct activity *a;
    uint32_t *steps;
    struct cell *cells;
    size_t rows = n_layers - n_dense;
    if (!ARRAYS_NEW(ARRAY(a, 1), ARRAY(steps, rows), ARRAY(cells, rows * n_experts)))
        return NULL;
    a->n_dense = n_dense;
    a->n_rows = (uint32_t)rows;
    a->n_experts = n_experts;
    a->steps = steps;
    a->cells = cells;
    pthread_mutex_init(&a->lock, NULL);
    for (int i = 0; i < DECAY_STEPS; i++)
        a->decay[i] = exp2f(-(float)i / ACTIVITY_HALF_STEPS);
    return a;
}

void activity_free(struct activity *a)
{
    if (a)
        pthread_mutex_destroy(&a->lock);
    free(a);
}

bool activity_watched(const struct activity *a, uint64_t now_ns)
{
    return now_ns < atomic_load_explicit(&a->watched_until_ns, memory_order_relaxed);
}

static float decay(const struct activity *a, uint32_t steps)
{
    return steps < DECAY_STEPS ? a->decay[steps] : 0;
}

void activity_begin_layer(struct activity *a, uint64_t step, uint32_t layer)
{
    pthread_mutex_lock(&a->lock);
    a->step = step;
    a->steps[layer - a->n_dense]++;
}

void activity_add(struct activity *a, uint32_t layer, uint32_t expert)
{
    uint32_t row = layer - a->n_dense, step = a->steps[row];
    struct cell *c = &a->cells[(size_t)row * a->n_experts + expert];
    c->sum = c->sum * decay(a, step - c->step) + 1;
    c->step = step;
}

void activity_end_layer(struct activity *a)
{
    pthread_mutex_unlock(&a->lock);
}

uint32_t activity_cells(const struct activity *a)
{
    return a->n_rows * a->n_experts;
}

/* The sum of the weights of an expert that every step activated. */
static float full_sum(const struct activity *a, uint32_t steps)
{
    return (1 - decay(a, steps)) / (1 - a->decay[1]);
}

static void read_row(const struct activity *a, uint32_t row, uint8_t *out)
{
    uint32_t step = a->steps[row];
    float full = full_sum(a, step);
    for (uint32_t i = 0; i < a->n_experts; i++) {
        const struct cell *c = &a->cells[(size_t)row * a->n_experts + i];
        float share = c->step ? c->sum * decay(a, step - c->step) / full : 0;
        float level = roundf(sqrtf(share) * (ACTIVITY_LEVELS - 1));
        out[i] = (uint8_t)(level < ACTIVITY_LEVELS ? level : ACTIVITY_LEVELS - 1);
        if (c->step && c->step == step)
            out[i] |= ACTIVITY_CHOSEN;
    }
}

static void start_anew(struct activity *a)
{
    memset(a->steps, 0, a->n_rows * sizeof *a->steps);
    memset(a->cells, 0, (size_t)a->n_rows * a->n_experts * sizeof *a->cells);
}

bool activity_read(struct activity *a, uint64_t now_ns, uint8_t *out, uint64_t *step)
{
    bool counted = false;
    pthread_mutex_lock(&a->lock);
    if (!activity_watched(a, now_ns))
        start_anew(a);
    for (uint32_t row = 0; row < a->n_rows; row++) {
        read_row(a, row, out + (size_t)row * a->n_experts);
        counted = counted || a->steps[row];
    }
    *step = counted ? a->step : 0;
    atomic_store_explicit(&a->watched_until_ns, now_ns + ACTIVITY_WATCH_NS, memory_order_relaxed);
    pthread_mutex_unlock(&a->lock);
    return counted;
}
