/* Attaching, detaching, and metrics. */
#include "client/src/error.h"
#include "client/src/options.h"
#include "client/src/receive.h"
#include "client/src/router.h"
#include "client/src/session.h"
#include "daemon/control.h"
#include "daemon/run_dir.h"

#include <stdlib.h>
#include <string.h>

#define DEFAULT_TIMEOUT_MS 30000
#define DEFAULT_RESUME_MS  120000 /* a large model is loaded again where memd has gone, too */
#define PROCESS_NAME_BYTES 32

enum moed_code moed_attach(const struct moed_attach_options *options, struct moed_session **out,
                           struct moed_error *error)
{
    struct moed_attach_options o = {0};
    enum moed_code code =
        options ? OPTIONS_COPY(options, &o, struct moed_attach_options, resume_ms, error) : MOED_OK;
    if (code)
        return code;
    struct moed_session *s = session_new(o.timeout_ms > 0 ? o.timeout_ms : DEFAULT_TIMEOUT_MS);
    bool made = s && session_name(s, o.deployment, o.client) && (s->router = router_new(s));
    if (!made) {
        if (s)
            session_unref(s);
        return error_report(error, MOED_ERROR_MEMORY, false, "no memory for a session");
    }
    s->receive = session_receive;
    s->resume_ms = o.resume_ms < 0 ? 0 : o.resume_ms ? o.resume_ms : DEFAULT_RESUME_MS;
    code = session_open(s, s->timeout_ms, error);
    if (code) {
        router_free(s->router);
        session_unref(s);
    } else {
        *out = s;
    }
    return code;
}

void moed_detach(struct moed_session *session)
{
    if (!session)
        return;
    if (session_is_foreign(session, NULL)) {
        /* the parent's descriptors: with them open here the workers would not notice its end */
        router_abandon(session->router);
        return;
    }
    struct router *router = session->router;
    session_detach(session);
    router_close(router);
    /* A chat may have the session still, and finds it dead. No thread of the session or its links
     * runs any more. */
    session->router = NULL;
    session->workers = NULL;
    router_free(router);
    session_unref(session);
}

enum moed_code moed_metrics(const char *deployment, const char *process, char **text,
                            struct moed_error *error)
{
    struct error why = {0};
    char run[RUN_DIR_BYTES];
    if (!process || !*process || strlen(process) >= PROCESS_NAME_BYTES || strchr(process, '/'))
        return error_report(error, MOED_ERROR_USAGE, false,
                            "'%.40s' is not a process: memd, worker, worker-N, cpuexec or http",
                            process ? process : "");
    if (run_dir_path(deployment, run, &why) || run_dir_check(run, &why))
        return error_convert(error, &why);
    Moed__V1__Reply *reply;
    if (control_metrics(run, process, DEFAULT_TIMEOUT_MS, &reply, &why))
        return session_call_failed(error, deployment, run, process, &why);
    char *copy = strdup(reply->metrics->prometheus_text);
    moed__v1__reply__free_unpacked(reply, NULL);
    if (!copy)
        return error_report(error, MOED_ERROR_MEMORY, false, "no memory for the metrics");
    *text = copy;
    return MOED_OK;
}
