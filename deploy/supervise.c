/* moed-supervise: decides which process may run. lib/daemon/supervisor_protocol.h is what clients
 * see, process.c has the states of one process.
 *
 * There is one thread with one poll loop. An event (signal, notification, command, deadline) only
 * changes the states of processes. Then advance() acts on the states:
 * 1. cpuexec and the workers start only while memd is ready.
 * 2. memd starts only while none of them runs: they may still map the model of a dead memd, and
 *    the new memd needs that memory.
 * 3. Processes stop in reverse order, each after the one before it is gone.
 * 4. http, the frontend, and models map no model: they start at once and go on while the others
 *    restart.
 * A deployment may have no model of its own, but serve those of a folder: then models and http are
 * all of it. */
#include "daemon/supervisor_protocol.h"

#include "base/clock.h"
#include "base/log.h"
#include "daemon/models_started.h"
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

/* The kill comes at most 1.25 intervals after the last beat, before a client's 30 s are over. */
/* For the requests of a worker that is removed; then the other workers continue them. */
#define DRAIN_S      60
#define MPS_FAILURES 2 /* ends of the worker in a row before it was ready */
/* The worker works without cpuexec, but starts after it where cpuexec is ready within this time. */
#define CPUEXEC_HEAD_START_NS 5000000000ull
/* More notifications than this wait for the next turn of the loop. */
#define NOTIFICATIONS_A_TURN 64

#define LOGS_NS     10000000000ull
#define FILES_NS    3000000000ull /* look_at_files */
#define OOM_LOOK_NS 1000000000ull /* process_look_for_oom_kills */

/* The watchdog's clock may go on by this share of its interval in a turn of the loop. */
#define WATCHDOG_TURNS 4

/* -- acting on the states -- */

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
    if (which == HTTP || which == MODELS)
        return true;
    if (reload_holds(s))
        return false;
    if (which == MEMD)
        return !generation_dependents_run(s, 0);
    if (memd->state != PROCESS_READY || s->restart_memd)
        return false;
    if (is_worker(which) && cpuexec->state == PROCESS_WAITING && !cpuexec->unused)
        return false;
    return which == CPUEXEC || cpuexec->state != PROCESS_STARTING ||
           clock_ns() - cpuexec->started_ns >= CPUEXEC_HEAD_START_NS;
}

/* Stops all processes in reverse order, the workers at the same time. */
static void advance_to_stop(struct supervisor *s)
{
    reload_stop(s);
    for (int i = SUPERVISE_PROCESSES - 1; i >= 0; i--) {
        struct process *p = &s->processes[i];
        if (p->pid)
            process_stop(p, PROCESS_STOPPED, 0, &s->policy);
        else
            set_idle(p, PROCESS_STOPPED);
        if (i == HTTP && s->hurried)
            process_hurry(p);
        if (p->pid && !is_worker(i))
            return;
        if (i == WORKER && generation_workers_run(s, 0))
            return;
    }
}

static void advance(struct supervisor *s)
{
    struct process *memd = &s->processes[MEMD];
    for (int i = 0; i < ALL_PROCESSES; i++)
        process_send_due_signals(&s->processes[i]);
    if (s->stopping) {
        advance_to_stop(s);
        return;
    }
    reload_advance(s);
    if (memd->state == PROCESS_FAILED) {
        generation_stop_dependents(s, 0, PROCESS_STOPPED, 0);
        for (int i = CPUEXEC; i <= LAST_WORKER; i++)
            set_idle(&s->processes[i], PROCESS_STOPPED);
        for (int i = MODELS; i <= HTTP; i++)
            if (is_due(&s->processes[i]))
                process_start(&s->processes[i], s->awake_ns, &s->policy);
        return;
    }
    if (s->restart_memd) {
        generation_stop_dependents(s, 0, PROCESS_WAITING, 0);
        if (!generation_dependents_run(s, 0))
            process_stop(memd, PROCESS_WAITING, 0, &s->policy);
        if (!memd->pid)
            s->restart_memd = false;
    }
    for (int i = 0; i < SUPERVISE_PROCESSES; i++)
        if (is_due(&s->processes[i]) && may_start(s, i))
            process_start(&s->processes[i], s->awake_ns, &s->policy);
}

