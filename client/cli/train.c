/* moed train: trains predictors on a trace (lib/train), writes them to a file, and prints how well
 * they predict text that was held out. */
#include "base/clock.h"
#include "base/machine_memory.h"
#include "client/cli/ask.h"
#include "client/cli/commands.h"
#include "client/cli/inspect.h"
#include "client/cli/interrupt.h"
#include "client/cli/progress.h"
#include "client/cli/train_target.h"
#include "exec/topology.h"
#include "train/train.h"

#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

/* Networks need more than this to be better than the gates. */
enum { FEW_TOKENS = 4000 };

struct training {
    struct train_target target;
    const char *only;
    uint64_t epochs, threads, seed, seconds, stride, hidden, components;
    bool random_start, plain_loss, whiten, one_group, json;
    struct progress progress;
};

static const char *const judged_names[TRAIN_JUDGED] = {
    [JUDGED_NEXT_GATE] = "next-gate", [JUDGED_FAR_GATE] = "gate two on",
    [JUDGED_RESIDUAL] = "residual",   [JUDGED_MLP] = "mlp",
    [JUDGED_LLAPOR] = "llapor",
};

/* "residual,mlp" to bits. */
static bool take_only(const char *list, uint32_t *what)
{
    static const struct {
        const char *name;
        uint32_t bit;
    } parts[] = {{"residual", TRAIN_RESIDUAL}, {"mlp", TRAIN_MLP}, {"llapor", TRAIN_LLAPOR}};
    *what = list ? 0 : TRAIN_ALL;
    while (list) {
        size_t len = strcspn(list, ",");
        uint32_t before = *what;
        for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
            if (strlen(parts[i].name) == len && strncmp(list, parts[i].name, len) == 0)
                *what |= parts[i].bit;
        if (*what == before) {
            cli_complain("--only %.*s: there are residual, mlp, llapor", (int)len, list);
            return false;
        }
        list = list[len] ? list + len + 1 : NULL;
    }
    return true;
}

static bool show(void *arg, const char *what, uint64_t done, uint64_t total)
{
    struct training *t = arg;
    char detail[96];
    snprintf(detail, sizeof detail, "%" PRIu64 "%% of %s", total ? done * 100 / total : 0, what);
    progress_show(&t->progress, "train", detail);
    return !interrupts;
}

/* ---- The table ---- */

static bool is_judged(const struct train_report *r, uint32_t who)
{
    for (uint32_t i = r->first_layer; i < r->n_layers; i++)
        if (r->scores[i * TRAIN_JUDGED + who].n)
            return true;
    return false;
}

/* True where every predictor that is judged anywhere is judged in this layer. */
static bool is_common(const struct train_report *r, uint32_t layer)
{
    for (uint32_t who = 0; who < TRAIN_JUDGED; who++)
        if (is_judged(r, who) && !r->scores[layer * TRAIN_JUDGED + who].n)
            return false;
    return true;
}

/* The mean of the score's member at this offset, over the layers that all predict. False: there is
 * no such layer. */
static bool mean_of(const struct train_report *r, uint32_t who, size_t member, double *out)
{
    uint32_t n = 0;
    double sum = 0;
    for (uint32_t i = r->first_layer; i < r->n_layers; i++) {
        const struct train_score *s = &r->scores[i * TRAIN_JUDGED + who];
        double value;
        memcpy(&value, (const char *)s + member, sizeof value);
        if (!s->n || !is_common(r, i) || isnan(value))
            continue;
        sum += value;
        n++;
    }
    *out = n ? sum / n : 0;
    return n > 0;
}

static void print_cell(bool there, const char *format, double value)
{
    char text[24] = "-";
    if (there)
        snprintf(text, sizeof text, format, value);
    printf(" %11s", text);
}

static void print_means(const struct train_report *r, const char *name, size_t member, double times,
                        const char *format)
{
    printf("%-15s", name);
    for (uint32_t who = 0; who < TRAIN_JUDGED; who++) {
        double mean;
        bool there = mean_of(r, who, member, &mean);
        print_cell(there, format, mean * times);
    }
    printf("\n");
}

static void print_layers(const struct train_report *r)
{
    static const char *const groups[LAYER_GROUPS] = {"input", "middle", "output"};
    printf("%-6s %-8s", "layer", "group");
    for (uint32_t who = 0; who < TRAIN_JUDGED; who++)
        printf(" %11s", judged_names[who]);
    printf("   alike  first\n");
    for (uint32_t i = r->first_layer; i < r->n_layers; i++) {
        printf("%-6" PRIu32 " %-8s", i, groups[r->groups[i]]);
        for (uint32_t who = 0; who < TRAIN_JUDGED; who++) {
            const struct train_score *s = &r->scores[i * TRAIN_JUDGED + who];
            print_cell(s->n > 0, "%.1f %%", s->recall * 100);
        }
        printf("   %.3f  %.3f\n", r->similarity[i], r->skew[i]);
    }
}

