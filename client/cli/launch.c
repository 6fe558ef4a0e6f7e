/* Starting a deployment; see launch.h. */
#include "client/cli/launch.h"

#include "base/clock.h"
#include "client/cli/ask.h"
#include "client/cli/commands.h"
#include "client/cli/log_reader.h"
#include "client/cli/progress.h"
#include "device/batch_plan.h"
#include "exec/pool.h"
#include "model/memory_need.h"
#include "model/speculate.h"
#include "daemon/supervisor_protocol.h"
#include "model/tier_plan.h"
#include "reader/model_reader.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define POLL_MS      50
#define MEMD_ENDS    3  /* each time it has loaded the model */
#define STATUS_TURNS 20 /* of POLL_MS between two looks of launch_wait at the deployment */
#define LOG_TURNS    4  /* of POLL_MS between two looks at the logs */

/* ---- Signals: while it starts, and while launch_wait waits ---- */

static volatile sig_atomic_t interrupted;
static const int caught[] = {SIGINT, SIGTERM, SIGHUP};
#define N_CAUGHT (sizeof caught / sizeof *caught)

static void on_interrupt(int signal_number)
{
    interrupted = signal_number;
}

static void catch_interrupts(struct sigaction before[N_CAUGHT])
{
    struct sigaction action = {.sa_handler = on_interrupt}; /* no SA_RESTART: waits are to end */
    for (size_t i = 0; i < N_CAUGHT; i++)
        sigaction(caught[i], &action, &before[i]);
}

static void release_interrupts(const struct sigaction before[N_CAUGHT])
{
    for (size_t i = 0; i < N_CAUGHT; i++)
        sigaction(caught[i], &before[i], NULL);
}

void launch_init(struct launch *l)
{
    memset(l, 0, sizeof *l);
    deployment_options_init(&l->options);
}

const char *launch_name(const struct launch *l)
{
    return l->name ? l->name : "default";
}

/* -- checks -- */

static enum error_code check_kv_type(const struct launch *l, const struct model_params *p,
                                     struct error *e)
{
    enum tensor_type type;
    enum error_code code =
        kv_type_parse(l->options.kv_type ? l->options.kv_type : KV_TYPE_DEFAULT, &type, e);
    return code ? code : kv_type_check(p, type, e);
}

static void warn_of_context(const struct launch *l, const struct model_params *p)
{
    if (l->options.ctx > p->context_trained && p->context_trained)
        cli_complain("--ctx %" PRIu64 " is more than the %" PRIu32
                     " tokens that the model was trained on: answers get worse beyond those",
                     l->options.ctx, p->context_trained);
}

/* A draft that is wrong cannot be taken out of a state. */
static void warn_of_drafts(const struct launch *l, const struct model_params *p, uint32_t drafts)
{
    if (drafts != SPECULATE_AUTO && drafts != SPECULATE_OFF && params_recurrent_layers(p))
        cli_complain("--speculate %s: this model has recurrent layers; nothing is drafted",
                     l->options.speculate);
}

/* A device that memd will refuse counts as none. */
static struct memory_worker worker_of(const struct launch *l, const struct model_params *p)
{
    struct device_spec s = {.kind = DEVICE_HOST};
    if (l->options.device && device_parse(l->options.device, &s, NULL))
        s.kind = DEVICE_HOST;
    return (struct memory_worker){
        .batch = batch_plan_known(&s, p, (uint32_t)l->options.batch, (uint32_t)l->options.ctx),
        .cpuexec = l->options.cpuexec || s.kind != DEVICE_HOST,
        .parallel = (uint32_t)l->options.parallel,
        .workers = (uint32_t)l->options.workers,
        .threads = pool_useful_threads((unsigned)l->options.threads),
        .reproducible = l->options.reproducible};
}

