/* moed-replay TRACE: the table. */
#include "bench/replay/commands.h"
#include "bench/replay/machine_calibration.h"
#include "bench/replay/plan.h"
#include "bench/replay/predicting.h"
#include "bench/replay/report.h"

#include "base/file_map.h"
#include "base/file_writer.h"
#include "base/quantity.h"
#include "daemon/options.h"
#include "sched/learned.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

struct request {
    const char *policies, *vram, *batch, *machine, *csv, *html, *outside, *learned_path;
    struct file_map learned_file;
    struct sched_learned learned;
    uint64_t tokens, prompt, predict_tokens;
    const char *path;
    struct replay_plan plan;
    struct strbuf command;
    /* where it is replayed */
    struct machine on;
    struct sched_costs costs;
    bool calibrated; /* costs is set */
};

/* ---- Options ---- */

static void print_help(const struct option_spec *options)
{
    options_print_help(
        options, "moed-replay", "TRACE [OPTION]...",
        "Runs policies over a routing trace in virtual time, on the cost model of a "
        "machine.\nAlso: moed-replay --synthesize --help, moed-replay --fit --help.");
    printf("\npolicies: %s\nmachines: %s\n", sched_policy_names_any(), machine_names());
}

/* -1: go on; else the exit code. */
static int parse(struct request *r, int argc, char **argv, struct error *e)
{
    const struct option_spec options[] = {
        {"policies", OPTION_STRING, &r->policies, 0, 0, "LIST",
         "all, or names, with other parts: moed/cache=lru/predictor=none"},
        {"vram", OPTION_STRING, &r->vram, 0, 0, "LIST",
         "shares of the routed experts that the device holds: 10%,25%,50%"},
        {"batch", OPTION_STRING, &r->batch, 0, 0, "LIST", "sequences at once: 1,4,16"},
        {"machine", OPTION_STRING, &r->machine, 0, 0, "NAME",
         "built in, a file, or calibration:FILE"},
        {"outside", OPTION_STRING, &r->outside, 0, 0, "TIME",
         "with calibration: of a step, outside of the routed experts: 12ms"},
        {"tokens", OPTION_UINT, &r->tokens, 0, 0, "N", "of the trace; 0: all"},
        {"prompt", OPTION_UINT, &r->prompt, 0, UINT32_MAX, "N",
         "tokens of each sequence that are computed together; 0: as recorded"},
        {"predict-tokens", OPTION_UINT, &r->predict_tokens, 1, PREDICTING_MAX_TOKENS, "N",
         "steps of more predict nothing: a worker's 32, or up to 512 to predict in prompts too"},
        {"learned", OPTION_STRING, &r->learned_path, 0, 0, "FILE",
         "what `moed train` wrote for the model; without it promoe predicts with next-gate, prescope with expert-map"},
        {"csv", OPTION_STRING, &r->csv, 0, 0, "FILE", "write all figures there too"},
        {"html", OPTION_STRING, &r->html, 0, 0, "FILE", "write a page of plots there too"},
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
        code =
            error_set(e, ERROR_USAGE,
                      n ? "one trace at a time; see --help" : "the trace is missing; see --help");
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

/* What a step takes beside the experts, spread over the layers: in place of what the machine would take. */
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

static enum error_code store(const char *path, const struct strbuf *text, struct error *e)
{
    struct file_writer *file;
    if (text->failed)
        return error_set(e, ERROR_MEMORY, "%.200s: out of memory", path);
    enum error_code code = file_writer_open(path, &file, e);
    if (code)
        return code;
    code = file_writer_write(file, text->data, text->len, e);
    if (!code)
        return file_writer_finish(file, e);
    file_writer_abandon(file);
    return code;
}

static enum error_code write_file(const char *path, writer *write, const struct replay_report *r,
                                  struct error *e)
{
    struct strbuf text;
    if (!path)
        return ERROR_OK;
    strbuf_init(&text);
    write(r, &text);
    enum error_code code = store(path, &text, e);
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
                                   .n_results = plan_size(&r->plan)};
    enum error_code code = print_table(&report, e);
    if (!code)
        code = write_file(r->csv, report_csv, &report, e);
    if (!code)
        code = write_file(r->html, report_html, &report, e);
    return code;
}

static struct predict_shape shape_of(const struct trace *t)
{
    const struct trace_shape *s = trace_shape(t);
    return (struct predict_shape){.n_layers = s->n_layers,
                                  .first_layer = s->first_layer,
                                  .n_experts = s->n_experts,
                                  .n_used = s->n_used,
                                  .d_model = s->d_model};
}

/* As in a learned file; 0: the trace has none. */
static uint64_t hash_routers(const struct trace *t)
{
    const struct trace_shape *s = trace_shape(t);
    uint64_t hash = 0;
    for (uint32_t l = s->first_layer; s->has & TRACE_ROUTERS && l < s->n_layers; l++)
        hash = learned_hash(hash, trace_layer(t, l)->matrix,
                            (size_t)s->n_experts * s->d_model * sizeof(float));
    return hash;
}

static enum error_code open_learned(struct request *r, const struct trace *t, struct error *e)
{
    char why[LEARNED_WHY];
    if (!r->learned_path)
        return ERROR_OK;
    const struct learned_model model = {
        .name = trace_shape(t)->model, .shape = shape_of(t), .routers = hash_routers(t)};
    enum error_code code =
        file_map_open(r->learned_path, "a file of `moed train`", &r->learned_file, e);
    if (!code && (!learned_view(r->learned_file.data, r->learned_file.bytes, &r->learned, why) ||
                  !learned_fits(&r->learned, &model, why)))
        code = error_set(e, ERROR_FORMAT, "%.200s: %s", r->learned_path, why);
    return code;
}

static enum error_code settle_predictors(struct request *r, const struct trace *t, struct error *e)
{
    struct predict_shape shape = shape_of(t);
    struct strbuf settled;
    shape.learned = r->learned_path ? &r->learned : NULL;
    strbuf_init(&settled);
    enum error_code code = plan_settle_predictors(&r->plan, &shape, &settled, e);
    if (!code && settled.len)
        fprintf(stderr,
                "moed-replay: the predictor has to be trained (`moed train`), and %s: until then %s\n",
                r->learned_path ? "--learned has nothing of it" : "there is no --learned",
                settled.data);
    strbuf_fini(&settled);
    return code;
}

/* Predictors through gates say nothing of the other tokens, those that need no inputs do. */
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
    for (uint32_t i = 0; i < r->plan.n_batch; i++) { /* before hours of the others */
        enum error_code code = replay_check_batch(t, r->plan.batch[i], e);
        if (code)
            return code;
    }
    warn_of_hidden(t);
    struct replay_result *results = calloc(plan_size(&r->plan), sizeof *results);
    if (!results)
        return error_set(e, ERROR_MEMORY, "out of memory");
    const struct replay_run run = {.trace = t,
                                   .machine = &r->on,
                                   .costs = r->calibrated ? &r->costs : NULL,
                                   .learned = r->learned_path ? &r->learned : NULL,
                                   .max_tokens = r->tokens,
                                   .prompt = (uint32_t)r->prompt,
                                   .predict_tokens = (uint32_t)r->predict_tokens};
    enum error_code code =
        plan_run(&r->plan, &run, replay_simulate, show_progress, NULL, results, e);
    end_progress();
    if (!code)
        code = report(r, t, results, e);
    free(results);
    return code;
}

int command_replay(int argc, char **argv)
{
    struct request r = {.policies = "all", .vram = "25%", .batch = "1", .machine = "desktop",
                        .predict_tokens = REPLAY_PREDICT_TOKENS};
    struct error e = {0};
    struct trace *t = NULL;
    int exit_code = parse(&r, argc, argv, &e);
    if (exit_code < 0) {
        enum error_code code = find_machine(&r, &e);
        if (!code)
            code = trace_open(r.path, &t, &e);
        if (!code)
            code = open_learned(&r, t, &e);
        if (!code)
            code = settle_predictors(&r, t, &e);
        if (!code)
            code = set_outside(&r, trace_shape(t)->n_layers, &e);
        if (!code)
            code = replay(&r, t, &e);
        trace_close(t);
        exit_code = code ? command_failed(&e) : 0;
    }
    file_map_close(&r.learned_file);
    strbuf_fini(&r.command);
    return exit_code;
}
