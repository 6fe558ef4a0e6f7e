/* moed-replay TRACE: simulates policies and prints the table. */
#include "bench/replay/commands.h"
#include "bench/replay/machine_calibration.h"
#include "bench/replay/plan.h"
#include "bench/replay/predicting.h"
#include "bench/replay/report.h"
#include "bench/replay/steps.h"
#include "bench/replay/trained_file.h"

#include "base/file_writer.h"
#include "base/quantity.h"
#include "daemon/options.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

struct request {
    const char *policies, *vram, *batch, *machine, *csv, *html, *outside, *predictors_path;
    struct trained_file predictors;
    uint64_t tokens, prompt, chunk, predict_tokens, half_life;
    const char *path;
    struct replay_plan plan;
    struct strbuf command;
    /* the simulated machine */
    struct machine on;
    struct sched_costs costs;
    bool calibrated; /* costs is set */
};

/* ---- Options ---- */

static void print_help(const struct option_spec *options)
{
    options_print_help(
        options, "moed-replay", "TRACE [OPTION]...",
        "Simulates policies on a routing trace, in virtual time, on the cost model of a\n"
        "machine. Also: moed-replay --list, moed-replay --synthesize --help,\n"
        "moed-replay --fit --help, moed-replay --accuracy --help.");
    printf("A report over a grid of traces and machines: moed-replay --report --help.\n\n");
    options_print_list("policies: ", sched_policy_names_any());
    options_print_list("machines: ", machine_names());
}

/* -1: go on; else the exit code. */
static int parse(struct request *r, int argc, char **argv, struct error *e)
{
    const struct option_spec options[] = {
        {"policies", OPTION_STRING, &r->policies, 0, 0, "LIST",
         "all, or names; replace parts: moed/cache=lru/predictor=none"},
        {"vram", OPTION_STRING, &r->vram, 0, 0, "LIST",
         "shares of the routed experts that the device holds: 10%,25%,50%"},
        {"batch", OPTION_STRING, &r->batch, 0, 0, "LIST", "sequences at once: 1,4,16"},
        {"machine", OPTION_STRING, &r->machine, 0, 0, "NAME",
         "a built-in machine, a file, or calibration:FILE"},
        {"outside", OPTION_STRING, &r->outside, 0, 0, "TIME",
         "with calibration: a step's time outside the routed experts: 12ms"},
        {"tokens", OPTION_UINT, &r->tokens, 0, 0, "N", "replay N tokens of the trace; 0: all"},
        {"prompt", OPTION_UINT, &r->prompt, 0, UINT32_MAX, "N",
         "length of each sequence's prompt; 0: as recorded"},
        {"chunk", OPTION_UINT, &r->chunk, 1, 1u << 16, "N",
         "tokens of a prompt in one step, as a worker's --batch"},
        {"predict-tokens", OPTION_UINT, &r->predict_tokens, 1, PREDICTING_MAX_TOKENS, "N",
         "predict in steps of at most N tokens: 32 as a worker, to 512 for prompts"},
        {"half-life", OPTION_UINT, &r->half_life, 0, 1u << 20, "N",
         "a fixed half-life of cache `value`, in steps, without its fit of the "
         "last turn; 0: it adapts"},
        {"predictors", OPTION_STRING, &r->predictors_path, 0, 0, "FILE",
         "trained predictors (`moed train`); without them promoe uses next-gate "
         "and prescope expert-map"},
        {"csv", OPTION_STRING, &r->csv, 0, 0, "FILE", "also write all figures to FILE"},
        {"html", OPTION_STRING, &r->html, 0, 0, "FILE", "also write a page of plots to FILE"},
        {0},
    };
    if (options_wants_help(argc, argv)) {
        print_help(options);
        return 0;
    }
    strbuf_printf(&r->command, "moed-replay");
    for (int i = 1; i < argc; i++)
        strbuf_printf(&r->command, " %s", argv[i]);
    int n = 0;
    enum error_code code = options_parse(options, argc, argv, &n, e);
    if (!code && n != 1)
        code = error_set(e, ERROR_USAGE,
                         n ? "only one trace is allowed; see --help"
                           : "the trace is missing; see --help");
    if (!code)
        code = plan_policies(&r->plan, r->policies, e);
    if (!code)
        code = plan_vram(&r->plan, r->vram, e);
    if (!code)
        code = plan_batch(&r->plan, r->batch, e);
    r->path = argc > 1 ? argv[1] : NULL;
    return code ? command_failed(e) : -1;
}

