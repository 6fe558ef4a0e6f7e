/* moed up: start a deployment and return when it answers.
 *
 * What can be known beforehand is checked first (the file, the memory, whether it runs already);
 * then the supervisor is started in a session of its own and asked how far it is. It is forked
 * before this process touches nng, which does not survive a fork. */
#include "base/clock.h"
#include "client/cli/ask.h"
#include "client/cli/commands.h"
#include "client/cli/deployment.h"
#include "client/cli/progress.h"
#include "gguf/gguf.h"
#include "model/memory_need.h"
#include "model/pool_plan.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define POLL_MS          50
#define EXIT_INTERRUPTED 130 /* 128 + SIGINT */

struct up {
    const char *name, *model, *device, *log_level;
    uint64_t threads, ctx, parallel;
    bool reproducible, foreground;
    char run[RUN_DIR_BYTES];
    char program[PATH_MAX];
    pid_t supervisor;
    struct deployment_status status; /* the last one seen */
};

static volatile sig_atomic_t interrupted;

static void on_interrupt(int signal_number)
{
    interrupted = signal_number;
}

static const char *shown_name(const struct up *u)
{
    return u->name ? u->name : "default";
}

/* -- checks -- */

/* All that the processes would refuse is said here, before any of them is started. */
static int check_model(const struct up *u)
{
    struct gguf *g;
    struct pool_plan plan = {0};
    struct error e = {0};
    enum error_code code = gguf_open(u->model, &g, &e);
    if (!code) {
        code = pool_plan_new(g, &plan, &e);
        if (!code)
            code = memory_need_check(&plan, &e);
        pool_plan_free(&plan);
        gguf_close(g);
    }
    if (code)
        ask_complain("%s", e.text);
    return code ? CLI_FAILURE : CLI_OK;
}

static int check_not_running(const struct up *u)
{
    char unit[128];
    pid_t pid = run_dir_holder(u->run, "supervise");
    if (pid) {
        ask_complain(
            "deployment %s runs already (pid %d): `moed down %s` stops it, --name N starts "
            "another beside it",
            shown_name(u), (int)pid, shown_name(u));
        return CLI_ALREADY_RUNNING;
    }
    if (deployment_systemd_unit(u->run, unit)) {
        ask_complain("deployment %s runs already, under systemd (%s): use systemctl", shown_name(u),
                     unit);
        return CLI_ALREADY_RUNNING;
    }
    /* A supervisor that was killed: what it left holds memory that we need. */
    if (deployment_has_processes(u->run)) {
        fprintf(stderr, "moed: stopping what is left of an earlier deployment %s\n", shown_name(u));
        for (int i = SUPERVISE_PROCESSES - 1; i >= 0; i--)
            run_dir_terminate(u->run, supervise_process_names[i], 10000);
    }
    return CLI_OK;
}

/* -- the supervisor -- */

#define MAX_ARGUMENTS 24

struct arguments {
    const char *items[MAX_ARGUMENTS + 1];
    size_t count;
    char numbers[3][24];
};

static void add(struct arguments *a, const char *flag, const char *value)
{
    if (a->count + 2 > MAX_ARGUMENTS)
        abort(); /* our bug: the options below are fewer */
    a->items[a->count++] = flag;
    if (value)
        a->items[a->count++] = value;
}

static void add_number(struct arguments *a, unsigned which, const char *flag, uint64_t value)
{
    snprintf(a->numbers[which], sizeof a->numbers[which], "%llu", (unsigned long long)value);
    if (value)
        add(a, flag, a->numbers[which]);
}

static void build_arguments(const struct up *u, struct arguments *a)
{
    memset(a, 0, sizeof *a);
    add(a, u->program, NULL);
    add(a, "--run", u->run);
    add(a, "--name", shown_name(u));
    add(a, "--model", u->model);
    if (u->device)
        add(a, "--device", u->device);
    if (u->log_level)
        add(a, "--log-level", u->log_level);
    add_number(a, 0, "--threads", u->threads);
    add_number(a, 1, "--ctx", u->ctx);
    add_number(a, 2, "--parallel", u->parallel);
    if (u->reproducible)
        add(a, "--reproducible", NULL);
}

