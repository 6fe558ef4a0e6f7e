/* Pages that only the file of --kv-dir has (ipc/kv_store.h); see prefix_cache.h. */
#include "prefix_cache_internal.h"

#include "base/clock.h"
#include "base/heartbeat.h"

#include <string.h>

#define RESTORE_PATIENCE_NS 200000000 /* of reading pages that cost less to compute */

static uint32_t common_in_store(const struct kv_store_page *page, const uint32_t *tokens,
                                uint32_t n)
{
    uint32_t same = 0;
    n = n < page->n ? n : page->n;
    while (same < n && page->tokens[same] == tokens[same])
        same++;
    return same;
}

/* The page of the store that continues key with most of these tokens, more than `least`. False:
 * none. */
static bool best_in_store(const struct prefix_cache *c, uint64_t key, enum kv_kind kind,
                          const uint32_t *tokens, uint32_t n, uint32_t least, uint32_t *slot,
                          struct kv_store_page *best)
{
    struct kv_store_page page;
    bool found = false;
    for (uint32_t at = 0; kv_store_next(&c->store, key, &at, &page); at++) {
        uint32_t same = page.kind == (uint32_t)kind ? common_in_store(&page, tokens, n) : 0;
        if (same <= least || (kind != KV_DEFINED && same < KV_POOL_TOKENS))
            continue;
        least = same;
        *slot = at;
        *best = page;
        found = true;
    }
    return found;
}

/* Reads a page of the store into the pool, after parent; it is held. NONE: there is no page free,
 * or the file is damaged there. */
static uint32_t restore_page(struct prefix_cache *c, uint32_t parent, uint64_t salt, uint32_t slot,
                             const struct kv_store_page *from, bool passing)
{
    uint32_t page = prefix_cache_new_page(c, parent, salt);
    if (page == NONE)
        return NONE;
    heartbeat_beat(c->heartbeat);
    if (!kv_store_read(&c->store, slot, from, kv_pool_page(&c->tree->pool, page))) {
        page_tree_finish(c->tree, page);
        page_tree_release(c->tree, page);
        page_tree_drop(c->tree, page);
        return NONE;
    }
    struct kv_page_record *r = page_tree_record(c->tree, page);
    atomic_store_explicit(&r->kind, from->kind, memory_order_relaxed);
    atomic_store_explicit(&r->cost_ns, from->cost_ns, memory_order_relaxed);
    prefix_cache_fill_page(c, page, from->tokens, 0, from->n);
    page_tree_finish(c->tree, page);
    prefix_cache_touch(c, page, passing);
    page_tree_changed(c->tree);
    c->stats.restored++;
    return page;
}

/* ---- Windowed pages ---- */

/* Reads what the store has of a group of the page's positions. False: nothing. */
static bool read_windowed(struct prefix_cache *c, uint32_t page, uint32_t group, uint64_t parent,
                          const uint32_t *tokens, uint32_t n)
{
    uint32_t kind =
        page_field(&page_tree_record(c->tree, page)->kind) | group << KV_STORE_GROUP_SHIFT;
    uint64_t key = kv_store_key(parent, kind, tokens, n);
    struct kv_store_page found;
    heartbeat_beat(c->heartbeat);
    for (uint32_t at = 0; kv_store_next(&c->store, parent, &at, &found); at++)
        if (found.key == key)
            return kv_store_read(&c->store, at, &found, prefix_cache_memory(c, page, group));
    return false;
}

/* parent: the key that the page, which is held, continues. False: the store has not all of it, or
 * no page is free. */
static bool restore_windows(struct prefix_cache *c, uint32_t page, uint64_t parent, bool passing)
{
    uint32_t tokens[KV_POOL_TOKENS], n = prefix_cache_tokens(c, page, tokens);
    if (!page_tree_add_windows(c->tree, page))
        return false;
    for (uint32_t group = 1; group <= c->tree->n_windowed; group++)
        if (!read_windowed(c, page, group, parent, tokens, n)) {
            page_tree_discard_windows(c->tree, page);
            return false;
        }
    prefix_cache_fill_windows(c, page, tokens, 0, n);
    page_tree_finish_windows(c->tree, page);
    prefix_cache_keep_windows(c, page, true, passing);
    page_tree_release_windows(c->tree, page);
    page_tree_changed(c->tree);
    c->stats.restored += c->tree->n_windowed;
    return true;
}

/* ---- A prefix ---- */

/* Requests wait for the reading: it stops where it takes longer than computing would. */
struct restoring {
    struct prefix_cache *c;
    const struct kv_prefix *prefix;
    uint32_t *pages; /* of the prefix; the first `held` are held */
    uint32_t held, most;
    struct kv_reading *reading; /* the path's; its spent_ns up to this call */
    uint64_t start_ns;
    bool passing;  /* as the path's */
    bool has_read; /* a page */
};

