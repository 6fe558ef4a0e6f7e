/* One supervised process; see process.h.
 *
 *                     start                READY=1
 *   waiting, backoff -------> starting -----------------> ready
 *      ^        ^                |  exits                   |  exits
 *      |        +----------------+--------------------------+        (process_end)
 *      |                         |  exit status 2 or 3; killed by the watchdog 5 times in a row; where
 *      |                         |  it was never ready: exit status 4, or 5 times in a row another one
 *      |                         |  than 5
 *      |                         +-------> failed
 *      +-- stopping <-- process_stop from starting, ready      stopping --> stopped
 */
#include "deploy/process.h"

#include "base/cgroup_memory.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/utf8.h"
#include "daemon/daemon.h"
#include "daemon/supervisor_protocol.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define LOG_ROTATE_BYTES (10 << 20)
#define MAX_FAILURES     5
#define MAX_SILENCES     5
#define SILENCE_FORGIVEN 10 /* watchdog intervals that a process serves until its silences are */
#define FIRST_BACKOFF_MS 100u
#define LAST_BACKOFF_MS  10000u
#define EXIT_NOT_STARTED 127
#define RESTART_DRAIN_NS 5000000000ull /* as http's own --drain */
#define HURRY_AGAIN_NS   1000000000ull /* a SIGINT before SIGTERM is handled only stops */

/* The worker takes seconds to start, memd as long as the model to load. They map the same pool, so
 * this much makes the order, and leaves programs that are far larger before them. */
#define OOM_SCORE_MORE 300
#define OOM_SCORE_MOST 1000

/* Timeouts: a deployment's workers, its memd, and a rest. */
#define STOPPING_DEPLOYMENTS 3

static struct cgroup_oom_kills oom_kills;

const char *process_state_name(enum process_state state)
{
    static const char *const names[] = {"waiting", "starting", "ready",  "backoff",
                                        "failed",  "stopping", "stopped"};
    return names[state];
}

static void old_log_path(const char *path, char old[RUN_PATH_BYTES + 8])
{
    snprintf(old, RUN_PATH_BYTES + 8, "%s.1", path);
}

int process_open_log(const char *path)
{
    int flags = O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW;
    int fd = open(path, flags, 0600);
    struct stat s;
    if (fd < 0 || fstat(fd, &s) != 0 || s.st_size <= LOG_ROTATE_BYTES)
        return fd;
    char old[RUN_PATH_BYTES + 8];
    old_log_path(path, old);
    if (rename(path, old) != 0)
        return fd; /* a log that is too long is better than none */
    close(fd);
    return open(path, flags, 0600);
}

bool process_log_is_long(const char *path)
{
    struct stat s;
    return stat(path, &s) == 0 && s.st_size > LOG_ROTATE_BYTES;
}

bool process_log_has_vanished(const char *path)
{
    return access(path, F_OK) != 0 && errno == ENOENT;
}

void process_keep_log(struct process *p)
{
    bool is_long = process_log_is_long(p->log_path);
    if (!p->pid || !(is_long || process_log_has_vanished(p->log_path)))
        return;
    int fd = process_open_log(p->log_path);
    if (fd < 0)
        return;
    if (!is_long)
        log_warn("%s has vanished: made again", p->log_path);
    if (!process_log_is_long(p->log_path)) { /* it was renamed, or is new */
        p->old_log_start = is_long ? p->log_start : -1;
        p->log_start = 0;
    }
    close(fd);
}

/* Where memory runs out the kernel kills the process whose size and oom_score_adj are the largest
 * together, in thousandths of the memory. memd has this process's. False: errno. */
static bool raise_oom_score(int by)
{
    char text[16] = "";
    int fd = open("/proc/self/oom_score_adj", O_RDWR | O_CLOEXEC), score = 0;
    bool done = fd >= 0 && read(fd, text, sizeof text - 1) > 0;
    if (done) {
        score = atoi(text) + by;
        int n = snprintf(text, sizeof text, "%d", score < OOM_SCORE_MOST ? score : OOM_SCORE_MOST);
        done = write(fd, text, (size_t)n) == n;
    }
    int number = errno;
    if (fd >= 0)
        close(fd);
    errno = number;
    return done;
}

