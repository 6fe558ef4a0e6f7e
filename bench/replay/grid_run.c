/* The jobs of a grid; see grid_run.h. A process computes the jobs of one trace, one machine after
 * the other, because what does not depend on the machine is then computed once (shared.h). */
#include "bench/replay/grid_run.h"

#include "base/clock.h"
#include "base/file_writer.h"
#include "bench/replay/plan.h"
#include "sched/predict/trained.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static void job_path(const struct grid_run *r, const struct grid_job *job, const char *what,
                     char out[PATH_MAX])
{
    char name[160];
    grid_job_name(job, name);
    snprintf(out, PATH_MAX, "%s/jobs/%s.%s", r->folder, name, what);
}

/* ---- What the results depend on ---- */

/* 0: the program's file cannot be read. */
static uint64_t program_hash(void)
{
    static uint64_t hash;
    char bytes[65536];
    size_t n;
    FILE *f = hash ? NULL : fopen("/proc/self/exe", "rbe");
    while (f && (n = fread(bytes, 1, sizeof bytes, f)) > 0)
        hash = trained_hash(hash, bytes, n);
    if (f)
        fclose(f);
    return hash;
}

/* What a job's results depend on beside its name. */
static void first_line(const struct grid_run *r, const struct grid_job *job, char out[4096])
{
    int n = snprintf(out, 4096, "# moed-replay %016" PRIx64 " %s answer %" PRIu32, program_hash(),
                     r->policies, job->answer);
    for (uint32_t i = 0; i < job->n_vram && n < 4000; i++)
        n += snprintf(out + n, 4096 - (size_t)n, " %g", job->vram[i]);
    for (uint32_t i = 0; i < job->n_batch && n < 4000; i++)
        n += snprintf(out + n, 4096 - (size_t)n, " x%" PRIu32, job->batch[i]);
    if (n < 4095)
        memcpy(out + n, "\n", 2);
}

static bool is_done(const struct grid_run *r, const struct grid_job *job)
{
    char path[PATH_MAX], expected[4096], line[4096];
    job_path(r, job, "csv", path);
    first_line(r, job, expected);
    FILE *f = fopen(path, "re");
    bool done = f && fgets(line, sizeof line, f) && strcmp(line, expected) == 0;
    if (f)
        fclose(f);
    return done;
}

/* ---- The jobs of a trace ---- */

static void append_value(struct strbuf *out, double value)
{
    strbuf_printf(out, isfinite(value) ? ",%.17g" : ",", value);
}

static void append_row(const struct replay_result *r, struct strbuf *out)
{
    strbuf_printf(out, "%s,%.17g,%" PRIu32, r->policy, r->vram, r->batch);
    append_value(out, r->decode_tokens_per_s);
    append_value(out, r->prefill_tokens_per_s);
    append_value(out, r->hit_rate);
    append_value(out, r->bound);
    strbuf_printf(out, ",%s\n", r->note); /* it may have commas */
}

/* A job that is not done. */
struct task {
    const struct grid_job *job;
    struct machine machine;
    struct strbuf text; /* of its file */
};

/* The jobs of one trace. */
struct tasks {
    const struct grid_run *run;
    struct task *of; /* [n] */
    uint32_t n;
    struct trace *trace;
    struct replay_plan plan;
    struct shared *shared;
};

/* All budgets and policies of one job and batch. */
static enum error_code run_batch(struct tasks *t, struct task *task, uint32_t batch,
                                 struct error *e)
{
    const struct grid_job *job = task->job;
    const struct replay_run run = {.trace = t->trace,
                                   .machine = &task->machine,
                                   .shared = t->shared,
                                   .max_tokens = (uint64_t)grid_sequences(batch) *
                                                 (job->prompt + job->answer)};
    memcpy(t->plan.vram, job->vram, sizeof job->vram);
    t->plan.n_vram = job->n_vram;
    t->plan.batch[0] = batch;
    t->plan.n_batch = 1;
    struct replay_result *results = calloc(plan_size(&t->plan), sizeof *results);
    if (!results)
        return error_set(e, ERROR_MEMORY, "out of memory");
    enum error_code code = plan_run(&t->plan, &run, replay_simulate, NULL, NULL, results, e);
    for (uint32_t k = 0; k < plan_size(&t->plan) && !code; k++)
        append_row(&results[k], &task->text);
    free(results);
    return code;
}

