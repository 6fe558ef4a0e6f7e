/* Logistic regression with few features, fitted online:
 *
 *     p = 1 / (1 + exp(-(w[0] + sum w[1 + i] x[i])))
 *
 * A step takes a batch of samples. With g the gradient of their log-loss and S the sum of all
 * second derivatives so far, those of MEMORY steps ago counting 1 / e, w += (S + ridge)^-1 g. This
 * is the online Newton step (Hazan, Agarwal, Kale 2007, "Logarithmic regret algorithms for online
 * convex optimization"). Departure: the curvature itself takes the place of its bound g g^T. No
 * step moves a weight by more than one half. */
#ifndef MOED_SCHED_PREDICT_LOGISTIC_H
#define MOED_SCHED_PREDICT_LOGISTIC_H

#include <stdint.h>

enum { LOGISTIC_MOST = 7 }; /* features */

struct logistic {
    uint32_t n; /* features */
    double w[1 + LOGISTIC_MOST];
    double curvature[1 + LOGISTIC_MOST][1 + LOGISTIC_MOST]; /* S; its lower half */
    double steps;                                           /* that S represents */
};

/* Features are log-odds; the first weights give their mean. */
void logistic_init(struct logistic *r, uint32_t n);
/* Copies `from`, with the curvature scaled to `steps` steps. */
void logistic_inherit(struct logistic *r, const struct logistic *from, double steps);

/* Rows of samples are padded to a multiple of LOGISTIC_LANES. */
enum { LOGISTIC_LANES = 8 };
/* x: [n features] to [n_samples]. p: [n_samples]. */
void logistic_predict(const struct logistic *r, const float *const *x, uint32_t n_samples,
                      float *p);
/* p: what logistic_predict returned for x; target: 0 or 1; scratch: [n_samples]. All padded; the
 * padding is overwritten. */
void logistic_learn(struct logistic *r, const float *const *x, uint32_t n_samples, const float *p,
                    const float *target, float *scratch);

#endif
