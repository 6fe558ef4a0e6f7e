/* Who serves a model file; see serving.h. */
#include "client/cli/serving.h"

#include "client/cli/ask.h"
#include "client/cli/commands.h"
#include "client/cli/interrupt.h"
#include "client/cli/model_file.h"

#include <dirent.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAX_DEATHS 2 /* of a worker, of one request */

/* ---- A deployment that runs ---- */

struct search {
    const char *model;
    char found[64]; /* the name; "": none */
};

/* Any of its processes may be on its way up: attaching waits for that. */
static void visit(void *arg, const char *name, const char *run)
{
    struct search *search = arg;
    static struct deployment_status status; /* large */
    if (search->found[0] || !run_dir_holder(run, "supervise") ||
        deployment_status(run, &status, NULL) || !model_file_same(status.model, search->model))
        return;
    snprintf(search->found, sizeof search->found, "%s", name);
}

/* ---- One of our own ---- */

static int start_own(struct serving *s, const char *verb, const char *model, uint64_t ctx)
{
    s->own_folder = getenv("MOED_RUN") == NULL;
    snprintf(s->own_name, sizeof s->own_name, "%s-%d", verb, (int)getpid());
    s->deployment = s->own_name;
    s->launch = (struct launch){
        .name = s->own_name, .model = model, .ctx = ctx, .parallel = 1, .bound = true};
    if (!deployment_path(s->own_name, s->launch.run))
        return CLI_FAILURE;
    fprintf(stderr, "moed: no deployment serves %s: one is started, and stopped at the end\n",
            model);
    int result = launch_start(&s->launch);
    s->own = result == CLI_OK;
    return result;
}

/* Our deployment's files: logs that nobody will ask for. */
static void remove_folder(const char *run)
{
    DIR *folder = opendir(run);
    for (struct dirent *entry; folder && (entry = readdir(folder));) {
        char path[RUN_PATH_BYTES];
        if (entry->d_name[0] == '.' || strlen(run) + strlen(entry->d_name) + 2 > sizeof path)
            continue;
        run_dir_file(run, entry->d_name, path);
        unlink(path);
    }
    if (folder)
        closedir(folder);
    rmdir(run);
}

void serving_close(struct serving *s)
{
    if (!s->own)
        return;
    launch_stop(&s->launch);
    if (s->own_folder)
        remove_folder(s->launch.run);
    s->own = false;
}

/* ---- Either ---- */

int serving_open(struct serving *s, const char *verb, const char *name, const char *model,
                 uint64_t ctx)
{
    static struct search search;
    char run[RUN_DIR_BYTES];
    struct error e = {0};
    *s = (struct serving){.deployment = name};
    if (!deployment_path(name, run))
        return CLI_USAGE;
    if (name || getenv("MOED_RUN")) {
        if (deployment_has_processes(run))
            return CLI_OK;
        return name ? deployment_not_running(name) : start_own(s, verb, model, ctx);
    }
    search.model = model;
    if (run_dir_list(visit, &search, &e)) {
        ask_complain("%s", e.text);
        return CLI_FAILURE;
    }
    if (!search.found[0])
        return start_own(s, verb, model, ctx);
    s->deployment = search.found;
    return CLI_OK;
}

int serving_attach(const struct serving *s, const char *model, struct moed_session **session,
                   struct moed_model **facts)
{
    int exit_code;
    struct moed_error error;
    struct moed_session *attached;
    struct moed_model *served;
    if (!ask_attach(s->deployment, &attached, &exit_code))
        return exit_code;
    if (moed_model_get(attached, &served, &error)) {
        moed_detach(attached);
        return ask_failed(&error);
    }
    if (!model_file_same(served->path, model)) {
        ask_complain("deployment %s serves %s, not %s: --name N selects another, `moed up --name "
                     "N` starts one",
                     s->deployment ? s->deployment : "default", served->path, model);
        moed_model_free(served);
        moed_detach(attached);
        return CLI_FAILURE;
    }
    *session = attached;
    *facts = served;
    return CLI_OK;
}

bool serving_attach_context(const struct serving *s, const char *model, uint64_t context,
                            struct moed_session **session, int *exit_code)
{
    struct moed_model *facts;
    *exit_code = serving_attach(s, model, session, &facts);
    if (*exit_code)
        return false;
    bool fits = context <= facts->context;
    if (!fits)
        ask_complain("the deployment's context is %" PRIu32 " tokens, less than the %" PRIu64
                     " that are needed: start it with a larger --ctx, or give --context %" PRIu32,
                     facts->context, context, facts->context);
    moed_model_free(facts);
    *exit_code = CLI_FAILURE;
    return fits;
}

bool serving_attach_again(const struct serving *s, const char *model, uint64_t context,
                          unsigned deaths, const struct moed_error *error,
                          struct moed_session **session, int *exit_code)
{
    if (!error->retry || deaths == MAX_DEATHS) {
        *exit_code = ask_failed(error);
        return false;
    }
    moed_detach(*session);
    *session = NULL;
    return serving_attach_context(s, model, context, session, exit_code);
}

enum moed_code serving_consume(struct moed_request *request, serving_take *take, void *arg,
                               struct moed_error *error)
{
    struct pollfd fds[] = {{.fd = moed_request_fd(request), .events = POLLIN},
                           {.fd = interrupts_fd(), .events = POLLIN}};
    bool cancelled = false;
    enum moed_code code = MOED_OK;
    struct moed_event event = {0};
    interrupts_hold(true);
    while (!code && event.kind != MOED_EVENT_DONE) {
        fds[0].revents = 0; /* poll leaves it alone when a signal ends it */
        poll(fds, cancelled ? 1 : 2, -1);
        if (interrupts && !cancelled) {
            cancelled = true;
            moed_request_cancel(request);
        }
        if (!fds[0].revents)
            continue;
        code = moed_request_next(request, 0, &event, error);
        if (!code)
            code = take(arg, &event, error);
    }
    interrupts_hold(false);
    moed_request_free(request);
    return code;
}
