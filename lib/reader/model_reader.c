/* Reading a model file in a process of its own; see model_reader.h.
 *
 *   caller                                    its child
 *   opens the files, forks   --------------->  maps them, gives up all calls but a few
 *   reads the message        <-- pipe -------  parses, plans, tries the tokenizer, writes
 *   checks, plans                              ends
 */
#include "reader/model_reader.h"

#include "base/clock.h"
#include "base/machine_memory.h"
#include "base/utf8.h"
#include "confine/calls.h"
#include "confine/memory.h"
#include "gguf/file_type.h"
#include "tokenizer/tokenizer.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define CPU_LIMIT_S 300            /* the largest vocabularies take a second */
#define MOST_BYTES  (1ull << 28)   /* of a message: a million tensors */
#define LEAST_DATA  (256ull << 20) /* of memory, however little is free */
#define END_NS      1000000000ull  /* for the child to end, once its message is there */
#define LOOK_NS     1000000000ull  /* how often its CPU time is looked at, at least */

struct task {
    model_reader_work *work;
    uint64_t segment_bytes;
    unsigned limit_s;  /* of CPU time */
    uint64_t until_ns; /* clock_ns; 0: for ever */
    uint64_t stall_ns; /* the longest time without any CPU time */
};

/* ---- The child ---- */

static void write_all(int fd, const void *data, size_t bytes)
{
    const char *at = data;
    while (bytes) {
        ssize_t n = write(fd, at, bytes);
        if (n <= 0)
            return; /* the caller has gone, or notices that the message is short */
        at += n;
        bytes -= (size_t)n;
    }
}

static enum error_code try_tokenizer(const struct gguf *g, uint32_t vocab, struct error *e)
{
    struct tokenizer *t;
    enum error_code code = tokenizer_new(g, NULL, &t, e);
    if (code)
        return code;
    uint32_t tokens = tokenizer_vocab_size(t);
    tokenizer_free(t);
    if (tokens <= vocab)
        return ERROR_OK;
    return error_set(e, ERROR_FORMAT,
                     "%s: %" PRIu32 " tokens, but the embedding has %" PRIu32 " rows",
                     gguf_path(g, 0), tokens, vocab);
}

static enum error_code read_all(struct gguf *g, uint64_t segment_bytes, bool brief,
                                struct model_params *params, struct error *e)
{
    struct pool_plan plan = {0};
    enum error_code code = gguf_parse(g, e);
    if (!code)
        code = model_params_read(g, params, e);
    if (!code)
        code = pool_plan_new_from(g, params, segment_bytes, &plan, e);
    pool_plan_free(&plan);
    return code || brief ? code : try_tokenizer(g, params->vocab, e);
}

static void run(struct gguf *g, uint64_t segment_bytes, bool brief, int fd)
{
    static struct model_message m; /* large */
    struct error e = {0};
    memset(&m, 0, sizeof m);
    m.magic = MODEL_MESSAGE_MAGIC;
    m.code = (uint32_t)read_all(g, segment_bytes, brief, &m.params, &e);
    if (m.code == ERROR_OK) {
        snprintf(m.arch, sizeof m.arch, "%s", m.params.arch->name);
        m.file_type = gguf_file_type(g);
        m.fills = fim_is_in(g);
        gguf_describe(g, &m.parsed);
    } else {
        snprintf(m.text, sizeof m.text, "%s", e.text);
    }
    m.params.arch = NULL;
    write_all(fd, &m, sizeof m);
    if (m.code == ERROR_OK && m.parsed.tensor_count)
        write_all(fd, gguf_tensor_at(g, 0), m.parsed.tensor_count * sizeof(struct gguf_tensor));
}

void model_reader_run(struct gguf *g, uint64_t segment_bytes, int fd)
{
    run(g, segment_bytes, false, fd);
}

void model_reader_run_brief(struct gguf *g, uint64_t segment_bytes, int fd)
{
    run(g, segment_bytes, true, fd);
}

static void limit(int what, uint64_t most)
{
    /* at the second number of CPU time SIGKILL, which does not say why */
    const struct rlimit r = {most, what == RLIMIT_CPU ? most + 1 : most};
    setrlimit(what, &r); /* without it the file can take more time or memory */
}

/* A sanitizer takes terabytes of addresses. */
static void limit_memory(void)
{
#if !defined __SANITIZE_ADDRESS__ && !defined __SANITIZE_THREAD__
    uint64_t most = memory_available_bytes() / 2;
    limit(RLIMIT_DATA, most < LEAST_DATA ? LEAST_DATA : most);
#endif
}

