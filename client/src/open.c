/* Opening a session's channel to its worker, and what the deployment's processes do; see session.h.
 */
#include "client/src/error.h"
#include "client/src/session.h"
#include "daemon/control.h"
#include "daemon/run_dir.h"
#include "daemon/supervisor_protocol.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define WINDOW_MAX (1u << 20)

static bool has_worker(const char *run)
{
    for (unsigned i = 1; i <= SUPERVISE_WORKERS; i++)
        if (run_dir_hint(run, supervise_worker_name(i)))
            return true;
    return false;
}

static bool deployment_runs(const char *run)
{
    return run_dir_hint(run, "supervise") || run_dir_hint(run, "memd") || has_worker(run) ||
           run_dir_hint(run, "cpuexec");
}

/* A memd that was killed leaves its file; `moed down` removes it. */
static bool serves_folder_only(const char *run)
{
    char memd[RUN_PATH_BYTES];
    run_dir_file(run, "memd.pid", memd);
    return run_dir_hint(run, "models") && !run_dir_hint(run, "memd") && access(memd, F_OK) != 0;
}

enum moed_code session_call_failed(struct moed_error *error, const char *deployment,
                                   const char *run, const char *process, const struct error *why)
{
    if (why->code != ERROR_UNAVAILABLE || run_dir_hint(run, process))
        return error_convert(error, why);
    char label[RUN_LABEL_BYTES];
    run_dir_label(deployment, label);
    bool named = deployment && strcmp(deployment, "default") != 0 && !run_dir_from_environment();
    if (!deployment_runs(run))
        return error_report(error, MOED_ERROR_NOT_FOUND, false,
                            "%s is not running: start it with: moed up MODEL.gguf%s%s", label,
                            named ? " --name " : "", named ? deployment : "");
    if (supervise_is_worker(process) && serves_folder_only(run))
        return error_report(error, MOED_ERROR_UNAVAILABLE, false,
                            "%s serves a folder and has no model of its own: `moed "
                            "models` lists the folder's, `moed models --load M` loads one, as a "
                            "deployment with its name",
                            label);
    if (strcmp(process, "cpuexec") == 0) /* without a device there need not be one */
        return error_report(error, MOED_ERROR_UNAVAILABLE, false,
                            "%s has no cpuexec: its worker computes the experts, or "
                            "it is being started",
                            label);
    return error_report(error, MOED_ERROR_UNAVAILABLE, true,
                        "%s has no %s now: try again if it is being started; moed ps "
                        "shows whether it has failed",
                        label, process);
}

/* Takes fd. */
static enum moed_code open_channel(struct moed_session *s,
                                   const Moed__V1__SessionAttachReply *reply, int fd,
                                   struct moed_error *error)
{
    if (!reply->window || reply->window > WINDOW_MAX) {
        close(fd);
        return error_report(error, MOED_ERROR_PROTOCOL, false,
                            "the worker offers a window of %" PRIu32 " events: expected 1 to %u",
                            reply->window, WINDOW_MAX);
    }
    pthread_mutex_lock(&s->lock); /* before the callback can run */
    s->window = reply->window;
    pthread_mutex_unlock(&s->lock);
    struct error why = {0};
    struct channel *channel;
    /* Under the lock: a channel that closes at once is the session's before its end is seen to
     * (close_channel). */
    pthread_mutex_lock(&s->send_lock);
    enum error_code code = channel_open(fd, NULL, s->receive, s, &channel, &why);
    if (!code)
        s->channel = channel;
    pthread_mutex_unlock(&s->send_lock);
    return code ? error_convert(error, &why) : MOED_OK;
}

bool session_has_processes(const struct moed_session *s)
{
    char run[RUN_DIR_BYTES];
    return run_dir_path(s->deployment, run, NULL) == ERROR_OK &&
           (run_dir_hint(run, "memd") || has_worker(run));
}

enum supervisor_state session_supervisor_state(const struct moed_session *s, int timeout_ms,
                                               char *reason, size_t reason_bytes)
{
    char run[RUN_DIR_BYTES];
    if (run_dir_path(s->deployment, run, NULL) || run_dir_check(run, NULL))
        return SUPERVISOR_NONE;
    return supervisor_state_get(run, timeout_ms, reason, reason_bytes);
}