/* Says once if the processes will not be able to raise their own. */
static void check_oom_score(void)
{
    static bool checked;
    if (!checked && !raise_oom_score(0))
        log_warn("/proc/self/oom_score_adj: %m: where memory runs out the kernel may kill memd "
                 "first");
    checked = true;
}

/* Runs in the child after fork. The supervisor has one thread, so any call is allowed here. */
static _Noreturn void become(struct process *p, pid_t supervisor, int log)
{
    sigset_t none;
    sigemptyset(&none);
    signal(SIGPIPE, SIG_DFL);
    signal(SIGXFSZ, SIG_DFL);
    sigprocmask(SIG_SETMASK, &none, NULL);
    setpgid(0, 0); /* Ctrl-C in the terminal goes to the supervisor only */
    /* The process ends with a supervisor that is killed, also where that died before the prctl. */
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != supervisor)
        _exit(EXIT_NOT_STARTED);
    int null = open("/dev/null", O_RDONLY);
    dup2(null, STDIN_FILENO);
    dup2(log, STDOUT_FILENO);
    dup2(log, STDERR_FILENO);
    if (p->ends_first)
        raise_oom_score(OOM_SCORE_MORE);
    if (!p->runs_setuid)
        prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    execv(p->program, p->arguments);
    dprintf(STDERR_FILENO, "cannot run %s: %s\n", p->program, strerror(errno));
    _exit(EXIT_NOT_STARTED);
}

/* All zeros, which no file has, where there is none. */
static struct process_file identify(const char *path)
{
    struct stat s = {0};
    stat(path, &s);
    return (struct process_file){s.st_dev, s.st_ino};
}

static bool is_another(const char *path, struct process_file noted)
{
    struct process_file now = identify(path);
    return now.inode && (now.device != noted.device || now.inode != noted.inode);
}

/* The path in a line of /proc/PID/maps if it is that of the GPU module; else NULL. */
static char *module_in(char *line)
{
    static const char name[] = "/libmoed-cuda";
    char *base = strrchr(line, '/');
    return base && strncmp(base, name, strlen(name)) == 0 ? strchr(line, '/') : NULL;
}

/* The GPU module that the process has loaded. A file that is gone by now is noted as none. The same
 * user may read /proc/PID/maps of dumpable processes only. Daemons with a GPU stay dumpable:
 * confine.c of memd and of the worker skip confine_memory() for them. Without it no module is
 * noted, and an upgrade would leave the old one in use. */
static void note_module(struct process *p)
{
    static const char gone[] = " (deleted)";
    char maps[64], *line = NULL, *path = NULL;
    size_t bytes = 0;
    ssize_t n;
    snprintf(maps, sizeof maps, "/proc/%d/maps", (int)p->pid);
    FILE *f = fopen(maps, "re");
    while (f && !path && (n = getline(&line, &bytes, f)) > 0) {
        line[n - 1] = '\0';
        path = module_in(line);
    }
    char *end = path ? strstr(path, gone) : NULL;
    if (end)
        *end = '\0';
    if (path && strlen(path) < sizeof p->module) {
        strcpy(p->module, path);
        p->module_file = end ? (struct process_file){0} : identify(path);
    }
    free(line);
    if (f)
        fclose(f);
}

bool process_is_replaced(const struct process *p)
{
    return p->pid && (is_another(p->program, p->program_file) ||
                      (p->module[0] && is_another(p->module, p->module_file)));
}

void process_start(struct process *p, uint64_t awake_ns, const struct process_policy *policy)
{
    int log = process_open_log(p->log_path);
    struct stat s;
    p->log_start = log >= 0 && fstat(log, &s) == 0 ? s.st_size : 0;
    p->old_log_start = -1;
    if (log < 0) {
        log_warn("cannot write %s: %m", p->log_path);
        log = open("/dev/null", O_WRONLY | O_CLOEXEC);
    }
    if (p->ends_first)
        check_oom_score();
    p->program_file = identify(p->program);
    p->module[0] = '\0';
    pid_t self = getpid(), pid = fork();
    if (pid == 0)
        become(p, self, log);
    if (log >= 0)
        close(log);
    p->state = PROCESS_STARTING;
    p->started_ns = clock_ns();
    p->ready_ns = 0;
    process_heard(p, awake_ns);
    p->silent = p->stopped_hard = false;
    p->starts++;
    p->status[0] = '\0';
    if (pid < 0) {
        log_error("cannot start %s: fork: %m", p->name);
        p->wait_status = EXIT_NOT_STARTED << 8;
        process_end(p, policy);
        return;
    }
    p->pid = pid;
    log_info("%s started (pid %d)", p->name, (int)pid);
}

