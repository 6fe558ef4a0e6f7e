/* Predictors beside inference: a thread of their own, to which the engine shows what layers did, and which answers when it
 * can. Neither waits for the other.
 *
 *     engine --- shown: a bounded ring of buffers, filled in place ---> thread
 *     engine <-- answers: a bounded ring: experts predicted, lessons --- thread
 *
 * Each ring has one producer and one consumer. With all buffers busy the engine's record is dropped and counted; an answer for
 * which there is no room, because the engine has not looked for so long, is late and counted. The thread sleeps on a doorbell
 * (ipc/doorbell.h), and the engine pays for a wake-up, a system call, where it sleeps. So it is woken at once only for what it
 * answers by itself. Where that goes into a guess in line it is time enough when the engine is about to wait for others, or shows
 * the next layer. Where nothing but lessons comes of what it is shown it is not woken before half of the buffers are full. It runs
 * at a lower priority than inference.
 *
 * Buffers are the chosen predictor's, for what it reads and nothing else (the traits in lib/sched/predict_*.c); `none` and
 * `next-gate` are shown nothing, have no buffers, and the thread sleeps. */
#ifndef MOED_WORKER_PREDICT_ASIDE_H
#define MOED_WORKER_PREDICT_ASIDE_H

#include "base/error.h"
#include "metrics/metrics.h"
#include "sched/predict.h"

/* Layers that may wait for the thread: what it needs to see of a step when it is not woken at each. */
enum { PREDICT_BUFFERS = 32 };

/* [PREDICT_BUFFERS][max_tokens]; NULL: not read. */
struct predict_buffers {
    struct predict_token *tokens;
    float *hidden;      /* [][][d_model] */
    float *gate;        /* [][][n_experts] */
    uint32_t *selected; /* [][][n_used] */
};

/* A predictor that was chosen: both its halves, and the buffers of the one aside. */
struct predict_set {
    uint64_t number; /* of the choice, unlike all others'; who chooses gives it */
    enum sched_predictor kind;
    struct predict_traits traits;
    struct predictor *in_line, *aside; /* NULL: it has no such half */
    struct predict_buffers buffers;
};
/* NULL: no memory. */
struct predict_set *predict_set_new(enum sched_predictor kind, const struct predict_shape *shape);
/* For what its traits read; predict_set_new does so. False: no memory. */
bool predict_set_allocate(struct predict_set *s, const struct predict_shape *shape);
void predict_set_free(struct predict_set *s); /* takes NULL */

struct predict_aside;

struct predict_aside_options {
    struct predict_shape shape;
    uint32_t lesson_floats; /* the most */
    bool gate_is_logits;    /* what is shown as gate needs a softmax to be probabilities */
    struct counter *shown, *dropped, *late;
};

enum error_code predict_aside_new(const struct predict_aside_options *options,
                                  struct predict_aside **out, struct error *e);
/* Stops the thread; the set in use is freed too. Takes NULL. */
void predict_aside_free(struct predict_aside *a);

/* The rest is the engine's. */

/* From now on the aside half of `set` is the thread's, and so is the one before it, both halves, which it frees. False: all
 * buffers are busy, nothing has changed. */
bool predict_aside_use(struct predict_aside *a, struct predict_set *set);

/* Copies what the set in use reads of it. False: dropped. */
bool predict_aside_show(struct predict_aside *a, const struct predict_seen *seen);
/* The engine is about to wait: the thread is woken for what was shown, where it was not yet. True: it was not. */
bool predict_aside_wake(struct predict_aside *a);

/* The oldest answer; NULL: none. It stays until it is taken. */
struct predict_answer {
    uint64_t set;                 /* its number */
    struct predict_target target; /* of experts */
    uint32_t lesson_layer;        /* where n_experts is 0: a lesson about this layer */
    uint32_t n_experts, n_known;  /* as predictor_list */
    struct predicted *experts;
    float *lesson;
};
const struct predict_answer *predict_aside_answer(struct predict_aside *a);
void predict_aside_taken(struct predict_aside *a);

#endif
