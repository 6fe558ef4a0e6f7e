/* A daemon's life: start, signals, readiness, stop; see daemon.h.
 *
 * The main thread blocks SIGTERM, SIGINT and SIGHUP, and so do all threads that it starts, nng's
 * included. The thread "signals" takes them; it also notifies the watchdog. A library may have
 * started threads before main, which block nothing. Therefore this file uses a
 * handler, which any thread may run: with a signalfd the default action would happen in such a
 * thread. */
#include "daemon/daemon.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/utf8.h"
#include "daemon/internal.h"
#include "daemon/notify.h"
#include "ipc/peer_rpc.h"
#include "ipc/rpc.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_OPTIONS 64
/* After a removal: `rm -r RUN` is to find it empty in the end. */
#define REMOVAL_DELAY_MS  500
#define LOG_CHECK_MS      10000 /* where there is no watchdog */
#define SHUTDOWN_DELAY_MS 50 /* the reply to a shutdown request leaves before the socket closes */

/* A process has one daemon. Static: it outlives main's frame and every thread. */
static struct daemon_internal internal = {.state_lock = PTHREAD_MUTEX_INITIALIZER,
                                          .request_lock = PTHREAD_MUTEX_INITIALIZER};

struct common_options {
    const char *run, *log_level, *config;
    bool config_dump, confine;
};

/* out: the daemon's table, then the common options; those of a process that confines itself last.
 */
static void join_tables(const struct option_spec *table, struct common_options *c, bool confines,
                        struct option_spec *out)
{
    const struct option_spec common[] = {
        {"run", OPTION_STRING, &c->run, 0, 0, "DIR", "runtime directory of the deployment"},
        {"log-level", OPTION_STRING, &c->log_level, 0, 0, "LEVEL", "error, warn, info or debug"},
        {"config", OPTION_STRING, &c->config, 0, 0, "FILE", "read options from FILE; flags win"},
        {"config-dump", OPTION_BOOL, &c->config_dump, 0, 0, NULL,
         "print the effective options and exit"},
        {"confine", OPTION_BOOL, &c->confine, 0, 0, NULL,
         "give up privileges, other files, other system calls"},
        {0},
    };
    size_t n = 0, n_common = sizeof common / sizeof *common;
    for (; table && table->name; table++) {
        if (n + n_common > MAX_OPTIONS)
            abort(); /* a bug: the program's table is too long for MAX_OPTIONS */
        out[n++] = *table;
    }
    memcpy(out + n, common, sizeof common);
    if (!confines)
        out[n + n_common - 2] = (struct option_spec){0};
}

static _Noreturn void exit_usage(const char *process, const struct error *e)
{
    fprintf(stderr, "moed-%s: %s\n", process, e->text);
    exit(EXIT_BAD_USAGE);
}

/* arg: the process's name */
static void report_option(void *arg, const char *text)
{
    fprintf(stderr, "moed-%s: %s\n", (const char *)arg, text);
}

/* The process's own name, which its log has. */
static void set_name(struct daemon *d, const uint64_t *number)
{
    static char name[16];
    if (!number || *number < 2)
        return;
    snprintf(name, sizeof name, "%.8s-%u", d->process, (unsigned)*number % 1000);
    d->process = name;
}

static void parse_options(struct daemon *d, const char *purpose, const struct option_spec *table,
                          const uint64_t *number, bool confines, int argc, char **argv)
{
    struct common_options common = {.log_level = "info", .confine = confines};
    struct option_spec all[MAX_OPTIONS];
    join_tables(table, &common, confines, all);
    char program[64];
    snprintf(program, sizeof program, "moed-%s", d->process);
    if (options_print_version(program, argc, argv))
        exit(EXIT_CLEAN);
    if (options_wants_help(argc, argv)) {
        options_print_help(all, program, "[OPTION]...", purpose);
        exit(EXIT_CLEAN);
    }
    struct error e = {0};
    if (options_parse_all(all, argc, argv, NULL, report_option, (void *)d->process, &e))
        exit(EXIT_BAD_USAGE);
    enum log_level level;
    if (log_level_parse(common.log_level, &level) != 0) {
        error_set(&e, ERROR_USAGE, "--log-level: %.40s is not one of error, warn, info, debug",
                  common.log_level);
        exit_usage(d->process, &e);
    }
    if (common.config_dump) {
        options_print_values(all);
        exit(EXIT_CLEAN);
    }
    set_name(d, number);
    log_init(d->process, level);
    d->confine = common.confine;
    if (!common.run) {
        if (run_dir_path(NULL, d->run, &e))
            exit_usage(d->process, &e);
    } else if (strlen(common.run) >= sizeof d->run) {
        error_set(&e, ERROR_USAGE, "--run: a path of at most %zu bytes is needed",
                  sizeof d->run - 1);
        exit_usage(d->process, &e);
    } else {
        memcpy(d->run, common.run, strlen(common.run) + 1);
    }
}

