/* Calls to another process's control socket; see control.h. */
#include "daemon/control.h"

#include "daemon/decode_limit.h"
#include "daemon/run_dir.h"
#include "ipc/rpc.h"

#include <stdio.h>
#include <stdlib.h>

/* The peer's number, where it is one of ours that means an error. */
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

/* Why the reply is not what was asked for; ERROR_OK where it is. */
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

enum error_code control_call(const char *run, const char *process, Moed__V1__Request *request,
                             Moed__V1__Reply__BodyCase want, int timeout_ms,
                             Moed__V1__Reply **reply, struct error *e)
{
    request->abi = CONTROL_ABI;
    size_t len = moed__v1__request__get_packed_size(request);
    if (len > RPC_MESSAGE_BYTES)
        return error_set(e, ERROR_LIMIT, "a request of %zu bytes to %s: the limit is %u", len,
                         process, RPC_MESSAGE_BYTES);
    uint8_t *packed = malloc(len ? len : 1);
    if (!packed)
        return error_set(e, ERROR_MEMORY, "no memory for a request of %zu bytes", len);
    moed__v1__request__pack(request, packed);

    char file[RUN_PATH_BYTES], url[RUN_URL_BYTES];
    snprintf(file, sizeof file, "%s.ctl", process);
    run_dir_url(run, file, url);
    uint8_t *bytes;
    size_t n_bytes;
    enum error_code code = rpc_call(url, packed, len, timeout_ms, &bytes, &n_bytes, e);
    free(packed);
    if (code)
        return code;

    struct decode_limit limit;
    decode_limit_init(&limit, DECODE_LIMIT_BYTES);
    Moed__V1__Reply *r = moed__v1__reply__unpack(&limit.allocator, n_bytes, bytes);
    free(bytes);
    if (!r)
        return error_set(e, ERROR_PROTOCOL, "%s sent a reply of %zu bytes that is malformed",
                         process, n_bytes);
    code = check_reply(r, process, want, e);
    if (code) {
        moed__v1__reply__free_unpacked(r, NULL);
        return code;
    }
    *reply = r;
    return ERROR_OK;
}
