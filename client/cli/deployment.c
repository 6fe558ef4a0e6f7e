/* Deployments; see deployment.h. */
#include "client/cli/deployment.h"

#include "base/clock.h"
#include "base/quantity.h"
#include "base/same_file.h"
#include "client/cli/complain.h"
#include "client/cli/commands.h"
#include "daemon/models_started.h"
#include "daemon/program_find.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* How long a supervisor may take to stop, beyond what it says itself; and where it says nothing:
 * moed-models 30 s, and four other processes 10 s each. */
#define STOP_MORE_NS        15000000000ull
#define STOP_DEFAULT_MS     70000
#define LEFTOVER_TIMEOUT_MS 10000
#define EXPLAIN_NS          1000000000ull

bool deployment_path(const char *name, char run[RUN_DIR_BYTES])
{
    struct error e = {0};
    /* Before anything in it is read: another user may have made it. */
    if (run_dir_path(name, run, &e) == ERROR_OK && run_dir_check(run, &e) == ERROR_OK)
        return true;
    cli_complain("%s", e.text);
    return false;
}

/* ---- The deployment that is meant where none is named ---- */

struct choice {
    bool of_model; /* only those with a model; else only those without */
    bool has_default;
    unsigned count;
    char only[64];
    struct strbuf names;
};

static void visit_running(void *arg, const char *name, const char *run)
{
    struct choice *c = arg;
    const char *workers[SUPERVISE_WORKERS];
    bool supervised = run_dir_holder(run, "supervise") != 0;
    /* it has no model of its own, but loads those of a folder */
    bool has_model = !supervised || !run_dir_holder(run, "models") || run_dir_holder(run, "memd");
    if ((!supervised && !deployment_workers(run, workers)) || c->of_model != has_model)
        return;
    c->has_default = c->has_default || strcmp(name, "default") == 0;
    strbuf_printf(&c->names, "%s%s", c->count++ ? ", " : "", name);
    snprintf(c->only, sizeof c->only, "%s", name);
}

bool deployment_choose(const char **name, int *exit_code)
{
    static char only[64];
    if (*name || getenv("MOED_RUN"))
        return true;
    struct choice choice = {.of_model = true};
    struct error e = {0};
    strbuf_init(&choice.names);
    bool clear = true, listed = run_dir_list(visit_running, &choice, &e) == ERROR_OK;
    if (listed && !choice.count) {
        choice.of_model = false;
        listed = run_dir_list(visit_running, &choice, &e) == ERROR_OK;
    }
    if (listed && !choice.has_default) {
        clear = choice.count <= 1;
        if (!clear)
            cli_complain("several deployments run: %s; choose one with --name",
                         choice.names.failed ? "see moed ps" : choice.names.data);
        memcpy(only, choice.only, sizeof only);
        if (choice.count == 1)
            *name = only;
    }
    if (!clear)
        *exit_code = CLI_USAGE;
    strbuf_fini(&choice.names);
    return clear;
}

bool deployment_is_process(const char *verb, const char *process)
{
    for (int i = 0; i < SUPERVISE_PROCESSES; i++)
        if (strcmp(process, supervise_process_names[i]) == 0)
            return true;
    cli_complain("%s: there is no process %.40s: memd, cpuexec, worker, worker-N, models or http",
                 verb, process);
    return false;
}

static bool has_supervisor(const char *run)
{
    return run_dir_holder(run, "supervise") != 0;
}

static bool find(const char *name, bool (*runs)(const char *run), char run[RUN_DIR_BYTES],
                 int *exit_code)
{
    *exit_code = CLI_OK;
    if (!deployment_choose(&name, exit_code))
        return false;
    if (!deployment_path(name, run))
        *exit_code = CLI_USAGE;
    else if (!runs(run))
        *exit_code = deployment_not_running(name);
    return *exit_code == CLI_OK;
}

bool deployment_find_running(const char *name, char run[RUN_DIR_BYTES], int *exit_code)
{
    return find(name, deployment_has_processes, run, exit_code);
}

bool deployment_find_supervised(const char *name, char run[RUN_DIR_BYTES], int *exit_code)
{
    return find(name, has_supervisor, run, exit_code);
}

int deployment_not_running(const char *name)
{
    char label[RUN_LABEL_BYTES];
    run_dir_label(name, label);
    cli_complain("%s is not running: start it with `moed up MODEL.gguf%s%s`", label,
                 name ? " --name " : "", name ? name : "");
    return CLI_NOT_RUNNING;
}

enum error_code deployment_find_program(const char *name, char out[PATH_MAX], struct error *e)
{
    return program_find(name, NULL, out, e);
}

/* -- the processes -- */

bool deployment_has_processes(const char *run)
{
    pid_t pids[SUPERVISE_PROCESSES];
    if (run_dir_find_holder(run, "supervise"))
        return true;
    run_dir_find_holders(run, supervise_process_names, SUPERVISE_PROCESSES, pids);
    for (int i = 0; i < SUPERVISE_PROCESSES; i++)
        if (pids[i])
            return true;
    return false;
}

