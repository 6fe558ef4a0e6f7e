/* moed profile: sends texts through a deployment and records what the model's gates chose in a
 * trace (trace/trace.h).
 *
 * profile_text.c cuts the texts into sequences. Each sequence is the prompt of a request without an
 * answer, of which the worker records the routing. Shape, routers and embeddings come from the
 * model file. It requests one sequence at a time, so that other users of the deployment wait for no
 * more than one. */
#include "client/cli/profile.h"

#include "base/arrays.h"
#include "base/clock.h"
#include "client/cli/ask.h"
#include "client/cli/commands.h"
#include "client/cli/inspect.h"
#include "client/cli/interrupt.h"
#include "client/cli/model_file.h"
#include "client/cli/progress.h"
#include "client/cli/serving.h"
#include "quant/quant.h"
#include "trace/trace_model.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define DEFAULT_HIDDEN "1/16"

/* The routing of one sequence, as far as it has come. */
struct recorded {
    size_t n;                /* tokens */
    uint16_t *selected;      /* [context][L][n_used] */
    float *gate;             /* [context][L][n_experts]; empty without --gate */
    float *hidden;           /* [hidden_capacity][L][d_model] */
    const float **hidden_of; /* [context]: a token's rows in `hidden`; NULL: none */
    size_t n_hidden, hidden_capacity;
    void *memory; /* all four arrays */
};

struct profile {
    /* the options */
    const char *name, *hidden, *split, *out; /* deployment, ... */
    struct option_list texts;
    char **more_texts; /* without an option */
    int n_more_texts;
    uint64_t context, max_tokens, prompt;
    bool gate, embeddings, special, stepwise;
    char model[PATH_MAX];

    /* what follows from them */
    uint32_t hidden_every; /* 0: none */
    struct gguf *g;
    struct model_text tokens_of;
    struct trace_model facts;
    struct profile_cut cut;
    struct profile_sequences sequences;

    struct serving serving;

    /* the result so far */
    struct trace_writer *writer;
    struct recorded recorded;
    size_t n_done;     /* sequences */
    uint64_t n_tokens; /* of them */
    struct progress progress;
    double seconds; /* of computing */
};

static uint32_t layers_with_experts(const struct profile *p)
{
    return p->facts.shape.n_layers - p->facts.shape.first_layer;
}

/* ---- The options ---- */

/* "none", "all", "1/16". */
static bool take_hidden(struct profile *p)
{
    char *end;
    const char *which = p->hidden ? p->hidden : DEFAULT_HIDDEN;
    p->hidden_every = 0;
    if (strcmp(which, "none") == 0)
        return true;
    if (strcmp(which, "all") == 0) {
        p->hidden_every = 1;
        return true;
    }
    if (strncmp(which, "1/", 2) == 0 && which[2] >= '1' && which[2] <= '9') {
        unsigned long long every = strtoull(which + 2, &end, 10);
        p->hidden_every = *end == '\0' && every <= 1000000 ? (uint32_t)every : 0;
    }
    if (!p->hidden_every)
        cli_complain("profile: --hidden %.40s: expected none, all, or 1/N with N up to 1000000",
                     which);
    return p->hidden_every != 0;
}

static bool take_split(struct profile *p)
{
    if (!p->split || profile_split_find(p->split, &p->cut.split))
        return true;
    cli_complain("profile: --split %.40s: expected file, blank-line or line", p->split);
    return false;
}

static bool check_usage(struct profile *p)
{
    if (!p->texts.count || !p->out) {
        cli_complain("profile: %s is missing; usage: moed profile MODEL --text FILES -o TRACE",
                     p->texts.count ? "-o TRACE" : "--text FILES");
        return false;
    }
    return take_hidden(p) && take_split(p);
}

/* ---- The model, the texts ---- */

static bool open_model(struct profile *p)
{
    struct error e;
    if (gguf_open(p->model, &p->g, &e) || trace_model_read(p->g, &p->facts, &e)) {
        cli_complain("%s", e.text);
        return false;
    }
    p->facts.shape.has = TRACE_ROUTERS | (p->gate ? TRACE_GATE : 0u) |
                         (p->embeddings ? TRACE_EMBEDDINGS : 0u) |
                         (p->hidden_every ? TRACE_HIDDEN : 0u);
    return model_text_open(&p->tokens_of, p->g);
}

/* Chooses the context before a deployment is looked for: one of our own starts with it. */
static bool choose_context(struct profile *p)
{
    if (!p->context)
        p->context = model_text_context(&p->tokens_of);
    if (p->context < 2) {
        cli_complain("profile: --context: expected at least 2 tokens");
        return false;
    }
    p->cut.model = &p->tokens_of;
    p->cut.context = p->context;
    p->cut.max_tokens = p->max_tokens;
    p->cut.special = p->special;
    return true;
}

