/* What prefix_cache.c (paths) and prefix_store.c (pages in a file) share. */
#ifndef MOED_WORKER_KV_PREFIX_CACHE_INTERNAL_H
#define MOED_WORKER_KV_PREFIX_CACHE_INTERNAL_H

#include "page_tree_internal.h"
#include "worker/kv/prefix_cache.h"

struct prefix_cache {
    struct page_tree *tree;
    struct kv_store store; /* header NULL: none */
    bool exact;
    uint64_t format;
    struct prefix_cache_stats stats; /* this worker's counts */
};

struct kv_match {
    uint32_t page; /* KV_POOL_NO_PAGE: none */
    uint32_t n;    /* positions of it */
};

/* The child of parent that shares most of these tokens, which begin at `position`. */
struct kv_match prefix_cache_best_child(const struct prefix_cache *c, uint32_t parent,
                                        uint32_t position, const uint32_t *tokens, uint32_t n,
                                        uint32_t n_prompt);
/* A page without valid positions, which continues parent, held and owned. NO_PAGE: there is none.
 */
uint32_t prefix_cache_new_page(struct prefix_cache *c, uint32_t parent);
/* The positions [first, end) of an owned page, and of the windowed pages that it has, are valid,
 * and are of these tokens; the record's kind and cost are set. */
void prefix_cache_fill_page(struct prefix_cache *c, uint32_t page, const uint32_t *tokens,
                            uint32_t first, uint32_t end);
/* The same of the windowed pages alone. */
void prefix_cache_fill_windows(struct prefix_cache *c, uint32_t page, const uint32_t *tokens,
                               uint32_t first, uint32_t end);
/* The page has been used. */
void prefix_cache_touch(struct prefix_cache *c, uint32_t page);
/* Another path is likely to begin where its windowed pages are needed, or not. */
void prefix_cache_keep_windows(struct prefix_cache *c, uint32_t page, bool keep);

/* Reads those pages of the prefix that the pool has not, and the store has. path: empty; its array
 * is used. No effect without a store. */
void prefix_cache_restore(struct prefix_cache *c, const uint32_t *tokens, uint32_t n,
                          uint32_t n_prompt, const struct kv_path *path);

#endif
