/* A session: attaching, the messages that come, acknowledging them, and the end.
 *
 *     attached --(moed_attach)--> alive --(channel closed, protocol fault)--> dead
 * --(moed_detach)--> gone
 *                                   '-----------------(moed_detach)----------------------------------^
 *
 * session_fail makes the step to dead: every request is failed then, after the events it has
 * queued. */
#include "client/src/internal.h"

#include "daemon/control.h"
#include "daemon/decode_limit.h"
#include "daemon/run_dir.h"
#include "ipc/rpc.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define DEFAULT_TIMEOUT_MS 30000
/* The worker listens before it names the channel: only a dying one is not there. */
#define CONNECT_MS 5000
/* What moed_detach waits for cancels to leave; the worker notices the closed channel anyway. */
#define FLUSH_MS 200
/* A worker that computes a step for many requests may look at the window once for all of them. */
#define OVERSHOOT          256
#define WINDOW_MAX         (1u << 20)
#define PROCESS_NAME_BYTES 32
#define GONE               "the worker has gone; it is being restarted, try again"

static bool deployment_runs(const char *run)
{
    return run_dir_holder(run, "supervise") || run_dir_holder(run, "memd") ||
           run_dir_holder(run, "worker") || run_dir_holder(run, "cpuexec");
}

/* A failed control_call: tell a deployment that is not there from a process that is not there now.
 */
static enum moed_code call_failed(struct moed_error *error, const char *deployment, const char *run,
                                  const char *process, const struct error *why)
{
    if (why->code != ERROR_UNAVAILABLE || run_dir_holder(run, process))
        return error_convert(error, why);
    if (!deployment)
        deployment = "default";
    if (!deployment_runs(run))
        return error_report(error, MOED_ERROR_NOT_FOUND, false,
                            "deployment '%s' is not running: start it with: moed up MODEL.gguf",
                            deployment);
    if (strcmp(process, "cpuexec") == 0) /* where there is no device there need not be one */
        return error_report(error, MOED_ERROR_UNAVAILABLE, false,
                            "deployment '%s' has no cpuexec: its worker computes the experts, or it is being started",
                            deployment);
    return error_report(error, MOED_ERROR_UNAVAILABLE, true,
                        "deployment '%s' has no %s now; it is being started, try again", deployment,
                        process);
}

static void session_fail(struct moed_session *s, const struct moed_error *why)
{
    pthread_mutex_lock(&s->lock);
    if (s->alive) {
        s->alive = false;
        s->death = *why;
        for (struct moed_request *r = s->requests, *next; r; r = next) {
            next = r->next; /* failing takes it off the list */
            request_fail(r, why);
        }
    }
    pthread_mutex_unlock(&s->lock);
}

static void session_fault(struct moed_session *s, const char *what)
{
    struct moed_error why;
    error_report(&why, MOED_ERROR_PROTOCOL, false, "the worker sent a malformed message: %s", what);
    session_fail(s, &why);
}

bool message_is_event(const Moed__V1__FromWorker *body)
{
    return body->body_case == MOED__V1__FROM_WORKER__BODY_TOKENS ||
           body->body_case == MOED__V1__FROM_WORKER__BODY_LOGITS ||
           body->body_case == MOED__V1__FROM_WORKER__BODY_LOGPROBS ||
           body->body_case == MOED__V1__FROM_WORKER__BODY_ROUTING;
}

/* Hand a checked message to its request. Returns what is wrong with it, or NULL. *kept: the request
 * owns it now. *dropped: events that nobody waits for. */
