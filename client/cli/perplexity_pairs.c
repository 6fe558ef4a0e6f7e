/* moed perplexity: --save and --against. The scores of a window are kept until it is complete: then
 * they are written to the baseline, or compared with those that it has. */
#include "client/cli/perplexity.h"

#include "client/cli/ask.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool wants_pairs(const struct perplexity *p)
{
    return p->save || p->against;
}

static bool complained(enum error_code code, const struct error *e)
{
    if (code)
        cli_complain("%s", e->text);
    return code != ERROR_OK;
}

/* The end of a text that is longer; '?' for each control character. */
static void put_end(char *out, size_t bytes, const char *text)
{
    size_t len = strlen(text), from = len < bytes ? 0 : len - bytes + 1;
    memcpy(out, text + from, len - from + 1);
    for (; *out; out++)
        *out = iscntrl((unsigned char)*out) ? '?' : *out;
}

static bool create(struct perplexity *p)
{
    const struct moed_model *m = p->serving.facts;
    struct error e;
    struct baseline_head head = {.vocab = m->vocab,
                                 .top = m->vocab < BASELINE_TOP ? m->vocab : BASELINE_TOP,
                                 .n_windows = p->n_windows,
                                 .n_scored = p->n_scored,
                                 .identity = m->identity};
    put_end(head.kv_type, sizeof head.kv_type, m->kv_type);
    put_end(head.device, sizeof head.device, m->device);
    put_end(head.model, sizeof head.model, p->model);
    return !complained(baseline_create(&p->baseline, p->save, &head, &e), &e);
}

static bool open_base(struct perplexity *p)
{
    struct error e;
    if (complained(baseline_open(&p->baseline, p->against, &e), &e))
        return false;
    const struct baseline_head *h = &p->baseline.head;
    if (h->vocab != p->serving.facts->vocab) {
        cli_complain("%s is of a model with %" PRIu32 " tokens, this one has %" PRIu32
                     ": they cannot be compared",
                     p->against, h->vocab, p->serving.facts->vocab);
        return false;
    }
    if (h->n_windows != p->n_windows || h->n_scored != p->n_scored) {
        cli_complain("%s has %" PRIu64 " tokens in %" PRIu64 " windows, this measurement %" PRIu64
                     " in %zu: the same text and options are needed",
                     p->against, h->n_scored, h->n_windows, p->n_scored, p->n_windows);
        return false;
    }
    return true;
}

bool perplexity_pairs_open(struct perplexity *p)
{
    if (!wants_pairs(p))
        return true;
    if (!(p->save ? create(p) : open_base(p)))
        return false;
    p->top = p->baseline.head.top;
    if (baseline_scores_init(&p->scores, p->context, p->top) &&
        baseline_scores_init(&p->base_scores, p->context, p->top))
        return true;
    cli_complain("no memory for the scores of a window of %" PRIu64 " tokens", p->context);
    return false;
}

bool perplexity_pairs_take(struct perplexity *p, const struct moed_event *event)
{
    size_t at = event->first - p->window_first, n = event->logprob_count;
    if (!wants_pairs(p))
        return true;
    if (event->top_count != p->top || event->first < p->window_first ||
        n > p->window_tokens - event->first)
        return false;
    memcpy(p->scores.logprobs + at, event->logprobs, n * sizeof *event->logprobs);
    memcpy(p->scores.top + at * p->top, event->top_tokens, n * p->top * sizeof *event->top_tokens);
    memcpy(p->scores.top_logprobs + at * p->top, event->top_logprobs,
           n * p->top * sizeof *event->top_logprobs);
    return true;
}

static struct comparison_side side_at(const struct perplexity *p, const struct baseline_scores *s,
                                      size_t i)
{
    return (struct comparison_side){s->logprobs[i], s->top + i * p->top,
                                    s->top_logprobs + i * p->top, p->top};
}

static bool compare(struct perplexity *p)
{
    bool ok = true;
    for (size_t i = 0; i < p->window_tokens - p->window_first && ok; i++) {
        struct comparison_side base = side_at(p, &p->base_scores, i),
                               mine = side_at(p, &p->scores, i);
        ok = comparison_add(&p->comparison, p->ids[p->window_first + i], &base, &mine);
    }
    ok = ok && comparison_end_window(&p->comparison);
    if (!ok)
        cli_complain("no memory for another window");
    return ok;
}

bool perplexity_pairs_window(struct perplexity *p)
{
    struct error e;
    struct baseline_scores *s = p->save ? &p->scores : &p->base_scores;
    if (!wants_pairs(p))
        return true;
    if (complained(baseline_window(&p->baseline, p->ids, p->window_tokens, p->window_first, s, &e),
                   &e))
        return false;
    return p->save || compare(p);
}

bool perplexity_pairs_finish(struct perplexity *p)
{
    struct error e;
    return !wants_pairs(p) || !complained(baseline_finish(&p->baseline, &e), &e);
}

void perplexity_pairs_close(struct perplexity *p)
{
    baseline_abandon(&p->baseline);
    comparison_fini(&p->comparison);
    free(p->scores.memory);
    free(p->base_scores.memory);
}