static void drain(int event_fd)
{
    uint64_t count;
    ssize_t n = read(event_fd, &count, sizeof count);
    (void)n;
}

static void raise_event(int event_fd)
{
    uint64_t one = 1;
    ssize_t n = write(event_fd, &one, sizeof one);
    (void)n; /* an eventfd at its limit is readable already */
}

static void on_signal(int signal_number)
{
    int saved_errno = errno;
    atomic_store(&internal.last_signal, signal_number);
    raise_event(internal.signal_event);
    errno = saved_errno;
}

static void on_drain_signal(int signal_number)
{
    int saved_errno = errno;
    (void)signal_number;
    raise_event(internal.drain_event);
    errno = saved_errno;
}

/* Before it is ready a process serves nobody and may be in the middle of minutes of work (loading,
 * measuring), so it ends at once. What it leaves in RUN is what a killed process leaves. */
static void stop(struct daemon *d)
{
    if (!atomic_load(&d->ready)) {
        log_info("stopped before it was ready");
        _exit(EXIT_CLEAN);
    }
    daemon_request_stop(d, EXIT_CLEAN);
}

static void take_drain(struct daemon *d)
{
    const struct daemon_handlers *handlers = NULL;
    drain(d->internal->drain_event);
    if (atomic_load(&d->ready)) /* the handlers stay from then on */
        handlers = d->internal->handlers;
    if (!handlers || !handlers->drain) {
        stop(d);
        return;
    }
    log_info("draining: no new work is taken");
    handlers->drain(d->internal->handlers_arg);
}

static void take_signal(struct daemon *d)
{
    drain(d->internal->signal_event);
    int signal_number = atomic_load(&d->internal->last_signal);
    bool hurries = atomic_load(&d->stopping) && signal_number == SIGINT;
    log_info("%s: %s", strsignal(signal_number), hurries ? "stopping at once" : "stopping");
    if (hurries)
        atomic_store(&d->hurried, true);
    stop(d);
}

static void stop_signals(sigset_t *set)
{
    sigemptyset(set);
    sigaddset(set, SIGTERM);
    sigaddset(set, SIGINT);
    sigaddset(set, SIGHUP);
    sigaddset(set, SIGUSR1);
}

static void drain_removals(const struct daemon_internal *i)
{
    _Alignas(struct inotify_event) char events[4096];
    while (read(i->removals, events, sizeof events) > 0)
        ;
}

/* A file in RUN was removed. Without its pid file this process would be found by its lock only, and
 * a second one could start. */
static void check_pid_file(struct daemon *d)
{
    char file[64], path[RUN_PATH_BYTES];
    struct error e = {0};
    snprintf(file, sizeof file, "%s.pid", d->process);
    run_dir_file(d->run, file, path);
    if (access(path, F_OK) == 0 || atomic_load(&d->stopping))
        return;
    if (run_dir_lock(d->run, d->process, &e))
        log_warn("%s has vanished: %s", path, e.text);
    else
        log_warn("%s has vanished: made again", path);
}

static void log_path(const struct daemon *d, char path[RUN_PATH_BYTES])
{
    char file[64];
    snprintf(file, sizeof file, "%s.log", d->process);
    run_dir_file(d->run, file, path);
}

/* Whether the descriptor is of the file that is at the path now. */
static bool is_of_path(int fd, const char *path)
{
    struct stat open_file, there;
    return fstat(fd, &open_file) == 0 && lstat(path, &there) == 0 &&
           open_file.st_ino == there.st_ino && open_file.st_dev == there.st_dev;
}

/* The supervisor has renamed the log, which was long, and made a new one; or somebody has removed
 * it, and the supervisor made it again. A line goes as a whole to either. While this process still
 * writes to the old one the new one does not grow, so the supervisor does not rename it. */
static void reopen_log(struct daemon *d)
{
    char path[RUN_PATH_BYTES];
    log_path(d, path);
    if (!d->internal->has_log || is_of_path(STDERR_FILENO, path))
        return;
    int fd = open(path, O_WRONLY | O_APPEND | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0)
        return;
    dup3(fd, STDOUT_FILENO, 0); /* a confined process may not call dup2 */
    dup3(fd, STDERR_FILENO, 0);
    close(fd);
}

static void watch_removals(struct daemon *d)
{
    int fd = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
    if (fd >= 0 && inotify_add_watch(fd, d->run, IN_DELETE | IN_MOVED_FROM | IN_ONLYDIR) < 0) {
        close(fd);
        fd = -1;
    }
    d->internal->removals = fd;
}

