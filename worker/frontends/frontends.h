/* Frontends: their private channels, and the messages on them. A frontend's own thread (its
 * channel's) answers questions about tokens and the model. Generate, Logits and Logprobs requests
 * go to the engine, each with a sink that sends its results on the channel. */
#ifndef MOED_WORKER_FRONTENDS_FRONTENDS_H
#define MOED_WORKER_FRONTENDS_FRONTENDS_H

#include "base/error.h"
#include "metrics/metrics.h"
#include "model/pool_map.h"
#include "model/sampling.h"
#include "tokenizer/tokenizer.h"

#include <stddef.h>
#include <stdint.h>

/* How many events (Tokens, LogitsRow, Logprobs, Routing) a frontend may have unacknowledged. While
 * it has as many, the engine computes nothing for its requests. */
#define FRONTEND_WINDOW 64

/* The memory of all frontends' channels together (struct channel_group). */
#define FRONTENDS_BYTES (256u << 20)

/* The memory of requests that run or wait: of a client's, of a process's, and of all. */
#define CLIENT_REQUEST_BYTES    (192ull << 20)
#define PROCESS_REQUEST_BYTES   (224ull << 20)
#define FRONTENDS_REQUEST_BYTES (256ull << 20)

/* Requests that run or wait, and their memory; or the most of it. */
struct request_load {
    uint32_t requests;
    uint64_t bytes;
};

struct engine;
struct frontends;

struct frontends_model { /* for ModelReply and limits; borrowed */
    const struct pool_map *map;
    const struct tokenizer *tokenizer;
    const char *chat_template;        /* "" where there is none */
    const char *chat_template_tools;  /* the same */
    const char *quantization;         /* the same */
    const char *chat_template_kwargs; /* the same */
    uint32_t reasoning_budget;        /* tokens; 0: none */
    const char *kv_type;
    uint64_t identity; /* of the file */
    bool reproducible;
    struct sampling sampling; /* the defaults */
    const struct token_list *end_tokens;
    const char *device;
    uint32_t context;
    /* Of a process, all its frontends together, and of each of its clients (Generate.client). A
     * process may have a part of what all may, so that others get in, and a client a part of that.
     */
    struct request_load process, client;
    uint64_t most_bytes_all;          /* FRONTENDS_REQUEST_BYTES */
    struct counter *schemas_replaced; /* grammars.h; NULL: not counted */
};

/* The limits of a worker that computes `parallel` requests at once and lets `queue` wait. */
void frontends_set_limits(struct frontends_model *model, uint32_t parallel, uint32_t queue);

/* Borrows engine. */
enum error_code frontends_new(const struct frontends_model *model, struct engine *engine,
                              struct frontends **out, struct error *e);
/* Closes every channel. After engine_stop, before engine_free. Takes NULL. */
void frontends_free(struct frontends *s);
/* From now on frontends are not told that a request failed because the worker ends: its channel
 * closes, and libmoed continues the request with the next worker. Any thread. Takes NULL. */
void frontends_end(struct frontends *s);
uint32_t frontends_count(struct frontends *s); /* any thread */

/* Enters a new frontend. client: what it calls itself, for the log. The caller then calls
 * frontends_open. Any thread. */
struct frontend;
enum error_code frontends_attach(struct frontends *s, const char *client, uint32_t pid,
                                 struct frontend **out, struct error *e);
/* Opens the frontend's channel over fd, which it takes; fd -1: the frontend has gone. Ends the
 * frontend where that fails. */
void frontends_open(void *frontend, int fd);

#endif
