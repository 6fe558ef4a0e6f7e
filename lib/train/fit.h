/* Trains one network on rows of inputs and of activated experts. */
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
    float warm_epochs;   /* of the schedule; see adam.h */
    float noise, masked; /* deviation of normal noise on the inputs; share of inputs set to 0 */
    struct loss loss;
    /* Called before each batch: the share of the run's time that has passed, 0 where it has no
     * limit; 1 and more: stop. The rate follows it where it is ahead of the epochs, so that a run
     * that time ends has a low rate at its end, too. NULL: no limit. */
    float (*spent)(void *arg);
    void (*after_epoch)(void *arg); /* may be NULL */
    void *arg;
};

/* Leaves in net the calibrated weights of the epoch with the least calibrated log-loss over the
 * n_check rows; epoch 0 is the untrained network. *log_loss: that loss, the mean over rows and
 * experts. A batch is net->max_batch rows. False: no memory. */
bool fit_run(struct net *net, const struct fit_rows *rows, const struct fit_options *options,
             struct noise *noise, double *log_loss);

/* Platt's calibration: the a and b with the least log-loss of sigmoid(a z + b), by Newton's method.
 * logits: [n][n_experts]; active: [n][n_used]. Returns that log-loss. */
double fit_platt(const float *logits, const uint32_t *active, uint32_t n, uint32_t n_experts,
                 uint32_t n_used, double *a, double *b);

#endif
