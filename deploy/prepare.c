/* What moed-supervise does before its loop; see supervisor.h. */
#include "deploy/supervisor.h"

#include "base/log.h"
#include "deploy/mps.h"
#include "daemon/program_find.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

static void add_argument(struct process *p, const char *flag, const char *value)
{
    size_t n = 0;
    while (p->arguments[n])
        n++;
    if (n + 2 > PROCESS_MAX_ARGUMENTS)
        abort(); /* our bug: the options below are fewer */
    p->arguments[n++] = (char *)flag;
    if (value)
        p->arguments[n] = (char *)value;
}

enum {
    TO_MEMD = 1,
    TO_CPUEXEC = 2,
    TO_WORKER = 4,
    TO_MODELS = 8,
    TO_HTTP = 16,
    TO_ALL = TO_MEMD | TO_CPUEXEC | TO_WORKER
};

static unsigned kind_of(int which)
{
    return which == MEMD      ? TO_MEMD
           : which == CPUEXEC ? TO_CPUEXEC
           : which == MODELS  ? TO_MODELS
           : which == HTTP    ? TO_HTTP
                              : TO_WORKER;
}

/* The value as text, which `text` holds; NULL for 0, the process's own default. */
static const char *number(uint64_t value, char text[24])
{
    snprintf(text, 24, "%" PRIu64, value);
    return value ? text : NULL;
}

static const char *number_or_less(double value, char text[24])
{
    snprintf(text, 24, "%.3f", value);
    return text;
}

void supervisor_build_arguments(struct supervisor *s, struct generation *g, struct process *first,
                                int n)
{
    const struct settings *o = &g->settings;
    const struct {
        unsigned to;
        const char *flag, *value; /* NULL: not given */
    } options[] = {
        {TO_ALL, "--run", g->dir},
        {TO_MODELS | TO_HTTP, "--run", s->run},
        {TO_ALL | TO_MODELS | TO_HTTP, "--log-level", o->log_level},
        {TO_ALL, "--threads", number(o->threads, g->numbers[0])},
        {TO_MEMD, "--model", g->model},
        {TO_ALL, "--device", o->device},
        {TO_MEMD, "--ram", o->ram},
        {TO_MEMD, "--policy", o->policy},
        {TO_MEMD, "--assign", o->assign},
        {TO_MEMD, "--cache", o->cache},
        {TO_MEMD, "--predictor", o->predictor},
        {TO_MEMD, "--budget", o->budget},
        {TO_MEMD, "--prefetch", o->prefetch},
        {TO_MEMD, "--predictors", o->predictors},
        {TO_MEMD, "--segment-bytes", number(o->segment_bytes, g->numbers[3])},
        /* memd reserves device memory for the worker's context. */
        {TO_MEMD | TO_WORKER, "--ctx", number(o->ctx, g->numbers[1])},
        {TO_MEMD | TO_WORKER, "--parallel", number(o->parallel, g->numbers[2])},
        {TO_MEMD | TO_WORKER, "--batch", number(o->batch, g->numbers[8])},
        {TO_WORKER, "--queue", number(o->queue, g->numbers[4])},
        {TO_WORKER, "--decode-share", number(o->decode_share, g->numbers[5])},
        {TO_WORKER, "--speculate", o->speculate},
        {TO_MEMD, "--workers", number(o->workers > 1 ? o->workers : 0, g->numbers[9])},
        {TO_MEMD | TO_WORKER, "--kv-type", o->kv_type},
        {TO_MEMD, "--kv-cache", o->kv_cache},
        {TO_MEMD, "--kv-dir", o->kv_dir},
        {TO_MEMD, "--kv-dir-size", o->kv_dir_size},
        {TO_MODELS, "--folder", s->models},
        {TO_MODELS, "--keep", number_or_less(o->models_keep_s, g->numbers[6])},
        {TO_MODELS, "--most", number(o->models_most, g->numbers[7])},
        {TO_MODELS, "--memory", o->models_memory},
        {TO_HTTP, "--name", o->name},
        {TO_HTTP, "--config", o->http_config},
        {TO_HTTP, "--listen", o->http},
        {TO_HTTP, "--api-key-file", o->api_key_file},
        {TO_HTTP, "--admin-key-file", o->admin_key_file},
        {TO_HTTP, "--tls-cert", o->tls_cert},
        {TO_HTTP, "--tls-key", o->tls_key},
    };
    const struct {
        unsigned to;
        const char *flag;
        bool given;
    } switches[] = {
        {TO_ALL, "--reproducible", o->reproducible}, {TO_HTTP, "--models", o->models != NULL},
        {TO_WORKER, "--cpuexec", o->cpuexec},        {TO_WORKER, "--calibrate", o->calibrate},
        {TO_WORKER, "--fine-tune", o->fine_tune},
    };
    for (int i = 0; i < n; i++) {
        struct process *p = &first[i];
        memset(p->arguments, 0, sizeof p->arguments);
        add_argument(p, p->program, NULL);
        if (is_worker(i) && i > WORKER) {
            char *text = g->worker_numbers[i - WORKER];
            snprintf(text, sizeof g->worker_numbers[0], "%d", i - WORKER + 1);
            add_argument(p, "--number", text);
        }
        for (size_t k = 0; k < sizeof options / sizeof *options; k++)
            if (options[k].value && (options[k].to & kind_of(i)))
                add_argument(p, options[k].flag, options[k].value);
        for (size_t k = 0; k < sizeof switches / sizeof *switches; k++)
            if (switches[k].given && (switches[k].to & kind_of(i)))
                add_argument(p, switches[k].flag, NULL);
    }
}

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
    if (o->model && !realpath(o->model, first->model))
        return error_set(e, ERROR_NOT_FOUND, "cannot find the model %s: %m", o->model);
    if (o->models && !realpath(o->models, s->models))
        return error_set(e, ERROR_NOT_FOUND, "cannot find the folder %s: %m", o->models);
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
    return o->device && strncmp(o->device, "cuda", 4) == 0;
}

static bool wants_mps(const struct settings *o)
{
    bool cuda = has_gpu(o);
    if (o->mps && !cuda)
        log_warn("no MPS: the device is not a CUDA one");
    return o->mps && cuda;
}

/* Without a device the worker computes the experts itself: cpuexec would compete for the cores with
 * a worker that waits. */
static bool wants_cpuexec(const struct settings *o)
{
    return o->cpuexec || (o->device && strcmp(o->device, "host") != 0);
}

static void choose_processes(struct supervisor *s)
{
    const struct settings *o = s->settings;
    s->processes[MEMD].unused = !o->model;
    for (int i = WORKER; i <= LAST_WORKER; i++)
        s->processes[i].unused = !o->model || i - WORKER >= (int)o->workers;
    s->processes[CPUEXEC].unused = !o->model || !wants_cpuexec(o);
    s->processes[MODELS].unused = !o->models;
    s->processes[HTTP].unused = !o->http;
    s->processes[MEMD].runs_setuid = has_gpu(o);
    for (int i = WORKER; i <= LAST_WORKER; i++)
        s->processes[i].runs_setuid = has_gpu(o);
    s->processes[MODELS].runs_setuid = true; /* it starts deployments, which may have a GPU */
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
    log_info("moed %s: deployment %s of %s in %s (pid %d)", MOED_VERSION, s->settings->name,
             s->model[0] ? s->model : s->models, s->run, (int)getpid());
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
