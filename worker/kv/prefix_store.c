/* Pages that only the file of --kv-dir has (ipc/kv_store.h); see prefix_cache.h. */
#include "worker/kv/prefix_cache_internal.h"

#include "base/clock.h"

#include <string.h>

#define NONE                KV_POOL_NO_PAGE
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
static uint32_t restore_page(struct prefix_cache *c, uint32_t parent, uint32_t slot,
                             const struct kv_store_page *from)
{
    uint32_t page = prefix_cache_new_page(c, parent);
    if (page == NONE)
        return NONE;
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
    prefix_cache_touch(c, page);
    page_tree_changed(c->tree);
    c->stats.restored++;
    return page;
}

/* Whether the store is of use, and follows what the pool was told to drop. */
static bool has_store(const struct prefix_cache *c)
{
    return c->store.header &&
           atomic_load(&c->store.header->cleared) == atomic_load(&c->tree->pool.header->cleared);
}

/* The next page of the prefix is read where the store has more of it than the pool. Returns the
 * page, held; NONE: the prefix ends here. *whole: the prefix goes on behind it. */
static uint32_t next_page(struct prefix_cache *c, uint32_t parent, uint64_t key, enum kv_kind kind,
                          const uint32_t *tokens, uint32_t n, struct kv_match m, bool *whole)
{
    struct kv_store_page page;
    uint32_t slot, most = n < KV_POOL_TOKENS ? n : KV_POOL_TOKENS;
    if (!best_in_store(c, key, kind, tokens, n, m.n, &slot, &page))
        return NONE;
    *whole = page.n == KV_POOL_TOKENS && memcmp(page.tokens, tokens, most * sizeof *tokens) == 0;
    return restore_page(c, parent, slot, &page);
}

/* Requests wait for it: it stops where reading takes longer than computing those pages again would.
 */
static uint32_t walk(struct prefix_cache *c, const uint32_t *tokens, uint32_t n, uint32_t n_prompt,
                     const struct kv_path *path)
{
    uint64_t key = kv_store_root_key(c->store.seed, c->format);
    uint64_t start_ns = clock_ns(), saved_ns = RESTORE_PATIENCE_NS;
    uint32_t parent = NONE, held = 0;
    for (uint32_t at = 0; at < n && held < path->capacity; at += KV_POOL_TOKENS) {
        enum kv_kind kind = kv_kind_of(at, n_prompt, c->exact);
        struct kv_match m = prefix_cache_best_child(c, parent, at, tokens + at, n - at, n_prompt);
        bool whole = true;
        if (m.n == KV_POOL_TOKENS) {
            if (!page_tree_hold(c->tree, m.page))
                break;
        } else {
            if (clock_ns() - start_ns > saved_ns)
                break;
            m.page = next_page(c, parent, key, kind, tokens + at, n - at, m, &whole);
            if (m.page == NONE)
                break;
            saved_ns += atomic_load(&page_tree_record(c->tree, m.page)->cost_ns);
        }
        path->pages[held++] = parent = m.page;
        uint32_t page_tokens[KV_POOL_TOKENS];
        if (!whole || prefix_cache_tokens(c, parent, page_tokens) < KV_POOL_TOKENS)
            break;
        key = kv_store_key(key, (uint32_t)kind, page_tokens, KV_POOL_TOKENS);
    }
    return held;
}

void prefix_cache_restore(struct prefix_cache *c, const uint32_t *tokens, uint32_t n,
                          uint32_t n_prompt, const struct kv_path *path)
{
    if (!has_store(c))
        return;
    for (uint32_t held = walk(c, tokens, n, n_prompt, path); held-- > 0;)
        page_tree_release(c->tree, path->pages[held]);
}
