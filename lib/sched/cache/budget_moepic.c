/* MoEpic's cache configuration: its records, and when a new configuration is computed; see
 * budget_moepic.h. */
#include "base/arrays.h"
#include "sched/cache/budget_moepic_internal.h"

#include <math.h>
#include <stdlib.h>

#define GRANULARITY 0.01 /* zeta */

/* Until the owner reports costs: a segment's load is the unit, the device computes one twenty times
 * as fast; attention takes as long as computing two segments, the head as ten. */
static const struct sched_cache_costs assumed = {1, 0.05, 0.1, 0.5, 0, 0};

static struct budget_moepic *allocate(const struct budget_moepic_shape *shape)
{
    struct budget_moepic *b, new = {.shape = *shape};
    size_t n = shape->n_layers;
    if (!ARRAYS_NEW(ARRAY(b, 1), ARRAY(new.layer_segments, n), ARRAY(new.records, n),
                    ARRAY(new.segments, n), ARRAY(new.found_segments, n),
                    ARRAY(new.found_experts, n), ARRAY(new.experts[AS_IT_IS], n),
                    ARRAY(new.experts[MORE], n), ARRAY(new.experts[LESS], n),
                    ARRAY(new.experts[MOVED], n), ARRAY(new.exposed[AS_IT_IS], n),
                    ARRAY(new.exposed[MORE], n), ARRAY(new.exposed[LESS], n),
                    ARRAY(new.exposed[MOVED], n)))
        return NULL;
    *b = new;
    b->shape.layer_segments = NULL; /* borrowed */
    for (uint32_t i = shape->first_layer; i < shape->n_layers; i++)
        if (!moepic_record_init(&b->records[i], shape->n_experts)) {
            budget_moepic_free(b);
            return NULL;
        }
    return b;
}

/* "Initially, MoEpic adopts a uniform VRAM allocation strategy and an expert split ratio of 0.5."
 */
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
    struct budget_moepic *b = allocate(shape);
    if (!b)
        return NULL;
    for (uint32_t i = shape->first_layer; i < shape->n_layers; i++)
        b->layer_segments[i] = shape->layer_segments[i];
    b->costs = assumed;
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
    for (uint32_t i = 0; i < b->shape.n_layers; i++)
        moepic_record_fini(&b->records[i]);
    free(b);
}

void budget_moepic_costs(struct budget_moepic *b, const struct sched_cache_costs *costs)
{
    bool sound = costs->load_s > 0 && isfinite(costs->load_s) && costs->compute_s >= 0 &&
                 isfinite(costs->compute_s) && costs->attention_s >= 0 &&
                 isfinite(costs->attention_s) && costs->head_s >= 0 && isfinite(costs->head_s);
    if (b->phase == IDLE && sound) /* one search uses one set of costs */
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

bool budget_moepic_is_predicted(const struct budget_moepic *b, uint32_t layer)
{
    return !has_experts(b, layer) || b->records[layer].n_listed == MOEPIC_MAX_PREDICTED;
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
    uint64_t interval = b->tokens_before ? MOEPIC_TOKENS : MOEPIC_FIRST_TOKENS;
    if (b->phase == IDLE && b->tokens - b->tokens_before >= interval)
        budget_moepic_begin(b);
    return b->phase != IDLE && budget_moepic_search_slice(b);
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
