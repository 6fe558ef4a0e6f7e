/* What moed-supervise does before its loop; see supervisor.h. */
#include "deploy/supervisor.h"

#include "base/log.h"
#include "deploy/mps.h"
#include "daemon/program_find.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <unistd.h>

static enum error_code find_programs(struct supervisor *s, struct error *e)
{
    for (int i = 0; i < SUPERVISE_PROCESSES; i++) {
        struct process *p = &s->processes[i];
        char file[64];
        p->name = supervise_process_names[i];
        snprintf(file, sizeof file, "moed-%s", is_worker(i) ? "worker" : p->name);
        if (p->unused && (!is_worker(i) || !s->settings->model)) /* `moed workers` adds workers */
            continue;
        enum error_code code = program_find(file, s->settings->bindir, p->program, e);
        if (code)
            return code;
        snprintf(file, sizeof file, "%s.log", p->name);
        run_dir_file(s->run, file, p->log_path);
    }
    return ERROR_OK;
}

/* The model and the name stand in answers to clients, between TABs. */
static bool has_control_characters(const char *text)
{
    for (; *text; text++)
        if ((unsigned char)*text < 0x20)
            return true;
    return false;
}

/* The model's absolute path. Only its folder is resolved: the names of a split model's other files
 * follow from its own, which may be a link to a file of any name. */
static bool resolve_model(const char *model, char out[PATH_MAX])
{
    char folder[PATH_MAX];
    const char *slash = strrchr(model, '/'), *file = slash ? slash + 1 : model;
    int before = (int)(file - model);
    if (strlen(model) >= sizeof folder) {
        errno = ENAMETOOLONG;
        return false;
    }
    snprintf(folder, sizeof folder, "%.*s", before, model);
    if (!realpath(before ? folder : ".", out))
        return false;
    size_t len = strlen(out);
    if (len + 1 + strlen(file) >= PATH_MAX) {
        errno = ENAMETOOLONG;
        return false;
    }
    snprintf(out + len, PATH_MAX - len, "%s%s", len > 1 ? "/" : "", file);
    return access(out, F_OK) == 0;
}

/* The processes' arguments hold RUN and the model as absolute paths. */
static enum error_code resolve_paths(struct supervisor *s, struct error *e)
{
    const struct settings *o = s->settings;
    enum error_code code;
    if (o->run && strlen(o->run) < sizeof s->run) {
        snprintf(s->run, sizeof s->run, "%s", o->run);
    } else if (o->run) {
        return error_set(e, ERROR_LIMIT, "--run: a path of at most %zu bytes is needed",
                         sizeof s->run - 1);
    } else if ((code = run_dir_path(o->name, s->run, e))) {
        return code;
    }
    if ((code = run_dir_create(s->run, e)))
        return code;
    char absolute[PATH_MAX];
    if (!realpath(s->run, absolute) || strlen(absolute) >= sizeof s->run)
        return error_set(e, ERROR_LIMIT, "the full path of %s is too long", s->run);
    memcpy(s->run, absolute, strlen(absolute) + 1);
    struct generation *first = &s->generations[0];
    memcpy(first->dir, s->run, sizeof first->dir);
    if (o->model && !resolve_model(o->model, first->model))
        return error_set(e, ERROR_NOT_FOUND, "cannot find the model %s: %m", o->model);
    if (o->options.models && !realpath(o->options.models, s->models))
        return error_set(e, ERROR_NOT_FOUND, "cannot find the folder %s: %m", o->options.models);
    if (has_control_characters(s->model) || has_control_characters(o->name))
        return error_set(e, ERROR_UNSUPPORTED, "the model's path or --name has control characters");
    return ERROR_OK;
}

static enum error_code clear_place(struct supervisor *s, const char *dir, struct error *e)
{
    int timeout_ms = (int)(s->policy.stop_timeout_ns / 1000000u);
    pid_t pids[SUPERVISE_PROCESSES];
    run_dir_find_holders(dir, supervise_process_names, SUPERVISE_PROCESSES, pids);
    for (int i = SUPERVISE_PROCESSES - 1; i >= 0; i--) {
        const char *name = s->processes[i].name;
        pid_t pid = pids[i];
        if (!pid)
            continue;
        log_warn("%s of an earlier supervisor still runs (pid %d): stopping it", name, (int)pid);
        if (!run_dir_terminate(dir, name, timeout_ms))
            return error_set(e, ERROR_EXISTS, "%s (pid %d) of an earlier deployment does not stop",
                             name, (int)pid);
    }
    return ERROR_OK;
}

/* Stops the processes that a killed supervisor left running: they hold the locks of the pid files.
 */
static enum error_code clear_leftovers(struct supervisor *s, struct error *e)
{
    enum error_code code = run_dir_serve(s->run, 0, e);
    for (unsigned i = RUN_PLACES; i-- > 0 && !code;) {
        char dir[RUN_DIR_BYTES];
        if (run_dir_place(s->run, i, dir) && access(dir, F_OK) == 0)
            code = clear_place(s, dir, e);
    }
    return code;
}

static enum error_code redirect_log(const struct supervisor *s, struct error *e)
{
    char path[RUN_PATH_BYTES];
    run_dir_file(s->run, "supervise.log", path);
    int fd = process_open_log(path);
    if (fd < 0)
        return error_set(e, ERROR_IO, "cannot write %s: %m", path);
    dup2(fd, STDOUT_FILENO);
    dup2(fd, STDERR_FILENO);
    close(fd);
    return ERROR_OK;
}

