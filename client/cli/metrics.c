/* moed metrics: prints the Prometheus text of the processes of a deployment. */
#include "client/cli/ask.h"
#include "client/cli/commands.h"
#include "client/cli/deployment.h"
#include "daemon/control.h"
#include "metrics/merge.h"

#include <stdio.h>
#include <string.h>

#define METRICS_TIMEOUT_MS 2000

static int print_one(const char *run, const char *process)
{
    struct error e = {0};
    Moed__V1__Reply *reply;
    if (control_metrics(run, process, METRICS_TIMEOUT_MS, &reply, &e)) {
        cli_complain("%s: %s", process, e.text);
        return CLI_FAILURE;
    }
    const char *text = reply->metrics->prometheus_text;
    bool printed = ask_print(text, strlen(text));
    moed__v1__reply__free_unpacked(reply, NULL);
    return printed ? CLI_OK : CLI_FAILURE;
}

/* True where the deployment has the process: by its supervisor, or without one (systemd) where the
 * process runs. */
static bool is_there(const struct deployment_status *status, const char *run, const char *process)
{
    return status->n_processes ? deployment_status_find(status, process) != NULL
                               : run_dir_holder(run, process) != 0;
}

/* The metrics of all processes as one text: a family has one head, a sample the label process. */
static int print_all(const char *run, const struct deployment_status *status)
{
    int exit_code = CLI_OK;
    struct metrics_merge merge;
    struct strbuf text;
    metrics_merge_init(&merge);
    strbuf_init(&text);
    for (int i = 0; i < SUPERVISE_PROCESSES; i++) {
        const char *process = supervise_process_names[i];
        char labels[64];
        struct error e = {0};
        Moed__V1__Reply *reply;
        if (!is_there(status, run, process))
            continue;
        if (control_metrics(run, process, METRICS_TIMEOUT_MS, &reply, &e)) {
            cli_complain("%s: %s", process, e.text);
            exit_code = CLI_FAILURE;
            continue;
        }
        snprintf(labels, sizeof labels, "process=\"%s\"", process);
        metrics_merge_add(&merge, reply->metrics->prometheus_text, labels);
        moed__v1__reply__free_unpacked(reply, NULL);
    }
    metrics_merge_write(&merge, &text);
    if (text.failed) {
        cli_complain("metrics: no memory for the text");
        exit_code = CLI_FAILURE;
    } else if (text.len && !ask_print(text.data, text.len)) {
        exit_code = CLI_FAILURE;
    }
    strbuf_fini(&text);
    metrics_merge_fini(&merge);
    return exit_code;
}

int metrics_main(int argc, char **argv)
{
    const char *name;
    int n, exit_code;
    if (!ask_name("metrics", "[PROCESS] [--name NAME]",
                  "Prints the metrics of one process in Prometheus' text format, or of all with\n"
                  "the label \"process\".",
                  argc, argv, 0, 1, &name, &n, &exit_code))
        return exit_code;
    char run[RUN_DIR_BYTES];
    if (n == 1 && !deployment_is_process("metrics", argv[1]))
        return CLI_USAGE;
    if (!deployment_find_running(name, run, &exit_code))
        return exit_code;
    static struct deployment_status status; /* large */
    if (deployment_status(run, &status, &(struct error){0}))
        status.n_processes = 0;
    if (n == 1 && !is_there(&status, run, argv[1])) {
        cli_complain("metrics: this deployment has no %s%s", argv[1],
                     strcmp(argv[1], "cpuexec") == 0  ? ": its worker computes the experts"
                     : strcmp(argv[1], "http") == 0   ? ": start it with moed up --http"
                     : strcmp(argv[1], "models") == 0 ? ": start it with moed serve --models DIR"
                                                      : "");
        return CLI_FAILURE;
    }
    return n == 1 ? print_one(run, argv[1]) : print_all(run, &status);
}
