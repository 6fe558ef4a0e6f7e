/* The prefix cache; see prefix_cache.h.
 *
 * Invariants:
 * 1. The tree's (page_tree.h).
 * 2. A page of a path is held, and so are all its ancestors, which are in the path. So no page that
 *    another one needs is evicted.
 * 3. Only the path that a page was made for, or taken over by, extends it: `owned` is set while
 *    there is one. A full page has no owner.
 * 4. A record is changed in the order that kv_page.h gives, a windowed page's before its owner's: a
 *    worker that dies leaves windowed pages with all positions that the owner has.
 * 5. Of the pages [first_windowed, n_windowed) of a path the windowed pages are held, too. Where
 * the path is a page's writer, it is that of its windowed pages. */
#include "prefix_cache_internal.h"

#include "base/arrays.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static uint64_t cost_of(const struct kv_page_record *r)
{
    return atomic_load_explicit(&r->cost_ns, memory_order_relaxed);
}

static void push_page(struct kv_path *path, uint32_t page)
{
    assert(path->n_pages < path->capacity);
    path->pages[path->n_pages++] = page;
}

static uint32_t last_page(const struct kv_path *path)
{
    return path->n_pages ? path->pages[path->n_pages - 1] : NONE;
}

/* ---- A path begins ---- */

/* Frees a page of this worker's that has no positions. */
static void discard(struct prefix_cache *c, uint32_t page)
{
    page_tree_finish(c->tree, page);
    page_tree_release(c->tree, page);
    page_tree_drop(c->tree, page);
}

static void copy_memory(struct prefix_cache *c, uint32_t to, uint32_t from)
{
    const struct kv_pool *pool = &c->tree->pool;
    kv_page_copy(kv_pool_page(pool, to), kv_pool_page(pool, from), pool->page_bytes);
}

/* Puts the first n positions of a page that is held, and that the path cannot have, into a page of
 * its own. Another worker may be writing behind them. */
static bool copy_page(struct prefix_cache *c, struct kv_path *path, uint32_t page, uint32_t n,
                      bool windows)
{
    uint32_t copy = prefix_cache_new_page(c, last_page(path), path->salt);
    if (copy == NONE)
        return false;
    if (windows && !page_tree_add_windows(c->tree, copy)) {
        discard(c, copy);
        return false;
    }
    struct kv_page_record *from = page_tree_record(c->tree, page),
                          *to = page_tree_record(c->tree, copy);
    uint32_t tokens[KV_POOL_TOKENS];
    for (uint32_t i = 0; i < n; i++)
        tokens[i] = prefix_cache_token_at(from, i);
    copy_memory(c, copy, page);
    for (uint32_t i = 0; i < c->tree->n_windowed && windows; i++)
        copy_memory(c, page_tree_windowed(c->tree, copy)[i], page_tree_windowed(c->tree, page)[i]);
    atomic_store_explicit(&to->cost_ns, cost_of(from) * n / page_tree_valid(c->tree, page),
                          memory_order_relaxed);
    prefix_cache_fill_page(c, copy, tokens, 0, n);
    prefix_cache_touch(c, copy, path->passing);
    push_page(path, copy);
    c->stats.copies++;
    return true;
}

/* Adds a page that is held, and whose windowed pages are where the path wants them. */
static bool take_held(struct prefix_cache *c, struct kv_path *path, uint32_t page, uint32_t n,
                      bool windows)
{
    prefix_cache_touch(c, page, path->passing);
    if (windows)
        prefix_cache_keep_windows(c, page, true, path->passing);
    if (n == KV_POOL_TOKENS || page_tree_take_over(c->tree, page, n, windows)) {
        push_page(path, page);
        return true;
    }
    bool copied = copy_page(c, path, page, n, windows);
    if (windows)
        page_tree_release_windows(c->tree, page);
    page_tree_release(c->tree, page);
    return copied;
}

/* Adds a page of which the path wants the first n positions. False: it has gone, or there is no
 * page for a copy. */
static bool take_page(struct prefix_cache *c, struct kv_path *path, uint32_t page, uint32_t n)
{
    bool windows = c->tree->n_windowed > 0 && path->n_pages >= path->first_windowed;
    if (!page_tree_hold(c->tree, page))
        return false;
    if (windows && !page_tree_hold_windows(c->tree, page, n)) {
        page_tree_release(c->tree, page);
        return false;
    }
    if (!take_held(c, path, page, n, windows))
        return false;
    path->n_windowed += windows;
    return true;
}

/* Takes the pages that prefix_cache_match put into the path. False: one is not to be had; path->n
 * is as far as it came. */
static bool take_pages(struct prefix_cache *c, struct kv_path *path, uint32_t found)
{
    if (c->tree->n_windowed)
        path->first_windowed = path->n_windowed = page_tree_window_begin(c->tree, found);
    while (path->n < found) {
        uint32_t left = found - path->n, part = left < KV_POOL_TOKENS ? left : KV_POOL_TOKENS;
        if (!take_page(c, path, path->pages[path->n_pages], part))
            return false;
        path->n += part;
    }
    path->n_found = path->n_pages;
    return true;
}

