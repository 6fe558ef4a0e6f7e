/* moed perplexity: measures how well a model predicts a text.
 *
 * It cuts the text (model_text.h) into windows (windows.h). The worker computes the log-probability
 * of each scored token, and estimate.h turns these into figures. It requests one window at a time,
 * so that other users of the deployment wait for no more than one. */
#include "client/cli/perplexity.h"

#include "base/checksum.h"
#include "base/clock.h"
#include "client/cli/ask.h"
#include "client/cli/commands.h"
#include "client/cli/interrupt.h"
#include "client/cli/model_file.h"
#include "gguf/gguf.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- The text ---- */

static bool open_tokenizer(struct perplexity *p)
{
    struct gguf *g;
    struct error e;
    if (gguf_open(p->model, &g, &e)) {
        cli_complain("%s", e.text);
        return false;
    }
    bool ok = model_text_open(&p->text, g);
    bool begins = p->text.has_begin_token && !p->ids_given;
    p->plan.begin_token = begins && !p->llama;
    p->replaces_first = begins && p->llama;
    gguf_close(g);
    return ok;
}

static bool tokenize(struct perplexity *p, const struct strbuf *text)
{
    struct error e;
    unsigned flags =
        (p->special ? TOKENIZE_PARSE_SPECIAL : 0) | (p->llama ? TOKENIZE_ADD_SPECIAL : 0);
    const char *data = text->data ? text->data : "";
    if (!tokenizer_encode(p->text.tokenizer, data, text->len, flags, &p->tokens, &e))
        return true;
    cli_complain("%s", e.text);
    return false;
}

static bool take_ids(struct perplexity *p, const struct strbuf *text)
{
    uint32_t vocab = tokenizer_vocab_size(p->text.tokenizer);
    if (!ask_ids(text->data ? text->data : "", text->len, &p->tokens.ids, &p->tokens.count))
        return false;
    for (size_t i = 0; i < p->tokens.count; i++)
        if (p->tokens.ids[i] >= vocab) {
            cli_complain("%s: token %" PRIu32 " is not in the vocabulary of %" PRIu32, p->file,
                         p->tokens.ids[i], vocab);
            return false;
        }
    return true;
}

static bool take_text(struct perplexity *p)
{
    struct strbuf text;
    strbuf_init(&text);
    bool ok = model_text_read(p->file, &text);
    if (ok) {
        p->text_hash = checksum64(0, text.data ? text.data : "", text.len);
        ok = p->ids_given ? take_ids(p, &text) : tokenize(p, &text);
    }
    strbuf_fini(&text);
    return ok;
}

/* ---- Windows ---- */

/* Chooses the context before a deployment is looked for: one of our own starts with it. */
static bool choose_context(struct perplexity *p)
{
    if (!p->context)
        p->context = model_text_context(&p->text);
    uint64_t size = p->context - p->plan.begin_token;
    if (!p->stride)
        p->stride = size;
    unsigned least = p->llama ? 3 : 2;
    if (p->context < least) {
        cli_complain("perplexity: --context: expected at least %u tokens", least);
        return false;
    }
    if (p->llama && p->stride != size) {
        cli_complain("perplexity: --llama and --stride cannot be combined: its windows do not "
                     "overlap");
        return false;
    }
    if (p->stride > size) {
        cli_complain("perplexity: --stride %" PRIu64 " is more than the %" PRIu64
                     " tokens of the text in a window: tokens would be left out",
                     p->stride, size);
        return false;
    }
    return true;
}

static bool plan_windows(struct perplexity *p)
{
    p->plan.n_tokens = p->tokens.count;
    p->plan.size = p->context - p->plan.begin_token;
    p->plan.stride = p->stride;
    p->plan.halves = p->llama;
    p->n_windows = windows_count(&p->plan);
    if (p->chunks && p->n_windows > p->chunks)
        p->n_windows = p->chunks;
    if (!p->n_windows) {
        cli_complain("%s has %zu tokens: there is nothing to score", p->file, p->tokens.count);
        return false;
    }
    p->ids = malloc(p->context * sizeof *p->ids);
    if (!p->ids)
        cli_complain("no memory for a window of %" PRIu64 " tokens", p->context);
    return p->ids != NULL;
}

/* ---- Measuring ---- */

