/* moed workers: shows the workers of a deployment, or changes their number while it serves. */
#include "base/clock.h"
#include "client/cli/ask.h"
#include "client/cli/commands.h"
#include "client/cli/deployment.h"

#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

#define POLL_MS 20

static void show(const char *run, const struct deployment_status *s)
{
    printf("%-10s %8s %-9s %9s\n", "WORKER", "PID", "STATE", "REQUESTS");
    for (unsigned i = 0; i < s->n_processes; i++) {
        const struct deployment_process *p = &s->processes[i];
        char requests[32] = "-";
        Moed__V1__Reply *reply;
        if (!supervise_is_worker(p->name))
            continue;
        if (p->pid && deployment_health(run, p->name, &reply, NULL) == ERROR_OK) {
            snprintf(requests, sizeof requests, "%" PRIu32 "+%" PRIu32,
                     reply->health->requests_running, reply->health->requests_waiting);
            moed__v1__reply__free_unpacked(reply, NULL);
        }
        printf("%-10s %8d %-9s %9s\n", p->name, (int)p->pid, p->state, requests);
    }
}

/* -1: a worker has failed, or the device has no memory for it. 1: there are n workers, which serve.
 * *leaving: others are not gone yet. */
static int is_done(const struct deployment_status *s, unsigned n, unsigned *leaving)
{
    unsigned ready = 0, all = 0;
    for (unsigned i = 0; i < s->n_processes; i++) {
        const struct deployment_process *p = &s->processes[i];
        if (!supervise_is_worker(p->name))
            continue;
        all++;
        ready += strcmp(p->state, "ready") == 0;
        const struct deployment_process *stopper = deployment_status_stopper(s, p->name);
        if (stopper) {
            cli_complain("workers: %s does not start: %s", stopper->name, stopper->reason);
            return -1;
        }
    }
    *leaving = all > n ? all - n : 0;
    return ready == n && all == n;
}

/* Waits until the deployment has n workers that serve, and no more. */
static int wait_for(const char *run, unsigned n)
{
    double start_s = clock_s();
    unsigned told = 0;
    for (;; poll(NULL, 0, POLL_MS)) {
        static struct deployment_status status; /* large */
        struct error e = {0};
        unsigned leaving = 0;
        if (deployment_status(run, &status, &e)) {
            cli_complain("workers: %s", e.text);
            return CLI_FAILURE;
        }
        int done = is_done(&status, n, &leaving);
        if (done < 0)
            return CLI_FAILURE;
        if (done) {
            printf("%u worker%s after %.2f s\n", n, n == 1 ? "" : "s", clock_s() - start_s);
            return CLI_OK;
        }
        if (leaving != told && leaving) {
            fprintf(stderr, "moed: %u worker%s still compute%s requests\n", leaving,
                    leaving == 1 ? "" : "s", leaving == 1 ? "s" : "");
            told = leaving;
        }
    }
}

static int change(const char *run, const char *text)
{
    char command[SUPERVISE_LINE_BYTES];
    struct strbuf answer;
    struct error e = {0};
    unsigned n = 0;
    int len = 0;
    if (sscanf(text, "%3u%n", &n, &len) != 1 || text[len] || n < 1 || n > SUPERVISE_WORKERS) {
        cli_complain("workers: there can be 1 to %d workers, not '%.20s'", SUPERVISE_WORKERS, text);
        return CLI_USAGE;
    }
    snprintf(command, sizeof command, "workers %u", n);
    strbuf_init(&answer);
    enum error_code code = deployment_command(run, command, &answer, &e);
    strbuf_fini(&answer);
    if (!code)
        return wait_for(run, n);
    cli_complain("workers: %s", e.text);
    return CLI_FAILURE;
}

int workers_main(int argc, char **argv)
{
    const char *name;
    int n, exit_code;
    if (!ask_name("workers", "[N] [--name NAME]",
                  "Shows the workers of a deployment. With N: adds or removes workers while it\n"
                  "serves, until there are N. A new one copies no weights. One that is removed\n"
                  "finishes its requests first, for up to a minute.",
                  argc, argv, 0, 1, &name, &n, &exit_code))
        return exit_code;
    char run[RUN_DIR_BYTES];
    if (!deployment_choose(&name, &exit_code))
        return exit_code;
    if (!deployment_path(name, run))
        return CLI_USAGE;
    static struct deployment_status status; /* large */
    struct error e = {0};
    if (deployment_status(run, &status, &e)) {
        if (!deployment_has_processes(run))
            return deployment_not_running(name);
        cli_complain("workers: %s", e.text);
        return CLI_FAILURE;
    }
    if (n)
        return change(run, argv[1]);
    show(run, &status);
    return CLI_OK;
}