int launch_check_model(const struct launch *l, bool beside)
{
    struct read_model m;
    struct error e = {0};
    uint32_t drafts;
    enum error_code code = speculate_parse(
        l->options.speculate ? l->options.speculate : SPECULATE_DEFAULT, &drafts, &e);
    if (code) {
        cli_complain("%s", e.text);
        return CLI_USAGE;
    }
    code = model_reader_read(l->model, POOL_SEGMENT_BYTES, &m, &e);
    if (!code) {
        struct tier_plan tier = {0};
        const struct model_params *params = &m.plan.header.params;
        const struct memory_worker worker = worker_of(l, params);
        warn_of_context(l, params);
        warn_of_drafts(l, params, drafts);
        code = params_check_context(params, l->options.ctx, &e);
        if (!code)
            code = check_kv_type(l, params, &e);
        if (!code)
            code = tier_plan_new(&m.plan, l->options.ram, &tier, &e);
        if (tier.n_slots)
            pool_plan_keep_dense(&m.plan);
        if (!code && beside)
            code = memory_need_check(&m.plan, tier.bytes + tier.read_bytes, &worker, &e);
        read_model_free(&m);
    }
    if (code)
        cli_complain("%s", e.text);
    return code ? CLI_FAILURE : CLI_OK;
}

int launch_check_not_running(const struct launch *l)
{
    char unit[128], label[RUN_LABEL_BYTES];
    bool by_name = !run_dir_from_environment();
    run_dir_label(l->name, label);
    pid_t pid = run_dir_find_holder(l->run, "supervise");
    if (pid) {
        cli_complain(
            "%s runs already (pid %d): `moed down%s%s` stops it, --name N starts another beside it",
            label, (int)pid, by_name ? " " : "", by_name ? launch_name(l) : "");
        return CLI_ALREADY_RUNNING;
    }
    if (deployment_systemd_unit(l->run, unit)) {
        cli_complain("%s runs already, under systemd (%s): use systemctl", label, unit);
        return CLI_ALREADY_RUNNING;
    }
    /* What a killed supervisor left holds memory that the new processes need. */
    if (deployment_has_processes(l->run)) {
        fprintf(stderr, "moed: stopping the processes left of an earlier start of %s\n", label);
        deployment_stop_processes(l->run, NULL);
    }
    return CLI_OK;
}

/* -- the logs, for standard error -- */

static struct process_log logs[LOG_READER_LOGS]; /* large */

/* Lines of an earlier start are not printed. */
static void begin_logs(const struct launch *l)
{
    if (!l->prints_logs)
        return;
    signal(SIGPIPE, SIG_IGN); /* who reads the lines may leave */
    log_reader_init(logs, l->run, NULL);
    log_reader_skip(logs);
}

/* last: the processes have ended. */
static void print_logs(const struct launch *l, bool last)
{
    bool json = l->options.log_format && strcmp(l->options.log_format, "json") == 0;
    struct log_view view = {.out = stderr, .limit = UINT64_MAX, .json = json};
    if (l->prints_logs)
        log_reader_print(logs, &view, !last);
}

/* -- the supervisor -- */

/* The program, --run, --name and --model with their values, and the options with theirs. */
#define MAX_ARGUMENTS (7 + 2 * DEPLOYMENT_OPTIONS_COUNT)

struct arguments {
    const char *items[MAX_ARGUMENTS + 1];
    char numbers[DEPLOYMENT_OPTIONS_COUNT][24];
};

static void build_arguments(const struct launch *l, struct arguments *a)
{
    memset(a, 0, sizeof *a);
    const char **next = a->items;
    *next++ = l->program;
    *next++ = "--run";
    *next++ = l->run;
    *next++ = "--name";
    *next++ = launch_name(l);
    if (l->model) {
        *next++ = "--model";
        *next++ = l->model;
    }
    for (size_t i = 0; i < DEPLOYMENT_OPTIONS_COUNT; i++) {
        const struct deployment_option *o = &deployment_options_table[i];
        const char *value = deployment_options_text(o, &l->options, a->numbers[i]);
        if (!value)
            continue;
        *next++ = o->flag;
        if (o->type != OPTION_BOOL)
            *next++ = value;
    }
}

