/* Predictors beside inference; see predict_aside.h.
 *
 * Invariants:
 * 1. A ring's buffer [head, tail) is the consumer's, the others are the producer's. Only the producer stores tail, only the
 *    consumer head, both with release, and the other side loads with acquire.
 * 2. `showing` is the engine's and `thinking` the thread's. A set changes hands in a record of `shown`, so the thread never uses
 *    a half that was freed, and the engine no in-line half that it gave away. */
#include "predict_aside.h"

#include "base/checked.h"
#include "base/log.h"
#include "ipc/doorbell.h"
#include "kernels/kernels.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

enum { ANSWERS = 16, NICE = 10 };

struct indices {
    _Alignas(64) _Atomic uint64_t head;
    _Alignas(64) _Atomic uint64_t tail;
};

/* What a layer showed, or another set to use. */
struct shown {
    struct predict_set *set;  /* NULL: a layer */
    struct predict_seen seen; /* of what follows */
    struct predict_token *tokens;
    float *hidden, *gate;
    uint32_t *selected;
};

struct predict_aside {
    struct predict_aside_options options;
    struct indices shown_at, answers_at;
    struct shown *shown;            /* [n_buffers] */
    struct predict_answer *answers; /* [ANSWERS] */
    struct doorbell bell;
    _Atomic bool stop;
    pthread_t thread;
    bool has_thread;
    struct predict_set *showing, *thinking;
    uint32_t most;       /* experts of an answer */
    double *probability; /* [n_experts], the thread's */
};

struct predict_set *predict_set_new(enum sched_predictor kind, const struct predict_shape *shape)
{
    struct predict_set *s = calloc(1, sizeof *s);
    if (!s)
        return NULL;
    s->kind = kind;
    s->traits = *sched_predictor_traits(kind);
    if (s->traits.in_line)
        s->in_line = predictor_new(kind, PREDICT_IN_LINE, shape);
    if (s->traits.reads)
        s->aside = predictor_new(kind, PREDICT_ASIDE, shape);
    if ((s->traits.in_line && !s->in_line) || (s->traits.reads && !s->aside)) {
        predict_set_free(s);
        return NULL;
    }
    return s;
}

void predict_set_free(struct predict_set *s)
{
    if (!s)
        return;
    predictor_free(s->in_line);
    predictor_free(s->aside);
    free(s);
}

/* ---- the thread ---- */

static bool has_work(void *arg)
{
    struct predict_aside *a = arg;
    return atomic_load(&a->stop) ||
           atomic_load_explicit(&a->shown_at.head, memory_order_relaxed) !=
               atomic_load_explicit(&a->shown_at.tail, memory_order_acquire);
}

/* Where the next answer goes; NULL: no room. */
static struct predict_answer *answer_begin(struct predict_aside *a)
{
    uint64_t tail = atomic_load_explicit(&a->answers_at.tail, memory_order_relaxed);
    if (tail - atomic_load_explicit(&a->answers_at.head, memory_order_acquire) == ANSWERS)
        return NULL;
    struct predict_answer *answer = &a->answers[tail % ANSWERS];
    answer->set = a->thinking->number;
    answer->n_experts = 0;
    return answer;
}

static void answer_end(struct predict_aside *a)
{
    uint64_t tail = atomic_load_explicit(&a->answers_at.tail, memory_order_relaxed);
    atomic_store_explicit(&a->answers_at.tail, tail + 1, memory_order_release);
}

static void predict(struct predict_aside *a, const struct predict_seen *seen)
{
    const struct predict_set *s = a->thinking;
    const struct predict_shape *shape = &a->options.shape;
    struct predict_target target;
    uint32_t most = seen->n_tokens * shape->n_used;
    for (uint32_t i = 0; predict_target(&s->traits, shape, seen->step, seen->layer, i, &target);
         i++) {
        predictor_predict(s->aside, seen, &target, NULL, a->probability);
        struct predict_answer *answer = answer_begin(a);
        if (!answer) {
            counter_add(a->options.late, 1);
            return;
        }
        answer->target = target;
        answer->n_experts = predict_best(a->probability, shape->n_experts,
                                         most < a->most ? most : a->most, answer->experts);
        if (answer->n_experts)
            answer_end(a);
    }
}

/* A lesson waits in the predictor where there is no room for it. */
static void teach(struct predict_aside *a)
{
    struct predict_answer *answer;
    while ((answer = answer_begin(a)) &&
           predictor_teach(a->thinking->aside, &answer->lesson_layer, answer->lesson))
        answer_end(a);
}

static void to_probabilities(const struct predict_aside *a, struct shown *r)
{
    uint32_t n = a->options.shape.n_experts;
    for (uint32_t t = 0; t < r->seen.n_tokens; t++)
        kernels_get()->softmax(r->gate + (size_t)t * n, n);
}

static void think(struct predict_aside *a, struct shown *r)
{
    if (r->set) {
        predict_set_free(a->thinking);
        a->thinking = r->set;
        return;
    }
    if (r->seen.gate && a->options.gate_is_logits)
        to_probabilities(a, r);
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
        if (atomic_load(&a->stop))
            return NULL;
        uint64_t head = atomic_load_explicit(&a->shown_at.head, memory_order_relaxed);
        think(a, &a->shown[head % a->options.n_buffers]);
        atomic_store_explicit(&a->shown_at.head, head + 1, memory_order_release);
    }
}

/* ---- the engine ---- */

