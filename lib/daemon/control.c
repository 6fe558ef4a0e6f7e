/* Calls to another process's control socket; see control.h. */
#include "daemon/control.h"

#include "daemon/decode_limit.h"
#include "daemon/run_dir.h"
#include "ipc/peer_rpc.h"
#include "ipc/rpc.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* The peer's number as an enum error_code; ERROR_PROTOCOL where it is not an error of that list. */
static enum error_code known_code(uint32_t code)
{
    switch (code) {
#define X(name, value, text)                                                                       \
    case value:                                                                                    \
        return value ? ERROR_##name : ERROR_PROTOCOL;
        ERROR_LIST(X)
#undef X
    }
    return ERROR_PROTOCOL;
}

/* ERROR_OK where the reply answers the request. */
static enum error_code check_reply(const Moed__V1__Reply *reply, const char *process,
                                   Moed__V1__Reply__BodyCase want, struct error *e)
{
    if (reply->abi != CONTROL_ABI)
        return error_set(e, ERROR_VERSION,
                         "%s speaks version %u of the control protocol, this program version %u: "
                         "restart the deployment with one build",
                         process, reply->abi, CONTROL_ABI);
    if (reply->body_case == MOED__V1__REPLY__BODY_ERROR)
        return error_set(e, known_code(reply->error->code), "%s", reply->error->message);
    if (reply->body_case != want)
        return error_set(e, ERROR_PROTOCOL, "%s answered with body %d where %d was expected",
                         process, (int)reply->body_case, (int)want);
    return ERROR_OK;
}

/* The transports as one type. */
typedef enum error_code transport(const char *url, const uint8_t *request, size_t len,
                                  int timeout_ms, uint8_t **reply, size_t *reply_len, int *fd,
                                  struct error *e);

static enum error_code over_stream(const char *url, const uint8_t *request, size_t len,
                                   int timeout_ms, uint8_t **reply, size_t *reply_len, int *fd,
                                   struct error *e)
{
    return fd ? rpc_call_open(url, request, len, timeout_ms, reply, reply_len, fd, e)
              : rpc_call(url, request, len, timeout_ms, reply, reply_len, e);
}

static enum error_code over_nng(const char *url, const uint8_t *request, size_t len, int timeout_ms,
                                uint8_t **reply, size_t *reply_len, int *fd, struct error *e)
{
    return peer_rpc_call(url, request, len, timeout_ms, reply, reply_len, e);
}

static enum error_code exchange(transport *call, const char *url, const char *process,
                                const Moed__V1__Request *request, int timeout_ms,
                                Moed__V1__Reply **out, int *fd, struct error *e)
{
    size_t len = moed__v1__request__get_packed_size(request);
    if (len > RPC_REQUEST_BYTES)
        return error_set(e, ERROR_LIMIT, "a request of %zu bytes to %s: the limit is %u", len,
                         process, RPC_REQUEST_BYTES);
    uint8_t *packed = malloc(len), *bytes;
    size_t n_bytes;
    if (!packed)
        return error_set(e, ERROR_MEMORY, "no memory for a request of %zu bytes", len);
    moed__v1__request__pack(request, packed);
    enum error_code code = call(url, packed, len, timeout_ms, &bytes, &n_bytes, fd, e);
    free(packed);
    if (code)
        return code;
    struct decode_limit limit;
    decode_limit_init(&limit, DECODE_LIMIT_BYTES);
    *out = moed__v1__reply__unpack(&limit.allocator, n_bytes, bytes);
    free(bytes);
    if (!*out)
        code = error_set(e, ERROR_PROTOCOL, "%s sent a reply of %zu bytes that is malformed",
                         process, n_bytes);
    if (code && fd)
        close(*fd);
    return code;
}

static enum error_code call_with(transport *call, const char *ending, const char *run,
                                 const char *process, Moed__V1__Request *request,
                                 Moed__V1__Reply__BodyCase want, int timeout_ms,
                                 Moed__V1__Reply **reply, int *fd, struct error *e)
{
    char file[RUN_PATH_BYTES], url[RUN_URL_BYTES];
    Moed__V1__Reply *r;
    request->abi = CONTROL_ABI;
    snprintf(file, sizeof file, "%s.%s", process, ending);
    run_dir_url(run, file, url);
    enum error_code code = exchange(call, url, process, request, timeout_ms, &r, fd, e);
    if (code)
        return code;
    code = check_reply(r, process, want, e);
    if (code) {
        moed__v1__reply__free_unpacked(r, NULL);
        if (fd)
            close(*fd);
        return code;
    }
    *reply = r;
    return ERROR_OK;
}

enum error_code control_call_at(const char *dir, const char *process, Moed__V1__Request *request,
                                Moed__V1__Reply__BodyCase want, int timeout_ms,
                                Moed__V1__Reply **reply, struct error *e)
{
    return call_with(over_stream, "ctl", dir, process, request, want, timeout_ms, reply, NULL, e);
}

enum error_code control_call(const char *run, const char *process, Moed__V1__Request *request,
                             Moed__V1__Reply__BodyCase want, int timeout_ms,
                             Moed__V1__Reply **reply, struct error *e)
{
    char dir[RUN_DIR_BYTES];
    run_dir_of(run, process, dir);
    return control_call_at(dir, process, request, want, timeout_ms, reply, e);
}

enum error_code control_health(const char *run, const char *process, int timeout_ms,
                               Moed__V1__Reply **reply, struct error *e)
{
    Moed__V1__HealthRequest health = MOED__V1__HEALTH_REQUEST__INIT;
    Moed__V1__Request request = MOED__V1__REQUEST__INIT;
    request.body_case = MOED__V1__REQUEST__BODY_HEALTH;
    request.health = &health;
    return control_call(run, process, &request, MOED__V1__REPLY__BODY_HEALTH, timeout_ms, reply, e);
}

enum error_code control_metrics(const char *run, const char *process, int timeout_ms,
                                Moed__V1__Reply **reply, struct error *e)
{
    Moed__V1__MetricsRequest metrics = MOED__V1__METRICS_REQUEST__INIT;
    Moed__V1__Request request = MOED__V1__REQUEST__INIT;
    request.body_case = MOED__V1__REQUEST__BODY_METRICS;
    request.metrics = &metrics;
    return control_call(run, process, &request, MOED__V1__REPLY__BODY_METRICS, timeout_ms, reply,
                        e);
}

enum error_code control_call_open(const char *dir, const char *process, Moed__V1__Request *request,
                                  Moed__V1__Reply__BodyCase want, int timeout_ms,
                                  Moed__V1__Reply **reply, int *fd, struct error *e)
{
    return call_with(over_stream, "ctl", dir, process, request, want, timeout_ms, reply, fd, e);
}

enum error_code control_call_peer(const char *run, const char *process, Moed__V1__Request *request,
                                  Moed__V1__Reply__BodyCase want, int timeout_ms,
                                  Moed__V1__Reply **reply, struct error *e)
{
    return call_with(over_nng, "peers", run, process, request, want, timeout_ms, reply, NULL, e);
}
