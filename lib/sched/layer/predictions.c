/* The predictions of a serving or replayed model; see predictions.h. */
#include "predictions.h"

#include "base/arrays.h"

#include <stdlib.h>

struct layer_predictions {
    struct predict_shape shape;
    layer_predictions_report *report;
    void *report_arg;
    struct predict_traits traits;
    struct predictor *in_line;
    struct predict_target by_gate; /* the last prediction in line */
    struct predict_pending *pending;
    void *memory;        /* of the arrays */
    double *probability; /* [n_experts] */
    float *gate_input;   /* [max_tokens][d_model] */
};

struct layer_predictions *layer_predictions_new(const struct predict_shape *shape,
                                                layer_predictions_report *report, void *arg)
{
    struct layer_predictions *p = calloc(1, sizeof *p);
    if (!p)
        return NULL;
    p->shape = *shape;
    p->report = report;
    p->report_arg = arg;
    p->pending = predict_pending_new(shape);
    p->memory = ARRAYS_NEW(ARRAY(p->probability, shape->n_experts),
                           ARRAY(p->gate_input, (size_t)shape->max_tokens * shape->d_model));
    if (p->pending && p->memory)
        return p;
    layer_predictions_free(p);
    return NULL;
}

void layer_predictions_free(struct layer_predictions *p)
{
    if (!p)
        return;
    predict_pending_free(p->pending);
    free(p->memory);
    free(p);
}

void layer_predictions_use(struct layer_predictions *p, const struct predict_traits *traits,
                           struct predictor *in_line)
{
    p->traits = *traits;
    p->in_line = in_line;
    p->by_gate = (struct predict_target){0};
    predict_pending_clear(p->pending);
}

struct predict_hits layer_predictions_routed(struct layer_predictions *p,
                                             const struct predict_seen *seen)
{
    struct predict_hits hits = predict_pending_check(p->pending, seen);
    if (p->in_line)
        predictor_observe(p->in_line, seen);
    return hits;
}

bool layer_predictions_gate(struct layer_predictions *p, const struct predict_seen *seen,
                            uint32_t i, struct predict_target *target, const float **input)
{
    if (!p->in_line || seen->n_tokens > p->shape.max_tokens ||
        !predict_gate_target(&p->traits, &p->shape, seen->step, seen->layer, i, target))
        return false;
    *input = predictor_gate_input(p->in_line, seen, p->gate_input);
    return true;
}

static void keep(struct layer_predictions *p, const struct layer_prediction *prediction)
{
    predict_pending_put(p->pending, &prediction->target, prediction->experts, prediction->n);
    if (prediction->n)
        p->report(p->report_arg, prediction);
}

void layer_predictions_from_gate(struct layer_predictions *p, const struct predict_seen *seen,
                                 const struct predict_target *target, const uint32_t *routing)
{
    struct predicted *list = predict_pending_list(p->pending, target->layer);
    struct layer_prediction prediction = {.target = *target, .experts = list};
    predictor_predict(p->in_line, seen, target, routing, p->probability);
    prediction.n = predictor_list(p->in_line, &p->traits, seen->n_tokens, routing, p->probability,
                                  list, &prediction.n_known);
    keep(p, &prediction);
    p->by_gate = *target;
}

/* Is the layer still to come? */
static bool is_upcoming(const struct predict_target *target, const struct predict_target *next)
{
    return target->step > next->step ||
           (target->step == next->step && target->layer >= next->layer);
}

bool layer_predictions_answer(struct layer_predictions *p, const struct layer_prediction *answer,
                              const struct predict_target *next)
{
    if (!is_upcoming(&answer->target, next) ||
        predict_outdated(&answer->target, &p->by_gate, p->shape.first_layer, next->step))
        return false;
    keep(p, answer);
    return true;
}

struct sched_upcoming *layer_predictions_upcoming(struct layer_predictions *p,
                                                  const struct predict_target *now,
                                                  uint32_t n_tokens, uint32_t *n)
{
    return predict_pending_upcoming(p->pending, now, n_tokens, n);
}
