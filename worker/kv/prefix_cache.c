/* The prefix cache; see prefix_cache.h.
 *
 * Invariants:
 * 1. The tree's (page_tree.h).
 * 2. A page of a path is held, and so are all its ancestors, which are in the path. So no page that
 *    another one needs is evicted.
 * 3. Only the path that a page was made for, or taken over by, extends it: `owned` is set while
 *    there is one. A full page has no owner.
 * 4. A record is changed in the order that kv_page.h gives. */
#include "worker/kv/prefix_cache_internal.h"

#include "base/arrays.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define NONE KV_POOL_NO_PAGE

enum kv_kind kv_kind_of(uint32_t position, uint32_t n_prompt, bool exact)
{
    if (exact)
        return KV_DEFINED;
    if (position / KV_LARGE_TOKENS < n_prompt / KV_LARGE_TOKENS)
        return KV_LARGE_GROUP;
    return position / KV_SMALL_TOKENS < n_prompt / KV_SMALL_TOKENS ? KV_SMALL_GROUP : KV_DEFINED;
}

static uint32_t token_at(const struct kv_page_record *r, uint32_t i)
{
    return atomic_load_explicit(&r->tokens[i], memory_order_relaxed);
}

void prefix_cache_touch(struct prefix_cache *c, uint32_t page)
{
    struct kv_page_record *r = page_tree_record(c->tree, page);
    uint64_t value =
        atomic_load_explicit(&c->tree->pool.header->last_evicted, memory_order_relaxed) +
        atomic_load_explicit(&r->cost_ns, memory_order_relaxed);
    atomic_store_explicit(&r->value, value, memory_order_relaxed);
    atomic_store_explicit(&r->used_s, (uint64_t)time(NULL), memory_order_relaxed);
}

/* ---- Pages for new positions ---- */

uint32_t prefix_cache_new_page(struct prefix_cache *c, uint32_t parent)
{
    bool evicted;
    uint32_t page = page_tree_add(c->tree, parent, c->format, &evicted);
    c->stats.evictions += evicted;
    if (page != NONE)
        prefix_cache_touch(c, page);
    return page;
}

