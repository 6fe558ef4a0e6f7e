/* What `moed run` prints beside the answer's text; see run.h. */
#include "client/cli/run_command.h"

#include "client/cli/ask.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

/* ---- Collecting ---- */

/* JSON has no infinity. */
static void add_logprob(struct strbuf *out, float logprob)
{
    if (isfinite(logprob))
        strbuf_printf(out, "%.6g", (double)logprob);
    else
        strbuf_printf(out, "null");
}

static void add_logprobs(struct strbuf *out, const struct moed_event *event, size_t i)
{
    strbuf_printf(out, "%s{\"token\": %" PRIu32 ", \"logprob\": ", out->len ? ", " : "",
                  event->tokens[i]);
    add_logprob(out, event->logprobs[i]);
    strbuf_printf(out, ", \"top\": [");
    for (size_t k = 0; k < event->top_count; k++) {
        size_t at = i * event->top_count + k;
        strbuf_printf(out, "%s[%" PRIu32 ", ", k ? ", " : "", event->top_tokens[at]);
        add_logprob(out, event->top_logprobs[at]);
        strbuf_printf(out, "]");
    }
    strbuf_printf(out, "]}");
}

void run_collect(struct run *run, const struct moed_event *event)
{
    strbuf_append(&run->text, event->text, event->text_bytes);
    for (size_t i = 0; i < event->token_count; i++)
        strbuf_printf(&run->tokens, "%s%" PRIu32, run->tokens.len ? ", " : "", event->tokens[i]);
    for (size_t i = 0; i < event->logprob_count; i++)
        add_logprobs(&run->logprobs, event, i);
}

void run_take_progress(struct run *run, const struct moed_progress *progress)
{
    if (run->json)
        strbuf_printf(&run->progress, "%s[%" PRIu32 ", %.6f]", run->progress.len ? ", " : "",
                      progress->computed, (double)progress->ns * 1e-9);
    else
        fprintf(stderr, "prompt: %" PRIu32 " of %" PRIu32 " tokens after %.1f s\n",
                progress->computed, progress->prompt_tokens, (double)progress->ns * 1e-9);
}

/* ---- Printing ---- */

static double per_second(double count, uint64_t ns)
{
    return ns && count > 0 ? count / ((double)ns * 1e-9) : 0;
}

/* Prefill gives the first token, decoding the others. */
static double decode_rate(const struct moed_result *r)
{
    return per_second((double)r->generated_tokens - 1, r->decode_ns);
}

static uint32_t cached_tokens(const struct moed_result *r)
{
    return r->cached_tokens < r->prompt_tokens ? r->cached_tokens : r->prompt_tokens;
}

/* Of the tokens that were computed. */
static double prompt_rate(const struct moed_result *r)
{
    return per_second(r->prompt_tokens - cached_tokens(r), r->prefill_ns);
}

static double first_token_s(const struct run *run)
{
    return run->first_token_s > 0 ? run->first_token_s - run->started_s : 0;
}

static void add_end(struct strbuf *out, const struct moed_result *r)
{
    strbuf_printf(out, ", \"finish_reason\": \"%s\"", moed_reason_name(r->reason));
    if (r->end_token >= 0)
        strbuf_printf(out, ", \"end_token\": %" PRId64, r->end_token);
    if (r->stop_index >= 0)
        strbuf_printf(out, ", \"stop_index\": %" PRId64, r->stop_index);
}

static const char *text_of(const struct strbuf *b)
{
    return b->len ? b->data : "";
}

bool run_print_json(const struct run *run)
{
    const struct moed_result *r = &run->result;
    struct strbuf out;
    strbuf_init(&out);
    strbuf_printf(&out, "{\"text\": ");
    strbuf_json_string(&out, run->text.data, run->text.len);
    strbuf_printf(&out, ", \"tokens\": [%s]", text_of(&run->tokens));
    add_end(&out, r);
    if (run->options.logprobs)
        strbuf_printf(&out, ", \"logprobs\": [%s]", text_of(&run->logprobs));
    if (run->options.progress)
        strbuf_printf(&out, ", \"progress\": [%s]", text_of(&run->progress));
    strbuf_printf(&out, ", \"seed\": %" PRIu64, r->seed);
    strbuf_printf(&out,
                  ", \"prompt_tokens\": %" PRIu32 ", \"cached_tokens\": %" PRIu32
                  ", \"generated_tokens\": %" PRIu32 ", \"drafted_tokens\": %" PRIu32
                  ", \"accepted_tokens\": %" PRIu32 ", \"resumed\": %" PRIu32,
                  r->prompt_tokens, r->cached_tokens, r->generated_tokens, r->drafted_tokens,
                  r->accepted_tokens, r->resumed);
    strbuf_printf(&out, ", \"queue_s\": %.6f, \"prefill_s\": %.6f, \"decode_s\": %.6f",
                  (double)r->queue_ns * 1e-9, (double)r->prefill_ns * 1e-9,
                  (double)r->decode_ns * 1e-9);
    strbuf_printf(&out,
                  ", \"time_to_first_token_s\": %.6f, \"prompt_tokens_per_s\": %.3f, "
                  "\"tokens_per_s\": %.3f}\n",
                  first_token_s(run), prompt_rate(r), decode_rate(r));
    bool failed = out.failed || run->text.failed || run->tokens.failed || run->logprobs.failed ||
                  run->progress.failed;
    if (failed)
        cli_complain("no memory for the answer");
    bool written = !failed && ask_print(out.data, out.len);
    strbuf_fini(&out);
    return written;
}

void run_print_stats(const struct run *run)
{
    const struct moed_result *r = &run->result;
    fprintf(stderr,
            "%" PRIu32 " tokens, %.2f tokens/s; prompt %" PRIu32 " tokens, %" PRIu32
            " cached, %.2f tokens/s; first token after %.3f s",
            r->generated_tokens, decode_rate(r), r->prompt_tokens, cached_tokens(r), prompt_rate(r),
            first_token_s(run));
    if (r->drafted_tokens)
        fprintf(stderr, "; %" PRIu32 " of %" PRIu32 " drafts accepted", r->accepted_tokens,
                r->drafted_tokens);
    fprintf(stderr, "\n");
}
