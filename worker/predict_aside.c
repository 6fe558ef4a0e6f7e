/* Predictors beside inference; see predict_aside.h.
 *
 * Invariants:
 * 1. A ring's places [head, tail) are the consumer's, the others are the producer's (struct indices, below).
 * 2. `showing` is the engine's and `thinking` the thread's. A set changes hands in a record of `shown`, so the thread never uses
 *    a half that was freed, and the engine no in-line half that it gave away. A set's buffers go with it: what was shown
 *    in them lies before that record. */
#include "predict_aside.h"

#include "base/checked.h"
#include "base/log.h"
#include "ipc/doorbell.h"
#include "model/router.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

enum { ANSWERS = 16, NICE = 10 };

/* Of a ring with one producer and one consumer. Only the producer stores tail, only the consumer head, both with release, and
 * the other side loads with acquire: a place and what lies in it change hands together. */
struct indices {
    _Alignas(64) _Atomic uint64_t head;
    _Alignas(64) _Atomic uint64_t tail;
};

/* The producer's next place of n; returns how many are free, 0: not even that one. */
static uint64_t indices_room(const struct indices *r, uint64_t n, uint64_t *place)
{
    uint64_t tail = atomic_load_explicit(&r->tail, memory_order_relaxed);
    *place = tail % n;
    return n - (tail - atomic_load_explicit(&r->head, memory_order_acquire));
}

static void indices_push(struct indices *r)
{
    uint64_t tail = atomic_load_explicit(&r->tail, memory_order_relaxed);
    atomic_store_explicit(&r->tail, tail + 1, memory_order_release);
}

/* The consumer's next place of n; false: there is nothing in the ring. */
static bool indices_first(const struct indices *r, uint64_t n, uint64_t *place)
{
    uint64_t head = atomic_load_explicit(&r->head, memory_order_relaxed);
    *place = head % n;
    return head != atomic_load_explicit(&r->tail, memory_order_acquire);
}

static void indices_pop(struct indices *r)
{
    uint64_t head = atomic_load_explicit(&r->head, memory_order_relaxed);
    atomic_store_explicit(&r->head, head + 1, memory_order_release);
}

/* What a layer showed, or another set to use. */
struct shown {
    struct predict_set *set;  /* NULL: a layer */
    struct predict_seen seen; /* in the buffers of the set in use */
    float *gate;              /* seen.gate, to be written */
};

struct predict_aside {
    struct predict_aside_options options;
    struct indices shown_at, answers_at;
    struct shown shown[PREDICT_BUFFERS];
    struct predict_answer *answers; /* [ANSWERS] */
    struct doorbell bell;
    _Atomic bool stop;
    pthread_t thread;
    bool has_thread;
    struct predict_set *showing, *thinking;
    bool owed; /* the engine's: the thread is still to be woken for the layer that was shown last */
    double *probability; /* [n_experts], the thread's */
};

struct predict_set *predict_set_new(enum sched_predictor kind, const struct predict_shape *shape)
{
    struct predict_set *s = calloc(1, sizeof *s);
    if (!s)
        return NULL;
    s->kind = kind;
    s->traits = predictor_traits(kind, shape);
    if (s->traits.in_line)
        s->in_line = predictor_new(kind, PREDICT_IN_LINE, shape);
    if (s->traits.reads)
        s->aside = predictor_new(kind, PREDICT_ASIDE, shape);
    if ((s->traits.in_line && !s->in_line) || (s->traits.reads && !s->aside) ||
        !predict_set_allocate(s, shape)) {
        predict_set_free(s);
        return NULL;
    }
    return s;
}

bool predict_set_allocate(struct predict_set *s, const struct predict_shape *shape)
{
    struct predict_buffers *b = &s->buffers;
    uint32_t reads = s->traits.reads;
    size_t n = (size_t)PREDICT_BUFFERS * shape->max_tokens;
    return (!reads || (b->tokens = calloc(n, sizeof *b->tokens))) &&
           (!(reads & (PREDICT_READS_HIDDEN | PREDICT_READS_EMBEDDING)) ||
            (b->hidden = calloc(n * shape->d_model, sizeof *b->hidden))) &&
           (!(reads & PREDICT_READS_GATE) ||
            (b->gate = calloc(n * shape->n_experts, sizeof *b->gate))) &&
           (!(reads & PREDICT_READS_SELECTED) ||
            (b->selected = calloc(n * shape->n_used, sizeof *b->selected)));
}

