/* MoEpic's search for a configuration (its Algorithm 1); see budget_moepic.h. It runs in work
 * items:
 *
 *     IDLE --tokens--> FREEZE --all layers--> SPLIT as it is (T1)
 *       ^                                        |
 *       |    +-----------------------------------+
 *       |    v
 *       |   a step more each (T2) --> a step less each (T3) --> one step moved (T4)
 *       |    ^                            |                        |         |
 *       |    +------------- T4 < T1: T4 becomes T1 ----------------+         |
 *       +--------------- no step can be moved; else: the step is undone -----+
 *
 * FREEZE makes shares of the counts, so that all runs see the same.
 *
 * Chosen where the paper leaves it open: a share may be any number of segments, and theta V / C
 * even where that is no whole segment. Of equally good sizes the smallest is taken, which cuts
 * least. T2 and T3 are, as printed, with every layer's share changed at once, so a layer's window
 * is that of the changed one before it. */
#include "sched/cache/budget_moepic_internal.h"

#include <math.h>

enum { MOST_STEPS = 1000 };

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

/* Solves one layer under this run's shares, and sets the next layer's window. */
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

static double total(const struct budget_moepic *b, enum moepic_run run)
{
    double sum = 0;
    for (uint32_t i = b->shape.first_layer; i < b->shape.n_layers; i++)
        sum += b->exposed[run][i];
    return sum;
}

static void begin_run(struct budget_moepic *b, enum moepic_run run)
{
    b->phase = SPLIT;
    b->run = run;
    b->layer = b->shape.first_layer;
    b->window = b->costs.head_s + b->costs.attention_s;
}

/* Lines 19 to 21: moves a step from the layer that loses least to the one that gains most. False:
 * no pair of layers can. */
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

/* Takes the configuration in AS_IT_IS. */
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

void budget_moepic_search_begin(struct budget_moepic *b)
{
    b->phase = FREEZE;
    b->layer = b->shape.first_layer;
    b->n_steps = 0;
}

bool budget_moepic_search_slice(struct budget_moepic *b)
{
    (b->phase == FREEZE ? freeze : split_layer)(b, b->layer);
    if (++b->layer < b->shape.n_layers)
        return false;
    if (b->phase == FREEZE) {
        begin_run(b, AS_IT_IS);
        return false;
    }
    return end_run(b);
}
