/* moed profile: text through a deployment, and what the model's gates did with it into a trace (trace/trace.h).
 *
 * The texts are cut into sequences (profile_text.c). Each is the prompt of a request of its own, without an answer, of which
 * the worker records the routing; shape, routers and embeddings are the model file's. One sequence is computed at a
 * time: a deployment's other users wait for no more of ours. */
#include "client/cli/profile.h"

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
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define DEFAULT_HIDDEN "1/16"
#define SHOWN_EVERY_S  0.2

/* One sequence's routing, as far as it has come. */
struct recorded {
    size_t n;                /* tokens */
    uint16_t *selected;      /* [context][L][n_used] */
    float *gate;             /* [context][L][n_experts], or NULL */
    float *hidden;           /* [n_hidden][L][d_model] */
    const float **hidden_of; /* [context] */
    size_t n_hidden, hidden_room;
};

struct profile {
    /* what is asked */
    const char *name, *text, *hidden, *split, *out; /* deployment, first text, ... */
    char **more_texts;
    int n_more_texts;
    uint64_t context, max_tokens, prompt;
    bool gate, embeddings, special, stepwise;
    char model[PATH_MAX];

    /* what it means */
    uint32_t hidden_every; /* 0: none */
    struct gguf *g;
    struct model_text tokens_of;
    struct trace_model facts;
    struct profile_cut cut;
    struct profile_sequences sequences;

    /* who computes */
    struct serving serving;
    struct moed_session *session;

    /* what there is */
    struct trace_writer *writer;
    struct recorded recorded;
    size_t n_done;     /* sequences */
    uint64_t n_tokens; /* of them */
    struct progress progress;
    double started_s, shown_s, seconds;
};

static uint32_t layers_with_experts(const struct profile *p)
{
    return p->facts.shape.n_layers - p->facts.shape.first_layer;
}

/* ---- What is asked ---- */

/* "none", "all", "1/16". */
static bool take_hidden(struct profile *p)
{
    char *end;
    const char *said = p->hidden ? p->hidden : DEFAULT_HIDDEN;
    p->hidden_every = 0;
    if (strcmp(said, "none") == 0)
        return true;
    if (strcmp(said, "all") == 0) {
        p->hidden_every = 1;
        return true;
    }
    if (strncmp(said, "1/", 2) == 0 && said[2] >= '1' && said[2] <= '9') {
        unsigned long long every = strtoull(said + 2, &end, 10);
        p->hidden_every = *end == '\0' && every <= 1000000 ? (uint32_t)every : 0;
    }
    if (!p->hidden_every)
        ask_complain("profile: --hidden %.40s: expected none, all, or 1/N with N up to 1000000",
                     said);
    return p->hidden_every != 0;
}

static bool take_split(struct profile *p)
{
    if (!p->split || profile_split_find(p->split, &p->cut.split))
        return true;
    ask_complain("profile: --split %.40s: expected file, blank-line or line", p->split);
    return false;
}

static bool check_usage(struct profile *p)
{
    if (!p->text || !p->out) {
        ask_complain("profile: %s is missing; usage: moed profile MODEL --text FILES -o TRACE",
                     p->text ? "-o TRACE" : "--text FILES");
        return false;
    }
    return take_hidden(p) && take_split(p);
}

/* ---- The model, the texts ---- */

static bool open_model(struct profile *p)
{
    struct error e;
    if (gguf_open(p->model, &p->g, &e) || trace_model_read(p->g, &p->facts, &e)) {
        ask_complain("%s", e.text);
        return false;
    }
    p->facts.shape.has = TRACE_ROUTERS | (p->gate ? TRACE_GATE : 0u) |
                         (p->embeddings ? TRACE_EMBEDDINGS : 0u) |
                         (p->hidden_every ? TRACE_HIDDEN : 0u);
    return model_text_open(&p->tokens_of, p->g);
}