void session_find_place(struct moed_session *s)
{
    char run[RUN_DIR_BYTES];
    if (s->dir[0] || run_dir_path(s->deployment, run, NULL))
        return;
    if (!run_dir_place(run, run_dir_serving(run), s->dir))
        s->dir[0] = '\0';
}

bool session_is_replaced(struct moed_session *s)
{
    char run[RUN_DIR_BYTES], dir[RUN_DIR_BYTES];
    pthread_mutex_lock(&s->lock);
    bool other = s->other_model, known = s->model != 0;
    pthread_mutex_unlock(&s->lock);
    return other || (known && s->dir[0] && !run_dir_path(s->deployment, run, NULL) &&
                     run_dir_place(run, run_dir_serving(run), dir) && strcmp(dir, s->dir) != 0);
}

bool moed_session_replaced(const struct moed_session *session)
{
    /* const is a promise to the caller; the lock changes. */
    return !session_is_foreign(session, NULL) &&
           session_is_replaced((struct moed_session *)session);
}

static bool has_worker_at(const char *dir)
{
    for (unsigned i = 1; i <= SUPERVISE_WORKERS; i++)
        if (run_dir_hint_at(dir, supervise_worker_name(i)))
            return true;
    return false;
}

static enum moed_code report_replaced(struct moed_error *error)
{
    return error_report(error, MOED_ERROR_UNAVAILABLE, true,
                        "the deployment has another model now: attach again");
}

bool session_lost_model(struct moed_session *s, struct moed_error *error)
{
    if (!session_is_replaced(s))
        return false;
    bool gone = s->resume_ms <= 0 || !has_worker_at(s->dir); /* it attaches to none again */
    pthread_mutex_lock(&s->lock);
    s->other_model |= gone; /* for good: the next reload serves at the session's place again */
    bool lost = s->other_model;
    pthread_mutex_unlock(&s->lock);
    if (lost)
        report_replaced(error);
    return lost;
}

/* A worker of another model: the session ends there. */
static bool is_other_model(struct moed_session *s, uint64_t model)
{
    pthread_mutex_lock(&s->lock);
    s->other_model = s->model && model != s->model;
    if (!s->model)
        s->model = model;
    bool other = s->other_model;
    pthread_mutex_unlock(&s->lock);
    return other;
}

enum moed_code session_open(struct moed_session *s, int timeout_ms, struct moed_error *error)
{
    char process[WORKER_NAME_BYTES];
    session_find_place(s);
    worker_choice_for_session(s->workers, s->dir, process);
    return session_open_to(s, process, timeout_ms, error);
}

enum moed_code session_open_to(struct moed_session *s, const char *process, int timeout_ms,
                               struct moed_error *error)
{
    struct error why = {0};
    char run[RUN_DIR_BYTES];
    if (run_dir_path(s->deployment, run, &why) || run_dir_check(run, &why))
        return error_convert(error, &why);
    Moed__V1__SessionAttachRequest attach = MOED__V1__SESSION_ATTACH_REQUEST__INIT;
    attach.client = s->client ? s->client : program_invocation_short_name;
    attach.pid = (uint32_t)getpid();
    Moed__V1__Request request = MOED__V1__REQUEST__INIT;
    request.body_case = MOED__V1__REQUEST__BODY_SESSION_ATTACH;
    request.session_attach = &attach;
    Moed__V1__Reply *reply = NULL;
    int fd;
    pthread_mutex_lock(&s->lock);
    snprintf(s->worker, sizeof s->worker, "%s", process);
    pthread_mutex_unlock(&s->lock);
    if (control_call_open(s->dir, process, &request, MOED__V1__REPLY__BODY_SESSION_ATTACH,
                          timeout_ms, &reply, &fd, &why))
        return session_call_failed(error, s->deployment, run, process, &why);
    enum moed_code code = MOED_OK;
    if (is_other_model(s, reply->session_attach->model)) {
        close(fd);
        code = report_replaced(error);
    } else {
        code = open_channel(s, reply->session_attach, fd, error);
    }
    moed__v1__reply__free_unpacked(reply, NULL);
    return code;
}