static enum error_code find_machine(struct request *r, struct error *e)
{
    static const char calibration[] = "calibration:";
    r->calibrated = strncmp(r->machine, calibration, strlen(calibration)) == 0;
    if (r->calibrated)
        return machine_from_calibration(r->machine + strlen(calibration), &r->on, &r->costs, e);
    if (r->outside)
        return error_set(e, ERROR_USAGE,
                         "--outside goes with --machine calibration:FILE; a machine file has its "
                         "own figures");
    return machine_find(r->machine, &r->on, e);
}

/* Spreads --outside, the time of a step outside the experts, over the layers. It replaces the
 * machine's value. */
static enum error_code set_outside(struct request *r, uint32_t n_layers, struct error *e)
{
    static const struct quantity_unit times[] = {
        {"s", 1}, {"ms", 1e-3}, {"us", 1e-6}, {"ns", 1e-9}, {NULL, 0}};
    double outside_s;
    if (!r->outside)
        return ERROR_OK;
    if (!quantity_parse(r->outside, strlen(r->outside), times, &outside_s))
        return error_set(e, ERROR_USAGE,
                         "--outside: \"%.60s\" is not a time; allowed units: s, ms, us, ns",
                         r->outside);
    r->on.attention_s = outside_s / n_layers;
    r->on.device_bytes_per_s = r->on.device_flop_per_s = INFINITY;
    return ERROR_OK;
}

/* ---- Output ---- */

