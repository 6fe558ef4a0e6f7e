/* Changing a deployment; see control.h. */
#include "client/http/watch/control.h"

#include "client/state/deployment_status.h"
#include "daemon/control.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define CONTROL_TIMEOUT_MS 5000

static void member(struct strbuf *out, const char *key, const char *text)
{
    strbuf_printf(out, ",\"%s\":", key);
    strbuf_json_string(out, text, strlen(text));
}

static enum error_code send_policy(const char *run, const char *process, const char *policy,
                                   Moed__V1__Reply **reply, struct error *e)
{
    Moed__V1__PolicyRequest ask = MOED__V1__POLICY_REQUEST__INIT;
    Moed__V1__Request request = MOED__V1__REQUEST__INIT;
    ask.policy = (char *)policy;
    request.body_case = MOED__V1__REQUEST__BODY_POLICY;
    request.policy = &ask;
    return control_call(run, process, &request, MOED__V1__REPLY__BODY_POLICY, CONTROL_TIMEOUT_MS,
                        reply, e);
}

/* Sends the policy to every worker. *first: the first one's reply. */
static enum error_code send_workers(const char *run, const char *policy, Moed__V1__Reply **first,
                                    struct error *e)
{
    const char *names[SUPERVISE_WORKERS];
    unsigned n = deployment_workers(run, names);
    enum error_code code =
        n ? ERROR_OK : error_set(e, ERROR_UNAVAILABLE, "no worker runs now: try again");
    for (unsigned i = 0; i < n && !code; i++) {
        Moed__V1__Reply *reply = NULL;
        code = send_policy(run, names[i], policy, &reply, e);
        if (!code && !*first)
            *first = reply;
        else if (!code)
            moed__v1__reply__free_unpacked(reply, NULL);
    }
    return code;
}

/* memd decides; the workers follow. */
enum error_code control_set_policy(const char *run, const char *policy, struct strbuf *out,
                                   struct error *e)
{
    Moed__V1__Reply *memd = NULL, *worker = NULL;
    enum error_code code = send_policy(run, "memd", policy, &memd, e);
    if (!code)
        code = send_workers(run, policy, &worker, e);
    if (!code) {
        strbuf_printf(out, "{\"policy\":");
        strbuf_json_string(out, policy, strlen(policy));
        member(out, "assigner", worker->policy->part);
        member(out, "cache", memd->policy->part);
        member(out, "budget", memd->policy->budget);
        member(out, "predictor", memd->policy->predictor);
        member(out, "prefetcher", memd->policy->prefetcher);
        strbuf_printf(out, "}");
    }
    if (memd)
        moed__v1__reply__free_unpacked(memd, NULL);
    if (worker)
        moed__v1__reply__free_unpacked(worker, NULL);
    return code;
}

enum error_code control_resize(const char *run, uint64_t device_bytes, struct strbuf *out,
                               struct error *e)
{
    Moed__V1__ResizeRequest ask = MOED__V1__RESIZE_REQUEST__INIT;
    Moed__V1__Request request = MOED__V1__REQUEST__INIT;
    Moed__V1__Reply *reply;
    char bytes[24];
    snprintf(bytes, sizeof bytes, "%" PRIu64, device_bytes);
    ask.vram = bytes;
    request.body_case = MOED__V1__REQUEST__BODY_RESIZE;
    request.resize = &ask;
    enum error_code code = control_call(run, "memd", &request, MOED__V1__REPLY__BODY_RESIZE,
                                        CONTROL_TIMEOUT_MS, &reply, e);
    if (code)
        return code;
    strbuf_printf(out, "{\"device_cache_bytes\":%" PRIu64 ",\"busy\":%s",
                  reply->resize->expert_bytes, reply->resize->busy ? "true" : "false");
    member(out, "waits", reply->resize->waits);
    strbuf_printf(out, "}");
    moed__v1__reply__free_unpacked(reply, NULL);
    return ERROR_OK;
}
