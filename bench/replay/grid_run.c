/* The jobs of a grid; see grid_run.h. A process computes one job. */
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

/* ---- One job ---- */

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

static enum error_code run_plan(struct replay_plan *plan, const struct trace *t,
                                const struct machine *m, const struct grid_job *job,
                                struct strbuf *out, struct error *e)
{
    enum error_code code = ERROR_OK;
    struct replay_result *results = calloc(plan_size(plan), sizeof *results);
    if (!results)
        return error_set(e, ERROR_MEMORY, "out of memory");
    for (uint32_t i = 0; i < job->n_batch && !code; i++) {
        const struct replay_run run = {.trace = t,
                                       .machine = m,
                                       .max_tokens = (uint64_t)grid_sequences(job->batch[i]) *
                                                     (job->prompt + job->answer)};
        plan->batch[0] = job->batch[i];
        code = plan_run(plan, &run, replay_simulate, NULL, NULL, results, e);
        for (uint32_t k = 0; k < plan_size(plan) && !code; k++)
            append_row(&results[k], out);
    }
    free(results);
    return code;
}

static enum error_code run_trace(const struct grid_run *r, const struct grid_job *job,
                                 const struct trace *t, struct strbuf *out, struct error *e)
{
    const struct trace_shape *s = trace_shape(t);
    const struct predict_shape shape = {.n_layers = s->n_layers,
                                        .first_layer = s->first_layer,
                                        .n_experts = s->n_experts,
                                        .n_used = s->n_used,
                                        .d_model = s->d_model};
    struct replay_plan *plan = calloc(1, sizeof *plan);
    struct machine machine;
    struct strbuf settled;
    if (!plan)
        return error_set(e, ERROR_MEMORY, "out of memory");
    strbuf_init(&settled);
    enum error_code code = plan_policies(plan, r->policies, e);
    if (!code)
        code = plan_settle_predictors(plan, &shape, &settled, e);
    if (!code)
        code = machine_find(job->machine, &machine, e);
    memcpy(plan->vram, job->vram, sizeof job->vram);
    plan->n_vram = job->n_vram;
    plan->n_batch = 1;
    if (!code)
        code = run_plan(plan, t, &machine, job, out, e);
    strbuf_fini(&settled);
    free(plan);
    return code;
}

static enum error_code run_job(const struct grid_run *r, const struct grid_job *job,
                               struct error *e)
{
    char path[PATH_MAX], line[4096];
    struct synthesis synthesis = grid_synthesis(job);
    struct trace *t = NULL;
    struct strbuf text;
    strbuf_init(&text);
    first_line(r, job, line);
    strbuf_printf(&text, "%s", line);
    job_path(r, job, "trace", path);
    enum error_code code = synthesize(&synthesis, path, e);
    if (!code)
        code = trace_open(path, &t, e);
    unlink(path);
    if (!code)
        code = run_trace(r, job, t, &text, e);
    trace_close(t);
    job_path(r, job, "csv", path);
    if (!code)
        code = file_write_text(path, &text, e);
    strbuf_fini(&text);
    return code;
}

/* ---- All jobs ---- */

/* The exit code says what failed; the child has printed the reason. */
static int run_child(const struct grid_run *r, const struct grid_job *job, pid_t parent)
{
    struct error e = {0};
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) /* it died before the line above */
        return 1;
    if (!run_job(r, job, &e))
        return 0;
    fprintf(stderr, "%smoed-replay: %s\n", isatty(STDERR_FILENO) ? "\n" : "", e.text);
    return 1;
}

struct progress {
    uint32_t done, at_start, of;
    uint64_t began_ns;
};

static void show_progress(const struct progress *p)
{
    double took_s = (double)(clock_ns() - p->began_ns) * 1e-9;
    double left_s =
        p->done > p->at_start ? took_s * (p->of - p->done) / (double)(p->done - p->at_start) : NAN;
    bool terminal = isatty(STDERR_FILENO);
    if (!terminal && p->done % 100 && p->done != p->of)
        return;
    fprintf(stderr, "%s%" PRIu32 "/%" PRIu32 " jobs", terminal ? "\r\033[K" : "", p->done, p->of);
    if (isfinite(left_s) && p->done < p->of)
        fprintf(stderr, ", %.0f min left", ceil(left_s / 60));
    fprintf(stderr, terminal && p->done < p->of ? "" : "\n");
}

static enum error_code wait_for_one(bool *failed, struct error *e)
{
    int status;
    pid_t pid;
    do
        pid = wait(&status);
    while (pid < 0 && errno == EINTR);
    if (pid < 0)
        return error_set(e, ERROR_IO, "wait: %m");
    *failed |= !WIFEXITED(status) || WEXITSTATUS(status) != 0;
    if (WIFSIGNALED(status))
        fprintf(stderr, "moed-replay: a job ended by signal %d\n", WTERMSIG(status));
    return ERROR_OK;
}

static enum error_code start_job(const struct grid_run *r, const struct grid_job *job,
                                 struct error *e)
{
    pid_t parent = getpid(), pid = fork();
    if (pid == 0)
        _exit(run_child(r, job, parent));
    return pid > 0 ? ERROR_OK : error_set(e, ERROR_IO, "fork: %m");
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
    uint32_t running = 0, next = 0;
    struct progress p = {.of = r->grid->n_jobs, .began_ns = clock_ns()};
    snprintf(path, sizeof path, "%s/jobs", r->folder);
    enum error_code code = make_folder(r->folder, e);
    if (!code)
        code = make_folder(path, e);
    fflush(NULL); /* a child has no text of its own to print */
    for (uint32_t i = 0; i < r->grid->n_jobs; i++)
        p.at_start += is_done(r, &r->grid->jobs[i]);
    p.done = p.at_start;
    while (!code && (next < r->grid->n_jobs || running)) {
        while (next < r->grid->n_jobs && is_done(r, &r->grid->jobs[next]))
            next++;
        if (next < r->grid->n_jobs && running < r->n_processes && !failed) {
            code = start_job(r, &r->grid->jobs[next++], e);
            running += !code;
            continue;
        }
        if (!running)
            break;
        code = wait_for_one(&failed, e);
        running--;
        p.done += !failed;
        show_progress(&p);
    }
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
