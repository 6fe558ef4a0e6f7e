/* The prefix cache; see prefix_cache.h.
 *
 * Invariants:
 * 1. A used page's parent is a used, full page of depth one less, with the serial that the record
 *    names; `children` counts the used pages that name it.
 * 2. `paths` counts the open paths that contain a page. A page of a path has all its ancestors in
 *    it, so a page with paths == 0 has no descendant with paths > 0.
 * 3. Only the path that a page was made for, or taken over by, extends it: `owned` is set while
 *    there is one. A full page has no owner.
 * 4. A record is changed in the order that kv_pool.h gives. */
#include "worker/kv/prefix_cache.h"

#include "base/arrays.h"
#include "base/clock.h"
#include "base/log.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define NONE                KV_POOL_NO_PAGE
#define RESTORE_PATIENCE_NS 200000000 /* of reading pages that cost less to compute */

struct node {
    uint32_t first_child, next_sibling, previous_sibling;
    uint32_t children, paths;
    uint64_t value; /* of eviction */
    bool owned;
};

struct prefix_cache {
    struct kv_pool pool;
    struct kv_store store; /* header NULL: none */
    bool exact;
    uint64_t last_serial, last_evicted; /* last_evicted: the value of a page */
    uint32_t first_root, first_free, n_free, n_in_use;
    struct prefix_cache_stats stats;
    struct node *nodes; /* [n_pages]; free ones are linked by next_sibling */
};

static struct kv_page_record *record_of(const struct prefix_cache *c, uint32_t page)
{
    return &c->pool.records[page];
}

static uint32_t valid_of(const struct prefix_cache *c, uint32_t page)
{
    return atomic_load_explicit(&record_of(c, page)->n, memory_order_relaxed);
}

enum kv_kind kv_kind_of(uint32_t position, uint32_t n_prompt, bool exact)
{
    if (exact)
        return KV_DEFINED;
    if (position / KV_LARGE_TOKENS < n_prompt / KV_LARGE_TOKENS)
        return KV_LARGE_GROUP;
    return position / KV_SMALL_TOKENS < n_prompt / KV_SMALL_TOKENS ? KV_SMALL_GROUP : KV_DEFINED;
}

/* ---- The tree ---- */

static uint32_t *children_of(struct prefix_cache *c, uint32_t parent)
{
    return parent == NONE ? &c->first_root : &c->nodes[parent].first_child;
}

static uint32_t first_child(const struct prefix_cache *c, uint32_t parent)
{
    return parent == NONE ? c->first_root : c->nodes[parent].first_child;
}

static void link_page(struct prefix_cache *c, uint32_t page, uint32_t parent)
{
    uint32_t *first = children_of(c, parent);
    struct node *node = &c->nodes[page];
    node->previous_sibling = NONE;
    node->next_sibling = *first;
    if (*first != NONE)
        c->nodes[*first].previous_sibling = page;
    *first = page;
    if (parent != NONE)
        c->nodes[parent].children++;
}

static void unlink_page(struct prefix_cache *c, uint32_t page)
{
    uint32_t parent = record_of(c, page)->parent;
    struct node *node = &c->nodes[page];
    if (node->next_sibling != NONE)
        c->nodes[node->next_sibling].previous_sibling = node->previous_sibling;
    if (node->previous_sibling != NONE)
        c->nodes[node->previous_sibling].next_sibling = node->next_sibling;
    else
        *children_of(c, parent) = node->next_sibling;
    if (parent != NONE)
        c->nodes[parent].children--;
}

static void push_free(struct prefix_cache *c, uint32_t page)
{
    c->nodes[page] = (struct node){.first_child = NONE, .next_sibling = c->first_free};
    c->first_free = page;
    c->n_free++;
}

static void free_page(struct prefix_cache *c, uint32_t page)
{
    assert(c->nodes[page].children == 0 && c->nodes[page].paths == 0);
    unlink_page(c, page);
    atomic_store_explicit(&record_of(c, page)->serial, 0, memory_order_release);
    atomic_thread_fence(memory_order_release); /* before the page's next content is written */
    push_free(c, page);
}

