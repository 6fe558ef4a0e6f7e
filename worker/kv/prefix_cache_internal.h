/* What the files of the prefix cache share. Each uses only those below it:
 *
 *     prefix_cache.c    paths
 *     prefix_store.c    pages in a file
 *     prefix_windows.c  windowed pages
 *     prefix_pages.c    single pages */
#ifndef MOED_WORKER_KV_PREFIX_CACHE_INTERNAL_H
#define MOED_WORKER_KV_PREFIX_CACHE_INTERNAL_H

#include "page_tree_internal.h"
#include "worker/kv/prefix_cache.h"

struct prefix_cache {
    struct page_tree *tree;
    struct kv_store store; /* header NULL: none */
    struct heartbeat *heartbeat;
    bool exact;
    uint64_t format;
    struct prefix_cache_stats stats; /* this worker's counts */
};

struct kv_match {
    uint32_t page; /* KV_POOL_NO_PAGE: none */
    uint32_t n;    /* positions of it */
};

/* ---- prefix_pages.c ---- */

/* Token i of the page, which another worker may be writing. */
uint32_t prefix_cache_token_at(const struct kv_page_record *r, uint32_t i);
/* How many of the n tokens the page begins with. */
uint32_t prefix_cache_common_tokens(const struct prefix_cache *c, uint32_t page,
                                    const uint32_t *tokens, uint32_t n);
/* The child of parent that shares most tokens of the prefix from `position` on. */
struct kv_match prefix_cache_best_child(const struct prefix_cache *c, uint32_t parent,
                                        const struct kv_prefix *prefix, uint32_t position);
/* A page with the content of `page`, which is full and owned. NO_PAGE: there is no other. */
uint32_t prefix_cache_find_twin(const struct prefix_cache *c, uint32_t page);
/* The pages of the longest prefix that a path may begin with, at most `most`, and maybe some after
 * it. Returns its positions; pages: NULL, or its array of `most`. *known: the
 * positions of the longest prefix, whatever its windows. Another
 * worker may evict any of these pages before it is held, or may have: a content that is held then
 * was the one that was compared. */
uint32_t prefix_cache_match(const struct prefix_cache *c, const struct kv_prefix *prefix,
                            uint32_t *pages, uint32_t most, uint32_t *known);
/* A page without valid positions, which continues parent, held and owned. NO_PAGE: there is none.
 */
uint32_t prefix_cache_new_page(struct prefix_cache *c, uint32_t parent, uint64_t salt);
/* The format of this worker's pages of a salt. */
uint64_t prefix_cache_format(const struct prefix_cache *c, uint64_t salt);
/* The page has been used, by a passing request or another one. */
void prefix_cache_touch(struct prefix_cache *c, uint32_t page, bool passing);
void prefix_cache_use_now(struct kv_page_record *r);
/* What a page is worth that is used now, by a passing request or another one (GreedyDual). */
uint64_t prefix_cache_value(const struct prefix_cache *c, uint32_t page, bool passing);
/* The positions [first, end) are valid, and are of these tokens. */
void prefix_cache_fill_record(struct kv_page_record *r, const uint32_t *tokens, uint32_t first,
                              uint32_t end);

/* ---- prefix_windows.c ---- */

/* The positions [first, end) of an owned page, and of the windowed pages that it has, are valid,
 * and are of these tokens; the record's kind and cost are set. */
void prefix_cache_fill_page(struct prefix_cache *c, uint32_t page, const uint32_t *tokens,
                            uint32_t first, uint32_t end);
/* Another path is likely to begin where the page's windowed pages are needed, or not. passing: they
 * are used by such a request. */
void prefix_cache_keep_windows(struct prefix_cache *c, uint32_t page, bool keep, bool passing);
/* As prefix_cache_fill_page, of the windowed pages alone. */
void prefix_cache_fill_windows(struct prefix_cache *c, uint32_t page, const uint32_t *tokens,
                               uint32_t first, uint32_t end);
/* Whether the path's last page is to have windowed pages. */
bool prefix_cache_wants_windows(const struct prefix_cache *c, const struct kv_path *path);
/* The path has the windowed pages of `twin`, which is held, instead of those of `page`. False:
 * those that twin has are not the same. */
bool prefix_cache_share_windows(struct prefix_cache *c, uint32_t page, uint32_t twin);
/* The path ends. The windowed pages with which it can go on stay, also if it goes on from its last
 * full page. */
void prefix_cache_close_windows(struct prefix_cache *c, struct kv_path *path);

/* ---- prefix_store.c ---- */

/* Reads those pages of the prefix that the pool has not, and the store has. path: empty; its array
 * is used, and sets path->reading. No effect without a store. */
void prefix_cache_restore(struct prefix_cache *c, const struct kv_prefix *prefix,
                          struct kv_path *path);

#endif
