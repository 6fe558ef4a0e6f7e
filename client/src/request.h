/* libmoed: requests. A request sends one question, and checks and hands out what comes for it. */
#ifndef MOED_CLIENT_REQUEST_H
#define MOED_CLIENT_REQUEST_H

#include "client/src/session.h"

/* Registers a request under a new id and sends body, whose abi and id it sets. */
enum moed_code request_start(struct moed_session *s, Moed__V1__ToWorker *body,
                             struct moed_request **out, struct moed_error *error);

/* The message that another worker continues the request with; data is the caller's to free, NULL
 * where it cannot be continued. The caller holds session->lock. */
struct resend {
    uint64_t id;
    uint8_t *data; /* packed */
    size_t len;
    uint64_t epoch; /* resume.c: of the channel that it is for */
};
struct resend request_resend(struct moed_request *r);
/* Takes a request that cannot be continued off its session and ends it. why NULL: because of what
 * it is. The caller holds session->lock. */
void request_give_up(struct moed_request *r, const struct moed_error *why);
/* Ends a request that was cancelled where no worker has it, so none would answer a Cancel. A
 * question is left: only its owner, who frees it, cancels it. The caller holds session->lock. */
void request_end_cancelled(struct moed_request *r);
/* moed_request_cancel was called; moed_request_finish, too. The caller holds session->lock. */
bool request_is_cancelled(const struct moed_request *r);
bool request_is_complete(const struct moed_request *r);
/* Cancels at the worker what it has under this id; nothing is fine. Without locks. */
enum moed_code request_send_cancel(struct moed_session *s, uint64_t id, bool complete);

/* The request with this id that has not ended; NULL: none. The caller holds session->lock. */
struct moed_request *request_find(struct moed_session *s, uint64_t id);
/* Queues a message and takes it. The channel's thread calls it and holds session->lock. */
enum delivery {
    DELIVERY_QUEUED,
    DELIVERY_SURPLUS, /* an event that the request has no need of; body stays the caller's */
    DELIVERY_ILLEGAL, /* this request may not get this message now; the same */
};
enum delivery request_deliver(struct moed_request *r, Moed__V1__FromWorker *body);

/* The request's events get parts from now on. Takes the reader; before the first event is taken. */
struct chat_reader;
void request_set_reader(struct moed_request *r, struct chat_reader *reader);
const struct chat_reader *request_reader(const struct moed_request *r); /* NULL: none */

/* Waits for the single answer of a question. *out belongs to the request. */
enum moed_code request_wait(struct moed_request *r, int timeout_ms,
                            const Moed__V1__FromWorker **out, struct moed_error *error);

#endif