void predict_set_free(struct predict_set *s)
{
    if (!s)
        return;
    predictor_free(s->in_line);
    predictor_free(s->aside);
    free(s->buffers.tokens);
    free(s->buffers.hidden);
    free(s->buffers.gate);
    free(s->buffers.selected);
    free(s);
}

/* ---- the thread ---- */

static bool has_work(void *arg)
{
    struct predict_aside *a = arg;
    uint64_t place;
    return atomic_load_explicit(&a->stop, memory_order_relaxed) ||
           indices_first(&a->shown_at, PREDICT_BUFFERS, &place);
}

/* Where the next answer goes; NULL: no room. */
static struct predict_answer *answer_begin(struct predict_aside *a)
{
    uint64_t place;
    if (!indices_room(&a->answers_at, ANSWERS, &place))
        return NULL;
    struct predict_answer *answer = &a->answers[place];
    answer->set = a->thinking->number;
    answer->n_experts = 0;
    return answer;
}

static void predict(struct predict_aside *a, const struct predict_seen *seen)
{
    const struct predict_set *s = a->thinking;
    const struct predict_shape *shape = &a->options.shape;
    struct predict_target target;
    for (uint32_t i = 0; predict_target(&s->traits, shape, seen->step, seen->layer, i, &target);
         i++) {
        predictor_predict(s->aside, seen, &target, NULL, a->probability);
        struct predict_answer *answer = answer_begin(a);
        if (!answer) {
            counter_add(a->options.late, 1);
            return;
        }
        answer->target = target;
        answer->n_experts = predictor_list(s->aside, &s->traits, seen->n_tokens, NULL,
                                           a->probability, answer->experts, &answer->n_known);
        if (answer->n_experts)
            indices_push(&a->answers_at);
    }
}

/* A lesson waits in the predictor where there is no room for it. */
static void teach(struct predict_aside *a)
{
    struct predict_answer *answer;
    while ((answer = answer_begin(a)) &&
           predictor_teach(a->thinking->aside, &answer->lesson_layer, answer->lesson))
        indices_push(&a->answers_at);
}

static void think(struct predict_aside *a, struct shown *r)
{
    if (r->set) {
        predict_set_free(a->thinking);
        a->thinking = r->set;
        return;
    }
    if (r->seen.gate && a->options.gate_is_logits)
        router_logits_to_probabilities(r->gate, r->seen.n_tokens, a->options.shape.n_experts);
    predictor_observe(a->thinking->aside, &r->seen);
    if (a->thinking->traits.answers)
        predict(a, &r->seen);
    teach(a);
}

static void *aside_main(void *arg)
{
    struct predict_aside *a = arg;
    pthread_setname_np(pthread_self(), "worker/predict");
    if (setpriority(PRIO_PROCESS, (id_t)gettid(), NICE))
        log_warn("cannot lower the predictors' priority: %m");
    for (;;) {
        doorbell_wait(&a->bell, has_work, a, 0, -1);
        if (atomic_load_explicit(&a->stop, memory_order_relaxed))
            return NULL;
        uint64_t place;
        if (indices_first(&a->shown_at, PREDICT_BUFFERS, &place)) {
            think(a, &a->shown[place]);
            indices_pop(&a->shown_at);
        }
    }
}

/* ---- the engine ---- */

static void wake(struct predict_aside *a)
{
    doorbell_ring(&a->bell);
    a->owed = false;
}

static void show_end(struct predict_aside *a, bool ring)
{
    indices_push(&a->shown_at);
    if (ring)
        wake(a);
}

bool predict_aside_use(struct predict_aside *a, struct predict_set *set)
{
    uint64_t place;
    if (!indices_room(&a->shown_at, PREDICT_BUFFERS, &place))
        return false;
    a->shown[place].set = set;
    a->showing = set;
    show_end(a, true);
    return true;
}

/* Into a place of the ring and the buffers that belong to it. */
static void copy_layer(struct predict_aside *a, uint64_t place, const struct predict_seen *seen)
{
    const struct predict_shape *s = &a->options.shape;
    const struct predict_buffers *b = &a->showing->buffers;
    struct shown *r = &a->shown[place];
    size_t n = seen->n_tokens, first = place * s->max_tokens;
    uint32_t reads = a->showing->traits.reads;
    bool embedding = seen->layer == PREDICT_EMBEDDING;
    *r = (struct shown){.seen = {.step = seen->step,
                                 .layer = seen->layer,
                                 .n_tokens = seen->n_tokens,
                                 .tokens = b->tokens + first}};
    memcpy(b->tokens + first, seen->tokens, n * sizeof *b->tokens);
    if (embedding || (reads & PREDICT_READS_HIDDEN))
        r->seen.hidden = memcpy(b->hidden + first * s->d_model, seen->hidden,
                                n * s->d_model * sizeof *b->hidden);
    if (!embedding && (reads & PREDICT_READS_GATE))
        r->seen.gate = r->gate =
            memcpy(b->gate + first * s->n_experts, seen->gate, n * s->n_experts * sizeof *b->gate);
    if (!embedding && (reads & PREDICT_READS_SELECTED))
        r->seen.selected = memcpy(b->selected + first * s->n_used, seen->selected,
                                  n * s->n_used * sizeof *b->selected);
}

