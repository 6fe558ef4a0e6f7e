/* Several answers to one prompt: while one of the requests computes it, the others wait. They then
 * find its pages, and the prompt is computed once. */
#include "engine_internal.h"

#include <string.h>

static bool computes_prompt(const struct request *r)
{
    return r->shares_pages && r->n_past < r->n_prefill;
}

/* The same prompt of the same client. Prompts that only begin alike do not wait: the other may be
 * much longer, may leave nothing that r can use (kv_kind_of, snapshots), or may stand still because
 * its client does not read. */
static bool same_prompt(const struct request *a, const struct request *b)
{
    return a->submitter == b->submitter && a->cache_salt == b->cache_salt &&
           a->n_prompt == b->n_prompt && a->n_prefill == b->n_prefill &&
           memcmp(a->tokens.ids, b->tokens.ids, a->n_prefill * sizeof *a->tokens.ids) == 0;
}

bool engine_waits_for_prompt(struct engine *g, struct request *r)
{
    if (!r->shares_pages || r->n_prefill <= KV_POOL_TOKENS)
        return false;
    for (const struct request *q = g->running; q; q = q->next) {
        if (!computes_prompt(q) || !same_prompt(q, r))
            continue;
        struct kv_prefix prefix = request_prefix(r, r->n_prefill - 1);
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
    for (struct request *r = g->waiting.first; r; r = r->next)
        if (r->waits_for && !still_computes(g, r->waits_for))
            r->waits_for = 0;
}
