/* How good a predictor is: it is shown a sequence of layers as the worker shows them, and what it says of each is held against
 * what the layer then activates. Pure, as the predictors are. */
#ifndef MOED_SCHED_PREDICT_SCORE_H
#define MOED_SCHED_PREDICT_SCORE_H

#include "sched/predict.h"

/* ---- probabilities against what came of them ---- */

enum { SCORE_BINS = 10 };
/* A probability counts as no less than this and no more than 1 minus it, so that one wrong certainty does not decide a sum of
 * logarithms. */
#define SCORE_CLIP 0x1p-10

struct predict_score {
    uint64_t layers; /* that were predicted, of those shown */
    uint64_t n;      /* experts of them */
    double log_loss; /* sum of -ln of the probability of what happened */
    /* Of m activated experts, how many are among the m most probable; experts of probability 0 are not among them. guesses:
     * m, or as many as had a probability. */
    uint64_t activated, guesses, right;
    struct score_bin { /* probabilities of [i / SCORE_BINS, (i + 1) / SCORE_BINS) */
        uint64_t n, activated;
        double sum; /* of the probabilities */
    } bins[SCORE_BINS];
};

/* probability: [n_experts]; activated: [n_experts]; best: scratch, [n_experts]. */
void predict_score_add(struct predict_score *s, const double *probability, const bool *activated,
                       uint32_t n_experts, struct predicted *best);
/* An expert's mean log-loss; 0 of nothing. */
double predict_score_log_loss(const struct predict_score *s);
/* Of the activated experts, the share that was among the most probable. */
double predict_score_recall(const struct predict_score *s);
/* The mean distance of a probability's bin from its share of activated experts (the expected calibration error). */
double predict_score_calibration(const struct predict_score *s);

/* ---- a predictor over a sequence ---- */

/* The target's gate on `input`, [n_tokens][d_model]: what it chooses, [n_tokens][n_used]. */
typedef void predict_trial_gate(void *arg, const struct predict_target *target, const float *input,
                                uint32_t n_tokens, uint32_t *guessed);

struct predict_trial;
/* gate: NULL where nobody can multiply; then nothing is predicted in line. late: answers and lessons of the aside half arrive
 * after that many more layers; 0: before the next one. NULL: no memory. */
struct predict_trial *predict_trial_new(enum sched_predictor kind,
                                        const struct predict_shape *shape, predict_trial_gate *gate,
                                        void *gate_arg, uint32_t late);
void predict_trial_free(struct predict_trial *t); /* takes NULL */

/* The next layer with experts, or the embedding, of a batch of at most shape.max_tokens. All that the kind reads must be given, and what
 * was selected; hidden too where there is a gate. */
void predict_trial_show(struct predict_trial *t, const struct predict_seen *seen);
/* What is said of a layer from now on, and not what was said before, counts in its score: [n_layers]. */
void predict_trial_clear(struct predict_trial *t);
const struct predict_score *predict_trial_scores(const struct predict_trial *t);
/* Of all layers together. */
struct predict_score predict_trial_total(const struct predict_trial *t);
/* What was said of a layer last, [n_experts], if it was of this step; else NULL. */
const double *predict_trial_said(const struct predict_trial *t, uint64_t step, uint32_t layer);

#endif
