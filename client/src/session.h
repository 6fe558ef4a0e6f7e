/* libmoed: a session, as its requests see it: sending, the window, the end.
 *
 *     alive --(session_fail: a protocol fault, moed_detach, no worker comes)--> dead
 *       |  ^
 *       '--' session_resume: the channel closed; another worker continues the requests
 *
 * attach.c creates sessions, worker_choice.c chooses their workers, open.c opens their channels,
 * receive.c takes the worker's messages, resume.c continues and detaches, request.c puts mailboxes
 * into the session, router.c has the sessions to further workers.
 *
 * Invariants:
 *  1. `lock` guards every field of the session and of its mailboxes but `channel`, which
 *     `send_lock` guards. No thread holds both, and no call that can wait is made under either.
 *  2. A mailbox stands in `mailboxes` exactly while it is open. An id below next_id that is not in
 *     the list belongs to a request that has ended or was freed: receive.c drops its messages and
 *     counts them as consumed.
 *  3. outstanding <= window + one step of the worker, else the worker is at fault. So a session's
 *     queues are bounded.
 *  4. A session lives until its handle is detached and its last request is freed (`references`). */
#ifndef MOED_CLIENT_SESSION_H
#define MOED_CLIENT_SESSION_H

#include "client/include/moed.h"
#include "client/src/mailbox.h"
#include "client/src/worker_choice.h"

#include "daemon/run_dir.h"
#include "daemon/supervisor_client.h"
#include "ipc/channel.h"

#include <stdatomic.h>
#include <sys/types.h>

#define SESSION_GONE "the worker has gone; it is being restarted, try again"

struct router;

struct moed_session {
    /* Both of the program's session and its links (router.h); the front owns the router, and the
     * router what is known of the workers. */
    struct router *router;
    struct worker_choice *workers;
    pthread_mutex_t lock;
    unsigned references;
    char worker[WORKER_NAME_BYTES]; /* that it is attached to, or was last */
    /* The place of the model that it is attached to (run_dir.h), and that model. It stays there
     * when another model serves, so no answer begins with one model and ends with another. */
    char dir[RUN_DIR_BYTES];        /* empty before the first attach */
    uint64_t model;                 /* SessionAttachReply.model; 0: not known */
    bool other_model;               /* a worker there had another one */
    struct mailbox *mailboxes;      /* in the order of their start */
    struct mailbox **mailboxes_end; /* the pointer to the next one of them */
    uint64_t next_id;
    uint32_t window;
    uint32_t outstanding; /* events received and not acknowledged */
    uint32_t consumed;    /* of those, events that the program is done with */
    uint32_t stale;       /* events of an earlier channel that the program has not consumed */
    bool alive;
    struct moed_error death; /* why not alive */
    int timeout_ms;
    pid_t pid; /* of the process that attached; never changes */

    /* Attaching again (resume.c). */
    char *deployment, *client; /* as moed_attach was given them; NULL: its defaults */
    int resume_ms;             /* how long to wait for another worker; 0: not at all */
    pthread_t resumer;
    bool has_resumer;
    bool lost;              /* the channel has closed; `resumer` is to look */
    bool resuming;          /* there is no channel that takes requests */
    _Atomic uint64_t epoch; /* counts the channels that have closed; changes under `lock` */
    pthread_cond_t changed; /* lost, or dead */

    pthread_mutex_t send_lock;
    struct channel *channel;   /* NULL before it is connected and once detached */
    channel_callback *receive; /* of each channel (receive.h); moed_attach sets it */
};

/* Returns a session without a channel, with one reference; NULL: no memory. */
struct moed_session *session_new(int timeout_ms);
/* Sets the deployment and the client's name; each may be NULL. False: no memory. */
bool session_name(struct moed_session *s, const char *deployment, const char *client);
/* Another one, as `front` was made, to be attached to another worker; NULL: no memory. */
struct moed_session *session_new_link(const struct moed_session *front);
/* This process is not the one that attached, but a child of it: the session's threads do not run
 * here, and its locks may be held by threads that do not exist. Then fills *error. */
bool session_is_foreign(const struct moed_session *s, struct moed_error *error);
/* Takes a reference. */
void session_ref(struct moed_session *s);
/* Drops a reference; the last one frees the session. */
void session_unref(struct moed_session *s);

/* A number that no request of the session had. */
uint64_t session_new_id(struct moed_session *s);
/* Puts m, which has an id, into the session and takes a reference, which the caller drops once m
 * has left the session. Fails with `death` where the session is dead. *epoch: for session_send_new;
 * UINT64_MAX where there is no channel now. */
enum moed_code session_add(struct moed_session *s, struct mailbox *m, uint64_t *epoch,
                           struct moed_error *error);
/* Takes m off the list, if it is there. The caller holds `lock`. */
void session_remove(struct moed_session *s, struct mailbox *m);
/* The channel of `epoch`, which may have closed since, has taken m's message. The caller holds
 * `lock`. */
void session_note_sent(struct moed_session *s, struct mailbox *m, uint64_t epoch);
/* Ends the session: every open mailbox fails. Does nothing where the session is dead. */
void session_fail(struct moed_session *s, const struct moed_error *why);

/* The functions below are called without locks. */

/* The channel has closed: starts the thread that attaches to the next worker. False: the session
 * does not resume. On the channel's thread. */
bool session_resume(struct moed_session *s);
/* Ends the session, its thread and its channel (resume.c). The references stay. */
void session_detach(struct moed_session *s);
/* Sets s->dir, unless it is set. */
void session_find_place(struct moed_session *s);
/* One attempt to get a channel (open.c), to the worker with least to do. */
enum moed_code session_open(struct moed_session *s, int timeout_ms, struct moed_error *error);
/* The same, to this worker. */
enum moed_code session_open_to(struct moed_session *s, const char *process, int timeout_ms,
                               struct moed_error *error);
/* Reports a failed control_call. A deployment that does not run and a process that does not run now
 * get errors of their own. */
enum moed_code session_call_failed(struct moed_error *error, const char *deployment,
                                   const char *run, const char *process, const struct error *why);
/* Whether memd or a worker of the deployment lives, perhaps to answer later. */
bool session_has_processes(const struct moed_session *s);
/* Whether the deployment has another model now than the session: at its place, or because another
 * place serves. */
bool session_is_replaced(struct moed_session *s);
/* Its channel has closed: whether nothing of the session's model runs any more, or the session does
 * not resume though the deployment has another one; then *error says so, and the session stays
 * replaced. */
bool session_lost_model(struct moed_session *s, struct moed_error *error);
/* What the deployment's supervisor does about its processes; see daemon/supervisor_client.h. */
enum supervisor_state session_supervisor_state(const struct moed_session *s, int timeout_ms,
                                               char *reason, size_t reason_bytes);
/* Sends a packed ToWorker. */
enum moed_code session_send_packed(struct moed_session *s, const uint8_t *data, size_t len,
                                   struct moed_error *error);
/* The same for the request of m, which session_add has put into the session at `epoch`. Does
 * nothing where that channel has closed since: the request is then sent with those that continue.
 */
enum moed_code session_send_new(struct moed_session *s, struct mailbox *m, uint64_t epoch,
                                const uint8_t *data, size_t len, struct moed_error *error);
enum moed_code session_send(struct moed_session *s, const Moed__V1__ToWorker *body,
                            struct moed_error *error);
/* Adds events that the program has consumed. Acknowledges them to the worker once they are a
 * quarter of the window. */
void session_consumed(struct moed_session *s, uint32_t events);

#endif
