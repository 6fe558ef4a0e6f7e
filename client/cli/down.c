/* moed down: stops a deployment. */
#include "client/cli/ask.h"
#include "client/cli/commands.h"
#include "client/cli/deployment.h"

#include <stdio.h>

/* Only the named deployment and `default` are stopped: a name that was forgotten must not stop what
 * others use. So what else runs is named. Returns an exit code. */
static int nothing_to_stop(const char *name)
{
    int exit_code;
    const char *other = name;
    if (!name && !deployment_choose(&other, &exit_code))
        return CLI_NOT_RUNNING;
    if (name || !other)
        return deployment_not_running(name);
    cli_complain("deployment default is not running, but %s is: `moed down %s` stops it", other,
                 other);
    return CLI_NOT_RUNNING;
}

int down_main(int argc, char **argv)
{
    const char *name = NULL;
    bool now = false;
    const struct option_spec table[] = {
        {"name", OPTION_STRING, &name, 0, 0, "NAME", "stop this deployment (default: default)"},
        {"now", OPTION_BOOL, &now, 0, 0, NULL, "end answers that run, whatever --drain allows"},
        {0},
    };
    int n, exit_code;
    if (!ask_arguments(
            table, "down", "[NAME]",
            "Stops a deployment, with those that were started for its models, and waits\n"
            "until all processes are gone. Logs are kept.",
            argc, argv, 0, 1, &n, &exit_code))
        return exit_code;
    if (n == 1) {
        name = argv[1];
        ask_name_given();
    }
    char run[RUN_DIR_BYTES], label[RUN_LABEL_BYTES], unit[128];
    if (!deployment_path(name, run))
        return CLI_USAGE;
    run_dir_label(name, label);
    if (!run_dir_find_holder(run, "supervise") && deployment_systemd_unit(run, unit)) {
        cli_complain("%s is run by systemd (%s): use systemctl stop", label, unit);
        return CLI_FAILURE;
    }
    if (!deployment_has_processes(run) && !deployment_has_leftovers(run) &&
        !deployment_has_started(run))
        return nothing_to_stop(name);
    struct error e = {0};
    if (deployment_stop(run, now, &e) || deployment_stop_started(run, &e)) {
        cli_complain("down: %s", e.text);
        return CLI_FAILURE;
    }
    printf("%s is stopped; its logs are in %s\n", label, run);
    return CLI_OK;
}
