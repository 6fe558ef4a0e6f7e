/* MoEpic's cache configuration: what is recorded for it, and when there is a new one; see budget_moepic.h. */
#include "sched/budget_moepic_internal.h"

#include <math.h>
#include <stdlib.h>

#define GRANULARITY 0.01 /* zeta */

/* Until the owner tells: a segment's load is the unit, the device computes one twenty times as fast; attention takes as long as
 * computing two, the head ten. */
static const struct sched_cache_costs guessed = {1, 0.05, 0.1, 0.5, 0, 0};

static bool new_arrays(struct budget_moepic *b)
{
    size_t n = b->shape.n_layers + 1;
    b->layer_segments = calloc(n, sizeof *b->layer_segments);
    b->records = calloc(n, sizeof *b->records);
    b->segments = calloc(n, sizeof *b->segments);
    b->found_segments = calloc(n, sizeof *b->found_segments);
    b->found_experts = calloc(n, sizeof *b->found_experts);
    bool made =
        b->layer_segments && b->records && b->segments && b->found_segments && b->found_experts;
    for (int run = 0; run < N_RUNS; run++) {
        b->experts[run] = calloc(n, sizeof *b->experts[run]);
        b->exposed[run] = calloc(n, sizeof *b->exposed[run]);
        made = made && b->experts[run] && b->exposed[run];
    }
    for (uint32_t i = b->shape.first_layer; made && i < b->shape.n_layers; i++)
        made = moepic_record_init(&b->records[i], b->shape.n_experts);
    return made;
}

/* "Initially, MoEpic adopts a uniform VRAM allocation strategy and an expert split ratio of 0.5." */
static void start_even(struct budget_moepic *b)
{
    uint32_t n = b->shape.n_layers - b->shape.first_layer;
    for (uint32_t i = b->shape.first_layer; i < b->shape.n_layers; i++) {
        uint64_t v = b->shape.segments / n, s = b->layer_segments[i];
        uint64_t half = s ? (2 * v + s - 1) / s : 0, experts = half < v ? half : v;
        b->segments[i] = b->found_segments[i] = v;
        b->found_experts[i] = experts < b->shape.n_experts ? (uint32_t)experts : b->shape.n_experts;
    }
}

struct budget_moepic *budget_moepic_new(const struct budget_moepic_shape *shape)
{
    struct budget_moepic *b = calloc(1, sizeof *b);
    if (!b)
        return NULL;
    b->shape = *shape;
    b->shape.layer_segments = NULL; /* borrowed */
    if (!new_arrays(b)) {
        budget_moepic_free(b);
        return NULL;
    }
    for (uint32_t i = shape->first_layer; i < shape->n_layers; i++)
        b->layer_segments[i] = shape->layer_segments[i];
    b->costs = guessed;
    double step = round(GRANULARITY * (double)shape->segments);
    b->step = step > 1 ? (uint64_t)step : 1;
    b->found_exposed = NAN;
    if (shape->first_layer < shape->n_layers)
        start_even(b);
    return b;
}

void budget_moepic_free(struct budget_moepic *b)
{
    if (!b)
        return;
    for (uint32_t i = 0; b->records && i < b->shape.n_layers; i++)
        moepic_record_fini(&b->records[i]);
    for (int run = 0; run < N_RUNS; run++) {
        free(b->experts[run]);
        free(b->exposed[run]);
    }
    free(b->records);
    free(b->layer_segments);
    free(b->segments);
    free(b->found_segments);
    free(b->found_experts);
    free(b);
}

void budget_moepic_costs(struct budget_moepic *b, const struct sched_cache_costs *costs)
{
    bool sound = costs->load_s > 0 && isfinite(costs->load_s) && costs->compute_s >= 0 &&
                 isfinite(costs->compute_s) && costs->attention_s >= 0 &&
                 isfinite(costs->attention_s) && costs->head_s >= 0 && isfinite(costs->head_s);
    if (b->phase == IDLE && sound) /* one configuration reckons with one set of costs */
        b->costs = *costs;
}

static bool has_experts(const struct budget_moepic *b, uint32_t layer)
{
    return layer >= b->shape.first_layer && layer < b->shape.n_layers;
}

void budget_moepic_predicted(struct budget_moepic *b, uint32_t layer, uint32_t expert,
                             uint32_t rank)
{
    if (has_experts(b, layer))
        moepic_record_predicted(&b->records[layer], expert, rank);
}

void budget_moepic_activated(struct budget_moepic *b, uint32_t layer, uint32_t expert,
                             uint32_t rank)
{
    if (has_experts(b, layer))
        moepic_record_activated(&b->records[layer], expert, rank);
}

void budget_moepic_step_over(struct budget_moepic *b, uint32_t layer, uint32_t n_tokens)
{
    if (!has_experts(b, layer))
        return;
    moepic_record_step_over(&b->records[layer]);
    if (layer == b->shape.first_layer)
        b->tokens += n_tokens;
}

void budget_moepic_begin(struct budget_moepic *b)
{
    if (b->phase == IDLE && b->shape.first_layer < b->shape.n_layers)
        budget_moepic_search_begin(b);
}

bool budget_moepic_working(const struct budget_moepic *b)
{
    return b->phase != IDLE;
}

bool budget_moepic_work(struct budget_moepic *b)
{
    if (b->phase == IDLE && b->tokens - b->tokens_before >= MOEPIC_TOKENS)
        budget_moepic_begin(b);
    return b->phase != IDLE && budget_moepic_search_piece(b);
}

uint64_t budget_moepic_segments(const struct budget_moepic *b, uint32_t layer)
{
    return b->found_segments[layer];
}

uint32_t budget_moepic_experts(const struct budget_moepic *b, uint32_t layer)
{
    return b->found_experts[layer];
}

double budget_moepic_exposed(const struct budget_moepic *b)
{
    return b->found_exposed;
}
