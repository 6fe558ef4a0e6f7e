/* The chosen predictor; see prediction.h.
 *
 * Another thread chooses: it puts a new set into `chosen`, the engine takes the set at the next
 * layer, and the background thread frees the set before (background_predictor.c). Thus no thread
 * waits, and the engine allocates nothing. The exchange that puts a set is a release, the exchange
 * that takes it an acquire. */
#include "prediction.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* Of a layer, since the predictor was chosen. */
struct layer_score {
    _Atomic uint64_t predictions, right;
};

struct prediction {
    struct prediction_options options;
    struct background_predictor *background;
    _Atomic(struct predict_set *) chosen; /* NULL: the engine has taken it */
    uint64_t n_choices;                   /* of the choosing thread */
    struct predict_set *set;              /* the engine's */
    struct layer_predictions *predictions;
    struct layer_score *scores; /* [n_layers] */
};

static bool allocate(struct prediction *p)
{
    const struct predict_shape *s = &p->options.shape;
    p->predictions = layer_predictions_new(s, p->options.report, p->options.report_arg);
    p->scores = calloc(s->n_layers, sizeof *p->scores);
    return p->predictions && p->scores;
}

static enum error_code make_background(struct prediction *p, struct error *e)
{
    const struct prediction_counters *k = &p->options.counters;
    struct background_predictor_options options = {.shape = p->options.shape,
                                                   .gate_is_logits = p->options.gate_is_logits,
                                                   .shown = k->shown,
                                                   .dropped = k->dropped,
                                                   .late = k->late};
    for (int kind = 0; kind < PREDICT_KINDS; kind++) {
        uint32_t n = predictor_update_floats((enum sched_predictor)kind, &p->options.shape);
        if (n > options.update_floats)
            options.update_floats = n;
    }
    return background_predictor_new(&options, &p->background, e);
}

enum error_code prediction_new(const struct prediction_options *options, struct prediction **out,
                               struct error *e)
{
    struct prediction *p = calloc(1, sizeof *p);
    if (!p)
        return error_set(e, ERROR_MEMORY, "no memory for the prediction of experts");
    p->options = *options;
    enum error_code code = ERROR_OK;
    if (!allocate(p))
        code = error_set(e, ERROR_MEMORY, "no memory for the prediction of experts");
    if (!code)
        code = make_background(p, e);
    if (!code)
        code = prediction_choose(p, options->predictor, e);
    if (code) {
        prediction_free(p);
        return code;
    }
    *out = p;
    return ERROR_OK;
}

void prediction_free(struct prediction *p)
{
    if (!p)
        return;
    predict_set_free(atomic_load_explicit(&p->chosen, memory_order_acquire));
    background_predictor_free(p->background); /* and the set in use */
    layer_predictions_free(p->predictions);
    free(p->scores);
    free(p);
}

enum error_code prediction_choose(struct prediction *p, enum sched_predictor predictor,
                                  struct error *e)
{
    struct predict_set *new = predict_set_new(predictor, &p->options.shape);
    if (!new)
        return error_set(e, ERROR_MEMORY, "no memory for another predictor");
    prediction_choose_set(p, new);
    return ERROR_OK;
}

void prediction_choose_set(struct prediction *p, struct predict_set *set)
{
    set->number = ++p->n_choices;
    predict_set_free(atomic_exchange_explicit(
        &p->chosen, set, memory_order_acq_rel)); /* a set that the engine never took */
}

bool prediction_is_on(const struct prediction *p)
{
    return atomic_load_explicit(&p->chosen, memory_order_relaxed) ||
           (p->set && p->set->kind != PREDICT_NONE);
}

struct predict_hits prediction_score(const struct prediction *p, uint32_t layer)
{
    if (atomic_load_explicit(&p->chosen,
                             memory_order_relaxed)) /* the counts are of the predictor before */
        return (struct predict_hits){0};
    return (struct predict_hits){
        atomic_load_explicit(&p->scores[layer].predictions, memory_order_relaxed),
        atomic_load_explicit(&p->scores[layer].right, memory_order_relaxed)};
}

