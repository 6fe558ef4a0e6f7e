/* What the layers' gates did with a request's tokens, for a frontend that asked for it (Generate.record): which experts they
 * chose and, where that was asked for too, their probabilities and the input of some of them.
 *
 * A recording has room for the tokens of a step, all of which is allocated when the request comes. Before a step
 * recording_begin, in it recording_layer once a layer and token, after it recording_next and recording_sent until all has
 * gone to the frontend: until then the request computes nothing more. */
#ifndef MOED_WORKER_RECORDING_H
#define MOED_WORKER_RECORDING_H

#include "base/error.h"
#include "model/params.h"

#include <stdbool.h>
#include <stdint.h>

/* The most that an event holds; the window's events together stay below CHANNEL_QUEUE_BYTES. */
#define RECORDING_EVENT_BYTES (960u << 10)

struct recording_options {
    bool gate;
    /* The gates' inputs of the positions that are hidden_phase modulo hidden_every; hidden_every 0: of none. */
    uint32_t hidden_every, hidden_phase;
};

struct recording;

/* For steps of up to max_tokens; fewer where they would take too much memory: recording_room says how many. Borrows p.
 * ERROR_USAGE: a phase that is no remainder; ERROR_LIMIT: one token is too much for an event. */
enum error_code recording_new(const struct model_params *p, const struct recording_options *options,
                              uint32_t max_tokens, struct recording **out, struct error *e);
void recording_free(struct recording *r); /* takes NULL */
uint32_t recording_room(const struct recording *r);

/* The next step computes n positions from first on. */
void recording_begin(struct recording *r, uint32_t first, uint32_t n);
/* selected [n_used]; gate [n_experts], as router_select left it; hidden [d_model]. */
void recording_layer(struct recording *r, uint32_t position, uint32_t layer,
                     const uint32_t *selected, const float *gate, const float *hidden);

/* Some positions of the step, in order; L: layers with experts. */
struct recording_part {
    uint32_t first, n;
    const uint16_t *selected; /* [n][L][n_used] */
    const float *gate;        /* [n][L][n_experts]: probabilities; NULL: not asked for */
    uint32_t n_hidden;
    const uint32_t *hidden_at; /* [n_hidden] positions */
    const uint16_t *hidden;    /* [n_hidden][L][d_model], half precision */
    size_t selected_values, gate_values, hidden_values;
};
/* Whether the step has something that was not sent. */
bool recording_pending(const struct recording *r);
/* What fits into the next event; it is gone once recording_sent says so. */
struct recording_part recording_next(const struct recording *r);
void recording_sent(struct recording *r, const struct recording_part *part);

#endif
