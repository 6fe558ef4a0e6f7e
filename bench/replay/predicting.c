/* A predictor over a trace; see predicting.h. */
#include "bench/replay/predicting.h"

#include "model/router.h"

#include <stdlib.h>
#include <string.h>

/* An answer of the aside half that the next layer finds. */
struct answer {
    struct predict_target target;
    uint32_t n, n_known;
    struct predicted *experts; /* [n_experts] */
};

struct predicting {
    const struct trace *trace;
    struct predict_shape shape;
    struct predict_traits traits;
    struct predictor *in_line, *aside;
    predicting_tell *tell;
    void *tell_arg;
    struct predict_kept *kept;

    uint64_t step;
    const struct predicting_token *batch;
    uint32_t n_tokens;
    bool idle; /* nothing is predicted in this step */
    struct predict_token tokens[PREDICTING_MAX_TOKENS];

    struct answer *answers; /* [n_layers + 1] */
    uint32_t n_answers;
    double *probability;
    float *hidden, *gate, *gate_input, *scores, *weights, *lesson;
    uint32_t *guessed;
};

static bool allocate(struct predicting *p)
{
    const struct predict_shape *s = &p->shape;
    size_t layers = s->n_layers + 1u, experts = s->n_experts, d = s->d_model,
           tokens = PREDICTING_MAX_TOKENS;
    p->kept = predict_kept_new(s);
    p->answers = calloc(layers, sizeof *p->answers);
    struct predicted *room = calloc(layers * experts, sizeof *room);
    p->probability = calloc(experts, sizeof *p->probability);
    p->hidden = calloc(tokens * d, sizeof *p->hidden);
    p->gate = calloc(tokens * experts, sizeof *p->gate);
    p->gate_input = calloc(tokens * d, sizeof *p->gate_input);
    p->scores = calloc(tokens * experts, sizeof *p->scores);
    p->weights = calloc(s->n_used, sizeof *p->weights);
    p->guessed = calloc(tokens * s->n_used, sizeof *p->guessed);
    if (!room || !p->answers) {
        free(room);
        return false;
    }
    for (size_t i = 0; i < layers; i++)
        p->answers[i].experts = room + i * experts;
    return p->kept && p->probability && p->hidden && p->gate && p->gate_input && p->scores &&
           p->weights && p->guessed;
}

struct predicting *predicting_new(enum sched_predictor kind, const struct trace *trace, uint32_t max_tokens,
                                  const struct sched_learned *learned, predicting_tell *tell,
                                  void *tell_arg)
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
                                      .learned = learned};
    p->traits = predictor_traits(kind, &p->shape);
    p->tell = tell;
    p->tell_arg = tell_arg;
    bool ok = allocate(p);
    if (ok && p->traits.in_line)
        ok = (p->in_line = predictor_new(kind, PREDICT_IN_LINE, &p->shape));
    if (ok && p->traits.reads)
        ok = (p->aside = predictor_new(kind, PREDICT_ASIDE, &p->shape));
    uint32_t floats = predictor_lesson_floats(kind, &p->shape);
    if (ok && floats)
        ok = (p->lesson = calloc(floats, sizeof *p->lesson));
    if (ok)
        return p;
    predicting_free(p);
    return NULL;
}

void predicting_free(struct predicting *p)
{
    if (!p)
        return;
    predictor_free(p->in_line);
    predictor_free(p->aside);
    if (p->answers)
        free(p->answers[0].experts);
    free(p->answers);
    predict_kept_free(p->kept);
    free(p->probability);
    free(p->hidden);
    free(p->gate);
    free(p->gate_input);
    free(p->scores);
    free(p->weights);
    free(p->lesson);
    free(p->guessed);
    free(p);
}

/* ---- What the trace has of a layer ---- */

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

/* ---- Keeping and checking ---- */

