/* Judging predictions; see judge.h. */
#include "train/judge.h"

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
    uint32_t *selected, *guessed, *truth;
    double *probability, *expected, *activated; /* the last two: sums of a window */
    struct predicted *best;
    uint64_t n_hot;
    struct train_score score; /* sums */
};

uint32_t judge_ahead(enum train_judged who, uint32_t stride)
{
    switch (who) {
    case JUDGED_MLP:
        return stride;
    case JUDGED_LLAPOR:
    case JUDGED_FAR_GATE:
        return LLAPOR_AHEAD;
    default:
        return 1;
    }
}

static enum sched_predictor kind_of(enum train_judged who)
{
    static const enum sched_predictor kinds[TRAIN_JUDGED] = {
        [JUDGED_NEXT_GATE] = PREDICT_NEXT_GATE, [JUDGED_FAR_GATE] = PREDICT_NEXT_GATE,
        [JUDGED_RESIDUAL] = PREDICT_RESIDUAL,   [JUDGED_MLP] = PREDICT_MLP,
        [JUDGED_LLAPOR] = PREDICT_LLAPOR,
    };
    return kinds[who];
}

/* Is there something of the layer to be judged? */
static bool is_there(const struct samples *s, const struct sched_learned *l, enum train_judged who,
                     uint32_t layer)
{
    const struct trace_shape *shape = trace_shape(s->trace);
    uint32_t ahead = judge_ahead(who, l->header.stride);
    struct learned_net net;
    struct learned_affine pca;
    if (!ahead || layer < shape->first_layer + ahead)
        return false;
    if (who == JUDGED_MLP)
        return learned_mlp(l, layer, &net);
    if (who == JUDGED_LLAPOR)
        return learned_llapor(l, layer, &net, &pca);
    return (shape->has & TRACE_ROUTERS) &&
           (who != JUDGED_RESIDUAL || learned_residual(l, layer - 1));
}

static bool judge_init(struct judge *j, const struct samples *s, const struct sched_learned *l,
                       enum train_judged who)
{
    const struct trace_shape *t = trace_shape(s->trace);
    enum sched_predictor kind = kind_of(who);
    j->samples = s;
    j->in_line = sched_predictor_traits(kind)->in_line;
    j->shape = (struct predict_shape){.n_layers = t->n_layers,
                                      .first_layer = t->first_layer,
                                      .n_experts = t->n_experts,
                                      .n_used = t->n_used,
                                      .d_model = t->d_model,
                                      .max_tokens = 1,
                                      .learned = l};
    j->predictor = predictor_new(kind, j->in_line ? PREDICT_IN_LINE : PREDICT_ASIDE, &j->shape);
    size_t d = t->d_model, n = t->n_experts, used = t->n_used;
    return j->predictor && (j->hidden = calloc(d, sizeof(float))) &&
           (j->gate = calloc(n, sizeof(float))) && (j->input = calloc(d, sizeof(float))) &&
           (j->logits = calloc(n, sizeof(float))) && (j->weights = calloc(used, sizeof(float))) &&
           (j->selected = calloc(used, sizeof(uint32_t))) &&
           (j->guessed = calloc(used, sizeof(uint32_t))) &&
           (j->truth = calloc(used, sizeof(uint32_t))) &&
           (j->probability = calloc(n, sizeof(double))) &&
           (j->expected = calloc(n, sizeof(double))) &&
           (j->activated = calloc(n, sizeof(double))) && (j->best = calloc(n, sizeof *j->best));
}

static void judge_fini(struct judge *j)
{
    predictor_free(j->predictor);
    free(j->hidden);
    free(j->gate);
    free(j->input);
    free(j->logits);
    free(j->weights);
    free(j->selected);
    free(j->guessed);
    free(j->truth);
    free(j->probability);
    free(j->expected);
    free(j->activated);
    free(j->best);
}

/* What the target's gate chooses on the input that the predictor gives it. */
static const uint32_t *guess(struct judge *j, const struct predict_seen *seen)
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
    router_select(&t->router, j->logits, y->selection_bias, j->guessed, j->weights);
    return j->guessed;
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

/* The experts with the most, of a window; of equal ones the lower number. */
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

static void judge_row(struct judge *j, uint32_t row, uint32_t layer, uint32_t ahead)
{
    const struct samples *s = j->samples;
    const struct predict_target target = {row + 1, layer};
    bool gated = trace_shape(s->trace)->has & TRACE_GATE;
    samples_read(s, layer - ahead, row, 1, j->hidden, j->selected, gated ? j->gate : NULL);
    samples_read(s, layer, row, 1, NULL, j->truth, NULL);
    struct predict_seen seen = {.step = row + 1,
                                .layer = layer - ahead,
                                .n_tokens = 1,
                                .hidden = j->hidden,
                                .gate = j->gate,
                                .selected = j->selected};
    predictor_predict(j->predictor, &seen, &target, j->in_line ? guess(j, &seen) : NULL,
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

enum error_code judge(const struct samples *s, const struct sched_learned *learned,
                      enum train_judged who, uint32_t layer, struct train_score *out,
                      struct error *e)
{
    struct judge j = {.target = trace_layer(s->trace, layer)};
    *out = (struct train_score){0};
    if (!is_there(s, learned, who, layer))
        return ERROR_OK;
    bool done = judge_init(&j, s, learned, who);
    for (uint32_t row = s->n_train + s->n_check; done && row < s->n; row++)
        judge_row(&j, row, layer, judge_ahead(who, learned->header.stride));
    judge_fini(&j);
    if (!done)
        return error_set(e, ERROR_MEMORY, "no memory to judge predictions");
    *out = j.score;
    if (out->n) {
        out->recall /= (double)out->n;
        out->log_loss /= (double)out->n;
        out->hot = j.n_hot ? out->hot / (double)j.n_hot : 0;
    }
    return ERROR_OK;
}
