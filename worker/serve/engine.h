/* The engine: one thread that computes all requests.
 *
 * Requests join and leave between steps. A step computes a token of every request that generates,
 * or several where they are drafted (speculation.h), and chunks of prompts (step.c). Before each
 * step the engine computes at most a few rows of logits, of one request. An answer has the same
 * bits alone and among others, and whether the prefix cache had a part of its prompt or not
 * (worker/kv/prefix_cache.h).
 *
 * No memory of the KV cache is reserved for a request before it is needed. A request starts when
 * there are pages for its prompt. Where pages run out, the request that started last is suspended:
 * it leaves its slot, waits, and begins again with what the prefix cache still has of it.
 *
 * The engine knows requests and their sinks (response_sink.h), but not the frontends that submit
 * them. */
#ifndef MOED_WORKER_SERVE_ENGINE_H
#define MOED_WORKER_SERVE_ENGINE_H

#include "base/error.h"
#include "base/heartbeat.h"
#include "metrics/metrics.h"
#include "model/serving_limits.h"
#include "request.h"
#include "worker/forward/forward.h"
#include "worker/serve/siblings.h"

struct engine;

/* Everything that it points at is borrowed. */
struct engine_config {
    struct forward *forward;
    struct dense *dense;     /* forward's */
    struct experts *experts; /* forward's */
    struct pool *pool;       /* that forward computes on */
    const struct tokenizer *tokenizer;
    uint32_t vocab, d_model;
    struct prefix_cache *prefixes;
    struct siblings siblings;          /* that share the pool of the prefix cache */
    struct state_snapshots *snapshots; /* NULL: the model has no recurrent layers */
    bool exact;                        /* the prefix cache's */
    uint32_t parallel;                 /* requests at once: slots of the KV cache */
    uint32_t queue;                    /* requests that may wait */
    uint32_t context;                  /* tokens of each, prompt and answer */
    uint32_t batch;                    /* rows of prompts in a batch, at least KV_LARGE_TOKENS */
    uint32_t decode_share; /* percent of the time that answers get while prompts wait; below 100 */
    uint32_t speculate;    /* of model/speculate.h */
    bool waits_for_disk;   /* a step may wait long for the disk: each token is sent before the next
                              step, not held back to share an event */
    struct metrics *metrics;
    struct heartbeat *heartbeat; /* of the engine's thread: beats at each layer; NULL: none */
};

enum error_code engine_new(const struct engine_config *config, struct engine **out,
                           struct error *e);
enum error_code engine_start(struct engine *g, struct error *e);
/* Stops the thread, then fails all requests with ERROR_UNAVAILABLE. */
void engine_stop(struct engine *g);
void engine_free(struct engine *g); /* after engine_stop; takes NULL */

/* The next three: any thread; they neither block nor allocate. */

/* Takes r, whose sink gets exactly one call of done or failed, perhaps before engine_submit
 * returns. ERROR_UNAVAILABLE: the engine is stopping; ERROR_BUSY: too many requests wait, and
 * no other worker had taken r. r stays the caller's then. */
enum error_code engine_submit(struct engine *g, struct request *r, struct error *e);
/* Ends r before the next step with done(FINISH_CANCELLED), unless it ends by itself before. r is
 * submitted, and the caller makes sure (with a lock that its sink's done and failed take) that
 * neither has returned. */
void engine_cancel(struct engine *g, struct request *r);
/* The same with done(FINISH_END): the submitter has all that it wants. */
void engine_complete(struct engine *g, struct request *r);
/* A sink that was behind has credits again. */
void engine_resume(struct engine *g);

/* Runs work on the engine's thread, between steps, and waits for it. False: the engine is stopping,
 * or its step has not ended in time; work does not run. Not from the engine's thread. */
bool engine_call(struct engine *g, void (*work)(void *arg), void *arg);

/* True: no request runs or waits. Any thread. */
bool engine_is_idle(struct engine *g);

struct engine_status {
    uint32_t running, waiting;
    uint64_t tokens_total;
    uint64_t prompt_tokens, cached_tokens; /* of prompts: computed; found in the prefix cache */
    uint64_t decode_ns;                    /* in decode steps, since start */
    uint64_t drafted, accepted;            /* tokens (speculation.h) */
    double tokens_per_s;                   /* generated (token_rate.h) */
};
struct engine_status engine_status(struct engine *g); /* any thread */

#endif