/* While it stops, a process closes what the watchdog looks at. */
static void notify_watchdog(struct daemon *d)
{
    if (!atomic_load(&d->stopping) && !watchdog_lives(&d->internal->watchdog))
        return;
    /* The manager may have lost the first READY=1: it was stopped, and its queue full. */
    notify_send(atomic_load(&d->ready) ? "READY=1\nWATCHDOG=1" : "WATCHDOG=1", false);
}

static void *signals_main(void *arg)
{
    struct daemon *d = arg;
    struct daemon_internal *i = d->internal;
    sigset_t set;
    prctl(PR_SET_NAME, "signals");
    stop_signals(&set);
    pthread_sigmask(SIG_UNBLOCK, &set, NULL);
    int pause_ms = watchdog_pause_ms(&i->watchdog);
    uint64_t beat_ns = 0;           /* when to notify the watchdog, and to look at the log */
    uint64_t check_ns = UINT64_MAX; /* when to look for the pid file */
    for (;;) {
        struct pollfd fds[] = {{i->signal_event, POLLIN, 0},      {i->shutdown_event, POLLIN, 0},
                               {i->thread_event, POLLIN, 0},      {i->removals, POLLIN, 0},
                               {i->watchdog.probe_fd, POLLIN, 0}, {i->drain_event, POLLIN, 0}};
        int n = poll(fds, sizeof fds / sizeof *fds,
                     clock_ms_until(beat_ns < check_ns ? beat_ns : check_ns));
        if (n > 0 && fds[4].revents)
            watchdog_take_greeting(&i->watchdog);
        if (check_ns <= clock_ns()) {
            check_pid_file(d);
            reopen_log(d);
            check_ns = UINT64_MAX;
        }
        if (beat_ns <= clock_ns()) {
            if (pause_ms >= 0)
                notify_watchdog(d);
            reopen_log(d); /* its renaming may have been missed, or it could not be opened */
            beat_ns = clock_end_ns(pause_ms < 0 ? LOG_CHECK_MS : pause_ms);
        }
        if (n <= 0)
            continue;
        if (fds[2].revents)
            return NULL;
        if (fds[3].revents) {
            drain_removals(i);
            check_ns = clock_end_ns(REMOVAL_DELAY_MS);
        }
        if (fds[5].revents)
            take_drain(d);
        if (fds[1].revents) {
            drain(i->shutdown_event);
            poll(NULL, 0, SHUTDOWN_DELAY_MS);
            stop(d);
        }
        if (fds[0].revents) {
            reopen_log(d); /* the last lines stand where `moed logs` looks */
            take_signal(d);
        }
    }
}

static void make_events(struct daemon *d)
{
    struct daemon_internal *i = d->internal;
    struct error e = {0};
    sigset_t set;
    stop_signals(&set);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN); /* a limit of files' sizes is as a full disk */
    i->signal_event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    i->stop_event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    i->shutdown_event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    i->thread_event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    i->drain_event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (i->drain_event < 0 || i->signal_event < 0 || i->stop_event < 0 || i->shutdown_event < 0 ||
        i->thread_event < 0) {
        error_set(&e, ERROR_IO, "cannot create the event descriptors: %m");
        daemon_fail(d, EXIT_RETRY, &e);
    }
    struct sigaction action = {.sa_handler = on_drain_signal, .sa_flags = SA_RESTART};
    action.sa_mask = set;
    sigaction(SIGUSR1, &action, NULL);
}

static void init(struct daemon *d, const char *process, const uint64_t *number, bool confines,
                 const char *purpose, const struct option_spec *table, int argc, char **argv)
{
    *d = (struct daemon){.process = process, .started_ns = clock_ns(), .internal = &internal};
    parse_options(d, purpose, table, number, confines, argc, argv);
    char name[16]; /* the kernel's limit */
    snprintf(name, sizeof name, "moed-%.10s", d->process);
    prctl(PR_SET_NAME, name);
    snprintf(internal.state, sizeof internal.state, "starting");

    struct error e = {0};
    if (run_dir_create(d->run, &e))
        daemon_fail(d, EXIT_PERMANENT, &e);
    if (run_dir_lock(d->run, d->process, &e))
        daemon_fail(d, EXIT_RETRY, &e);
    d->metrics = internal.metrics = metrics_new();
    if (!d->metrics) {
        error_set(&e, ERROR_MEMORY, "no memory for the metrics");
        daemon_fail(d, EXIT_RETRY, &e);
    }
    make_events(d);
    char path[RUN_PATH_BYTES];
    log_path(d, path);
    internal.has_log = is_of_path(STDERR_FILENO, path);
    log_info("moed %s starts in %s (pid %d)", MOED_VERSION, d->run, (int)getpid());
}

void daemon_init(struct daemon *d, const char *process, const char *purpose,
                 const struct option_spec *table, int argc, char **argv)
{
    init(d, process, NULL, true, purpose, table, argc, argv);
}

