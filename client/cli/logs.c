/* moed logs: prints the logs of a deployment's processes, merged by time, or of one process; with
 * -f also new lines. */
#include "client/cli/ask.h"
#include "client/cli/commands.h"
#include "client/cli/deployment.h"
#include "client/cli/log_reader.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define FOLLOW_MS 200

/* "90s", "10m", "2h", "3d" before now, or a time as logs have it, perhaps cut off. */
static bool take_since(const char *text, char since[LOG_READER_TIME_BYTES])
{
    static const char units[] = "smhd";
    static const unsigned seconds[] = {1, 60, 3600, 86400};
    static const char pattern[] = "0000-00-00T00:00:00.000Z";
    char *end;
    since[0] = '\0';
    if (!text)
        return true;
    unsigned long long n = strtoull(text, &end, 10);
    const char *unit = *end ? strchr(units, *end) : NULL;
    if (text[0] >= '0' && text[0] <= '9' && unit && !end[1] && n < 100000) {
        time_t at = time(NULL) - (time_t)(n * seconds[unit - units]);
        struct tm utc;
        gmtime_r(&at, &utc);
        strftime(since, LOG_READER_TIME_BYTES, "%Y-%m-%dT%H:%M:%S", &utc);
        return true;
    }
    size_t len = strlen(text);
    bool is_right = len >= strlen("0000-00-00") && len < LOG_READER_TIME_BYTES;
    for (size_t i = 0; i < len && is_right; i++)
        is_right = pattern[i] == '0' ? text[i] >= '0' && text[i] <= '9' : text[i] == pattern[i];
    if (is_right)
        memcpy(since, text, len + 1);
    else
        cli_complain("logs: --since %.40s: expected 90s, 10m, 2h, 3d or a time in UTC, as "
                     "2026-01-31T12:00",
                     text);
    return is_right;
}

/* Whether there is a log; of a process that a person started, the file to which its messages go. */
static bool find_log(const char *run, struct process_log *log)
{
    char elsewhere[PATH_MAX], unit[128];
    pid_t pid = run_dir_holder(run, log->process);
    if (access(log->path, R_OK) == 0)
        return true;
    if (!pid)
        return false;
    if (deployment_log_file(pid, elsewhere)) {
        memcpy(log->path, elsewhere, sizeof elsewhere);
        return true;
    }
    if (deployment_systemd_unit(run, unit))
        cli_complain("logs: %s (pid %d) is run by systemd: journalctl -u %s", log->process,
                     (int)pid, unit);
    else
        cli_complain("logs: %s (pid %d) writes to %s", log->process, (int)pid, elsewhere);
    return false;
}

static bool find_logs(const char *run, const char *only, struct process_log *logs)
{
    bool any = false;
    log_reader_init(logs, run, only);
    for (int i = 0; i < LOG_READER_LOGS; i++) {
        char dir[RUN_DIR_BYTES];
        bool found = logs[i].wanted && run_dir_place(run, (unsigned)(i / LOG_READER_NAMES), dir) &&
                     find_log(dir, &logs[i]);
        for (int k = 0; k < i && found; k++) /* two processes may write into one file */
            if (logs[k].wanted && strcmp(logs[k].path, logs[i].path) == 0)
                logs[i].wanted = false;
        any = any || found;
    }
    return any;
}

int logs_main(int argc, char **argv)
{
    const char *name = NULL, *since = NULL;
    bool follow = false;
    struct log_view view = {.out = stdout, .limit = UINT64_MAX};
    const struct option_spec table[] = {
        {"f", OPTION_BOOL, &follow, 0, 0, NULL, "print new lines as they come"},
        {"n", OPTION_UINT, &view.limit, 0, 1e9, "LINES",
         "print the last LINES lines (default: 200, with --since all)"},
        {"since", OPTION_STRING, &since, 0, 0, "TIME",
         "print lines from TIME on: 10m, 2h, 3d, 2026-01-31T12:00 (UTC)"},
        {"json", OPTION_BOOL, &view.json, 0, 0, NULL, "print a JSON object a line"},
        {"name", OPTION_STRING, &name, 0, 0, "NAME", "select a deployment (default: default)"},
        {0},
    };
    int n, exit_code;
    if (!ask_arguments(
            table, "logs", "[PROCESS] [OPTION]...",
            "Prints the logs of memd, cpuexec, worker, models, http and supervise, merged by\n"
            "time, or of one process. `moed down` keeps the logs, `moed rm` removes them.",
            argc, argv, 0, 1, &n, &exit_code))
        return exit_code;
    const char *only = n == 1 ? argv[1] : NULL;
    char run[RUN_DIR_BYTES];
    if (view.limit == UINT64_MAX && !since)
        view.limit = 200;
    if (!take_since(since, view.since))
        return CLI_USAGE;
    if ((only && strcmp(only, "supervise") != 0 && !deployment_is_process("logs", only)) ||
        !deployment_choose(&name, &exit_code) || !deployment_path(name, run))
        return CLI_USAGE;
    static struct process_log logs[LOG_READER_LOGS]; /* large */
    bool found = find_logs(run, only, logs), runs = !found && deployment_has_processes(run);
    if (!found && !runs) {
        char label[RUN_LABEL_BYTES];
        run_dir_label(name, label);
        cli_complain("there is no log in %s: %s has not been started", run, label);
        return CLI_NOT_RUNNING;
    }
    if (!found && !follow) {
        cli_complain("there is no log%s%s in %s", only ? " of " : "", only ? only : "", run);
        return CLI_FAILURE;
    }
    while (log_reader_print(logs, &view, follow) && ask_flush()) {
        if (!follow)
            return CLI_OK;
        view.limit = UINT64_MAX; /* all new lines */
        poll(NULL, 0, FOLLOW_MS);
    }
    return CLI_FAILURE;
}