bool deployment_has_leftovers(const char *run)
{
    char path[RUN_PATH_BYTES];
    run_dir_file(run, SUPERVISE_SOCKET, path);
    return access(path, F_OK) == 0 && !run_dir_find_holder(run, "supervise");
}

bool deployment_systemd_unit(const char *run, char unit[128])
{
    pid_t pids[SUPERVISE_PROCESSES];
    run_dir_find_holders(run, supervise_process_names, SUPERVISE_PROCESSES, pids);
    for (int i = 0; i < SUPERVISE_PROCESSES; i++) {
        char path[64], line[512], prefix[48];
        pid_t pid = pids[i];
        snprintf(path, sizeof path, "/proc/%d/cgroup", (int)pid);
        snprintf(prefix, sizeof prefix, "/moed-%s@", supervise_process_names[i]);
        FILE *f = pid ? fopen(path, "re") : NULL;
        bool found = false;
        while (f && !found && fgets(line, sizeof line, f)) {
            char *start = strstr(line, prefix), *end = start ? strstr(start, ".service") : NULL;
            found = end != NULL;
            if (found)
                snprintf(unit, 128, "%.*s", (int)(end + 8 - (start + 1)), start + 1);
        }
        if (f)
            fclose(f);
        if (found)
            return true;
    }
    return false;
}

/* -- stopping -- */

static enum error_code stop_place(const char *dir, struct error *e)
{
    pid_t pids[SUPERVISE_PROCESSES];
    run_dir_find_holders(dir, supervise_process_names, SUPERVISE_PROCESSES, pids);
    for (int i = SUPERVISE_PROCESSES - 1; i >= 0; i--)
        if (pids[i] && !run_dir_terminate(dir, supervise_process_names[i], LEFTOVER_TIMEOUT_MS))
            return error_set(e, ERROR_TIMEOUT, "%s (pid %d) does not stop",
                             supervise_process_names[i],
                             (int)run_dir_find_holder(dir, supervise_process_names[i]));
    return ERROR_OK;
}

enum error_code deployment_stop_processes(const char *run, struct error *e)
{
    char dir[RUN_DIR_BYTES];
    enum error_code code = run_dir_serve(run, 0, e); /* so that each place is looked at */
    for (unsigned i = RUN_PLACES; i-- > 0 && !code;)
        if (run_dir_place(run, i, dir) && access(dir, F_OK) == 0)
            code = stop_place(dir, e);
    return code;
}

static enum error_code stop_leftovers(const char *run, struct error *e)
{
    /* The lock keeps a new supervisor from starting; it ends with this process. */
    enum error_code code = run_dir_lock(run, "supervise", e);
    if (code)
        return code;
    code = deployment_stop_processes(run, e);
    if (!code)
        run_dir_sweep(run);
    return code;
}

/* Requests that the supervisor stops everything. Returns how long it may take. */
static uint64_t request_stop(const char *run, pid_t supervisor, bool now)
{
    unsigned long long most_ms = STOP_DEFAULT_MS;
    struct strbuf answer;
    struct error e;
    strbuf_init(&answer);
    /* where that fails it starts, or its socket was removed */
    if (deployment_command(run, now ? "down-now" : "down", &answer, &e))
        run_dir_signal(run, "supervise", supervisor, SIGTERM);
    else if (answer.len)
        sscanf(answer.data, "stopping\tmost_ms=%llu", &most_ms);
    strbuf_fini(&answer);
    return most_ms * 1000000u + STOP_MORE_NS;
}

static void explain_waiting(const char *run)
{
    struct deployment_status status;
    if (deployment_status(run, &status, NULL))
        return;
    const struct deployment_process *http = deployment_status_find(&status, "http");
    if (http && strcmp(http->state, "stopping") == 0)
        cli_complain("moed-http waits for answers that run (--drain); down --now ends them");
}

enum error_code deployment_stop(const char *run, bool now, struct error *e)
{
    pid_t supervisor = run_dir_find_holder(run, "supervise");
    if (!supervisor)
        return stop_leftovers(run, e);
    uint64_t deadline = clock_ns() + request_stop(run, supervisor, now);
    uint64_t explain_ns = now ? UINT64_MAX : clock_ns() + EXPLAIN_NS;
    while (run_dir_find_holder(run, "supervise") == supervisor) {
        if (clock_ns() > deadline)
            return error_set(e, ERROR_TIMEOUT, "the supervisor (pid %d) does not stop; see %s",
                             (int)supervisor, "supervise.log");
        if (clock_ns() >= explain_ns) {
            explain_ns = UINT64_MAX;
            explain_waiting(run);
        }
        poll(NULL, 0, 10);
    }
    /* The supervisor may have been killed: before it stopped the others, or removed its files. */
    bool left = deployment_has_processes(run) || deployment_has_leftovers(run);
    return left ? stop_leftovers(run, e) : ERROR_OK;
}

/* -- deployments that moed-models has started -- */

static void find_started(void *arg, const char *name, const char *run)
{
    bool *found = arg;
    *found |= !run_dir_check(run, NULL) && deployment_has_processes(run);
}

