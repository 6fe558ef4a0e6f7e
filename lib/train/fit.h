/* Training one network on rows of inputs and the experts that were activated. */
#ifndef MOED_TRAIN_FIT_H
#define MOED_TRAIN_FIT_H

#include "train/loss.h"
#include "train/net.h"

struct fit_rows {
    const float *x;         /* [n_train + n_check][n_in] */
    const uint32_t *active; /* [n_train + n_check][n_used] */
    uint32_t n_used, n_train, n_check;
};

struct fit_options {
    uint32_t epochs;
    float rate, decay;
    float warm_epochs;   /* of the schedule, adam.h */
    float noise, masked; /* added to inputs: a normal of this deviation; share of inputs made 0 */
    struct loss loss;
    /* After each epoch; false: enough. */
    bool (*more)(void *arg, uint32_t epoch);
    void *arg;
};

/* Leaves in net the weights of the epoch after which the calibrated log-loss of the n_check rows was least (epoch 0: untrained),
 * calibrated; *log_loss is that, the mean over rows and experts. A batch is net->max_batch rows. False: no memory. */
bool fit_run(struct net *net, const struct fit_rows *rows, const struct fit_options *options,
             struct noise *noise, double *log_loss);

/* Platt's calibration: a and b that make the log-loss of sigmoid(a z + b) least, by Newton's steps. logits: [n][n_experts].
 * Returns that log-loss. */
double fit_platt(const float *logits, const uint32_t *active, uint32_t n, uint32_t n_experts,
                 uint32_t n_used, double *a, double *b);

#endif
