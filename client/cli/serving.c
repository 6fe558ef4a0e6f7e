/* Serving a model file; see serving.h. */
#include "client/cli/serving.h"

#include "base/same_file.h"
#include "client/cli/ask.h"
#include "client/cli/commands.h"
#include "client/cli/interrupt.h"

#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define MAX_DEATHS 2 /* of workers, of one request */

/* ---- A deployment that runs ---- */

struct search {
    const char *model;
    uint64_t context;
    unsigned count;
    char found[64];      /* the first one */
    struct strbuf names; /* of all: "a, b" */
};

static uint32_t read_context(const char *name)
{
    const struct moed_attach_options options = {
        .size = sizeof options, .deployment = name, .client = "moed"};
    struct moed_session *session;
    struct moed_model *facts;
    if (moed_attach(&options, &session, NULL) || moed_model_get(session, &facts, NULL))
        return 0;
    return facts->context;
}

/* The context of a deployment; 0: not known. Its worker may still be starting: this waits for that.
 * A child asks it, because this process must have no threads if it starts a deployment. */
static uint32_t context_of(const char *name)
{
    int pipe_fds[2];
    uint32_t context = 0;
    if (pipe2(pipe_fds, O_CLOEXEC))
        return 0;
    pid_t child = fork();
    if (child == 0) {
        context = read_context(name);
        _exit(write(pipe_fds[1], &context, sizeof context) != sizeof context);
    }
    close(pipe_fds[1]);
    if (child > 0 && read(pipe_fds[0], &context, sizeof context) != sizeof context)
        context = 0;
    close(pipe_fds[0]);
    if (child > 0)
        waitpid(child, NULL, 0);
    return context;
}

static void visit(void *arg, const char *name, const char *run)
{
    struct search *search = arg;
    static struct deployment_status status; /* large */
    if (!run_dir_holder(run, "supervise") || deployment_status(run, &status, NULL) ||
        !same_file(status.model, search->model))
        return;
    uint32_t context = context_of(name);
    if (context && context < search->context)
        return;
    if (!search->count++)
        snprintf(search->found, sizeof search->found, "%s", name);
    strbuf_printf(&search->names, "%s%s", search->count > 1 ? ", " : "", name);
}

/* Finds the one deployment that serves the model with enough context. None: search->count is 0. */
static int find_deployment(struct search *search)
{
    struct error e = {0};
    strbuf_init(&search->names);
    bool listed = run_dir_list(visit, search, &e) == ERROR_OK;
    bool clear = listed && search->count <= 1;
    if (!listed)
        cli_complain("%s", e.text);
    else if (!clear)
        cli_complain("several deployments serve %s: %s; choose one with --name", search->model,
                     search->names.failed ? "see moed ps" : search->names.data);
    strbuf_fini(&search->names);
    return clear ? CLI_OK : listed ? CLI_USAGE : CLI_FAILURE;
}

/* ---- One of our own ---- */

static int start_own(struct serving *s, const char *verb)
{
    s->own_folder = getenv("MOED_RUN") == NULL;
    snprintf(s->own_name, sizeof s->own_name, "%s-%d", verb, (int)getpid());
    s->deployment = s->own_name;
    launch_init(&s->launch);
    s->launch.name = s->own_name;
    s->launch.model = s->model;
    s->launch.options.ctx = s->context;
    s->launch.options.parallel = 1;
    s->launch.bound = true;
    if (!deployment_path(s->own_name, s->launch.run))
        return CLI_FAILURE;
    fprintf(stderr,
            "moed: no deployment serves %s: one is started on the CPU, and stopped at the end; "
            "`moed up` starts one with a GPU or --ram\n",
            s->model);
    int result = launch_start(&s->launch);
    s->own = result == CLI_OK;
    return result;
}

static void stop_own(struct serving *s)
{
    if (!s->own)
        return;
    launch_stop(&s->launch);
    if (s->own_folder)
        run_dir_remove(s->launch.run, NULL);
    s->own = false;
}

