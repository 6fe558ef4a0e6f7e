/* MoEpic's cache configuration; see budget_moepic.h. The paper's Algorithm 1, in pieces:
 *
 *   IDLE --tokens--> FREEZE --all layers--> SPLIT as it is (T1) --> with a step more each (T2) --> with a step less each (T3)
 *    ^                                            ^                                                     |
 *    |                                            +---- T4 becomes T1 <--less-- one step moved (T4) <---+
 *    +--------------------------not less: the step is undone-------------------------+
 *
 * FREEZE makes shares of the counts, so that all runs see the same.
 *
 * Where the paper leaves it open: a share may be of any number of segments, and theta V / C even where that is
 * no whole segment; of sizes that are equally good the smallest is taken, which cuts least. T2 and T3 are, as printed, with
 * every layer's share changed at once, so a layer's window is that of the changed one before it. */
#include "sched/budget_moepic.h"
#include "sched/moepic_record.h"

#include <math.h>
#include <stdlib.h>

#define GRANULARITY 0.01 /* zeta */
enum { MOST_STEPS = 1000 };

/* Until the owner tells: a segment's load is the unit, the device computes one twenty times as fast; attention takes as long as
 * computing two, the head ten. */
static const struct sched_cache_costs guessed = {1, 0.05, 0.1, 0.5, 0, 0};

enum run { AS_IT_IS, MORE, LESS, MOVED, N_RUNS };
enum phase { IDLE, FREEZE, SPLIT };

struct budget_moepic {
    struct budget_moepic_shape shape;
    uint8_t *layer_segments;
    struct sched_cache_costs costs;
    struct moepic_record *records;  /* [n_layers] */
    uint64_t tokens, tokens_before; /* of the first layer; at the last configuration */

    enum phase phase;
    enum run run;
    uint32_t layer, n_steps;
    double window;                       /* of that layer */
    uint64_t step;                       /* zeta V_e, segments */
    uint64_t *segments, *found_segments; /* [n_layers] V: being tried; of the last configuration */
    uint32_t *experts[N_RUNS], *found_experts; /* [n_layers] C */
    double *exposed[N_RUNS];                   /* [n_layers] */
    uint32_t to, from;                         /* the layers between which a step was moved */
    double found_exposed;
};

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

static void freeze(struct budget_moepic *b, uint32_t layer)
{
    moepic_record_freeze(&b->records[layer]);
}

/* m, for a share and a cache size. */
static double loaded(const struct budget_moepic *b, uint32_t layer, double segments, uint32_t c)
{
    double s = b->layer_segments[layer];
    double theta = c ? fmin(1, segments / (s * c)) : 0;
    return moepic_record_loaded(&b->records[layer], c, theta, s * b->costs.load_s, b->window);
}

/* The sub-problem of one layer, under this run's shares; its window becomes the next layer's. */
static void split_layer(struct budget_moepic *b, uint32_t layer)
{
    uint64_t v = b->segments[layer], s = b->layer_segments[layer], n = b->shape.n_experts;
    if (b->run == MORE)
        v += b->step;
    else if (b->run == LESS)
        v = v > b->step ? v - b->step : 0;
    uint64_t least = s && v / s < n ? v / s : n, most = v < n ? v : n;
    if (least == 0 && v)
        least = 1;
    uint32_t best = (uint32_t)least;
    double m = loaded(b, layer, (double)v, best);
    for (uint32_t c = best + 1; c <= most; c++) {
        double other = loaded(b, layer, (double)v, c);
        if (other > m) {
            m = other;
            best = c;
        }
    }
    double k = b->records[layer].k, load_s = (k - m) * (double)s * b->costs.load_s;
    double compute_s = (double)s * b->costs.compute_s;
    b->experts[b->run][layer] = best;
    b->exposed[b->run][layer] = fmax(0, load_s - m * compute_s);
    b->window = k * compute_s - fmin(m * compute_s, load_s) + b->costs.attention_s;
}

