/* The steps of a replay: which sequences of a trace share a batch. Each sequence's prompt has steps
 * of its own; then the sequence is decoded in the batch, one token a step. When a sequence ends,
 * the next one of the trace takes its place. The replay ends when too few sequences are left to
 * fill the batch, so every step of decoding has the same number of tokens. */
#ifndef MOED_REPLAY_STEPS_H
#define MOED_REPLAY_STEPS_H

#include "bench/replay/predicting.h"

enum { STEPS_CHUNK = 512 };

struct steps_options {
    uint32_t batch;      /* sequences at once */
    uint32_t prompt;     /* tokens of each sequence's prompt; 0: as recorded */
    uint32_t chunk;      /* tokens of a prompt in one step; 0: STEPS_CHUNK */
    uint64_t max_tokens; /* of the trace; 0: all */
};

struct steps {
    const struct trace *trace;
    struct steps_options options; /* chunk is set */
    uint64_t tokens_left;
    uint32_t next_sequence, n_running;
    struct predicting_token *running; /* [batch] */
    struct predicting_token *tokens;  /* of the step */
    uint32_t capacity;
};

/* s must be zeroed. False: no memory. */
bool steps_init(struct steps *s, const struct trace *trace, const struct steps_options *options);
void steps_fini(struct steps *s);
/* Fills s->tokens for the next step and returns their number; 0: the replay is over. *decoding: the
 * step is a decode step, not a prompt. */
uint32_t steps_next(struct steps *s, bool *decoding);

#endif