static void take_choice(struct prediction *p)
{
    struct predict_set *new = atomic_exchange_explicit(&p->chosen, NULL, memory_order_acquire);
    if (!background_predictor_use(p->background, new)) { /* no free buffer: at a later layer */
        struct predict_set *none = NULL;
        if (!atomic_compare_exchange_strong_explicit(&p->chosen, &none, new, memory_order_release,
                                                     memory_order_relaxed))
            predict_set_free(new); /* there is a newer one */
        return;
    }
    p->set = new;
    layer_predictions_use(p->predictions, &new->traits, new->in_line);
    for (uint32_t i = 0; i < p->options.shape.n_layers; i++) {
        atomic_store_explicit(&p->scores[i].predictions, 0, memory_order_relaxed);
        atomic_store_explicit(&p->scores[i].right, 0, memory_order_relaxed);
    }
}

static void take_answers(struct prediction *p, const struct predict_target *next)
{
    const struct predict_answer *a;
    for (; (a = background_predictor_answer(p->background));
         background_predictor_taken(p->background)) {
        const struct layer_prediction answer = {a->target, a->experts, a->n_experts, a->n_known};
        if (a->set != p->set->number)
            continue; /* of an earlier predictor */
        if (a->n_experts == 0)
            predictor_apply_update(p->set->in_line, a->update_layer, a->update);
        else if (layer_predictions_answer(p->predictions, &answer, next))
            counter_add(p->options.counters.in_time, 1);
        else
            counter_add(p->options.counters.late, 1);
    }
}

static void count_hits(struct prediction *p, uint32_t layer, struct predict_hits hits)
{
    const struct prediction_counters *k = &p->options.counters;
    struct layer_score *score = &p->scores[layer];
    if (!hits.predictions)
        return;
    counter_add(k->predictions[p->set->kind], hits.predictions);
    counter_add(k->right[p->set->kind], hits.right);
    atomic_fetch_add_explicit(&score->predictions, hits.predictions, memory_order_relaxed);
    atomic_fetch_add_explicit(&score->right, hits.right, memory_order_relaxed);
}

void prediction_begin(struct prediction *p, const struct predict_seen *seen)
{
    if (atomic_load_explicit(&p->chosen, memory_order_relaxed))
        take_choice(p);
    if (!p->set || p->set->kind == PREDICT_NONE)
        return;
    if (seen->n_tokens <= p->options.shape.max_tokens)
        count_hits(p, seen->layer, layer_predictions_routed(p->predictions, seen));
    take_answers(p, &(struct predict_target){seen->step, seen->layer + 1});
}

void prediction_look(struct prediction *p, uint64_t step, uint32_t layer)
{
    if (p->set && p->set->kind != PREDICT_NONE)
        take_answers(p, &(struct predict_target){step, layer});
}

bool prediction_reads(const struct prediction *p, uint32_t layer, uint32_t n_tokens)
{
    if (!p->set || n_tokens > p->options.shape.max_tokens)
        return false;
    uint32_t reads = p->set->traits.reads;
    return layer == PREDICT_EMBEDDING ? reads & PREDICT_READS_EMBEDDING : reads;
}

uint64_t prediction_number(const struct prediction *p)
{
    return p->set ? p->set->number : 0;
}

bool prediction_is_early(const struct prediction *p)
{
    return p->set && p->set->traits.early;
}

bool prediction_reads_scores(const struct prediction *p)
{
    return p->set && p->set->traits.scores;
}

void prediction_show(struct prediction *p, const struct predict_seen *seen)
{
    if (prediction_reads(p, seen->layer, seen->n_tokens))
        background_predictor_show(p->background, seen);
}

bool prediction_wake(struct prediction *p)
{
    return background_predictor_wake(p->background);
}

bool prediction_gate(struct prediction *p, const struct predict_seen *seen, uint32_t i,
                     struct predict_target *target, const float **input)
{
    return p->set && layer_predictions_gate(p->predictions, seen, i, target, input);
}

void prediction_from_gate(struct prediction *p, const struct predict_seen *seen,
                          const struct predict_target *target, const uint32_t *routing)
{
    layer_predictions_from_gate(p->predictions, seen, target, routing);
}

struct sched_upcoming *prediction_upcoming(struct prediction *p, const struct predict_target *now,
                                           uint32_t n_tokens, uint32_t *n)
{
    return layer_predictions_upcoming(p->predictions, now, n_tokens, n);
}
