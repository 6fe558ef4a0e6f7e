/* A recording of the routing of a request's tokens, for a frontend that requests it
 * (Generate.record): the experts that the gates chose and, if requested, the gates' probabilities
 * and some of the gates' inputs.
 *
 * A recording holds the tokens of one step; recording_new allocates all of it. Call recording_begin
 * before a step, recording_layer once for each layer and token in it, and after it recording_next
 * and recording_sent until the frontend has everything. Until then the request does not compute
 * another step. */
#ifndef MOED_WORKER_FORWARD_RECORDING_H
#define MOED_WORKER_FORWARD_RECORDING_H

#include "base/error.h"
#include "model/params.h"

#include <stdbool.h>
#include <stdint.h>

/* The largest event; all events of the window together stay below CHANNEL_QUEUE_BYTES. */
#define RECORDING_EVENT_BYTES (960u << 10)

struct recording_options {
    bool gate;
    /* The gates' inputs of the positions that equal hidden_phase modulo hidden_every; hidden_every
     * 0: of no position. */
    uint32_t hidden_every, hidden_phase;
};

struct recording;

/* For steps of up to max_tokens, or fewer if that would take too much memory (recording_capacity).
 * Borrows p. ERROR_USAGE: the phase is no remainder; ERROR_LIMIT: one token does not fit into an
 * event. */
enum error_code recording_new(const struct model_params *p, const struct recording_options *options,
                              uint32_t max_tokens, struct recording **out, struct error *e);
void recording_free(struct recording *r);            /* takes NULL */
uint64_t recording_bytes(const struct recording *r); /* that it holds; 0 for NULL */
uint32_t recording_capacity(const struct recording *r);

/* Begins the recording of a step with n positions from first on. */
void recording_begin(struct recording *r, uint32_t first, uint32_t n);
/* selected [n_used]; gate [n_experts], as router_select left it; hidden [d_model]. */
void recording_layer(struct recording *r, uint32_t position, uint32_t layer,
                     const uint32_t *selected, const float *gate, const float *hidden);

/* Consecutive positions of the step; L: layers with experts. */
struct recording_part {
    uint32_t first, n;
    const uint16_t *selected; /* [n][L][n_used] */
    const float *gate;        /* [n][L][n_experts]: probabilities; NULL: not requested */
    uint32_t n_hidden;
    const uint32_t *hidden_at; /* [n_hidden] positions */
    const uint16_t *hidden;    /* [n_hidden][L][d_model], half precision */
    size_t selected_values, gate_values, hidden_values;
};
/* True: part of the step is not sent yet. */
bool recording_pending(const struct recording *r);
/* The part that fits into the next event. recording_sent then goes on behind it. */
struct recording_part recording_next(const struct recording *r);
void recording_sent(struct recording *r, const struct recording_part *part);

#endif
