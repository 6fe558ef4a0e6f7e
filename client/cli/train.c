/* moed train: trains predictors on a trace (lib/train), writes them to a file, and prints how well
 * they predict text that was held out. */
#include "base/clock.h"
#include "base/file_writer.h"
#include "base/strbuf.h"
#include "client/cli/ask.h"
#include "client/cli/commands.h"
#include "client/cli/interrupt.h"
#include "client/cli/predictors_file.h"
#include "client/cli/model_file.h"
#include "client/cli/progress.h"
#include "trace/trace_model.h"
#include "train/train.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

struct training {
    const char *out, *model, *only;
    uint64_t epochs, threads, seed, seconds, stride, hidden, components;
    bool random_start, plain_loss, whiten, one_group, json;
    char path[PREDICTORS_PATH];
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

static bool take_path(struct training *t)
{
    char model[PATH_MAX];
    if ((t->out == NULL) == (t->model == NULL)) {
        cli_complain("train: give -o FILE, or --model MODEL to write next to the model");
        return false;
    }
    if (t->model && !model_file_find(t->model, model))
        return false;
    int n = snprintf(t->path, sizeof t->path, "%s", t->out ? t->out : "");
    if (n < 0 || n >= (int)sizeof t->path) {
        cli_complain("the path of the file to write is too long");
        return false;
    }
    if (t->model)
        predictors_file_of_model(model, t->path);
    return true;
}

/* ---- Of which model is the trace? ---- */

/* The model file may be another quantisation than the one that was profiled, so the routers need
 * not be equal; those of another model are not even similar. */
static bool routers_agree(const struct trace *trace, const struct trace_model *model)
{
    const struct trace_shape *s = trace_shape(trace);
    size_t n = (size_t)s->n_experts * s->d_model;
    for (uint32_t l = s->first_layer; l < s->n_layers; l++) {
        const float *a = trace_layer(trace, l)->matrix, *b = model->layers[l].matrix;
        double difference = 0, size = 0;
        for (size_t i = 0; a && b && i < n; i++) {
            difference += fabs((double)a[i] - (double)b[i]);
            size += fabs((double)b[i]);
        }
        if (difference > size * 0.1)
            return false;
    }
    return true;
}

static bool is_of_model(const struct trace *trace, const struct trace_model *model)
{
    const struct trace_shape *a = trace_shape(trace), *b = &model->shape;
    return a->n_layers == b->n_layers && a->first_layer == b->first_layer &&
           a->n_experts == b->n_experts && a->n_used == b->n_used && a->d_model == b->d_model &&
           routers_agree(trace, model);
}

/* Complains where memd would refuse the predictors of this trace for the model. */
static bool check_model(const struct training *t, const char *path, const struct trace *trace)
{
    struct gguf *g = NULL;
    struct trace_model model = {0};
    struct error e;
    char file[PATH_MAX];
    if (!t->model)
        return true;
    if (!model_file_find(t->model, file))
        return false;
    bool ok = false;
    if (gguf_open(file, &g, &e) || trace_model_read(g, &model, &e))
        cli_complain("%s", e.text);
    else if (!(ok = is_of_model(trace, &model)))
        cli_complain("train: %s is a trace of another model (%s) than %s (%s): record one with "
                     "`moed profile %s`",
                     path, trace_shape(trace)->model, file, model.shape.model, t->model);
    trace_model_fini(&model);
    gguf_close(g);
    return ok;
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
        if (!s->n || !is_common(r, i))
            continue;
        double value;
        memcpy(&value, (const char *)s + member, sizeof value);
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
    printf("\n%s: %.1f MB", t->path, (double)result->n * 1e-6);
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
            if (s->n)
                printf(", \"%s\": {\"recall\": %.6f, \"hot\": %.6f, \"log_loss\": %.6f}", keys[who],
                       s->recall, s->hot, s->log_loss);
        }
        printf("}");
    }
    printf("]}\n");
}

/* ---- The verb ---- */

static int train(struct training *t, const struct trace *trace, struct train_options *options)
{
    struct train_result result;
    struct error e;
    double started_s = clock_s();
    if (!interrupts_watch())
        return CLI_FAILURE;
    options->progress = show;
    options->progress_arg = t;
    progress_begin(&t->progress);
    interrupts_hold(true);
    enum error_code code = train_run(trace, options, &result, &e);
    interrupts_hold(false);
    progress_end(&t->progress);
    if (code) {
        cli_complain("%s", e.text);
        return code == ERROR_CANCELLED ? EXIT_INTERRUPTED
               : code == ERROR_USAGE   ? CLI_USAGE
                                       : CLI_FAILURE;
    }
    code = file_write(t->path, result.bytes, result.n, &e);
    if (code)
        cli_complain("%s", e.text);
    else if (t->json)
        print_json(t, &result);
    else
        print_report(t, &result, clock_s() - started_s);
    train_result_free(&result);
    return code ? CLI_FAILURE : CLI_OK;
}

static uint32_t count_threads(uint64_t asked)
{
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    return asked ? (uint32_t)asked : cores > 0 ? (uint32_t)cores : 1;
}

int train_main(int argc, char **argv)
{
    static struct training t = {.seed = 1};
    const struct option_spec table[] = {
        {"o", OPTION_STRING, &t.out, 0, 0, "FILE", "write to this file"},
        {"model", OPTION_STRING, &t.model, 0, 0, "MODEL",
         "write next to MODEL, where `moed up` finds it"},
        {"epochs", OPTION_UINT, &t.epochs, 0, 100000, "N", "go through the trace N times; 0: 30"},
        {"seconds", OPTION_UINT, &t.seconds, 0, 1u << 30, "S",
         "train networks about S seconds; 0: no limit"},
        {"threads", OPTION_UINT, &t.threads, 0, 256, "N", "use N threads; 0: one a core"},
        {"json", OPTION_BOOL, &t.json, 0, 0, NULL, "print one JSON object"},
        {"Research", OPTION_HEADING, NULL, 0, 0, NULL, NULL},
        {"only", OPTION_STRING, &t.only, 0, 0, "LIST", "train only these of residual,mlp,llapor"},
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
    if (!take_only(t.only, &what) || !take_path(&t))
        return CLI_USAGE;
    struct trace *trace;
    struct error e;
    if (trace_open(argv[1], &trace, &e)) {
        cli_complain("%s", e.text);
        return CLI_FAILURE;
    }
    struct train_options options = {.what = what,
                                    .epochs = (uint32_t)t.epochs,
                                    .threads = count_threads(t.threads),
                                    .seed = t.seed,
                                    .seconds = (double)t.seconds,
                                    .stride = (uint32_t)t.stride,
                                    .hidden = (uint32_t)t.hidden,
                                    .components = (uint32_t)t.components,
                                    .random_start = t.random_start,
                                    .plain_loss = t.plain_loss,
                                    .whiten = t.whiten,
                                    .one_group = t.one_group};
    exit_code = check_model(&t, argv[1], trace) ? train(&t, trace, &options) : CLI_FAILURE;
    trace_close(trace);
    return exit_code;
}
