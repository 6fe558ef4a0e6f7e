/* Requests whose prompts begin alike, as the answers of one question do: while one of them computes
 * its prompt, the others wait. They then find those pages, and the prompt is computed once. */
#include "engine_internal.h"

#include <string.h>

static bool computes_prompt(const struct request *r)
{
    return r->shares_pages && r->n_past < r->n_prefill;
}

static bool same_page(const struct request *a, const struct request *b, uint32_t at)
{
    return memcmp(a->tokens.ids + at, b->tokens.ids + at, KV_POOL_TOKENS * sizeof(uint32_t)) == 0;
}

/* Whole pages that both begin with; r computes its last position itself. */
static uint32_t common_positions(const struct request *r, const struct request *other)
{
    uint32_t n = 0, most = r->n_prefill - 1;
    most = most < other->n_prefill ? most : other->n_prefill;
    while (n + KV_POOL_TOKENS <= most && same_page(r, other, n))
        n += KV_POOL_TOKENS;
    return n;
}

bool engine_waits_for_prompt(struct engine *g, struct request *r)
{
    uint32_t cached = UINT32_MAX;
    for (const struct request *q = g->running; r->shares_pages && q; q = q->next) {
        uint32_t common = computes_prompt(q) ? common_positions(r, q) : 0;
        if (common == 0)
            continue;
        if (cached == UINT32_MAX)
            cached =
                prefix_cache_find(g->config.prefixes, r->tokens.ids, r->n_prefill - 1, r->n_prompt);
        if (common < cached + KV_POOL_TOKENS)
            continue;
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
