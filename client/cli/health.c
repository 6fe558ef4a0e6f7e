/* moed health: whether a deployment answers, by its supervisor and by its processes themselves. For
 * health checks of containers: it needs neither a port, a key nor a certificate. */
#include "client/cli/ask.h"
#include "client/cli/commands.h"
#include "client/cli/deployment.h"

#include <stdio.h>
#include <string.h>

/* Whether the process says that it serves; else why not, in `why`. */
static bool process_answers(const char *run, const char *process, struct error *why)
{
    Moed__V1__Reply *reply;
    if (deployment_health(run, process, &reply, why))
        return false;
    bool ready = reply->health->ready;
    moed__v1__reply__free_unpacked(reply, NULL);
    if (!ready)
        error_set(why, ERROR_UNAVAILABLE, "it is not ready");
    return ready;
}

/* One worker is enough: the others' clients come to it. Without a model of its own the deployment
 * has none. */
static bool workers_answer(const char *run, bool wanted)
{
    const char *names[SUPERVISE_WORKERS];
    struct error why = {0};
    unsigned n = deployment_workers(run, names);
    for (unsigned i = 0; i < n; i++)
        if (process_answers(run, names[i], &why))
            return true;
    if (!wanted)
        return true;
    cli_complain("no worker answers%s%s", n ? ": " : "", why.text);
    return false;
}

/* By the supervisor: the first process that is not ready, and how far it is. */
static bool is_ready(const struct deployment_status *s)
{
    if (strcmp(s->state, "ready") == 0 || strcmp(s->state, "degraded") == 0)
        return true;
    for (unsigned i = 0; i < s->n_processes; i++) {
        const struct deployment_process *p = &s->processes[i];
        if (strcmp(p->state, "ready") != 0) {
            cli_complain("the deployment is %s: %s is %s%s%s", s->state, p->name, p->state,
                         p->status[0] ? ": " : "", p->status);
            return false;
        }
    }
    cli_complain("the deployment is %s", s->state);
    return false;
}

/* moed-http does not run: the deployment is degraded, but its clients get no answer. */
static bool lacks_http(const struct deployment_status *s)
{
    const struct deployment_process *http = deployment_status_find(s, "http");
    if (!http || strcmp(http->state, "ready") == 0)
        return false;
    cli_complain("moed-http is %s%s%s", http->state, http->reason[0] ? ": " : "", http->reason);
    return true;
}

int health_main(int argc, char **argv)
{
    const char *name;
    int exit_code;
    if (!ask_name("health", "[--name NAME]",
                  "Ends with 0 where the deployment answers: memd, a worker and moed-http, if it\n"
                  "has one, are ready, and the last two say so themselves. Else it says why not.",
                  argc, argv, 0, 0, &name, NULL, &exit_code))
        return exit_code;
    static struct deployment_status status; /* large */
    char run[RUN_DIR_BYTES];
    struct error why = {0};
    if (!deployment_find_running(name, run, &exit_code))
        return exit_code;
    bool supervised = deployment_status(run, &status, NULL) == ERROR_OK;
    if (supervised && (!is_ready(&status) || lacks_http(&status)))
        return CLI_FAILURE;
    if (!workers_answer(run, !supervised || status.model[0]))
        return CLI_FAILURE;
    if (run_dir_holder(run, "http") && !process_answers(run, "http", &why)) {
        cli_complain("moed-http does not answer: %s", why.text);
        return CLI_FAILURE;
    }
    return CLI_OK;
}
