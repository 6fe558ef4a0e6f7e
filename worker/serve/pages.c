/* The pages of running requests: between the prefix cache, which knows the tokens, and the dense
 * part, which computes with the pages; see engine_internal.h.
 *
 * Where the dense part is on a device, a page lives there while its request runs, and is saved to
 * the pool when it is full and when the request leaves. The prefix cache learns of positions only
 * when they are in the pool. */
#include "engine_internal.h"

#include "base/clock.h"

#define READ_NS 250000000 /* at once, of the conversations' file */

static uint32_t pages_of(uint32_t positions)
{
    return (positions + KV_POOL_TOKENS - 1) / KV_POOL_TOKENS;
}

static bool put_page(struct engine *g, struct request *r, struct kv_place place)
{
    struct dense *d = g->config.dense;
    uint32_t first = place.index * KV_POOL_TOKENS;
    uint32_t filled = r->path.n > first ? r->path.n - first : 0;
    uint8_t *page =
        prefix_cache_memory(g->config.prefixes, r->path.pages[place.index], place.group);
    return d->ops->put_page(d, (uint32_t)r->slot, place, page,
                            filled < KV_POOL_TOKENS ? filled : KV_POOL_TOKENS);
}

static bool put_windowed(struct engine *g, struct request *r, uint32_t index)
{
    for (uint32_t group = 1; group < g->config.dense->kv.n_groups; group++)
        if (!put_page(g, r, (struct kv_place){index, group}))
            return false;
    return true;
}

/* Puts the path's pages from `first` on into r's slot. False: the device has no page free. */
static bool put_pages(struct engine *g, struct request *r, uint32_t first)
{
    for (uint32_t i = first; i < r->path.n_pages; i++) {
        if (!put_page(g, r, (struct kv_place){i, 0}))
            return false;
        bool windowed = i >= r->path.first_windowed && i < r->path.n_windowed;
        if (windowed && !put_windowed(g, r, i))
            return false;
        r->n_put = i + 1;
    }
    return true;
}

/* Where another request is likely to leave what r leaves: see states.c. An answer goes on from the
 * end of its prompt, and where products round by groups, a longer prompt has another last group. */
static void choose_kept(struct engine *g, struct request *r)
{
    uint32_t group = g->config.exact ? KV_SMALL_TOKENS : KV_LARGE_TOKENS;
    uint32_t known, last = r->n_prefill - 1;
    const struct kv_prefix prefix = request_prefix(r, last);
    prefix_cache_find(g->config.prefixes, &prefix, &known);
    known = known > r->path.n ? known : 0;
    r->path.kept[0] = (struct kv_kept){known - known % group, known};
    r->path.kept[1] = (struct kv_kept){last - last % group, r->n_prefill};
}

static void open_path(struct engine *g, struct request *r)
{
    struct prefix_cache *prefixes = g->config.prefixes;
    r->n_put = 0;
    r->path.window_pages = 0;
    if (!r->shares_pages) {
        r->path.window_pages = kv_layout_window_pages(
            &g->config.dense->kv, serving_batch_tokens(g->config.batch, g->config.parallel));
    } else if (g->config.snapshots) {
        engine_open_state(g, r);
    } else {
        const struct kv_prefix prefix = request_reusable(r);
        prefix_cache_open(prefixes, &prefix, &r->path);
        r->n_past = r->path.n;
    }
    if (r->shares_pages && g->config.dense->kv.window)
        choose_kept(g, r);
    r->n_found = r->n_past;
}

/* Positions of an answer that is continued are none of the prompt. */
static void count_cached(struct engine *g, struct request *r)
{
    uint32_t n = r->n_past < r->n_prompt ? r->n_past : r->n_prompt;
    if (r->n_pages_lost || n <= r->n_cached)
        return;
    counter_add(g->counters.cached_tokens, n - r->n_cached);
    r->n_cached = n;
}