static enum error_code run_batches(struct tasks *t, struct error *e)
{
    enum error_code code = ERROR_OK;
    for (uint32_t b = 0; b < t->of[0].job->n_batch; b++)
        for (uint32_t i = 0; i < t->n && !code; i++)
            code = run_batch(t, &t->of[i], t->of[i].job->batch[b], e);
    return code;
}

/* The trace is removed at once; it stays open. */
static enum error_code make_trace(struct tasks *t, struct error *e)
{
    char path[PATH_MAX];
    struct synthesis synthesis = grid_synthesis(t->of[0].job);
    job_path(t->run, t->of[0].job, "trace", path);
    enum error_code code = synthesize(&synthesis, path, e);
    if (!code)
        code = trace_open(path, &t->trace, e);
    unlink(path);
    return code;
}

static enum error_code make_plan(struct tasks *t, struct error *e)
{
    const struct trace_shape *s = trace_shape(t->trace);
    const struct predict_shape shape = {.n_layers = s->n_layers,
                                        .first_layer = s->first_layer,
                                        .n_experts = s->n_experts,
                                        .n_used = s->n_used,
                                        .d_model = s->d_model};
    struct strbuf settled;
    strbuf_init(&settled);
    enum error_code code = plan_policies(&t->plan, t->run->policies, e);
    if (!code)
        code = plan_settle_predictors(&t->plan, &shape, &settled, e);
    for (uint32_t i = 0; i < t->n && !code; i++)
        code = machine_find(t->of[i].job->machine, &t->of[i].machine, e);
    strbuf_fini(&settled);
    return code;
}

static enum error_code write_results(struct tasks *t, struct error *e)
{
    enum error_code code = ERROR_OK;
    for (uint32_t i = 0; i < t->n && !code; i++) {
        char path[PATH_MAX];
        job_path(t->run, t->of[i].job, "csv", path);
        code = file_write_text(path, &t->of[i].text, e);
    }
    return code;
}

static enum error_code take_jobs(struct tasks *t, const struct grid_job *jobs, uint32_t n,
                                 struct error *e)
{
    char line[4096];
    t->of = calloc(n, sizeof *t->of);
    t->shared = shared_new();
    if (!t->of || !t->shared)
        return error_set(e, ERROR_MEMORY, "out of memory");
    for (uint32_t i = 0; i < n; i++) {
        if (is_done(t->run, &jobs[i]))
            continue;
        struct task *task = &t->of[t->n++];
        task->job = &jobs[i];
        strbuf_init(&task->text);
        first_line(t->run, &jobs[i], line);
        strbuf_printf(&task->text, "%s", line);
    }
    return ERROR_OK;
}

/* Computes those of n jobs of one trace that are not done. */
static enum error_code run_jobs(const struct grid_run *r, const struct grid_job *jobs, uint32_t n,
                                struct error *e)
{
    struct tasks *t = calloc(1, sizeof *t);
    if (!t)
        return error_set(e, ERROR_MEMORY, "out of memory");
    t->run = r;
    enum error_code code = take_jobs(t, jobs, n, e);
    if (!code && t->n) {
        code = make_trace(t, e);
        if (!code)
            code = make_plan(t, e);
        if (!code)
            code = run_batches(t, e);
        if (!code)
            code = write_results(t, e);
    }
    trace_close(t->trace);
    shared_free(t->shared);
    for (uint32_t i = 0; i < t->n; i++)
        strbuf_fini(&t->of[i].text);
    free(t->of);
    free(t);
    return code;
}

/* ---- All jobs ---- */

/* The exit code says what failed; the child has printed the reason. */
static int run_child(const struct grid_run *r, const struct grid_job *jobs, uint32_t n,
                     pid_t parent)
{
    struct error e = {0};
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) /* it died before the line above */
        return 1;
    if (!run_jobs(r, jobs, n, &e))
        return 0;
    fprintf(stderr, "%smoed-replay: %s\n", isatty(STDERR_FILENO) ? "\n" : "", e.text);
    return 1;
}

