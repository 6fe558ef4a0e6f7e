/* Runs a predictor over a trace; see predicting.h. */
#include "bench/replay/predicting.h"

#include "base/arrays.h"
#include "model/router.h"

#include <stdlib.h>
#include <string.h>

/* A prediction of the background half, which the next predicting_look reports. */
struct answer {
    struct predict_target target;
    uint32_t n, n_known;
    struct predicted *experts; /* [n_experts] */
};

struct predicting {
    const struct trace *trace;
    struct predict_shape shape;
    struct predict_traits traits;
    struct predictor *in_line, *background;
    struct layer_predictions *predictions;

    uint64_t step;
    const struct predicting_token *batch;
    uint32_t n_tokens;
    bool updates; /* the background half sends updates to the in-line half */
    bool idle;    /* this step has no predictions */
    struct predict_token tokens[PREDICTING_MAX_TOKENS];

    uint32_t n_answers;
    void *memory;                            /* of the arrays */
    struct answer *answers;                  /* [n_layers + 1] */
    double *probability;                     /* [n_experts] */
    float *hidden, *gate, *scores, *weights; /* of a batch */
    float *update;                           /* predictor_update_floats */
    uint32_t *routing;                       /* of a batch, by a later layer's gate */
};

static bool allocate(struct predicting *p, uint32_t update_floats)
{
    const struct predict_shape *s = &p->shape;
    size_t layers = s->n_layers + 1u, experts = s->n_experts, tokens = PREDICTING_MAX_TOKENS;
    struct predicted *answered;
    p->memory = ARRAYS_NEW(ARRAY(p->answers, layers), ARRAY(answered, layers * experts),
                           ARRAY(p->probability, experts), ARRAY(p->hidden, tokens * s->d_model),
                           ARRAY(p->gate, tokens * experts), ARRAY(p->scores, tokens * experts),
                           ARRAY(p->weights, s->n_used), ARRAY(p->update, update_floats),
                           ARRAY(p->routing, tokens * s->n_used));
    for (size_t i = 0; i < layers && p->memory; i++)
        p->answers[i].experts = answered + i * experts;
    return p->memory;
}

struct predicting *predicting_new(enum sched_predictor kind, const struct trace *trace,
                                  uint32_t max_tokens, const struct trained_predictors *predictors,
                                  layer_predictions_report *report, void *report_arg)
{
    const struct trace_shape *t = trace_shape(trace);
    struct predicting *p = calloc(1, sizeof *p);
    if (!p)
        return NULL;
    p->trace = trace;
    p->shape = (struct predict_shape){.n_layers = t->n_layers,
                                      .first_layer = t->first_layer,
                                      .n_experts = t->n_experts,
                                      .n_used = t->n_used,
                                      .d_model = t->d_model,
                                      .max_tokens = max_tokens,
                                      .trained = predictors};
    p->traits = predictor_traits(kind, &p->shape);
    p->predictions = layer_predictions_new(&p->shape, report, report_arg);
    uint32_t update_floats = predictor_update_floats(kind, &p->shape);
    p->updates = update_floats > 0;
    bool ok = allocate(p, update_floats) && p->predictions;
    if (ok && p->traits.in_line)
        ok = (p->in_line = predictor_new(kind, PREDICT_IN_LINE, &p->shape));
    if (ok && p->traits.reads)
        ok = (p->background = predictor_new(kind, PREDICT_BACKGROUND, &p->shape));
    if (!ok) {
        predicting_free(p);
        return NULL;
    }
    layer_predictions_use(p->predictions, &p->traits, p->in_line);
    return p;
}

void predicting_free(struct predicting *p)
{
    if (!p)
        return;
    layer_predictions_free(p->predictions);
    predictor_free(p->in_line);
    predictor_free(p->background);
    free(p->memory);
    free(p);
}

/* ---- A layer of the trace ---- */

static bool fill_hidden(struct predicting *p, uint32_t layer)
{
    for (uint32_t i = 0; i < p->n_tokens; i++) {
        float *to = p->hidden + (size_t)i * p->shape.d_model;
        const struct predicting_token *t = &p->batch[i];
        bool there =
            layer == PREDICT_EMBEDDING
                ? trace_embedding(p->trace, trace_sequence(p->trace, t->sequence)->tokens[t->token],
                                  to)
                : trace_hidden(p->trace, t->sequence, t->token, layer, to);
        if (!there)
            return false;
    }
    return true;
}

static bool fill_gate(struct predicting *p, uint32_t layer)
{
    for (uint32_t i = 0; i < p->n_tokens; i++)
        if (!trace_gate(p->trace, p->batch[i].sequence, p->batch[i].token, layer,
                        p->gate + (size_t)i * p->shape.n_experts))
            return false;
    return true;
}

static struct predict_seen seen_at(const struct predicting *p, uint32_t layer,
                                   const uint32_t *selected)
{
    return (struct predict_seen){.step = p->step,
                                 .layer = layer,
                                 .n_tokens = p->n_tokens,
                                 .tokens = p->tokens,
                                 .selected = selected};
}

/* ---- A step ---- */

