/* Inside libmoed: what session.c, request.c and question.c share.
 *
 * Invariants:
 *  1. session->lock guards every field of the session and of its requests but `channel`, which
 *     session->send_lock guards. The two are never held together, and no call that can wait is made
 *     under either.
 *  2. A request stands in session->requests exactly while its last message has not come. An id that
 *     is below next_id and not in the list belongs to a request that has ended or was freed: what
 *     still comes for it is dropped, and counts as consumed.
 *  3. received - acknowledged <= window + a step of the worker's, or the worker is at fault; so a
 *     session's queues are bounded.
 *  4. A session lives until its handle is detached and its last request is freed (`references`).
 */
#ifndef MOED_CLIENT_INTERNAL_H
#define MOED_CLIENT_INTERNAL_H

#include "client/include/moed.h"

#include "base/error.h"
#include "ipc/channel.h"

#include "session.pb-c.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

struct message {
    struct message *next;
    Moed__V1__FromWorker *body; /* owned */
};

struct moed_session {
    pthread_mutex_t lock;
    unsigned references;
    struct moed_request *requests;
    uint64_t next_id;
    uint32_t window;
    uint32_t outstanding; /* events received and not acknowledged */
    uint32_t consumed;    /* of those, events that the program is done with */
    bool alive;
    struct moed_error death; /* why not alive */
    int timeout_ms;

    pthread_mutex_t send_lock;
    struct channel *channel; /* NULL before it is connected and once detached */
};

struct moed_request {
    struct moed_session *session;
    struct moed_request *next;
    uint64_t id;
    Moed__V1__ToWorker__BodyCase kind; /* decides which answers are legal */
    pthread_cond_t changed;
    struct message *first, *last;
    struct message *held; /* what the latest event points into */
    bool ended;           /* the last message is queued, or it has failed */
    bool failed;
    struct moed_error failure; /* returned once the queue is empty */
    bool done;                 /* MOED_EVENT_DONE was returned */
    struct moed_result result;
    uint64_t next_row; /* that the worker has to send: a row, a logprob's or routing's token */
    uint64_t end_row;  /* of logprobs: behind the last */
    bool records;      /* of a generation: routing was asked for */
    size_t vocab;      /* values of the first row of logits */
    int event_fd;      /* eventfd, or -1 until asked for */
    bool signalled;    /* event_fd is readable */
};

/* Fill *error (may be NULL) and return its code. */
enum moed_code error_report(struct moed_error *error, enum moed_code code, bool retry,
                            const char *format, ...) __attribute__((format(printf, 4, 5)));
/* From one of lib/base, where a later try may help with what is unavailable or late. */
enum moed_code error_convert(struct moed_error *error, const struct error *from);
/* From the wire; its code is checked. */
void error_from_wire(struct moed_error *error, const Moed__V1__Error *from);
/* Copy, where the program wants it; returns the code. */
enum moed_code error_give(struct moed_error *error, const struct moed_error *from);

/* Register a request under a new id and send body (whose abi and id are set here). */
enum moed_code request_start(struct moed_session *s, Moed__V1__ToWorker *body,
                             struct moed_request **out, struct moed_error *error);
/* Under session->lock, on the channel's thread: queue a message of this request (taken over), or
 * end it without one. False, and the message is not taken, where it is not legal now. */
bool request_deliver(struct moed_request *r, Moed__V1__FromWorker *body);
void request_fail(struct moed_request *r, const struct moed_error *why);
/* The message itself instead of an event, for questions of one answer. It stays owned by the
 * request. */
enum moed_code request_wait(struct moed_request *r, int timeout_ms,
                            const Moed__V1__FromWorker **out, struct moed_error *error);

/* Whether the worker counts it against the window. */
bool message_is_event(const Moed__V1__FromWorker *body);

enum moed_code session_send(struct moed_session *s, const Moed__V1__ToWorker *body,
                            struct moed_error *error);
/* Add events that the program has consumed, and tell the worker when it is worth a message. Called
 * without locks. */
void session_consumed(struct moed_session *s, uint32_t events);
void session_unref(struct moed_session *s);
/* The channel's callback; its argument is the session. */
channel_callback session_receive;

#endif