/* The line without the prefix "time level component " of lib/base/log.c. */
static const char *without_prefix(const char *line)
{
    int time = 0, text = 0;
    sscanf(line, "%*s %n%*s %*s %n", &time, &text);
    bool has_time =
        time == sizeof "2026-01-31T12:00:00.000Z" && line[10] == 'T' && line[time - 2] == 'Z';
    return has_time && text ? line + text : line;
}

/* The last line of the file that is not empty, from `start` on. */
static void last_line(const char *path, off_t start, char *out, size_t bytes)
{
    out[0] = '\0';
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    struct stat s;
    if (fd < 0)
        return;
    char tail[4096];
    ssize_t n = 0;
    if (fstat(fd, &s) == 0 && s.st_size > start) {
        off_t from = s.st_size - (off_t)sizeof tail + 1;
        n = pread(fd, tail, sizeof tail - 1, from > start ? from : start);
    }
    close(fd);
    while (n > 0 && (tail[n - 1] == '\n' || tail[n - 1] == '\r'))
        n--;
    if (n <= 0)
        return;
    tail[n] = '\0';
    char *newline = memrchr(tail, '\n', (size_t)n);
    snprintf(out, bytes, "%.*s", (int)bytes - 1, without_prefix(newline ? newline + 1 : tail));
    utf8_hide_controls(out, strlen(out), "");
}

/* The last line since this start of the process, which may have ended before it used a new log. */
static void last_log_line(const struct process *p, char *out, size_t bytes)
{
    char old[RUN_PATH_BYTES + 8];
    last_line(p->log_path, p->log_start, out, bytes);
    if (out[0] || p->old_log_start < 0)
        return;
    old_log_path(p->log_path, old);
    last_line(old, p->old_log_start, out, bytes);
}

static bool from_outside(int signal_number)
{
    return signal_number == SIGKILL || signal_number == SIGTERM || signal_number == SIGINT ||
           signal_number == SIGHUP;
}

/* Other programs have the memory, and may leave it at any time. */
static bool ended_without_device_memory(const struct process *p)
{
    return WIFEXITED(p->wait_status) && WEXITSTATUS(p->wait_status) == EXIT_NO_DEVICE_MEMORY;
}

void process_look_for_oom_kills(void)
{
    cgroup_oom_kills_look(&oom_kills, "", clock_ns());
}

/* The process was killed, not by us, and the kernel has killed one. */
static bool killed_for_memory(const struct process *p)
{
    bool killed = WIFSIGNALED(p->wait_status) && WTERMSIG(p->wait_status) == SIGKILL;
    return killed && !p->stopped_hard && cgroup_oom_kills_claim(&oom_kills, "", clock_ns());
}

static void set_reason(struct process *p)
{
    char line[400] = "";
    int status = p->wait_status;
    /* After a stop, or a signal from outside, the last line explains nothing. */
    if (p->state != PROCESS_STOPPING && !(WIFSIGNALED(status) && from_outside(WTERMSIG(status))))
        last_log_line(p, line, sizeof line);
    if (!line[0] && p->state != PROCESS_STOPPING && WIFEXITED(status) && WEXITSTATUS(status))
        snprintf(line, sizeof line, "%s", p->status); /* the log's disk is full, for instance */
    const char *when = p->state == PROCESS_STOPPING ? " when stopped"
                       : p->ready_ns                ? ""
                                                    : " before it was ready";
    if (ended_without_device_memory(p))
        snprintf(p->reason, sizeof p->reason, "no device memory%s: %s", when, line);
    else if (p->silent && WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL)
        snprintf(p->reason, sizeof p->reason, "killed by the watchdog: silent%s", when);
    else if (killed_for_memory(p))
        snprintf(p->reason, sizeof p->reason, "killed by the kernel for lack of memory%s", when);
    else if (WIFSIGNALED(status))
        snprintf(p->reason, sizeof p->reason, "killed by signal %d (%s)%s%s%s", WTERMSIG(status),
                 strsignal(WTERMSIG(status)), when, line[0] ? ": " : "", line);
    else
        snprintf(p->reason, sizeof p->reason, "exit status %d%s%s%s", WEXITSTATUS(status), when,
                 line[0] ? ": " : "", line);
}

