/* The supervisor's start; see supervisor.h. */
#include "deploy/supervisor.h"

#include "base/log.h"
#include "deploy/mps.h"
#include "daemon/program_find.h"

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

/* Hand each process the options that it takes. */
static void build_arguments(struct supervisor *s)
{
    const struct settings *o = s->settings;
    struct process *p = s->processes;
    const uint64_t numbers[] = {o->threads, o->ctx, o->parallel, o->segment_bytes};
    for (int i = 0; i < 4; i++)
        snprintf(s->numbers[i], sizeof s->numbers[i], "%llu", (unsigned long long)numbers[i]);
    for (int i = 0; i < SUPERVISE_PROCESSES; i++) {
        add_argument(&p[i], p[i].program, NULL);
        add_argument(&p[i], "--run", s->run);
        if (o->log_level)
            add_argument(&p[i], "--log-level", o->log_level);
        if (o->threads)
            add_argument(&p[i], "--threads", s->numbers[0]);
    }
    add_argument(&p[MEMD], "--model", s->model);
    if (o->device) {
        add_argument(&p[MEMD], "--device", o->device);
        add_argument(&p[CPUEXEC], "--device", o->device);
        add_argument(&p[WORKER], "--device", o->device);
    }
    if (o->ram)
        add_argument(&p[MEMD], "--ram", o->ram);
    if (o->policy)
        add_argument(&p[MEMD], "--policy", o->policy);
    if (o->assign)
        add_argument(&p[MEMD], "--assign", o->assign);
    if (o->cache)
        add_argument(&p[MEMD], "--cache", o->cache);
    if (o->predictor)
        add_argument(&p[MEMD], "--predictor", o->predictor);
    if (o->budget)
        add_argument(&p[MEMD], "--budget", o->budget);
    if (o->prefetch)
        add_argument(&p[MEMD], "--prefetch", o->prefetch);
    if (o->learned)
        add_argument(&p[MEMD], "--learned", o->learned);
    if (o->segment_bytes)
        add_argument(&p[MEMD], "--segment-bytes", s->numbers[3]);
    if (o->cpuexec)
        add_argument(&p[WORKER], "--cpuexec", NULL);
    if (o->calibrate)
        add_argument(&p[WORKER], "--calibrate", NULL);
    if (o->fine_tune)
        add_argument(&p[WORKER], "--fine-tune", NULL);
    const int served[] = {MEMD, WORKER}; /* memd leaves room for it on the device */
    for (int i = 0; i < 2; i++) {
        if (o->ctx)
            add_argument(&p[served[i]], "--ctx", s->numbers[1]);
        if (o->parallel)
            add_argument(&p[served[i]], "--parallel", s->numbers[2]);
        if (o->kv_type)
            add_argument(&p[served[i]], "--kv-type", o->kv_type);
    }
    for (int i = 0; o->reproducible && i < SUPERVISE_PROCESSES; i++)
        add_argument(&p[i], "--reproducible", NULL);
}

static enum error_code find_programs(struct supervisor *s, struct error *e)
{
    for (int i = 0; i < SUPERVISE_PROCESSES; i++) {
        struct process *p = &s->processes[i];
        char file[64];
        p->name = supervise_process_names[i];
        snprintf(file, sizeof file, "moed-%s", p->name);
        enum error_code code = program_find(file, s->settings->bindir, p->program, e);
        if (code)
            return code;
        snprintf(file, sizeof file, "%s.log", p->name);
        run_dir_file(s->run, file, p->log_path);
    }
    return ERROR_OK;
}

/* Both stand in the answers to clients, between TABs. */
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
    if (!realpath(o->model, s->model))
        return error_set(e, ERROR_NOT_FOUND, "cannot find the model %s: %m", o->model);
    if (has_control_characters(s->model) || has_control_characters(o->name))
        return error_set(e, ERROR_UNSUPPORTED, "the model's path or --name has control characters");
    return ERROR_OK;
}

/* Processes of a supervisor that died without a chance to stop them; ours would find their pid
 * files locked. */
static enum error_code clear_leftovers(struct supervisor *s, struct error *e)
{
    int timeout_ms = (int)(s->policy.stop_timeout_ns / 1000000u);
    for (int i = SUPERVISE_PROCESSES - 1; i >= 0; i--) {
        const char *name = s->processes[i].name;
        pid_t pid = run_dir_holder(s->run, name);
        if (!pid)
            continue;
        log_warn("%s of an earlier supervisor still runs (pid %d): stopping it", name, (int)pid);
        if (!run_dir_terminate(s->run, name, timeout_ms))
            return error_set(e, ERROR_EXISTS, "%s (pid %d) of an earlier deployment does not stop",
                             name, (int)pid);
    }
    return ERROR_OK;
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
    unsetenv("WATCHDOG_USEC");
    unsetenv("WATCHDOG_PID");
    run_dir_file(s->run, SUPERVISE_SOCKET, path);
    return clients_open(&s->clients, path, e);
}

static bool wants_mps(const struct settings *o)
{
    bool cuda = o->device && strncmp(o->device, "cuda", 4) == 0;
    if (o->mps && !cuda)
        log_warn("no MPS: the device is not a CUDA one");
    return o->mps && cuda;
}

/* Without a device it would compute on the cores that the worker waits with, so the worker does. */
static bool wants_cpuexec(const struct settings *o)
{
    return o->cpuexec || (o->device && strcmp(o->device, "host") != 0);
}

enum error_code supervisor_prepare(struct supervisor *s, struct error *e)
{
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
             s->model, s->run, (int)getpid());
    code = block_signals(s, e);
    if (!code)
        code = clear_leftovers(s, e);
    if (!code)
        code = open_sockets(s, e);
    if (code)
        return code;
    build_arguments(s);
    s->processes[CPUEXEC].unused = !wants_cpuexec(s->settings);
    mps_start(s->run, wants_mps(s->settings));
    return ERROR_OK;
}
