/* moed-supervise: which process may run when; see supervise.h for what clients see and process.c
 * for what one process goes through.
 *
 * One thread, one poll loop. Every event (a signal, a notification, a command, a moment that has
 * come) only changes the processes' states; then advance() does what the states ask for:
 * 1. cpuexec and the worker are started only while memd is ready.
 * 2. memd is started only while neither of them runs: what they still map of a dead memd's model is
 * memory that the new one needs.
 * 3. Stopping goes backwards, and each waits for the one before it to be gone. */
#include "deploy/supervise.h"

#include "base/clock.h"
#include "base/log.h"
#include "daemon/options.h"
#include "deploy/mps.h"
#include "deploy/supervisor.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* A process that lost memd has this long to end by itself. */
#define MPS_FAILURES 2 /* of worker in a row before it is ready */
#define LOST_MEMD_GRACE_NS 1000000000ull
/* The worker does not need cpuexec to be ready, but starts after it where that takes no longer. */
#define CPUEXEC_HEAD_START_NS 5000000000ull
/* More notifications than this wait for the next turn of the loop. */
#define NOTIFICATIONS_A_TURN 64

/* -- starting and stopping what the states ask for -- */

static bool dependents_run(const struct supervisor *s)
{
    return s->processes[CPUEXEC].pid || s->processes[WORKER].pid;
}

static void stop_dependents(struct supervisor *s, enum process_state after_stop, uint64_t grace_ns)
{
    /* The worker first: cpuexec goes on computing what it asked for. */
    process_stop(&s->processes[WORKER], after_stop, grace_ns, &s->policy);
    if (!s->processes[WORKER].pid || grace_ns)
        process_stop(&s->processes[CPUEXEC], after_stop, grace_ns, &s->policy);
}

static void set_idle(struct process *p, enum process_state state)
{
    if (!p->pid && p->state != PROCESS_FAILED)
        p->state = state;
}

static bool is_due(const struct process *p)
{
    return !p->unused && (p->state == PROCESS_WAITING ||
                          (p->state == PROCESS_BACKOFF && clock_ns() >= p->retry_ns));
}

static bool may_start(const struct supervisor *s, int which)
{
    const struct process *memd = &s->processes[MEMD], *cpuexec = &s->processes[CPUEXEC];
    if (which == MEMD)
        return !dependents_run(s);
    if (memd->state != PROCESS_READY || s->restart_memd)
        return false;
    if (which == WORKER && cpuexec->state == PROCESS_WAITING && !cpuexec->unused)
        return false;
    return which == CPUEXEC || cpuexec->state != PROCESS_STARTING ||
           clock_ns() - cpuexec->started_ns >= CPUEXEC_HEAD_START_NS;
}

/* Everything down, in reverse order. */
static void advance_to_stop(struct supervisor *s)
{
    for (int i = SUPERVISE_PROCESSES - 1; i >= 0; i--) {
        struct process *p = &s->processes[i];
        if (p->pid) {
            process_stop(p, PROCESS_STOPPED, 0, &s->policy);
            return;
        }
        set_idle(p, PROCESS_STOPPED);
    }
}

static void advance(struct supervisor *s)
{
    struct process *memd = &s->processes[MEMD];
    for (int i = 0; i < SUPERVISE_PROCESSES; i++)
        process_send_due_signals(&s->processes[i]);
    if (s->stopping) {
        advance_to_stop(s);
        return;
    }
    if (memd->state == PROCESS_FAILED) {
        stop_dependents(s, PROCESS_STOPPED, 0);
        set_idle(&s->processes[CPUEXEC], PROCESS_STOPPED);
        set_idle(&s->processes[WORKER], PROCESS_STOPPED);
        return;
    }
    if (s->restart_memd) {
        stop_dependents(s, PROCESS_WAITING, 0);
        if (!dependents_run(s))
            process_stop(memd, PROCESS_WAITING, 0, &s->policy);
        if (!memd->pid)
            s->restart_memd = false;
    }
    for (int i = 0; i < SUPERVISE_PROCESSES; i++)
        if (is_due(&s->processes[i]) && may_start(s, i))
            process_start(&s->processes[i], &s->policy);
}

static bool all_gone(const struct supervisor *s)
{
    return !s->processes[MEMD].pid && !dependents_run(s);
}

/* -- events -- */

/* memd has ended: the others lose their leases and end by themselves, or are made to. What they did
 * meanwhile is not held against them. */
static void memd_ended(struct supervisor *s)
{
    for (int i = CPUEXEC; i <= WORKER; i++) {
        struct process *p = &s->processes[i];
        p->failures = 0;
        set_idle(p, PROCESS_WAITING);
    }
    stop_dependents(s, PROCESS_WAITING, LOST_MEMD_GRACE_NS);
}

