/* What moed-worker answers on the control plane; see worker.h. Messages are static: one request is answered at a
 * time. */
#include "worker.h"

static enum error_code reply_attach(struct worker *w, const Moed__V1__SessionAttachRequest *request,
                                    Moed__V1__Reply *reply, struct error *e)
{
    static char url[RUN_URL_BYTES];
    static Moed__V1__SessionAttachReply attached;
    enum error_code code =
        sessions_attach(w->sessions, request->client, request->pid, url, sizeof url, e);
    if (code)
        return code;
    moed__v1__session_attach_reply__init(&attached);
    attached.channel_url = url;
    attached.window = SESSION_WINDOW;
    reply->body_case = MOED__V1__REPLY__BODY_SESSION_ATTACH;
    reply->session_attach = &attached;
    return ERROR_OK;
}

enum error_code worker_handle_request(void *arg, const Moed__V1__Request *request,
                                      Moed__V1__Reply *reply, struct error *e)
{
    struct worker *w = arg;
    switch (request->body_case) {
    case MOED__V1__REQUEST__BODY_SESSION_ATTACH:
        return reply_attach(w, request->session_attach, reply, e);
    case MOED__V1__REQUEST__BODY_POLICY:
        return worker_reply_policy(w, request->policy, reply, e);
    default:
        return daemon_unknown(request, e);
    }
}
