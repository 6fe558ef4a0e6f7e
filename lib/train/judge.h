/* Judges the predictions of a layer on the held-out tokens. It calls the predictors of lib/sched as
 * the worker does: one token at a time in the order of the text, with the trained predictors.
 * Predictors with model updates at run time make them here too.
 *
 * The log-loss needs a probability for each expert, but a predictor gives 0 to the experts that it
 * does not predict. Those experts share the rest of n_used, at least 0.1 % each. */
#ifndef MOED_TRAIN_JUDGE_H
#define MOED_TRAIN_JUDGE_H

#include "train/samples.h"
#include "train/train.h"

/* The distance between the layer that a predictor reads and the layer that it predicts. */
uint32_t judge_distance(enum train_judged which, uint32_t stride);

/* JUDGED_NEXT_GATE, JUDGED_FAR_GATE and JUDGED_RESIDUAL need the trace's routers. predictors: its
 * header.stride is the MLPs'. out->n is 0 if the predictor has nothing for the layer. */
enum error_code judge(const struct samples *s, const struct trained_predictors *predictors,
                      enum train_judged which, uint32_t layer, struct train_score *out,
                      struct error *e);

#endif
