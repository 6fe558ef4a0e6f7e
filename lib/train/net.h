/* The networks of trained.h during training: all parameters in one array, forward and backward for
 * a batch. */
#ifndef MOED_TRAIN_NET_H
#define MOED_TRAIN_NET_H

#include "sched/predict/trained.h"
#include "train/noise.h"

struct net_shape {
    uint32_t n_in, n_hidden, n_out;
    uint32_t n_gated; /* as in struct trained_network; 0: no block */
    enum trained_activation activation;
    float dropout; /* share of hidden values that training drops */
};

/* The offset of each part in the parameters, in the order of trained.h's bodies. */
struct net_parts {
    size_t b_in, b_first, b_second, b_gate, b_out, n_biases; /* the biases come first */
    size_t w_in, w_first, w_second, w_gate, w_out, n;
};
struct net_parts net_parts(const struct net_shape *s);

struct net {
    struct net_shape shape;
    struct net_parts parts;
    uint32_t max_batch;
    float *w, *gradient; /* [parts.n] */
    /* of a batch, [max_batch][n_hidden]: sums, activations, dropout masks, gradients */
    float *sum[4], *out[4], *mask[3], *back[3];
    float *logits, *error; /* [max_batch][n_out]; error: the loss's derivative by the logits */
    void *memory;          /* of all arrays */
};

/* Random start: matrices from a normal distribution of variance 1 / inputs; biases 0; the last
 * matrices of the network and of the block ten times smaller, so that they add little at first.
 * False: no memory. */
bool net_init(struct net *n, const struct net_shape *shape, uint32_t max_batch, struct noise *r);
void net_fini(struct net *n); /* takes a zeroed one */

/* Makes the network equal to a linear map of its first n_linear inputs: router, [n_out][n_linear],
 * plus bias, [n_out] or NULL. Each output v gets two hidden values, v and -v before the activation
 * f. The map is exact for ReLU and GELU, because f(v) - f(-v) = v. Needs n_hidden >= 2 n_out. The
 * other hidden values stay random and have no effect at first. */
void net_start_linear(struct net *n, const float *router, uint32_t n_linear, const float *bias);

/* Fills n->logits. x: [batch][n_in]. noise NULL: no dropout. */
void net_forward(struct net *n, const float *x, uint32_t batch, struct noise *noise);
/* Fills n->gradient, after net_forward of the same batch and with n->error set. */
void net_backward(struct net *n, const float *x, uint32_t batch);

#endif