void prefix_cache_fill_page(struct prefix_cache *c, uint32_t page, const uint32_t *tokens,
                            uint32_t first, uint32_t end)
{
    struct kv_page_record *r = page_tree_record(c->tree, page);
    for (uint32_t i = first; i < end; i++)
        atomic_store_explicit(&r->tokens[i], tokens[i - first], memory_order_relaxed);
    atomic_store_explicit(&r->n, end, memory_order_release);
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

/* ---- Finding a prefix ---- */

static uint32_t common_tokens(const struct prefix_cache *c, uint32_t page, const uint32_t *tokens,
                              uint32_t n)
{
    const struct kv_page_record *r = page_tree_record(c->tree, page);
    uint32_t valid = page_tree_valid(c->tree, page), same = 0;
    n = n < valid ? n : valid;
    while (same < n && token_at(r, same) == tokens[same])
        same++;
    return same;
}

struct kv_match prefix_cache_best_child(const struct prefix_cache *c, uint32_t parent,
                                        uint32_t position, const uint32_t *tokens, uint32_t n,
                                        uint32_t n_prompt)
{
    struct kv_match best = {NONE, 0};
    enum kv_kind kind = kv_kind_of(position, n_prompt, c->exact);
    for (uint32_t page = page_tree_first(c->tree, parent); page != NONE;
         page = c->tree->nodes[page].next_sibling) {
        const struct kv_page_record *r = page_tree_record(c->tree, page);
        if (c->tree->nodes[page].format != c->format ||
            atomic_load_explicit(&r->kind, memory_order_relaxed) != (uint32_t)kind)
            continue;
        uint32_t same = common_tokens(c, page, tokens, n);
        if (kind != KV_DEFINED && same < KV_POOL_TOKENS)
            same = 0; /* a group is computed whole, or not at all */
        if (same > best.n)
            best = (struct kv_match){page, same};
    }
    return best;
}

/* Of n positions that match, those that a path may take: no part of a large group. */
static uint32_t whole_groups(const struct prefix_cache *c, uint32_t n, uint32_t n_prompt)
{
    if (n > 0 && kv_kind_of(n - 1, n_prompt, c->exact) == KV_LARGE_GROUP)
        n -= n % KV_LARGE_TOKENS;
    return n;
}

/* The pages of the longest prefix, at most `most`, and its last page's match. Returns positions.
 * Another worker may evict any of these pages before it is held, or may have: a content that is
 * held then was the one that was compared. */
static uint32_t find(const struct prefix_cache *c, const uint32_t *tokens, uint32_t n,
                     uint32_t n_prompt, uint32_t *pages, uint32_t most)
{
    uint32_t at = 0, parent = NONE;
    for (uint32_t i = 0; at < n && i < most; i++) {
        struct kv_match m = prefix_cache_best_child(c, parent, at, tokens + at, n - at, n_prompt);
        if (m.page == NONE)
            break;
        if (pages)
            pages[i] = m.page;
        at += m.n;
        if (m.n < KV_POOL_TOKENS)
            break;
        parent = m.page;
    }
    return whole_groups(c, at, n_prompt);
}

uint32_t prefix_cache_find(struct prefix_cache *c, const uint32_t *tokens, uint32_t n,
                           uint32_t n_prompt)
{
    page_tree_follow(c->tree);
    return find(c, tokens, n, n_prompt, NULL, UINT32_MAX);
}

/* Puts the first n positions of a page that is held, and that the path cannot have, into a page of
 * its own. Another worker may be writing behind them. */
static bool copy_page(struct prefix_cache *c, struct kv_path *path, uint32_t page, uint32_t n)
{
    uint32_t copy = prefix_cache_new_page(c, last_page(path));
    if (copy == NONE)
        return false;
    const struct kv_pool *pool = &c->tree->pool;
    struct kv_page_record *from = page_tree_record(c->tree, page),
                          *to = page_tree_record(c->tree, copy);
    uint32_t tokens[KV_POOL_TOKENS];
    for (uint32_t i = 0; i < n; i++)
        tokens[i] = token_at(from, i);
    kv_page_copy(kv_pool_page(pool, copy), kv_pool_page(pool, page), pool->page_bytes);
    uint64_t cost = atomic_load_explicit(&from->cost_ns, memory_order_relaxed);
    atomic_store_explicit(&to->cost_ns, cost * n / page_tree_valid(c->tree, page),
                          memory_order_relaxed);
    prefix_cache_fill_page(c, copy, tokens, 0, n);
    prefix_cache_touch(c, copy);
    push_page(path, copy);
    c->stats.copies++;
    return true;
}

/* Makes the path the page's writer, which has n positions. */
static bool take_over(struct prefix_cache *c, uint32_t page, uint32_t n)
{
    struct page_node *node = &c->tree->nodes[page];
    if (node->owned || page_tree_valid(c->tree, page) != n ||
        !kv_page_take_over(&c->tree->pool, c->tree->worker, page))
        return false;
    node->owned = true;
    if (page_tree_valid(c->tree, page) == n)
        return true;
    page_tree_finish(c->tree, page); /* another worker has written more just now */
    return false;
}

/* Adds a page of which the path wants the first n positions. False: it has gone, or there is no
 * page for a copy. */
static bool take_page(struct prefix_cache *c, struct kv_path *path, uint32_t page, uint32_t n)
{
    if (!page_tree_hold(c->tree, page))
        return false;
    prefix_cache_touch(c, page);
    if (n == KV_POOL_TOKENS || take_over(c, page, n)) {
        push_page(path, page);
        return true;
    }
    bool copied = copy_page(c, path, page, n);
    page_tree_release(c->tree, page);
    return copied;
}

void prefix_cache_open(struct prefix_cache *c, const uint32_t *tokens, uint32_t n,
                       uint32_t n_prompt, struct kv_path *path)
{
    page_tree_follow(c->tree);
    prefix_cache_restore(c, tokens, n, n_prompt, path);
    uint32_t found = find(c, tokens, n, n_prompt, path->pages, path->capacity);
    for (uint32_t at = 0; at < found;) {
        uint32_t left = found - at, part = left < KV_POOL_TOKENS ? left : KV_POOL_TOKENS;
        if (!take_page(c, path, path->pages[path->n_pages], part))
            break;
        at += part;
        path->n = at;
    }
    path->n = whole_groups(c, path->n, n_prompt);
    while (path->n_pages * KV_POOL_TOKENS >= path->n + KV_POOL_TOKENS) /* of a part of a group */
        page_tree_release(c->tree, path->pages[--path->n_pages]);
}

/* ---- A path grows ---- */

bool prefix_cache_extend(struct prefix_cache *c, struct kv_path *path, uint32_t positions)
{
    while ((uint64_t)path->n_pages * KV_POOL_TOKENS < positions) {
        uint32_t page = prefix_cache_new_page(c, last_page(path));
        if (page == NONE)
            return false;
        push_page(path, page);
    }
    return true;
}

/* A page with the content of `page`, which is full. NONE: there is no other. */
static uint32_t find_twin(const struct prefix_cache *c, uint32_t page)
{
    const struct kv_page_record *r = page_tree_record(c->tree, page);
    const struct page_node *node = &c->tree->nodes[page];
    uint32_t tokens[KV_POOL_TOKENS];
    for (uint32_t i = 0; i < KV_POOL_TOKENS; i++)
        tokens[i] = token_at(r, i);
    for (uint32_t other = page_tree_first(c->tree, node->parent); other != NONE;
         other = c->tree->nodes[other].next_sibling) {
        const struct kv_page_record *o = page_tree_record(c->tree, other);
        if (other != page && c->tree->nodes[other].format == node->format &&
            atomic_load_explicit(&o->kind, memory_order_relaxed) ==
                atomic_load_explicit(&r->kind, memory_order_relaxed) &&
            common_tokens(c, other, tokens, KV_POOL_TOKENS) == KV_POOL_TOKENS)
            return other;
    }
    return NONE;
}

/* The page at this index of the path has become full: takes the page that has the same content
 * instead, if there is one. The path's next page, which is empty yet, then continues that. */
static bool share_page(struct prefix_cache *c, struct kv_path *path, uint32_t index)
{
    uint32_t page = path->pages[index], next = NONE;
    if (index + 1 < path->n_pages)
        next = path->pages[index + 1];
    page_tree_follow(c->tree);
    uint32_t twin = find_twin(c, page);
    page_tree_finish(c->tree, page);
    if (twin == NONE || !page_tree_hold(c->tree, twin)) {
        page_tree_changed(c->tree);
        return false;
    }
    if (next != NONE)
        page_tree_move(c->tree, next, twin);
    page_tree_release(c->tree, page);
    page_tree_drop(c->tree, page); /* unless another worker uses it already */
    path->pages[index] = twin;
    prefix_cache_touch(c, twin);
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
        atomic_store_explicit(&r->kind, (uint32_t)kind, memory_order_relaxed);
        atomic_fetch_add_explicit(&r->cost_ns, ns * (end - first) / all, memory_order_relaxed);
        prefix_cache_fill_page(c, page, tokens + path->n, first, end);
        prefix_cache_touch(c, page);
        path->n += end - first;
        if (end == KV_POOL_TOKENS && share_page(c, path, index) && changed == UINT32_MAX)
            changed = index;
    }
    return changed;
}