struct progress {
    uint32_t done, at_start, of;
    uint64_t began_ns;
};

/* Without a terminal: a line for each hundred jobs. */
static void show_progress(const struct progress *p, uint32_t before)
{
    double took_s = (double)(clock_ns() - p->began_ns) * 1e-9;
    double left_s =
        p->done > p->at_start ? took_s * (p->of - p->done) / (double)(p->done - p->at_start) : NAN;
    bool terminal = isatty(STDERR_FILENO);
    if (!terminal && p->done / 100 == before / 100 && p->done != p->of)
        return;
    fprintf(stderr, "%s%" PRIu32 "/%" PRIu32 " jobs", terminal ? "\r\033[K" : "", p->done, p->of);
    if (isfinite(left_s) && p->done < p->of)
        fprintf(stderr, ", %.0f min left", ceil(left_s / 60));
    fprintf(stderr, terminal && p->done < p->of ? "" : "\n");
}

/* A process that computes jobs of one trace. */
struct child {
    pid_t pid;
    uint32_t n_jobs; /* not done when it began */
};

struct children {
    struct child *of; /* [n_processes]; the first `n` run */
    uint32_t n;
};

/* Removes a child that has ended and returns how many jobs it has done. */
static uint32_t forget_child(struct children *c, pid_t pid)
{
    uint32_t i = 0;
    while (i < c->n && c->of[i].pid != pid)
        i++;
    if (i == c->n)
        return 0;
    uint32_t n_jobs = c->of[i].n_jobs;
    c->of[i] = c->of[--c->n];
    return n_jobs;
}

static enum error_code wait_for_one(struct children *c, struct progress *p, bool *failed,
                                    struct error *e)
{
    int status;
    pid_t pid;
    do
        pid = wait(&status);
    while (pid < 0 && errno == EINTR);
    if (pid < 0)
        return error_set(e, ERROR_IO, "wait: %m");
    uint32_t n_jobs = forget_child(c, pid), before = p->done;
    *failed |= !WIFEXITED(status) || WEXITSTATUS(status) != 0;
    if (WIFSIGNALED(status))
        fprintf(stderr, "moed-replay: a job ended by signal %d\n", WTERMSIG(status));
    p->done += *failed ? 0 : n_jobs;
    show_progress(p, before);
    return ERROR_OK;
}

/* The jobs from `first` that one trace serves. *n_open: those that are not done. */
static uint32_t count_same_trace(const struct grid_run *r, uint32_t first, uint32_t *n_open)
{
    const struct grid_job *jobs = r->grid->jobs;
    uint32_t n = 0;
    *n_open = 0;
    for (; first + n < r->grid->n_jobs && grid_same_trace(&jobs[first], &jobs[first + n]); n++)
        *n_open += !is_done(r, &jobs[first + n]);
    return n;
}

static enum error_code start_jobs(const struct grid_run *r, struct children *c,
                                  const struct grid_job *jobs, uint32_t n, uint32_t n_open,
                                  struct error *e)
{
    pid_t parent = getpid(), pid = fork();
    if (pid == 0)
        _exit(run_child(r, jobs, n, parent));
    if (pid < 0)
        return error_set(e, ERROR_IO, "fork: %m");
    c->of[c->n++] = (struct child){pid, n_open};
    return ERROR_OK;
}

/* Runs all jobs that are not done. */
static enum error_code run_all(const struct grid_run *r, struct children *c, struct progress *p,
                               bool *failed, struct error *e)
{
    enum error_code code = ERROR_OK;
    uint32_t next = 0, n, n_open;
    while (!code) {
        if (next < r->grid->n_jobs && c->n < r->n_processes && !*failed) {
            n = count_same_trace(r, next, &n_open);
            if (n_open)
                code = start_jobs(r, c, &r->grid->jobs[next], n, n_open, e);
            next += n;
        } else if (c->n) {
            code = wait_for_one(c, p, failed, e);
        } else {
            break;
        }
    }
    return code;
}

