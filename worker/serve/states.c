/* The states of the requests of a model with recurrent layers; see engine_internal.h.
 *
 * A state cannot be cut, so what the prefix cache has of a prompt is of use only up to a snapshot.
 * They are taken
 *   - where a prompt leaves what the prefix cache has: another prompt with the same beginning, a
 *     system prompt for example, leaves it there too;
 *   - some tokens before a prompt's end: a template often writes the end of a prompt otherwise once
 *     the answer is there, and the same prompt may come again;
 *   - when a request leaves its slot: the next turn goes on there.
 * The first two at a group's end, so that no group is cut (kv_kind). */
#include "engine_internal.h"

#include "worker/kv/state_snapshots.h"

/* The last position up to n at which a prompt of n_prompt tokens may be cut. */
static uint32_t cut_before(const struct engine *g, uint32_t n, uint32_t n_prompt)
{
    uint32_t at = n - n % KV_SMALL_TOKENS;
    if (at > 0 && kv_kind_of(at - 1, n_prompt, g->config.exact) == KV_LARGE_GROUP)
        at = n - n % KV_LARGE_TOKENS;
    return at;
}

static void choose_snapshots(const struct engine *g, struct request *r, uint32_t known)
{
    uint32_t branch = cut_before(g, known, r->n_prompt);
    uint32_t end = cut_before(g, r->n_prefill - 1, r->n_prompt);
    r->snapshot_at[0] = branch > r->n_past ? branch : 0;
    r->snapshot_at[1] = end > r->n_past && end > branch ? end : 0;
}

void engine_open_state(struct engine *g, struct request *r)
{
    const uint32_t *tokens = r->tokens.ids;
    struct prefix_cache *prefixes = g->config.prefixes;
    uint32_t known = prefix_cache_find(prefixes, tokens, r->n_prefill - 1, r->n_prompt);
    const struct state_snapshot *s =
        state_snapshots_find(g->config.snapshots, tokens, known, r->n_prompt);
    r->n_past = 0;
    if (s)
        prefix_cache_open(prefixes, tokens, s->position, r->n_prompt, &r->path);
    if (s && r->path.n == s->position) {
        g->config.dense->ops->load_state(g->config.dense, (uint32_t)r->slot, s->state, s->position);
        r->n_past = s->position;
    } else
        prefix_cache_close(prefixes, &r->path);
    choose_snapshots(g, r, known);
}

uint32_t engine_tokens_to_snapshot(const struct engine *g, const struct request *r, uint32_t n)
{
    for (int i = 0; i < REQUEST_SNAPSHOTS && g->config.snapshots && r->shares_pages; i++)
        if (r->snapshot_at[i] > r->n_past && r->snapshot_at[i] - r->n_past < n)
            n = r->snapshot_at[i] - r->n_past;
    return n;
}

static bool stops_here(const struct request *r)
{
    for (int i = 0; i < REQUEST_SNAPSHOTS; i++)
        if (r->snapshot_at[i] == r->n_past)
            return true;
    return false;
}

void engine_snapshot_state(struct engine *g, struct request *r, bool ends)
{
    struct state_snapshots *all = g->config.snapshots;
    if (!all || !r->shares_pages || r->n_past == 0 || !(ends || stops_here(r)))
        return;
    uint8_t *state = state_snapshots_reserve(all, r->tokens.ids, r->n_past, r->n_prompt);
    struct dense *d = g->config.dense;
    if (state && d->ops->save_state(d, (uint32_t)r->slot, r->n_past, state))
        state_snapshots_keep(all);
}