static int start_supervisor(struct launch *l)
{
    struct error e = {0};
    char log_path[RUN_PATH_BYTES];
    if (deployment_find_program("moed-supervise", l->program, &e) || run_dir_create(l->run, &e)) {
        cli_complain("%s", e.text);
        return CLI_FAILURE;
    }
    struct arguments a;
    build_arguments(l, &a);
    begin_logs(l);
    run_dir_file(l->run, "supervise.log", log_path);
    int log = open(log_path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (log < 0) {
        cli_complain("cannot write %s: %s", log_path, strerror(errno));
        return CLI_FAILURE;
    }
    struct stat s;
    l->log_start = fstat(log, &s) == 0 ? s.st_size : 0;
    pid_t self = getpid();
    l->supervisor = fork();
    if (l->supervisor == 0) {
        setsid();
        if (l->bound) {
            prctl(PR_SET_PDEATHSIG, SIGTERM);
            if (getppid() != self)
                _exit(CLI_FAILURE);
        }
        int null = open("/dev/null", O_RDWR);
        dup2(null, STDIN_FILENO);
        dup2(log, STDOUT_FILENO);
        dup2(log, STDERR_FILENO);
        signal(SIGINT, SIG_DFL);
        execv(l->program, (char **)a.items);
        dprintf(STDERR_FILENO, "cannot run %s: %s\n", l->program, strerror(errno));
        _exit(CLI_FAILURE);
    }
    close(log);
    if (l->supervisor < 0) {
        cli_complain("cannot start the supervisor: %s", strerror(errno));
        return CLI_FAILURE;
    }
    return CLI_OK;
}

/* The last line of the log since the supervisor was started; empty: there is none. */
static void last_line(const struct launch *l, const char *path, char *line, int bytes)
{
    struct stat s;
    FILE *f = fopen(path, "re");
    line[0] = '\0';
    if (f && fstat(fileno(f), &s) == 0 && s.st_size >= l->log_start) /* else it was renamed */
        fseeko(f, l->log_start, SEEK_SET);
    while (f && fgets(line, bytes, f))
        ;
    if (f)
        fclose(f);
    line[strcspn(line, "\n")] = '\0';
}

/* Why the log takes no line, as a number of errno; 0: it does. */
static int try_log(const char *path)
{
    struct stat s;
    int number = 0, fd = open(path, O_WRONLY | O_APPEND | O_CLOEXEC | O_NOFOLLOW);
    signal(SIGXFSZ, SIG_IGN); /* a limit of files' sizes is as a full disk */
    if (fd < 0 || fstat(fd, &s) != 0 || write(fd, "\n", 1) != 1 || ftruncate(fd, s.st_size) != 0)
        number = errno;
    if (fd >= 0)
        close(fd);
    return number;
}

/* Whether the supervisor has ended. Process 1 also reaps the orphans that it was given. */
static bool has_ended(const struct launch *l, int *wait_status)
{
    pid_t which = getpid() == 1 ? -1 : l->supervisor, pid;
    do
        pid = waitpid(which, wait_status, WNOHANG);
    while (pid > 0 && pid != l->supervisor);
    return pid > 0;
}

/* What it wrote before is not why it was killed. */
static void complain_of_signal(int number, const char *path)
{
    cli_complain("the supervisor was killed by signal %d (%s)%s; its log is %s", number,
                 strsignal(number), number == SIGKILL ? ", perhaps for lack of memory" : "", path);
}

/* Complains about a supervisor that ended; returns an exit code. */
static int supervisor_ended(const struct launch *l, int wait_status)
{
    print_logs(l, true);
    if (WIFEXITED(wait_status) && WEXITSTATUS(wait_status) == SUPERVISE_EXIT_RUNNING) {
        char label[RUN_LABEL_BYTES];
        run_dir_label(l->name, label);
        cli_complain("%s runs already (pid %d)", label, (int)run_dir_holder(l->run, "supervise"));
        return CLI_ALREADY_RUNNING;
    }
    char path[RUN_PATH_BYTES], line[1024];
    run_dir_file(l->run, "supervise.log", path);
    if (WIFSIGNALED(wait_status)) {
        complain_of_signal(WTERMSIG(wait_status), path);
        return CLI_FAILURE;
    }
    last_line(l, path, line, sizeof line);
    int number = line[0] ? 0 : try_log(path);
    if (number)
        cli_complain("the supervisor has ended: cannot write %s: %s", path, strerror(number));
    else if (line[0])
        cli_complain("the supervisor has ended: %s; its log is %s", line, path);
    else
        cli_complain(
            "the supervisor has ended, exit status %d, and has not said why; its log is %s",
            WEXITSTATUS(wait_status), path);
    return CLI_FAILURE;
}

static int stop_again(struct launch *l, int exit_code)
{
    /* It is our child, so a signal reaches it at any point; a command might come too early. */
    kill(l->supervisor, SIGTERM);
    while (waitpid(l->supervisor, NULL, 0) < 0 && errno == EINTR)
        ;
    struct error e = {0};
    if (deployment_has_processes(l->run) && deployment_stop(l->run, false, &e))
        cli_complain("%s", e.text);
    print_logs(l, true);
    return exit_code;
}

/* -- waiting -- */

/* The process that has failed and without which no deployment answers; NULL: none. */
static const struct deployment_process *failed_process(const struct deployment_status *s)
{
    for (unsigned i = 0; i < s->n_processes; i++) {
        const struct deployment_process *p = &s->processes[i];
        if (strcmp(p->name, "cpuexec") != 0 && deployment_does_not_run(p))
            return p;
    }
    return NULL;
}

/* memd, where it has ended too often after it was ready, before the deployment answered: for lack
 * of memory, most likely. Starts that end before memd is ready are failed_process's. NULL: it has
 * not, or it is ready once more. */
static const struct deployment_process *ending_memd(const struct deployment_status *s)
{
    const struct deployment_process *memd = deployment_status_find(s, "memd");
    bool ends = memd && memd->ready_ends >= MEMD_ENDS && strcmp(memd->state, "ready") != 0;
    return ends ? memd : NULL;
}

static bool is_ready(const struct launch *l, const char *process)
{
    const struct deployment_process *p = deployment_status_find(&l->status, process);
    return p && strcmp(p->state, "ready") == 0;
}

/* Whether a worker says that it serves. An error: it cannot be asked. */
static enum error_code worker_answers(const struct launch *l, const struct deployment_process *p,
                                      bool *answers, struct error *e)
{
    Moed__V1__Reply *reply;
    *answers = false;
    if (strcmp(p->state, "ready") != 0)
        return ERROR_OK;
    enum error_code code = deployment_health(l->run, p->name, &reply, e);
    if (code)
        return code;
    *answers = reply->health->ready;
    moed__v1__reply__free_unpacked(reply, NULL);
    return ERROR_OK;
}

/* Whether the processes are ready, by the supervisor and by the workers themselves. An error: a
 * worker cannot be asked. */
static enum error_code deployment_answers(const struct launch *l, bool *answers, struct error *e)
{
    bool all = true;
    unsigned workers = 0;
    *answers = false;
    if ((l->options.models && !is_ready(l, "models")) || (l->options.http && !is_ready(l, "http")))
        return ERROR_OK;
    for (unsigned i = 0; i < l->status.n_processes && all; i++) {
        const struct deployment_process *p = &l->status.processes[i];
        if (!supervise_is_worker(p->name))
            continue;
        enum error_code code = worker_answers(l, p, &all, e);
        if (code)
            return code;
        workers++;
    }
    *answers = all && (workers > 0 || !l->model);
    return ERROR_OK;
}

/* A deployment whose processes cannot be asked for as long as the watchdog lets one be silent will
 * not answer. */
struct silence {
    double since_s; /* 0: the last question was answered */
    double limit_s;
};

static void silence_begin(struct silence *s, const struct launch *l)
{
    double watchdog_s = l->options.watchdog_s; /* NaN: not given */
    *s = (struct silence){.limit_s = watchdog_s > 0 ? watchdog_s : SUPERVISE_WATCHDOG_S};
}

/* True: it has lasted too long. */
static bool silence_note(struct silence *s, enum error_code code)
{
    if (!code)
        s->since_s = 0;
    else if (s->since_s == 0)
        s->since_s = clock_s();
    return code && clock_s() - s->since_s > s->limit_s;
}

/* Shows the status of the first process that is not ready. */
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

static int wait_until_it_answers(struct launch *l, struct progress *progress)
{
    struct silence silence;
    struct error e;
    bool answers = false;
    silence_begin(&silence, l);
    for (unsigned turn = 1;; poll(NULL, 0, POLL_MS), turn++) {
        int wait_status;
        if (turn % LOG_TURNS == 0)
            print_logs(l, false);
        if (interrupted) {
            progress_end(progress);
            fprintf(stderr, "moed: interrupted; stopping what was started\n");
            return stop_again(l, LAUNCH_INTERRUPTED);
        }
        if (has_ended(l, &wait_status)) {
            progress_end(progress);
            return supervisor_ended(l, wait_status);
        }
        enum error_code code = deployment_status(l->run, &l->status, &e);
        const struct deployment_process *failed = code ? NULL : failed_process(&l->status);
        if (failed) {
            progress_end(progress);
            cli_complain("%s does not start: %s; its log is %s/%s.log", failed->name,
                         failed->reason, l->run, failed->name);
            return stop_again(l, CLI_FAILURE);
        }
        const struct deployment_process *ending = code ? NULL : ending_memd(&l->status);
        if (ending) {
            progress_end(progress);
            cli_complain("memd has ended %u times before the deployment answered, the last time: "
                         "%s; its log is %s/memd.log",
                         (unsigned)ending->ready_ends, ending->reason, l->run);
            return stop_again(l, CLI_FAILURE);
        }
        if (!code) {
            show_progress(progress, &l->status);
            code = deployment_answers(l, &answers, &e);
        }
        if (silence_note(&silence, code)) {
            progress_end(progress);
            cli_complain("the deployment runs, but does not answer this command: %s; its logs are "
                         "in %s",
                         e.text, l->run);
            return stop_again(l, CLI_FAILURE);
        }
        if (answers) {
            progress_end(progress);
            return CLI_OK;
        }
    }
}

int launch_start(struct launch *l)
{
    int result = launch_check_not_running(l);
    if (!result && l->model)
        result = launch_check_model(l, true);
    if (result)
        return result;
    struct sigaction before[N_CAUGHT];
    catch_interrupts(before);
    result = start_supervisor(l);
    if (!result) {
        struct progress progress;
        progress_begin(&progress);
        result = wait_until_it_answers(l, &progress);
    }
    release_interrupts(before);
    return result;
}

void launch_stop(struct launch *l)
{
    stop_again(l, CLI_OK);
}

/* Whether the supervisor has given up what the deployment needs to answer; complains then. */
static bool has_failed(struct launch *l)
{
    if (deployment_status(l->run, &l->status, NULL) || strcmp(l->status.state, "failed") != 0)
        return false;
    cli_complain("%s; its logs are in %s; stopping", l->status.reason, l->run);
    return true;
}

int launch_wait(struct launch *l)
{
    int wait_status;
    bool asked = false, failed = false;
    struct sigaction before[N_CAUGHT];
    catch_interrupts(before);
    for (unsigned turn = 1; !has_ended(l, &wait_status); turn++) {
        if (turn % LOG_TURNS == 0)
            print_logs(l, false);
        if (!asked && turn % STATUS_TURNS == 0)
            failed = has_failed(l);
        if (!asked && (interrupted || failed)) {
            interrupted = 0; /* before: the next one may come at once */
            kill(l->supervisor, SIGTERM);
            asked = true;
        } else if (asked && interrupted == SIGINT) {
            interrupted = 0;
            kill(l->supervisor, SIGINT); /* do not wait for answers */
        }
        poll(NULL, 0, POLL_MS); /* the signal may have come to another thread */
    }
    release_interrupts(before);
    if (WIFEXITED(wait_status) && WEXITSTATUS(wait_status) == 0) {
        print_logs(l, true);
        return failed ? CLI_FAILURE : CLI_OK;
    }
    return supervisor_ended(l, wait_status);
}