/* All of the caller's but the standard ones, the model's files and fd: it might write to them. */
static void close_others(const struct gguf *g, int fd)
{
    int first = STDERR_FILENO + 1;
    for (int next; (next = gguf_next_descriptor(g, first)) >= 0 || fd >= first; first = next + 1) {
        next = fd >= first && (next < 0 || fd < next) ? fd : next;
        if (next > first)
            syscall(SYS_close_range, first, next - 1, 0); /* Linux 5.9; else they stay open */
    }
    syscall(SYS_close_range, first, ~0u, 0);
}

/* For on_fault. */
static const struct gguf *mapped;
static int message_fd;

/* The handler of SIGBUS. It does what is not safe in other handlers, but this process has one
 * thread, which has not come to its fault in a call that it makes here. */
static void on_fault(int signal_number, siginfo_t *info, void *context)
{
    static struct model_message failed = {.magic = MODEL_MESSAGE_MAGIC};
    struct error e;
    (void)context;
    failed.code = (uint32_t)gguf_explain_fault(mapped, info->si_addr, &e);
    if (failed.code) {
        snprintf(failed.text, sizeof failed.text, "%s", e.text);
        write_all(message_fd, &failed, sizeof failed);
        _exit(0);
    }
    signal(signal_number, SIG_DFL);
    raise(signal_number);
}

static void explain_faults(const struct gguf *g, int fd)
{
    const struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO};
    mapped = g;
    message_fd = fd;
    sigaction(SIGBUS, &action, NULL);
}

static _Noreturn void child_main(const struct task *t, struct gguf *g, int fd, pid_t parent)
{
    static const int fatal[] = {SIGSEGV, SIGBUS, SIGABRT, SIGFPE, SIGILL};
    struct error e;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(1);
    for (size_t i = 0; i < sizeof fatal / sizeof *fatal; i++)
        signal(fatal[i],
               SIG_DFL); /* the caller may have a handler, which this process may not run */
    confine_memory();
    limit(RLIMIT_CPU, t->limit_s);
    limit_memory();
    static struct model_message failed = {.magic = MODEL_MESSAGE_MAGIC};
    failed.code = (uint32_t)gguf_map_unparsed(g, &e);
    if (failed.code) {
        snprintf(failed.text, sizeof failed.text, "%s", e.text);
        write_all(fd, &failed, sizeof failed);
        _exit(0);
    }
    close_others(g, fd);
    explain_faults(g, fd);
    confine_calls(CONFINE_READER, false);
    t->work(g, t->segment_bytes, fd);
    _exit(0);
}

/* ---- The caller ---- */

enum wait_end { WAIT_ON, WAIT_LATE, WAIT_STALLED };

/* The wait for a child. The file is mapped, so even a slow disk lets it compute a little after each
 * read: a child whose CPU time stands still does nothing, or waits for a single read. */
struct wait {
    const struct task *task;
    int fd; /* of its messages */
    pid_t child;
    uint64_t cpu_ns, since_ns; /* its CPU time, and when that last changed */
    enum wait_end end;         /* why there is no more waiting */
};

