/* The background predictor: a thread that gets the layers' inputs and choices from the engine, and
 * answers with predictions and model updates. Neither side waits for the other.
 *
 *     engine --- shown: a ring of buffers, filled in place --------------> thread
 *     engine <-- answers: a ring of predicted experts and model updates --- thread
 *
 * Each ring has one producer and one consumer (base/spsc.h). While all buffers are in use, the
 * engine drops the layer and counts it. An answer that finds no free place, because the engine has
 * not looked for so long, is late and counted.
 *
 * The thread sleeps on a doorbell (ipc/doorbell.h); a wake-up costs the engine a system call. So
 * the engine wakes it at once only where the answer is used directly. Where the result is an input
 * of the in-line half, the engine wakes it when it is about to wait itself, or when it shows the
 * next layer. Where layers yield nothing but updates, the engine wakes it when half of the buffers
 * are full. The thread has a lower priority than inference.
 *
 * The buffers belong to the chosen predictor and hold only what it reads (the traits in
 * lib/sched/predict). `none` and `next-gate` read nothing: the thread sleeps. */
#ifndef MOED_WORKER_PREFETCH_BACKGROUND_PREDICTOR_H
#define MOED_WORKER_PREFETCH_BACKGROUND_PREDICTOR_H

#include "base/error.h"
#include "metrics/metrics.h"
#include "sched/predict/predict.h"

/* Layers that may wait for the thread: enough of a step where it is not woken at each layer. */
enum { PREDICT_BUFFERS = 32 };

/* [PREDICT_BUFFERS][max_tokens]; an array that the predictor does not read is empty. */
struct predict_buffers {
    void *memory; /* of all of them */
    struct predict_token *tokens;
    float *hidden;      /* [][][d_model] */
    float *gate;        /* [][][n_experts] */
    uint32_t *selected; /* [][][n_used] */
};

/* A chosen predictor: its two halves, and the buffers of the background half. */
struct predict_set {
    uint64_t number; /* of the choice, unique; the caller sets it */
    enum sched_predictor kind;
    struct predict_traits traits;
    struct predictor *in_line, *background; /* NULL: there is no such half */
    struct predict_buffers buffers;
};
/* NULL: no memory. */
struct predict_set *predict_set_new(enum sched_predictor kind, const struct predict_shape *shape);
/* Allocates the buffers that its traits read. predict_set_new calls it. False: no memory. */
bool predict_set_allocate(struct predict_set *s, const struct predict_shape *shape);
void predict_set_free(struct predict_set *s); /* takes NULL */

struct background_predictor;

struct background_predictor_options {
    struct predict_shape shape;
    uint32_t update_floats; /* of the longest update */
    bool gate_is_logits;    /* a shown gate needs a softmax to be probabilities */
    struct counter *shown, *dropped, *late;
};

enum error_code background_predictor_new(const struct background_predictor_options *options,
                                         struct background_predictor **out, struct error *e);
/* Stops the thread, and frees the set in use. Takes NULL. */
void background_predictor_free(struct background_predictor *a);

/* The engine's thread calls the rest. */

/* Gives the background half of `set` to the thread, and both halves of the set before it, which the
 * thread frees. False: all buffers are in use, and nothing has changed. */
bool background_predictor_use(struct background_predictor *a, struct predict_set *set);

/* Copies the parts of a layer that the set in use reads. False: the layer was dropped. */
bool background_predictor_show(struct background_predictor *a, const struct predict_seen *seen);
/* Before the engine waits: wakes the thread, if that was put off. Returns whether it was. */
bool background_predictor_wake(struct background_predictor *a);

/* One answer: predicted experts, or a model update for the in-line half. */
struct predict_answer {
    uint64_t set;                 /* number of the set that answered */
    struct predict_target target; /* of experts */
    uint32_t update_layer;        /* where n_experts is 0: the layer that the update is for */
    uint32_t n_experts, n_known;  /* as predictor_list */
    struct predicted *experts;
    float *update;
};
/* The oldest answer, valid until background_predictor_taken; NULL: none. */
const struct predict_answer *background_predictor_answer(struct background_predictor *a);
void background_predictor_taken(struct background_predictor *a);

#endif