static void print_report(const struct training *t, const struct train_result *result,
                         double seconds)
{
    const struct train_report *r = &result->report;
    printf("Of the experts that a token activates, among those predicted as most probable, on text "
           "held out\n");
    print_layers(r);
    print_means(r, "mean of common", offsetof(struct train_score, recall), 100, "%.2f %%");
    print_means(r, "4 hot among 6", offsetof(struct train_score, hot), 100, "%.2f %%");
    print_means(r, "log-loss", offsetof(struct train_score, log_loss), 1, "%.4f");
    printf("%" PRIu32 " tokens trained on, %" PRIu32 " calibrated on, %" PRIu32 " held out",
           r->n_train, r->n_check, r->n_held);
    for (int g = 0; g < LAYER_GROUPS; g++)
        if (r->components[g])
            printf("; %" PRIu32 " components keep %.1f %%", r->components[g], r->kept[g] * 100);
    printf("\n%s: %.1f MB", t->target.path, (double)result->n * 1e-6);
    if (r->mlp_bytes)
        printf(", a layer's mlp %.2f MB", (double)r->mlp_bytes * 1e-6);
    if (r->llapor_bytes)
        printf(", a layer's llapor at most %.2f MB", (double)r->llapor_bytes * 1e-6);
    printf("; %.0f s\n", seconds);
}

static void print_json(const struct training *t, const struct train_result *result)
{
    const struct train_report *r = &result->report;
    static const char *const keys[TRAIN_JUDGED] = {"next_gate", "far_gate", "residual", "mlp",
                                                   "llapor"};
    printf("{\"bytes\": %zu, \"trained\": %" PRIu32 ", \"calibrated\": %" PRIu32
           ", \"held_out\": %" PRIu32 ", \"layers\": [",
           result->n, r->n_train, r->n_check, r->n_held);
    for (uint32_t i = r->first_layer; i < r->n_layers; i++) {
        printf("%s{\"layer\": %" PRIu32 ", \"group\": %d", i > r->first_layer ? ", " : "", i,
               (int)r->groups[i]);
        for (uint32_t who = 0; who < TRAIN_JUDGED; who++) {
            const struct train_score *s = &r->scores[i * TRAIN_JUDGED + who];
            char hot[16] = "null";
            if (!isnan(s->hot))
                snprintf(hot, sizeof hot, "%.6f", s->hot);
            if (s->n)
                printf(", \"%s\": {\"recall\": %.6f, \"hot\": %s, \"log_loss\": %.6f}", keys[who],
                       s->recall, hot, s->log_loss);
        }
        printf("}");
    }
    printf("]}\n");
}

/* ---- The verb ---- */

/* After Ctrl-C. A file that is there already is left as it is, also with --force: it may hold more
 * networks. */
static int write_part(struct training *t, const struct train_result *result)
{
    const struct train_report *r = &result->report;
    struct error e;
    bool writes = !t->target.replaces;
    if (writes && train_target_write(&t->target, result->bytes, result->n, &e)) {
        cli_complain("%s", e.text);
        return CLI_FAILURE;
    }
    cli_complain("interrupted after %" PRIu32 " of %" PRIu32 " networks; %s %s", r->n_trained,
                 r->n_networks, t->target.path, writes ? "has those" : "is left as it was");
    return EXIT_INTERRUPTED;
}

static int write_result(struct training *t, const struct train_result *result, double seconds)
{
    struct error e;
    if (result->report.interrupted)
        return write_part(t, result);
    if (train_target_write(&t->target, result->bytes, result->n, &e)) {
        cli_complain("%s", e.text);
        return CLI_FAILURE;
    }
    if (t->json)
        print_json(t, result);
    else
        print_report(t, result, seconds);
    if (result->report.n_train < FEW_TOKENS && result->report.n_networks)
        cli_complain("%" PRIu32 " tokens are few to train networks on: record a trace with more "
                     "text, or with `--hidden all`",
                     result->report.n_train);
    return CLI_OK;
}

static int train(struct training *t, const struct trace *trace, struct train_options *options)
{
    struct train_result result;
    struct error e;
    double started_s = clock_s();
    if (!interrupts_watch())
        return CLI_FAILURE;
    options->progress = show;
    options->progress_arg = t;
    options->keep = t->target.has_old ? &t->target.old : NULL;
    options->model = t->target.trained.name;
    options->routers = t->target.trained.routers;
    progress_begin(&t->progress);
    interrupts_hold(true);
    enum error_code code = train_run(trace, options, &result, &e);
    progress_end(&t->progress);
    int exit_code;
    if (code) {
        cli_complain("%s", e.text);
        exit_code = code == ERROR_CANCELLED ? EXIT_INTERRUPTED
                    : code == ERROR_USAGE   ? CLI_USAGE
                                            : CLI_FAILURE;
    } else {
        exit_code = write_result(t, &result, clock_s() - started_s);
        train_result_free(&result);
    }
    interrupts_hold(false);
    return exit_code;
}