enum outcome { SCORED, INTERRUPTED, FAILED };

static enum moed_code add_logprobs(struct perplexity *p, const struct moed_event *event,
                                   struct moed_error *error)
{
    struct strbuf chunk;
    strbuf_init(&chunk);
    for (size_t i = 0; i < event->logprob_count; i++) {
        if (!isfinite(event->logprobs[i])) {
            *error = (struct moed_error){.code = MOED_ERROR_UNSUPPORTED};
            snprintf(error->message, sizeof error->message,
                     "the model's logits are no numbers: there is no perplexity");
            strbuf_fini(&chunk);
            return error->code;
        }
        estimate_add(&p->estimate, -(double)event->logprobs[i]);
        strbuf_clear(&chunk);
        tokenizer_piece(p->text.tokenizer, p->ids[event->first + i], true, &chunk);
        p->window_bytes += chunk.len;
    }
    strbuf_fini(&chunk);
    return MOED_OK;
}

static enum moed_code take_event(void *arg, const struct moed_event *event,
                                 struct moed_error *error)
{
    struct perplexity *p = arg;
    enum moed_code code = MOED_OK;
    if (event->kind == MOED_EVENT_LOGPROBS && !perplexity_pairs_take(p, event)) {
        *error = (struct moed_error){.code = MOED_ERROR_PROTOCOL};
        snprintf(error->message, sizeof error->message,
                 "the worker gave other probabilities than those that it was asked for");
        return error->code;
    }
    if (event->kind == MOED_EVENT_LOGPROBS)
        code = add_logprobs(p, event, error);
    if (!code)
        perplexity_show_progress(p);
    return code;
}

static enum moed_code score_window(struct perplexity *p, size_t k, struct moed_error *error)
{
    struct window w = windows_at(&p->plan, k);
    size_t n = 0;
    if (p->plan.begin_token)
        p->ids[n++] = p->text.begin_token;
    size_t first = n + w.scored_begin - w.begin;
    for (size_t i = w.begin; i < w.end; i++)
        p->ids[n++] = p->tokens.ids[i];
    if (p->replaces_first)
        p->ids[0] = p->text.begin_token;
    p->window_tokens = n;
    p->window_first = first;
    const struct moed_logprobs_options options = {.size = sizeof options,
                                                  .tokens = p->ids,
                                                  .token_count = n,
                                                  .first = first,
                                                  .top = p->top,
                                                  .priority = MOED_PRIORITY_BATCH};
    struct moed_request *request;
    enum moed_code code = moed_logprobs_start(p->serving.session, &options, &request, error);
    if (code)
        return code;
    code = serving_consume(request, take_event, p, error);
    if (!code && !interrupts && p->estimate.current.tokens != w.end - w.scored_begin) {
        *error = (struct moed_error){.code = MOED_ERROR_PROTOCOL};
        snprintf(error->message, sizeof error->message,
                 "the worker gave the probabilities of some tokens only");
        code = error->code;
    }
    return code;
}

/* Scores one window, and tries again where the worker is restarted. */
static enum outcome measure_window(struct perplexity *p, size_t k, int *exit_code)
{
    struct moed_error error;
    for (unsigned deaths = 0; score_window(p, k, &error); deaths++) {
        estimate_drop_window(&p->estimate);
        p->window_bytes = 0;
        if (interrupts)
            return INTERRUPTED;
        progress_end(&p->progress);
        if (!serving_attach_again(&p->serving, deaths, &error, exit_code))
            return FAILED;
    }
    if (p->top && interrupts && p->estimate.current.tokens != p->window_tokens - p->window_first) {
        estimate_drop_window(&p->estimate); /* only a part of it has come */
        return INTERRUPTED;
    }
    *exit_code = CLI_FAILURE;
    if (!perplexity_pairs_window(p))
        return FAILED;
    if (!estimate_end_window(&p->estimate)) {
        cli_complain("no memory for another window");
        return FAILED;
    }
    *exit_code = CLI_OK;
    p->bytes += p->window_bytes;
    p->window_bytes = 0;
    return interrupts ? INTERRUPTED : SCORED;
}

