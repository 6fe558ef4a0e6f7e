/* What the prefix cache's files share: prefix_cache.c (paths) and prefix_store.c (pages in a file)
 * stand on prefix_tree.c (pages and their eviction); prefix_adopt.c makes a cache of what the pool
 * has.
 *
 * Invariants:
 * 1. A used page's parent is a used, full page of depth one less, with the serial that the record
 *    names; `children` counts the used pages that name it.
 * 2. `paths` counts the open paths that contain a page. A page of a path has all its ancestors in
 *    it, so a page with paths == 0 has no descendant with paths > 0.
 * 3. Only the path that a page was made for, or taken over by, extends it: `owned` is set while
 *    there is one. A full page has no owner.
 * 4. A record is changed in the order that kv_pool.h gives.
 * 5. A page has all its windowed pages or none. They have as many valid positions as it has.
 *    `window_paths` counts the open paths that have them; it is at most `paths`. */
#ifndef MOED_WORKER_KV_PREFIX_CACHE_INTERNAL_H
#define MOED_WORKER_KV_PREFIX_CACHE_INTERNAL_H

#include "prefix_cache.h"

#define NO_PAGE KV_POOL_NO_PAGE

enum { KV_PREFIX_WINDOWED_MOST = 16 }; /* windowed pages of the same positions */

struct node {
    uint32_t first_child, next_sibling, previous_sibling;
    uint32_t children, paths, window_paths;
    uint64_t value;        /* of eviction */
    uint64_t window_value; /* of its windowed pages; 0: a path has left them behind */
    bool owned;
};

struct prefix_cache {
    struct kv_pool pool;
    struct kv_store store; /* header NULL: none */
    bool exact;
    uint32_t n_windowed, window;
    uint64_t last_serial, last_evicted; /* last_evicted: the value of a page */
    uint32_t first_root, first_free, n_free, n_in_use;
    struct prefix_cache_stats stats;
    struct node *nodes; /* [n_pages]; free ones are linked by next_sibling */
    uint32_t *windowed; /* [n_pages][n_windowed]: a page's windowed pages; NO_PAGE: none */
};

static inline struct kv_page_record *prefix_record(const struct prefix_cache *c, uint32_t page)
{
    return &c->pool.records[page];
}

static inline uint32_t prefix_valid(const struct prefix_cache *c, uint32_t page)
{
    return atomic_load_explicit(&prefix_record(c, page)->n, memory_order_relaxed);
}

static inline uint32_t prefix_first_child(const struct prefix_cache *c, uint32_t parent)
{
    return parent == NO_PAGE ? c->first_root : c->nodes[parent].first_child;
}

static inline uint32_t *prefix_windowed(const struct prefix_cache *c, uint32_t page)
{
    return c->windowed + (size_t)page * c->n_windowed;
}

/* Whether attention of all layers can read the page's positions. */
static inline bool prefix_has_windows(const struct prefix_cache *c, uint32_t page)
{
    return c->n_windowed == 0 || prefix_windowed(c, page)[0] != NO_PAGE;
}

/* The index of the first page that the position attends to in layers with a window. */
static inline uint32_t prefix_window_begin(const struct prefix_cache *c, uint32_t position)
{
    return position + 1 > c->window ? (position + 1 - c->window) / KV_POOL_TOKENS : 0;
}

/* ---- prefix_tree.c ---- */

void prefix_link(struct prefix_cache *c, uint32_t page, uint32_t parent);
void prefix_push_free(struct prefix_cache *c, uint32_t page);
/* Frees a page that no path and no other page needs, with its windowed pages. */
void prefix_free(struct prefix_cache *c, uint32_t page);
/* A page without valid positions, which continues parent. NO_PAGE: there is none. */
uint32_t prefix_new_page(struct prefix_cache *c, uint32_t parent, uint32_t depth);
/* Gives a page its windowed pages, which it lacks, with what its record says of it. False: no page
 * is free. */
bool prefix_new_windows(struct prefix_cache *c, uint32_t page);
void prefix_free_windows(struct prefix_cache *c, uint32_t page);
/* The windowed pages of `from` become those of `to`, which lacks them and has the same content or
 * none. */
void prefix_move_windows(struct prefix_cache *c, uint32_t from, uint32_t to);
/* Its windowed pages, if it has them, have the first n positions of its record, too. Before the
 * record has that n, so that a worker that dies leaves a valid prefix. */
void prefix_update_windows(struct prefix_cache *c, uint32_t page, uint32_t n);
/* The page continues another one now. */
void prefix_change_parent(struct prefix_cache *c, uint32_t page, uint32_t parent);
void prefix_touch(struct prefix_cache *c, uint32_t page);
/* Another path is likely to begin where these are needed, or not. */
void prefix_keep_windows(struct prefix_cache *c, uint32_t page, bool keep);
/* A path has the page, or its windowed pages; and no longer. */
void prefix_enter(struct prefix_cache *c, uint32_t page);
void prefix_leave(struct prefix_cache *c, uint32_t page);
void prefix_enter_windows(struct prefix_cache *c, uint32_t page);
void prefix_leave_windows(struct prefix_cache *c, uint32_t page);

struct prefix_match {
    uint32_t page; /* NO_PAGE: none */
    uint32_t n;    /* positions of it */
};
/* The child of parent that shares most of these tokens, which begin at `position`. */
struct prefix_match prefix_best_child(const struct prefix_cache *c, uint32_t parent,
                                      uint32_t position, const uint32_t *tokens, uint32_t n,
                                      uint32_t n_prompt);

/* ---- prefix_store.c ---- */

/* Reads pages of the prefix that only the store has into the pool. */
void prefix_restore(struct prefix_cache *c, const uint32_t *tokens, uint32_t n, uint32_t n_prompt);

/* ---- prefix_adopt.c ---- */

/* Makes the tree of the pool's records. */
void prefix_adopt(struct prefix_cache *c, uint32_t vocab);

#endif
