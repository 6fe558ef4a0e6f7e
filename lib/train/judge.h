/* How good predictions of a layer are, on the tokens held out. The predictors of lib/sched are asked just as when serving, one
 * token at a time in the order of the text, with what lies in the file; those that learn while serving do so here.
 *
 * For the log-loss an expert needs a probability, and a predictor gives 0 to all that it does not guess: those share what is left
 * of n_used, but have at least 0.1 % each. The same for all predictors. */
#ifndef MOED_TRAIN_JUDGE_H
#define MOED_TRAIN_JUDGE_H

#include "train/samples.h"
#include "train/train.h"

/* The distance of who is judged from the layer that he predicts. */
uint32_t judge_ahead(enum train_judged who, uint32_t stride);

/* The gates need the trace's routers. learned: the trained file; its header.stride is the MLPs'. Not judged where it has nothing
 * of the layer. */
enum error_code judge(const struct samples *s, const struct sched_learned *learned,
                      enum train_judged who, uint32_t layer, struct train_score *out,
                      struct error *e);

#endif
