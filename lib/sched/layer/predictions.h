/* The predictions of a serving or replayed model, from both halves of its predictor. This module
 * reports each prediction to the owner, keeps it until the layer is routed, and then checks it. The
 * worker's engine and moed-replay have one object each.
 *
 * Pure: no clock, no I/O, no threads; only layer_predictions_new allocates memory. */
#ifndef MOED_SCHED_LAYER_PREDICTIONS_H
#define MOED_SCHED_LAYER_PREDICTIONS_H

#include "layer.h"
#include "sched/predict/predict_pending.h"

struct layer_predictions;

/* A prediction was made: the owner reports it to memd. */
typedef void layer_predictions_report(void *arg, const struct layer_prediction *prediction);

struct layer_predictions *layer_predictions_new(const struct predict_shape *shape,
                                                layer_predictions_report *report, void *arg);
void layer_predictions_free(struct layer_predictions *p); /* takes NULL */

/* Changes the predictor and drops all predictions. in_line: borrowed; NULL: the predictor has no
 * in-line half. */
void layer_predictions_use(struct layer_predictions *p, const struct predict_traits *traits,
                           struct predictor *in_line);

/* A layer was routed: the in-line half observes it. Returns the hits of the layer's prediction. */
struct predict_hits layer_predictions_routed(struct layer_predictions *p,
                                             const struct predict_seen *seen);

/* The i-th layer whose gate is to be evaluated on *input, [n_tokens][d_model], at the layer of
 * `seen`. False: i is past the last one. */
bool layer_predictions_gate(struct layer_predictions *p, const struct predict_seen *seen,
                            uint32_t i, struct predict_target *target, const float **input);
/* Takes the choice of that gate: `routing`, [n_tokens][n_used]. */
void layer_predictions_from_gate(struct layer_predictions *p, const struct predict_seen *seen,
                                 const struct predict_target *target, const uint32_t *routing);

/* Takes a prediction of the background half. next: the first layer that is not yet routed. False:
 * the prediction is too late, or a gate has given a better one since. */
bool layer_predictions_answer(struct layer_predictions *p, const struct layer_prediction *answer,
                              const struct predict_target *next);

/* As predict_pending_upcoming. */
struct sched_upcoming *layer_predictions_upcoming(struct layer_predictions *p,
                                                  const struct predict_target *now,
                                                  uint32_t n_tokens, uint32_t *n);

#endif