/* Whether the next page, which the store has, is to be read now. */
static bool may_read(struct restoring *r)
{
    struct kv_reading *g = r->reading;
    uint64_t ns = clock_ns() - r->start_ns;
    if (g->spent_ns + ns > g->saved_ns + RESTORE_PATIENCE_NS)
        return false;
    g->more = g->later || (r->has_read && g->most_ns > 0 && ns >= g->most_ns);
    r->has_read = true;
    return !g->more;
}

/* The page with the positions before `end` has been read. It may have been evicted after an earlier
 * call that read it: the patience is for computing it once. */
static void count_saved(struct kv_reading *g, uint32_t end, uint64_t cost_ns)
{
    if (end <= g->n_saved)
        return;
    g->n_saved = end;
    g->saved_ns += cost_ns;
}

static uint64_t root_key(const struct restoring *r)
{
    return kv_store_root_key(r->c->store.seed, prefix_cache_format(r->c, r->prefix->salt));
}

/* The key that a child of a full page continues. */
static uint64_t key_after(const struct prefix_cache *c, uint64_t key, uint32_t page)
{
    uint32_t tokens[KV_POOL_TOKENS];
    prefix_cache_tokens(c, page, tokens);
    return kv_store_key(key, page_field(&page_tree_record(c->tree, page)->kind), tokens,
                        KV_POOL_TOKENS);
}

/* Whether the store is of use, and follows what the pool was told to drop. */
static bool has_store(const struct prefix_cache *c)
{
    return c->store.header &&
           atomic_load(&c->store.header->cleared) == atomic_load(&c->tree->pool.header->cleared);
}

/* The page of the prefix at `at`, held; it is read where the store has more of it than the pool.
 * NONE: the prefix ends. *last: it ends with this page. */
static uint32_t next_page(struct restoring *r, uint32_t parent, uint64_t key, uint32_t at,
                          bool *last)
{
    struct prefix_cache *c = r->c;
    const uint32_t *tokens = r->prefix->tokens + at;
    uint32_t n = r->prefix->n - at, slot;
    struct kv_match m = prefix_cache_best_child(c, parent, r->prefix, at);
    struct kv_store_page page;
    *last = false;
    if (m.n < KV_POOL_TOKENS &&
        best_in_store(c, key, kv_kind_of(at, r->prefix->n_prompt, c->exact), tokens, n, m.n, &slot,
                      &page) &&
        may_read(r)) {
        uint32_t most = n < KV_POOL_TOKENS ? n : KV_POOL_TOKENS;
        count_saved(r->reading, at + page.n, page.cost_ns);
        *last = page.n < KV_POOL_TOKENS || memcmp(page.tokens, tokens, most * sizeof *tokens) != 0;
        return restore_page(c, parent, r->prefix->salt, slot, &page, r->passing);
    }
    *last = m.n < KV_POOL_TOKENS;
    return m.page != NONE && page_tree_hold(c->tree, m.page) ? m.page : NONE;
}

static void restore_pages(struct restoring *r)
{
    uint64_t key = root_key(r);
    uint32_t parent = NONE;
    bool last = false;
    for (uint32_t at = 0; at < r->prefix->n && r->held < r->most && !last; at += KV_POOL_TOKENS) {
        uint32_t page = next_page(r, parent, key, at, &last);
        if (page == NONE)
            return;
        r->pages[r->held++] = parent = page;
        if (!last)
            key = key_after(r->c, key, page);
    }
}

/* False: the path cannot begin with the page's windowed pages, or not yet. */
static bool restore_windows_of(struct restoring *r, uint32_t page, uint64_t key)
{
    return page_tree_has_windows(r->c->tree, page) ||
           (may_read(r) && restore_windows(r->c, page, key, r->passing));
}

/* Reads the windowed pages that a path with all known positions would begin with. */
static void restore_last_window(struct restoring *r)
{
    struct prefix_cache *c = r->c;
    uint32_t known, found = prefix_cache_find(c, r->prefix, &known);
    uint64_t key = root_key(r);
    for (uint32_t i = 0; found < known && i < r->held; i++) {
        uint32_t page = r->pages[i];
        if (i >= page_tree_window_begin(c->tree, known) && !restore_windows_of(r, page, key))
            return;
        if (page_tree_valid(c->tree, page) < KV_POOL_TOKENS)
            return;
        key = key_after(c, key, page);
    }
}

void prefix_cache_restore(struct prefix_cache *c, const struct kv_prefix *prefix,
                          struct kv_path *path)
{
    struct restoring r = {.c = c,
                          .prefix = prefix,
                          .pages = path->pages,
                          .most = path->capacity,
                          .reading = &path->reading,
                          .start_ns = clock_ns(),
                          .passing = path->passing};
    path->reading.more = false;
    if (!has_store(c))
        return;
    restore_pages(&r);
    if (c->tree->n_windowed && !path->reading.more)
        restore_last_window(&r);
    path->reading.spent_ns += clock_ns() - r.start_ns;
    while (r.held > 0)
        page_tree_release(c->tree, r.pages[--r.held]);
}
