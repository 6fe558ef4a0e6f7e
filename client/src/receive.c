/* The worker's messages; see receive.h. */
#include "client/src/receive.h"

#include "client/src/error.h"
#include "client/src/request.h"
#include "daemon/decode_limit.h"
#include "ipc/rpc.h"

/* A worker that computes a step for many requests may look at the window once for all of them. */
#define OVERSHOOT 256

static void session_fault(struct moed_session *s, const char *what)
{
    struct moed_error why;
    error_report(&why, MOED_ERROR_PROTOCOL, false, "the worker sent a malformed message: %s", what);
    session_fail(s, &why);
}

/* Hands a message to its request. Returns what is wrong with it, or NULL. *kept: the request owns
 * it now. *dropped: events of a request that was freed, or that has no need of them. */
static const char *dispatch(struct moed_session *s, Moed__V1__FromWorker *body, bool *kept,
                            uint32_t *dropped)
{
    const char *fault = NULL;
    pthread_mutex_lock(&s->lock);
    struct moed_request *r = request_find(s, body->id);
    if (!s->alive) {
        /* The session's requests have their error already. */
    } else if (body->id == 0 || body->id >= s->next_id) {
        fault = "an id that was never asked for";
    } else if (message_is_event(body) && s->outstanding >= s->window + OVERSHOOT) {
        fault = "more events than the window allows";
    } else {
        s->outstanding += message_is_event(body);
        enum delivery how = r ? request_deliver(r, body) : DELIVERY_SURPLUS;
        *kept = how == DELIVERY_QUEUED;
        *dropped = how == DELIVERY_SURPLUS && message_is_event(body);
        if (how == DELIVERY_ILLEGAL)
            fault = "an answer that does not belong to the question";
    }
    pthread_mutex_unlock(&s->lock);
    return fault;
}

void session_receive(void *arg, const uint8_t *data, size_t len)
{
    struct moed_session *s = arg;
    struct moed_error why;
    if (!data) {
        if (session_resume(s))
            return;
        error_report(&why, MOED_ERROR_UNAVAILABLE, true, SESSION_GONE);
        session_lost_model(s, &why);
        session_fail(s, &why);
        return;
    }
    struct decode_limit limit;
    decode_limit_init(&limit, DECODE_LIMIT_BYTES);
    Moed__V1__FromWorker *body = moed__v1__from_worker__unpack(&limit.allocator, len, data);
    if (!body) {
        session_fault(s, "it cannot be parsed");
        return;
    }
    bool kept = false;
    uint32_t dropped = 0;
    if (body->abi != CONTROL_ABI) {
        error_report(&why, MOED_ERROR_VERSION, false,
                     "the worker speaks version %u of the protocol, this program %u: use the same "
                     "release for both",
                     body->abi, CONTROL_ABI);
        session_fail(s, &why);
    } else if (body->id == 0 && body->body_case == MOED__V1__FROM_WORKER__BODY_ERROR) {
        /* An error of the channel, not of a request. */
        error_from_wire(&why, body->error);
        session_fail(s, &why);
    } else {
        const char *fault = dispatch(s, body, &kept, &dropped);
        if (fault)
            session_fault(s, fault);
    }
    if (!kept)
        moed__v1__from_worker__free_unpacked(body, NULL);
    if (dropped)
        session_consumed(s, dropped);
}
