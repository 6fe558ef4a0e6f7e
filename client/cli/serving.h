/* A worker that serves a given model file, for verbs that take a MODEL and compute with it: a
 * deployment that runs already, else one of our own, stopped when we are done. */
#ifndef MOED_CLI_SERVING_H
#define MOED_CLI_SERVING_H

#include "client/cli/launch.h"
#include "client/include/moed.h"

struct serving {
    const char *deployment; /* for moed_attach */
    bool own;               /* it is ours: launch is filled in */
    bool own_folder;        /* and its runtime directory too */
    char own_name[32];
    struct launch launch;
};

/* Find the deployment that serves `model` (as model_file_find gives it). With a name given, or with
 * MOED_RUN set while something runs there, that one must; else any of this user's. Where none does,
 * and none was named, one is started for `verb` with a context of `ctx` tokens. Returns an exit code; it has
 * complained where that is not CLI_OK. Before this process touches nng (launch.h). */
int serving_open(struct serving *s, const char *verb, const char *name, const char *model,
                 uint64_t ctx);
/* Attach, waiting for a worker that is being restarted, and check that it is this model. *facts is
 * released with moed_model_free, *session with moed_detach. Returns an exit code. */
int serving_attach(const struct serving *s, const char *model, struct moed_session **session,
                   struct moed_model **facts);
/* The same, and the deployment's context must hold a piece of `context` tokens, which --context sets. False: it has
 * complained, and *exit_code is what to exit with. */
bool serving_attach_context(const struct serving *s, const char *model, uint64_t context,
                            struct moed_session **session, int *exit_code);

/* A request has failed with `error`. Where it can be sent again, to a worker that takes the place of one that died: attach to
 * that. deaths: how often this request was sent again already; after two it is given up, for a worker that dies of the very
 * request would die for ever. False: it has complained, and *exit_code is what to exit with. */
bool serving_attach_again(const struct serving *s, const char *model, uint64_t context,
                          unsigned deaths, const struct moed_error *error,
                          struct moed_session **session, int *exit_code);

/* Take the request's events until it ends; Ctrl-C cancels it (interrupt.h, `interrupts` tells). What `take` returns that is
 * not MOED_OK ends it too. Frees the request. */
typedef enum moed_code serving_take(void *arg, const struct moed_event *event,
                                    struct moed_error *error);
enum moed_code serving_consume(struct moed_request *request, serving_take *take, void *arg,
                               struct moed_error *error);
/* Stop what serving_open started, and remove its runtime directory. */
void serving_close(struct serving *s);

#endif
