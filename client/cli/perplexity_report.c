/* moed perplexity: its progress line and its report. */
#include "client/cli/perplexity.h"

#include "client/cli/ask.h"
#include "client/cli/commands.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void perplexity_show_progress(struct perplexity *p)
{
    char figures[80] = "";
    if (!progress_is_due(&p->progress))
        return;
    struct estimate_result r = estimate_get(&p->estimate);
    if (r.tokens > 1)
        snprintf(figures, sizeof figures, "%.4g (95 %% %.4g-%.4g), ", exp(r.mean), exp(r.low),
                 exp(r.high));
    progress_show_tokens(&p->progress, "perplexity", figures, r.tokens + p->estimate.current.tokens,
                         p->n_scored);
}

/* ---- The end ---- */

static double speed_of(const struct perplexity *p, uint64_t tokens)
{
    return p->seconds > 0 ? (double)tokens / p->seconds : 0;
}

static double bits_per_byte(const struct perplexity *p, const struct estimate_result *r)
{
    return r->mean * (double)r->tokens / log(2.0) / (double)p->bytes;
}

static void number(struct strbuf *b, const char *key, double value)
{
    if (isfinite(value))
        strbuf_printf(b, ", \"%s\": %.9g", key, value);
    else
        strbuf_printf(b, ", \"%s\": null", key);
}

static void count(struct strbuf *b, const char *key, uint64_t value)
{
    strbuf_printf(b, ", \"%s\": %" PRIu64, key, value);
}

static void text(struct strbuf *b, const char *key, const char *value)
{
    strbuf_printf(b, ", \"%s\": ", key);
    strbuf_json_string(b, value, strlen(value));
}

/* What the figures were measured with. deployment is null where it was started for them. */
static void serving_json(const struct perplexity *p, struct strbuf *b)
{
    const struct serving *s = &p->serving;
    const char *run = getenv("MOED_RUN"); /* where it is set, the name does not count */
    char hash[17];
    if (s->own)
        strbuf_printf(b, ", \"deployment\": null");
    else
        text(b, "deployment", run ? run : s->deployment ? s->deployment : "default");
    text(b, "kv_type", s->facts->kv_type);
    text(b, "device", s->facts->device);
    strbuf_printf(b, ", \"reproducible\": %s", s->facts->reproducible ? "true" : "false");
    text(b, "version", MOED_VERSION);
    snprintf(hash, sizeof hash, "%016" PRIx64, p->text_hash);
    text(b, "text_hash", hash);
}

static void comparison_json(const struct perplexity *p, const struct comparison_result *c,
                            struct strbuf *b)
{
    const struct baseline_head *h = &p->baseline.head;
    strbuf_printf(b, ", \"base\": {\"model\": ");
    strbuf_json_string(b, h->model, strlen(h->model));
    text(b, "kv_type", h->kv_type);
    text(b, "device", h->device);
    number(b, "perplexity", exp(c->base.mean));
    number(b, "nll", c->base.mean);
    strbuf_printf(b, "}");
    number(b, "nll_difference", c->delta.mean);
    number(b, "nll_difference_standard_error", c->delta.standard_error);
    number(b, "perplexity_ratio", exp(c->delta.mean));
    number(b, "perplexity_ratio_low", exp(c->delta.low));
    number(b, "perplexity_ratio_high", exp(c->delta.high));
    number(b, "kl_mean", c->mean);
    number(b, "kl_median", c->median);
    number(b, "kl_99", c->q99);
    number(b, "kl_max", c->most);
    count(b, "kl_top", p->top);
    number(b, "kl_rest", c->rest);
    number(b, "same_top", c->same_top);
}