static int measure(void *arg)
{
    struct perplexity *p = arg;
    for (size_t k = 0; k < p->n_windows; k++) {
        struct window w = windows_at(&p->plan, k);
        p->n_scored += w.end - w.scored_begin;
    }
    if (!perplexity_pairs_open(p))
        return CLI_FAILURE;
    int exit_code = CLI_OK;
    enum outcome outcome = SCORED;
    progress_begin(&p->progress);
    interrupts_hold(true);
    for (size_t k = 0; k < p->n_windows && outcome == SCORED; k++)
        outcome = measure_window(p, k, &exit_code);
    p->seconds = clock_s() - p->progress.started_s;
    interrupts_hold(false);
    progress_end(&p->progress);
    if (outcome == FAILED)
        return exit_code;
    if (outcome == SCORED)
        return perplexity_pairs_finish(p) ? perplexity_report(p) : CLI_FAILURE;
    cli_complain("interrupted after %zu of %zu windows%s", p->estimate.n_windows, p->n_windows,
                 p->estimate.n_windows ? "; what is known so far:" : "");
    if (p->estimate.n_windows)
        perplexity_report(p);
    return EXIT_INTERRUPTED;
}

/* ---- The verb ---- */

static int perplexity(struct perplexity *p, const char *model)
{
    if (!model_file_find(model, p->model) || !open_tokenizer(p))
        return CLI_FAILURE;
    if (!choose_context(p))
        return CLI_USAGE;
    if (!take_text(p) || !plan_windows(p))
        return CLI_FAILURE;
    return serving_run(&p->serving, "perplexity", p->name, p->model, p->context, measure, p);
}

int perplexity_main(int argc, char **argv)
{
    static struct perplexity p; /* large */
    const struct option_spec table[] = {
        {"f", OPTION_STRING, &p.file, 0, 0, "FILE",
         "read the text from FILE; -: from standard input"},
        {"context", OPTION_UINT, &p.context, 0, 1u << 24, "N",
         "set the window's tokens; 0: as trained, up to 512"},
        {"stride", OPTION_UINT, &p.stride, 0, 1u << 24, "N",
         "begin a window every N tokens; 0: side by side"},
        {"llama", OPTION_BOOL, &p.llama, 0, 0, NULL,
         "score the second half of each window, as llama-perplexity"},
        {"chunks", OPTION_UINT, &p.chunks, 0, 0, "N", "stop after N windows; 0: never"},
        {"special", OPTION_BOOL, &p.special, 0, 0, NULL,
         "parse the texts of special tokens in the text"},
        {"tokens", OPTION_BOOL, &p.ids_given, 0, 0, NULL,
         "read token ids from FILE; add no begin tokens"},
        {"save", OPTION_STRING, &p.save, 0, 0, "BASE",
         "write the tokens' log-probabilities to BASE"},
        {"against", OPTION_STRING, &p.against, 0, 0, "BASE",
         "compare with the model that BASE was saved for"},
        {"name", OPTION_STRING, &p.name, 0, 0, "NAME", "select a deployment"},
        {"json", OPTION_BOOL, &p.json, 0, 0, NULL, "print one JSON object"},
        {0},
    };
    int exit_code;
    if (!ask_arguments(
            table, "perplexity", "MODEL -f FILE [OPTIONS]",
            "Measures how well MODEL (a GGUF file, or `demo`) predicts the text in FILE. Uses\n"
            "a deployment that serves MODEL, else starts one and stops it at the end.\n"
            "Perplexity is exp of the mean negative log-likelihood of the scored tokens. The\n"
            "text is tokenised as a whole and cut into windows. Every token is scored but the\n"
            "first of each window; that too where the model puts a begin token before it.",
            argc, argv, 1, 1, NULL, &exit_code))
        return exit_code;
    if (!p.file) {
        cli_complain("perplexity: -f FILE is missing; usage: moed perplexity MODEL -f FILE");
        return CLI_USAGE;
    }
    if (p.save && p.against) {
        cli_complain("perplexity: --save and --against cannot be combined");
        return CLI_USAGE;
    }
    estimate_init(&p.estimate);
    exit_code = perplexity(&p, argv[1]);
    perplexity_pairs_close(&p);
    estimate_fini(&p.estimate);
    model_text_close(&p.text);
    token_list_fini(&p.tokens);
    free(p.ids);
    return exit_code;
}