static bool take_text(struct profile *p, const char *path)
{
    struct strbuf text;
    strbuf_init(&text);
    bool ok = model_text_read(path, &text) &&
              profile_sequences_add(&p->sequences, &p->cut, text.data ? text.data : "", text.len);
    strbuf_fini(&text);
    return ok;
}

static bool take_texts(struct profile *p)
{
    bool ok = true;
    for (size_t i = 0; i < p->texts.count && ok; i++)
        ok = take_text(p, p->texts.items[i]);
    for (int i = 0; i < p->n_more_texts && ok; i++)
        ok = take_text(p, p->more_texts[i]);
    if (ok && !p->sequences.n) {
        cli_complain("%s%s: there is no text to profile", p->texts.items[0],
                     p->texts.count > 1 || p->n_more_texts ? " and the other files" : "");
        return false;
    }
    return ok;
}

/* ---- One sequence ---- */

static bool allocate(struct profile *p)
{
    struct recorded *r = &p->recorded;
    const struct trace_shape *s = &p->facts.shape;
    size_t layers = layers_with_experts(p), rows = p->context * layers;
    if (p->hidden_every)
        r->hidden_capacity = (p->context + p->hidden_every - 1) / p->hidden_every;
    r->memory = ARRAYS_NEW(ARRAY(r->selected, rows * s->n_used),
                           ARRAY(r->gate, p->gate ? rows * s->n_experts : 0),
                           ARRAY(r->hidden, r->hidden_capacity * layers * s->d_model),
                           ARRAY(r->hidden_of, p->context));
    if (r->memory)
        return true;
    cli_complain("no memory for sequences of %" PRIu64 " tokens: give a smaller --context%s",
                 p->context, p->hidden_every ? ", or --hidden none" : "");
    return false;
}

static enum moed_code misshapen(struct moed_error *error)
{
    *error = (struct moed_error){.code = MOED_ERROR_PROTOCOL};
    snprintf(error->message, sizeof error->message,
             "the worker's routing is not of this model's shape, or not of these tokens");
    return error->code;
}

/* Checks what another process sent, before it is copied. */
static bool routing_fits(const struct profile *p, const struct moed_routing *some)
{
    const struct trace_shape *s = &p->facts.shape;
    const struct recorded *r = &p->recorded;
    size_t layers = layers_with_experts(p), rows = some->token_count * layers;
    if (some->first != r->n || some->token_count > p->context - r->n ||
        some->selected_count != rows * s->n_used ||
        some->gate_count != (p->gate ? rows * s->n_experts : 0) ||
        some->hidden_at_count > r->hidden_capacity - r->n_hidden ||
        some->hidden_count != some->hidden_at_count * layers * s->d_model)
        return false;
    for (size_t i = 0; i < some->hidden_at_count; i++)
        if (r->hidden_of[some->hidden_at[i]])
            return false;
    return true;
}

static void take_hidden_rows(struct profile *p, const struct moed_routing *some)
{
    struct recorded *r = &p->recorded;
    size_t row = (size_t)layers_with_experts(p) * p->facts.shape.d_model;
    for (size_t i = 0; i < some->hidden_at_count; i++) {
        float *to = r->hidden + r->n_hidden++ * row;
        for (size_t k = 0; k < row; k++)
            to[k] = half_to_float(some->hidden[i * row + k]);
        r->hidden_of[some->hidden_at[i]] = to;
    }
}

static void show_progress(struct profile *p)
{
    uint64_t total = p->sequences.tokens.count;
    char figures[48];
    if (!progress_is_due(&p->progress))
        return;
    snprintf(figures, sizeof figures, "of %" PRIu64 " tokens, ", total);
    progress_show_tokens(&p->progress, "profile", figures, p->n_tokens + p->recorded.n, total);
}

static enum moed_code take_event(void *arg, const struct moed_event *event,
                                 struct moed_error *error)
{
    struct profile *p = arg;
    struct recorded *r = &p->recorded;
    const struct moed_routing *some = event->routing;
    if (event->kind != MOED_EVENT_ROUTING)
        return MOED_OK;
    if (!routing_fits(p, some))
        return misshapen(error);
    size_t at = r->n * layers_with_experts(p);
    memcpy(r->selected + at * p->facts.shape.n_used, some->selected,
           some->selected_count * sizeof *some->selected);
    if (p->gate)
        memcpy(r->gate + at * p->facts.shape.n_experts, some->gate,
               some->gate_count * sizeof *some->gate);
    take_hidden_rows(p, some);
    r->n += some->token_count;
    show_progress(p);
    return MOED_OK;
}

