/* The predictor that is chosen; see prediction.h.
 *
 * A choice is made by another thread: it leaves a new set in `chosen`, the engine takes it at the next layer, and the aside
 * thread frees the one before (predict_aside.c), so nobody waits and nobody allocates while serving. The exchange that
 * leaves a set is a release, the one that takes it an acquire: whoever has it sees it whole. */
#include "prediction.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* Of a layer, since the predictor was chosen. */
struct layer_score {
    _Atomic uint64_t guesses, right;
};

struct prediction {
    struct prediction_options options;
    struct predict_aside *aside;
    _Atomic(struct predict_set *) chosen; /* NULL: the engine has taken it */
    uint64_t n_choices;                   /* of who chooses */
    struct predict_set *set;              /* the engine's */
    struct predict_kept *kept;
    struct layer_score *scores;    /* [n_layers] */
    struct predict_target guessed; /* in line, the last one */
    double *probability;           /* [n_experts] */
    float *gate_input;             /* [max_tokens][d_model] */
};

static bool allocate(struct prediction *p)
{
    const struct predict_shape *s = &p->options.shape;
    p->kept = predict_kept_new(s);
    p->scores = calloc(s->n_layers, sizeof *p->scores);
    p->probability = calloc(s->n_experts, sizeof *p->probability);
    p->gate_input = calloc((size_t)s->max_tokens * s->d_model, sizeof *p->gate_input);
    return p->kept && p->scores && p->probability && p->gate_input;
}

static enum error_code make_aside(struct prediction *p, struct error *e)
{
    const struct prediction_counters *k = &p->options.counters;
    struct predict_aside_options options = {.shape = p->options.shape,
                                            .gate_is_logits = p->options.gate_is_logits,
                                            .shown = k->shown,
                                            .dropped = k->dropped,
                                            .late = k->late};
    for (int kind = 0; kind < PREDICT_KINDS; kind++) {
        uint32_t n = predictor_lesson_floats((enum sched_predictor)kind, &p->options.shape);
        if (n > options.lesson_floats)
            options.lesson_floats = n;
    }
    return predict_aside_new(&options, &p->aside, e);
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
        code = make_aside(p, e);
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
    predict_aside_free(p->aside); /* and the set in use */
    predict_kept_free(p->kept);
    free(p->scores);
    free(p->probability);
    free(p->gate_input);
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
    predict_set_free(atomic_exchange_explicit(&p->chosen, set,
                                              memory_order_acq_rel)); /* one that was never used */
}

bool prediction_is_on(const struct prediction *p)
{
    return atomic_load_explicit(&p->chosen, memory_order_relaxed) ||
           (p->set && p->set->kind != PREDICT_NONE);
}

struct predict_hits prediction_score(const struct prediction *p, uint32_t layer)
{
    if (atomic_load_explicit(&p->chosen, memory_order_relaxed)) /* what was counted is another's */
        return (struct predict_hits){0};
    return (struct predict_hits){
        atomic_load_explicit(&p->scores[layer].guesses, memory_order_relaxed),
        atomic_load_explicit(&p->scores[layer].right, memory_order_relaxed)};
}

static void take_choice(struct prediction *p)
{
    struct predict_set *new = atomic_exchange_explicit(&p->chosen, NULL, memory_order_acquire);
    if (!predict_aside_use(p->aside, new)) { /* the thread is behind: at another layer */
        struct predict_set *none = NULL;
        if (!atomic_compare_exchange_strong_explicit(&p->chosen, &none, new, memory_order_release,
                                                     memory_order_relaxed))
            predict_set_free(new); /* there is a newer one */
        return;
    }
    p->set = new;
    p->guessed = (struct predict_target){0};
    predict_kept_clear(p->kept);
    for (uint32_t i = 0; i < p->options.shape.n_layers; i++) {
        atomic_store_explicit(&p->scores[i].guesses, 0, memory_order_relaxed);
        atomic_store_explicit(&p->scores[i].right, 0, memory_order_relaxed);
    }
}

static void keep(struct prediction *p, const struct predict_target *target,
                 const struct predicted *experts, uint32_t n, uint32_t n_known)
{
    predict_kept_put(p->kept, target, experts, n);
    if (n)
        p->options.tell(p->options.tell_arg, target, experts, n, n_known);
}

/* Is the layer still to come? next: the first one that is. */
static bool is_ahead(const struct predict_target *target, const struct predict_target *next)
{
    return target->step > next->step ||
           (target->step == next->step && target->layer >= next->layer);
}

static void take_answers(struct prediction *p, const struct predict_target *next)
{
    const struct predict_answer *a;
    for (; (a = predict_aside_answer(p->aside)); predict_aside_taken(p->aside)) {
        if (a->set != p->set->number)
            continue; /* of a predictor that is no longer */
        if (a->n_experts == 0) {
            predictor_learn(p->set->in_line, a->lesson_layer, a->lesson);
        } else if (is_ahead(&a->target, next) &&
                   !predict_outdated(&a->target, &p->guessed, p->options.shape.first_layer, next->step)) {
            counter_add(p->options.counters.ahead, 1);
            keep(p, &a->target, a->experts, a->n_experts, a->n_known);
        } else {
            counter_add(p->options.counters.late, 1);
        }
    }
}

static void check(struct prediction *p, const struct predict_seen *seen)
{
    const struct prediction_counters *k = &p->options.counters;
    struct layer_score *score = &p->scores[seen->layer];
    struct predict_hits hits = predict_kept_check(p->kept, seen);
    if (!hits.guesses)
        return;
    counter_add(k->guesses[p->set->kind], hits.guesses);
    counter_add(k->right[p->set->kind], hits.right);
    atomic_fetch_add_explicit(&score->guesses, hits.guesses, memory_order_relaxed);
    atomic_fetch_add_explicit(&score->right, hits.right, memory_order_relaxed);
}

void prediction_begin(struct prediction *p, const struct predict_seen *seen)
{
    if (atomic_load_explicit(&p->chosen, memory_order_relaxed))
        take_choice(p);
    if (!p->set || p->set->kind == PREDICT_NONE)
        return;
    if (seen->n_tokens <= p->options.shape.max_tokens) {
        check(p, seen);
        if (p->set->in_line)
            predictor_observe(p->set->in_line, seen);
    }
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
        predict_aside_show(p->aside, seen);
}

bool prediction_wake(struct prediction *p)
{
    return predict_aside_wake(p->aside);
}

bool prediction_gate(struct prediction *p, const struct predict_seen *seen, uint32_t i,
                     struct predict_target *target, const float **input)
{
    if (!p->set || !p->set->in_line || seen->n_tokens > p->options.shape.max_tokens ||
        !predict_gate_target(&p->set->traits, &p->options.shape, seen->step, seen->layer, i, target))
        return false;
    *input = predictor_gate_input(p->set->in_line, seen, p->gate_input);
    return true;
}

void prediction_guess(struct prediction *p, const struct predict_seen *seen,
                      const struct predict_target *target, const uint32_t *guessed)
{
    struct predicted *best = predict_kept_room(p->kept, target->layer);
    predictor_predict(p->set->in_line, seen, target, guessed, p->probability);
    uint32_t n_known, n = predictor_list(p->set->in_line, &p->set->traits, seen->n_tokens,
                                         guessed, p->probability, best, &n_known);
    keep(p, target, best, n, n_known);
    p->guessed = *target;
}

struct sched_ahead *prediction_ahead(struct prediction *p, const struct predict_target *now,
                                     uint32_t n_tokens, uint32_t *n)
{
    return predict_kept_ahead(p->kept, now, n_tokens, n);
}
