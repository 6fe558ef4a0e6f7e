/* The states of the requests of a model with recurrent layers; see engine_internal.h.
 *
 * A state cannot be cut, so what the prefix cache has of a prompt is of use only up to a snapshot.
 * They are taken
 *   - where a prompt leaves what the prefix cache has: another prompt with the same beginning, a
 *     system prompt for example, leaves it there too;
 *   - some tokens before a prompt's end: a template often writes the end of a prompt otherwise once
 *     the answer is there (PROMPT_TAIL), and the same prompt may come again;
 *   - where a request that waits for this prompt's beginning leaves it (shared_prompts.c);
 *   - when a request leaves its slot: the next turn goes on there, or the request itself;
 *   - where an answer has filled a page and pages are short: whoever takes pages from the request
 *     begins with the last one, without which the snapshot at its end is of no use.
 * The first three at a group's end, because a group is computed as a whole (kv_kind). They do not
 * cut a batch: the forward pass copies the state on its way. */
#include "engine_internal.h"

#include "worker/kv/state_snapshots.h"

/* Tokens by which templates ask for an answer: a role's, perhaps with the begin of reasoning, such
 * as the 5 of "<|im_start|>assistant\n<think>\n". */
enum { PROMPT_TAIL = 8 };

uint32_t engine_cut_before(const struct engine *g, uint32_t n, uint32_t n_prompt)
{
    uint32_t at = n - n % KV_SMALL_TOKENS;
    if (at > 0 && kv_kind_of(at - 1, n_prompt, g->config.exact) == KV_LARGE_GROUP)
        at = n - n % KV_LARGE_TOKENS;
    return at;
}

static void choose_snapshots(const struct engine *g, struct request *r, uint32_t known)
{
    uint32_t branch = engine_cut_before(g, known, r->n_prompt);
    uint32_t tail = r->n_prefill < PROMPT_TAIL ? r->n_prefill : PROMPT_TAIL;
    uint32_t end = engine_cut_before(g, r->n_prefill - tail, r->n_prompt);
    r->snapshots[0] = (struct request_snapshot){branch > r->n_past ? branch : 0, NULL};
    r->snapshots[1] = (struct request_snapshot){end > r->n_past && end != branch ? end : 0, NULL};
    r->snapshots[2] = (struct request_snapshot){0};
}

uint32_t engine_state_positions(const struct engine *g, const struct request *r, uint32_t known)
{
    const struct kv_prefix prefix = request_prefix(r, known);
    return g->config.snapshots ? state_snapshots_longest(g->config.snapshots, &prefix) : known;
}

void engine_plan_snapshot(const struct engine *g, struct request *r, uint32_t position)
{
    struct request_snapshot *s = &r->snapshots[2];
    if (g->config.snapshots && position != r->snapshots[0].position &&
        position != r->snapshots[1].position &&
        (s->position <= r->n_past || position < s->position))
        s->position = position;
}

void engine_open_state(struct engine *g, struct request *r)
{
    struct prefix_cache *prefixes = g->config.prefixes;
    struct kv_prefix prefix = request_reusable(r);
    uint32_t known = prefix_cache_find(prefixes, &prefix, NULL);
    prefix.n = known;
    const struct state_snapshot *s =
        state_snapshots_find(g->config.snapshots, &prefix, r->path.passing);
    r->n_past = 0;
    if (s) {
        prefix.n = s->position;
        prefix_cache_open(prefixes, &prefix, &r->path);
    }
    if (s && r->path.n == s->position) {
        g->config.dense->ops->load_state(g->config.dense, (uint32_t)r->slot, s->state, s->position);
        r->n_past = s->position;
    } else
        prefix_cache_close(prefixes, &r->path);
    choose_snapshots(g, r, known);
}

uint8_t *engine_snapshot_after(struct engine *g, struct request *r, uint32_t position)
{
    for (struct request_snapshot *s = r->snapshots; s < r->snapshots + REQUEST_SNAPSHOTS; s++) {
        if (s->position != position + 1)
            continue;
        const struct kv_prefix prefix = request_prefix(r, s->position);
        s->place = state_snapshots_reserve(g->config.snapshots, &prefix, r->path.passing);
        return s->place ? s->place->state : NULL;
    }
    return NULL;
}

void engine_keep_snapshots(struct engine *g, struct request *r)
{
    for (struct request_snapshot *s = r->snapshots; s < r->snapshots + REQUEST_SNAPSHOTS; s++) {
        if (s->place)
            state_snapshots_keep(g->config.snapshots, s->place);
        s->place = NULL;
    }
}

/* Of the state after n_past. */
static void take_snapshot(struct engine *g, struct request *r)
{
    struct state_snapshots *all = g->config.snapshots;
    struct dense *d = g->config.dense;
    const struct kv_prefix prefix = request_prefix(r, r->n_past);
    struct state_snapshot *s =
        r->n_past ? state_snapshots_reserve(all, &prefix, r->path.passing) : NULL;
    if (s && d->ops->save_state(d, (uint32_t)r->slot, r->n_past, s->state))
        state_snapshots_keep(all, s);
    else if (s)
        state_snapshots_drop(all, s);
}

/* Some request may be suspended before each has filled another page. */
static bool are_pages_short(const struct engine *g)
{
    uint32_t wanted = 2 * g->n_slots_used;
    return prefix_cache_available(g->config.prefixes) < wanted ||
           (g->paged && g->config.dense->ops->kv_use(g->config.dense).pages_free < wanted);
}

void engine_keep_state(struct engine *g, struct request *r)
{
    bool page = r->n_past % KV_POOL_TOKENS == 0;
    if (g->config.snapshots && page && r->shares_pages && g->n_slots_used > 1 && are_pages_short(g))
        take_snapshot(g, r);
}

/* Whether r, or a next turn, can begin at n_past. A passing request can only where it is suspended
 * and has sent all rows before. */
static bool may_go_on(const struct request *r)
{
    return !r->path.passing || (r->n_past <= r->next_row && r->next_row < r->end_row);
}

void engine_close_state(struct engine *g, struct request *r)
{
    struct state_snapshots *all = g->config.snapshots;
    if (!all || !r->shares_pages)
        return;
    for (struct request_snapshot *s = r->snapshots; s < r->snapshots + REQUEST_SNAPSHOTS; s++) {
        if (s->place) /* of a batch that failed */
            state_snapshots_drop(all, s->place);
        *s = (struct request_snapshot){0};
    }
    if (may_go_on(r))
        take_snapshot(g, r);
}