/* What comes of a layer goes into guesses of our half in line, or is an answer about the layer after the next one, which has time; of an
 * embedding it is one about the first layer. */
static bool may_be_owed(const struct predict_aside *a, const struct predict_seen *seen)
{
    return a->showing->in_line && seen->layer != PREDICT_EMBEDDING;
}

bool predict_aside_show(struct predict_aside *a, const struct predict_seen *seen)
{
    uint64_t place, n_free = indices_room(&a->shown_at, PREDICT_BUFFERS, &place);
    if (!n_free) {
        counter_add(a->options.dropped, 1);
        return false;
    }
    copy_layer(a, place, seen);
    bool answers = a->showing->traits.answers;
    bool ring = a->owed || (answers && !may_be_owed(a, seen)) || (n_free - 1) * 2 <= PREDICT_BUFFERS;
    a->owed = answers && !ring;
    show_end(a, ring);
    counter_add(a->options.shown, 1);
    return true;
}

bool predict_aside_wake(struct predict_aside *a)
{
    bool owed = a->owed;
    if (owed)
        wake(a);
    return owed;
}

const struct predict_answer *predict_aside_answer(struct predict_aside *a)
{
    uint64_t place;
    return indices_first(&a->answers_at, ANSWERS, &place) ? &a->answers[place] : NULL;
}

void predict_aside_taken(struct predict_aside *a)
{
    indices_pop(&a->answers_at);
}

/* ---- its life ---- */

static bool allocate(struct predict_aside *a)
{
    const struct predict_shape *s = &a->options.shape;
    bool done = (a->answers = calloc(ANSWERS, sizeof *a->answers)) &&
                (a->probability = calloc(s->n_experts, sizeof *a->probability));
    for (uint32_t i = 0; done && i < ANSWERS; i++)
        done = (a->answers[i].experts = calloc(s->n_experts, sizeof *a->answers[i].experts)) &&
               (a->answers[i].lesson =
                    calloc(a->options.lesson_floats + 1, sizeof *a->answers[i].lesson));
    return done;
}

enum error_code predict_aside_new(const struct predict_aside_options *options,
                                  struct predict_aside **out, struct error *e)
{
    struct predict_aside *a = aligned_alloc(64, round_up(sizeof *a, 64));
    if (!a)
        return error_set(e, ERROR_MEMORY, "no memory for predictors beside inference");
    memset(a, 0, sizeof *a);
    a->options = *options;
    enum error_code code = ERROR_OK;
    int failed = 0;
    if (!allocate(a))
        code = error_set(e, ERROR_MEMORY, "no memory for predictors beside inference");
    else if ((failed = pthread_create(&a->thread, NULL, aside_main, a)))
        code =
            error_set(e, ERROR_MEMORY, "cannot start the thread worker/predict: error %d", failed);
    a->has_thread = !code;
    if (code) {
        predict_aside_free(a);
        return code;
    }
    *out = a;
    return ERROR_OK;
}

/* The thread is no more: also sets that it has not come to. */
static void free_sets(struct predict_aside *a)
{
    for (uint64_t place; indices_first(&a->shown_at, PREDICT_BUFFERS, &place);
         indices_pop(&a->shown_at))
        if (a->shown[place].set) {
            predict_set_free(a->thinking);
            a->thinking = a->shown[place].set;
        }
    predict_set_free(a->thinking);
}

void predict_aside_free(struct predict_aside *a)
{
    if (!a)
        return;
    if (a->has_thread) {
        atomic_store_explicit(&a->stop, true, memory_order_relaxed); /* the bell is a release */
        doorbell_ring(&a->bell);
        pthread_join(a->thread, NULL);
        free_sets(a);
    }
    for (uint32_t i = 0; a->answers && i < ANSWERS; i++) {
        free(a->answers[i].experts);
        free(a->answers[i].lesson);
    }
    free(a->answers);
    free(a->probability);
    free(a);
}
