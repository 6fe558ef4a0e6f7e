/* Requests of the control plane to moed-worker; see worker.h. Reply messages are static, because
 * the daemon handles one request at a time. */
#include "worker.h"

#include "base/clock.h"
#include "worker/experts/activity.h"

#include <stdlib.h>

/* The frontend's connection becomes its channel once the reply has left. */
static enum error_code reply_attach(struct worker *w, const Moed__V1__SessionAttachRequest *request,
                                    Moed__V1__Reply *reply, struct error *e)
{
    static Moed__V1__SessionAttachReply attached;
    struct frontend *frontend;
    enum error_code code =
        frontends_attach(w->frontends, request->client, request->pid, &frontend, e);
    if (code)
        return code;
    daemon_adopt(&w->daemon, frontends_open, frontend);
    moed__v1__session_attach_reply__init(&attached);
    attached.window = FRONTEND_WINDOW;
    attached.model = w->model_identity;
    reply->body_case = MOED__V1__REPLY__BODY_SESSION_ATTACH;
    reply->session_attach = &attached;
    return ERROR_OK;
}

static enum error_code reply_activity(struct worker *w, Moed__V1__Reply *reply, struct error *e)
{
    static Moed__V1__ActivityReply answer;
    struct activity *a = experts_activity(w->experts);
    moed__v1__activity_reply__init(&answer);
    if (!w->activity && !(w->activity = malloc(activity_cells(a))))
        return error_set(e, ERROR_MEMORY, "no memory for the experts' activity");
    if (activity_read(a, clock_ns(), w->activity, &answer.step))
        answer.experts = (ProtobufCBinaryData){activity_cells(a), w->activity};
    reply->body_case = MOED__V1__REPLY__BODY_ACTIVITY;
    reply->activity = &answer;
    return ERROR_OK;
}

enum error_code worker_handle_request(void *arg, const Moed__V1__Request *request,
                                      Moed__V1__Reply *reply, struct error *e)
{
    struct worker *w = arg;
    switch (request->body_case) {
    case MOED__V1__REQUEST__BODY_SESSION_ATTACH:
        return reply_attach(w, request->session_attach, reply, e);
    case MOED__V1__REQUEST__BODY_CACHE:
        return worker_reply_cache(w, request->cache, reply, e);
    case MOED__V1__REQUEST__BODY_ACTIVITY:
        return reply_activity(w, reply, e);
    case MOED__V1__REQUEST__BODY_POLICY:
        return worker_reply_policy(w, request->policy, reply, e);
    default:
        return daemon_unknown(request, e);
    }
}
