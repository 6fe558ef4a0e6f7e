/* Windowed pages of paths; see prefix_cache.h ("Windows"). */
#include "prefix_cache_internal.h"

void prefix_cache_keep_windows(struct prefix_cache *c, uint32_t page, bool keep, bool passing)
{
    uint64_t value = prefix_cache_value(c, page, passing);
    if (!page_tree_has_windows(c->tree, page))
        return;
    for (uint32_t i = 0; i < c->tree->n_windowed; i++) {
        struct kv_page_record *r = page_tree_record(c->tree, page_tree_windowed(c->tree, page)[i]);
        /* 0: left behind */
        atomic_store_explicit(&r->value, !keep ? 0 : value ? value : 1, memory_order_relaxed);
        atomic_store_explicit(&r->kept, keep, memory_order_relaxed);
        if (keep)
            prefix_cache_use_now(r);
    }
}

void prefix_cache_fill_windows(struct prefix_cache *c, uint32_t page, const uint32_t *tokens,
                               uint32_t first, uint32_t end)
{
    const struct kv_page_record *r = page_tree_record(c->tree, page);
    uint64_t cost = atomic_load_explicit(&r->cost_ns, memory_order_relaxed);
    for (uint32_t i = 0; i < c->tree->n_windowed && page_tree_has_windows(c->tree, page); i++) {
        struct kv_page_record *w = page_tree_record(c->tree, page_tree_windowed(c->tree, page)[i]);
        atomic_store_explicit(&w->kind, page_field(&r->kind), memory_order_relaxed);
        atomic_store_explicit(&w->cost_ns, cost, memory_order_relaxed);
        prefix_cache_fill_record(w, tokens, first, end);
    }
}

void prefix_cache_fill_page(struct prefix_cache *c, uint32_t page, const uint32_t *tokens,
                            uint32_t first, uint32_t end)
{
    prefix_cache_fill_windows(c, page, tokens, first, end);
    prefix_cache_fill_record(page_tree_record(c->tree, page), tokens, first, end);
}

bool prefix_cache_wants_windows(const struct prefix_cache *c, const struct kv_path *path)
{
    return c->tree->n_windowed > 0 && path->n_windowed + 1 == path->n_pages &&
           (path->window_pages == 0 ||
            path->n_windowed - path->first_windowed < path->window_pages);
}

bool prefix_cache_share_windows(struct prefix_cache *c, uint32_t page, uint32_t twin)
{
    if (page_tree_hold_windows(c->tree, twin, KV_POOL_TOKENS)) {
        page_tree_release_windows(c->tree, page);
        return true;
    }
    if (page_tree_has_windows(c->tree, twin)) /* another path holds them */
        return false;
    page_tree_move_windows(c->tree, page, twin);
    return true;
}

/* Whether another path is likely to begin with positions of this page in its window. */
static bool is_kept(const struct prefix_cache *c, const struct kv_path *path, uint32_t index)
{
    for (int i = 0; i < KV_PATH_KEPT; i++) {
        const struct kv_kept *kept = &path->kept[i];
        if (kept->end > 0 && index >= page_tree_window_begin(c->tree, kept->first) &&
            index <= (kept->end - 1) / KV_POOL_TOKENS)
            return true;
    }
    return false;
}

/* The first of the path's windowed pages is of no use to it any more. */
static void pass_windows(struct prefix_cache *c, struct kv_path *path)
{
    uint32_t index = path->first_windowed++, page = path->pages[index];
    if (page_tree_valid(c->tree, page) > 0) {
        if (index >= path->n_found || is_kept(c, path, index))
            prefix_cache_keep_windows(c, page, is_kept(c, path, index), path->passing);
        page_tree_release_windows(c->tree, page);
    } else if (path->n_windowed < path->n_pages) {
        page_tree_move_windows(c->tree, page, path->pages[path->n_windowed++]);
    } else {
        page_tree_discard_windows(c->tree, page);
    }
}

bool prefix_cache_pass(struct prefix_cache *c, struct kv_path *path, uint32_t position)
{
    uint32_t before = path->first_windowed;
    while (c->tree->n_windowed > 0 && path->first_windowed < path->n_windowed &&
           path->first_windowed < page_tree_window_begin(c->tree, position))
        pass_windows(c, path);
    return path->first_windowed != before;
}

void prefix_cache_close_windows(struct prefix_cache *c, struct kv_path *path)
{
    uint32_t begin = page_tree_window_begin(c->tree, path->n - path->n % KV_POOL_TOKENS);
    for (uint32_t i = begin; i < path->n_pages; i++)
        prefix_cache_keep_windows(c, path->pages[i], true, path->passing);
    for (uint32_t i = path->first_windowed; i < path->n_windowed; i++)
        page_tree_release_windows(c->tree, path->pages[i]);
}
