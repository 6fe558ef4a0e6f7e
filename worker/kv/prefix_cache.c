/* The prefix cache: paths through the tree; see prefix_cache.h and prefix_cache_internal.h. */
#include "prefix_cache_internal.h"

#include <assert.h>
#include <string.h>

enum kv_kind kv_kind_of(uint32_t position, uint32_t n_prompt, bool exact)
{
    if (exact)
        return KV_DEFINED;
    if (position / KV_LARGE_TOKENS < n_prompt / KV_LARGE_TOKENS)
        return KV_LARGE_GROUP;
    return position / KV_SMALL_TOKENS < n_prompt / KV_SMALL_TOKENS ? KV_SMALL_GROUP : KV_DEFINED;
}

/* ---- Finding a prefix ---- */

static uint32_t common_tokens(const struct prefix_cache *c, uint32_t page, const uint32_t *tokens,
                              uint32_t n)
{
    const struct kv_page_record *r = prefix_record(c, page);
    uint32_t valid = prefix_valid(c, page), same = 0;
    n = n < valid ? n : valid;
    while (same < n && r->tokens[same] == tokens[same])
        same++;
    return same;
}

struct prefix_match prefix_best_child(const struct prefix_cache *c, uint32_t parent,
                                      uint32_t position, const uint32_t *tokens, uint32_t n,
                                      uint32_t n_prompt)
{
    struct prefix_match best = {NO_PAGE, 0};
    enum kv_kind kind = kv_kind_of(position, n_prompt, c->exact);
    for (uint32_t page = prefix_first_child(c, parent); page != NO_PAGE;
         page = c->nodes[page].next_sibling) {
        if (prefix_record(c, page)->kind != (uint32_t)kind)
            continue;
        uint32_t same = common_tokens(c, page, tokens, n);
        if (kind != KV_DEFINED && same < KV_POOL_TOKENS)
            same = 0; /* a group is computed whole, or not at all */
        if (same > best.n || (same > 0 && same == best.n && !prefix_has_windows(c, best.page)))
            best = (struct prefix_match){page, same};
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

/* The pages of the longest prefix that a path may begin with, at most `most`, and maybe some after
 * it. Returns its positions; *known: those of the longest prefix, whatever its windows. */
static uint32_t find(const struct prefix_cache *c, const uint32_t *tokens, uint32_t n,
                     uint32_t n_prompt, uint32_t *pages, uint32_t most, uint32_t *known)
{
    uint32_t at = 0, parent = NO_PAGE, found = 0;
    uint32_t windows = 0; /* from the page with this index on, all have windowed pages */
    for (uint32_t i = 0; at < n && i < most; i++) {
        struct prefix_match m = prefix_best_child(c, parent, at, tokens + at, n - at, n_prompt);
        if (m.page == NO_PAGE)
            break;
        if (pages)
            pages[i] = m.page;
        at += m.n;
        if (!prefix_has_windows(c, m.page))
            windows = i + 1;
        uint32_t end = whole_groups(c, at, n_prompt);
        if (end > found && windows <= prefix_window_begin(c, end))
            found = end;
        if (m.n < KV_POOL_TOKENS)
            break;
        parent = m.page;
    }
    *known = whole_groups(c, at, n_prompt);
    return found;
}

uint32_t prefix_cache_find(const struct prefix_cache *c, const uint32_t *tokens, uint32_t n,
                           uint32_t n_prompt, uint32_t *known)
{
    uint32_t whatever;
    return find(c, tokens, n, n_prompt, NULL, UINT32_MAX, known ? known : &whatever);
}

/* ---- A path's pages ---- */

static uint32_t last_page(const struct kv_path *path)
{
    return path->n_pages ? path->pages[path->n_pages - 1] : NO_PAGE;
}

static void push_page(struct prefix_cache *c, struct kv_path *path, uint32_t page)
{
    assert(path->n_pages < path->capacity);
    path->pages[path->n_pages++] = page;
    prefix_enter(c, page);
}

static void push_windows(struct prefix_cache *c, struct kv_path *path)
{
    prefix_enter_windows(c, path->pages[path->n_windowed++]);
}

/* Takes back the last page, which has no valid positions. */
static void pop_page(struct prefix_cache *c, struct kv_path *path)
{
    uint32_t page = path->pages[--path->n_pages];
    prefix_leave(c, page);
    prefix_free(c, page);
}

static void copy_memory(struct prefix_cache *c, uint32_t to, uint32_t from)
{
    memcpy(kv_pool_page(&c->pool, to), kv_pool_page(&c->pool, from), c->pool.page_bytes);
}

/* Puts the first n positions of `page`, which the path cannot have, into a page of its own. */
static bool copy_page(struct prefix_cache *c, struct kv_path *path, uint32_t page, uint32_t n,
                      bool windows)
{
    prefix_enter(c, page); /* not to be evicted for its copy */
    if (windows)
        prefix_enter_windows(c, page);
    uint32_t copy = prefix_new_page(c, last_page(path), path->n_pages);
    if (copy != NO_PAGE)
        push_page(c, path, copy);
    bool copied = copy != NO_PAGE && (!windows || prefix_new_windows(c, copy));
    if (windows)
        prefix_leave_windows(c, page);
    prefix_leave(c, page);
    if (!copied) {
        if (copy != NO_PAGE)
            pop_page(c, path);
        return false;
    }
    struct kv_page_record *from = prefix_record(c, page), *to = prefix_record(c, copy);
    copy_memory(c, copy, page);
    for (uint32_t i = 0; i < c->n_windowed && windows; i++)
        copy_memory(c, prefix_windowed(c, copy)[i], prefix_windowed(c, page)[i]);
    memcpy(to->tokens, from->tokens, n * sizeof *to->tokens);
    to->cost_ns = from->cost_ns * n / prefix_valid(c, page);
    prefix_update_windows(c, copy, n);
    atomic_store_explicit(&to->n, n, memory_order_release);
    prefix_touch(c, copy);
    c->stats.copies++;
    return true;
}

/* Adds a page of which the path wants the first n positions. False: there is no page for a copy. */
static bool take_page(struct prefix_cache *c, struct kv_path *path, uint32_t page, uint32_t n)
{
    struct node *node = &c->nodes[page];
    bool windows = c->n_windowed > 0 && path->n_pages >= path->first_windowed;
    prefix_touch(c, page);
    if (n < KV_POOL_TOKENS && (node->owned || n < prefix_valid(c, page))) {
        if (!copy_page(c, path, page, n, windows))
            return false;
    } else {
        node->owned = n < KV_POOL_TOKENS;
        push_page(c, path, page);
    }
    if (windows) {
        prefix_keep_windows(c, page, true);
        push_windows(c, path);
    }
    return true;
}

/* Takes the pages that `find` put into the path. False: there is no page for a copy; path->n is as
 * far as it came. */
static bool take_pages(struct prefix_cache *c, struct kv_path *path, uint32_t found)
{
    path->first_windowed = path->n_windowed = prefix_window_begin(c, found);
    while (path->n < found) {
        uint32_t left = found - path->n, part = left < KV_POOL_TOKENS ? left : KV_POOL_TOKENS;
        if (!take_page(c, path, path->pages[path->n_pages], part))
            return false;
        path->n += part;
    }
    path->n_found = path->n_pages;
    return true;
}

void prefix_cache_open(struct prefix_cache *c, const uint32_t *tokens, uint32_t n,
                       uint32_t n_prompt, struct kv_path *path)
{
    uint32_t known;
    prefix_restore(c, tokens, n, n_prompt);
    for (;;) {
        uint32_t found = find(c, tokens, n, n_prompt, path->pages, path->capacity, &known);
        if (take_pages(c, path, found))
            return;
        n = path->n; /* a shorter prefix can need windowed pages before those of the longer one */
        prefix_cache_close(c, path);
    }
}

/* ---- A path grows ---- */

/* Whether the path's last page is to have windowed pages. */
static bool wants_windows(const struct prefix_cache *c, const struct kv_path *path)
{
    return c->n_windowed > 0 && path->n_windowed + 1 == path->n_pages &&
           (path->window_pages == 0 ||
            path->n_windowed - path->first_windowed < path->window_pages);
}

bool prefix_cache_extend(struct prefix_cache *c, struct kv_path *path, uint32_t positions)
{
    while ((uint64_t)path->n_pages * KV_POOL_TOKENS < positions) {
        uint32_t page = prefix_new_page(c, last_page(path), path->n_pages);
        if (page == NO_PAGE)
            return false;
        push_page(c, path, page);
        if (!wants_windows(c, path))
            continue;
        if (!prefix_new_windows(c, page)) {
            pop_page(c, path);
            return false;
        }
        push_windows(c, path);
    }
    return true;
}

/* A page with the content of `page`, which is full. NO_PAGE: there is no other. */
static uint32_t find_twin(const struct prefix_cache *c, uint32_t page)
{
    const struct kv_page_record *r = prefix_record(c, page);
    for (uint32_t other = prefix_first_child(c, r->parent); other != NO_PAGE;
         other = c->nodes[other].next_sibling)
        if (other != page && prefix_record(c, other)->kind == r->kind &&
            prefix_valid(c, other) == KV_POOL_TOKENS &&
            memcmp(prefix_record(c, other)->tokens, r->tokens, sizeof r->tokens) == 0)
            return other;
    return NO_PAGE;
}

/* The path has the windowed pages of `twin` instead of those of `page`. */
static void share_windows(struct prefix_cache *c, uint32_t page, uint32_t twin)
{
    prefix_leave_windows(c, page);
    if (!prefix_has_windows(c, twin))
        prefix_move_windows(c, page, twin);
    prefix_enter_windows(c, twin);
}

/* The page at this index of the path has become full: takes the page that has the same content
 * instead, if there is one. The path's next page, which is empty yet, then continues that. */
static bool share_page(struct prefix_cache *c, struct kv_path *path, uint32_t index)
{
    uint32_t page = path->pages[index], next = NO_PAGE;
    if (index + 1 < path->n_pages)
        next = path->pages[index + 1];
    c->nodes[page].owned = false;
    uint32_t twin = find_twin(c, page);
    if (twin == NO_PAGE)
        return false;
    assert(c->nodes[page].paths == 1 && c->nodes[page].children == (next != NO_PAGE));
    if (next != NO_PAGE)
        prefix_change_parent(c, next, twin);
    if (c->n_windowed)
        share_windows(c, page, twin);
    prefix_leave(c, page);
    prefix_free(c, page);
    path->pages[index] = twin;
    prefix_enter(c, twin);
    prefix_touch(c, twin);
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
        struct kv_page_record *r = prefix_record(c, page);
        assert(c->nodes[page].owned && prefix_valid(c, page) == first);
        assert(c->n_windowed == 0 || (index >= path->first_windowed && index < path->n_windowed));
        r->kind = (uint32_t)kind;
        r->cost_ns += ns * (end - first) / all;
        memcpy(r->tokens + first, tokens + path->n, (end - first) * sizeof *r->tokens);
        prefix_update_windows(c, page, end);
        atomic_store_explicit(&r->n, end, memory_order_release);
        prefix_touch(c, page);
        path->n += end - first;
        if (end == KV_POOL_TOKENS && share_page(c, path, index) && changed == UINT32_MAX)
            changed = index;
    }
    return changed;
}

/* ---- A path leaves windowed pages behind ---- */

/* Whether another path is likely to begin with positions of this page in its window. */
static bool is_kept(const struct prefix_cache *c, const struct kv_path *path, uint32_t index)
{
    for (int i = 0; i < KV_PATH_KEPT; i++) {
        const struct kv_kept *kept = &path->kept[i];
        if (kept->end > 0 && index >= prefix_window_begin(c, kept->first) &&
            index <= (kept->end - 1) / KV_POOL_TOKENS)
            return true;
    }
    return false;
}

/* The first of the path's windowed pages is of no use to it any more. */
static void pass_windows(struct prefix_cache *c, struct kv_path *path)
{
    uint32_t index = path->first_windowed++, page = path->pages[index];
    prefix_leave_windows(c, page);
    if (prefix_valid(c, page) > 0) {
        if (index >= path->n_found || is_kept(c, path, index))
            prefix_keep_windows(c, page, is_kept(c, path, index));
    } else if (path->n_windowed < path->n_pages) {
        prefix_move_windows(c, page, path->pages[path->n_windowed]);
        push_windows(c, path);
    } else
        prefix_free_windows(c, page);
}

bool prefix_cache_pass(struct prefix_cache *c, struct kv_path *path, uint32_t position)
{
    uint32_t before = path->first_windowed;
    while (c->n_windowed > 0 && path->first_windowed < path->n_windowed &&
           path->first_windowed < prefix_window_begin(c, position))
        pass_windows(c, path);
    return path->first_windowed != before;
}

/* The windowed pages with which the path can go on stay, also if it goes on from its last full
 * page. */
static void close_windows(struct prefix_cache *c, struct kv_path *path)
{
    uint32_t begin = prefix_window_begin(c, path->n - path->n % KV_POOL_TOKENS);
    for (uint32_t i = path->first_windowed; i < path->n_windowed; i++)
        prefix_leave_windows(c, path->pages[i]);
    for (uint32_t i = begin; i < path->n_pages; i++)
        prefix_keep_windows(c, path->pages[i], true);
}

void prefix_cache_close(struct prefix_cache *c, struct kv_path *path)
{
    if (c->n_windowed)
        close_windows(c, path);
    for (uint32_t i = path->n_pages; i-- > 0;) {
        uint32_t page = path->pages[i];
        if (i * KV_POOL_TOKENS + KV_POOL_TOKENS > path->n)
            c->nodes[page].owned = false; /* a full page has no owner already */
        prefix_touch(c, page);
        prefix_leave(c, page);
        if (prefix_valid(c, page) == 0)
            prefix_free(c, page);
    }
    path->n_pages = path->n = path->n_found = path->first_windowed = path->n_windowed = 0;
}

/* ---- All pages ---- */

uint32_t prefix_cache_available(const struct prefix_cache *c)
{
    return c->pool.n_pages - c->n_in_use;
}

uint8_t *prefix_cache_memory(const struct prefix_cache *c, uint32_t page, uint32_t group)
{
    return kv_pool_page(&c->pool, group == 0 ? page : prefix_windowed(c, page)[group - 1]);
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
    *tokens = prefix_record(c, page)->tokens;
    return prefix_valid(c, page);
}

static uint32_t root_of(const struct prefix_cache *c, uint32_t page)
{
    while (prefix_record(c, page)->parent != NO_PAGE)
        page = prefix_record(c, page)->parent;
    return page;
}

void prefix_cache_visit(const struct prefix_cache *c,
                        void (*visit)(void *arg, const struct kv_leaf *leaf), void *arg)
{
    for (uint32_t page = 0; page < c->pool.n_pages; page++) {
        struct kv_page_record *r = prefix_record(c, page);
        if (!atomic_load(&r->serial) || r->group || c->nodes[page].children)
            continue;
        struct kv_leaf leaf = {.root = root_of(c, page),
                               .serial = atomic_load(&r->serial),
                               .tokens = r->depth * KV_POOL_TOKENS + prefix_valid(c, page),
                               .used_s = atomic_load(&r->used_s),
                               .in_use = c->nodes[page].paths > 0};
        visit(arg, &leaf);
    }
}
