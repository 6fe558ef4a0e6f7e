/* A worker that serves a given model file, for verbs that take a MODEL and compute with it: a
 * deployment that runs already, else one of our own, stopped at the end. */
#ifndef MOED_CLI_SERVING_H
#define MOED_CLI_SERVING_H

#include "client/cli/launch.h"
#include "client/include/moed.h"

struct serving {
    const char *model;            /* its path, as model_file_find gives it */
    uint64_t context;             /* tokens of the longest request */
    struct moed_session *session; /* while serving_run calls its work */
    struct moed_model *facts;     /* of the worker, for as long */
    const char *deployment;       /* for moed_attach */
    bool own;                     /* we started it: launch is filled in */
    bool own_folder;              /* and its runtime directory is ours */
    char own_name[32];
    struct launch launch;
};

typedef int serving_work(void *arg); /* returns an exit code */

/* Calls work with a session of a deployment that serves `model`.
 *
 * With a name given, or with MOED_RUN set while something runs there, that deployment must serve
 * the model, with a context of at least `context` tokens; else the only one of this user's that
 * does. Where none does, serving_run starts one for `verb`, and stops it and removes its runtime
 * directory at the end; where several do, the user must name one. A line on standard error names
 * the deployment.
 *
 * Call it before this process has threads (launch.h). Returns an exit code, and has complained
 * where it is not CLI_OK. */
int serving_run(struct serving *s, const char *verb, const char *name, const char *model,
                uint64_t context, serving_work *work, void *arg);

/* After a request failed with `error`: attaches to the worker that takes the place of the one that
 * died, so that the caller can send the request again. deaths: how often it was sent again already.
 * Gives up after two, for the request itself may kill workers. False: it has complained, and
 * *exit_code is set. */
bool serving_attach_again(struct serving *s, unsigned deaths, const struct moed_error *error,
                          int *exit_code);

/* Takes the request's events until it ends, and frees the request. Ctrl-C cancels it (`interrupts`
 * in interrupt.h is set then); an error that `take` returns ends it. */
typedef enum moed_code serving_take(void *arg, const struct moed_event *event,
                                    struct moed_error *error);
enum moed_code serving_consume(struct moed_request *request, serving_take *take, void *arg,
                               struct moed_error *error);

#endif
