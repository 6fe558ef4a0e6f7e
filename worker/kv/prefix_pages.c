/* Single pages of the prefix cache: their tokens and their worth, and the pages of a prefix; see
 * prefix_cache_internal.h. */
#include "prefix_cache_internal.h"

#include "base/checksum.h"

#include <time.h>

enum kv_kind kv_kind_of(uint32_t position, uint32_t n_prompt, bool exact)
{
    if (exact)
        return KV_DEFINED;
    if (position / KV_LARGE_TOKENS < n_prompt / KV_LARGE_TOKENS)
        return KV_LARGE_GROUP;
    return position / KV_SMALL_TOKENS < n_prompt / KV_SMALL_TOKENS ? KV_SMALL_GROUP : KV_DEFINED;
}

static uint32_t least(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

/* The groups of a prompt come in order of their size, so only their ends can differ. */
uint32_t kv_same_kinds(uint32_t n, uint32_t a, uint32_t b, bool exact)
{
    static const uint32_t groups[] = {KV_LARGE_TOKENS, KV_SMALL_TOKENS};
    for (int i = 0; i < 2 && !exact; i++) {
        uint32_t end_a = a - a % groups[i], end_b = b - b % groups[i];
        if (least(n, end_a) != least(n, end_b))
            n = least(end_a, end_b);
    }
    return n;
}

uint32_t prefix_cache_token_at(const struct kv_page_record *r, uint32_t i)
{
    return atomic_load_explicit(&r->tokens[i], memory_order_relaxed);
}

void prefix_cache_use_now(struct kv_page_record *r)
{
    atomic_store_explicit(&r->used_s, (uint64_t)time(NULL), memory_order_relaxed);
}

uint64_t prefix_cache_value(const struct prefix_cache *c, uint32_t page, bool passing)
{
    const struct kv_page_record *r = page_tree_record(c->tree, page);
    uint64_t least =
        atomic_load_explicit(&c->tree->pool.header->last_evicted, memory_order_relaxed);
    uint64_t value = atomic_load_explicit(&r->value, memory_order_relaxed);
    if (passing)
        return value > least ? value : least;
    return least + atomic_load_explicit(&r->cost_ns, memory_order_relaxed);
}

void prefix_cache_touch(struct prefix_cache *c, uint32_t page, bool passing)
{
    struct kv_page_record *r = page_tree_record(c->tree, page);
    atomic_store_explicit(&r->value, prefix_cache_value(c, page, passing), memory_order_relaxed);
    prefix_cache_use_now(r);
}

uint64_t prefix_cache_format(const struct prefix_cache *c, uint64_t salt)
{
    return salt ? checksum64(c->format, &salt, sizeof salt) : c->format;
}

uint32_t prefix_cache_new_page(struct prefix_cache *c, uint32_t parent, uint64_t salt)
{
    uint32_t page = page_tree_add(c->tree, parent, prefix_cache_format(c, salt));
    if (page != NONE)
        prefix_cache_touch(c, page, false);
    return page;
}

void prefix_cache_fill_record(struct kv_page_record *r, const uint32_t *tokens, uint32_t first,
                              uint32_t end)
{
    for (uint32_t i = first; i < end; i++)
        atomic_store_explicit(&r->tokens[i], tokens[i - first], memory_order_relaxed);
    atomic_store_explicit(&r->n, end, memory_order_release);
}

uint32_t prefix_cache_common_tokens(const struct prefix_cache *c, uint32_t page,
                                    const uint32_t *tokens, uint32_t n)
{
    const struct kv_page_record *r = page_tree_record(c->tree, page);
    uint32_t valid = page_tree_valid(c->tree, page), same = 0;
    n = n < valid ? n : valid;
    while (same < n && prefix_cache_token_at(r, same) == tokens[same])
        same++;
    return same;
}

static void consider(const struct prefix_cache *c, struct kv_match found, struct kv_match *best)
{
    if (found.n > best->n || (found.n > 0 && found.n == best->n &&
                              page_index_better(c->tree, found.page, best->page) == found.page))
        *best = found;
}

/* The child that has most of the tokens. */
static struct kv_match longest_child(const struct prefix_cache *c, uint32_t parent,
                                     const struct index_query *q)
{
    struct kv_match best = {NONE, 0};
    uint32_t same = 0, page = page_index_find(c->tree, parent, q, &same);
    if (page != NONE) {
        /* the record counts: another worker may have evicted the page */
        same = prefix_cache_common_tokens(c, page, q->tokens, q->n);
        consider(c, (struct kv_match){page, same}, &best);
    }
    for (page = page_tree_first_loose(c->tree, parent); page != NONE;
         page = c->tree->nodes[page].next_loose) {
        c->tree->index.visits++;
        if (c->tree->nodes[page].format == q->format &&
            page_field(&page_tree_record(c->tree, page)->kind) == q->kind)
            consider(c,
                     (struct kv_match){page, prefix_cache_common_tokens(c, page, q->tokens, q->n)},
                     &best);
    }
    return best;
}

struct kv_match prefix_cache_best_child(const struct prefix_cache *c, uint32_t parent,
                                        const struct kv_prefix *prefix, uint32_t position)
{
    enum kv_kind kind = kv_kind_of(position, prefix->n_prompt, c->exact);
    const struct index_query q = {.format = prefix_cache_format(c, prefix->salt),
                                  .kind = (uint32_t)kind,
                                  .tokens = prefix->tokens + position,
                                  .n = prefix->n - position};
    struct kv_match best = longest_child(c, parent, &q);
    if (kind != KV_DEFINED && best.n < KV_POOL_TOKENS)
        return (struct kv_match){NONE, 0}; /* a group is computed whole, or not at all */
    return best;
}

static bool is_twin(const struct prefix_cache *c, uint32_t page, const struct index_query *q)
{
    return page != NONE && c->tree->nodes[page].format == q->format &&
           page_field(&page_tree_record(c->tree, page)->kind) == q->kind &&
           prefix_cache_common_tokens(c, page, q->tokens, KV_POOL_TOKENS) == KV_POOL_TOKENS;
}

/* Of several the one that was linked last. */
uint32_t prefix_cache_find_twin(const struct prefix_cache *c, uint32_t page)
{
    const struct page_node *nodes = c->tree->nodes;
    uint32_t tokens[KV_POOL_TOKENS], same = 0, parent = nodes[page].parent;
    const struct index_query q = {.format = nodes[page].format,
                                  .kind = page_field(&page_tree_record(c->tree, page)->kind),
                                  .tokens = tokens,
                                  .n = KV_POOL_TOKENS,
                                  .newest = true};
    assert(nodes[page].owned && !nodes[page].indexed);
    prefix_cache_tokens(c, page, tokens);
    uint32_t twin = page_index_find(c->tree, parent, &q, &same);
    twin = is_twin(c, twin, &q) ? twin : NONE;
    for (uint32_t other = page_tree_first_loose(c->tree, parent); other != NONE;
         other = nodes[other].next_loose)
        if (other != page && (twin == NONE || nodes[other].serial > nodes[twin].serial) &&
            is_twin(c, other, &q))
            twin = other;
    return twin;
}

/* Of n positions that match, those that a path may take: no part of a large group. */
static uint32_t whole_groups(const struct prefix_cache *c, uint32_t n, uint32_t n_prompt)
{
    if (n > 0 && kv_kind_of(n - 1, n_prompt, c->exact) == KV_LARGE_GROUP)
        n -= n % KV_LARGE_TOKENS;
    return n;
}

uint32_t prefix_cache_match(const struct prefix_cache *c, const struct kv_prefix *prefix,
                            uint32_t *pages, uint32_t most, uint32_t *known)
{
    uint32_t at = 0, parent = NONE, found = 0;
    uint32_t windows = 0; /* from the page with this index on, all have windowed pages */
    for (uint32_t i = 0; at < prefix->n && i < most; i++) {
        struct kv_match m = prefix_cache_best_child(c, parent, prefix, at);
        if (m.page == NONE)
            break;
        if (pages)
            pages[i] = m.page;
        at += m.n;
        if (!page_tree_has_windows(c->tree, m.page))
            windows = i + 1;
        uint32_t end = whole_groups(c, at, prefix->n_prompt);
        if (end > found &&
            (!c->tree->n_windowed || windows <= page_tree_window_begin(c->tree, end)))
            found = end;
        if (m.n < KV_POOL_TOKENS)
            break;
        parent = m.page;
    }
    *known = whole_groups(c, at, prefix->n_prompt);
    return found;
}

uint32_t prefix_cache_find(struct prefix_cache *c, const struct kv_prefix *prefix, uint32_t *known)
{
    uint32_t whatever;
    page_tree_follow(c->tree);
    return prefix_cache_match(c, prefix, NULL, UINT32_MAX, known ? known : &whatever);
}

uint64_t prefix_cache_changes(const struct prefix_cache *c)
{
    return atomic_load_explicit(&c->tree->pool.header->changes, memory_order_acquire);
}

uint8_t *prefix_cache_memory(const struct prefix_cache *c, uint32_t page, uint32_t group)
{
    if (group)
        page = page_tree_windowed(c->tree, page)[group - 1];
    return kv_pool_page(&c->tree->pool, page);
}

uint32_t prefix_cache_tokens(const struct prefix_cache *c, uint32_t page,
                             uint32_t tokens[KV_POOL_TOKENS])
{
    uint32_t n = page_tree_valid(c->tree, page);
    n = n < KV_POOL_TOKENS ? n : KV_POOL_TOKENS;
    for (uint32_t i = 0; i < n; i++)
        tokens[i] = prefix_cache_token_at(page_tree_record(c->tree, page), i);
    return n;
}