static const char *dispatch(struct moed_session *s, Moed__V1__FromWorker *body, bool *kept,
                            uint32_t *dropped)
{
    const char *fault = NULL;
    pthread_mutex_lock(&s->lock);
    struct moed_request *r = s->requests;
    while (r && r->id != body->id)
        r = r->next;
    if (!s->alive) {
        /* Its requests have their error already. */
    } else if (body->id == 0 || body->id >= s->next_id) {
        fault = "an id that was never asked for";
    } else if (message_is_event(body) && s->outstanding >= s->window + OVERSHOOT) {
        fault = "more events than the window allows";
    } else {
        s->outstanding += message_is_event(body);
        if (!r)
            *dropped = message_is_event(body);
        else if (request_deliver(r, body))
            *kept = true;
        else
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
        error_report(&why, MOED_ERROR_UNAVAILABLE, true, GONE);
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
        /* The worker's word about the channel, not about a request. */
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

enum moed_code session_send(struct moed_session *s, const Moed__V1__ToWorker *body,
                            struct moed_error *error)
{
    size_t len = moed__v1__to_worker__get_packed_size(body);
    if (len > RPC_MESSAGE_BYTES)
        return error_report(error, MOED_ERROR_LIMIT, false,
                            "the request has %zu bytes; a message may have at most %u", len,
                            RPC_MESSAGE_BYTES);
    uint8_t *data = malloc(len ? len : 1);
    if (!data)
        return error_report(error, MOED_ERROR_MEMORY, false, "no memory for a request of %zu bytes",
                            len);
    moed__v1__to_worker__pack(body, data);

    struct error why = {0};
    enum error_code code = ERROR_UNAVAILABLE;
    pthread_mutex_lock(&s->send_lock);
    if (s->channel)
        code = channel_send(s->channel, data, len, &why);
    pthread_mutex_unlock(&s->send_lock);
    free(data);
    if (code == ERROR_UNAVAILABLE)
        return error_report(error, MOED_ERROR_UNAVAILABLE, true, GONE);
    return code ? error_convert(error, &why) : MOED_OK;
}

void session_consumed(struct moed_session *s, uint32_t events)
{
    pthread_mutex_lock(&s->lock);
    s->consumed += events;
    uint32_t worth = s->window / 4 ? s->window / 4 : 1;
    uint32_t acknowledge = s->alive && s->consumed >= worth ? s->consumed : 0;
    s->consumed -= acknowledge;
    s->outstanding -= acknowledge;
    pthread_mutex_unlock(&s->lock);
    if (!acknowledge)
        return;
    Moed__V1__Ack ack = MOED__V1__ACK__INIT;
    ack.events = acknowledge;
    Moed__V1__ToWorker body = MOED__V1__TO_WORKER__INIT;
    body.abi = CONTROL_ABI;
    body.body_case = MOED__V1__TO_WORKER__BODY_ACK;
    body.ack = &ack;
    struct moed_error why;
    if (session_send(s, &body, &why)) /* else the worker would wait for ever */
        session_fail(s, &why);
}

static struct moed_session *session_new(int timeout_ms)
{
    struct moed_session *s = calloc(1, sizeof *s);
    if (!s)
        return NULL;
    pthread_mutex_init(&s->lock, NULL);
    pthread_mutex_init(&s->send_lock, NULL);
    s->references = 1;
    s->next_id = 1;
    s->alive = true;
    s->timeout_ms = timeout_ms;
    return s;
}

void session_unref(struct moed_session *s)
{
    pthread_mutex_lock(&s->lock);
    bool last = --s->references == 0;
    pthread_mutex_unlock(&s->lock);
    if (!last)
        return;
    pthread_mutex_destroy(&s->lock);
    pthread_mutex_destroy(&s->send_lock);
    free(s);
}

static enum moed_code open_channel(struct moed_session *s,
                                   const Moed__V1__SessionAttachReply *reply,
                                   struct moed_error *error)
{
    if (!reply->window || reply->window > WINDOW_MAX)
        return error_report(error, MOED_ERROR_PROTOCOL, false,
                            "the worker offers a window of %" PRIu32 " events: expected 1 to %u",
                            reply->window, WINDOW_MAX);
    s->window = reply->window; /* before the callback can run */
    struct error why = {0};
    struct channel *channel;
    if (channel_connect(reply->channel_url, CONNECT_MS, session_receive, s, &channel, &why))
        return error_convert(error, &why);
    pthread_mutex_lock(&s->send_lock);
    s->channel = channel;
    pthread_mutex_unlock(&s->send_lock);
    return MOED_OK;
}

enum moed_code moed_attach(const struct moed_attach_options *options, struct moed_session **out,
                           struct moed_error *error)
{
    struct moed_attach_options o = {0};
    if (options)
        o = *options;
    struct error why = {0};
    char run[RUN_DIR_BYTES];
    if (run_dir_path(o.deployment, run, &why))
        return error_convert(error, &why);
    struct moed_session *s = session_new(o.timeout_ms > 0 ? o.timeout_ms : DEFAULT_TIMEOUT_MS);
    if (!s)
        return error_report(error, MOED_ERROR_MEMORY, false, "no memory for a session");

    Moed__V1__SessionAttachRequest attach = MOED__V1__SESSION_ATTACH_REQUEST__INIT;
    attach.client = (char *)(o.client ? o.client : program_invocation_short_name);
    attach.pid = (uint32_t)getpid();
    Moed__V1__Request request = MOED__V1__REQUEST__INIT;
    request.body_case = MOED__V1__REQUEST__BODY_SESSION_ATTACH;
    request.session_attach = &attach;
    Moed__V1__Reply *reply = NULL;
    enum moed_code code;
    if (control_call(run, "worker", &request, MOED__V1__REPLY__BODY_SESSION_ATTACH, s->timeout_ms,
                     &reply, &why)) {
        code = call_failed(error, o.deployment, run, "worker", &why);
    } else {
        code = open_channel(s, reply->session_attach, error);
        moed__v1__reply__free_unpacked(reply, NULL);
    }
    if (code)
        session_unref(s);
    else
        *out = s;
    return code;
}

bool moed_session_alive(const struct moed_session *session)
{
    struct moed_session *s =
        (struct moed_session *)session; /* const: for the caller, not the lock */
    pthread_mutex_lock(&s->lock);
    bool alive = s->alive;
    pthread_mutex_unlock(&s->lock);
    return alive;
}

void moed_detach(struct moed_session *session)
{
    if (!session)
        return;
    struct moed_error why;
    error_report(&why, MOED_ERROR_CANCELLED, false, "the session was detached");
    session_fail(session, &why);
    pthread_mutex_lock(&session->send_lock);
    struct channel *channel = session->channel;
    session->channel = NULL;
    pthread_mutex_unlock(&session->send_lock);
    channel_close(channel, FLUSH_MS);
    session_unref(session);
}

enum moed_code moed_metrics(const char *deployment, const char *process, char **text,
                            struct moed_error *error)
{
    struct error why = {0};
    char run[RUN_DIR_BYTES];
    if (!process || !*process || strlen(process) >= PROCESS_NAME_BYTES || strchr(process, '/'))
        return error_report(error, MOED_ERROR_USAGE, false,
                            "'%.40s' is not a process: memd, worker or cpuexec",
                            process ? process : "");
    if (run_dir_path(deployment, run, &why))
        return error_convert(error, &why);
    Moed__V1__MetricsRequest metrics = MOED__V1__METRICS_REQUEST__INIT;
    Moed__V1__Request request = MOED__V1__REQUEST__INIT;
    request.body_case = MOED__V1__REQUEST__BODY_METRICS;
    request.metrics = &metrics;
    Moed__V1__Reply *reply = NULL;
    if (control_call(run, process, &request, MOED__V1__REPLY__BODY_METRICS, DEFAULT_TIMEOUT_MS,
                     &reply, &why))
        return call_failed(error, deployment, run, process, &why);
    char *copy = strdup(reply->metrics->prometheus_text);
    moed__v1__reply__free_unpacked(reply, NULL);
    if (!copy)
        return error_report(error, MOED_ERROR_MEMORY, false, "no memory for the metrics");
    *text = copy;
    return MOED_OK;
}
