/* moed metrics: the Prometheus text of each process of a deployment. */
#include "client/cli/ask.h"
#include "client/cli/commands.h"
#include "client/cli/deployment.h"
#include "daemon/control.h"

#include <stdio.h>
#include <string.h>

#define METRICS_TIMEOUT_MS 2000

static enum error_code print_metrics(const char *run, const char *process, struct error *e)
{
    Moed__V1__MetricsRequest metrics = MOED__V1__METRICS_REQUEST__INIT;
    Moed__V1__Request request = MOED__V1__REQUEST__INIT;
    request.body_case = MOED__V1__REQUEST__BODY_METRICS;
    request.metrics = &metrics;
    Moed__V1__Reply *reply;
    enum error_code code = control_call(run, process, &request, MOED__V1__REPLY__BODY_METRICS,
                                        METRICS_TIMEOUT_MS, &reply, e);
    if (code)
        return code;
    const char *text = reply->metrics->prometheus_text;
    printf("# process %s\n%s", process, text);
    moed__v1__reply__free_unpacked(reply, NULL);
    return ERROR_OK;
}

/* Its supervisor knows the processes that a deployment has; without one (systemd) those are its that run. */
static bool is_there(const struct deployment_status *status, const char *run, const char *process)
{
    return status->n_processes ? deployment_status_find(status, process) != NULL
                               : run_dir_holder(run, process) != 0;
}

int metrics_main(int argc, char **argv)
{
    const char *name = NULL;
    const struct option_spec table[] = {
        {"name", OPTION_STRING, &name, 0, 0, "N", "the deployment"},
        {0},
    };
    int n, exit_code;
    if (!deployment_arguments(table, "metrics", "[PROCESS] [--name N]",
                              "Prints the metrics of one process, or of each after a line "
                              "\"# process NAME\",\nin Prometheus' text format.",
                              argc, argv, 0, 1, &n, &exit_code))
        return exit_code;
    char run[RUN_DIR_BYTES];
    if ((n == 1 && !deployment_is_process("metrics", argv[1])) || !deployment_path(name, run))
        return CLI_USAGE;
    if (!deployment_has_processes(run))
        return deployment_not_running(name);
    static struct deployment_status status; /* large */
    if (deployment_status(run, &status, &(struct error){0}))
        status.n_processes = 0;
    if (n == 1 && !is_there(&status, run, argv[1])) {
        ask_complain("metrics: this deployment has no %s%s", argv[1],
                     strcmp(argv[1], "cpuexec") == 0 ? ": its worker computes the experts" : "");
        return CLI_FAILURE;
    }
    exit_code = CLI_OK;
    for (int i = 0; i < SUPERVISE_PROCESSES; i++) {
        const char *process = supervise_process_names[i];
        struct error e = {0};
        if (n == 1 ? strcmp(process, argv[1]) != 0 : !is_there(&status, run, process))
            continue;
        if (print_metrics(run, process, &e)) {
            ask_complain("%s: %s", process, e.text);
            exit_code = CLI_FAILURE;
        }
    }
    return fflush(stdout) ? CLI_FAILURE : exit_code;
}