/* ---- Either ---- */

/* Finds or starts the deployment. Returns an exit code. */
static int choose_deployment(struct serving *s, const char *verb, const char *name)
{
    static struct search search;
    char run[RUN_DIR_BYTES];
    s->deployment = name;
    if (!deployment_path(name, run))
        return CLI_USAGE;
    if (name || getenv("MOED_RUN")) {
        if (deployment_has_processes(run))
            return CLI_OK;
        return name ? deployment_not_running(name) : start_own(s, verb);
    }
    search = (struct search){.model = s->model, .context = s->context};
    int exit_code = find_deployment(&search);
    if (exit_code)
        return exit_code;
    if (!search.count)
        return start_own(s, verb);
    s->deployment = search.found;
    return CLI_OK;
}

/* Complains where the deployment serves another model, or with too short a context. */
static bool is_suitable(const struct serving *s, const struct moed_model *facts)
{
    char label[RUN_LABEL_BYTES];
    run_dir_label(s->deployment, label);
    if (!same_file(facts->path, s->model)) {
        cli_complain("%s serves %s, not %s: --name N selects another, `moed up --name "
                     "N` starts one",
                     label, facts->path, s->model);
        return false;
    }
    if (s->context > facts->context) {
        cli_complain("the context of %s is %" PRIu32 " tokens, less than the %" PRIu64
                     " that are needed: start it with a larger --ctx, or give --context %" PRIu32,
                     label, facts->context, s->context, facts->context);
        return false;
    }
    return true;
}

/* Attaches, and waits for a worker that is being restarted. Returns an exit code. */
static int attach(struct serving *s)
{
    int exit_code;
    struct moed_error error;
    if (!ask_attach(s->deployment, &s->session, &exit_code))
        return exit_code;
    if (moed_model_get(s->session, &s->facts, &error))
        return ask_failed(&error);
    return is_suitable(s, s->facts) ? CLI_OK : CLI_FAILURE;
}

/* Says which deployment it is: figures depend on how it computes. */
static void announce(const struct serving *s)
{
    char label[RUN_LABEL_BYTES];
    run_dir_label(s->deployment, label);
    if (!s->own)
        fprintf(stderr, "moed: uses %s (kv %s, %s%s)\n", label, s->facts->kv_type, s->facts->device,
                s->facts->reproducible ? ", reproducible" : "");
}

static void detach(struct serving *s)
{
    moed_detach(s->session);
    moed_model_free(s->facts);
    s->session = NULL;
    s->facts = NULL;
}

int serving_run(struct serving *s, const char *verb, const char *name, const char *model,
                uint64_t context, serving_work *work, void *arg)
{
    *s = (struct serving){.model = model, .context = context};
    int exit_code = choose_deployment(s, verb, name);
    if (exit_code)
        return exit_code;
    exit_code = interrupts_watch() ? attach(s) : CLI_FAILURE;
    if (!exit_code) {
        announce(s);
        exit_code = work(arg);
    }
    detach(s);
    stop_own(s);
    return exit_code;
}

bool serving_attach_again(struct serving *s, unsigned deaths, const struct moed_error *error,
                          int *exit_code)
{
    if (!error->retry || deaths == MAX_DEATHS) {
        *exit_code = ask_failed(error);
        return false;
    }
    detach(s);
    *exit_code = attach(s);
    return *exit_code == CLI_OK;
}

enum moed_code serving_consume(struct moed_request *request, serving_take *take, void *arg,
                               struct moed_error *error)
{
    struct pollfd fds[] = {{.fd = moed_request_fd(request), .events = POLLIN},
                           {.fd = interrupts_fd(), .events = POLLIN}};
    bool cancelled = false;
    enum moed_code code = MOED_OK;
    const struct moed_event *event = NULL;
    interrupts_hold(true);
    while (!code && (!event || event->kind != MOED_EVENT_DONE)) {
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
            code = take(arg, event, error);
    }
    interrupts_hold(false);
    moed_request_free(request);
    return code;
}