/* hidden_every counts the tokens of all sequences, so that tokens at the beginning of sequences are
 * not recorded more often. */
static struct moed_record_options record_options(const struct profile *p)
{
    uint32_t every = p->hidden_every;
    return (struct moed_record_options){
        .size = sizeof(struct moed_record_options),
        .gate = p->gate,
        .hidden_every = every,
        .hidden_phase = every ? (uint32_t)((every - p->n_tokens % every) % every) : 0,
        .stepwise = p->stepwise,
        .prompt_only = true};
}

static enum moed_code record_sequence(struct profile *p, const uint32_t *tokens, size_t n,
                                      struct moed_error *error)
{
    struct moed_record_options record = record_options(p);
    struct moed_generate_options options = {
        .size = sizeof options, .tokens = tokens, .token_count = n, .record = &record};
    struct moed_request *request;
    p->recorded.n = p->recorded.n_hidden = 0;
    memset(p->recorded.hidden_of, 0, p->context * sizeof *p->recorded.hidden_of);
    enum moed_code code = moed_generate_start(p->serving.session, &options, &request, error);
    if (!code)
        code = serving_consume(request, take_event, p, error);
    if (!code && !interrupts && p->recorded.n != n)
        code = misshapen(error);
    return code;
}

static bool write_embeddings(struct profile *p, const uint32_t *tokens, size_t n, struct error *e)
{
    float *embedding = malloc(p->facts.shape.d_model * sizeof *embedding);
    enum error_code code = ERROR_OK;
    if (!embedding)
        code = error_set(e, ERROR_MEMORY, "no memory for an embedding");
    for (size_t i = 0; i < n && !code; i++)
        if (!trace_writer_has_embedding(p->writer, tokens[i])) {
            trace_model_embedding(&p->facts, tokens[i], embedding);
            code = trace_write_embedding(p->writer, tokens[i], embedding, e);
        }
    free(embedding);
    return !code;
}

static uint32_t prompt_tokens(const struct profile *p, size_t n)
{
    uint64_t asked = p->prompt ? p->prompt : n / 2;
    return (uint32_t)(asked < n ? asked : n);
}

static bool write_sequence(struct profile *p, const uint32_t *tokens, size_t n)
{
    struct error e;
    struct trace_data data = {.sequence = {(uint32_t)n, prompt_tokens(p, n), tokens},
                              .selected = p->recorded.selected,
                              .gate = p->gate ? p->recorded.gate : NULL,
                              .hidden = p->hidden_every ? p->recorded.hidden_of : NULL};
    bool ok = (!p->embeddings || write_embeddings(p, tokens, n, &e)) &&
              !trace_write_sequence(p->writer, &data, &e);
    if (!ok)
        cli_complain("%s", e.text);
    return ok;
}

/* ---- All sequences ---- */

enum outcome { DONE, INTERRUPTED, FAILED };

/* Records one sequence, and tries again where the worker is restarted. */
static enum outcome profile_sequence(struct profile *p, size_t k, int *exit_code)
{
    size_t begin = k ? p->sequences.ends[k - 1] : 0, n = p->sequences.ends[k] - begin;
    const uint32_t *tokens = p->sequences.tokens.ids + begin;
    struct moed_error error;
    for (unsigned deaths = 0; record_sequence(p, tokens, n, &error); deaths++) {
        if (interrupts)
            return INTERRUPTED;
        progress_end(&p->progress);
        if (!serving_attach_again(&p->serving, deaths, &error, exit_code))
            return FAILED;
    }
    if (p->recorded.n != n)
        return INTERRUPTED;
    if (!write_sequence(p, tokens, n)) {
        *exit_code = CLI_FAILURE;
        return FAILED;
    }
    p->n_tokens += n;
    p->n_done++;
    return interrupts ? INTERRUPTED : DONE;
}

static int report(const struct profile *p)
{
    struct stat st;
    char bytes[24];
    inspect_format_bytes(stat(p->out, &st) == 0 ? (uint64_t)st.st_size : 0, bytes);
    printf("%s: %zu sequence%s, %" PRIu64 " tokens, %s; %.0f tokens/s\n", p->out, p->n_done,
           p->n_done == 1 ? "" : "s", p->n_tokens, bytes,
           p->seconds > 0 ? (double)p->n_tokens / p->seconds : 0.0);
    return CLI_OK;
}

/* Keeps the complete sequences, also after Ctrl-C and after a failure. */
static int finish(struct profile *p)
{
    struct error e;
    struct trace_writer *w = p->writer;
    p->writer = NULL;
    if (trace_writer_finish(w, &e)) {
        cli_complain("%s", e.text);
        return CLI_FAILURE;
    }
    return report(p);
}

