/* moed upgrade: replaces the processes whose programs, or whose GPU module, were installed anew
 * since they started. memd keeps the model and the conversations as long as both builds share
 * memory in the same layouts. Under systemd it compares the layouts alone;
 * deploy/systemd/upgrade-units does the rest. */
#include "client/cli/ask.h"
#include "client/cli/commands.h"
#include "client/cli/deployment.h"
#include "client/cli/restart.h"

#include "memory/layouts.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool is_memd(const struct deployment_process *p)
{
    return strcmp(p->name, "memd") == 0;
}

/* Its program or module was installed anew, or it has not started with the one before. */
static bool must_start(const struct deployment_process *p)
{
    return p->replaced || deployment_does_not_run(p);
}

/* What memd shares otherwise than this build, in `difference`; empty: nothing. False: memd does not
 * answer; it has complained. */
static bool compare_layouts(const char *run, char *difference, size_t bytes)
{
    struct error e = {0};
    Moed__V1__Reply *reply;
    difference[0] = '\0';
    enum error_code code = deployment_health(run, "memd", &reply, &e);
    if (code == ERROR_VERSION) {
        snprintf(difference, bytes, "its messages");
        return true;
    }
    if (code) {
        cli_complain("upgrade: %s", e.text);
        return false;
    }
    layouts_difference(reply->health->layouts, difference, bytes);
    moed__v1__reply__free_unpacked(reply, NULL);
    return true;
}

/* With memd the supervisor restarts cpuexec and the workers, which are done then. */
static int replace_memd(const char *run, struct deployment_status *s)
{
    int exit_code = restart_process("upgrade", run, "memd");
    for (unsigned i = 0; i < s->n_processes; i++) {
        struct deployment_process *p = &s->processes[i];
        bool follows = supervise_needs_memd(p->name);
        if (follows && !exit_code)
            exit_code = restart_wait("upgrade", run, p->name, p->pid);
        if (follows || is_memd(p)) {
            p->replaced = false;
            p->state[0] = '\0';
        }
    }
    return exit_code;
}

/* In the supervisor's order: cpuexec, workers, models, http. The first that does not start ends
 * it. */
static int replace_others(const char *run, const struct deployment_status *s)
{
    for (unsigned i = 0; i < s->n_processes; i++) {
        const struct deployment_process *p = &s->processes[i];
        int exit_code = CLI_OK;
        if (must_start(p) && !is_memd(p))
            exit_code = restart_process("upgrade", run, p->name);
        if (exit_code)
            return exit_code;
    }
    return CLI_OK;
}

/* The supervisor starts the programs of its own installation, so another one's moed compares and
 * replaces nothing. False: it has complained. */
static bool is_own(const struct deployment_status *s)
{
    char own[PATH_MAX], here[PATH_MAX];
    struct error e;
    if (!s->folder[0] || deployment_find_program("moed-supervise", own, &e) || !realpath(own, here))
        return true;
    *strrchr(here, '/') = '\0';
    if (strcmp(here, s->folder) == 0)
        return true;
    cli_complain("upgrade: the deployment runs the programs of %s, but this moed is that of %s: "
                 "nothing was replaced; `moed down` and `moed up` start those of here",
                 s->folder, here);
    return false;
}

static int upgrade(const char *run, struct deployment_status *s, bool reload)
{
    const struct deployment_process *memd = deployment_status_find(s, "memd");
    char difference[300] = "";
    unsigned n = 0;
    for (unsigned i = 0; i < s->n_processes; i++)
        n += must_start(&s->processes[i]);
    if (!n) {
        printf("every process runs the program that is installed\n");
        return CLI_OK;
    }
    bool failed = memd && deployment_does_not_run(memd); /* there is nothing to keep */
    if (memd && memd->pid && !failed && !compare_layouts(run, difference, sizeof difference))
        return CLI_FAILURE;
    if (difference[0] && !reload) {
        cli_complain("upgrade: memd shares memory otherwise than the programs that are installed "
                     "(%s): nothing was replaced; `moed upgrade --reload` replaces memd too, and "
                     "reads the model again",
                     difference);
        return CLI_FAILURE;
    }
    int exit_code = CLI_OK;
    if (failed || (memd && memd->pid && reload && (memd->replaced || difference[0])))
        exit_code = replace_memd(run, s);
    else if (memd && memd->replaced)
        printf("memd keeps the model, and the files of before; --reload replaces it\n");
    return exit_code ? exit_code : replace_others(run, s);
}

/* A deployment without a supervisor. */
static int upgrade_units(const char *run, const char *name, bool reload)
{
    char unit[128], difference[300];
    if (!deployment_systemd_unit(run, unit))
        return deployment_not_running(name);
    const char *instance = strchr(unit, '@') + 1;
    int length = (int)(strlen(instance) - strlen(".service"));
    if (reload) {
        cli_complain("upgrade: --reload needs moed's supervisor; under systemd `systemctl restart "
                     "moed-memd@%.*s` reads the model again",
                     length, instance);
        return CLI_USAGE;
    }
    if (!compare_layouts(run, difference, sizeof difference))
        return CLI_FAILURE;
    if (difference[0]) {
        cli_complain("upgrade: the memd of %.*s shares memory otherwise than the programs that are "
                     "installed (%s): nothing was replaced; `systemctl restart moed-memd@%.*s` "
                     "replaces all, and reads the model again",
                     length, instance, difference, length, instance);
        return CLI_FAILURE;
    }
    printf("the programs that are installed fit the memd of %.*s: as root, upgrade-units (or "
           "`systemctl restart moed-worker@%.*s`) starts them, and memd keeps the model\n",
           length, instance, length, instance);
    return CLI_OK;
}

int upgrade_main(int argc, char **argv)
{
    const char *name = NULL;
    bool reload = false;
    const struct option_spec table[] = {
        {"reload", OPTION_BOOL, &reload, 0, 0, NULL,
         "replace memd too, which reads the model again"},
        {"name", OPTION_STRING, &name, 0, 0, "NAME", "select a deployment (default: default)"},
        {0},
    };
    int exit_code;
    if (!ask_arguments(
            table, "upgrade", "[--reload] [--name NAME]",
            "Replaces the processes whose programs, or whose GPU module, were installed anew\n"
            "since they started, one after the other. memd keeps the model and the\n"
            "conversations; answers that are being computed go on at the new worker.",
            argc, argv, 0, 0, NULL, &exit_code))
        return exit_code;
    char run[RUN_DIR_BYTES];
    if (!deployment_choose(&name, &exit_code))
        return exit_code;
    if (!deployment_path(name, run))
        return CLI_USAGE;
    if (!run_dir_holder(run, "supervise"))
        return upgrade_units(run, name, reload);
    static struct deployment_status status; /* large */
    struct error e = {0};
    if (deployment_status(run, &status, &e)) {
        cli_complain("upgrade: %s", e.text);
        return CLI_FAILURE;
    }
    return is_own(&status) ? upgrade(run, &status, reload) : CLI_FAILURE;
}