static enum error_code make_folder(const char *path, struct error *e)
{
    return mkdir(path, 0777) == 0 || errno == EEXIST
               ? ERROR_OK
               : error_set(e, ERROR_IO, "%.300s: cannot be created: %m", path);
}

enum error_code grid_run(const struct grid_run *r, struct error *e)
{
    char path[PATH_MAX];
    bool failed = false;
    struct children children = {.of = calloc(r->n_processes, sizeof *children.of)};
    struct progress p = {.of = r->grid->n_jobs, .began_ns = clock_ns()};
    snprintf(path, sizeof path, "%s/jobs", r->folder);
    enum error_code code =
        children.of ? make_folder(r->folder, e) : error_set(e, ERROR_MEMORY, "out of memory");
    if (!code)
        code = make_folder(path, e);
    fflush(NULL); /* a child has no text of its own to print */
    for (uint32_t i = 0; i < r->grid->n_jobs; i++)
        p.at_start += is_done(r, &r->grid->jobs[i]);
    p.done = p.at_start;
    if (!code)
        code = run_all(r, &children, &p, &failed, e);
    free(children.of);
    if (!code && failed)
        code =
            error_set(e, ERROR_IO, "%.300s: a job failed; the same command continues", r->folder);
    return code;
}

/* ---- Reading ---- */

static double parse_value(char **rest)
{
    const char *text = strsep(rest, ",");
    return text && *text ? strtod(text, NULL) : NAN;
}

/* False: the line is not whole. */
static bool parse_row(char *line, struct replay_result *out)
{
    char *rest = line;
    const char *policy = strsep(&rest, ",");
    *out = (struct replay_result){.vram = parse_value(&rest)};
    double batch = parse_value(&rest);
    out->batch = batch >= 1 && batch < UINT32_MAX ? (uint32_t)batch : 0;
    out->decode_tokens_per_s = parse_value(&rest);
    out->prefill_tokens_per_s = parse_value(&rest);
    out->hit_rate = parse_value(&rest);
    out->bound = parse_value(&rest);
    if (!rest || !out->batch)
        return false;
    snprintf(out->policy, sizeof out->policy, "%s", policy);
    snprintf(out->note, sizeof out->note, "%s", rest);
    return true;
}

struct rows {
    struct grid_row *rows;
    uint32_t n, capacity;
};

static bool add_row(struct rows *r, const struct grid_job *job, const struct replay_result *result)
{
    if (r->n == r->capacity) {
        uint32_t capacity = 2 * r->capacity + 1024;
        struct grid_row *more = realloc(r->rows, capacity * sizeof *more);
        if (!more)
            return false;
        r->rows = more;
        r->capacity = capacity;
    }
    r->rows[r->n++] = (struct grid_row){job, *result};
    return true;
}

static enum error_code read_job(const struct grid_run *run, const struct grid_job *job,
                                struct rows *rows, struct error *e)
{
    char path[PATH_MAX], line[4096];
    struct replay_result result;
    job_path(run, job, "csv", path);
    FILE *f = fopen(path, "re");
    if (!f)
        return error_set(e, ERROR_IO, "%.300s: %m", path);
    enum error_code code = ERROR_OK;
    while (!code && fgets(line, sizeof line, f)) {
        line[strcspn(line, "\n")] = '\0';
        if (line[0] == '#')
            continue;
        if (!parse_row(line, &result))
            code = error_set(e, ERROR_FORMAT, "%.300s: damaged; remove it and run again", path);
        else if (!add_row(rows, job, &result))
            code = error_set(e, ERROR_MEMORY, "no memory for the results");
    }
    fclose(f);
    return code;
}

enum error_code grid_read(const struct grid_run *run, struct grid_row **out, uint32_t *n_rows,
                          struct error *e)
{
    struct rows rows = {0};
    enum error_code code = ERROR_OK;
    for (uint32_t i = 0; i < run->grid->n_jobs && !code; i++)
        code = read_job(run, &run->grid->jobs[i], &rows, e);
    if (code) {
        free(rows.rows);
        return code;
    }
    *out = rows.rows;
    *n_rows = rows.n;
    return ERROR_OK;
}