static void touch(struct prefix_cache *c, uint32_t page)
{
    struct kv_page_record *r = record_of(c, page);
    c->nodes[page].value = c->last_evicted + r->cost_ns;
    atomic_store_explicit(&r->used_s, (uint64_t)time(NULL), memory_order_relaxed);
}

/* ---- Pages for new positions ---- */

static bool is_evictable(const struct prefix_cache *c, uint32_t page)
{
    const struct node *node = &c->nodes[page];
    return atomic_load_explicit(&record_of(c, page)->serial, memory_order_relaxed) &&
           node->paths == 0 && node->children == 0;
}

static bool evict_one(struct prefix_cache *c)
{
    uint32_t victim = NONE;
    for (uint32_t page = 0; page < c->pool.n_pages; page++)
        if (is_evictable(c, page) &&
            (victim == NONE || c->nodes[page].value < c->nodes[victim].value))
            victim = page;
    if (victim == NONE)
        return false;
    if (c->nodes[victim].value > c->last_evicted)
        c->last_evicted = c->nodes[victim].value;
    free_page(c, victim);
    c->stats.evictions++;
    return true;
}

/* A page without valid positions, which continues parent. NONE: there is none. */
static uint32_t new_page(struct prefix_cache *c, uint32_t parent, uint32_t depth)
{
    if (c->first_free == NONE && !evict_one(c))
        return NONE;
    uint32_t page = c->first_free;
    c->first_free = c->nodes[page].next_sibling;
    c->n_free--;
    struct kv_page_record *r = record_of(c, page);
    r->parent = parent;
    r->parent_serial = parent == NONE ? 0 : atomic_load(&record_of(c, parent)->serial);
    r->depth = depth;
    r->kind = KV_DEFINED;
    r->cost_ns = 0;
    atomic_store_explicit(&r->n, 0, memory_order_relaxed);
    c->nodes[page] = (struct node){.first_child = NONE, .owned = true};
    link_page(c, page, parent);
    touch(c, page);
    atomic_store_explicit(&r->serial, ++c->last_serial, memory_order_release);
    return page;
}

static void push_page(struct prefix_cache *c, struct kv_path *path, uint32_t page)
{
    assert(path->n_pages < path->capacity);
    path->pages[path->n_pages++] = page;
    if (c->nodes[page].paths++ == 0)
        c->n_in_use++;
}

static void leave_page(struct prefix_cache *c, uint32_t page)
{
    if (--c->nodes[page].paths == 0)
        c->n_in_use--;
}

static uint32_t last_page(const struct kv_path *path)
{
    return path->n_pages ? path->pages[path->n_pages - 1] : NONE;
}

/* ---- Finding a prefix ---- */

static uint32_t common_tokens(const struct prefix_cache *c, uint32_t page, const uint32_t *tokens,
                              uint32_t n)
{
    const struct kv_page_record *r = record_of(c, page);
    uint32_t valid = valid_of(c, page), same = 0;
    n = n < valid ? n : valid;
    while (same < n && r->tokens[same] == tokens[same])
        same++;
    return same;
}

struct match {
    uint32_t page; /* NONE: none */
    uint32_t n;    /* positions of it */
};