static bool all_gone(const struct supervisor *s)
{
    return !s->processes[MEMD].pid && !generation_dependents_run(s, 0) &&
           !s->processes[MODELS].pid && !s->processes[HTTP].pid && !reload_runs(s);
}

/* -- events -- */

/* memd has ended: the others lose their leases and end on their own, or are stopped. That does not
 * count as their failure. */
static void memd_ended(struct supervisor *s)
{
    for (int i = CPUEXEC; i <= LAST_WORKER; i++) {
        struct process *p = &s->processes[i];
        p->failures = 0;
        set_idle(p, PROCESS_WAITING);
    }
    generation_stop_dependents(s, 0, PROCESS_WAITING, LOST_MEMD_GRACE_NS);
}

/* Restarts memd, once, for a worker that does not start under MPS. After a client's fault MPS
 * accepts no new client until all old ones are gone. memd is an old client, and does not notice the
 * fault while it is idle. */
static void free_device(struct supervisor *s, const struct process *worker)
{
    const struct process *memd = &s->processes[MEMD];
    if (worker->failures == 0) /* it was ready */
        s->freed = false;
    if (!s->settings->options.mps || s->freed || worker->failures != MPS_FAILURES ||
        memd->state != PROCESS_READY)
        return;
    s->freed = true;
    log_warn("worker does not start under MPS: restarting memd too");
    s->restart_memd = true;
}

static void reap(struct supervisor *s)
{
    pid_t pid;
    int status;
    while ((pid = waitpid(-1, &status, WNOHANG)) > 0)
        for (int i = 0; i < ALL_PROCESSES; i++)
            if (s->processes[i].pid == pid) {
                s->processes[i].ended = true;
                s->processes[i].wait_status = status;
            }
    /* memd first: when worker and cpuexec end too, that counts as its consequence. */
    for (int i = 0; i < ALL_PROCESSES; i++) {
        struct process *p = &s->processes[i];
        if (!p->ended)
            continue;
        process_end(p, &s->policy);
        if (p->leaving)
            generation_forget_removed(s);
        if (i == MEMD)
            memd_ended(s);
        if (is_worker(i))
            free_device(s, p);
    }
}

static void take_signals(struct supervisor *s)
{
    struct signalfd_siginfo info;
    while (read(s->signal_fd, &info, sizeof info) == (ssize_t)sizeof info)
        if (info.ssi_signo != SIGCHLD && !s->stopping) {
            log_info("%s: stopping all", strsignal((int)info.ssi_signo));
            s->stopping = true;
        } else if (info.ssi_signo == SIGINT) {
            s->hurried = true; /* Ctrl-C again */
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
        for (int i = 0; i < ALL_PROCESSES; i++)
            if (pid && s->processes[i].pid == pid) {
                if (strstr(text, "WATCHDOG=1"))
                    process_heard(&s->processes[i], s->awake_ns);
                process_notified(&s->processes[i], text);
            }
    }
}

static uint64_t watchdog_turn_ns(const struct supervisor *s)
{
    return s->policy.watchdog_ns / WATCHDOG_TURNS;
}

/* After a suspend of the machine, or a stop of the supervisor, the clocks of all have gone on, but
 * no process could send a beat: so a turn of the loop counts at most as long as it should have
 * been. */
static void count_waking_time(struct supervisor *s)
{
    uint64_t now = clock_ns(), turn = now - s->turn_ns, most = watchdog_turn_ns(s);
    s->turn_ns = now;
    s->awake_ns += turn < most ? turn : most;
}