bool deployment_has_started(const char *run)
{
    bool found = false;
    models_started_list(run, find_started, &found);
    return found;
}

/* arg: the names of those that do not stop. */
static void stop_started(void *arg, const char *name, const char *run)
{
    struct strbuf *left = arg;
    struct error e;
    if (run_dir_check(run, NULL) || !deployment_has_processes(run) ||
        !deployment_stop(run, false, &e))
        return;
    cli_complain("down: deployment %s: %s", name, e.text);
    strbuf_printf(left, "%s%s", left->len ? ", " : "", name);
}

enum error_code deployment_stop_started(const char *run, struct error *e)
{
    enum error_code code = ERROR_OK;
    char path[RUN_PATH_BYTES];
    struct strbuf left;
    strbuf_init(&left);
    models_started_list(run, stop_started, &left);
    models_started_file(run, path);
    if (left.len)
        code = error_set(e, ERROR_TIMEOUT,
                         "deployments that were started for requests still run: %s", left.data);
    else
        unlink(path);
    strbuf_fini(&left);
    return code;
}

/* -- daemons that a person started -- */

/* RUN of a daemon by its command line: the argument of --run. */
static bool run_of_process(const char *pid, char run[RUN_DIR_BYTES])
{
    char path[64], line[4096];
    snprintf(path, sizeof path, "/proc/%.16s/cmdline", pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, line, sizeof line - 1) : 0;
    if (fd >= 0)
        close(fd);
    if (n <= 0)
        return false;
    line[n] = '\0';
    const char *program = strrchr(line, '/');
    if (strncmp(program ? program + 1 : line, "moed-", 5) != 0)
        return false;
    for (const char *at = line; at < line + n; at += strlen(at) + 1) {
        const char *value = strncmp(at, "--run=", 6) == 0 ? at + 6
                            : strcmp(at, "--run") == 0    ? at + 6
                                                          : NULL;
        if (value && value < line + n && *value == '/' && strlen(value) < RUN_DIR_BYTES) {
            snprintf(run, RUN_DIR_BYTES, "%s", value);
            return true;
        }
    }
    return false;
}

struct known {
    char runs[64][RUN_DIR_BYTES];
    unsigned n;
};

static bool is_known(struct known *k, const char *run)
{
    for (unsigned i = 0; i < k->n; i++)
        if (same_file(k->runs[i], run))
            return true;
    if (k->n < sizeof k->runs / sizeof *k->runs)
        snprintf(k->runs[k->n++], RUN_DIR_BYTES, "%s", run);
    return false;
}

static void know(void *arg, const char *name, const char *run)
{
    is_known(arg, run);
}

void deployment_list_elsewhere(void (*visit)(void *arg, const char *name, const char *run),
                               void *arg)
{
    static struct known known; /* large */
    char run[RUN_DIR_BYTES];
    known.n = 0;
    if (run_dir_list(know, &known, NULL))
        return;
    DIR *processes = opendir("/proc");
    for (struct dirent *entry; processes && (entry = readdir(processes));) {
        if (entry->d_name[0] < '0' || entry->d_name[0] > '9' ||
            !run_of_process(entry->d_name, run) || is_known(&known, run) ||
            run_dir_check(run, NULL) || !deployment_has_processes(run))
            continue;
        const char *slash = strrchr(run, '/');
        visit(arg, slash && slash[1] ? slash + 1 : run, run);
    }
    if (processes)
        closedir(processes);
}

bool deployment_log_file(pid_t pid, char out[PATH_MAX])
{
    char path[64], target[PATH_MAX];
    struct stat s;
    snprintf(path, sizeof path, "/proc/%d/fd/2", (int)pid);
    ssize_t n = readlink(path, target, sizeof target - 1);
    snprintf(out, PATH_MAX, "%.*s", n > 0 ? (int)n : 0, target);
    return n > 0 && stat(out, &s) == 0 && S_ISREG(s.st_mode) && access(out, R_OK) == 0;
}

/* -- text -- */

void deployment_format_uptime(uint64_t ms, char out[24])
{
    unsigned long long s = ms / 1000;
    if (s < 60)
        snprintf(out, 24, "%llus", s);
    else if (s < 3600)
        snprintf(out, 24, "%llum%02llus", s / 60, s % 60);
    else if (s < 86400)
        snprintf(out, 24, "%lluh%02llum", s / 3600, s / 60 % 60);
    else
        snprintf(out, 24, "%llud%02lluh", s / 86400, s / 3600 % 24);
}

void deployment_device_text(const Moed__V1__DeviceMemory *m, const char *dense, struct strbuf *out)
{
    const struct {
        uint64_t bytes;
        const char *what;
    } parts[] = {{m->dense_bytes, dense},
                 {m->expert_bytes, "experts"},
                 {m->kv_bytes, "KV cache"},
                 {m->scratch_bytes, "scratch"}};
    const char *before = "";
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        char bytes[24];
        if (!parts[i].bytes)
            continue;
        quantity_format_bytes(parts[i].bytes, bytes);
        strbuf_printf(out, "%s%s %s", before, bytes, parts[i].what);
        before = ", ";
    }
}
