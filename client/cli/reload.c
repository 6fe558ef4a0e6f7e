/* moed reload: has the supervisor load another model beside the one that serves, and switch to it
 * (deploy/reload.h); shows the progress until the model before has stopped. */
#include "base/clock.h"
#include "client/cli/ask.h"
#include "client/cli/commands.h"
#include "client/cli/deployment.h"
#include "client/cli/interrupt.h"
#include "client/cli/launch.h"
#include "client/cli/model_file.h"
#include "client/cli/predictors_file.h"
#include "client/cli/progress.h"

#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

#define POLL_MS 50

struct reload_wait {
    const char *run;
    const struct launch *launch;
    unsigned number; /* of our reload */
    bool stop_first;
    bool serves, drains, cancelled; /* what has been said */
    double started_s;
    struct progress progress;
};

static void command_add(struct strbuf *command, const char *key, const char *value)
{
    if (value)
        strbuf_printf(command, "\t%s=%s", key, value);
}

/* Begins the reload. 0: it has complained. */
static unsigned begin(const char *run, const struct launch *l, bool stop_first)
{
    struct strbuf command, answer;
    struct error e = {0};
    unsigned number = 0;
    strbuf_init(&command);
    strbuf_init(&answer);
    strbuf_printf(&command, "reload");
    command_add(&command, "model", l->model);
    command_add(&command, "predictors", l->options.predictors);
    command_add(&command, "ram", l->options.ram);
    command_add(&command, "device", l->options.device);
    command_add(&command, "kv_cache", l->options.kv_cache);
    command_add(&command, "policy", l->options.policy);
    if (l->options.ctx)
        strbuf_printf(&command, "\tctx=%" PRIu64, l->options.ctx);
    command_add(&command, "stop_first", stop_first ? "1" : NULL);
    if (command.failed)
        cli_complain("reload: no memory for the command");
    else if (deployment_command(run, command.data, &answer, &e))
        cli_complain("reload: %s", e.text);
    else if (sscanf(answer.data, "reload\tnumber=%u", &number) != 1)
        cli_complain("reload: the supervisor gave no answer");
    strbuf_fini(&command);
    strbuf_fini(&answer);
    return number;
}

/* The first process of the next model that is not ready. */
static void show_progress(struct reload_wait *w, const struct deployment_status *s)
{
    if (strcmp(s->reload.state, "making-room") == 0) {
        progress_show(&w->progress, "reload", "the model that serves finishes its requests");
        return;
    }
    for (unsigned i = 0; i < s->n_others; i++) {
        const struct deployment_process *p = &s->others[i];
        if (strcmp(p->state, "ready") == 0)
            continue;
        progress_show(&w->progress, p->name, p->status[0] ? p->status : p->state);
        return;
    }
}

/* The next model serves. */
static void announce(struct reload_wait *w)
{
    if (w->serves)
        return;
    w->serves = true;
    progress_end(&w->progress);
    printf("%s serves after %.1f s\n", w->launch->model, clock_s() - w->started_s);
    ask_flush();
}

static int complain_of_failure(const struct reload_wait *w, const struct deployment_status *s)
{
    bool memory = strstr(s->reload.reason, "memory") != NULL;
    cli_complain("reload: %s", s->reload.reason);
    fprintf(stderr, "moed: %s serves%s%s\n", s->model, w->stop_first ? " again" : " on",
            memory && !w->stop_first ? "; --stop-first stops it before the next one is loaded"
                                     : "");
    return w->cancelled ? EXIT_INTERRUPTED : CLI_FAILURE;
}

/* An exit code once the reload is over; else -1. */
static int look(struct reload_wait *w, const struct deployment_status *s)
{
    const char *state = s->reload.state;
    if (s->reload.number != w->number) { /* another one began when ours was over */
        cli_complain("reload: another reload has begun; `moed ps` shows it");
        return w->serves ? CLI_OK : CLI_FAILURE;
    }
    if (strcmp(state, "failed") == 0)
        return complain_of_failure(w, s);
    if (strcmp(state, "draining") == 0 || strcmp(state, "done") == 0)
        announce(w);
    else if (strcmp(state, "undoing") != 0)
        show_progress(w, s);
    return strcmp(state, "done") == 0 ? CLI_OK : -1;
}

