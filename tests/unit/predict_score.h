/* How good a predictor is: a trial shows it a sequence of layers as the worker does, and compares
 * each prediction with what the layer then activates. Pure, as the predictors are. */
#ifndef MOED_TESTS_PREDICT_SCORE_H
#define MOED_TESTS_PREDICT_SCORE_H

#include "sched/predict/predict_internal.h"

/* ---- probabilities and what came true ---- */

enum { SCORE_BINS = 10 };
/* Probabilities are clipped to [SCORE_CLIP, 1 - SCORE_CLIP], so that one wrong certainty does not
 * decide a sum of logarithms. */
#define SCORE_CLIP 0x1p-10

struct predict_score {
    uint64_t layers; /* shown and predicted */
    uint64_t n;      /* experts of these layers */
    double log_loss; /* sum of -ln of the probability of what happened */
    /* Of m activated experts, those among the m most probable; experts of probability 0 do not
     * count. predictions: m, or as many as had a probability. */
    uint64_t activated, predictions, right;
    struct score_bin { /* probabilities of [i / SCORE_BINS, (i + 1) / SCORE_BINS) */
        uint64_t n, activated;
        double sum; /* of the probabilities */
    } bins[SCORE_BINS];
};

/* probability: [n_experts]; activated: [n_experts]; best: scratch, [n_experts]. */
void predict_score_add(struct predict_score *s, const double *probability, const bool *activated,
                       uint32_t n_experts, struct predicted *best);
/* The mean log-loss of an expert; 0 if n is 0. */
double predict_score_log_loss(const struct predict_score *s);
/* The share of activated experts that were among the most probable. */
double predict_score_recall(const struct predict_score *s);
/* The mean distance of a probability's bin from its share of activated experts (the expected
 * calibration error). */
double predict_score_calibration(const struct predict_score *s);

/* ---- a predictor over a sequence ---- */

/* The target's gate on `input`, [n_tokens][d_model]; fills predicted_routing, [n_tokens][n_used].
 */
typedef void predict_trial_gate(void *arg, const struct predict_target *target, const float *input,
                                uint32_t n_tokens, uint32_t *predicted_routing);

struct predict_trial;
/* gate: NULL: nothing is predicted in line. late: predictions and model updates of the background
 * half arrive that many layers later; 0: before the next layer. NULL: no memory. */
struct predict_trial *predict_trial_new(enum sched_predictor kind,
                                        const struct predict_shape *shape, predict_trial_gate *gate,
                                        void *gate_arg, uint32_t late);
/* The same, of a kind, so that a part of the mixture can be scored. */
struct predict_trial *predict_trial_new_of(const struct predictor_kind *kind,
                                           const struct predict_shape *shape,
                                           predict_trial_gate *gate, void *gate_arg, uint32_t late);
void predict_trial_free(struct predict_trial *t); /* takes NULL */

/* Shows the next layer with experts, or the embedding, of a batch of at most shape.max_tokens. All
 * that the kind reads must be set, and selected; with a gate hidden too. */
void predict_trial_show(struct predict_trial *t, const struct predict_seen *seen);
/* Resets the scores: only later predictions count. _scores: [n_layers]. */
void predict_trial_clear(struct predict_trial *t);
const struct predict_score *predict_trial_scores(const struct predict_trial *t);
/* The sum of all layers. */
struct predict_score predict_trial_total(const struct predict_trial *t);
/* A layer's last prediction, [n_experts], if it was for this step; else NULL. */
const double *predict_trial_last(const struct predict_trial *t, uint64_t step, uint32_t layer);

#endif