static bool open_pages(struct engine *g, struct request *r, bool read)
{
    r->path.reading.later = !read;
    r->path.reading.most_ns = READ_NS;
    open_path(g, r);
    if (engine_reads_pages(r))
        return true;
    count_cached(g, r);
    return engine_extend_pages(g, r, r->shares_pages ? r->n_past + 1 : r->n_most);
}

/* Several requests may start in a step: none reads now. */
bool engine_open_pages(struct engine *g, struct request *r)
{
    r->path.reading = (struct kv_reading){0};
    return open_pages(g, r, false);
}

bool engine_read_pages(struct engine *g, struct request *r)
{
    prefix_cache_close(g->config.prefixes, &r->path);
    return open_pages(g, r, true);
}

bool engine_reopen_pages(struct engine *g, struct request *r)
{
    const struct kv_prefix prefix = request_reusable(r);
    uint32_t known = prefix_cache_find(g->config.prefixes, &prefix, NULL);
    if (engine_state_positions(g, r, known) < r->n_past + KV_POOL_TOKENS)
        return true;
    prefix_cache_close(g->config.prefixes, &r->path);
    g->config.dense->ops->release_slot(g->config.dense, (uint32_t)r->slot);
    return open_pages(g, r, false);
}

bool engine_extend_pages(struct engine *g, struct request *r, uint32_t positions)
{
    return prefix_cache_extend(g->config.prefixes, &r->path, positions) &&
           put_pages(g, r, r->n_put);
}

/* The positions of r that the prefix cache may know: on a device, only whole pages but at the end.
 */
static uint32_t shareable(const struct engine *g, const struct request *r, bool leaves)
{
    return g->paged && !leaves ? r->n_past - r->n_past % KV_POOL_TOKENS : r->n_past;
}

/* Copies the pages with positions from path.n to n - 1 to the pool. False: the device has failed.
 */
static bool save_pages(struct engine *g, struct request *r, uint32_t n)
{
    struct dense *d = g->config.dense;
    struct error e;
    if (!g->paged)
        return true;
    for (uint32_t i = r->path.n / KV_POOL_TOKENS; i < pages_of(n); i++)
        for (uint32_t group = 0; group < d->kv.n_groups; group++)
            d->ops->save_page(d, (uint32_t)r->slot, (struct kv_place){i, group});
    return d->ops->wait(d, &e) == ERROR_OK;
}

static void share_pages(struct engine *g, struct request *r, enum kv_kind kind, uint64_t ns,
                        bool leaves)
{
    uint32_t n = shareable(g, r, leaves);
    if (!r->shares_pages || n <= r->path.n || !save_pages(g, r, n))
        return;
    uint32_t changed = prefix_cache_fill(g->config.prefixes, &r->path, r->tokens.ids, n, kind, ns);
    if (changed != UINT32_MAX)
        put_pages(g, r, changed); /* they are there already: this cannot fail */
}

/* Leaves pages behind that lie before the window of r's next position. Those that serve later
 * positions now are in the slot already. */
static void pass_pages(struct engine *g, struct request *r)
{
    struct dense *d = g->config.dense;
    struct kv_path *path = &r->path;
    uint32_t next = path->n_windowed;
    if (!prefix_cache_pass(g->config.prefixes, path, r->n_past))
        return;
    d->ops->pass_pages(d, (uint32_t)r->slot, path->first_windowed, path->n_windowed);
    for (; next < path->n_windowed; next++)
        put_windowed(g, r, next);
}

void engine_share_pages(struct engine *g, struct request *r, enum kv_kind kind, uint64_t ns)
{
    share_pages(g, r, kind, ns, false);
    pass_pages(g, r);
}