/* Kills processes that are silent. */
static void watch_processes(struct supervisor *s)
{
    if (!s->policy.watchdog_ns)
        return;
    for (int i = 0; i < ALL_PROCESSES; i++)
        process_check_silence(&s->processes[i], s->awake_ns, &s->policy);
}

static void keep_logs(struct supervisor *s)
{
    supervisor_keep_log(s);
    for (int i = 0; i < ALL_PROCESSES; i++)
        process_keep_log(&s->processes[i]);
}

/* Not oftener than every LOGS_NS. */
static void rotate_logs(struct supervisor *s)
{
    uint64_t now = clock_ns();
    if (now - s->logs_ns < LOGS_NS)
        return;
    s->logs_ns = now;
    if (run_watch_is_there(&s->watch, s->run)) /* else they would be made in another directory */
        keep_logs(s);
}

/* RUN may be out of reach without an event, as after `umount -l`, and there may be no events. */
static void look_at_files(struct supervisor *s)
{
    uint64_t now = clock_ns();
    if (now - s->files_ns < FILES_NS)
        return;
    s->files_ns = now;
    run_watch_look(&s->watch, s->run);
}

/* Something in RUN was removed, or may have been. A process that no client reaches any more is
 * restarted. */
static void check_files(struct supervisor *s)
{
    struct error e = {0};
    if (s->stopping) {
        run_watch_clear(&s->watch, s->run);
        return;
    }
    if (!run_watch_is_there(&s->watch, s->run)) {
        log_error("the runtime directory %s has vanished or been replaced: stopping all", s->run);
        s->stopping = true;
    } else if (supervisor_restore_files(s, &e)) {
        log_error("%s: stopping all", e.text);
        s->stopping = true;
    }
    if (!s->stopping)
        keep_logs(s);
    for (int i = 0; i < SUPERVISE_PROCESSES && !s->stopping; i++) {
        struct process *p = &s->processes[i];
        bool is_watched = i > LAST_WORKER || s->serving == 0; /* not RUN/2 */
        if (!is_watched || p->state != PROCESS_READY ||
            !run_watch_misses_socket(&s->watch, s->run, p->name))
            continue;
        log_warn("a socket of %s has vanished: restarting it", p->name);
        if (i == MEMD)
            s->restart_memd = true;
        else
            process_stop(p, PROCESS_WAITING, 0, &s->policy);
    }
    run_watch_clear(&s->watch, s->run);
}

/* -- the loop -- */

static int poll_timeout_ms(const struct supervisor *s)
{
    uint64_t next = s->watch.due_ns, now = clock_ns(), turn = reload_deadline(s);
    next = turn < next ? turn : next;
    for (int i = 0; i < ALL_PROCESSES; i++) {
        uint64_t at = process_deadline(&s->processes[i]);
        /* A process whose delay is over and that waits for another one has no deadline. */
        if (i < OTHER && s->processes[i].state == PROCESS_BACKOFF && !may_start(s, i))
            continue;
        next = at < next ? at : next;
    }
    const struct process *cpuexec = &s->processes[CPUEXEC];
    if (cpuexec->state == PROCESS_STARTING && !generation_workers_run(s, 0) &&
        cpuexec->started_ns + CPUEXEC_HEAD_START_NS > now &&
        cpuexec->started_ns + CPUEXEC_HEAD_START_NS < next)
        next = cpuexec->started_ns + CPUEXEC_HEAD_START_NS;
    if (s->policy.watchdog_ns && !all_gone(s) && now + watchdog_turn_ns(s) < next)
        next = now + watchdog_turn_ns(s);
    if (!all_gone(s) && s->logs_ns + LOGS_NS < next)
        next = s->logs_ns + LOGS_NS;
    if (!all_gone(s) && s->files_ns + FILES_NS < next)
        next = s->files_ns + FILES_NS;
    if (!all_gone(s) && now + OOM_LOOK_NS < next)
        next = now + OOM_LOOK_NS;
    if (next == UINT64_MAX)
        return -1;
    return next <= now ? 0 : (int)((next - now) / 1000000u) + 1;
}

