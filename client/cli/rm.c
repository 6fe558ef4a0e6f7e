/* moed rm: removes what a stopped deployment left, its logs too. */
#include "client/cli/ask.h"
#include "client/cli/commands.h"
#include "client/cli/deployment.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static int remove_one(const char *name)
{
    char run[RUN_DIR_BYTES];
    struct error e = {0};
    char label[RUN_LABEL_BYTES];
    run_dir_label(name, label);
    if (!deployment_path(name, run))
        return CLI_USAGE;
    if (deployment_has_processes(run)) {
        cli_complain("rm: %s runs: stop it with `moed down%s%s`", label, name ? " " : "",
                     name ? name : "");
        return CLI_FAILURE;
    }
    if (access(run, F_OK) != 0) {
        cli_complain("rm: %s does not exist; `moed ps -a` lists them", label);
        return CLI_NOT_RUNNING;
    }
    if (run_dir_remove(run, &e)) {
        cli_complain("rm: %s", e.text);
        return CLI_FAILURE;
    }
    printf("%s is removed\n", label);
    return CLI_OK;
}

int rm_main(int argc, char **argv)
{
    const char *name = NULL;
    const struct option_spec table[] = {
        {"name", OPTION_STRING, &name, 0, 0, "NAME", "the same as NAME"},
        {0},
    };
    int n, exit_code;
    if (!ask_arguments(table, "rm", "NAME...",
                       "Removes stopped deployments: their logs and their directories.", argc, argv,
                       0, 1000, &n, &exit_code))
        return exit_code;
    if (n)
        ask_name_given();
    else if (!name && !getenv("MOED_RUN")) {
        cli_complain("rm: give the NAME of a stopped deployment; `moed ps -a` lists them");
        return CLI_USAGE;
    }
    if (name || !n)
        exit_code = remove_one(name);
    else
        exit_code = CLI_OK;
    for (int i = 1; i <= n; i++) {
        int result = remove_one(argv[i]);
        exit_code = exit_code ? exit_code : result;
    }
    return exit_code;
}