static uint64_t cpu_time_ns(pid_t child)
{
    clockid_t clock;
    struct timespec t = {0};
    if (clock_getcpuclockid(child, &clock) == 0)
        clock_gettime(clock, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static enum wait_end wait_look(struct wait *w, uint64_t now_ns)
{
    uint64_t cpu_ns = cpu_time_ns(w->child);
    if (w->task->until_ns && now_ns >= w->task->until_ns)
        return WAIT_LATE;
    if (cpu_ns != w->cpu_ns)
        w->since_ns = now_ns;
    w->cpu_ns = cpu_ns;
    return now_ns - w->since_ns >= w->task->stall_ns ? WAIT_STALLED : WAIT_ON;
}

/* When wait_look() may first say otherwise, or is to look at the CPU time. */
static uint64_t look_ns(const struct wait *w, uint64_t now_ns)
{
    uint64_t next = w->since_ns + w->task->stall_ns, look = now_ns + LOOK_NS;
    next = next < look ? next : look;
    return w->task->until_ns && w->task->until_ns < next ? w->task->until_ns : next;
}

/* Waits until the message goes on, or has ended. False: it takes too long (w->end). */
static bool wait_for(struct wait *w)
{
    struct pollfd p = {.fd = w->fd, .events = POLLIN};
    int n;
    do {
        uint64_t now = clock_ns();
        w->end = wait_look(w, now);
        if (w->end)
            return false;
        n = poll(&p, 1, clock_ms_until(look_ns(w, now)));
    } while (n == 0 || (n < 0 && errno == EINTR));
    return true;
}

/* Reads to the end, or while wait_for() lets it, at most MOST_BYTES. NULL: no memory. */
static uint8_t *read_message(struct wait *w, size_t *bytes)
{
    size_t capacity = sizeof(struct model_message) + 64 * sizeof(struct gguf_tensor), len = 0;
    uint8_t *message = malloc(capacity);
    while (message && wait_for(w)) {
        ssize_t n = read(w->fd, message + len, capacity - len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            break;
        len += (size_t)n;
        if (len < capacity)
            continue;
        if (capacity >= MOST_BYTES)
            break;
        capacity *= 2;
        uint8_t *grown = realloc(message, capacity);
        if (!grown)
            free(message);
        message = grown;
    }
    *bytes = len;
    return message;
}

/* Reaps the child: its end of the pipe is closed, so it has nothing left to do, or it takes too
 * long. False: it did not end by itself, and was killed. */
static bool reap(pid_t child, bool at_once, int *status)
{
    uint64_t until = at_once ? 0 : clock_ns() + END_NS;
    pid_t ended;
    while ((ended = waitpid(child, status, WNOHANG)) == 0 && clock_ns() < until)
        poll(NULL, 0, 1);
    if (ended != 0)
        return true;
    kill(child, SIGKILL);
    while (waitpid(child, status, 0) < 0 && errno == EINTR)
        ;
    return false;
}

/* What its end says, where it has sent no message. */
static enum error_code ended_early(const char *path, int status, const struct wait *w, bool killed,
                                   struct error *e)
{
    int number = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    if (w->end == WAIT_LATE)
        return error_set(e, ERROR_TIMEOUT, "%s: reading its metadata takes too long", path);
    if (w->end == WAIT_STALLED)
        return error_set(e, ERROR_TIMEOUT,
                         "%s: reading its metadata has not gone on for %.3g s: the disk does not "
                         "answer, or the file is damaged or hostile",
                         path, (double)w->task->stall_ns * 1e-9);
    if (killed)
        return error_set(e, ERROR_FORMAT,
                         "%s: reading its metadata does not end: the file is damaged or hostile",
                         path);
    if (number == SIGKILL)
        return error_set(e, ERROR_MEMORY, "%s: the process that reads its metadata was killed",
                         path);
    if (number)
        return error_set(e, ERROR_FORMAT,
                         "%s: reading its metadata ends in %s: the file is damaged or hostile",
                         path, number == SIGXCPU ? "an endless loop" : strsignal(number));
    return error_set(e, ERROR_MEMORY, "%s: no memory to read its metadata", path);
}

/* A message of a child that ran to its end. */
static bool is_message(const void *message, size_t bytes)
{
    const struct model_message *m = message;
    return m && bytes >= sizeof *m && m->magic == MODEL_MESSAGE_MAGIC;
}

static bool is_error_code(uint32_t code)
{
    return code != ERROR_OK && strcmp(error_name((enum error_code)code), "UNKNOWN") != 0;
}

static enum error_code plan(struct gguf *g, struct model_params *params, uint64_t segment_bytes,
                            struct read_model *out, struct error *e)
{
    struct pool_plan plan;
    enum error_code code = model_params_check(params, e);
    if (!code)
        code = pool_plan_new_from(g, params, segment_bytes, &plan, e);
    if (!code)
        *out = (struct read_model){.gguf = g, .plan = plan};
    return code;
}

enum error_code model_reader_take(struct gguf *g, const void *message, size_t bytes,
                                  uint64_t segment_bytes, struct read_model *out, struct error *e)
{
    struct model_message *m = malloc(sizeof *m); /* large; and aligned */
    enum error_code code = ERROR_PROTOCOL;
    if (!m) {
        gguf_close(g);
        return error_set(e, ERROR_MEMORY, "no memory to read a model file");
    }
    if (!is_message(message, bytes)) {
        error_set(e, code, "the process that reads the model's metadata returned no message");
        goto close;
    }
    memcpy(m, message, sizeof *m);
    if (m->code != ERROR_OK) {
        m->text[sizeof m->text - 1] = '\0';
        utf8_hide_controls(m->text, strlen(m->text), "");
        if (is_error_code(m->code) && m->text[0])
            code = error_set(e, (enum error_code)m->code, "%s", m->text);
        else
            error_set(e, code, "the process that reads the model's metadata returned nonsense");
        goto close;
    }
    size_t rest = bytes - sizeof *m, tensor_bytes = sizeof(struct gguf_tensor);
    m->params.arch = architecture_find(m->arch, strnlen(m->arch, sizeof m->arch));
    if (!m->params.arch || rest % tensor_bytes || rest / tensor_bytes != m->parsed.tensor_count) {
        error_set(e, code, "the process that reads the model's metadata returned nonsense");
        goto close;
    }
    struct gguf_tensor *tensors = malloc(rest + 1);
    code = ERROR_MEMORY;
    if (!tensors) {
        error_set(e, code, "no memory for the tensors of a model file");
        goto close;
    }
    memcpy(tensors, (const uint8_t *)message + sizeof *m, rest);
    code = gguf_adopt(g, &m->parsed, tensors, e);
    free(tensors);
    if (!code)
        code = plan(g, &m->params, segment_bytes, out, e);
    if (!code) {
        out->file_type = m->file_type;
        out->fills = m->fills != 0;
    }
close:
    free(m);
    if (code)
        gguf_close(g);
    return code;
}

static enum error_code run_child(const struct task *t, struct gguf *g, const char *path,
                                 uint8_t **message, size_t *bytes, struct error *e)
{
    int ends[2], status = 0;
    pid_t self = getpid(), child = -1;
    if (pipe2(ends, O_CLOEXEC) != 0)
        return error_set(e, ERROR_IO, "%s: cannot be read: pipe: %m", path);
    child = fork();
    if (child == 0) {
        close(ends[0]);
        child_main(t, g, ends[1], self);
    }
    close(ends[1]);
    if (child < 0) {
        close(ends[0]);
        return error_set(e, ERROR_MEMORY, "%s: cannot be read: fork: %m", path);
    }
    struct wait w = {.task = t, .fd = ends[0], .child = child, .since_ns = clock_ns()};
    *message = read_message(&w, bytes);
    close(ends[0]);
    bool killed = !reap(child, w.end != WAIT_ON, &status);
    if (!*message)
        return error_set(e, ERROR_MEMORY, "%s: no memory to read its metadata", path);
    if (is_message(*message, *bytes) && (WIFEXITED(status) || (killed && !w.end)))
        return ERROR_OK;
    free(*message);
    return ended_early(path, status, &w, killed, e);
}

static enum error_code read_by(const struct task *t, const char *path, struct read_model *out,
                               struct error *e)
{
    struct gguf *g;
    uint8_t *message = NULL;
    size_t bytes = 0;
    enum error_code code = gguf_open_unparsed(path, &g, e);
    if (code)
        return code;
    code = run_child(t, g, path, &message, &bytes, e);
    if (code) {
        gguf_close(g);
        return code;
    }
    code = model_reader_take(g, message, bytes, t->segment_bytes, out, e);
    free(message);
    return code;
}

enum error_code model_reader_read_by(model_reader_work *work, const char *path,
                                     uint64_t segment_bytes, uint64_t stall_ns,
                                     struct read_model *out, struct error *e)
{
    const struct task t = {work, segment_bytes, CPU_LIMIT_S, 0, stall_ns};
    return read_by(&t, path, out, e);
}

enum error_code model_reader_describe_by(model_reader_work *work, const char *path,
                                         uint64_t until_ns, struct read_model *out, struct error *e)
{
    const struct task t = {work, POOL_SEGMENT_BYTES, MODEL_READER_BRIEF_S, until_ns,
                           MODEL_READER_STALL_NS};
    return read_by(&t, path, out, e);
}

enum error_code model_reader_read(const char *path, uint64_t segment_bytes, struct read_model *out,
                                  struct error *e)
{
    return model_reader_read_by(model_reader_run, path, segment_bytes, MODEL_READER_STALL_NS, out,
                                e);
}

enum error_code model_reader_describe(const char *path, uint64_t until_ns, struct read_model *out,
                                      struct error *e)
{
    return model_reader_describe_by(model_reader_run_brief, path, until_ns, out, e);
}

void read_model_free(struct read_model *m)
{
    pool_plan_free(&m->plan);
    gguf_close(m->gguf);
    *m = (struct read_model){0};
}