void prefix_cache_open(struct prefix_cache *c, const struct kv_prefix *prefix, struct kv_path *path)
{
    struct kv_prefix wanted = *prefix;
    uint32_t known;
    assert(path->salt == prefix->salt);
    page_tree_follow(c->tree);
    prefix_cache_restore(c, prefix, path);
    for (;;) {
        uint32_t found = prefix_cache_match(c, &wanted, path->pages, path->capacity, &known);
        if (take_pages(c, path, found))
            return;
        wanted.n = path->n; /* it can need windowed pages before those of the longer prefix */
        prefix_cache_close(c, path);
    }
}

/* Without a last page in part, which the path may have to copy, and without windowed pages. */
uint32_t prefix_cache_shareable(struct prefix_cache *c, const struct kv_prefix *prefix,
                                const struct kv_path *path)
{
    uint32_t known, in_use = 0;
    page_tree_follow(c->tree);
    uint32_t found = prefix_cache_match(c, prefix, path->pages, path->capacity, &known);
    for (uint32_t i = 0; i < found / KV_POOL_TOKENS; i++)
        in_use += !kv_page_is_idle(kv_page_word(&c->tree->pool, path->pages[i]));
    return in_use;
}

/* ---- A path grows ---- */

bool prefix_cache_extend(struct prefix_cache *c, struct kv_path *path, uint32_t positions)
{
    while ((uint64_t)path->n_pages * KV_POOL_TOKENS < positions) {
        uint32_t page = prefix_cache_new_page(c, last_page(path), path->salt);
        if (page == NONE)
            return false;
        push_page(path, page);
        if (!prefix_cache_wants_windows(c, path))
            continue;
        if (!page_tree_add_windows(c->tree, page)) {
            path->n_pages--;
            discard(c, page);
            return false;
        }
        path->n_windowed++;
    }
    return true;
}

/* The page costs as much as `other`, which has the same content, if that cost more. */
static void take_cost(struct prefix_cache *c, uint32_t page, uint32_t other)
{
    struct kv_page_record *r = page_tree_record(c->tree, page);
    uint64_t cost = cost_of(page_tree_record(c->tree, other));
    if (cost > cost_of(r))
        atomic_store_explicit(&r->cost_ns, cost, memory_order_relaxed);
}

/* The page at this index of the path has become full: takes the page that has the same content
 * instead, if there is one. The path's next page, which is empty yet, then continues that. */
static bool share_page(struct prefix_cache *c, struct kv_path *path, uint32_t index)
{
    uint32_t page = path->pages[index], next = NONE;
    if (index + 1 < path->n_pages)
        next = path->pages[index + 1];
    page_tree_follow(c->tree);
    uint32_t twin = prefix_cache_find_twin(c, page);
    page_tree_finish(c->tree, page);
    page_tree_changed(c->tree);
    if (twin == NONE || !page_tree_hold(c->tree, twin))
        return false;
    if (c->tree->n_windowed && !prefix_cache_share_windows(c, page, twin)) {
        page_tree_release(c->tree, twin);
        return false;
    }
    if (next != NONE)
        page_tree_move(c->tree, next, twin);
    take_cost(c, twin, page);
    page_tree_release(c->tree, page);
    page_tree_drop(c->tree, page); /* unless another worker uses it already */
    path->pages[index] = twin;
    prefix_cache_touch(c, twin, path->passing);
    c->stats.shared++;
    return true;
}

uint32_t prefix_cache_fill(struct prefix_cache *c, struct kv_path *path, const uint32_t *tokens,
                           uint32_t n, enum kv_kind kind, uint64_t ns)
{
    uint32_t changed = UINT32_MAX, all = n - path->n;
    while (path->n < n) {
        uint32_t index = path->n / KV_POOL_TOKENS, first = path->n % KV_POOL_TOKENS;
        uint32_t end = n - index * KV_POOL_TOKENS, page = path->pages[index];
        end = end < KV_POOL_TOKENS ? end : KV_POOL_TOKENS;
        struct kv_page_record *r = page_tree_record(c->tree, page);
        assert(c->tree->nodes[page].owned && page_tree_valid(c->tree, page) == first);
        assert(c->tree->n_windowed == 0 ||
               (index >= path->first_windowed && index < path->n_windowed));
        atomic_store_explicit(&r->kind, (uint32_t)kind, memory_order_relaxed);
        atomic_fetch_add_explicit(&r->cost_ns, ns * (end - first) / all, memory_order_relaxed);
        prefix_cache_fill_page(c, page, tokens + path->n, first, end);
        prefix_cache_touch(c, page, path->passing);
        path->n += end - first;
        if (end == KV_POOL_TOKENS && share_page(c, path, index) && changed == UINT32_MAX)
            changed = index;
    }
    return changed;
}

/* ---- A path ends ---- */