void engine_close_pages(struct engine *g, struct request *r)
{
    uint32_t left = r->n_past > r->path.n ? r->n_past - r->path.n : 0;
    share_pages(g, r, KV_DEFINED, left * g->token_ns, true);
    engine_close_state(g, r);
    prefix_cache_close(g->config.prefixes, &r->path);
    g->config.dense->ops->release_slot(g->config.dense, (uint32_t)r->slot);
}

/* ---- Whether a request may start, or must wait ---- */

static uint64_t pages_for(const struct engine *g, uint32_t positions)
{
    return kv_layout_pages(&g->config.dense->kv, positions,
                           serving_batch_tokens(g->config.batch, g->config.parallel));
}

/* The pages that a request alone could have. */
static uint32_t most_pages(const struct engine *g)
{
    uint32_t pages = prefix_cache_pages(g->config.prefixes);
    uint32_t on_device = g->config.dense->ops->kv_use(g->config.dense).pages_most;
    return g->paged && on_device < pages ? on_device : pages;
}

uint64_t engine_most_positions(const struct engine *g)
{
    return kv_layout_positions(&g->config.dense->kv, most_pages(g),
                               serving_batch_tokens(g->config.batch, g->config.parallel));
}

/* The pages of its prompt that r, which waits, would share with requests that run. */
static uint32_t shared_pages(const struct engine *g, const struct request *r)
{
    struct prefix_cache *c = g->config.prefixes;
    struct kv_prefix prefix = request_reusable(r);
    if (!r->shares_pages)
        return 0;
    if (g->config.snapshots)
        prefix.n = engine_state_positions(g, r, prefix_cache_find(c, &prefix, NULL));
    return prefix_cache_shareable(c, &prefix, &r->path);
}

/* What r must have to start: the prompt and a token, if it wants one; if it cannot be interrupted,
 * all. */
static uint64_t pages_to_start(const struct engine *g, const struct request *r)
{
    return pages_for(g, r->shares_batch ? r->n_prefill + 1 : r->n_most);
}

/* The pages that q, which runs, has in the pool, or on the device. */
static uint64_t pages_had(const struct engine *g, const struct request *q, bool device)
{
    const struct kv_path *path = &q->path;
    uint64_t windowed = path->n_windowed - path->first_windowed;
    if (device && engine_reads_pages(q))
        return 0;
    return path->n_pages + windowed * kv_layout_windowed(&g->config.dense->kv);
}

/* The pages that running requests still need for their prompts and a token. */
static uint64_t pages_lacking(const struct engine *g, bool device)
{
    uint64_t lacking = 0;
    for (const struct request *q = g->running; q; q = q->next) {
        uint64_t has = pages_had(g, q, device);
        uint64_t needed = q->n_past < q->n_prefill ? pages_to_start(g, q) : 0;
        lacking += needed > has ? needed - has : 0;
    }
    return lacking;
}

enum page_supply engine_page_supply(const struct engine *g, const struct request *r)
{
    struct dense_kv_use use = g->config.dense->ops->kv_use(g->config.dense);
    uint64_t needed = pages_to_start(g, r) + pages_lacking(g, false);
    uint64_t available = prefix_cache_available(g->config.prefixes);
    if (pages_for(g, r->n_most) > most_pages(g))
        return PAGES_NEVER;
    if (g->paged && pages_to_start(g, r) + pages_lacking(g, true) > use.pages_free)
        return PAGES_FROM_DEVICE;
    if ((needed > available && needed > available + shared_pages(g, r)) ||
        !siblings_may_start(&g->config.siblings, r->submitted_ns))
        return PAGES_FROM_POOL;
    return PAGES_NOW;
}

bool engine_may_overtake(const struct engine *g, const struct request *r,
                         const struct request *first)
{
    uint64_t pages = pages_to_start(g, first) + pages_for(g, r->n_most);
    for (const struct request *q = g->running; q; q = q->next)
        if (q->serial >= first->overtaken_from)
            pages += pages_for(g, q->n_most);
    return !first->n_pages_lost && pages <= most_pages(g);
}
