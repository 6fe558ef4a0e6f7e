/* A daemon's control socket; see daemon.h. All but daemon_serve runs on the control thread, or on
 * the thread of the peers' socket, one request at a time: request_lock is held. */
#include "daemon/daemon.h"

#include "base/clock.h"
#include "base/log.h"
#include "daemon/decode_limit.h"
#include "daemon/internal.h"
#include "ipc/peer_rpc.h"
#include "ipc/rpc.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* The storage of the common bodies, needed until the reply is packed. */
struct reply_parts {
    char state[DAEMON_STATE_BYTES];
    Moed__V1__HealthReply health;
    Moed__V1__MetricsReply metrics;
    Moed__V1__ShutdownReply shutdown;
    struct strbuf text;
};

static void pack_reply(const Moed__V1__Reply *reply, struct rpc_reply *out)
{
    size_t len = moed__v1__reply__get_packed_size(reply);
    out->data = len <= RPC_MESSAGE_BYTES ? malloc(len) : NULL;
    out->len = out->data ? moed__v1__reply__pack(reply, out->data) : 0;
}

static void pack_error(const struct error *e, struct rpc_reply *out)
{
    Moed__V1__Error error = MOED__V1__ERROR__INIT;
    error.code = e->code;
    error.message = (char *)e->text;
    error.retry = e->code == ERROR_UNAVAILABLE || e->code == ERROR_TIMEOUT;
    Moed__V1__Reply reply = MOED__V1__REPLY__INIT;
    reply.abi = CONTROL_ABI;
    reply.body_case = MOED__V1__REPLY__BODY_ERROR;
    reply.error = &error;
    pack_reply(&reply, out);
}

static void reply_health(struct daemon *d, Moed__V1__Reply *reply, struct reply_parts *parts)
{
    moed__v1__health_reply__init(&parts->health);
    Moed__V1__HealthReply *h = &parts->health;
    daemon_copy_state(d, parts->state);
    h->process = (char *)d->process;
    h->pid = (uint32_t)getpid();
    h->uptime_ms = (clock_ns() - d->started_ns) / 1000000u;
    h->ready = atomic_load(&d->ready);
    h->state = parts->state;
    h->memory_bytes = metrics_resident_bytes();
    h->version = (char *)MOED_VERSION;
    if (d->internal->handlers && d->internal->handlers->health)
        d->internal->handlers->health(d->internal->handlers_arg, h);
    reply->body_case = MOED__V1__REPLY__BODY_HEALTH;
    reply->health = h;
}

static enum error_code reply_metrics(struct daemon *d, Moed__V1__Reply *reply,
                                     struct reply_parts *parts, struct error *e)
{
    metrics_render(d->metrics, &parts->text);
    if (parts->text.failed)
        return error_set(e, ERROR_MEMORY, "%s: no memory for the metrics' text", d->process);
    moed__v1__metrics_reply__init(&parts->metrics);
    parts->metrics.prometheus_text = parts->text.data ? parts->text.data : (char *)"";
    reply->body_case = MOED__V1__REPLY__BODY_METRICS;
    reply->metrics = &parts->metrics;
    return ERROR_OK;
}

static void reply_shutdown(struct daemon *d, Moed__V1__Reply *reply, struct reply_parts *parts)
{
    log_info("stopping: a client requested it");
    moed__v1__shutdown_reply__init(&parts->shutdown);
    reply->body_case = MOED__V1__REPLY__BODY_SHUTDOWN;
    reply->shutdown = &parts->shutdown;
    eventfd_write(d->internal->shutdown_event, 1);
}

enum error_code daemon_unknown(const Moed__V1__Request *request, struct error *e)
{
    if (request->body_case == MOED__V1__REQUEST__BODY__NOT_SET) {
        if (request->base.n_unknown_fields > 0)
            return error_set(e, ERROR_PROTOCOL,
                             "this process does not know requests of kind %u (it is moed %s)",
                             request->base.unknown_fields[0].tag, MOED_VERSION);
        return error_set(e, ERROR_PROTOCOL, "the request has no body");
    }
    const ProtobufCFieldDescriptor *field = protobuf_c_message_descriptor_get_field(
        &moed__v1__request__descriptor, (unsigned)request->body_case);
    return error_set(e, ERROR_PROTOCOL, "this process does not answer `%s` requests",
                     field ? field->name : "?");
}