/* After a fault of a client MPS takes no new one until all old ones have gone, and memd, which asks nothing of the device
 * while nobody asks anything of it, does not learn that it is one. */
static void free_device(struct supervisor *s)
{
    const struct process *worker = &s->processes[WORKER], *memd = &s->processes[MEMD];
    if (worker->failures == 0) /* it was ready */
        s->freed = false;
    if (!s->settings->mps || s->freed || worker->failures != MPS_FAILURES || memd->state != PROCESS_READY)
        return;
    s->freed = true;
    log_warn("worker does not start, and shares the device by MPS: memd is started again too");
    s->restart_memd = true;
}

static void reap(struct supervisor *s)
{
    pid_t pid;
    int status;
    while ((pid = waitpid(-1, &status, WNOHANG)) > 0)
        for (int i = 0; i < SUPERVISE_PROCESSES; i++)
            if (s->processes[i].pid == pid) {
                s->processes[i].ended = true;
                s->processes[i].wait_status = status;
            }
    /* memd first: the others' ends are then seen as its consequence. */
    for (int i = 0; i < SUPERVISE_PROCESSES; i++) {
        struct process *p = &s->processes[i];
        if (!p->ended)
            continue;
        process_end(p, &s->policy);
        if (i == MEMD)
            memd_ended(s);
        if (i == WORKER)
            free_device(s);
    }
}

static void take_signals(struct supervisor *s)
{
    struct signalfd_siginfo info;
    while (read(s->signal_fd, &info, sizeof info) == (ssize_t)sizeof info)
        if (info.ssi_signo != SIGCHLD && !s->stopping) {
            log_info("%s: stopping all", strsignal((int)info.ssi_signo));
            s->stopping = true;
        }
    reap(s);
}

static void take_notifications(struct supervisor *s)
{
    char text[1024];
    pid_t pid;
    for (int n = 0; n < NOTIFICATIONS_A_TURN; n++) {
        if (!notify_socket_receive(s->notify_fd, text, sizeof text, &pid))
            return;
        for (int i = 0; i < SUPERVISE_PROCESSES; i++)
            if (pid && s->processes[i].pid == pid)
                process_notified(&s->processes[i], text);
    }
}

/* -- commands -- */

static const char *deployment_state(const struct supervisor *s, char *reason, size_t bytes)
{
    const struct process *p = s->processes;
    reason[0] = '\0';
    if (s->stopping)
        return "stopping";
    static const int essential[] = {MEMD, WORKER};
    for (int i = 0; i < 2; i++)
        if (p[essential[i]].state == PROCESS_FAILED) {
            snprintf(reason, bytes, "%s is given up: %s", p[essential[i]].name,
                     p[essential[i]].reason);
            return "failed";
        }
    if (p[MEMD].state != PROCESS_READY || p[WORKER].state != PROCESS_READY)
        return "starting";
    if (p[CPUEXEC].state == PROCESS_READY || p[CPUEXEC].unused)
        return "ready";
    snprintf(reason, bytes, "cpuexec is not there (%s)%s%s", process_state_name(p[CPUEXEC].state),
             p[CPUEXEC].reason[0] ? ": " : "", p[CPUEXEC].reason);
    return "degraded";
}

static unsigned long long milliseconds_since(uint64_t ns)
{
    return (clock_ns() - ns) / 1000000u;
}

static void command_status(const struct supervisor *s, struct strbuf *answer)
{
    char reason[640];
    const char *state = deployment_state(s, reason, sizeof reason);
    strbuf_printf(answer,
                  "deployment\tname=%s\tstate=%s\tpid=%d\tuptime_ms=%llu\tmodel=%s\treason=%s\n",
                  s->settings->name, state, (int)getpid(), milliseconds_since(s->started_ns),
                  s->model, reason);
    for (int i = 0; i < SUPERVISE_PROCESSES; i++) {
        const struct process *p = &s->processes[i];
        if (p->unused)
            continue;
        strbuf_printf(answer,
                      "process\tname=%s\tstate=%s\tpid=%d\trestarts=%u\tuptime_ms=%llu\tstatus=%s\t"
                      "reason=%s\n",
                      p->name, process_state_name(p->state), (int)p->pid,
                      p->starts ? p->starts - 1 : 0, p->pid ? milliseconds_since(p->started_ns) : 0,
                      p->status, p->reason);
    }
    strbuf_printf(answer, "ok\n");
}