/* The next buffer; NULL: all are busy. *n_full: how many are, with this one. */
static struct shown *show_begin(struct predict_aside *a, uint64_t *n_full)
{
    uint64_t tail = atomic_load_explicit(&a->shown_at.tail, memory_order_relaxed);
    *n_full = tail + 1 - atomic_load_explicit(&a->shown_at.head, memory_order_acquire);
    return *n_full > a->options.n_buffers ? NULL : &a->shown[tail % a->options.n_buffers];
}

static void show_end(struct predict_aside *a, bool ring)
{
    uint64_t tail = atomic_load_explicit(&a->shown_at.tail, memory_order_relaxed);
    atomic_store_explicit(&a->shown_at.tail, tail + 1, memory_order_release);
    if (ring)
        doorbell_ring(&a->bell);
}

bool predict_aside_use(struct predict_aside *a, struct predict_set *set)
{
    uint64_t n_full;
    struct shown *r = show_begin(a, &n_full);
    if (!r)
        return false;
    r->set = set;
    a->showing = set;
    show_end(a, true);
    return true;
}

bool predict_aside_show(struct predict_aside *a, const struct predict_seen *seen)
{
    uint64_t n_full;
    struct shown *r = show_begin(a, &n_full);
    if (!r) {
        counter_add(a->options.dropped, 1);
        return false;
    }
    const struct predict_shape *s = &a->options.shape;
    size_t n = seen->n_tokens;
    uint32_t reads = a->showing->traits.reads;
    bool embedding = seen->layer == PREDICT_EMBEDDING;
    r->set = NULL;
    r->seen = (struct predict_seen){
        .step = seen->step, .layer = seen->layer, .n_tokens = seen->n_tokens, .tokens = r->tokens};
    memcpy(r->tokens, seen->tokens, n * sizeof *r->tokens);
    if (embedding || (reads & PREDICT_READS_HIDDEN))
        r->seen.hidden = memcpy(r->hidden, seen->hidden, n * s->d_model * sizeof *r->hidden);
    if (!embedding && (reads & PREDICT_READS_GATE))
        r->seen.gate = memcpy(r->gate, seen->gate, n * s->n_experts * sizeof *r->gate);
    if (!embedding && (reads & PREDICT_READS_SELECTED))
        r->seen.selected = memcpy(r->selected, seen->selected, n * s->n_used * sizeof *r->selected);
    show_end(a, a->showing->traits.answers || n_full * 2 >= a->options.n_buffers);
    counter_add(a->options.published, 1);
    return true;
}

const struct predict_answer *predict_aside_answer(struct predict_aside *a)
{
    uint64_t head = atomic_load_explicit(&a->answers_at.head, memory_order_relaxed);
    return head == atomic_load_explicit(&a->answers_at.tail, memory_order_acquire)
               ? NULL
               : &a->answers[head % ANSWERS];
}

void predict_aside_taken(struct predict_aside *a)
{
    uint64_t head = atomic_load_explicit(&a->answers_at.head, memory_order_relaxed);
    atomic_store_explicit(&a->answers_at.head, head + 1, memory_order_release);
}

/* ---- its life ---- */

static bool allocate(struct predict_aside *a)
{
    const struct predict_shape *s = &a->options.shape;
    size_t n = s->max_tokens;
    bool done = (a->shown = calloc(a->options.n_buffers, sizeof *a->shown)) &&
                (a->answers = calloc(ANSWERS, sizeof *a->answers)) &&
                (a->probability = calloc(s->n_experts, sizeof *a->probability));
    for (uint32_t i = 0; done && i < a->options.n_buffers; i++) {
        struct shown *r = &a->shown[i];
        done = (r->tokens = calloc(n, sizeof *r->tokens)) &&
               (r->hidden = calloc(n * s->d_model, sizeof *r->hidden)) &&
               (r->gate = calloc(n * s->n_experts, sizeof *r->gate)) &&
               (r->selected = calloc(n * s->n_used, sizeof *r->selected));
    }
    for (uint32_t i = 0; done && i < ANSWERS; i++)
        done = (a->answers[i].experts = calloc(a->most, sizeof *a->answers[i].experts)) &&
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
    const struct predict_shape *s = &options->shape;
    a->most = s->max_tokens * s->n_used < s->n_experts ? s->max_tokens * s->n_used : s->n_experts;
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

/* Sets that the thread has not come to. */
static void free_sets(struct predict_aside *a)
{
    uint64_t tail = atomic_load(&a->shown_at.tail);
    for (uint64_t i = atomic_load(&a->shown_at.head); i != tail; i++)
        if (a->shown[i % a->options.n_buffers].set) {
            predict_set_free(a->thinking);
            a->thinking = a->shown[i % a->options.n_buffers].set;
        }
    predict_set_free(a->thinking);
}

void predict_aside_free(struct predict_aside *a)
{
    if (!a)
        return;
    if (a->has_thread) {
        atomic_store(&a->stop, true);
        doorbell_ring(&a->bell);
        pthread_join(a->thread, NULL);
        free_sets(a);
    }
    for (uint32_t i = 0; a->shown && i < a->options.n_buffers; i++) {
        free(a->shown[i].tokens);
        free(a->shown[i].hidden);
        free(a->shown[i].gate);
        free(a->shown[i].selected);
    }
    for (uint32_t i = 0; a->answers && i < ANSWERS; i++) {
        free(a->answers[i].experts);
        free(a->answers[i].lesson);
    }
    free(a->shown);
    free(a->answers);
    free(a->probability);
    free(a);
}
