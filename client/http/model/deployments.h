/* The deployments of this user, which are the server's models.
 *
 * Each deployment that was seen has a thread, on which what may wait for its worker happens:
 * attaching, rendering, starting a request. Questions that need no slot of the worker (tokenizing a
 * text, say) have a second thread, with a session of its own, and clients take turns at it. So they
 * delay no request, and a worker that hangs stops only its own model. A deployment that has gone
 * leaves the table a minute later, once nobody holds it; until then its names stay known. The
 * frontend's own stays.
 *
 * A model has these names: the deployment's, the model file's without ".gguf", and aliases
 * (model_names.h). No name stands for the default: the frontend's own deployment, or the only one
 * that runs where the own one has no model or was stopped.
 *
 *   deployments_want --> known and running? --yes--> ready
 *                             |  no, and moed-models runs
 *                             '--> demand_ask --> up --> look again --> ready
 *                                             '--> it cannot be loaded --> ready, with a problem */
#ifndef MOED_HTTP_DEPLOYMENTS_H
#define MOED_HTTP_DEPLOYMENTS_H

#include "client/http/model/demand.h"
#include "client/http/model/model_names.h"
#include "client/http/server/jobs.h"
#include "client/http/server/turns.h"
#include "client/include/moed.h"

#include <limits.h>
#include <stdbool.h>
#include <sys/types.h>
#include <time.h>

#define DEPLOYMENTS_MAX       1024 /* more than a folder has models (catalogue.h) */
#define DEPLOYMENT_NAME_BYTES 40
#define DEPLOYMENT_REPLACED   8

struct deployments;
struct chat_model;
struct vocabulary;

/* Something that a deployment's processes have, as they last reported it. Zeroed at first. */
struct deployment_capacity {
    uint64_t asked_ns; /* 0: not yet */
    uint64_t value;
};

/* A session, and what its thread keeps of its model. */
struct attachment {
    struct deployment *of;
    struct moed_session *session;  /* NULL: not attached */
    struct chat_model *chat;       /* chat_render.h; NULL: not known yet */
    struct vocabulary *vocabulary; /* vocabulary.h; the same */
};

struct deployment {
    char name[DEPLOYMENT_NAME_BYTES];
    char model[MODEL_NAME_BYTES]; /* as /v1/models lists it; empty: not known yet */
    char stem[MODEL_NAME_BYTES];  /* the model file's name, also while `facts` are not known */
    bool running;                 /* its worker runs */
    bool expected;                /* its worker runs, or is started again */
    pid_t memd;                   /* the one that `facts` are of */
    time_t since;                 /* when the frontend first knew the model */
    uint64_t wanted_ns;           /* of one on demand: when moed-models last heard of its use */
    struct moed_model *facts;     /* NULL: not known yet. The loop's thread reads it */
    struct deployments *all;
    unsigned holders;          /* deployment_hold */
    uint64_t gone_ns;          /* since when it neither runs nor is expected; 0: it does */
    struct job retire;         /* ends its sessions, */
    struct turn retire_asking; /* and then that of questions */
    bool retired;              /* it has, and since then it did not come back, nor was it held */
    bool probing;
    struct job_queue queue;
    struct attachment answering; /* its thread's */
    struct turns questions;      /* where asks */
    bool asks;                   /* the first question starts that thread */
    struct attachment asking;    /* that thread's */
    /* For answers under a grammar: the worker compiles grammars on the session's thread,
     * so one that takes long delays no others. */
    struct moed_session *grammar_session;
    /* Its thread's, too: sessions of a model that was replaced, whose answers end there. */
    struct moed_session *replaced[DEPLOYMENT_REPLACED];
    unsigned replacements; /* how often its session's model was */
    /* Of the thread that asks its processes (app.h). */
    struct deployment_capacity device_bytes, parallel;
};

enum list_when { LIST_NEVER, LIST_UNKNOWN, LIST_ALWAYS };

/* A caller that waits for deployments_refresh, _list, _seek or _want. Zeroed but for `ready`, it
 * may be cancelled at any time. */
struct deployments_waiter {
    void (*ready)(struct deployments_waiter *w);
    struct deployments_waiter *next;
    const char *model;   /* borrowed */
    enum list_when list; /* when it waits for the folder's list */
    bool listed;         /* it has */
    /* of deployments_want */
    bool wants, asked;
    struct demand_wait demand;
    struct deployments *all;
};

