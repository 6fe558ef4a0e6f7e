/* moed-replay --accuracy: precision and recall of predictors by layer, without a machine. */
#include "bench/replay/accuracy.h"
#include "bench/replay/commands.h"
#include "bench/replay/trained_file.h"

#include "daemon/options.h"
#include "sched/policy.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct request {
    bool accuracy;
    const char *names, *trained_path;
    uint64_t ahead, prompt, tokens;
    uint32_t n;
    enum sched_predictor kinds[PREDICT_KINDS];
    struct trained_file trained;
};

static enum error_code take_names(struct request *r, struct error *e)
{
    for (const char *at = r->names; at;) {
        char name[32];
        size_t len = strcspn(at, ",");
        snprintf(name, sizeof name, "%.*s", (int)len, at);
        if (r->n == PREDICT_KINDS)
            return error_set(e, ERROR_USAGE, "--predictor: too many predictors");
        if (len >= sizeof name || !sched_predictor_find(name, &r->kinds[r->n++]))
            return error_set(e, ERROR_USAGE, "predictor \"%.40s\" is not known; there are %s", name,
                             sched_predictor_names());
        at = at[len] ? at + len + 1 : NULL;
    }
    return ERROR_OK;
}

/* -1: go on; else the exit code. */
static int parse(struct request *r, int argc, char **argv, struct error *e)
{
    const struct option_spec options[] = {
        {"accuracy", OPTION_BOOL, &r->accuracy, 0, 0, NULL, "this command"},
        {"predictor", OPTION_STRING, &r->names, 0, 0, "LIST", "predictors to measure: mixture,mtp"},
        {"predictors", OPTION_STRING, &r->trained_path, 0, 0, "FILE",
         "trained predictors, for those that need them and for mixture"},
        {"ahead", OPTION_UINT, &r->ahead, 0, 1u << 16, "N",
         "count only predictions made N layers before theirs, or earlier"},
        {"prompt", OPTION_UINT, &r->prompt, 0, UINT32_MAX, "N",
         "length of each sequence's prompt; 0: as recorded"},
        {"tokens", OPTION_UINT, &r->tokens, 0, 0, "N", "use N tokens of the trace; 0: all"},
        {0},
    };
    if (options_wants_help(argc, argv)) {
        options_print_help(options, "moed-replay", "TRACE --accuracy [OPTION]...",
                           "Measures how often predictors are right, by layer.");
        return 0;
    }
    int n = 0;
    enum error_code code = options_parse(options, argc, argv, &n, e);
    if (!code && n != 1)
        code = error_set(e, ERROR_USAGE, "expected one trace; see --accuracy --help");
    if (!code)
        code = take_names(r, e);
    return code ? command_failed(e) : -1;
}

static enum error_code check_trained(const struct request *r, const struct trace *t,
                                     struct error *e)
{
    struct predict_shape shape = trained_file_shape(t);
    shape.trained = r->trained_path ? &r->trained.view : NULL;
    for (uint32_t i = 0; i < r->n; i++)
        if (!predictor_is_trained(r->kinds[i], &shape))
            return error_set(e, ERROR_USAGE,
                             "predictor %s has to be trained, and --predictors names no file that "
                             "has it",
                             sched_predictor_name(r->kinds[i]));
    return ERROR_OK;
}

/* ---- The table ---- */

static void print_share(uint64_t part, uint64_t of)
{
    if (of)
        printf(" %7.1f", 100 * (double)part / (double)of);
    else
        printf(" %7s", "-");
}

static void print_row(const char *name, const struct accuracy *all, uint32_t n, size_t stride)
{
    printf("%-6s", name);
    for (uint32_t i = 0; i < n; i++) {
        const struct accuracy *a = all + i * stride;
        print_share(a->best_right, a->best);
        print_share(a->best_right, a->activated);
        print_share(a->all_right, a->all);
        print_share(a->all_right, a->activated);
    }
    printf("\n");
}

static void add(struct accuracy *sum, const struct accuracy *a)
{
    sum->tokens += a->tokens;
    sum->predicted_tokens += a->predicted_tokens;
    sum->activated += a->activated;
    sum->best += a->best;
    sum->best_right += a->best_right;
    sum->all += a->all;
    sum->all_right += a->all_right;
}

/* all: [n][n_layers] */
static void print_table(const struct request *r, const struct trace_shape *s,
                        const struct accuracy *all)
{
    struct accuracy sums[PREDICT_KINDS] = {0};
    printf("Per cent, of %" PRIu64 " decoded tokens; predictions made at least %" PRIu64
           " layers before theirs.\n"
           "best: of each prediction as many experts as a token activates; all: all predicted.\n",
           all[s->first_layer].tokens, r->ahead);
    printf("%-6s", "");
    for (uint32_t i = 0; i < r->n; i++)
        printf(" %-31s", sched_predictor_name(r->kinds[i]));
    printf("\n%-6s", "layer");
    for (uint32_t i = 0; i < r->n; i++)
        printf("    best  recall     all  recall");
    printf("\n");
    for (uint32_t layer = s->first_layer; layer < s->n_layers; layer++) {
        char name[16];
        snprintf(name, sizeof name, "%" PRIu32, layer);
        print_row(name, all + layer, r->n, s->n_layers);
        for (uint32_t i = 0; i < r->n; i++)
            add(&sums[i], &all[(size_t)i * s->n_layers + layer]);
    }
    print_row("all", sums, r->n, 1);
}

static enum error_code measure(const struct request *r, const struct trace *t, struct error *e)
{
    const struct trace_shape *s = trace_shape(t);
    struct accuracy *all = calloc((size_t)r->n * s->n_layers, sizeof *all);
    enum error_code code = all ? ERROR_OK : error_set(e, ERROR_MEMORY, "out of memory");
    for (uint32_t i = 0; i < r->n && !code; i++) {
        const struct accuracy_options options = {.predictor = r->kinds[i],
                                                 .trained =
                                                     r->trained_path ? &r->trained.view : NULL,
                                                 .ahead = (uint32_t)r->ahead,
                                                 .prompt = (uint32_t)r->prompt,
                                                 .max_tokens = r->tokens};
        code = accuracy_measure(t, &options, all + (size_t)i * s->n_layers, e);
    }
    if (!code)
        print_table(r, s, all);
    free(all);
    if (!code && (fflush(stdout) || ferror(stdout)))
        code = error_set(e, ERROR_IO, "standard output: %m");
    return code;
}

int command_accuracy(int argc, char **argv)
{
    struct request r = {.names = "mixture"};
    struct error e = {0};
    struct trace *t = NULL;
    int exit_code = parse(&r, argc, argv, &e);
    if (exit_code < 0) {
        enum error_code code = trace_open(argv[1], &t, &e);
        if (!code && r.trained_path)
            code = trained_file_open(r.trained_path, t, &r.trained, &e);
        if (!code)
            code = check_trained(&r, t, &e);
        if (!code)
            code = measure(&r, t, &e);
        trace_close(t);
        exit_code = code ? command_failed(&e) : 0;
    }
    trained_file_close(&r.trained);
    return exit_code;
}
