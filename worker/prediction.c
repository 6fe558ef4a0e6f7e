/* The predictor that is chosen; see prediction.h.
 *
 * A choice is made by another thread: it leaves a new set in `chosen`, the engine takes it at the next layer, and the aside
 * thread frees the one before (predict_aside.c), so nobody waits and nobody allocates while serving. The exchange that
 * leaves a set is a release, the one that takes it an acquire: whoever has it sees it whole. */
#include "prediction.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* What was predicted for a layer: the newest. */
struct layer_prediction {
    uint64_t step;
    uint32_t n; /* 0: nothing */
    struct predicted *experts;
    _Atomic uint64_t guesses, right; /* since the predictor was chosen */
};

struct prediction {
    struct prediction_options options;
    struct predict_aside *aside;
    _Atomic(struct predict_set *) chosen; /* NULL: the engine has taken it */
    uint64_t n_choices;                   /* of who chooses */
    struct predict_set *set;              /* the engine's */
    struct layer_prediction *layers;      /* [n_layers] */
    struct predicted *experts;            /* [n_layers][most] */
    uint32_t most;
    bool *activated;     /* [n_experts]; all false between calls */
    double *probability; /* [n_experts] */
    float *gate_input;   /* [max_tokens][d_model] */
};

static bool allocate(struct prediction *p)
{
    const struct predict_shape *s = &p->options.shape;
    p->layers = calloc(s->n_layers, sizeof *p->layers);
    p->experts = calloc((size_t)s->n_layers * p->most, sizeof *p->experts);
    p->activated = calloc(s->n_experts, sizeof *p->activated);
    p->probability = calloc(s->n_experts, sizeof *p->probability);
    p->gate_input = calloc((size_t)s->max_tokens * s->d_model, sizeof *p->gate_input);
    if (!p->layers || !p->experts || !p->activated || !p->probability || !p->gate_input)
        return false;
    for (uint32_t i = 0; i < s->n_layers; i++)
        p->layers[i].experts = p->experts + (size_t)i * p->most;
    return true;
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
    p->most = predict_most(&p->options.shape, p->options.shape.max_tokens);
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
    free(p->layers);
    free(p->experts);
    free(p->activated);
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

void prediction_score(const struct prediction *p, uint32_t layer, uint64_t *guesses,
                      uint64_t *right)
{
    *guesses = *right = 0;
    if (atomic_load_explicit(&p->chosen, memory_order_relaxed)) /* what was counted is another's */
        return;
    *guesses = atomic_load_explicit(&p->layers[layer].guesses, memory_order_relaxed);
    *right = atomic_load_explicit(&p->layers[layer].right, memory_order_relaxed);
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
    for (uint32_t i = 0; i < p->options.shape.n_layers; i++) {
        p->layers[i].n = 0;
        atomic_store_explicit(&p->layers[i].guesses, 0, memory_order_relaxed);
        atomic_store_explicit(&p->layers[i].right, 0, memory_order_relaxed);
    }
}

static void keep(struct prediction *p, const struct predict_target *target,
                 const struct predicted *experts, uint32_t n)
{
    struct layer_prediction *l = &p->layers[target->layer];
    l->step = target->step;
    l->n = n;
    if (experts != l->experts)
        memcpy(l->experts, experts, n * sizeof *experts);
    if (n)
        p->options.tell(p->options.tell_arg, target, l->experts, n);
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
        } else if (is_ahead(&a->target, next)) {
            counter_add(p->options.counters.ahead, 1);
            keep(p, &a->target, a->experts, a->n_experts);
        } else {
            counter_add(p->options.counters.late, 1);
        }
    }
}

/* Of m activated experts, how many are among the m that were the most probable? */
static void check(struct prediction *p, const struct predict_seen *seen)
{
    struct layer_prediction *l = &p->layers[seen->layer];
    if (l->step != seen->step || !l->n)
        return;
    uint32_t n_rows = seen->n_tokens * p->options.shape.n_used, m = 0, right = 0;
    for (uint32_t i = 0; i < n_rows; i++) {
        m += !p->activated[seen->selected[i]];
        p->activated[seen->selected[i]] = true;
    }
    uint32_t guesses = l->n < m ? l->n : m;
    for (uint32_t i = 0; i < guesses; i++)
        right += p->activated[l->experts[i].expert];
    for (uint32_t i = 0; i < n_rows; i++)
        p->activated[seen->selected[i]] = false;
    l->n = 0;
    const struct prediction_counters *k = &p->options.counters;
    counter_add(k->guesses[p->set->kind], guesses);
    counter_add(k->right[p->set->kind], right);
    atomic_fetch_add_explicit(&l->guesses, guesses, memory_order_relaxed);
    atomic_fetch_add_explicit(&l->right, right, memory_order_relaxed);
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

void prediction_show(struct prediction *p, const struct predict_seen *seen)
{
    if (!p->set || seen->n_tokens > p->options.shape.max_tokens)
        return;
    uint32_t reads = p->set->traits.reads;
    if (seen->layer == PREDICT_EMBEDDING ? reads & PREDICT_READS_EMBEDDING : reads)
        predict_aside_show(p->aside, seen);
}

bool prediction_gate(struct prediction *p, const struct predict_seen *seen, uint32_t i,
                     struct predict_target *target, const float **input)
{
    if (!p->set || !p->set->in_line || seen->n_tokens > p->options.shape.max_tokens ||
        !predict_target(&p->set->traits, &p->options.shape, seen->step, seen->layer, i, target))
        return false;
    *input = predictor_gate_input(p->set->in_line, seen, p->gate_input);
    return true;
}

void prediction_guess(struct prediction *p, const struct predict_seen *seen,
                      const struct predict_target *target, const uint32_t *guessed)
{
    struct layer_prediction *l = &p->layers[target->layer];
    predictor_predict(p->set->in_line, seen, target, guessed, p->probability);
    keep(p, target, l->experts,
         predict_best(p->probability, p->options.shape.n_experts,
                      predict_most(&p->options.shape, seen->n_tokens), l->experts));
}