void prefix_cache_close(struct prefix_cache *c, struct kv_path *path)
{
    for (uint32_t i = path->n / KV_POOL_TOKENS; i < path->n_pages; i++)
        page_tree_finish(c->tree, path->pages[i]); /* a full page has no owner already */
    if (c->tree->n_windowed)
        prefix_cache_close_windows(c, path);
    for (uint32_t i = path->n_pages; i-- > 0;) {
        uint32_t page = path->pages[i];
        prefix_cache_touch(c, page, path->passing);
        page_tree_release(c->tree, page);
        if (page_tree_valid(c->tree, page) == 0)
            page_tree_drop(c->tree, page);
    }
    if (path->n_pages)
        page_tree_changed(c->tree);
    path->n_pages = path->n = path->n_found = path->first_windowed = path->n_windowed = 0;
}

/* ---- All pages ---- */

uint32_t prefix_cache_available(const struct prefix_cache *c)
{
    return c->tree->pool.n_pages - kv_pool_use(&c->tree->pool).pages_in_use;
}

uint32_t prefix_cache_pages(const struct prefix_cache *c)
{
    return c->tree->pool.n_pages;
}

uint32_t prefix_cache_clear(struct prefix_cache *c)
{
    struct page_tree *t = c->tree;
    uint32_t before = kv_pool_use(&t->pool).pages_used;
    page_tree_follow(t);
    for (bool again = true; again;) {
        again = false;
        for (uint32_t page = 0; page < t->pool.n_pages; page++)
            again |= t->nodes[page].group == 0 && page_tree_drop(t, page);
    }
    for (uint32_t page = 0; page < t->pool.n_pages && t->n_windowed; page++)
        if (t->nodes[page].generation && t->nodes[page].group == 0)
            page_tree_drop_windows(t, page);
    /* Last: what memd saves of these pages until it sees this, it drops. */
    atomic_fetch_add(&t->pool.header->cleared, 1);
    uint32_t after = kv_pool_use(&t->pool).pages_used;
    return before > after ? before - after : 0;
}

struct prefix_cache_stats prefix_cache_stats(const struct prefix_cache *c)
{
    struct prefix_cache_stats s = c->stats;
    struct kv_pool_use use = kv_pool_use(&c->tree->pool);
    s.pages = use.pages;
    s.free = use.pages - use.pages_used;
    s.in_use = use.pages_in_use;
    s.page_bytes = c->tree->pool.page_bytes;
    s.evictions = c->tree->evictions;
    s.windows_evicted = c->tree->windows_evicted;
    return s;
}

static uint32_t root_of(const struct prefix_cache *c, uint32_t page)
{
    while (c->tree->nodes[page].parent != NONE)
        page = c->tree->nodes[page].parent;
    return page;
}

void prefix_cache_visit(struct prefix_cache *c,
                        void (*visit)(void *arg, const struct kv_leaf *leaf), void *arg)
{
    page_tree_follow(c->tree);
    for (uint32_t page = 0; page < c->tree->pool.n_pages; page++) {
        const struct page_node *node = &c->tree->nodes[page];
        struct kv_page_record *r = page_tree_record(c->tree, page);
        if (!node->generation || node->group || node->children)
            continue;
        struct kv_leaf leaf = {.root = root_of(c, page),
                               .tokens =
                                   node->depth * KV_POOL_TOKENS + page_tree_valid(c->tree, page),
                               .used_s = atomic_load_explicit(&r->used_s, memory_order_relaxed),
                               .in_use = !kv_page_is_idle(kv_page_word(&c->tree->pool, page))};
        visit(arg, &leaf);
    }
}

/* ---- Making it ---- */

static uint32_t pages_in_tree(const struct page_tree *t)
{
    uint32_t n = 0;
    for (uint32_t page = 0; page < t->pool.n_pages; page++)
        n += t->nodes[page].generation != 0;
    return n;
}

enum error_code prefix_cache_new(const struct prefix_cache_options *options,
                                 struct prefix_cache **out, struct error *e)
{
    struct prefix_cache *c = calloc(1, sizeof *c);
    if (!c)
        return error_set(e, ERROR_MEMORY, "no memory for the prefix cache");
    struct page_tree_options tree = {.pool = options->pool,
                                     .worker = options->worker,
                                     .vocab = options->vocab,
                                     .n_windowed = options->n_windowed,
                                     .window = options->window};
    enum error_code code = page_tree_new(&tree, &c->tree, e);
    if (code) {
        free(c);
        return code;
    }
    c->exact = options->exact;
    c->format = options->format;
    c->heartbeat = options->heartbeat;
    if (options->store.header && options->store.page_bytes == options->pool.page_bytes)
        c->store = options->store;
    page_tree_follow(c->tree);
    c->stats.adopted = pages_in_tree(c->tree);
    *out = c;
    return ERROR_OK;
}

void prefix_cache_free(struct prefix_cache *c)
{
    if (!c)
        return;
    page_tree_free(c->tree);
    free(c);
}
