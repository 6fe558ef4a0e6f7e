/* The engine: the thread that computes, and runs the requests, all of them at once.
 *
 * Between steps requests join and leave. A step is either one piece of one request's prompt (prefill, in
 * pieces of PREFILL_TOKENS) or one token of every request that is generating (decode, one batch); where there
 * is both, they alternate, so neither waits for the other for long. Before it at most one request's rows of
 * logits are computed, a few of them. Pieces of a prompt never share a batch
 * with another request, so an answer is the same alone and among others, to the bit.
 */
#ifndef MOED_WORKER_ENGINE_H
#define MOED_WORKER_ENGINE_H

#include "base/error.h"
#include "forward.h"
#include "metrics/metrics.h"
#include "model/serving_limits.h"
#include "request.h"

struct engine;

struct engine_config {
    struct forward *forward;
    struct dense *dense; /* forward's */
    struct experts *experts; /* forward's */
    struct pool *pool;   /* that forward computes on */
    const struct tokenizer *tokenizer;
    uint32_t vocab, d_model;
    uint32_t parallel; /* requests at once: slots of the KV cache */
    uint32_t context;  /* of each */
    bool waits_for_disk; /* a step may, for long: what was computed is not held back for the next one */
    struct metrics *metrics;
};

enum error_code engine_new(const struct engine_config *config, struct engine **out,
                           struct error *e);
enum error_code engine_start(struct engine *g, struct error *e);
/* Ends all requests with a retry error, stops the thread. */
void engine_stop(struct engine *g);
void engine_free(struct engine *g); /* after engine_stop; takes NULL */

/* Any thread. engine_submit takes r. */
void engine_submit(struct engine *g, struct request *r);
void engine_cancel(struct engine *g, struct frontend *f, uint64_t id);
/* The frontend has gone and asks nothing more: its requests end, then frontend_release. */
void engine_close_frontend(struct engine *g, struct frontend *f);
/* Something changed that a paused request may wait for (an acknowledgement). */
void engine_wake(struct engine *g);

struct engine_status {
    uint32_t running, waiting;
    uint64_t tokens_total;
    uint64_t decode_ns;  /* in decode steps, since start */
    double tokens_per_s; /* generated, over the last 10 s */
};
struct engine_status engine_status(struct engine *g);

#endif