static int profile_all(void *arg)
{
    struct profile *p = arg;
    int exit_code = CLI_OK;
    enum outcome outcome = DONE;
    progress_begin(&p->progress);
    interrupts_hold(true);
    for (size_t k = 0; k < p->sequences.n && outcome == DONE; k++)
        outcome = profile_sequence(p, k, &exit_code);
    p->seconds = clock_s() - p->progress.started_s;
    interrupts_hold(false);
    progress_end(&p->progress);
    if (outcome != DONE && p->n_done < p->sequences.n)
        cli_complain("%s after %zu of %zu sequences%s",
                     outcome == FAILED ? "stopped" : "interrupted", p->n_done, p->sequences.n,
                     p->n_done ? "; those are kept" : "");
    int finished = p->n_done ? finish(p) : CLI_OK;
    if (outcome == FAILED)
        return exit_code;
    return outcome == INTERRUPTED && !finished ? EXIT_INTERRUPTED : finished;
}

static bool open_writer(struct profile *p)
{
    struct error e;
    if (!trace_writer_new(p->out, &p->facts.shape, p->facts.layers, &p->writer, &e))
        return true;
    cli_complain("%s", e.text);
    return false;
}

static int profile(struct profile *p, const char *model)
{
    if (!model_file_find(model, p->model) || !open_model(p))
        return CLI_FAILURE;
    if (!choose_context(p))
        return CLI_USAGE;
    if (!take_texts(p) || !allocate(p) || !open_writer(p))
        return CLI_FAILURE;
    signal(SIGXFSZ, SIG_IGN); /* a limit of files' sizes is as a full disk */
    return serving_run(&p->serving, "profile", p->name, p->model, p->context, profile_all, p);
}

static void profile_fini(struct profile *p)
{
    trace_writer_abandon(p->writer);
    profile_sequences_fini(&p->sequences);
    trace_model_fini(&p->facts);
    model_text_close(&p->tokens_of);
    gguf_close(p->g);
    free(p->recorded.memory);
}

int profile_main(int argc, char **argv)
{
    static struct profile p = {.gate = true, .embeddings = true}; /* large */
    const struct option_spec table[] = {
        {"text", OPTION_LIST, &p.texts, 0, 0, "FILES",
         "read the texts from FILES; -: from standard input"},
        {"o", OPTION_STRING, &p.out, 0, 0, "TRACE", "write to this file"},
        {"max-tokens", OPTION_UINT, &p.max_tokens, 0, 0, "N", "stop after N tokens; 0: never"},
        {"context", OPTION_UINT, &p.context, 0, 1u << 24, "N",
         "cut sequences at N tokens; 0: trained, up to 512"},
        {"prompt", OPTION_UINT, &p.prompt, 0, 1u << 24, "N",
         "count the first N tokens as prompt; 0: half"},
        {"split", OPTION_STRING, &p.split, 0, 0, "WHERE",
         "end documents at: file (default), blank-line, line"},
        {"hidden", OPTION_STRING, &p.hidden, 0, 0, "WHICH",
         "record gate inputs: none, all or 1/N (default: " DEFAULT_HIDDEN ")"},
        {"gate", OPTION_BOOL, &p.gate, 0, 0, NULL, "record gate probabilities (or --no-gate)"},
        {"embeddings", OPTION_BOOL, &p.embeddings, 0, 0, NULL,
         "record tokens' embeddings (or --no-embeddings)"},
        {"special", OPTION_BOOL, &p.special, 0, 0, NULL,
         "parse the texts of special tokens in the texts"},
        {"stepwise", OPTION_BOOL, &p.stepwise, 0, 0, NULL,
         "compute one token at a time, as decoding does; slow"},
        {"name", OPTION_STRING, &p.name, 0, 0, "NAME", "select a deployment"},
        {0},
    };
    int n, exit_code;
    if (!ask_arguments(
            table, "profile", "MODEL --text FILES -o TRACE [OPTIONS]",
            "Records which experts MODEL (a GGUF file, or `demo`) chooses for the texts in\n"
            "FILES. Uses a deployment that serves MODEL, else starts one and stops it at the\n"
            "end. Each file is cut into documents, each document into sequences. moed-replay\n"
            "and moed train read TRACE; moed inspect TRACE shows it.",
            argc, argv, 1, INT_MAX, &n, &exit_code))
        return exit_code;
    p.more_texts = argv + 2;
    p.n_more_texts = n - 1;
    if (!check_usage(&p))
        return CLI_USAGE;
    exit_code = profile(&p, argv[1]);
    profile_fini(&p);
    return exit_code;
}