static void answer(struct predicting *p, const struct predict_seen *seen)
{
    struct predict_target target;
    for (uint32_t i = 0; p->traits.answers && p->n_answers <= p->shape.n_layers &&
                         predict_target(&p->traits, &p->shape, seen->step, seen->layer, i, &target);
         i++) {
        struct answer *a = &p->answers[p->n_answers++];
        predictor_predict(p->background, seen, &target, NULL, p->probability);
        a->target = target;
        a->n = predictor_list(p->background, &p->traits, p->n_tokens, NULL, p->probability,
                              a->experts, &a->n_known);
        p->n_answers -= !a->n; /* nothing is predicted */
    }
    uint32_t layer;
    while (p->updates && predictor_next_update(p->background, &layer, p->update))
        predictor_apply_update(p->in_line, layer, p->update);
}

static void show_background(struct predicting *p, struct predict_seen *seen)
{
    uint32_t reads = p->traits.reads;
    bool embedding = seen->layer == PREDICT_EMBEDDING;
    if (!p->background || (embedding && !(reads & PREDICT_READS_EMBEDDING)))
        return;
    if ((embedding || reads & PREDICT_READS_HIDDEN) && !seen->hidden) {
        if (!fill_hidden(p, seen->layer))
            return;
        seen->hidden = p->hidden;
    }
    if (!embedding && reads & PREDICT_READS_GATE) {
        if (!fill_gate(p, seen->layer))
            return;
        seen->gate = p->gate;
    }
    predictor_observe(p->background, seen);
    answer(p, seen);
}

void predicting_step(struct predicting *p, uint64_t step, const struct predicting_token *batch,
                     uint32_t n)
{
    p->step = step;
    p->batch = batch;
    p->n_tokens = n;
    p->idle = n > p->shape.max_tokens || (!p->in_line && !p->background);
    if (p->idle)
        return;
    for (uint32_t i = 0; i < n; i++)
        p->tokens[i] = (struct predict_token){
            batch[i].request, batch[i].token,
            trace_sequence(p->trace, batch[i].sequence)->tokens[batch[i].token]};
    struct predict_seen seen = seen_at(p, PREDICT_EMBEDDING, NULL);
    show_background(p, &seen);
}

void predicting_look(struct predicting *p, uint32_t layer)
{
    const struct predict_target next = {p->step, layer};
    for (uint32_t i = 0; i < p->n_answers && !p->idle; i++) {
        const struct answer *a = &p->answers[i];
        const struct layer_prediction answer = {a->target, a->experts, a->n, a->n_known};
        layer_predictions_answer(p->predictions, &answer, &next);
    }
    p->n_answers = 0;
}

void predicting_routed(struct predicting *p, uint32_t layer, const uint32_t *selected)
{
    if (p->idle)
        return;
    struct predict_seen seen = seen_at(p, layer, selected);
    layer_predictions_routed(p->predictions, &seen);
}

/* Evaluates the target layer's gate on these inputs: chosen experts and probabilities. */
static void route(struct predicting *p, const struct predict_target *target, const float *input)
{
    const struct trace_layer *l = trace_layer(p->trace, target->layer);
    const struct router_params *router = &trace_shape(p->trace)->router;
    size_t d = p->shape.d_model;
    for (uint32_t t = 0; t < p->n_tokens; t++) {
        float *logits = p->scores + (size_t)t * p->shape.n_experts;
        for (uint32_t i = 0; i < p->shape.n_experts; i++) {
            const float *row = l->matrix + i * d, *x = input + t * d;
            float sums[16] = {0}, sum = l->bias ? l->bias[i] : 0;
            size_t j = 0;
            for (; j + 16 <= d; j += 16)
                for (int k = 0; k < 16; k++)
                    sums[k] += row[j + k] * x[j + k];
            for (; j < d; j++)
                sum += row[j] * x[j];
            for (int k = 0; k < 16; k++)
                sum += sums[k];
            logits[i] = sum;
        }
        router_select(router, logits, l->selection_bias, p->routing + t * p->shape.n_used,
                      p->weights);
    }
    if (p->traits.scores && router_leaves_logits(router->kind))
        router_logits_to_probabilities(p->scores, p->n_tokens, p->shape.n_experts);
}

void predicting_show(struct predicting *p, uint32_t layer, const uint32_t *selected, bool gates)
{
    if (p->idle)
        return;
    struct predict_seen seen = seen_at(p, layer, selected);
    if (p->in_line && trace_shape(p->trace)->has & TRACE_ROUTERS && fill_hidden(p, layer)) {
        seen.hidden = p->hidden;
        seen.scores = p->scores;
        struct predict_target target;
        const float *input;
        for (uint32_t i = 0;
             gates && layer_predictions_gate(p->predictions, &seen, i, &target, &input); i++) {
            route(p, &target, input);
            layer_predictions_from_gate(p->predictions, &seen, &target, p->routing);
        }
    }
    show_background(p, &seen);
}

bool predicting_early(const struct predicting *p)
{
    return p->traits.early;
}

struct sched_upcoming *predicting_upcoming(struct predicting *p, uint32_t layer, uint32_t *n)
{
    const struct predict_target now = {p->step, layer};
    return layer_predictions_upcoming(p->predictions, &now, p->n_tokens, n);
}