static void report_json(const struct perplexity *p, const struct estimate_result *r,
                        const struct comparison_result *c, struct strbuf *b)
{
    strbuf_printf(b, "{\"model\": ");
    strbuf_json_string(b, p->model, strlen(p->model));
    number(b, "perplexity", exp(r->mean));
    number(b, "perplexity_low", exp(r->low));
    number(b, "perplexity_high", exp(r->high));
    number(b, "nll", r->mean);
    number(b, "nll_standard_error", r->standard_error);
    strbuf_printf(b, ", \"error_over\": \"%s\"", r->over_windows ? "windows" : "tokens");
    number(b, "bits_per_byte", bits_per_byte(p, r));
    count(b, "tokens_scored", r->tokens);
    count(b, "bytes_scored", p->bytes);
    count(b, "tokens", p->tokens.count);
    count(b, "windows", p->estimate.n_windows);
    count(b, "windows_asked", p->n_windows);
    count(b, "context", p->context);
    count(b, "stride", p->plan.stride);
    strbuf_printf(b, ", \"begin_token\": %s",
                  p->plan.begin_token || p->replaces_first ? "true" : "false");
    text(b, "scored", p->llama ? "second-half" : "all");
    serving_json(p, b);
    if (p->against)
        comparison_json(p, c, b);
    number(b, "seconds", p->seconds);
    number(b, "tokens_per_s", speed_of(p, r->tokens));
    strbuf_printf(b, "}\n");
}

static void comparison_text(const struct perplexity *p, const struct comparison_result *c,
                            struct strbuf *b)
{
    const struct baseline_head *h = &p->baseline.head;
    strbuf_printf(b, "against         %s (kv %s, %s), perplexity %.4f\n", h->model, h->kv_type,
                  h->device, exp(c->base.mean));
    strbuf_printf(b, "nll difference  %+.6f nats a token, standard error %.6f over %s\n",
                  c->delta.mean, c->delta.standard_error,
                  c->delta.over_windows ? "windows" : "tokens");
    strbuf_printf(b, "ratio           %.6f, 95 %% confidence %.6f to %.6f\n", exp(c->delta.mean),
                  exp(c->delta.low), exp(c->delta.high));
    strbuf_printf(b, "KL divergence   mean %.6f, median %.6f, 99 %% %.6f, largest %.6f nats\n",
                  c->mean, c->median, c->q99, c->most);
    if (p->top < h->vocab)
        strbuf_printf(b,
                      "                at least: it is over the %" PRIu32
                      " most probable tokens, without %.1f %% of the probability\n",
                      p->top, 100 * c->rest);
    strbuf_printf(b, "same top token  %.2f %%\n", 100 * c->same_top);
}

static void report_text(const struct perplexity *p, const struct estimate_result *r,
                        const struct comparison_result *c, struct strbuf *b)
{
    strbuf_printf(b, "perplexity      %.4f", exp(r->mean));
    if (isfinite(r->standard_error))
        strbuf_printf(b, ", 95 %% confidence %.4f to %.4f", exp(r->low), exp(r->high));
    strbuf_printf(b, "\nnll             %.6f nats a token", r->mean);
    if (isfinite(r->standard_error))
        strbuf_printf(b, ", standard error %.6f over %s", r->standard_error,
                      r->over_windows ? "windows"
                                      : "tokens (too few windows: it is larger in truth)");
    strbuf_printf(b, "\nbits a byte     %.4f\n", bits_per_byte(p, r));
    strbuf_printf(b, "scored          %" PRIu64 " tokens, %" PRIu64 " bytes\n", r->tokens,
                  p->bytes);
    strbuf_printf(b, "windows         %zu of at most %" PRIu64 " tokens, one every %zu%s\n",
                  p->estimate.n_windows, p->context, p->plan.stride,
                  p->plan.begin_token ? ", each after a begin token"
                  : p->llama          ? "; of each the second half is scored"
                                      : "");
    if (p->against)
        comparison_text(p, c, b);
    strbuf_printf(b, "speed           %.1f tokens/s, %.1f s\n", speed_of(p, r->tokens), p->seconds);
}

int perplexity_report(struct perplexity *p)
{
    struct estimate_result r = estimate_get(&p->estimate);
    struct comparison_result c = {0};
    struct strbuf out;
    strbuf_init(&out);
    if (p->against)
        c = comparison_get(&p->comparison);
    if (p->json)
        report_json(p, &r, &c, &out);
    else
        report_text(p, &r, &c, &out);
    if (out.failed)
        cli_complain("no memory for the report");
    bool written = !out.failed && ask_print(out.data, out.len);
    strbuf_fini(&out);
    return written ? CLI_OK : CLI_FAILURE;
}