void daemon_init_numbered(struct daemon *d, const char *process, const uint64_t *number,
                          const char *purpose, const struct option_spec *table, int argc,
                          char **argv)
{
    init(d, process, number, true, purpose, table, argc, argv);
}

void daemon_init_unconfined(struct daemon *d, const char *process, const char *purpose,
                            const struct option_spec *table, int argc, char **argv)
{
    init(d, process, NULL, false, purpose, table, argc, argv);
}

void daemon_start(struct daemon *d)
{
    struct daemon_internal *i = d->internal;
    struct error e = {0};
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    stop_signals(&action.sa_mask);
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGHUP, &action, NULL);
    watchdog_init(&i->watchdog, notify_watchdog_us());
    watch_removals(d);
    reopen_log(d); /* renamed while the model was read */
    int failed = pthread_create(&i->signals, NULL, signals_main, d);
    if (failed) {
        error_set(&e, ERROR_IO, "cannot start a thread: %s", strerror(failed));
        daemon_fail(d, EXIT_RETRY, &e);
    }
    i->signals_running = true;
}

void daemon_copy_state(struct daemon *d, char out[DAEMON_STATE_BYTES])
{
    pthread_mutex_lock(&d->internal->state_lock);
    memcpy(out, d->internal->state, DAEMON_STATE_BYTES);
    pthread_mutex_unlock(&d->internal->state_lock);
}

void daemon_status(struct daemon *d, const char *format, ...)
{
    char state[DAEMON_STATE_BYTES], message[DAEMON_STATE_BYTES + 16];
    va_list args;
    va_start(args, format);
    vsnprintf(state, sizeof state, format, args);
    va_end(args);
    utf8_hide_controls(state, strlen(state), ""); /* a model's name may hold control characters */
    pthread_mutex_lock(&d->internal->state_lock);
    memcpy(d->internal->state, state, sizeof state);
    pthread_mutex_unlock(&d->internal->state_lock);
    snprintf(message, sizeof message, "STATUS=%s", state);
    notify_send(message, false);
}

void daemon_awaits_memory(void *arg, const char *lack)
{
    log_info("waiting for memory of the device: %s", lack);
    daemon_status(arg, "waiting for memory of the device: %s", lack);
}

void daemon_ready(struct daemon *d)
{
    char state[DAEMON_STATE_BYTES], message[DAEMON_STATE_BYTES + 32];
    atomic_store(&d->ready, true);
    heartbeat_rest(&d->internal->watchdog.start);
    /* With the status, which the manager may have lost: others send theirs while they load. */
    daemon_copy_state(d, state);
    snprintf(message, sizeof message, "READY=1%s%s", state[0] ? "\nSTATUS=" : "", state);
    notify_send(message, true);
    log_info("ready after %.1f s", (double)(clock_ns() - d->started_ns) * 1e-9);
}

void daemon_watch(struct daemon *d, const struct heartbeat *h)
{
    for (int i = 0; i < WATCHDOG_THREADS; i++) {
        const struct heartbeat *none = NULL;
        if (atomic_compare_exchange_strong(&d->internal->watchdog.threads[i], &none, h))
            return;
    }
    abort(); /* a bug: more threads than WATCHDOG_THREADS */
}

void daemon_request_stop(struct daemon *d, int exit_code)
{
    bool first = !atomic_exchange(&d->stopping, true);
    if (first)
        atomic_store(&d->internal->exit_code, exit_code);
    raise_event(d->internal->stop_event);
}

int daemon_wait(struct daemon *d)
{
    struct pollfd fd = {d->internal->stop_event, POLLIN, 0};
    while (poll(&fd, 1, -1) <= 0)
        ;
    return atomic_load(&d->internal->exit_code);
}

int daemon_stop_fd(const struct daemon *d)
{
    return d->internal->stop_event;
}

void daemon_stop(struct daemon *d)
{
    struct daemon_internal *i = d->internal;
    atomic_store(&d->stopping, true);
    notify_send("STOPPING=1\nSTATUS=stopping", false);
    rpc_server_stop(i->server);
    peer_rpc_server_stop(i->peers);
    i->server = NULL;
    i->peers = NULL;
    if (i->signals_running) {
        raise_event(i->thread_event);
        pthread_join(i->signals, NULL);
        i->signals_running = false;
    }
    log_info("stopped");
}

void daemon_fail(struct daemon *d, int exit_code, const struct error *e)
{
    char status[ERROR_TEXT_BYTES + 16];
    snprintf(status, sizeof status, "STATUS=%s", e->text);
    notify_send(status, false);
    log_error("%s", e->text);
    _exit(exit_code); /* other threads run: no destructor may free what they use */
}