static void forgive(struct process *p)
{
    p->failures = 0;
    p->pause_ms = 0;
    if (!p->pid)
        p->state = PROCESS_WAITING;
}

static void command_restart(struct supervisor *s, const char *name, struct strbuf *answer)
{
    int which = 0;
    while (which < SUPERVISE_PROCESSES && strcmp(name, s->processes[which].name) != 0)
        which++;
    if (which == SUPERVISE_PROCESSES) {
        strbuf_printf(answer, "error there is no process %s: memd, cpuexec or worker\n", name);
        return;
    }
    if (s->processes[which].unused) {
        strbuf_printf(answer, "error there is no %s: the worker computes the experts (moed up --cpuexec)\n", name);
        return;
    }
    if (s->stopping) {
        strbuf_printf(answer, "error the deployment is stopping\n");
        return;
    }
    if (which != MEMD && s->processes[MEMD].state == PROCESS_FAILED) {
        strbuf_printf(answer, "error %s needs memd, which has failed: restart memd\n", name);
        return;
    }
    log_info("restart of %s: asked for", name);
    if (which == MEMD) {
        for (int i = 0; i < SUPERVISE_PROCESSES; i++)
            forgive(&s->processes[i]);
        s->restart_memd = s->processes[MEMD].pid != 0;
    } else {
        forgive(&s->processes[which]);
        process_stop(&s->processes[which], PROCESS_WAITING, 0, &s->policy);
    }
    strbuf_printf(answer, "ok\n");
}

static void command(void *arg, const char *line, struct strbuf *answer)
{
    struct supervisor *s = arg;
    if (strcmp(line, "status") == 0) {
        command_status(s, answer);
    } else if (strncmp(line, "restart ", 8) == 0) {
        command_restart(s, line + 8, answer);
    } else if (strcmp(line, "down") == 0) {
        if (!s->stopping)
            log_info("down: asked for");
        s->stopping = true;
        strbuf_printf(answer, "ok\n");
    } else {
        strbuf_printf(answer, "error unknown command: status, restart PROCESS or down\n");
    }
}

/* -- the loop -- */

static int poll_timeout_ms(const struct supervisor *s)
{
    uint64_t next = UINT64_MAX, now = clock_ns();
    for (int i = 0; i < SUPERVISE_PROCESSES; i++) {
        uint64_t at = process_deadline(&s->processes[i]);
        /* A backoff that is over and waits for another process has no moment of its own. */
        if (s->processes[i].state == PROCESS_BACKOFF && !may_start(s, i))
            continue;
        next = at < next ? at : next;
    }
    const struct process *cpuexec = &s->processes[CPUEXEC], *worker = &s->processes[WORKER];
    if (cpuexec->state == PROCESS_STARTING && !worker->pid &&
        cpuexec->started_ns + CPUEXEC_HEAD_START_NS > now &&
        cpuexec->started_ns + CPUEXEC_HEAD_START_NS < next)
        next = cpuexec->started_ns + CPUEXEC_HEAD_START_NS;
    if (next == UINT64_MAX)
        return -1;
    return next <= now ? 0 : (int)((next - now) / 1000000u) + 1;
}

static void loop(struct supervisor *s)
{
    for (;;) {
        advance(s);
        if (s->stopping && all_gone(s))
            return;
        struct pollfd fds[2 + 1 + CLIENTS_MAX] = {{s->signal_fd, POLLIN, 0},
                                                  {s->notify_fd, POLLIN, 0}};
        clients_poll_set(&s->clients, fds + 2);
        if (poll(fds, sizeof fds / sizeof *fds, poll_timeout_ms(s)) < 0)
            continue;
        /* Notifications before deaths: the last words of one that has ended still count. */
        if (fds[1].revents)
            take_notifications(s);
        if (fds[0].revents)
            take_signals(s);
        clients_serve(&s->clients, fds + 2, command, s);
    }
}

