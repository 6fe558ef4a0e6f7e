/* moed restart: makes the supervisor restart one process, and waits until it is ready. */
#include "client/cli/ask.h"
#include "client/cli/commands.h"
#include "client/cli/deployment.h"
#include "client/cli/restart.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>

#define POLL_MS 50

/* Without a limit, except for memory that does not come: a model may load for long. Ctrl-C ends
 * only the waiting. */
int restart_wait(const char *verb, const char *run, const char *process, pid_t before)
{
    struct error e = {0};
    bool shown = false;
    for (;; poll(NULL, 0, POLL_MS)) {
        struct deployment_status status;
        if (deployment_status(run, &status, &e)) {
            cli_complain("%s: %s", verb, e.text);
            return CLI_FAILURE;
        }
        const struct deployment_process *p = deployment_status_find(&status, process);
        if (p && p->pid != before && strcmp(p->state, "ready") == 0) {
            printf("%s is ready (pid %d)\n", process, (int)p->pid);
            return ask_flush() ? CLI_OK : CLI_FAILURE;
        }
        const struct deployment_process *lacking = deployment_status_lacking(&status, process),
                                        *stopper = deployment_status_stopper(&status, process);
        if (lacking && lacking != stopper && !shown) {
            shown = true;
            fprintf(stderr, "moed: %s waits: %s; trying again\n", lacking->name, lacking->reason);
        }
        if (!p || stopper || strcmp(p->state, "stopped") == 0) {
            p = stopper ? stopper : p;
            const char *name = p ? p->name : process;
            cli_complain("%s does not start: %s; its log is %s/%s.log", name,
                         p ? p->reason : "unknown", run, name);
            return CLI_FAILURE;
        }
    }
}

int restart_process(const char *verb, const char *run, const char *process)
{
    char command[SUPERVISE_LINE_BYTES];
    snprintf(command, sizeof command, "restart %s", process);
    static struct deployment_status status; /* large */
    struct strbuf answer;
    struct error e = {0};
    enum error_code code = deployment_status(run, &status, &e);
    const struct deployment_process *p = deployment_status_find(&status, process);
    pid_t before = !code && p ? p->pid : 0;
    strbuf_init(&answer);
    if (!code)
        code = deployment_command(run, command, &answer, &e);
    strbuf_fini(&answer);
    if (!code)
        return restart_wait(verb, run, process, before);
    cli_complain("%s: %s", verb, e.text);
    return CLI_FAILURE;
}

int restart_main(int argc, char **argv)
{
    const char *name;
    int n, exit_code;
    if (!ask_name(
            "restart", "PROCESS [--name NAME]",
            "Restarts memd, cpuexec, worker, worker-N, models or http and waits until it is\n"
            "ready. A restart of memd reads the model again and restarts cpuexec and workers\n"
            "too.",
            argc, argv, 1, 1, &name, &n, &exit_code))
        return exit_code;
    char run[RUN_DIR_BYTES];
    if (!deployment_is_process("restart", argv[1]))
        return CLI_USAGE;
    if (!deployment_find_supervised(name, run, &exit_code))
        return exit_code;
    return restart_process("restart", run, argv[1]);
}
