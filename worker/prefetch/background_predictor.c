/* The background predictor; see background_predictor.h.
 *
 * Invariants:
 * 1. The consumer owns a ring's places [head, tail), the producer the others (base/spsc.h).
 * 2. The engine owns `showing` and the thread owns `thinking`. A set changes hands in a record of
 *    `shown`. Thus the thread never uses a freed half, and the engine never uses an in-line half
 *    that it gave away.
 * 3. A set's buffers go with it: the records that lie in them precede the record of the next set.
 */
#include "background_predictor.h"

#include "base/arrays.h"
#include "base/checked.h"
#include "base/log.h"
#include "base/spsc.h"
#include "ipc/doorbell.h"
#include "model/router.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

enum { ANSWERS = 16, NICE = 10 };

/* A layer to observe, or another set to use. */
struct shown {
    struct predict_set *set;  /* NULL: a layer */
    struct predict_seen seen; /* in the buffers of the set in use */
    float *gate;              /* seen.gate, to be written */
};

struct background_predictor {
    struct background_predictor_options options;
    struct spsc shown_at, answers_at;
    struct shown shown[PREDICT_BUFFERS];
    struct predict_answer *answers; /* [ANSWERS] */
    struct doorbell bell;
    _Atomic bool stop;
    pthread_t thread;
    bool has_thread;
    struct predict_set *showing, *thinking;
    bool owed;           /* the engine's: the last layer needs a wake-up that was put off */
    void *memory;        /* of the arrays */
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
        s->background = predictor_new(kind, PREDICT_BACKGROUND, shape);
    if ((s->traits.in_line && !s->in_line) || (s->traits.reads && !s->background) ||
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
    bool hidden = reads & (PREDICT_READS_HIDDEN | PREDICT_READS_EMBEDDING);
    b->memory = ARRAYS_NEW(
        ARRAY(b->tokens, reads ? n : 0), ARRAY(b->hidden, hidden ? n * shape->d_model : 0),
        ARRAY(b->gate, reads & PREDICT_READS_GATE ? n * shape->n_experts : 0),
        ARRAY(b->selected, reads & PREDICT_READS_SELECTED ? n * shape->n_used : 0));
    return b->memory;
}

void predict_set_free(struct predict_set *s)
{
    if (!s)
        return;
    predictor_free(s->in_line);
    predictor_free(s->background);
    free(s->buffers.memory);
    free(s);
}

/* ---- The thread ---- */

static bool has_work(void *arg)
{
    struct background_predictor *a = arg;
    uint64_t place;
    return atomic_load_explicit(&a->stop, memory_order_relaxed) ||
           spsc_first(&a->shown_at, PREDICT_BUFFERS, &place);
}

/* The next free answer; NULL: the ring is full. */
static struct predict_answer *answer_begin(struct background_predictor *a)
{
    uint64_t place;
    if (!spsc_free(&a->answers_at, ANSWERS, &place))
        return NULL;
    struct predict_answer *answer = &a->answers[place];
    answer->set = a->thinking->number;
    answer->n_experts = 0;
    return answer;
}

static void predict(struct background_predictor *a, const struct predict_seen *seen)
{
    const struct predict_set *s = a->thinking;
    const struct predict_shape *shape = &a->options.shape;
    struct predict_target target;
    for (uint32_t i = 0; predict_target(&s->traits, shape, seen->step, seen->layer, i, &target);
         i++) {
        predictor_predict(s->background, seen, &target, NULL, a->probability);
        struct predict_answer *answer = answer_begin(a);
        if (!answer) {
            counter_add(a->options.late, 1);
            return;
        }
        answer->target = target;
        answer->n_experts = predictor_list(s->background, &s->traits, seen->n_tokens, NULL,
                                           a->probability, answer->experts, &answer->n_known);
        if (answer->n_experts)
            spsc_push(&a->answers_at);
    }
}

/* While the ring is full, updates wait in the predictor. */
static void next_update(struct background_predictor *a)
{
    struct predict_answer *answer;
    while ((answer = answer_begin(a)) &&
           predictor_next_update(a->thinking->background, &answer->update_layer, answer->update))
        spsc_push(&a->answers_at);
}

static void think(struct background_predictor *a, struct shown *r)
{
    if (r->set) {
        predict_set_free(a->thinking);
        a->thinking = r->set;
        return;
    }
    if (r->seen.gate && a->options.gate_is_logits)
        router_logits_to_probabilities(r->gate, r->seen.n_tokens, a->options.shape.n_experts);
    predictor_observe(a->thinking->background, &r->seen);
    if (a->thinking->traits.answers)
        predict(a, &r->seen);
    next_update(a);
}

static void *background_main(void *arg)
{
    struct background_predictor *a = arg;
    pthread_setname_np(pthread_self(), "worker/predict");
    if (setpriority(PRIO_PROCESS, (id_t)gettid(), NICE))
        log_warn("cannot lower the predictors' priority: %m");
    for (;;) {
        doorbell_wait(&a->bell, has_work, a, NULL, -1);
        if (atomic_load_explicit(&a->stop, memory_order_relaxed))
            return NULL;
        uint64_t place;
        if (spsc_first(&a->shown_at, PREDICT_BUFFERS, &place)) {
            think(a, &a->shown[place]);
            spsc_pop(&a->shown_at);
        }
    }
}

/* ---- The engine ---- */

static void wake(struct background_predictor *a)
{
    doorbell_ring(&a->bell);
    a->owed = false;
}

static void show_end(struct background_predictor *a, bool ring)
{
    spsc_push(&a->shown_at);
    if (ring)
        wake(a);
}

bool background_predictor_use(struct background_predictor *a, struct predict_set *set)
{
    uint64_t place;
    if (!spsc_free(&a->shown_at, PREDICT_BUFFERS, &place))
        return false;
    a->shown[place].set = set;
    a->showing = set;
    show_end(a, true);
    return true;
}

/* Fills a place of the ring and the buffers that belong to it. */
static void copy_layer(struct background_predictor *a, uint64_t place,
                       const struct predict_seen *seen)
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

/* With an in-line half, the thread's result for a layer is an input of that half, or an answer
 * about the layer after the next one: it is not urgent. The answer to an embedding is about the
 * first layer: it is. */
static bool may_be_owed(const struct background_predictor *a, const struct predict_seen *seen)
{
    return a->showing->in_line && seen->layer != PREDICT_EMBEDDING;
}

bool background_predictor_show(struct background_predictor *a, const struct predict_seen *seen)
{
    uint64_t place, n_free = spsc_free(&a->shown_at, PREDICT_BUFFERS, &place);
    if (!n_free) {
        counter_add(a->options.dropped, 1);
        return false;
    }
    copy_layer(a, place, seen);
    bool answers = a->showing->traits.answers;
    bool ring =
        a->owed || (answers && !may_be_owed(a, seen)) || (n_free - 1) * 2 <= PREDICT_BUFFERS;
    a->owed = answers && !ring;
    show_end(a, ring);
    counter_add(a->options.shown, 1);
    return true;
}

bool background_predictor_wake(struct background_predictor *a)
{
    bool owed = a->owed;
    if (owed)
        wake(a);
    return owed;
}

const struct predict_answer *background_predictor_answer(struct background_predictor *a)
{
    uint64_t place;
    return spsc_first(&a->answers_at, ANSWERS, &place) ? &a->answers[place] : NULL;
}

void background_predictor_taken(struct background_predictor *a)
{
    spsc_pop(&a->answers_at);
}

/* ---- Creation ---- */

static bool allocate(struct background_predictor *a)
{
    size_t n_experts = a->options.shape.n_experts, n_floats = a->options.update_floats;
    struct predicted *experts;
    float *updates;
    a->memory = ARRAYS_NEW(ARRAY(a->answers, ANSWERS), ARRAY(experts, ANSWERS * n_experts),
                           ARRAY(updates, ANSWERS * n_floats), ARRAY(a->probability, n_experts));
    for (size_t i = 0; a->memory && i < ANSWERS; i++) {
        a->answers[i].experts = experts + i * n_experts;
        a->answers[i].update = updates + i * n_floats;
    }
    return a->memory;
}

static enum error_code no_memory(struct error *e)
{
    return error_set(e, ERROR_MEMORY, "no memory for the background predictor");
}

enum error_code background_predictor_new(const struct background_predictor_options *options,
                                         struct background_predictor **out, struct error *e)
{
    struct background_predictor *a = aligned_alloc(64, round_up(sizeof *a, 64));
    if (!a)
        return no_memory(e);
    memset(a, 0, sizeof *a);
    a->options = *options;
    enum error_code code = ERROR_OK;
    int failed = 0;
    if (!allocate(a))
        code = no_memory(e);
    else if ((failed = pthread_create(&a->thread, NULL, background_main, a)))
        code =
            error_set(e, ERROR_MEMORY, "cannot start the thread worker/predict: error %d", failed);
    a->has_thread = !code;
    if (code) {
        background_predictor_free(a);
        return code;
    }
    *out = a;
    return ERROR_OK;
}

/* After the thread ended: also the sets that it had not reached. */
static void free_sets(struct background_predictor *a)
{
    for (uint64_t place; spsc_first(&a->shown_at, PREDICT_BUFFERS, &place); spsc_pop(&a->shown_at))
        if (a->shown[place].set) {
            predict_set_free(a->thinking);
            a->thinking = a->shown[place].set;
        }
    predict_set_free(a->thinking);
}

void background_predictor_free(struct background_predictor *a)
{
    if (!a)
        return;
    if (a->has_thread) {
        atomic_store_explicit(&a->stop, true, memory_order_relaxed); /* the bell is a release */
        doorbell_ring(&a->bell);
        pthread_join(a->thread, NULL);
        free_sets(a);
    }
    free(a->memory);
    free(a);
}
