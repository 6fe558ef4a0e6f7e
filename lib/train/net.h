/* Networks of learned.h while they are trained: parameters as one row of numbers, forward and backward for a batch. */
#ifndef MOED_TRAIN_NET_H
#define MOED_TRAIN_NET_H

#include "sched/learned.h"
#include "train/noise.h"

struct net_shape {
    uint32_t n_in, n_hidden, n_out;
    uint32_t n_gated; /* as learned_network's; 0: no block */
    enum learned_activation activation;
    float dropout; /* share of hidden values that training leaves out */
};

/* Where each part lies in the parameters: the order of learned.h's bodies. */
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
    /* of a batch, [max_batch][n_hidden]: sums, activations, masks of dropout, products of the block */
    float *sum[4], *out[4], *mask[3], *back[3];
    float *logits, *error; /* [max_batch][n_out]; error: the loss by the logits */
};

/* Random: matrices He-like, a normal of variance 1 / inputs; biases 0; the block's last matrix small, so that it begins as
 * almost nothing. False: no memory. */
bool net_init(struct net *n, const struct net_shape *shape, uint32_t max_batch, struct noise *r);
void net_fini(struct net *n); /* takes a zeroed one */

/* Begins as the linear map `router`, [n_out][n_linear], of the first n_linear inputs, plus bias, [n_out]: each output gets two
 * hidden values, v and -v before the activation f, which f(v) - f(-v) = v makes exact for ReLU and GELU. Needs
 * n_hidden >= 2 n_out; the other hidden values stay random and begin without effect. */
void net_start_linear(struct net *n, const float *router, uint32_t n_linear, const float *bias);

/* x: [batch][n_in]; n->logits is filled. noise NULL: no dropout. */
void net_forward(struct net *n, const float *x, uint32_t batch, struct noise *noise);
/* After net_forward of the same batch, with n->error set: fills n->gradient. */
void net_backward(struct net *n, const float *x, uint32_t batch);

#endif