void supervisor_keep_log(const struct supervisor *s)
{
    char path[RUN_PATH_BYTES];
    run_dir_file(s->run, "supervise.log", path);
    bool is_missing = process_log_has_vanished(path);
    if (!is_missing && !process_log_is_long(path))
        return;
    if (redirect_log(s, &(struct error){0}) == ERROR_OK && is_missing)
        log_warn("%s has vanished: made again", path);
}

static enum error_code block_signals(struct supervisor *s, struct error *e)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGHUP);
    sigprocmask(SIG_BLOCK, &set, NULL);
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN); /* for the log: a limit of files' sizes is as a full disk */
    s->signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    if (s->signal_fd < 0)
        return error_set(e, ERROR_IO, "cannot create a signalfd: %m");
    return ERROR_OK;
}

static enum error_code open_sockets(struct supervisor *s, struct error *e)
{
    char path[RUN_PATH_BYTES];
    run_dir_file(s->run, "notify.sock", path);
    enum error_code code = notify_socket_open(path, &s->notify_fd, e);
    if (code)
        return code;
    setenv("NOTIFY_SOCKET", path, 1); /* for the processes */
    unsetenv("WATCHDOG_PID");
    char interval[24];
    snprintf(interval, sizeof interval, "%" PRIu64, s->policy.watchdog_ns / 1000u);
    setenv("WATCHDOG_USEC", interval, 1);
    run_dir_file(s->run, SUPERVISE_SOCKET, path);
    return clients_open(&s->clients, path, e);
}

static bool is_missing(const struct supervisor *s, const char *file, char path[RUN_PATH_BYTES])
{
    run_dir_file(s->run, file, path);
    return access(path, F_OK) != 0;
}

enum error_code supervisor_restore_files(struct supervisor *s, struct error *e)
{
    char path[RUN_PATH_BYTES];
    enum error_code code = ERROR_OK;
    if (is_missing(s, "supervise.pid", path)) {
        log_warn("%s has vanished: making it again", path);
        code = run_dir_lock(s->run, "supervise", e);
    }
    if (!code && is_missing(s, "notify.sock", path)) {
        log_warn("%s has vanished: making it again", path);
        close(s->notify_fd);
        s->notify_fd = -1;
        code = notify_socket_open(path, &s->notify_fd, e);
    }
    if (!code && is_missing(s, SUPERVISE_SOCKET, path)) {
        log_warn("%s has vanished: making it again", path);
        code = clients_listen(&s->clients, path, e);
    }
    return code;
}

static bool has_gpu(const struct settings *o)
{
    return o->options.device && strncmp(o->options.device, "cuda", 4) == 0;
}

static bool wants_mps(const struct settings *o)
{
    bool cuda = has_gpu(o);
    if (o->options.mps && !cuda)
        log_warn("no MPS: the device is not a CUDA one");
    return o->options.mps && cuda;
}

/* Without a device the worker computes the experts itself: cpuexec would compete for the cores with
 * a worker that waits. */
static bool wants_cpuexec(const struct settings *o)
{
    return o->options.cpuexec || (o->options.device && strcmp(o->options.device, "host") != 0);
}

static void choose_processes(struct supervisor *s)
{
    const struct settings *o = s->settings;
    s->processes[MEMD].unused = !o->model;
    for (int i = WORKER; i <= LAST_WORKER; i++)
        s->processes[i].unused = !o->model || i - WORKER >= (int)o->options.workers;
    s->processes[CPUEXEC].unused = !o->model || !wants_cpuexec(o);
    s->processes[MODELS].unused = !o->options.models;
    s->processes[HTTP].unused = !o->options.http;
    s->processes[MEMD].runs_setuid = has_gpu(o);
    for (int i = WORKER; i <= LAST_WORKER; i++)
        s->processes[i].runs_setuid = has_gpu(o);
    for (int i = CPUEXEC; i <= LAST_WORKER; i++)
        s->processes[i].ends_first = true;
    s->processes[MODELS].stops_deployments = true;
    if (o->options.drain_s > 0)
        s->processes[HTTP].drain_ns = (uint64_t)(o->options.drain_s * 1e9);
    s->processes[MODELS].runs_setuid = true; /* it starts deployments, which may have a GPU */
}

/* poll fails if it gets more descriptors than are allowed, even where they are unused. */
static enum error_code check_descriptor_limit(struct error *e)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= SUPERVISOR_POLLED)
        return ERROR_OK;
    return error_set(e, ERROR_LIMIT,
                     "%llu descriptors are allowed, but the supervisor needs %d: raise ulimit -n",
                     (unsigned long long)limit.rlim_cur, SUPERVISOR_POLLED);
}

enum error_code supervisor_prepare(struct supervisor *s, struct error *e)
{
    choose_processes(s);
    enum error_code code = resolve_paths(s, e);
    if (!code)
        code = find_programs(s, e);
    if (!code)
        code = run_dir_lock(s->run, "supervise", e);
    if (!code)
        code = redirect_log(s, e);
    if (code)
        return code;
    bool named = !run_dir_from_environment(); /* with MOED_RUN the name does not count */
    log_info("moed %s: deployment %s%sof %s in %s (pid %d)", MOED_VERSION,
             named ? s->settings->name : "", named ? " " : "", s->model[0] ? s->model : s->models,
             s->run, (int)getpid());
    code = check_descriptor_limit(e);
    if (!code)
        code = block_signals(s, e);
    if (!code)
        code = clear_leftovers(s, e);
    if (!code)
        code = open_sockets(s, e);
    if (!code)
        code = run_watch_open(&s->watch, s->run, e);
    if (code)
        return code;
    supervisor_build_arguments(s, &s->generations[0], s->processes, SUPERVISE_PROCESSES);
    reload_init(s);
    mps_start(s->run, wants_mps(s->settings));
    return ERROR_OK;
}
