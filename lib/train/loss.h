/* The losses of the networks, per expert. z: logit; p = sigmoid(z); y: 1 if the layer activated the
 * expert, else 0.
 *
 *     BCE    = -y log p - (1 - y) log(1 - p)
 *     focal  = -(1 - q)^gamma log q, q = y ? p : 1 - p
 *     hybrid = lambda weight(e) BCE + (1 - lambda) focal
 *
 * PreScope: "The expert-balancing term incorporates inverse expert frequency". Our reconstruction:
 * weight(e) is 1 / frequency(e), scaled to a mean of 1 over the experts. Frequencies below
 * MIN_SHARE of the mean count as MIN_SHARE. The paper gives neither lambda nor gamma: lambda is
 * 1/2, gamma 2.
 */
#ifndef MOED_TRAIN_LOSS_H
#define MOED_TRAIN_LOSS_H

#include <stddef.h>
#include <stdint.h>

#define LOSS_GAMMA 2.0f

struct loss {
    float lambda;        /* lambda 1 and weight NULL: plain BCE */
    const float *weight; /* [n_experts] */
};

/* counts: [n], activations of each expert. */
void loss_weights(const uint64_t *counts, uint32_t n, float *weight);

/* Fills error, [batch][n]: the derivative of the batch's mean loss by the logits. active:
 * [batch][n_used]. Returns the mean loss over batch and experts. */
double loss_of(const struct loss *l, const float *logits, const uint32_t *active, uint32_t batch,
               uint32_t n, uint32_t n_used, float *error);

#endif