static int parse_settings(struct settings *o, int argc, char **argv)
{
    const struct option_spec table[] = {
        {"run", OPTION_STRING, &o->run, 0, 0, "DIR", "runtime directory of the deployment"},
        {"name", OPTION_STRING, &o->name, 0, 0, "NAME", "the deployment's name"},
        {"model", OPTION_STRING, &o->model, 0, 0, "FILE", "the GGUF file (required)"},
        {"bindir", OPTION_STRING, &o->bindir, 0, 0, "DIR", "look here first for moed-memd etc."},
        {"device", OPTION_STRING, &o->device, 0, 0, "D", "for memd and worker"},
        {"ram", OPTION_STRING, &o->ram, 0, 0, "SIZE", "for memd: host memory for weights"},
        {"policy", OPTION_STRING, &o->policy, 0, 0, "P", "for memd"},
        {"assign", OPTION_STRING, &o->assign, 0, 0, "A", "for memd"},
        {"cache", OPTION_STRING, &o->cache, 0, 0, "C", "for memd"},
        {"predictor", OPTION_STRING, &o->predictor, 0, 0, "P", "for memd"},
        {"budget", OPTION_STRING, &o->budget, 0, 0, "B", "for memd"},
        {"prefetch", OPTION_STRING, &o->prefetch, 0, 0, "P", "for memd"},
        {"learned", OPTION_STRING, &o->learned, 0, 0, "FILE", "for memd"},
        {"fine-tune", OPTION_BOOL, &o->fine_tune, 0, 0, NULL, "for worker"},
        {"threads", OPTION_UINT, &o->threads, 0, 1024, "N", "for all; 0: their own choice"},
        {"segment-bytes", OPTION_UINT, &o->segment_bytes, 0, 1u << 30, "N", "for memd; 0: its own"},
        {"ctx", OPTION_UINT, &o->ctx, 0, 1u << 24, "N",
         "for memd and worker: context in tokens; 0: their own"},
        {"parallel", OPTION_UINT, &o->parallel, 0, 256, "N", "for memd and worker: requests at once"},
        {"kv-type", OPTION_STRING, &o->kv_type, 0, 0, "TYPE", "for memd and worker"},
        {"cpuexec", OPTION_BOOL, &o->cpuexec, 0, 0, NULL,
         "start cpuexec on device host too, where the worker computes the experts else"},
        {"reproducible", OPTION_BOOL, &o->reproducible, 0, 0, NULL, "for all three"},
        {"calibrate", OPTION_BOOL, &o->calibrate, 0, 0, NULL, "for worker"},
        {"mps", OPTION_BOOL, &o->mps, 0, 0, NULL, "memd and worker share the device by NVIDIA's MPS"},
        {"log-level", OPTION_STRING, &o->log_level, 0, 0, "LEVEL", "error, warn, info or debug"},
        {"stop-timeout", OPTION_FLOAT, &o->stop_timeout_s, 0.01, 3600, "S",
         "seconds from SIGTERM to SIGKILL"},
        {"stable-after", OPTION_FLOAT, &o->stable_s, 0.01, 3600, "S",
         "a process that was ready so long is restarted at once"},
        {0},
    };
    if (options_wants_help(argc, argv)) {
        options_print_help(table, "moed-supervise", "--model FILE [OPTION]...",
                           "Starts memd, cpuexec and worker of one deployment, restarts those that "
                           "die, stops all\non SIGTERM. `moed up` starts it.");
        exit(0);
    }
    struct error e = {0};
    enum log_level level = LOG_LEVEL_INFO;
    enum error_code code = options_parse(table, argc, argv, NULL, &e);
    if (!code && !o->model)
        code = error_set(&e, ERROR_USAGE, "--model FILE is required; see --help");
    if (!code && o->log_level && log_level_parse(o->log_level, &level) != 0)
        code = error_set(&e, ERROR_USAGE, "--log-level: %.40s is none of error, warn, info, debug",
                         o->log_level);
    if (code) {
        fprintf(stderr, "moed-supervise: %s\n", e.text);
        return -1;
    }
    log_init("supervise", level);
    return 0;
}

/* Descriptors 0 to 2 exist from here on: a socket that landed on one of them would be written to.
 */
static void open_standard_streams(void)
{
    int fd;
    do
        fd = open("/dev/null", O_RDWR);
    while (fd >= 0 && fd <= STDERR_FILENO);
    if (fd >= 0)
        close(fd);
}

int main(int argc, char **argv)
{
    open_standard_streams();
    umask(077);
    struct settings settings = {.name = "default", .stop_timeout_s = 10, .stable_s = 10};
    if (parse_settings(&settings, argc, argv) != 0)
        return 2;
    static struct supervisor s;
    s.settings = &settings;
    s.started_ns = clock_ns();
    s.policy =
        (struct process_policy){.stable_ns = (uint64_t)(settings.stable_s * 1e9),
                                .stop_timeout_ns = (uint64_t)(settings.stop_timeout_s * 1e9)};
    struct error e = {0};
    enum error_code code = supervisor_prepare(&s, &e);
    if (code) {
        log_error("%s", e.text);
        return code == ERROR_EXISTS ? SUPERVISE_EXIT_RUNNING : 1;
    }
    loop(&s);
    mps_stop(s.run);
    log_info("all stopped");
    clients_close(&s.clients);
    run_dir_sweep(s.run);
    return 0;
}
