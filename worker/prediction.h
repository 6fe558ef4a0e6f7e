/* What layers still to come will activate: the predictor that is chosen, asked in line and shown things beside inference
 * (predict_aside.h), what it predicted, and how that turned out. */
#ifndef MOED_WORKER_PREDICTION_H
#define MOED_WORKER_PREDICTION_H

#include "base/error.h"
#include "metrics/metrics.h"
#include "predict_aside.h"
#include "sched/predict_kept.h"

struct prediction;

struct prediction_counters {
    /* experts predicted and checked; of those, activated */
    struct counter *guesses[PREDICT_KINDS], *right[PREDICT_KINDS];
    /* beside inference: layers shown, not shown (busy); answers for a layer still ahead and too late */
    struct counter *shown, *dropped, *ahead, *late;
};

/* A prediction was made, for a layer still to come: n experts, and up to n_known those that a cache alone may want to know (as
 * predictor_list). */
typedef void prediction_tell(void *arg, const struct predict_target *target,
                             const struct predicted *experts, uint32_t n, uint32_t n_known);

struct prediction_options {
    struct predict_shape shape;
    enum sched_predictor predictor;
    bool gate_is_logits; /* as predict_aside_options */
    prediction_tell *tell;
    void *tell_arg;
    struct prediction_counters counters;
};

enum error_code prediction_new(const struct prediction_options *options, struct prediction **out,
                               struct error *e);
void prediction_free(struct prediction *p); /* takes NULL */

/* Another predictor, from the next layer on. One thread at a time, any. */
enum error_code prediction_choose(struct prediction *p, enum sched_predictor predictor,
                                  struct error *e);
/* The same of a set that the caller made; taken. */
void prediction_choose_set(struct prediction *p, struct predict_set *set);
bool prediction_is_on(const struct prediction *p); /* somebody predicts, or will from the next layer on */
/* Of a layer, since the predictor was chosen. Any thread. */
struct predict_hits prediction_score(const struct prediction *p, uint32_t layer);

/* The rest is the engine's, in this order for each layer; seen->tokens, hidden and gate may be NULL in begin. With more than
 * shape.max_tokens nothing is predicted. */

/* Before a layer, as often as one likes: takes what came from beside, so that copies may begin. */
void prediction_look(struct prediction *p, uint64_t step, uint32_t layer);
/* The layer was routed: takes what came from beside, checks what was predicted for it. */
void prediction_begin(struct prediction *p, const struct predict_seen *seen);
/* Whether show would show a layer of so many tokens to anybody; PREDICT_EMBEDDING: a step's embedding. */
bool prediction_reads(const struct prediction *p, uint32_t layer, uint32_t n_tokens);
/* Which choice of a predictor is in use, from 1; 0: none yet. The engine's. */
uint64_t prediction_number(const struct prediction *p);
/* As predict_traits.early. */
bool prediction_is_early(const struct prediction *p);
/* Whether prediction_guess reads seen->scores. */
bool prediction_reads_scores(const struct prediction *p);
/* Shows it to the aside half, where that wants it. Also with layer PREDICT_EMBEDDING, before a step's first layer. */
void prediction_show(struct prediction *p, const struct predict_seen *seen);
/* The engine is about to wait for others: as predict_aside_wake. */
bool prediction_wake(struct prediction *p);
/* The i-th layer that is to be predicted from here through its gate, and the input of that gate, [n_tokens][d_model], valid
 * until the next call. False: no more. */
bool prediction_gate(struct prediction *p, const struct predict_seen *seen, uint32_t i,
                     struct predict_target *target, const float **input);
/* What that gate chose, [n_tokens][n_used]. */
void prediction_guess(struct prediction *p, const struct predict_seen *seen,
                      const struct predict_target *target, const uint32_t *guessed);
/* As predict_kept_ahead. */
struct sched_ahead *prediction_ahead(struct prediction *p, const struct predict_target *now,
                                     uint32_t n_tokens, uint32_t *n);

#endif