void prefix_cache_close(struct prefix_cache *c, struct kv_path *path)
{
    if (path->n_pages == 0)
        return;
    for (uint32_t i = path->n_pages; i-- > 0;) {
        uint32_t page = path->pages[i];
        if (i * KV_POOL_TOKENS + KV_POOL_TOKENS > path->n) /* a full page has no owner already */
            page_tree_finish(c->tree, page);
        prefix_cache_touch(c, page);
        page_tree_release(c->tree, page);
        if (page_tree_valid(c->tree, page) == 0)
            page_tree_drop(c->tree, page);
    }
    path->n_pages = path->n = 0;
    page_tree_changed(c->tree);
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
    uint32_t n = 0;
    page_tree_follow(c->tree);
    for (bool again = true; again;) {
        again = false;
        for (uint32_t page = 0; page < c->tree->pool.n_pages; page++)
            if (page_tree_drop(c->tree, page)) {
                n++;
                again = true;
            }
    }
    /* Last: what memd saves of these pages until it sees this, it drops. */
    atomic_fetch_add(&c->tree->pool.header->cleared, 1);
    return n;
}

uint8_t *prefix_cache_memory(const struct prefix_cache *c, uint32_t page)
{
    return kv_pool_page(&c->tree->pool, page);
}

struct prefix_cache_stats prefix_cache_stats(const struct prefix_cache *c)
{
    struct prefix_cache_stats s = c->stats;
    struct kv_pool_use use = kv_pool_use(&c->tree->pool);
    s.pages = use.pages;
    s.free = use.pages - use.pages_used;
    s.in_use = use.pages_in_use;
    s.page_bytes = c->tree->pool.page_bytes;
    return s;
}

uint32_t prefix_cache_tokens(const struct prefix_cache *c, uint32_t page,
                             uint32_t tokens[KV_POOL_TOKENS])
{
    uint32_t n = page_tree_valid(c->tree, page);
    n = n < KV_POOL_TOKENS ? n : KV_POOL_TOKENS;
    for (uint32_t i = 0; i < n; i++)
        tokens[i] = token_at(page_tree_record(c->tree, page), i);
    return n;
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
        if (!node->generation || node->children)
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
    enum error_code code =
        page_tree_new(&options->pool, options->worker, options->vocab, &c->tree, e);
    if (code) {
        free(c);
        return code;
    }
    c->exact = options->exact;
    c->format = options->format;
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
