/* What the files of frontends share: frontends.c (all frontends, the reaper), frontend.c (the
 * messages that one sends), frontend_sampling.c (the sampling parameters in them),
 * frontend_reasoning.c (the limits of reasoning in them), frontend_grammar.c (the grammars in
 * them), frontend_sink.c (the messages that it gets), frontend_requests.c (its requests and its
 * end). Each uses only those named after it. */
#ifndef MOED_WORKER_FRONTENDS_FRONTENDS_INTERNAL_H
#define MOED_WORKER_FRONTENDS_FRONTENDS_INTERNAL_H

#include "worker/serve/response_sink.h"
#include "frontends.h"

#include "ipc/channel.h"

#include "session.pb-c.h"

#include <pthread.h>
#include <stdatomic.h>

struct grammars;
struct request;

/* A request that the engine has, from before engine_submit until the sink's done or failed. */
struct frontend_request {
    struct frontend_request *next; /* in frontend->requests */
    struct frontend *frontend;
    struct request *request;
    uint64_t id;    /* the frontend's */
    uint64_t bytes; /* request_bytes when it was entered */
    uint64_t client;
    bool over; /* frontends->lock guards it; frontend_end_request */
};

struct frontend {
    struct frontend *next;      /* in frontends->all; frontends->lock guards it and the next five */
    struct frontend *next_reap; /* in frontends->to_reap */
    struct frontend_request *requests;
    uint32_t n_requests;
    uint64_t request_bytes;
    bool silent; /* the reaper has closed the channel: no message comes in any more */
    struct frontends *frontends;
    pthread_mutex_t lock;    /* guards channel: held while it is made, used or taken away */
    struct channel *channel; /* NULL once the reaper has it */
    uint32_t number;
    uint64_t process;       /* the same for all frontends of one; frontends->lock guards it */
    _Atomic int64_t window; /* credits: events that may still be sent */
    _Atomic bool closed;
};

struct frontends {
    struct frontends_model model;
    struct channel_group channels;
    struct engine *engine;
    struct grammars *grammars;
    pthread_mutex_t lock; /* taken before the engine's */
    pthread_cond_t changed;
    struct frontend *all, *to_reap;
    uint32_t n_all, last_number;
    uint64_t request_bytes; /* of all frontends */
    bool stopping;
    _Atomic bool ending; /* frontends_end */
    pthread_t reaper;
    bool reaper_started;
};

/* ---- frontend_requests.c; any thread ---- */

/* Queues bytes to the frontend. */
enum error_code frontend_write(struct frontend *f, const uint8_t *data, size_t len,
                               struct error *e);
/* The frontend has gone, or cannot be sent to: begins its end. Any number of times. */
void frontend_close(struct frontend *f);

/* Enters q, which frontend_remove_request frees. ERROR_BUSY: its client, the frontend's process, or
 * all together, have as many requests or bytes of them as they may. ERROR_EXISTS: it has one of
 * this id. */
enum error_code frontend_add_request(struct frontend *f, struct frontend_request *q,
                                     struct error *e);
/* Before the frontend is sent the end of q: from then on it may use the id again. */
void frontend_end_request(struct frontend_request *q);
/* The engine has q's request no more. Frees the frontend if it is silent and q was its last one. */
void frontend_remove_request(struct frontend_request *q);
/* Cancels the requests that the frontend calls id, or ends them as complete; none is fine. */
void frontend_cancel_requests(struct frontend *f, uint64_t id, bool complete);

/* Closes the channel and cancels the frontend's requests. Frees it if it has none. On the reaper's
 * thread. */
void frontend_end(struct frontend *f);
/* The two below are for a frontend that has no requests and is in no list. Closing may wait. */
void frontend_close_channel(struct frontend *f);
void frontend_free(struct frontend *f);

/* ---- frontend.c ---- */

/* Handles a message from the frontend, on its channel's thread. */
void frontend_handle(struct frontend *f, const uint8_t *data, size_t len);

/* ---- frontend_sampling.c ---- */

/* What the request says about the choice of tokens and their log-probabilities. */
enum error_code frontend_take_sampling(struct frontend *f, struct request *r,
                                       const Moed__V1__Generate *q, struct error *e);
enum error_code frontend_check_top(const struct frontends_model *model, uint32_t top,
                                   struct error *e);
/* Every parameter of s, but its seed. Borrows s. */
void frontend_describe_sampling(const struct sampling *s, Moed__V1__Sampling *out);

/* ---- frontend_reasoning.c ---- */

/* The limit of reasoning; NULL: none. After frontend_take_sampling: it adds to the biases, later.
 */
enum error_code frontend_take_reasoning(struct frontend *f, struct request *r,
                                        const Moed__V1__ReasoningLimit *q, struct error *e);

/* ---- frontend_grammar.c ---- */

/* What the answer must satisfy; after frontend_take_sampling, whose stop tokens it borrows. May
 * take seconds. */
enum error_code frontend_take_grammar(struct frontend *f, struct request *r,
                                      const Moed__V1__Generate *q, struct error *e);

/* ---- frontend_sink.c; any thread ---- */

/* Sends m. Does nothing for a frontend that has gone; drops one that cannot be sent to. */
void frontend_send(struct frontend *f, Moed__V1__FromWorker *m);
void frontend_send_error(struct frontend *f, uint64_t id, enum error_code code, const char *text);

/* Of a request that the frontend submitted; arg: struct frontend_request. */
extern const struct response_sink frontend_sink;

#endif