static int start_supervisor(struct up *u)
{
    struct error e = {0};
    char log_path[RUN_PATH_BYTES];
    if (deployment_find_program("moed-supervise", u->program, &e) || run_dir_create(u->run, &e)) {
        ask_complain("%s", e.text);
        return CLI_FAILURE;
    }
    struct arguments a;
    build_arguments(u, &a);
    run_dir_file(u->run, "supervise.log", log_path);
    int log = open(log_path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (log < 0) {
        ask_complain("cannot write %s: %s", log_path, strerror(errno));
        return CLI_FAILURE;
    }
    pid_t self = getpid();
    u->supervisor = fork();
    if (u->supervisor == 0) {
        setsid();
        if (u->foreground) {
            prctl(PR_SET_PDEATHSIG, SIGTERM);
            if (getppid() != self)
                _exit(CLI_FAILURE);
        }
        int null = open("/dev/null", O_RDWR);
        dup2(null, STDIN_FILENO);
        dup2(log, STDOUT_FILENO);
        dup2(log, STDERR_FILENO);
        signal(SIGINT, SIG_DFL);
        execv(u->program, (char **)a.items);
        dprintf(STDERR_FILENO, "cannot run %s: %s\n", u->program, strerror(errno));
        _exit(CLI_FAILURE);
    }
    close(log);
    if (u->supervisor < 0) {
        ask_complain("cannot start the supervisor: %s", strerror(errno));
        return CLI_FAILURE;
    }
    return CLI_OK;
}

/* The supervisor ended while it should run. */
static int supervisor_ended(const struct up *u, int wait_status)
{
    if (WIFEXITED(wait_status) && WEXITSTATUS(wait_status) == SUPERVISE_EXIT_RUNNING) {
        ask_complain("deployment %s runs already (pid %d)", shown_name(u),
                     (int)run_dir_holder(u->run, "supervise"));
        return CLI_ALREADY_RUNNING;
    }
    char path[RUN_PATH_BYTES], line[1024] = "", next[1024];
    run_dir_file(u->run, "supervise.log", path);
    FILE *f = fopen(path, "re");
    while (f && fgets(next, sizeof next, f))
        memcpy(line, next, sizeof line);
    if (f)
        fclose(f);
    line[strcspn(line, "\n")] = '\0';
    ask_complain("the supervisor has ended: %s; its log is %s", line, path);
    return CLI_FAILURE;
}

static int stop_again(struct up *u, int exit_code)
{
    /* It is our child: the signal reaches it however far it has come, a command might be too early.
     */
    kill(u->supervisor, SIGTERM);
    while (waitpid(u->supervisor, NULL, 0) < 0 && errno == EINTR)
        ;
    struct error e = {0};
    if (deployment_has_processes(u->run) && deployment_stop(u->run, &e))
        ask_complain("%s", e.text);
    return exit_code;
}

/* -- waiting -- */

/* The process without which there is no deployment and that is given up; NULL: none. */
static const struct deployment_process *failed_process(const struct deployment_status *s)
{
    static const char *const essential[] = {"memd", "worker"};
    for (int i = 0; i < 2; i++) {
        const struct deployment_process *p = deployment_status_find(s, essential[i]);
        if (p && strcmp(p->state, "failed") == 0)
            return p;
    }
    return NULL;
}

static bool worker_answers(const struct up *u)
{
    const struct deployment_process *worker = deployment_status_find(&u->status, "worker");
    Moed__V1__Reply *reply;
    if (!worker || strcmp(worker->state, "ready") != 0 ||
        deployment_health(u->run, "worker", &reply, NULL))
        return false;
    bool ready = reply->health->ready;
    moed__v1__reply__free_unpacked(reply, NULL);
    return ready;
}

/* What is being waited for, in the words of the first process that is not ready. */
static void show_progress(struct progress *progress, const struct deployment_status *s)
{
    for (unsigned i = 0; i < s->n_processes; i++) {
        const struct deployment_process *p = &s->processes[i];
        if (strcmp(p->state, "ready") == 0)
            continue;
        bool died = strcmp(p->state, "backoff") == 0;
        const char *detail = died ? p->reason : p->status[0] ? p->status : p->state;
        progress_show(progress, p->name, detail);
        return;
    }
}

static int wait_until_it_answers(struct up *u, struct progress *progress)
{
    for (;; poll(NULL, 0, POLL_MS)) {
        int wait_status;
        if (interrupted) {
            progress_end(progress);
            fprintf(stderr, "moed: interrupted; stopping what was started\n");
            return stop_again(u, EXIT_INTERRUPTED);
        }
        if (waitpid(u->supervisor, &wait_status, WNOHANG) == u->supervisor) {
            progress_end(progress);
            return supervisor_ended(u, wait_status);
        }
        if (deployment_status(u->run, &u->status, NULL))
            continue; /* it is not that far yet */
        const struct deployment_process *failed = failed_process(&u->status);
        if (failed) {
            progress_end(progress);
            ask_complain("%s does not start: %s; its log is %s/%s.log", failed->name,
                         failed->reason, u->run, failed->name);
            return stop_again(u, CLI_FAILURE);
        }
        show_progress(progress, &u->status);
        if (worker_answers(u)) {
            progress_end(progress);
            return CLI_OK;
        }
    }
}

static int wait_until_it_ends(struct up *u)
{
    int wait_status;
    bool asked = false;
    while (waitpid(u->supervisor, &wait_status, WNOHANG) != u->supervisor) {
        if (interrupted && !asked) {
            kill(u->supervisor, SIGTERM);
            asked = true;
        }
        poll(NULL, 0, POLL_MS); /* the signal may have come to one of nng's threads */
    }
    if (WIFEXITED(wait_status) && WEXITSTATUS(wait_status) == 0)
        return CLI_OK;
    return supervisor_ended(u, wait_status);
}

static void catch_interrupts(void)
{
    struct sigaction action = {.sa_handler = on_interrupt}; /* no SA_RESTART: waits are to end */
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGHUP, &action, NULL);
}