/* Ctrl-C before the switch undoes the reload; behind it only the waiting ends. */
static bool take_interrupt(struct reload_wait *w)
{
    struct strbuf answer;
    if (!interrupts || w->cancelled)
        return false;
    if (w->serves)
        return true;
    w->cancelled = true;
    strbuf_init(&answer);
    deployment_command(w->run, "reload-cancel", &answer, NULL);
    strbuf_fini(&answer);
    return false;
}

/* Without a limit: a model may load for long. */
static int wait_for_end(struct reload_wait *w)
{
    static struct deployment_status status; /* large */
    struct error e = {0};
    int exit_code = -1;
    for (; exit_code < 0; poll(NULL, 0, POLL_MS)) {
        if (take_interrupt(w))
            return CLI_OK;
        if (deployment_status(w->run, &status, &e)) {
            progress_end(&w->progress);
            cli_complain("reload: %s", e.text);
            return CLI_FAILURE;
        }
        exit_code = look(w, &status);
        if (exit_code >= 0)
            break;
        if (w->serves && !w->drains) {
            w->drains = true;
            fprintf(stderr, "moed: the model before finishes its requests and stops\n");
        }
    }
    return exit_code;
}

static int reload(const char *run, struct launch *l, bool stop_first)
{
    struct reload_wait w = {
        .run = run, .launch = l, .stop_first = stop_first, .started_s = clock_s()};
    int exit_code = launch_check_model(l, false);
    if (exit_code)
        return exit_code;
    if (!stop_first && (exit_code = launch_check_model(l, true))) {
        fprintf(stderr, "moed: nothing was changed; --stop-first stops the first model before the "
                        "next one is loaded\n");
        return exit_code;
    }
    if (!interrupts_watch() || !(w.number = begin(run, l, stop_first)))
        return CLI_FAILURE;
    interrupts_hold(true);
    progress_begin(&w.progress);
    exit_code = wait_for_end(&w);
    progress_end(&w.progress);
    interrupts_hold(false);
    return exit_code;
}

int reload_main(int argc, char **argv)
{
    static char model[PATH_MAX], predictors[PREDICTORS_PATH];
    static struct launch l; /* large */
    const char *model_text = NULL, *option_text = NULL;
    bool stop_first = false;
    struct deployment_options *o = &l.options;
    launch_init(&l);
    const struct option_spec table[] = {
        {"model", OPTION_STRING, &model_text, 0, 0, "MODEL", "the same as MODEL"},
        {"stop-first", OPTION_BOOL, &stop_first, 0, 0, NULL,
         "stop the first model before the next is loaded; refuse requests meanwhile"},
        deployment_options_spec("ctx", o, "set a request's context; 0: as before"),
        deployment_options_spec(
            "ram", o,
            "keep SIZE (bytes or 50%) of the weights in host memory (default: as before)"),
        deployment_options_spec("device", o, "run on this device (default: as before)"),
        deployment_options_spec("kv-cache", o,
                                "keep conversations in SIZE of host memory (default: as before)"),
        deployment_options_spec("policy", o,
                                "use this policy of the expert cache (default: that of `moed up`)"),
        {"predictors", OPTION_STRING, &option_text, 0, 0, "FILE|none",
         "use what `moed train` wrote (default: MODEL.predictors, if it exists)"},
        {"name", OPTION_STRING, &l.name, 0, 0, "NAME", "select a deployment (default: default)"},
        {0},
    };
    int n, exit_code;
    if (!ask_arguments(
            table, "reload", "MODEL [OPTION]...",
            "Loads MODEL beside the model that serves. When it is ready, new requests go\n"
            "to it; requests that run end with the model that began them, which then\n"
            "stops. If MODEL cannot be loaded, the first one serves on.",
            argc, argv, 0, 1, &n, &exit_code))
        return exit_code;
    if (n)
        model_text = argv[1];
    if (!model_text) {
        cli_complain("reload: MODEL is missing; usage: moed reload MODEL [OPTION]...");
        return CLI_USAGE;
    }
    if (!deployment_find_supervised(l.name, l.run, &exit_code))
        return exit_code;
    if (!model_file_find(model_text, model) ||
        !predictors_file_find(option_text, model, predictors))
        return CLI_FAILURE;
    l.model = model;
    l.options.predictors = predictors[0] ? predictors : NULL;
    return reload(l.run, &l, stop_first);
}
