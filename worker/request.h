/* A frontend's request while the worker has it. */
#ifndef MOED_WORKER_REQUEST_H
#define MOED_WORKER_REQUEST_H

#include "base/strbuf.h"
#include "recording.h"
#include "sampler.h"
#include "tokenizer/stream.h"
#include "tokenizer/tokenizer.h"

#include <stdbool.h>
#include <stdint.h>

struct frontend;

enum request_kind { REQUEST_GENERATE, REQUEST_LOGITS, REQUEST_LOGPROBS };

/* How a Generate ended; the values of Moed__V1__Done__Reason. */
enum finish_reason {
    FINISH_NONE,
    FINISH_END,     /* an end-of-generation token */
    FINISH_STOP,    /* a stop string */
    FINISH_LENGTH,  /* max_tokens */
    FINISH_CONTEXT, /* the context is full */
    FINISH_CANCELLED,
};

#define REQUEST_MAX_STOPS 16

struct request {
    struct request *next;      /* in the engine's list */
    struct frontend *frontend; /* borrowed: outlives its requests */
    uint64_t id;               /* the frontend's */
    enum request_kind kind;

    /* what is asked, fixed once submitted */
    struct sampling sampling;
    uint32_t max_tokens; /* 0: no limit but the context */
    bool ignore_end, stepwise;
    bool prompt_only; /* a Generate without an answer */
    struct strbuf stops[REQUEST_MAX_STOPS];
    uint32_t n_stops;
    uint32_t n_prompt;
    uint32_t n_prefill;          /* positions of the prompt that are computed, from 0 on */
    struct recording *recording; /* owned; NULL: not asked for */

    /* progress; the engine's */
    bool cancelled;
    int64_t slot;             /* of the KV cache; -1: waiting */
    uint64_t serial;          /* of those that were given a slot; unlike id, the engine's own */
    struct token_list tokens; /* prompt, then answer */
    uint32_t n_past;          /* positions in the cache */
    uint64_t random_state;
    struct token_stream stream;
    struct strbuf text; /* decoded and not sent: it may be the start of a stop string */
    uint32_t n_generated;
    uint64_t submitted_ns, started_ns, first_ns, last_ns;
    /* The last n_unsent tokens, and their text, which are to be sent; where there are any, a credit of the frontend's is kept. */
    uint32_t n_unsent;
    struct strbuf unsent;
    uint64_t sent_ns; /* when the last ones were */

    enum finish_reason ending; /* nothing more is computed: what is recorded is still to be sent */

    /* logits and logprobs: position i's row of logits says what follows token i. Wanted are the rows from
     * next_row to n_prefill; the hidden values of some that are computed and not sent: */
    uint32_t next_row;
    float *hidden; /* [PREFILL_TOKENS][d_model], of positions from hidden_begin on */
    uint32_t hidden_begin, n_hidden;
};

/* Zeroed but for the stream and slot; NULL: out of memory. */
struct request *request_new(const struct tokenizer *t, struct frontend *frontend, uint64_t id,
                            enum request_kind kind);
void request_free(struct request *r); /* takes NULL */

/* Positions that it may fill at most, of a context of so many: a token that is generated and not computed has none. */
uint32_t request_positions(const struct request *r, uint32_t context);

/* Feed the token just generated: *out gets the text that can be sent now. True when a stop string has come:
 * *out then ends before it and the rest is dropped. */
bool request_push_token(struct request *r, uint32_t token, struct strbuf *out);
/* The end without a stop string: what was held back. */
void request_flush(struct request *r, struct strbuf *out);

#endif
