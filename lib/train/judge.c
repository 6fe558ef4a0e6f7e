/* Judges predictions; see judge.h. */
#include "train/judge.h"

#include "base/arrays.h"
#include "model/router.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { WINDOW = 32, HOT = 4, TRULY_HOT = 6 };
#define LEAST 1e-3

struct judge {
    const struct samples *samples;
    struct predict_shape shape;
    struct predictor *predictor;
    bool in_line;
    const struct trace_layer *target;
    float *hidden, *gate, *input, *logits, *weights;
    uint32_t *selected, *predicted_routing, *truth;
    double *probability, *expected, *activated; /* the last two: sums of a window */
    struct predicted *best;
    void *memory; /* of the arrays */
    uint64_t n_hot;
    struct train_score score; /* sums */
};

uint32_t judge_distance(enum train_judged which, uint32_t stride)
{
    switch (which) {
    case JUDGED_MLP:
        return stride;
    case JUDGED_LLAPOR:
    case JUDGED_FAR_GATE:
        return LLAPOR_DISTANCE;
    default:
        return 1;
    }
}

static enum sched_predictor kind_of(enum train_judged which)
{
    static const enum sched_predictor kinds[TRAIN_JUDGED] = {
        [JUDGED_NEXT_GATE] = PREDICT_NEXT_GATE, [JUDGED_FAR_GATE] = PREDICT_NEXT_GATE,
        [JUDGED_RESIDUAL] = PREDICT_RESIDUAL,   [JUDGED_MLP] = PREDICT_MLP,
        [JUDGED_LLAPOR] = PREDICT_LLAPOR,
    };
    return kinds[which];
}

/* True: the predictor can predict the layer. */
static bool is_there(const struct samples *s, const struct trained_predictors *l,
                     enum train_judged which, uint32_t layer)
{
    const struct trace_shape *shape = trace_shape(s->trace);
    uint32_t upcoming = judge_distance(which, l->header.stride);
    struct trained_net net;
    struct trained_affine pca;
    if (!upcoming || layer < shape->first_layer + upcoming)
        return false;
    if (which == JUDGED_MLP)
        return trained_mlp(l, layer, &net);
    if (which == JUDGED_LLAPOR)
        return trained_llapor(l, layer, &net, &pca);
    return (shape->has & TRACE_ROUTERS) &&
           (which != JUDGED_RESIDUAL || trained_residual(l, layer - 1));
}

static bool judge_init(struct judge *j, const struct samples *s, const struct trained_predictors *l,
                       enum train_judged which)
{
    const struct trace_shape *t = trace_shape(s->trace);
    enum sched_predictor kind = kind_of(which);
    j->samples = s;
    j->in_line = sched_predictor_traits(kind)->in_line;
    j->shape = (struct predict_shape){.n_layers = t->n_layers,
                                      .first_layer = t->first_layer,
                                      .n_experts = t->n_experts,
                                      .n_used = t->n_used,
                                      .d_model = t->d_model,
                                      .max_tokens = 1,
                                      .trained = l};
    j->predictor =
        predictor_new(kind, j->in_line ? PREDICT_IN_LINE : PREDICT_BACKGROUND, &j->shape);
    size_t d = t->d_model, n = t->n_experts, used = t->n_used;
    j->memory = ARRAYS_NEW(ARRAY(j->hidden, d), ARRAY(j->gate, n), ARRAY(j->input, d),
                           ARRAY(j->logits, n), ARRAY(j->weights, used), ARRAY(j->selected, used),
                           ARRAY(j->predicted_routing, used), ARRAY(j->truth, used),
                           ARRAY(j->probability, n), ARRAY(j->expected, n), ARRAY(j->activated, n),
                           ARRAY(j->best, n));
    return j->predictor && j->memory;
}

static void judge_fini(struct judge *j)
{
    predictor_free(j->predictor);
    free(j->memory);
}

/* The experts that the target's gate chooses for the predictor's gate input. */
static const uint32_t *prediction(struct judge *j, const struct predict_seen *seen)
{
    const struct trace_shape *t = trace_shape(j->samples->trace);
    const struct trace_layer *y = j->target;
    const float *x = predictor_gate_input(j->predictor, seen, j->input);
    for (uint32_t i = 0; i < t->n_experts; i++) {
        const float *row = y->matrix + (size_t)i * t->d_model;
        float sum = y->bias ? y->bias[i] : 0;
        for (uint32_t k = 0; k < t->d_model; k++)
            sum += row[k] * x[k];
        j->logits[i] = sum;
    }
    router_select(&t->router, j->logits, y->selection_bias, j->predicted_routing, j->weights);
    return j->predicted_routing;
}

