/* The losses of the networks, per expert, on logits z with p = sigmoid(z), y 1 where the layer activated it.
 *
 *     BCE    = -y log p - (1 - y) log(1 - p)
 *     focal  = -(1 - q)^gamma log q, q = y ? p : 1 - p
 *     hybrid = lambda weight(e) BCE + (1 - lambda) focal
 *
 * PreScope: "The expert-balancing term incorporates inverse expert frequency". Reconstructed: weight(e) is 1 / frequency(e), made to
 * be 1 in the mean over experts; the weight of an expert that is never activated is that of one of MIN_SHARE of the mean
 * frequency. Other members are left to us: lambda 1/2, gamma 2. */
#ifndef MOED_TRAIN_LOSS_H
#define MOED_TRAIN_LOSS_H

#include <stddef.h>
#include <stdint.h>

#define LOSS_GAMMA 2.0f

struct loss {
    float lambda;        /* 1 and weight NULL: plain BCE */
    const float *weight; /* [n_experts] */
};

/* counts: [n], how often each expert was activated. */
void loss_weights(const uint64_t *counts, uint32_t n, float *weight);

/* Fills error, [batch][n]: the loss's derivative by the logits, of the mean over the batch. active: [batch][n_used]. Returns
 * the mean over the batch and the experts of the loss. */
double loss_of(const struct loss *l, const float *logits, const uint32_t *active, uint32_t batch,
               uint32_t n, uint32_t n_used, float *error);

#endif
