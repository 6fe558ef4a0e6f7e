/* Pages of the prefix cache that only the file of conversations has (ipc/kv_store.h); see
 * prefix_cache_internal.h. */
#include "prefix_cache_internal.h"

#include "base/clock.h"

#include <string.h>

#define RESTORE_PATIENCE_NS 200000000 /* of reading pages that cost less to compute */

/* Requests wait for the reading: it stops where it takes longer than computing would. */
struct restoring {
    struct prefix_cache *c;
    const uint32_t *tokens;
    uint32_t n, n_prompt;
    uint64_t start_ns, saved_ns;
};

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

/* Reads a page of the store into the pool, after parent. NO_PAGE: there is no page free, or the
 * file is damaged there. */
static uint32_t restore_page(struct prefix_cache *c, uint32_t parent, uint32_t slot,
                             const struct kv_store_page *from)
{
    uint32_t depth = parent == NO_PAGE ? 0 : prefix_record(c, parent)->depth + 1;
    if (parent != NO_PAGE)
        c->nodes[parent].paths++; /* not to be evicted for what continues it */
    uint32_t page = prefix_new_page(c, parent, depth);
    if (parent != NO_PAGE)
        c->nodes[parent].paths--;
    if (page == NO_PAGE)
        return NO_PAGE;
    c->nodes[page].owned = false;
    if (!kv_store_read(&c->store, slot, from, kv_pool_page(&c->pool, page))) {
        prefix_free(c, page);
        return NO_PAGE;
    }
    struct kv_page_record *r = prefix_record(c, page);
    r->kind = from->kind;
    r->cost_ns = from->cost_ns;
    memcpy(r->tokens, from->tokens, sizeof r->tokens);
    atomic_store_explicit(&r->n, from->n, memory_order_release);
    prefix_touch(c, page);
    c->stats.restored++;
    return page;
}

static bool is_patient(const struct restoring *r)
{
    return clock_ns() - r->start_ns <= r->saved_ns;
}

static uint64_t root_key(const struct prefix_cache *c)
{
    return kv_store_root_key(c->store.seed, atomic_load(&c->pool.header->format));
}

static uint64_t key_after(const struct prefix_cache *c, uint64_t key, uint32_t page)
{
    const struct kv_page_record *r = prefix_record(c, page);
    return kv_store_key(key, r->kind, r->tokens, KV_POOL_TOKENS);
}

/* Whether the tokens from `at` on are those of a page with the match m, as far as both go. */
static bool part_inside(const struct restoring *r, const struct kv_store_page *page, uint32_t at)
{
    uint32_t n = r->n - at < KV_POOL_TOKENS ? r->n - at : KV_POOL_TOKENS;
    return memcmp(page->tokens, r->tokens + at, n * sizeof *r->tokens) != 0;
}

static void restore_pages(struct restoring *r)
{
    struct prefix_cache *c = r->c;
    uint64_t key = root_key(c);
    uint32_t parent = NO_PAGE;
    for (uint32_t at = 0; at < r->n; at += KV_POOL_TOKENS) {
        enum kv_kind kind = kv_kind_of(at, r->n_prompt, c->exact);
        struct prefix_match m =
            prefix_best_child(c, parent, at, r->tokens + at, r->n - at, r->n_prompt);
        struct kv_store_page page;
        uint32_t slot;
        if (m.n < KV_POOL_TOKENS) {
            if (!best_in_store(c, key, kind, r->tokens + at, r->n - at, m.n, &slot, &page) ||
                !is_patient(r))
                return;
            r->saved_ns += page.cost_ns;
            m.page = restore_page(c, parent, slot, &page);
            if (m.page == NO_PAGE || page.n < KV_POOL_TOKENS || part_inside(r, &page, at))
                return;
        }
        parent = m.page;
        key = key_after(c, key, parent);
    }
}

/* ---- Windowed pages ---- */

/* Reads what the store has of a group of the page's positions. False: nothing. */
static bool read_windowed(struct prefix_cache *c, uint32_t page, uint32_t group, uint64_t parent)
{
    const struct kv_page_record *r = prefix_record(c, page);
    uint32_t n = prefix_valid(c, page), kind = r->kind | group << KV_STORE_GROUP_SHIFT;
    uint64_t key = kv_store_key(parent, kind, r->tokens, n);
    uint8_t *memory = prefix_cache_memory(c, page, group);
    struct kv_store_page found;
    for (uint32_t at = 0; kv_store_next(&c->store, parent, &at, &found); at++)
        if (found.key == key)
            return kv_store_read(&c->store, at, &found, memory);
    return false;
}

/* parent: the key that the page continues. False: the store has not all of it, or no page is free.
 */
static bool restore_windows(struct prefix_cache *c, uint32_t page, uint64_t parent)
{
    if (!prefix_new_windows(c, page))
        return false;
    for (uint32_t group = 1; group <= c->n_windowed; group++)
        if (!read_windowed(c, page, group, parent)) {
            prefix_free_windows(c, page);
            return false;
        }
    prefix_update_windows(c, page, prefix_valid(c, page));
    prefix_keep_windows(c, page, true);
    c->stats.restored += c->n_windowed;
    return true;
}

/* Reads the windowed pages that a path with all known positions would begin with. */
static void restore_last_window(struct restoring *r)
{
    struct prefix_cache *c = r->c;
    uint32_t known, parent = NO_PAGE;
    uint32_t found = prefix_cache_find(c, r->tokens, r->n, r->n_prompt, &known);
    uint64_t key = root_key(c);
    for (uint32_t at = 0; found < known && at < known && is_patient(r); at += KV_POOL_TOKENS) {
        struct prefix_match m =
            prefix_best_child(c, parent, at, r->tokens + at, r->n - at, r->n_prompt);
        if (m.page == NO_PAGE)
            return;
        if (at / KV_POOL_TOKENS >= prefix_window_begin(c, known) &&
            !prefix_has_windows(c, m.page) && !restore_windows(c, m.page, key))
            return;
        parent = m.page;
        key = key_after(c, key, parent);
    }
}

/* Whether the store is of use, and follows what the pool was told to drop. */
static bool has_store(const struct prefix_cache *c)
{
    return c->store.header &&
           atomic_load(&c->store.header->cleared) == atomic_load(&c->pool.header->cleared);
}

void prefix_restore(struct prefix_cache *c, const uint32_t *tokens, uint32_t n, uint32_t n_prompt)
{
    struct restoring r = {c, tokens, n, n_prompt, clock_ns(), RESTORE_PATIENCE_NS};
    if (!has_store(c))
        return;
    restore_pages(&r);
    if (c->n_windowed)
        restore_last_window(&r);
}