static void keep(struct predicting *p, const struct predict_target *target,
                 const struct predicted *experts, uint32_t n, uint32_t n_known)
{
    predict_kept_put(p->kept, target, experts, n);
    if (n)
        p->tell(p->tell_arg, target, experts, n, n_known);
}

/* ---- A step ---- */

static void answer(struct predicting *p, const struct predict_seen *seen)
{
    struct predict_target target;
    for (uint32_t i = 0; p->traits.answers && p->n_answers <= p->shape.n_layers &&
                         predict_target(&p->traits, &p->shape, seen->step, seen->layer, i, &target);
         i++) {
        struct answer *a = &p->answers[p->n_answers++];
        predictor_predict(p->aside, seen, &target, NULL, p->probability);
        a->target = target;
        a->n = predictor_list(p->aside, &p->traits, p->n_tokens, NULL, p->probability, a->experts,
                              &a->n_known);
    }
    uint32_t layer;
    while (p->lesson && predictor_teach(p->aside, &layer, p->lesson))
        predictor_learn(p->in_line, layer, p->lesson);
}

static void show_aside(struct predicting *p, struct predict_seen *seen)
{
    uint32_t reads = p->traits.reads;
    bool embedding = seen->layer == PREDICT_EMBEDDING;
    if (!p->aside || (embedding && !(reads & PREDICT_READS_EMBEDDING)))
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
    predictor_observe(p->aside, seen);
    answer(p, seen);
}

void predicting_step(struct predicting *p, uint64_t step, const struct predicting_token *batch,
                     uint32_t n)
{
    p->step = step;
    p->batch = batch;
    p->n_tokens = n;
    p->idle = n > p->shape.max_tokens || (!p->in_line && !p->aside);
    if (p->idle)
        return;
    for (uint32_t i = 0; i < n; i++)
        p->tokens[i] = (struct predict_token){batch[i].request, batch[i].token};
    struct predict_seen seen = seen_at(p, PREDICT_EMBEDDING, NULL);
    show_aside(p, &seen);
}

void predicting_look(struct predicting *p, uint32_t layer)
{
    for (uint32_t i = 0; i < p->n_answers && !p->idle; i++) {
        const struct answer *a = &p->answers[i];
        if (a->target.step > p->step || (a->target.step == p->step && a->target.layer >= layer))
            keep(p, &a->target, a->experts, a->n, a->n_known);
    }
    p->n_answers = 0;
}

void predicting_routed(struct predicting *p, uint32_t layer, const uint32_t *selected)
{
    if (p->idle)
        return;
    struct predict_seen seen = seen_at(p, layer, selected);
    predict_kept_check(p->kept, &seen);
    if (p->in_line)
        predictor_observe(p->in_line, &seen);
}

/* What the target's gate chooses on these inputs, and its probabilities. */
static void guess(struct predicting *p, const struct predict_target *target, const float *input)
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
        router_select(router, logits, l->selection_bias,
                      p->guessed + t * p->shape.n_used, p->weights);
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
        for (uint32_t i = 0;
             gates && predict_gate_target(&p->traits, &p->shape, p->step, layer, i, &target); i++) {
            guess(p, &target, predictor_gate_input(p->in_line, &seen, p->gate_input));
            predictor_predict(p->in_line, &seen, &target, p->guessed, p->probability);
            struct predicted *best = predict_kept_room(p->kept, target.layer);
            uint32_t n_known, n = predictor_list(p->in_line, &p->traits, p->n_tokens, p->guessed,
                                                 p->probability, best, &n_known);
            keep(p, &target, best, n, n_known);
        }
    }
    show_aside(p, &seen);
}

bool predicting_early(const struct predicting *p)
{
    return p->traits.early;
}

struct sched_ahead *predicting_ahead(struct predicting *p, uint32_t layer, uint32_t *n)
{
    return predict_kept_ahead(p->kept, &(struct predict_target){p->step, layer}, p->n_tokens, n);
}