/* What another program has is the user's to change; but a process that has had it may find it held
 * for a moment only. */
static bool restarting_is_useless(const struct process *p)
{
    int status = WIFEXITED(p->wait_status) ? WEXITSTATUS(p->wait_status) : EXIT_RETRY;
    return status == EXIT_BAD_USAGE || status == EXIT_PERMANENT ||
           (status == EXIT_TAKEN && !p->was_ready);
}

/* What was ready once is tried on: its fault may pass. What never was gets its message to the
 * person who waits. */
static bool has_failed_too_often(const struct process *p)
{
    return p->silences >= MAX_SILENCES || (p->failures >= MAX_FAILURES && !p->was_ready);
}

static void give_up(struct process *p)
{
    p->state = PROCESS_FAILED;
    log_error("%s has failed, not starting it again: %s", p->name, p->reason);
}

static void back_off(struct process *p, const struct process_policy *policy)
{
    uint64_t now = clock_ns();
    bool was_stable = p->ready_ns && now - p->ready_ns >= policy->stable_ns;
    if (was_stable)
        p->backoff_ms = 0;
    else if (p->backoff_ms == 0)
        p->backoff_ms = FIRST_BACKOFF_MS;
    else
        p->backoff_ms = p->backoff_ms * 2 < LAST_BACKOFF_MS ? p->backoff_ms * 2 : LAST_BACKOFF_MS;
    p->failures = p->ready_ns ? 0 : p->failures + !ended_without_device_memory(p);
    p->ready_ends += p->ready_ns != 0;
    p->lacks = ended_without_device_memory(p) ? p->lacks + 1 : 0;
    if (p->ready_ns && !p->silent) /* another end: the row of silences is over */
        p->silences = 0;
    if (has_failed_too_often(p)) {
        give_up(p);
        return;
    }
    p->state = PROCESS_BACKOFF;
    p->retry_ns = now + p->backoff_ms * 1000000ull;
    log_warn("%s has ended, %s; starting it again in %u ms", p->name, p->reason, p->backoff_ms);
}

void process_end(struct process *p, const struct process_policy *policy)
{
    p->pid = 0;
    p->ended = false;
    p->term_ns = p->kill_ns = p->hurry_ns = 0;
    set_reason(p);
    p->status[0] = '\0';
    if (p->state == PROCESS_STOPPING) {
        p->state = p->after_stop;
        log_info("%s has stopped: %s", p->name, p->reason);
    } else if (restarting_is_useless(p)) {
        give_up(p);
    } else {
        back_off(p, policy);
    }
}

static uint64_t stop_timeout_ns(const struct process *p, uint64_t drain_ns,
                                const struct process_policy *policy)
{
    return policy->stop_timeout_ns * (p->stops_deployments ? STOPPING_DEPLOYMENTS : 1) + drain_ns;
}

uint64_t process_stop_timeout_ns(const struct process *p, const struct process_policy *policy)
{
    return stop_timeout_ns(p, p->drain_ns, policy);
}

static void begin_stop(struct process *p, bool restarts, uint64_t term_ns,
                       const struct process_policy *policy)
{
    bool hurries = restarts && p->drain_ns > RESTART_DRAIN_NS;
    p->state = PROCESS_STOPPING;
    p->term_ns = term_ns;
    p->hurry_ns = hurries ? term_ns + RESTART_DRAIN_NS : 0;
    p->kill_ns = term_ns + stop_timeout_ns(p, hurries ? RESTART_DRAIN_NS : p->drain_ns, policy);
}

void process_stop(struct process *p, enum process_state after_stop, uint64_t grace_ns,
                  const struct process_policy *policy)
{
    if (p->pid == 0)
        return;
    uint64_t now = clock_ns();
    if (p->state != PROCESS_STOPPING) {
        begin_stop(p, after_stop == PROCESS_WAITING, now + grace_ns, policy);
    } else if (p->term_ns && now + grace_ns < p->term_ns) {
        p->term_ns = now + grace_ns; /* sooner than before */
    }
    p->after_stop = after_stop;
    process_send_due_signals(p);
}

void process_hurry(struct process *p)
{
    if (p->state == PROCESS_STOPPING && p->pid && !p->hurry_ns)
        p->hurry_ns = clock_ns();
    process_send_due_signals(p);
}