static void loop(struct supervisor *s)
{
    for (;;) {
        if (s->watch.due_ns <= clock_ns())
            check_files(s);
        advance(s);
        if (s->stopping && all_gone(s))
            return;
        process_look_for_oom_kills();
        struct pollfd fds[SUPERVISOR_POLLED] = {
            {s->signal_fd, POLLIN, 0}, {s->notify_fd, POLLIN, 0}, {s->watch.fd, POLLIN, 0}};
        clients_poll_set(&s->clients, fds + 3);
        if (poll(fds, sizeof fds / sizeof *fds, poll_timeout_ms(s)) < 0)
            continue;
        count_waking_time(s);
        /* Notifications before deaths: the last messages of a process that has ended still count.
         */
        if (fds[1].revents)
            take_notifications(s);
        watch_processes(s);
        rotate_logs(s);
        look_at_files(s);
        if (fds[0].revents)
            take_signals(s);
        clients_serve(&s->clients, fds + 3, supervisor_command, s);
        if (fds[2].revents)
            run_watch_take(&s->watch);
    }
}

/* The help of an option: what the supervisor does with it. */
static void describe_option(const struct deployment_option *o, char *out, size_t bytes)
{
    static const struct {
        const char *flag, *text;
    } own[] = {{"--workers", "start N workers; 0: one"},
               {"--cpuexec", "start cpuexec on device host too"},
               {"--mps", "share the CUDA device by NVIDIA's MPS"},
               {"--log-level", "log error, warn, info or debug"},
               {"--watchdog", "restart a process that is silent for S seconds; 0: never"},
               {"--models", "start moed-models, which serves this folder"},
               {"--http", "start moed-http, listening there"},
               {"--drain", "pass to moed-http, and give it S seconds more to stop"}};
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        if (strcmp(own[i].flag, o->flag) == 0) {
            snprintf(out, bytes, "%s", own[i].text);
            return;
        }
    bool memd = o->takers & TO_MEMD, worker = o->takers & TO_WORKER;
    const char *to = memd && o->takers & TO_CPUEXEC ? "all three"
                     : o->takers & TO_CPUEXEC       ? "worker and cpuexec"
                     : memd && worker               ? "memd and worker"
                     : memd                         ? "memd"
                     : worker                       ? "worker"
                     : o->takers & TO_MODELS        ? "moed-models"
                                                    : "moed-http";
    snprintf(out, bytes, "pass to %s%s", to, o->type == OPTION_UINT ? "; 0: its choice" : "");
}

/* The program's own options, and those of the deployment (daemon/deployment_options.h). */
#define OWN_OPTIONS 7
static void list_options(struct settings *o,
                         struct option_spec table[OWN_OPTIONS + DEPLOYMENT_OPTIONS_COUNT + 1])
{
    static char help[DEPLOYMENT_OPTIONS_COUNT][80];
    const struct option_spec own[OWN_OPTIONS] = {
        {"run", OPTION_STRING, &o->run, 0, 0, "DIR", "use this runtime directory"},
        {"name", OPTION_STRING, &o->name, 0, 0, "NAME", "name the deployment"},
        {"model", OPTION_STRING, &o->model, 0, 0, "FILE", "serve this GGUF file"},
        {"bindir", OPTION_STRING, &o->bindir, 0, 0, "DIR",
         "look here first for moed-memd and the others"},
        {"stop-timeout", OPTION_FLOAT, &o->stop_timeout_s, 0.01, 3600, "S",
         "wait S seconds from SIGTERM to SIGKILL"},
        {"drain-timeout", OPTION_FLOAT, &o->drain_s, 0, 86400, "S",
         "give a worker that is removed S seconds to finish its requests"},
        {"stable-after", OPTION_FLOAT, &o->stable_s, 0.01, 3600, "S",
         "count a process as stable after S seconds"},
    };
    memcpy(table, own, sizeof own);
    for (size_t i = 0; i < DEPLOYMENT_OPTIONS_COUNT; i++) {
        describe_option(&deployment_options_table[i], help[i], sizeof help[i]);
        table[OWN_OPTIONS + i] =
            deployment_options_spec(deployment_options_table[i].flag + 2, &o->options, help[i]);
    }
    table[OWN_OPTIONS + DEPLOYMENT_OPTIONS_COUNT] = (struct option_spec){0};
}

