/* The chosen predictor of the layers still to come: its in-line half, its background half
 * (background_predictor.h), its pending predictions, and how many of them were right. */
#ifndef MOED_WORKER_PREFETCH_PREDICTION_H
#define MOED_WORKER_PREFETCH_PREDICTION_H

#include "base/error.h"
#include "metrics/metrics.h"
#include "background_predictor.h"
#include "sched/layer/predictions.h"

struct prediction;

struct prediction_counters {
    /* experts predicted for a layer that was then routed; of those, activated */
    struct counter *predictions[PREDICT_KINDS], *right[PREDICT_KINDS];
    /* background half: layers shown, and dropped (no free buffer); answers in time for their layer,
     * and too late */
    struct counter *shown, *dropped, *in_time, *late;
};

struct prediction_options {
    struct predict_shape shape;
    enum sched_predictor predictor;
    bool gate_is_logits;              /* as background_predictor_options */
    layer_predictions_report *report; /* called for each prediction of a layer still to come */
    void *report_arg;
    struct prediction_counters counters;
};

enum error_code prediction_new(const struct prediction_options *options, struct prediction **out,
                               struct error *e);
void prediction_free(struct prediction *p); /* takes NULL */

/* Another predictor, from the next layer on. One thread at a time, any. */
enum error_code prediction_choose(struct prediction *p, enum sched_predictor predictor,
                                  struct error *e);
/* The same with a set that the caller made. Takes it. */
void prediction_choose_set(struct prediction *p, struct predict_set *set);
/* Whether a predictor other than `none` is in use, or will be from the next layer on. */
bool prediction_is_on(const struct prediction *p);
/* The hits of one layer since the predictor was chosen. Any thread. */
struct predict_hits prediction_score(const struct prediction *p, uint32_t layer);

/* The engine's thread calls the rest, in this order for each layer. seen->tokens, hidden and gate
 * may be NULL in begin. In a step of more than shape.max_tokens nothing is predicted. */

/* Before a layer, any number of times: takes the background half's answers, so that copies begin.
 */
void prediction_look(struct prediction *p, uint64_t step, uint32_t layer);
/* The layer was routed: checks its predictions, and takes answers. */
void prediction_begin(struct prediction *p, const struct predict_seen *seen);
/* Whether the background half reads a layer of n_tokens; PREDICT_EMBEDDING: a step's embedding. */
bool prediction_reads(const struct prediction *p, uint32_t layer, uint32_t n_tokens);
/* The number of the choice in use, from 1; 0: none yet. */
uint64_t prediction_number(const struct prediction *p);
/* As predict_traits.early. */
bool prediction_is_early(const struct prediction *p);
/* Whether prediction_from_gate reads seen->scores. */
bool prediction_reads_scores(const struct prediction *p);
/* Shows a layer to the background half, where it reads that; or PREDICT_EMBEDDING, before a step's
 * first layer. */
void prediction_show(struct prediction *p, const struct predict_seen *seen);
/* Before the engine waits: background_predictor_wake. */
bool prediction_wake(struct prediction *p);
/* The i-th layer whose gate the caller evaluates here, and the input of that gate,
 * [n_tokens][d_model], valid until the next call. False: no more. */
bool prediction_gate(struct prediction *p, const struct predict_seen *seen, uint32_t i,
                     struct predict_target *target, const float **input);
/* The prediction from that gate's choice, [n_tokens][n_used]. */
void prediction_from_gate(struct prediction *p, const struct predict_seen *seen,
                          const struct predict_target *target, const uint32_t *routing);
/* As predict_pending_upcoming. */
struct sched_upcoming *prediction_upcoming(struct prediction *p, const struct predict_target *now,
                                           uint32_t n_tokens, uint32_t *n);

#endif
