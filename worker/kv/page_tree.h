/* A worker's index of the KV pool: which page continues which. It is this worker's own memory and
 * follows the records, which other workers write, too (ipc/kv_page.h).
 *
 * Invariants:
 * 1. A page in the tree has the content of its node's generation, or had it until another worker
 *    evicted it, which page_tree_follow notices. A page that this worker holds still has it.
 * 2. A page's parent in the tree is a full page of depth one less and of the same format, with the
 *    generation that the page's record names. `children` counts the pages that name it.
 * 3. Numbers of the tree are the node's; those of records are read once and checked.
 *
 * Threads: one. Nothing here allocates after page_tree_new. */
#ifndef MOED_WORKER_KV_PAGE_TREE_H
#define MOED_WORKER_KV_PAGE_TREE_H

#include "ipc/kv_page.h"

struct page_node {
    uint64_t generation; /* 0: the page is not in the tree */
    uint64_t format;
    uint32_t parent, depth;
    uint32_t first_child, next_sibling, previous_sibling;
    uint32_t children;
    uint32_t holds; /* of this worker; one pin for all */
    bool owned;     /* this worker is the writer, for one of its paths */
};

struct page_tree {
    struct kv_pool pool;
    uint32_t worker, vocab;
    uint32_t first_root;
    uint64_t seen;           /* changes that the tree has followed; UINT64_MAX: none */
    uint32_t cursor;         /* where to look for a free page */
    struct page_node *nodes; /* [n_pages] */
    uint32_t *pending;       /* [n_pages] */
};

/* vocab: records with other tokens are dropped. The tree is empty until it follows. */
enum error_code page_tree_new(const struct kv_pool *pool, uint32_t worker, uint32_t vocab,
                              struct page_tree **out, struct error *e);
void page_tree_free(struct page_tree *t); /* takes NULL */

/* Takes over what has changed since the last call. Frees contents that are of no use: without
 * positions, insane, or behind a page that is gone. */
void page_tree_follow(struct page_tree *t);
/* Others are to follow: a page has been filled, left or freed. */
void page_tree_changed(struct page_tree *t);

static inline uint32_t page_tree_first(const struct page_tree *t, uint32_t parent)
{
    return parent == KV_POOL_NO_PAGE ? t->first_root : t->nodes[parent].first_child;
}
static inline struct kv_page_record *page_tree_record(const struct page_tree *t, uint32_t page)
{
    return &t->pool.records[page];
}
static inline uint32_t page_tree_valid(const struct page_tree *t, uint32_t page)
{
    return atomic_load_explicit(&t->pool.records[page].n, memory_order_acquire);
}

/* Holds a page of the tree: its content stays. False: it has gone already. */
bool page_tree_hold(struct page_tree *t, uint32_t page);
void page_tree_release(struct page_tree *t, uint32_t page);

/* A page with an empty content of this worker's, held and owned, which continues parent. NO_PAGE:
 * no page is free, and none can be evicted. *evicted: a content was. */
uint32_t page_tree_add(struct page_tree *t, uint32_t parent, uint64_t format, bool *evicted);
/* The worker is no longer the page's writer. */
void page_tree_finish(struct page_tree *t, uint32_t page);
/* Makes a page that has no positions yet, and is this worker's, continue another one. */
void page_tree_move(struct page_tree *t, uint32_t page, uint32_t parent);
/* Frees a page that this worker does not hold. False: it is used, or has children. */
bool page_tree_drop(struct page_tree *t, uint32_t page);

#endif