/* The CPUs that the process may use, unless the memory holds fewer networks. */
static uint32_t count_threads(const struct training *t, const struct trace *trace,
                              const struct train_options *options)
{
    static struct topology cpus; /* large */
    topology_read(&cpus);
    uint32_t wanted = t->threads ? (uint32_t)t->threads : topology_threads(&cpus);
    uint64_t bytes = train_thread_bytes(trace, options), available = memory_available_bytes();
    uint32_t n = train_threads(wanted, bytes, available);
    char each[24], free_bytes[24];
    inspect_format_bytes(bytes, each);
    inspect_format_bytes(available, free_bytes);
    if (n < wanted || bytes > available)
        cli_complain("a thread needs up to %s, of %s that are available: %" PRIu32 " of %" PRIu32
                     " threads train; a trace of fewer gate inputs (`moed profile "
                     "--hidden 1/N`) needs less",
                     each, free_bytes, n, wanted);
    return n;
}

int train_main(int argc, char **argv)
{
    static struct training t = {.seed = 1};
    const struct option_spec table[] = {
        {"o", OPTION_STRING, &t.target.out, 0, 0, "FILE", "write to this file"},
        {"model", OPTION_STRING, &t.target.model, 0, 0, "MODEL",
         "write next to MODEL, where `moed up` finds it"},
        {"epochs", OPTION_UINT, &t.epochs, 0, 100000, "N", "go through the trace N times; 0: 30"},
        {"seconds", OPTION_UINT, &t.seconds, 0, 1u << 30, "S",
         "train networks about S seconds; 0: no limit"},
        {"threads", OPTION_UINT, &t.threads, 0, 256, "N",
         "use N threads; 0: one a core that it may use"},
        {"force", OPTION_BOOL, &t.target.force, 0, 0, NULL,
         "replace the whole file, also another model's"},
        {"json", OPTION_BOOL, &t.json, 0, 0, NULL, "print one JSON object"},
        {"Research", OPTION_HEADING, NULL, 0, 0, NULL, NULL},
        {"only", OPTION_STRING, &t.only, 0, 0, "LIST",
         "train only these of residual,mlp,llapor, and keep the file's others"},
        {"seed", OPTION_UINT, &t.seed, 0, 0, "N", "seed the random numbers"},
        {"stride", OPTION_UINT, &t.stride, 0, 1024, "N", "let mlp predict N layers further; 0: 2"},
        {"hidden", OPTION_UINT, &t.hidden, 0, 1u << 15, "N",
         "give mlp N hidden values; 0: by the layer's size"},
        {"components", OPTION_UINT, &t.components, 0, 1u << 15, "N",
         "compress llapor's input to N values, 2 N in middle layers; 0: by the model's width"},
        {"random-start", OPTION_BOOL, &t.random_start, 0, 0, NULL,
         "compare: start networks at random, not as the gate"},
        {"plain-loss", OPTION_BOOL, &t.plain_loss, 0, 0, NULL,
         "compare: llapor without class balance, focal loss"},
        {"whiten", OPTION_BOOL, &t.whiten, 0, 0, NULL,
         "compare: llapor's components of equal variance"},
        {"one-group", OPTION_BOOL, &t.one_group, 0, 0, NULL,
         "compare: llapor with one group of layers"},
        {0},
    };
    int exit_code;
    uint32_t what;
    if (!ask_arguments(
            table, "train", "TRACE -o FILE|--model MODEL [OPTIONS]",
            "Trains the predictors residual, mlp and llapor on a TRACE of `moed profile` with\n"
            "gate inputs. Prints how well they predict a tenth of the text that is held out.",
            argc, argv, 1, 1, NULL, &exit_code))
        return exit_code;
    if (!take_only(t.only, &what) || !train_target_find(&t.target))
        return CLI_USAGE;
    struct trace *trace;
    struct error e;
    if (trace_open(argv[1], &trace, &e)) {
        cli_complain("%s", e.text);
        return CLI_FAILURE;
    }
    struct train_options options = {.what = what,
                                    .epochs = (uint32_t)t.epochs,
                                    .seed = t.seed,
                                    .seconds = (double)t.seconds,
                                    .stride = (uint32_t)t.stride,
                                    .hidden = (uint32_t)t.hidden,
                                    .components = (uint32_t)t.components,
                                    .random_start = t.random_start,
                                    .plain_loss = t.plain_loss,
                                    .whiten = t.whiten,
                                    .one_group = t.one_group};
    exit_code = CLI_FAILURE;
    signal(SIGXFSZ, SIG_IGN); /* a limit of files' sizes is as a full disk */
    if (train_target_open(&t.target, argv[1], trace)) {
        options.threads = count_threads(&t, trace, &options);
        exit_code = train(&t, trace, &options);
    }
    train_target_close(&t.target);
    trace_close(trace);
    return exit_code;
}
