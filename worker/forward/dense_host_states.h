/* The states of recurrent layers on this process's threads: what dense_host_recurrent.c, which owns
 * them, and dense_host_mamba2.c share. */
#ifndef MOED_WORKER_FORWARD_DENSE_HOST_STATES_H
#define MOED_WORKER_FORWARD_DENSE_HOST_STATES_H

#include "dense_host_internal.h"

enum { CHANNELS_AT_ONCE = 256 };

/* Adjacent rows of one slot. */
struct delta_run {
    uint32_t slot, first, n;
};

struct delta_states {
    size_t slot_floats, layer_floats;
    uint32_t n_slots;
    uint32_t *index; /* [n_layers]: recurrent layers before this one */
    uint32_t *next;  /* [n_slots][recurrent layers]: the position that comes next */
    uint32_t n_recurrent;
    float *states;            /* [n_slots][slot_floats] */
    struct delta_run *runs;   /* [max_tokens]: of the batch */
    float *decay, *beta;      /* [max_tokens][v_heads]; Mamba2: beta is dt */
    float *k_scale, *q_scale; /* [k_dim]: the weights that make an RMS norm the L2 norm */
};

/* A part of a run: the rows up to one after which the state is copied, or to the run's end. */
struct delta_piece {
    uint32_t first, n;
    float *copy; /* of the layer's state; NULL: none */
};

/* Of a causal convolution: [channels][taps], [channels] or NULL. */
struct convolution_weights {
    const float *taps, *bias;
};

/* The state of a layer. */
float *dense_host_state_of(const struct delta_states *s, uint32_t slot, uint32_t layer);
/* Finds the batch's runs, and begins the states of those at position 0. A state whose next position
 * is another would give a wrong answer: that is our bug. */
uint32_t dense_host_begin_runs(struct dense_host *h, uint32_t layer);
/* The piece that begins with row t of a run. */
struct delta_piece dense_host_piece_at(const struct dense_host *h, uint32_t layer,
                                       const struct delta_run *run, uint32_t t);
/* One head's step: `state` of `floats` floats through the rows of a piece. */
typedef void dense_host_step(const void *job, uint32_t head, float *state,
                             const struct delta_piece *piece);
/* Steps one head through the rows of a run, and copies its state where a piece says so. chunk: the
 * run's number * v_heads + the head. */
void dense_host_step_head(const struct dense_host *h, uint32_t layer, uint32_t chunk, size_t floats,
                          dense_host_step *step, const void *job);
/* Convolves channels [first, first + n) of a run in place, in x [rows][width] of the batch. */
void dense_host_convolve_run(const struct dense_host *h, uint32_t layer,
                             const struct delta_run *run, const struct convolution_weights *w,
                             uint32_t first, uint32_t n, float *x, size_t width, bool silu);

#endif