struct deployments {
    struct loop *loop;
    const char *own;          /* the name of the frontend's deployment */
    char own_run[PATH_MAX];   /* its runtime directory */
    bool has_own;             /* its memd has run: it has a model, not only those of a folder */
    const char *own_template; /* its chat template; NULL: the model's */
    struct model_names names;
    struct deployment *items[DEPLOYMENTS_MAX];
    unsigned count, probes; /* probes: jobs that run */
    bool full;              /* the log has reported that there are more deployments */
    uint64_t keep_gone_ns;  /* how long one that has gone stays */
    struct deployments_waiter *waiters;
    struct demand demand;
    struct demand_wait list_wait;
    struct deployments_waiter *list_waiters; /* those that wait for the folder's list, too */
    uint64_t listed_ns;                      /* when moed-models last sent it, or failed to */
};

void deployments_init(struct deployments *d, struct loop *loop, const char *own, const char *run);
/* The chat template that replaces the model's; NULL: none. On any thread. */
const char *deployment_template(const struct deployment *d);
/* Ends the threads. Frees `names` too. */
void deployments_fini(struct deployments *d);

/* Notes which deployments run now (`running`), and frees those that have gone. */
void deployments_look(struct deployments *d);
/* There is no model but those of the folder: a request has one loaded. As of the last look. */
bool deployments_only_on_demand(const struct deployments *d);
/* Keeps d, which is in the table, beyond the caller's return to the loop. */
struct deployment *deployment_hold(struct deployment *d);
void deployment_release(struct deployment *d); /* takes NULL */
/* Looks which deployments run, and asks those whose model is not known. Calls w->ready once all
 * have answered or failed: perhaps before it returns. */
void deployments_refresh(struct deployments *d, struct deployments_waiter *w);
/* The same, and then has moed-models list the folder. */
void deployments_list(struct deployments *d, struct deployments_waiter *w);
/* The same, if `model` is not known: it may be a new one of the folder. */
void deployments_seek(struct deployments *d, struct deployments_waiter *w, const char *model);
/* The same, and has the model loaded if it runs nowhere and moed-models can load it. Where it
 * cannot be, w->demand.problem says why. keep_s: how long it then stays loaded without requests;
 * NULL: as it was. */
void deployments_want(struct deployments *d, struct deployments_waiter *w, const char *model,
                      const double *keep_s);
void deployments_cancel(struct deployments *d, struct deployments_waiter *w);

/* The model that a request's name stands for: another name, or "" for the default. model: NULL or
 * "": no name. */
const char *deployments_meant(const struct deployments *d, const char *model);
/* The running deployment of that model, among those known; NULL or "": no name. */
struct deployment *deployments_find(const struct deployments *d, const char *model);
/* The same two without --any-model, for requests that change a deployment: a name that no model has
 * stands for none. */
const char *deployments_named(const struct deployments *d, const char *model);
struct deployment *deployments_find_named(const struct deployments *d, const char *model);
/* A deployment that starts or restarts has the model, or may have it. meant: of deployments_meant
 * or deployments_named, not "". */
bool deployments_starting(const struct deployments *d, const char *meant);

/* The model of the folder that a request for `model` would load; NULL: none that is known. */
const struct demand_model *deployments_unloaded(const struct deployments *d, const char *model);

/* Posts a turn to the thread of questions. Fails where that cannot be started. */
enum error_code deployment_post_question(struct deployment *d, uint64_t client, struct turn *turn,
                                         struct error *e);
/* On that thread: attaches d->asking where that is needed. */
enum moed_code deployment_attach_asking(struct deployment *d, struct moed_error *error);

/* On the deployment's thread: attaches d->answering where that is needed. */
enum moed_code deployment_attach(struct deployment *d, struct moed_error *error);
/* The same; starts the request on the session that is for it. */
enum moed_code deployment_generate(struct deployment *d,
                                   const struct moed_generate_options *options,
                                   struct moed_request **out, struct moed_error *error);

/* On the thread that asks the processes: at most once a second, and waits for it. c: d's. */
uint64_t deployment_capacity(const struct deployment *d, struct deployment_capacity *c,
                             uint64_t (*ask)(const char *deployment));

#endif