static int parse_settings(struct settings *o, int argc, char **argv)
{
    struct option_spec table[OWN_OPTIONS + DEPLOYMENT_OPTIONS_COUNT + 1];
    list_options(o, table);
    if (options_print_version("moed-supervise", argc, argv))
        exit(0);
    if (options_wants_help(argc, argv)) {
        options_print_help(table, "moed-supervise", "--model FILE [OPTION]...",
                           "Starts the processes of one deployment, restarts those that die,\n"
                           "and stops all on SIGTERM. `moed up` starts it.");
        exit(0);
    }
    struct error e = {0};
    enum log_level level = LOG_LEVEL_INFO;
    enum error_code code = options_parse(table, argc, argv, NULL, &e);
    if (!code && !o->model && !(o->options.models && o->options.http))
        code = error_set(&e, ERROR_USAGE,
                         "--model FILE is required, or --models DIR and --http; see --help");
    if (!o->options.workers)
        o->options.workers = 1;
    if (!code && o->options.log_level && log_level_parse(o->options.log_level, &level) != 0)
        code = error_set(&e, ERROR_USAGE, "--log-level: %.40s is none of error, warn, info, debug",
                         o->options.log_level);
    if (code) {
        fprintf(stderr, "moed-supervise: %s\n", e.text);
        return -1;
    }
    log_init("supervise", level);
    return 0;
}

/* Opens descriptors 0 to 2 where they are closed: log output would go into a socket that got one of
 * their numbers. */
static void open_standard_streams(void)
{
    int fd;
    do
        fd = open("/dev/null", O_RDWR);
    while (fd >= 0 && fd <= STDERR_FILENO);
    if (fd >= 0)
        close(fd);
}

static void report_left(void *arg, const char *name, const char *run)
{
    if (run_dir_holder(run, "supervise"))
        log_warn("deployment %s, which moed-models has started, still runs: `moed down %s` stops "
                 "it",
                 name, name);
}

int main(int argc, char **argv)
{
    open_standard_streams();
    umask(077);
    static struct supervisor s;
    struct settings *settings = &s.generations[0].settings;
    *settings = (struct settings){
        .name = "default", .stop_timeout_s = 10, .stable_s = 10, .drain_s = DRAIN_S};
    deployment_options_init(&settings->options);
    settings->options.workers = 1;
    settings->options.watchdog_s = SUPERVISE_WATCHDOG_S;
    if (parse_settings(settings, argc, argv) != 0)
        return 2;
    s.settings = settings;
    s.model = s.generations[0].model;
    s.started_ns = s.turn_ns = clock_ns();
    s.policy =
        (struct process_policy){.stable_ns = (uint64_t)(settings->stable_s * 1e9),
                                .stop_timeout_ns = (uint64_t)(settings->stop_timeout_s * 1e9),
                                .watchdog_ns = (uint64_t)(settings->options.watchdog_s * 1e9)};
    struct error e = {0};
    enum error_code code = supervisor_prepare(&s, &e);
    if (code) {
        log_error("%s", e.text);
        return code == ERROR_EXISTS ? SUPERVISE_EXIT_RUNNING : 1;
    }
    loop(&s);
    mps_stop(s.run);
    models_started_list(s.run, report_left, NULL);
    log_info("all stopped");
    clients_close(&s.clients);
    if (run_watch_is_there(&s.watch, s.run)) /* and not another deployment's */
        run_dir_sweep(s.run);
    return 0;
}