static int announce(const struct up *u, double started_s)
{
    const struct deployment_process *cpuexec = deployment_status_find(&u->status, "cpuexec");
    if (cpuexec && strcmp(cpuexec->state, "failed") == 0)
        ask_complain("cpuexec does not start, the worker computes alone: %s; its log is "
                     "%s/cpuexec.log",
                     cpuexec->reason, u->run);
    printf("deployment %s answers after %.1f s; ask it with `moed run%s%s \"PROMPT\"`\n",
           shown_name(u), clock_s() - started_s, u->name ? " --name " : "", u->name ? u->name : "");
    return fflush(stdout) ? CLI_FAILURE : CLI_OK;
}

static int up(struct up *u)
{
    double started_s = clock_s();
    int result = check_not_running(u);
    if (!result)
        result = check_model(u);
    if (result)
        return result;
    catch_interrupts();
    result = start_supervisor(u);
    if (result)
        return result;
    struct progress progress;
    progress_begin(&progress);
    result = wait_until_it_answers(u, &progress);
    if (!result)
        result = announce(u, started_s);
    if (!result && u->foreground)
        result = wait_until_it_ends(u);
    return result;
}

int up_main(int argc, char **argv)
{
    static struct up u; /* large */
    const struct option_spec table[] = {
        {"name", OPTION_STRING, &u.name, 0, 0, "N", "the deployment's name (default: default)"},
        {"device", OPTION_STRING, &u.device, 0, 0, "D", "where the model runs"},
        {"threads", OPTION_UINT, &u.threads, 0, 1024, "N", "threads a process; 0: all cores"},
        {"ctx", OPTION_UINT, &u.ctx, 0, 1u << 24, "N", "context in tokens; 0: the worker's choice"},
        {"parallel", OPTION_UINT, &u.parallel, 0, 256, "N",
         "requests at once; 0: the worker's choice"},
        {"reproducible", OPTION_BOOL, &u.reproducible, 0, 0, NULL,
         "the same bits wherever an expert is computed, prefill too"},
        {"foreground", OPTION_BOOL, &u.foreground, 0, 0, NULL, "stay; Ctrl-C stops it"},
        {"log-level", OPTION_STRING, &u.log_level, 0, 0, "LEVEL", "error, warn, info or debug"},
        {0},
    };
    int n, exit_code;
    if (!deployment_arguments(table, "up", "MODEL.gguf [OPTION]...",
                              "Starts a deployment of a model: its processes under a supervisor. "
                              "Returns when it answers.",
                              argc, argv, 1, 1, &n, &exit_code))
        return exit_code;
    u.model = argv[1];
    if (!deployment_path(u.name, u.run))
        return CLI_USAGE;
    return up(&u);
}
