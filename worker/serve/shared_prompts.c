/* Prompts with a common beginning, which is computed once.
 *
 * Several answers to one prompt, and an answer to a prompt whose log-probabilities are asked for,
 * too: while one of the requests computes it, the others wait for a slot. They then find its pages.
 *
 * Prompts to score have batches of their own, one prompt after the other. Before its first rows are
 * computed one looks again for pages that those before it have computed.
 *
 * Answers to prompts that only begin alike run at once. Before its first rows are computed a
 * request looks again for pages that others have computed since it started; and while another one
 * computes what it needs next, it follows that one: it leaves its rows of a step to it. Once that
 * one does not get on, because its client does not read for example, the request computes its
 * prompt itself. */
#include "common_tokens.h"
#include "engine_internal.h"

#include <string.h>

static bool computes_prompt(const struct request *r)
{
    return r->shares_pages && r->n_past < r->n_prefill;
}

/* The same prompt of the same client. Prompts that only begin alike do not wait for a slot: the
 * other one may be much longer, or stand still. */
static bool same_prompt(const struct request *a, const struct request *b)
{
    return a->submitter == b->submitter && a->cache_salt == b->cache_salt &&
           a->n_prompt == b->n_prompt && a->n_prefill == b->n_prefill &&
           memcmp(a->tokens.ids, b->tokens.ids, a->n_prefill * sizeof *a->tokens.ids) == 0;
}

bool engine_waits_for_prompt(struct engine *g, struct request *r)
{
    if (!r->shares_batch || r->n_prefill <= KV_POOL_TOKENS)
        return false;
    for (const struct request *q = g->running; q; q = q->next) {
        if (!computes_prompt(q) || !same_prompt(q, r))
            continue;
        struct kv_prefix prefix = request_reusable(r);
        uint32_t cached = prefix_cache_find(g->config.prefixes, &prefix, NULL);
        if (r->n_prefill - 1 - cached < KV_POOL_TOKENS)
            return false;
        r->waits_for = q->serial;
        return true;
    }
    return false;
}

static bool still_computes(const struct engine *g, uint64_t serial)
{
    const struct request *q = g->running;
    while (q && q->serial != serial)
        q = q->next;
    return q && computes_prompt(q);
}

void engine_end_waits(struct engine *g)
{
    /* those that wait for a prompt are set aside; many more may wait for a slot */
    for (struct request *r = g->waiting.aside; r; r = r->place.lane_next)
        if (r->waits_for && !still_computes(g, r->waits_for))
            r->waits_for = 0;
}

/* ---- Requests that run ---- */

static bool is_untouched(const struct request *r)
{
    return r->shares_batch && computes_prompt(r) && r->n_past == r->n_found;
}

/* The positions that r can begin with once q has computed them; fewer than a page beyond r->n_past
 * count as none. */
static uint32_t common_positions(const struct engine *g, const struct request *q,
                                 const struct request *r)
{
    uint32_t most = r->n_prefill - 1 < q->n_prefill ? r->n_prefill - 1 : q->n_prefill;
    uint32_t n = common_tokens(q->tokens.ids, r->tokens.ids, most, r->n_past);
    return engine_cut_before(g, kv_same_kinds(n, q->n_prompt, r->n_prompt, g->config.exact),
                             r->n_prompt);
}

static bool is_ahead(const struct request *q, const struct request *r)
{
    return q->n_past > r->n_past || (q->n_past == r->n_past && q->serial < r->serial);
}

/* The request that is about to compute a page or more that r needs next. *common: how many
 * positions r can begin with then. NULL: there is none. */
static struct request *find_leader(const struct engine *g, const struct request *r,
                                   uint32_t *common)
{
    for (struct request *q = g->running; q && is_untouched(r); q = q->next) {
        if (q == r || q->cache_salt != r->cache_salt || !q->shares_batch || !computes_prompt(q) ||
            !is_ahead(q, r))
            continue;
        *common = common_positions(g, q, r);
        if (*common >= r->n_past + KV_POOL_TOKENS && *common > q->n_past)
            return q;
    }
    return NULL;
}

/* Whether the prefix cache may have more of r's prompt than when r looked last: a page has been
 * filled since. Snapshots come at other times. */
static bool has_news(const struct engine *g, struct request *r)
{
    uint64_t changes = prefix_cache_changes(g->config.prefixes);
    bool news = changes != r->seen_changes || g->config.snapshots;
    r->seen_changes = changes;
    return news;
}

bool engine_find_beginning(struct engine *g, struct request *r)
{
    if (!r->shares_pages || r->n_past != r->n_found || !has_news(g, r) || engine_reopen_pages(g, r))
        return true;
    engine_suspend(g, r);
    return false;
}

/* True: one begins further on, so another may find more too, or follow it no longer. */
static bool reopen_untouched(struct engine *g)
{
    uint32_t common;
    bool any = false;
    for (struct request *r = g->running, *next; r; r = next) {
        uint32_t before = r->n_past;
        next = r->next;
        if (!is_untouched(r) || find_leader(g, r, &common) || !has_news(g, r))
            continue;
        if (!engine_reopen_pages(g, r))
            engine_suspend(g, r);
        any |= r->n_past > before;
    }
    return any;
}

void engine_share_beginnings(struct engine *g)
{
    uint32_t common;
    while (reopen_untouched(g))
        ;
    for (struct request *r = g->running; r; r = r->next) {
        r->follows = find_leader(g, r, &common);
        if (r->follows)
            engine_plan_snapshot(g, r->follows, common);
    }
}
