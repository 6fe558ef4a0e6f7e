/* What engine.c and step.c share. */
#ifndef MOED_WORKER_ENGINE_INTERNAL_H
#define MOED_WORKER_ENGINE_INTERNAL_H

#include "engine.h"

#include "device/worker_room.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

/* Rows of logits computed at once for a Logits and for a Logprobs request. A row has the size of the vocabulary, so of
 * those that are sent there are few; for probabilities as many as make it worth to unpack the head for BLAS. */
#define LOGITS_ROWS   8
#define LOGPROBS_ROWS WORKER_LOGITS_ROWS_BLAS
#define RATE_SECONDS  10

struct engine_counters {
    struct counter *finished[FINISH_CANCELLED + 1];
    struct counter *prompt_tokens, *generated_tokens, *token_events, *prefill_ns, *decode_ns, *decode_steps;
    struct counter *decode_paused;
    struct counter *rows_largest, *rows_whole; /* of logits, to be sampled */
    struct gauge *running, *waiting;
    struct gauge *pages_reserved, *pages_free; /* NULL: the KV cache has no pages */
    struct histogram *first_token, *token;
};

/* Tokens generated in one second of the monotonic clock. */
struct rate_second {
    _Atomic uint64_t second;
    _Atomic uint64_t tokens;
};

struct event;

struct engine {
    struct engine_config config;
    pthread_t thread;
    bool started;

    pthread_mutex_t lock; /* guards the next five */
    pthread_cond_t changed;
    struct event *inbox, **inbox_end;
    bool woken, stopping;

    /* the engine thread's */
    struct request *waiting, *running; /* in order of arrival */
    bool *slot_used;                   /* [parallel] */
    uint64_t n_admitted;               /* requests that were given a slot */
    bool paged;                        /* the KV cache is a pool of pages, which memd may limit */
    uint64_t kv_limit;                 /* what the KV cache was made to have at most */
    struct batch_token *batch;
    struct request **batch_requests;   /* [parallel]: of the decode batch */
    float *logits;                     /* [max(parallel, LOGPROBS_ROWS)][vocab] */
    struct sampler *sampler;
    uint32_t *picked;                  /* [parallel]: the decode batch's next tokens */
    float *largest;                    /* [parallel][SAMPLER_LARGEST], where rows' largest logits are had alone; and */
    uint32_t *largest_tokens;          /* whose they are */
    struct strbuf text;                /* of one event */
    bool decode_next;                  /* whose turn it is where there is prefill and decode */

    struct engine_counters counters;
    char reason_labels[FINISH_CANCELLED + 1][24];
    _Atomic uint32_t n_running, n_waiting;
    struct rate_second rate[RATE_SECONDS + 1];
};

/* Run one step. False: nothing to do until something changes. */
bool engine_step(struct engine *g);
/* End one with an error. */
void engine_refuse(struct engine *g, struct request *r, const struct error *e);
/* End the requests that were cancelled. */
void engine_end_cancelled(struct engine *g);
/* End all with an error. */
void engine_end_all(struct engine *g, enum error_code code, const char *text);

#endif