static enum error_code answer(struct daemon *d, const Moed__V1__Request *request,
                              Moed__V1__Reply *reply, struct reply_parts *parts, struct error *e)
{
    const struct daemon_handlers *handlers = d->internal->handlers;
    if (request->abi != CONTROL_ABI)
        return error_set(e, ERROR_VERSION,
                         "%s speaks version %u of the control protocol, the request is of version "
                         "%u: use programs of one build",
                         d->process, CONTROL_ABI, request->abi);
    switch (request->body_case) {
    case MOED__V1__REQUEST__BODY_HEALTH:
        reply_health(d, reply, parts);
        return ERROR_OK;
    case MOED__V1__REQUEST__BODY_METRICS:
        return reply_metrics(d, reply, parts, e);
    case MOED__V1__REQUEST__BODY_SHUTDOWN:
        reply_shutdown(d, reply, parts);
        return ERROR_OK;
    case MOED__V1__REQUEST__BODY__NOT_SET:
        return daemon_unknown(request, e);
    default:
        break;
    }
    if (!handlers || !handlers->request)
        return daemon_unknown(request, e);
    enum error_code code = handlers->request(d->internal->handlers_arg, request, reply, e);
    if (!code && reply->body_case == MOED__V1__REPLY__BODY__NOT_SET)
        return error_set(e, ERROR_INTERNAL, "%s handled the request and gave no answer",
                         d->process);
    return code;
}

static void handle_locked(struct daemon *d, const uint8_t *data, size_t len, struct rpc_reply *out)
{
    d->internal->adopt = NULL;
    heartbeat_beat(&d->internal->watchdog.control);
    struct error e = {0};
    struct decode_limit limit;
    decode_limit_init(&limit, DECODE_REQUEST_BYTES);
    Moed__V1__Request *request = moed__v1__request__unpack(&limit.allocator, len, data);
    Moed__V1__Reply reply = MOED__V1__REPLY__INIT;
    reply.abi = CONTROL_ABI;
    struct reply_parts parts;
    strbuf_init(&parts.text);

    enum error_code code;
    if (!request)
        code = error_set(&e, ERROR_PROTOCOL, "%s cannot decode this request of %zu bytes",
                         d->process, len);
    else
        code = answer(d, request, &reply, &parts, &e);
    if (!code) {
        pack_reply(&reply, out);
        if (!out->data)
            code = error_set(&e, ERROR_LIMIT,
                             "the answer is larger than %u bytes, or there is no memory for it",
                             RPC_MESSAGE_BYTES);
    }
    if (code) {
        e.code = code; /* a handler may have returned a code without setting e */
        pack_error(&e, out);
    }
    if (!code) {
        out->adopt = d->internal->adopt;
        out->adopt_arg = d->internal->adopt_arg;
    } else if (d->internal->adopt) {
        d->internal->adopt(d->internal->adopt_arg, -1);
    }
    strbuf_fini(&parts.text);
    if (request)
        moed__v1__request__free_unpacked(request, &limit.allocator);
    heartbeat_rest(&d->internal->watchdog.control);
}

static void handle(void *arg, const uint8_t *data, size_t len, struct rpc_reply *out)
{
    struct daemon *d = arg;
    pthread_mutex_lock(&d->internal->request_lock);
    handle_locked(d, data, len, out);
    pthread_mutex_unlock(&d->internal->request_lock);
}

/* From a daemon: it has no connection that could be taken over. */
static void handle_peer(void *arg, const uint8_t *data, size_t len, struct rpc_reply *out)
{
    handle(arg, data, len, out);
    if (out->adopt)
        out->adopt(out->adopt_arg, -1);
}

void daemon_adopt(struct daemon *d, void (*adopt)(void *arg, int fd), void *arg)
{
    d->internal->adopt = adopt;
    d->internal->adopt_arg = arg;
}

enum error_code daemon_serve(struct daemon *d, const struct daemon_handlers *handlers, void *arg,
                             struct error *e)
{
    heartbeat_beat(&d->internal->watchdog.start);
    d->internal->handlers = handlers;
    d->internal->handlers_arg = arg;
    char file[64], url[RUN_URL_BYTES];
    snprintf(file, sizeof file, "%s.ctl", d->process);
    run_dir_url(d->run, file, url);
    enum error_code code = rpc_serve(url, handle, d, &d->internal->server, e);
    if (code)
        return code;
    run_dir_file(d->run, file, d->internal->watchdog.socket);
    atomic_store(&d->internal->watchdog.serving, true);
    if (!handlers || !handlers->peers)
        return code;
    snprintf(file, sizeof file, "%s.peers", d->process);
    run_dir_url(d->run, file, url);
    return peer_rpc_serve(url, handle_peer, d, &d->internal->peers, e);
}