void process_drain(struct process *p, enum process_state after_stop, uint64_t patience_ns,
                   const struct process_policy *policy)
{
    if (p->pid == 0)
        return;
    if (p->state == PROCESS_READY) /* before that the signal would end it, too */
        kill(p->pid, SIGUSR1);
    process_stop(p, after_stop, p->state == PROCESS_READY ? patience_ns : 0, policy);
}

void process_send_due_signals(struct process *p)
{
    if (p->state != PROCESS_STOPPING || p->pid == 0)
        return;
    uint64_t now = clock_ns();
    /* It is our child and not reaped yet, so the pid cannot be another process. */
    if (p->term_ns && now >= p->term_ns) {
        p->term_ns = 0;
        /* A process that is stopped (SIGSTOP, a debugger) could not react. SIGCONT comes first:
         * while the process already ends it can hang a leak checker. */
        kill(p->pid, SIGCONT);
        kill(p->pid, SIGTERM);
    }
    if (p->hurry_ns && now >= p->hurry_ns && !p->term_ns) {
        p->hurry_ns = now + HURRY_AGAIN_NS;
        kill(p->pid, SIGINT);
    }
    if (p->kill_ns && now >= p->kill_ns) {
        p->kill_ns = 0;
        log_warn("%s does not stop: killing it", p->name);
        p->stopped_hard = true;
        kill(p->pid, SIGKILL);
    }
}

void process_notified(struct process *p, char *message)
{
    char *rest = message;
    for (char *line; (line = strsep(&rest, "\n"));) {
        utf8_hide_controls(line, strlen(line), "");
        if (strncmp(line, "STATUS=", 7) == 0) {
            snprintf(p->status, sizeof p->status, "%s", line + 7);
            if (strncmp(p->status, SUPERVISE_LOADING, strlen(SUPERVISE_LOADING)) == 0)
                p->lacks = 0;
        } else if (strcmp(line, "READY=1") == 0 && p->state == PROCESS_STARTING) {
            p->state = PROCESS_READY;
            p->ready_ns = clock_ns();
            p->was_ready = true;
            p->failures = p->lacks = 0;
            note_module(p);
            log_info("%s is ready after %.2f s", p->name,
                     (double)(p->ready_ns - p->started_ns) * 1e-9);
        }
    }
}

/* A debugger holds it, or it has crashed and its memory is being written to a file. */
static bool is_examined(pid_t pid)
{
    char path[64], text[2048];
    snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, text, sizeof text - 1) : -1;
    if (fd >= 0)
        close(fd);
    text[n > 0 ? n : 0] = '\0';
    const char *tracer = strstr(text, "\nTracerPid:");
    return (tracer && atoi(tracer + strlen("\nTracerPid:")) != 0) ||
           strstr(text, "\nCoreDumping:\t1");
}

void process_heard(struct process *p, uint64_t awake_ns)
{
    p->heard_ns = awake_ns;
}

void process_check_silence(struct process *p, uint64_t awake_ns,
                           const struct process_policy *policy)
{
    if ((p->state != PROCESS_STARTING && p->state != PROCESS_READY) || !p->pid || p->silent ||
        awake_ns - p->heard_ns <= policy->watchdog_ns)
        return;
    if (is_examined(p->pid)) {
        p->heard_ns = awake_ns;
        return;
    }
    log_error("%s (pid %d) has been silent for %.1f s: killing it", p->name, (int)p->pid,
              (double)(awake_ns - p->heard_ns) * 1e-9);
    bool served = p->ready_ns && clock_ns() - p->ready_ns > SILENCE_FORGIVEN * policy->watchdog_ns;
    p->silences = served ? 1 : p->silences + 1;
    p->silent = p->stopped_hard = true;
    kill(p->pid, SIGKILL); /* it is stopped or hangs: nothing else ends it for sure */
}

uint64_t process_deadline(const struct process *p)
{
    if (p->state == PROCESS_BACKOFF)
        return p->retry_ns;
    if (p->state != PROCESS_STOPPING)
        return UINT64_MAX;
    uint64_t term = p->term_ns ? p->term_ns : UINT64_MAX;
    uint64_t last = p->kill_ns ? p->kill_ns : UINT64_MAX;
    if (p->hurry_ns && !p->term_ns && p->hurry_ns < last)
        last = p->hurry_ns;
    return term < last ? term : last;
}