/* The child of parent that shares most of these tokens, which begin at `position`. */
static struct match best_child(const struct prefix_cache *c, uint32_t parent, uint32_t position,
                               const uint32_t *tokens, uint32_t n, uint32_t n_prompt)
{
    struct match best = {NONE, 0};
    enum kv_kind kind = kv_kind_of(position, n_prompt, c->exact);
    for (uint32_t page = first_child(c, parent); page != NONE; page = c->nodes[page].next_sibling) {
        if (record_of(c, page)->kind != (uint32_t)kind)
            continue;
        uint32_t same = common_tokens(c, page, tokens, n);
        if (kind != KV_DEFINED && same < KV_POOL_TOKENS)
            same = 0; /* a group is computed whole, or not at all */
        if (same > best.n)
            best = (struct match){page, same};
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

/* The pages of the longest prefix, at most `most`, and its last page's match. Returns positions. */
static uint32_t find(const struct prefix_cache *c, const uint32_t *tokens, uint32_t n,
                     uint32_t n_prompt, uint32_t *pages, uint32_t most)
{
    uint32_t at = 0, parent = NONE;
    for (uint32_t i = 0; at < n && i < most; i++) {
        struct match m = best_child(c, parent, at, tokens + at, n - at, n_prompt);
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

uint32_t prefix_cache_find(const struct prefix_cache *c, const uint32_t *tokens, uint32_t n,
                           uint32_t n_prompt)
{
    return find(c, tokens, n, n_prompt, NULL, UINT32_MAX);
}

/* Puts the first n positions of `page`, which the path cannot have, into a page of its own. */
static bool copy_page(struct prefix_cache *c, struct kv_path *path, uint32_t page, uint32_t n)
{
    uint32_t parent = last_page(path);
    c->nodes[page].paths++; /* not to be evicted for its copy */
    uint32_t copy = new_page(c, parent, path->n_pages);
    c->nodes[page].paths--;
    if (copy == NONE)
        return false;
    struct kv_page_record *from = record_of(c, page), *to = record_of(c, copy);
    memcpy(kv_pool_page(&c->pool, copy), kv_pool_page(&c->pool, page), c->pool.page_bytes);
    memcpy(to->tokens, from->tokens, n * sizeof *to->tokens);
    to->cost_ns = from->cost_ns * n / valid_of(c, page);
    atomic_store_explicit(&to->n, n, memory_order_release);
    touch(c, copy);
    push_page(c, path, copy);
    c->stats.copies++;
    return true;
}

/* Adds a page of which the path wants the first n positions. False: there is no page for a copy. */
static bool take_page(struct prefix_cache *c, struct kv_path *path, uint32_t page, uint32_t n)
{
    struct node *node = &c->nodes[page];
    touch(c, page);
    if (n < KV_POOL_TOKENS) {
        if (node->owned || n < valid_of(c, page))
            return copy_page(c, path, page, n);
        node->owned = true;
    }
    push_page(c, path, page);
    return true;
}

/* ---- Pages in the store ---- */

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

/* Reads a page of the store into the pool, after parent. NONE: there is no page free, or the file
 * is damaged there. */
static uint32_t restore_page(struct prefix_cache *c, uint32_t parent, uint32_t slot,
                             const struct kv_store_page *from)
{
    uint32_t depth = parent == NONE ? 0 : record_of(c, parent)->depth + 1;
    if (parent != NONE)
        c->nodes[parent].paths++; /* not to be evicted for what continues it */
    uint32_t page = new_page(c, parent, depth);
    if (parent != NONE)
        c->nodes[parent].paths--;
    if (page == NONE)
        return NONE;
    c->nodes[page].owned = false;
    if (!kv_store_read(&c->store, slot, from, kv_pool_page(&c->pool, page))) {
        free_page(c, page);
        return NONE;
    }
    struct kv_page_record *r = record_of(c, page);
    r->kind = from->kind;
    r->cost_ns = from->cost_ns;
    memcpy(r->tokens, from->tokens, sizeof r->tokens);
    atomic_store_explicit(&r->n, from->n, memory_order_release);
    touch(c, page);
    c->stats.restored++;
    return page;
}

/* Whether the store is of use, and follows what the pool was told to drop. */
static bool has_store(const struct prefix_cache *c)
{
    return c->store.header &&
           atomic_load(&c->store.header->cleared) == atomic_load(&c->pool.header->cleared);
}

/* Reads those pages of the prefix that the pool has not, and the store has. Requests wait for it:
 * it stops where reading takes longer than computing those pages again would. */
static void restore(struct prefix_cache *c, const uint32_t *tokens, uint32_t n, uint32_t n_prompt)
{
    uint64_t key = kv_store_root_key(c->store.seed, atomic_load(&c->pool.header->format));
    uint32_t parent = NONE;
    uint64_t start_ns = clock_ns(), saved_ns = RESTORE_PATIENCE_NS;
    for (uint32_t at = 0; at < n; at += KV_POOL_TOKENS) {
        enum kv_kind kind = kv_kind_of(at, n_prompt, c->exact);
        struct match m = best_child(c, parent, at, tokens + at, n - at, n_prompt);
        struct kv_store_page page;
        uint32_t slot;
        if (m.n < KV_POOL_TOKENS) {
            if (!best_in_store(c, key, kind, tokens + at, n - at, m.n, &slot, &page))
                return;
            if (clock_ns() - start_ns > saved_ns)
                return;
            saved_ns += page.cost_ns;
            uint32_t n_page = page.n;
            m.page = restore_page(c, parent, slot, &page);
            if (m.page == NONE || n_page < KV_POOL_TOKENS)
                return;
            if (memcmp(page.tokens, tokens + at,
                       (n - at < KV_POOL_TOKENS ? n - at : KV_POOL_TOKENS) * sizeof *tokens) != 0)
                return; /* they part inside this page */
        }
        parent = m.page;
        key = kv_store_key(key, (uint32_t)kind, record_of(c, parent)->tokens, KV_POOL_TOKENS);
    }
}

void prefix_cache_open(struct prefix_cache *c, const uint32_t *tokens, uint32_t n,
                       uint32_t n_prompt, struct kv_path *path)
{
    if (has_store(c))
        restore(c, tokens, n, n_prompt);
    uint32_t found = find(c, tokens, n, n_prompt, path->pages, path->capacity);
    for (uint32_t at = 0; at < found;) {
        uint32_t left = found - at, part = left < KV_POOL_TOKENS ? left : KV_POOL_TOKENS;
        if (!take_page(c, path, path->pages[path->n_pages], part))
            break;
        at += part;
        path->n = at;
    }
}

/* ---- A path grows ---- */

bool prefix_cache_extend(struct prefix_cache *c, struct kv_path *path, uint32_t positions)
{
    while ((uint64_t)path->n_pages * KV_POOL_TOKENS < positions) {
        uint32_t page = new_page(c, last_page(path), path->n_pages);
        if (page == NONE)
            return false;
        push_page(c, path, page);
    }
    return true;
}

/* A page with the content of `page`, which is full. NONE: there is no other. */
static uint32_t find_twin(const struct prefix_cache *c, uint32_t page)
{
    const struct kv_page_record *r = record_of(c, page);
    for (uint32_t other = first_child(c, r->parent); other != NONE;
         other = c->nodes[other].next_sibling)
        if (other != page && record_of(c, other)->kind == r->kind &&
            valid_of(c, other) == KV_POOL_TOKENS &&
            memcmp(record_of(c, other)->tokens, r->tokens, sizeof r->tokens) == 0)
            return other;
    return NONE;
}

static void change_parent(struct prefix_cache *c, uint32_t page, uint32_t parent)
{
    struct kv_page_record *r = record_of(c, page);
    unlink_page(c, page);
    r->parent = parent;
    r->parent_serial = atomic_load(&record_of(c, parent)->serial);
    link_page(c, page, parent);
}

/* The page at this index of the path has become full: takes the page that has the same content
 * instead, if there is one. The path's next page, which is empty yet, then continues that. */
static bool share_page(struct prefix_cache *c, struct kv_path *path, uint32_t index)
{
    uint32_t page = path->pages[index], next = NONE;
    if (index + 1 < path->n_pages)
        next = path->pages[index + 1];
    c->nodes[page].owned = false;
    uint32_t twin = find_twin(c, page);
    if (twin == NONE)
        return false;
    assert(c->nodes[page].paths == 1 && c->nodes[page].children == (next != NONE));
    if (next != NONE)
        change_parent(c, next, twin);
    leave_page(c, page);
    free_page(c, page);
    path->pages[index] = twin;
    if (c->nodes[twin].paths++ == 0)
        c->n_in_use++;
    touch(c, twin);
    c->stats.shared++;
    return true;
}

uint32_t prefix_cache_fill(struct prefix_cache *c, struct kv_path *path, const uint32_t *tokens,
                           uint32_t n, enum kv_kind kind, uint64_t ns)
{
    uint32_t changed = UINT32_MAX, all = n - path->n;
    while (path->n < n) {
        uint32_t index = path->n / KV_POOL_TOKENS, first = path->n % KV_POOL_TOKENS;
        uint32_t end = n - index * KV_POOL_TOKENS;
        end = end < KV_POOL_TOKENS ? end : KV_POOL_TOKENS;
        struct kv_page_record *r = record_of(c, path->pages[index]);
        assert(c->nodes[path->pages[index]].owned && valid_of(c, path->pages[index]) == first);
        r->kind = (uint32_t)kind;
        r->cost_ns += ns * (end - first) / all;
        memcpy(r->tokens + first, tokens + path->n, (end - first) * sizeof *r->tokens);
        atomic_store_explicit(&r->n, end, memory_order_release);
        touch(c, path->pages[index]);
        path->n += end - first;
        if (end == KV_POOL_TOKENS && share_page(c, path, index) && changed == UINT32_MAX)
            changed = index;
    }
    return changed;
}

void prefix_cache_close(struct prefix_cache *c, struct kv_path *path)
{
    for (uint32_t i = path->n_pages; i-- > 0;) {
        uint32_t page = path->pages[i];
        if (i * KV_POOL_TOKENS + KV_POOL_TOKENS > path->n)
            c->nodes[page].owned = false; /* a full page has no owner already */
        touch(c, page);
        leave_page(c, page);
        if (valid_of(c, page) == 0)
            free_page(c, page);
    }
    path->n_pages = path->n = 0;
}

/* ---- All pages ---- */

uint32_t prefix_cache_available(const struct prefix_cache *c)
{
    return c->pool.n_pages - c->n_in_use;
}

uint32_t prefix_cache_clear(struct prefix_cache *c)
{
    uint32_t n = 0;
    for (bool again = true; again;) {
        again = false;
        for (uint32_t page = 0; page < c->pool.n_pages; page++)
            if (is_evictable(c, page)) {
                free_page(c, page);
                n++;
                again = true;
            }
    }
    /* Last: what memd saves of these pages until it sees this, it drops. */
    atomic_fetch_add(&c->pool.header->cleared, 1);
    return n;
}

uint8_t *prefix_cache_memory(const struct prefix_cache *c, uint32_t page)
{
    return kv_pool_page(&c->pool, page);
}

struct prefix_cache_stats prefix_cache_stats(const struct prefix_cache *c)
{
    struct prefix_cache_stats s = c->stats;
    s.pages = c->pool.n_pages;
    s.free = c->n_free;
    s.in_use = c->n_in_use;
    s.page_bytes = c->pool.page_bytes;
    return s;
}

uint32_t prefix_cache_tokens(const struct prefix_cache *c, uint32_t page, const uint32_t **tokens)
{
    *tokens = record_of(c, page)->tokens;
    return valid_of(c, page);
}

static uint32_t root_of(const struct prefix_cache *c, uint32_t page)
{
    while (record_of(c, page)->parent != NONE)
        page = record_of(c, page)->parent;
    return page;
}

void prefix_cache_visit(const struct prefix_cache *c,
                        void (*visit)(void *arg, const struct kv_leaf *leaf), void *arg)
{
    for (uint32_t page = 0; page < c->pool.n_pages; page++) {
        struct kv_page_record *r = record_of(c, page);
        if (!atomic_load(&r->serial) || c->nodes[page].children)
            continue;
        struct kv_leaf leaf = {.root = root_of(c, page),
                               .serial = atomic_load(&r->serial),
                               .tokens = r->depth * KV_POOL_TOKENS + valid_of(c, page),
                               .used_s = atomic_load(&r->used_s),
                               .in_use = c->nodes[page].paths > 0};
        visit(arg, &leaf);
    }
}

/* ---- Adopting a pool ---- */

static bool is_record_sane(const struct prefix_cache *c, uint32_t page, uint32_t vocab)
{
    const struct kv_page_record *r = record_of(c, page);
    uint32_t n = valid_of(c, page);
    bool sane = n >= 1 && n <= KV_POOL_TOKENS && r->kind <= KV_LARGE_GROUP &&
                r->depth < c->pool.n_pages && (r->depth == 0) == (r->parent == NONE) &&
                (r->parent == NONE || r->parent < c->pool.n_pages) &&
                (r->kind == KV_DEFINED || n == KV_POOL_TOKENS) &&
                (r->kind == KV_DEFINED || !c->exact);
    for (uint32_t i = 0; sane && i < n; i++)
        sane = r->tokens[i] < vocab;
    return sane;
}

/* Whether the parent of a sane record has been adopted, and is what the record continues. */
static bool has_parent(const struct prefix_cache *c, uint32_t page)
{
    const struct kv_page_record *r = record_of(c, page);
    if (r->parent == NONE)
        return r->parent_serial == 0;
    const struct kv_page_record *parent = record_of(c, r->parent);
    return c->nodes[r->parent].owned && atomic_load(&parent->serial) == r->parent_serial &&
           parent->depth + 1 == r->depth && valid_of(c, r->parent) == KV_POOL_TOKENS;
}

/* Links the pages whose ancestors are all there, in order of depth; `owned` marks those. */
static void adopt(struct prefix_cache *c, uint32_t vocab)
{
    uint32_t deepest = 0;
    for (uint32_t page = 0; page < c->pool.n_pages; page++) {
        struct kv_page_record *r = record_of(c, page);
        uint64_t serial = atomic_load(&r->serial);
        if (serial && !is_record_sane(c, page, vocab))
            atomic_store(&r->serial, 0);
        else if (serial && r->depth > deepest)
            deepest = r->depth;
        c->last_serial = serial > c->last_serial ? serial : c->last_serial;
    }
    for (uint32_t depth = 0; depth <= deepest; depth++)
        for (uint32_t page = 0; page < c->pool.n_pages; page++) {
            struct kv_page_record *r = record_of(c, page);
            if (!atomic_load(&r->serial) || r->depth != depth || !has_parent(c, page))
                continue;
            c->nodes[page].owned = true;
            link_page(c, page, r->parent);
            c->nodes[page].value = r->cost_ns;
            c->stats.adopted++;
        }
    for (uint32_t page = c->pool.n_pages; page-- > 0;) {
        bool adopted = c->nodes[page].owned;
        c->nodes[page].owned = false;
        if (!adopted) {
            atomic_store(&record_of(c, page)->serial, 0);
            push_free(c, page);
        }
    }
}

enum error_code prefix_cache_new(const struct prefix_cache_options *options,
                                 struct prefix_cache **out, struct error *e)
{
    struct prefix_cache *c;
    struct node *nodes;
    uint32_t n = options->pool.n_pages;
    if (!ARRAYS_NEW(ARRAY(c, 1), ARRAY(nodes, n)))
        return error_set(e, ERROR_MEMORY, "no memory for the table of %" PRIu32 " KV pages", n);
    c->pool = options->pool;
    c->exact = options->exact;
    if (options->store.header && options->store.page_bytes == c->pool.page_bytes)
        c->store = options->store;
    c->last_serial = (uint64_t)time(NULL) << 20; /* no earlier worker's serial comes again */
    c->nodes = nodes;
    c->first_root = c->first_free = NONE;
    for (uint32_t page = 0; page < n; page++)
        nodes[page].first_child = NONE;
    struct kv_pool_header *h = c->pool.header;
    if (atomic_load(&h->format) != options->format)
        for (uint32_t page = 0; page < n; page++)
            atomic_store(&record_of(c, page)->serial, 0);
    atomic_store(&h->format, options->format);
    adopt(c, options->vocab);
    *out = c;
    return ERROR_OK;
}

void prefix_cache_free(struct prefix_cache *c)
{
    free(c);
}