static bool among(uint32_t expert, const uint32_t *experts, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        if (experts[i] == expert)
            return true;
    return false;
}

static void add_recall(struct judge *j)
{
    uint32_t used = j->shape.n_used, right = 0;
    uint32_t n = predict_best(j->probability, j->shape.n_experts, used, j->best);
    for (uint32_t i = 0; i < n; i++)
        right += among(j->best[i].expert, j->truth, used);
    j->score.recall += (double)right / used;
}

static void add_log_loss(struct judge *j)
{
    uint32_t n = j->shape.n_experts, n_zero = 0;
    double left = j->shape.n_used, sum = 0;
    for (uint32_t i = 0; i < n; i++) {
        left -= j->probability[i];
        n_zero += !(j->probability[i] > 0);
    }
    double rest = n_zero && left > 0 ? left / n_zero : 0;
    for (uint32_t i = 0; i < n; i++) {
        double p = j->probability[i] > 0 ? j->probability[i] : rest;
        p = p < LEAST ? LEAST : p > 1 - LEAST ? 1 - LEAST : p;
        sum -= log(among(i, j->truth, j->shape.n_used) ? p : 1 - p);
    }
    j->score.log_loss += sum / n;
}

/* The experts with the largest sums of a window; among equals the lower number wins. */
static uint32_t most_of(struct judge *j, const double *sums, uint32_t most, uint32_t *out)
{
    uint32_t n = predict_best(sums, j->shape.n_experts, most, j->best);
    for (uint32_t i = 0; i < n; i++)
        out[i] = j->best[i].expert;
    return n;
}

static void end_window(struct judge *j)
{
    uint32_t hot[HOT], truly[TRULY_HOT];
    uint32_t n = most_of(j, j->expected, HOT, hot);
    uint32_t n_truly = most_of(j, j->activated, TRULY_HOT, truly);
    for (uint32_t i = 0; i < n; i++)
        j->score.hot += among(hot[i], truly, n_truly);
    j->n_hot += HOT;
    memset(j->expected, 0, j->shape.n_experts * sizeof *j->expected);
    memset(j->activated, 0, j->shape.n_experts * sizeof *j->activated);
}

static void judge_row(struct judge *j, uint32_t row, uint32_t layer, uint32_t upcoming)
{
    const struct samples *s = j->samples;
    const struct predict_target target = {row + 1, layer};
    bool gated = trace_shape(s->trace)->has & TRACE_GATE;
    samples_read(s, layer - upcoming, row, 1, j->hidden, j->selected, gated ? j->gate : NULL);
    samples_read(s, layer, row, 1, NULL, j->truth, NULL);
    struct predict_seen seen = {.step = row + 1,
                                .layer = layer - upcoming,
                                .n_tokens = 1,
                                .hidden = j->hidden,
                                .gate = j->gate,
                                .selected = j->selected};
    predictor_predict(j->predictor, &seen, &target, j->in_line ? prediction(j, &seen) : NULL,
                      j->probability);
    add_recall(j);
    add_log_loss(j);
    for (uint32_t i = 0; i < j->shape.n_experts; i++)
        j->expected[i] += j->probability[i];
    for (uint32_t k = 0; k < j->shape.n_used; k++)
        j->activated[j->truth[k]]++;
    if (++j->score.n % WINDOW == 0)
        end_window(j);
    seen =
        (struct predict_seen){.step = row + 1, .layer = layer, .n_tokens = 1, .selected = j->truth};
    predictor_observe(j->predictor, &seen);
}

enum error_code judge(const struct samples *s, const struct trained_predictors *predictors,
                      enum train_judged which, uint32_t layer, struct train_score *out,
                      struct error *e)
{
    struct judge j = {.target = trace_layer(s->trace, layer)};
    *out = (struct train_score){0};
    if (!is_there(s, predictors, which, layer))
        return ERROR_OK;
    bool done = judge_init(&j, s, predictors, which);
    for (uint32_t row = s->n_train + s->n_check; done && row < s->n; row++)
        judge_row(&j, row, layer, judge_distance(which, predictors->header.stride));
    judge_fini(&j);
    if (!done)
        return error_set(e, ERROR_MEMORY, "no memory to judge predictions");
    *out = j.score;
    if (out->n) {
        out->recall /= (double)out->n;
        out->log_loss /= (double)out->n;
        out->hot = j.n_hot ? out->hot / (double)j.n_hot : NAN;
    }
    return ERROR_OK;
}
