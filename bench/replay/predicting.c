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
    struct predictor *in_line, *background; /* background NULL: none, or it is recorded */
    struct layer_predictions *predictions;
    struct recording *recording; /* NULL: none */
    bool is_recorded;            /* the recording is read */
    bool one_gate;               /* the in-line half asks one gate at most in a layer */
    size_t at;                   /* layers of the recording so far, with the one under way */
    uint32_t update_floats;

    uint64_t step;
    const struct predicting_token *batch;
    uint32_t n_tokens;
    bool idle; /* this step has no predictions */
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

static void use_recording(struct predicting *p, struct recording *recording)
{
    const struct predict_traits *t = &p->traits;
    p->recording = t->in_line || t->reads ? recording : NULL;
    p->one_gate = t->gates == 1 || (t->distance_first == t->distance_last && !t->gates);
    p->is_recorded = p->recording && recording->state == RECORDING_COMPLETE;
    if (p->recording && recording->state == RECORDING_EMPTY)
        recording_clear(recording); /* of a run that failed */
}

struct predicting *predicting_new(enum sched_predictor kind, const struct trace *trace,
                                  uint32_t max_tokens, const struct trained_predictors *predictors,
                                  struct recording *recording, layer_predictions_report *report,
                                  void *report_arg)
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
    p->update_floats = predictor_update_floats(kind, &p->shape);
    use_recording(p, recording);
    bool ok = allocate(p, p->update_floats) && p->predictions;
    if (ok && p->traits.in_line)
        ok = (p->in_line = predictor_new(kind, PREDICT_IN_LINE, &p->shape));
    if (ok && p->traits.reads && !p->is_recorded)
        ok = (p->background = predictor_new(kind, PREDICT_BACKGROUND, &p->shape));
    if (!ok) {
        predicting_free(p);
        return NULL;
    }
    layer_predictions_use(p->predictions, &p->traits, p->in_line);
    return p;
}

void predicting_end(struct predicting *p)
{
    if (p->recording)
        recording_end(p->recording);
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
        if (a->n && p->recording)
            recording_answer(p->recording, &target, a->experts, a->n, a->n_known);
    }
    uint32_t layer;
    while (p->update_floats && predictor_next_update(p->background, &layer, p->update)) {
        predictor_apply_update(p->in_line, layer, p->update);
        if (p->recording)
            recording_update(p->recording, layer, p->update, p->update_floats);
    }
}

/* Begins a layer of the recording. */
static void next_recorded(struct predicting *p)
{
    if (p->recording && !p->is_recorded)
        recording_add_layer(p->recording);
    p->at++;
}

/* The layer under way. NULL: there is no recording. */
static const struct recorded_layer *recorded(const struct predicting *p)
{
    return p->recording && p->recording->state != RECORDING_REFUSED
               ? recording_at(p->recording, p->at - 1)
               : NULL;
}

/* Takes from the recording what `answer` has put there. */
static void answer_recorded(struct predicting *p)
{
    const struct recording *r = p->recording;
    const struct recorded_layer *l = recorded(p);
    const struct recorded_answer *answers = r->answers.items;
    const uint32_t *layers = r->updated.items;
    const float *updates = r->updates.items;
    for (size_t i = l->first_answer; i < l->first_answer + l->n_answers; i++)
        p->answers[p->n_answers++] =
            (struct answer){answers[i].target, answers[i].n, answers[i].n_known,
                            (struct predicted *)r->experts.items + answers[i].first};
    for (size_t i = l->first_update; i < l->first_update + l->n_updates; i++)
        predictor_apply_update(p->in_line, layers[i], updates + i * p->update_floats);
}

static void show_background(struct predicting *p, struct predict_seen *seen)
{
    uint32_t reads = p->traits.reads;
    bool embedding = seen->layer == PREDICT_EMBEDDING;
    if (p->is_recorded) {
        answer_recorded(p);
        return;
    }
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
    p->idle = n > p->shape.max_tokens || (!p->in_line && !p->traits.reads);
    if (p->idle)
        return;
    for (uint32_t i = 0; i < n; i++)
        p->tokens[i] = (struct predict_token){
            batch[i].request, batch[i].token,
            trace_sequence(p->trace, batch[i].sequence)->tokens[batch[i].token]};
    struct predict_seen seen = seen_at(p, PREDICT_EMBEDDING, NULL);
    next_recorded(p);
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

/* True if the choice of the layer's one gate is recorded. */
static bool has_route(const struct predicting *p)
{
    const struct recorded_layer *l = recorded(p);
    return l && l->has_route;
}

/* As `route`, from the recording if it is there; otherwise it is recorded. */
static void route_once(struct predicting *p, const struct predict_target *target,
                       const float *input)
{
    uint32_t n_choices = p->n_tokens * p->shape.n_used;
    uint32_t n_scores = p->traits.scores ? p->n_tokens * p->shape.n_experts : 0;
    if (!has_route(p)) {
        route(p, target, input);
        if (p->one_gate && recorded(p))
            recording_route(p->recording, p->at - 1, p->routing, n_choices, p->scores, n_scores);
        return;
    }
    const struct recorded_layer *l = recorded(p);
    const uint16_t *choices = (const uint16_t *)p->recording->choices.items + l->first_choice;
    for (uint32_t i = 0; i < n_choices; i++)
        p->routing[i] = choices[i];
    if (n_scores)
        memcpy(p->scores, (const float *)p->recording->scores.items + l->first_score,
               n_scores * sizeof *p->scores);
}

static void show_in_line(struct predicting *p, struct predict_seen *seen)
{
    struct predict_target target;
    const float *input;
    seen->scores = p->scores;
    for (uint32_t i = 0; layer_predictions_gate(p->predictions, seen, i, &target, &input); i++) {
        route_once(p, &target, input);
        layer_predictions_from_gate(p->predictions, seen, &target, p->routing);
    }
}

void predicting_show(struct predicting *p, uint32_t layer, const uint32_t *selected, bool gates)
{
    if (p->idle)
        return;
    struct predict_seen seen = seen_at(p, layer, selected);
    next_recorded(p);
    gates = gates && p->in_line && trace_shape(p->trace)->has & TRACE_ROUTERS;
    if (gates && (has_route(p) || fill_hidden(p, layer))) { /* a known choice needs no input */
        seen.hidden = p->hidden;
        show_in_line(p, &seen);
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