/* The context is known before there is a deployment, so that one of our own gets it. */
static bool choose_context(struct profile *p)
{
    if (!p->context)
        p->context = model_text_context(&p->tokens_of);
    if (p->context < 2) {
        ask_complain("profile: --context: expected at least 2 tokens");
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
    bool ok = take_text(p, p->text);
    for (int i = 0; i < p->n_more_texts && ok; i++)
        ok = take_text(p, p->more_texts[i]);
    if (ok && !p->sequences.n) {
        ask_complain("%s%s: there is no text to profile", p->text,
                     p->n_more_texts ? " and the other files" : "");
        return false;
    }
    return ok;
}

/* ---- One sequence ---- */

static bool allocate(struct profile *p)
{
    struct recorded *r = &p->recorded;
    const struct trace_shape *s = &p->facts.shape;
    size_t rows = p->context * layers_with_experts(p);
    r->selected = malloc(rows * s->n_used * sizeof *r->selected);
    r->gate = p->gate ? malloc(rows * s->n_experts * sizeof *r->gate) : NULL;
    r->hidden_of = calloc(p->context, sizeof *r->hidden_of);
    if (p->hidden_every) {
        r->hidden_room = (p->context + p->hidden_every - 1) / p->hidden_every;
        r->hidden =
            malloc(r->hidden_room * layers_with_experts(p) * s->d_model * sizeof *r->hidden);
    }
    if (r->selected && r->hidden_of && (!p->gate || r->gate) && (!p->hidden_every || r->hidden))
        return true;
    ask_complain("no memory for sequences of %" PRIu64 " tokens: give a smaller --context%s",
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

/* Before numbers of other processes are copied. */
static bool routing_fits(const struct profile *p, const struct moed_routing *some)
{
    const struct trace_shape *s = &p->facts.shape;
    const struct recorded *r = &p->recorded;
    size_t layers = layers_with_experts(p), rows = some->token_count * layers;
    if (some->first != r->n || some->token_count > p->context - r->n ||
        some->selected_count != rows * s->n_used ||
        some->gate_count != (p->gate ? rows * s->n_experts : 0) ||
        some->hidden_at_count > r->hidden_room - r->n_hidden ||
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
    double now_s = clock_s();
    if (now_s - p->shown_s < SHOWN_EVERY_S)
        return;
    p->shown_s = now_s;
    uint64_t done = p->n_tokens + p->recorded.n, total = p->sequences.tokens.count;
    double speed = (double)done / (now_s - p->started_s);
    char detail[112];
    int n = snprintf(detail, sizeof detail, "%.0f%% of %" PRIu64 " tokens",
                     floor(100.0 * (double)done / (double)total), total);
    if (done)
        snprintf(detail + n, sizeof detail - (size_t)n, ", %.0f a second, %.0f s left", speed,
                 (double)(total - done) / speed);
    progress_show(&p->progress, "profile", detail);
}

static enum moed_code take_event(void *arg, const struct moed_event *event,
                                 struct moed_error *error)
{
    struct profile *p = arg;
    struct recorded *r = &p->recorded;
    const struct moed_routing *some = &event->routing;
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

/* Of all tokens, not of each sequence's: those at its beginning are no more often among them. */
static struct moed_record_options record_options(const struct profile *p)
{
    uint32_t every = p->hidden_every;
    return (struct moed_record_options){
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
    struct moed_generate_options options = {.tokens = tokens, .token_count = n, .record = &record};
    struct moed_request *request;
    p->recorded.n = p->recorded.n_hidden = 0;
    memset(p->recorded.hidden_of, 0, p->context * sizeof *p->recorded.hidden_of);
    enum moed_code code = moed_generate_start(p->session, &options, &request, error);
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
                              .gate = p->recorded.gate,
                              .hidden = p->hidden_every ? p->recorded.hidden_of : NULL};
    bool ok = (!p->embeddings || write_embeddings(p, tokens, n, &e)) &&
              !trace_write_sequence(p->writer, &data, &e);
    if (!ok)
        ask_complain("%s", e.text);
    return ok;
}

/* ---- All of them ---- */

enum outcome { DONE, INTERRUPTED, FAILED };

/* One sequence, again where the worker is restarted meanwhile. */
static enum outcome profile_sequence(struct profile *p, size_t k, int *exit_code)
{
    size_t begin = k ? p->sequences.ends[k - 1] : 0, n = p->sequences.ends[k] - begin;
    const uint32_t *tokens = p->sequences.tokens.ids + begin;
    struct moed_error error;
    for (unsigned deaths = 0; record_sequence(p, tokens, n, &error); deaths++) {
        if (interrupts)
            return INTERRUPTED;
        progress_end(&p->progress);
        if (!serving_attach_again(&p->serving, p->model, p->context, deaths, &error, &p->session,
                                  exit_code))
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
    printf("%s: %zu sequence%s, %" PRIu64 " tokens, ", p->out, p->n_done, p->n_done == 1 ? "" : "s",
           p->n_tokens);
    inspect_print_bytes(stat(p->out, &st) == 0 ? (uint64_t)st.st_size : 0);
    printf("; %.0f tokens/s\n", p->seconds > 0 ? (double)p->n_tokens / p->seconds : 0.0);
    return fflush(stdout) ? CLI_FAILURE : CLI_OK;
}

/* What is whole is kept, also after Ctrl-C. */
static int finish(struct profile *p)
{
    struct error e;
    struct trace_writer *w = p->writer;
    p->writer = NULL;
    if (trace_writer_finish(w, &e)) {
        ask_complain("%s", e.text);
        return CLI_FAILURE;
    }
    return report(p);
}

static int profile_all(struct profile *p)
{
    int exit_code = CLI_OK;
    enum outcome outcome = DONE;
    progress_begin(&p->progress);
    interrupts_hold(true);
    p->started_s = clock_s();
    for (size_t k = 0; k < p->sequences.n && outcome == DONE; k++)
        outcome = profile_sequence(p, k, &exit_code);
    p->seconds = clock_s() - p->started_s;
    interrupts_hold(false);
    progress_end(&p->progress);
    if (outcome == FAILED)
        return exit_code;
    if (outcome == INTERRUPTED && p->n_done < p->sequences.n)
        ask_complain("interrupted after %zu of %zu sequences%s", p->n_done, p->sequences.n,
                     p->n_done ? "; those are kept" : "");
    if (p->n_done)
        exit_code = finish(p);
    return outcome == INTERRUPTED && !exit_code ? EXIT_INTERRUPTED : exit_code;
}

static bool open_writer(struct profile *p)
{
    struct error e;
    if (!trace_writer_new(p->out, &p->facts.shape, p->facts.layers, &p->writer, &e))
        return true;
    ask_complain("%s", e.text);
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
    int exit_code = serving_open(&p->serving, "profile", p->name, p->model, p->context);
    if (exit_code)
        return exit_code;
    if (!interrupts_watch())
        exit_code = CLI_FAILURE;
    else if (serving_attach_context(&p->serving, p->model, p->context, &p->session, &exit_code))
        exit_code = profile_all(p);
    moed_detach(p->session);
    serving_close(&p->serving);
    return exit_code;
}

static void profile_fini(struct profile *p)
{
    trace_writer_abandon(p->writer);
    profile_sequences_fini(&p->sequences);
    trace_model_fini(&p->facts);
    model_text_close(&p->tokens_of);
    gguf_close(p->g);
    free(p->recorded.selected);
    free(p->recorded.gate);
    free(p->recorded.hidden);
    free(p->recorded.hidden_of);
}

int profile_main(int argc, char **argv)
{
    static struct profile p = {.gate = true, .embeddings = true}; /* large */
    const struct option_spec table[] = {
        {"text", OPTION_STRING, &p.text, 0, 0, "FILES", "the texts; - reads standard input"},
        {"o", OPTION_STRING, &p.out, 0, 0, "TRACE", "the file to write"},
        {"max-tokens", OPTION_UINT, &p.max_tokens, 0, 0, "N", "no more tokens than that; 0: all"},
        {"context", OPTION_UINT, &p.context, 0, 1u << 24, "N",
         "tokens of a sequence at most; 0: the trained context, at most 512"},
        {"prompt", OPTION_UINT, &p.prompt, 0, 1u << 24, "N",
         "of each sequence the first N count as its prompt; 0: half of it"},
        {"split", OPTION_STRING, &p.split, 0, 0, "WHERE",
         "where documents end: file, blank-line or line; default file"},
        {"hidden", OPTION_STRING, &p.hidden, 0, 0, "WHICH",
         "gate inputs of which tokens: none, all, or 1/N of them; default " DEFAULT_HIDDEN},
        {"gate", OPTION_BOOL, &p.gate, 0, 0, NULL,
         "with the gates' probabilities; --no-gate: without"},
        {"embeddings", OPTION_BOOL, &p.embeddings, 0, 0, NULL,
         "with the embedding of each distinct token; --no-embeddings: without"},
        {"special", OPTION_BOOL, &p.special, 0, 0, NULL,
         "special tokens' texts in the text become those tokens"},
        {"stepwise", OPTION_BOOL, &p.stepwise, 0, 0, NULL,
         "compute one token at a time, as an answer is; slower"},
        {"name", OPTION_STRING, &p.name, 0, 0, "NAME", "deployment"},
        {0},
    };
    int n, exit_code;
    if (!deployment_arguments(
            table, "profile", "MODEL --text FILES -o TRACE [OPTIONS]",
            "Records which experts MODEL (a GGUF file, or `demo`) chooses for the tokens of the\n"
            "texts in FILES, with a deployment that serves it, else with one that is started and\n"
            "stopped for this. Each file is cut into documents, each document into sequences.\n"
            "TRACE is what moed-replay and moed train read; moed inspect TRACE shows it.",
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