static double total(const struct budget_moepic *b, enum run run)
{
    double sum = 0;
    for (uint32_t i = b->shape.first_layer; i < b->shape.n_layers; i++)
        sum += b->exposed[run][i];
    return sum;
}

static void begin_run(struct budget_moepic *b, enum run run)
{
    b->phase = SPLIT;
    b->run = run;
    b->layer = b->shape.first_layer;
    b->window = b->costs.head_s + b->costs.attention_s;
}

/* Lines 19 to 21: a step from the layer that loses least to the one that gains most. False: there is none that could. */
static bool move_step(struct budget_moepic *b)
{
    uint32_t none = b->shape.n_layers, to = none, from = none;
    double gain = 0, loss = 0;
    for (uint32_t i = b->shape.first_layer; i < none; i++) {
        double g = b->exposed[AS_IT_IS][i] - b->exposed[MORE][i];
        if (b->segments[i] + b->step <= (uint64_t)b->layer_segments[i] * b->shape.n_experts &&
            (to == none || g > gain)) {
            to = i;
            gain = g;
        }
    }
    for (uint32_t i = b->shape.first_layer; i < none; i++) {
        double l = b->exposed[LESS][i] - b->exposed[AS_IT_IS][i];
        if (i != to && b->segments[i] > b->step && (from == none || l < loss)) {
            from = i;
            loss = l;
        }
    }
    if (to == none || from == none)
        return false;
    b->segments[to] += b->step;
    b->segments[from] -= b->step;
    b->to = to;
    b->from = from;
    return true;
}

/* The one that stands in AS_IT_IS. */
static bool finish(struct budget_moepic *b)
{
    for (uint32_t i = b->shape.first_layer; i < b->shape.n_layers; i++) {
        b->found_segments[i] = b->segments[i];
        b->found_experts[i] = b->experts[AS_IT_IS][i];
    }
    b->found_exposed = total(b, AS_IT_IS);
    b->tokens_before = b->tokens;
    b->phase = IDLE;
    return true;
}

static void moved_is_as_it_is(struct budget_moepic *b)
{
    uint32_t *experts = b->experts[MOVED];
    double *exposed = b->exposed[MOVED];
    b->experts[MOVED] = b->experts[AS_IT_IS];
    b->exposed[MOVED] = b->exposed[AS_IT_IS];
    b->experts[AS_IT_IS] = experts;
    b->exposed[AS_IT_IS] = exposed;
}

/* All layers of a run are split. True: done. */
static bool end_run(struct budget_moepic *b)
{
    if (b->run < LESS) {
        begin_run(b, b->run + 1);
        return false;
    }
    if (b->run == LESS) {
        if (!move_step(b))
            return finish(b);
        begin_run(b, MOVED);
        return false;
    }
    if (!(total(b, MOVED) < total(b, AS_IT_IS)) || ++b->n_steps == MOST_STEPS) {
        b->segments[b->to] -= b->step;
        b->segments[b->from] += b->step;
        return finish(b);
    }
    moved_is_as_it_is(b);
    begin_run(b, MORE);
    return false;
}

void budget_moepic_begin(struct budget_moepic *b)
{
    if (b->phase != IDLE || b->shape.first_layer >= b->shape.n_layers)
        return;
    b->phase = FREEZE;
    b->layer = b->shape.first_layer;
    b->n_steps = 0;
}

bool budget_moepic_working(const struct budget_moepic *b)
{
    return b->phase != IDLE;
}

bool budget_moepic_work(struct budget_moepic *b)
{
    if (b->phase == IDLE && b->tokens - b->tokens_before >= MOEPIC_TOKENS)
        budget_moepic_begin(b);
    if (b->phase == IDLE)
        return false;
    (b->phase == FREEZE ? freeze : split_layer)(b, b->layer);
    if (++b->layer < b->shape.n_layers)
        return false;
    if (b->phase == FREEZE) {
        begin_run(b, AS_IT_IS);
        return false;
    }
    return end_run(b);
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