static uint32_t terminal_width(void)
{
    struct winsize size;
    return isatty(STDOUT_FILENO) && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

static void show_progress(void *arg, uint32_t done, uint32_t of, const struct replay_run *next)
{
    if (isatty(STDERR_FILENO))
        fprintf(stderr, "\r\033[K%" PRIu32 "/%" PRIu32 " %s, vram %.4g %%, batch %" PRIu32,
                done + 1, of, next->policy->name, 100 * next->vram, next->batch);
}

static void end_progress(void)
{
    if (isatty(STDERR_FILENO))
        fprintf(stderr, "\r\033[K");
}

typedef void writer(const struct replay_report *r, struct strbuf *out);

static enum error_code write_file(const char *path, writer *write, const struct replay_report *r,
                                  struct error *e)
{
    struct strbuf text;
    if (!path)
        return ERROR_OK;
    strbuf_init(&text);
    write(r, &text);
    enum error_code code = file_write_text(path, &text, e);
    strbuf_fini(&text);
    return code;
}

static enum error_code print_table(const struct replay_report *r, struct error *e)
{
    struct strbuf text;
    strbuf_init(&text);
    report_table(r, terminal_width(), &text);
    bool ok =
        !text.failed && fwrite(text.data, 1, text.len, stdout) == text.len && fflush(stdout) == 0;
    strbuf_fini(&text);
    return ok ? ERROR_OK : error_set(e, ERROR_IO, "standard output: %m");
}

static enum error_code report(const struct request *r, const struct trace *t,
                              const struct replay_result *results, struct error *e)
{
    char words[512];
    snprintf(words, sizeof words, "%.400s, %" PRIu64 " tokens of %" PRIu32 " sequences", r->path,
             trace_tokens(t), trace_sequences(t));
    struct replay_report report = {.model = trace_shape(t)->model,
                                   .trace = words,
                                   .machine = r->on.name,
                                   .machine_what = r->on.what,
                                   .command = r->command.data ? r->command.data : "",
                                   .results = results,
                                   .n_results = plan_size(&r->plan),
                                   .without_solver = r->plan.without_solver};
    enum error_code code = print_table(&report, e);
    if (!code)
        code = write_file(r->csv, report_csv, &report, e);
    if (!code)
        code = write_file(r->html, report_html, &report, e);
    return code;
}

static enum error_code settle_predictors(struct request *r, const struct trace *t, struct error *e)
{
    struct predict_shape shape = trained_file_shape(t);
    struct strbuf settled;
    shape.trained = r->predictors_path ? &r->predictors.view : NULL;
    strbuf_init(&settled);
    enum error_code code = plan_settle_predictors(&r->plan, &shape, &settled, e);
    if (!code && settled.len)
        fprintf(stderr,
                "moed-replay: the predictor has to be trained (`moed train`), and %s: this run "
                "uses %s\n",
                r->predictors_path ? "the file of --predictors lacks it"
                                   : "there is no --predictors",
                settled.data);
    strbuf_fini(&settled);
    return code;
}

/* Predictors that evaluate gates cannot predict for tokens without gate inputs. Other predictors
 * can. */
static void warn_of_hidden(const struct trace *t)
{
    uint64_t kept = 0;
    uint32_t n;
    for (uint32_t i = 0; i < trace_sequences(t); i++) {
        trace_hidden_tokens(t, i, &n);
        kept += n;
    }
    if (kept < trace_tokens(t))
        fprintf(stderr,
                "moed-replay: the trace has the gates' inputs of %" PRIu64 " of %" PRIu64
                " tokens: policies that predict from them predict nothing for the others (moed "
                "profile --hidden all)\n",
                kept, trace_tokens(t));
}

static enum error_code replay(const struct request *r, const struct trace *t, struct error *e)
{
    for (uint32_t i = 0; i < r->plan.n_batch; i++) { /* before the first long run */
        enum error_code code = replay_check_batch(t, r->plan.batch[i], e);
        if (code)
            return code;
    }
    warn_of_hidden(t);
    struct replay_result *results = calloc(plan_size(&r->plan), sizeof *results);
    struct shared *shared = shared_new();
    if (!results || !shared) {
        free(results);
        shared_free(shared);
        return error_set(e, ERROR_MEMORY, "out of memory");
    }
    const struct replay_run run = {.trace = t,
                                   .shared = shared,
                                   .machine = &r->on,
                                   .costs = r->calibrated ? &r->costs : NULL,
                                   .predictors = r->predictors_path ? &r->predictors.view : NULL,
                                   .max_tokens = r->tokens,
                                   .prompt = (uint32_t)r->prompt,
                                   .chunk = (uint32_t)r->chunk,
                                   .predict_tokens = (uint32_t)r->predict_tokens,
                                   .half_life = (double)r->half_life};
    enum error_code code =
        plan_run(&r->plan, &run, replay_simulate, show_progress, NULL, results, e);
    end_progress();
    shared_free(shared);
    if (!code)
        code = report(r, t, results, e);
    free(results);
    return code;
}

int command_replay(int argc, char **argv)
{
    struct request r = {.policies = "all",
                        .vram = "25%",
                        .batch = "1",
                        .machine = "desktop",
                        .chunk = STEPS_CHUNK,
                        .predict_tokens = REPLAY_PREDICT_TOKENS};
    struct error e = {0};
    struct trace *t = NULL;
    int exit_code = parse(&r, argc, argv, &e);
    if (exit_code < 0) {
        enum error_code code = find_machine(&r, &e);
        if (!code)
            code = trace_open(r.path, &t, &e);
        if (!code && r.predictors_path)
            code = trained_file_open(r.predictors_path, t, &r.predictors, &e);
        if (!code)
            code = settle_predictors(&r, t, &e);
        if (!code)
            code = set_outside(&r, trace_shape(t)->n_layers, &e);
        if (!code)
            code = replay(&r, t, &e);
        trace_close(t);
        exit_code = code ? command_failed(&e) : 0;
    }
    trained_file_close(&r.predictors);
    strbuf_fini(&r.command);
    return exit_code;
}
