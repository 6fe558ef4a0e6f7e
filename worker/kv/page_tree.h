/* A worker's index of the KV pool: which page continues which. It is this worker's own memory and
 * follows the records, which other workers write, too (ipc/kv_page.h).
 *
 * Invariants:
 * 1. A page in the tree has the content of its node's generation, or had it until another worker
 *    evicted it, which page_tree_follow notices. A page that this worker holds still has it.
 * 2. A page's parent in the tree is a full page of depth one less and of the same format, with the
 *    generation that the page's record names. `children` counts the pages that name it.
 * 3. Numbers of the tree are the node's; those of records are read once and checked.
 * 4. A windowed page in the tree (of a group after 0) is its owner's: the page of group 0 with the
 *    same parent and tokens. While this worker holds the windowed pages, it holds the owner.
 *
 * 5. A child is in its parent's list of children, and either in that of the loose ones or in the
 *    trie. One in the trie is full, or no worker extended it when `seen` was read.
 *
 * Threads: one. Nothing here allocates after page_tree_new. */
#ifndef MOED_WORKER_KV_PAGE_TREE_H
#define MOED_WORKER_KV_PAGE_TREE_H

#include "ipc/kv_page.h"
#include "worker/kv/page_index.h"
#include "worker/kv/page_victims.h"

enum { PAGE_WINDOWED_MOST = 16 }; /* windowed pages of the same positions */

struct page_node {
    uint64_t generation; /* 0: the page is not in the tree */
    uint64_t format;
    uint32_t parent, depth;
    uint64_t serial;                                      /* counts links */
    uint32_t first_child, next_sibling, previous_sibling; /* the last that was linked first */
    /* Children with a content that a worker extends, or that was found without positions; the
     * others are in the trie (page_index.h). */
    uint32_t first_loose, next_loose, previous_loose;
    uint32_t index_root;
    uint32_t children;
    uint32_t holds;     /* of this worker; one pin for all */
    uint32_t group;     /* of layers */
    uint32_t owner;     /* groups after 0 */
    bool owned;         /* this worker is the writer, for one of its paths */
    bool indexed, full; /* in the trie; and full: so it stays there */
};

struct page_tree {
    struct kv_pool pool;
    uint32_t worker, vocab;
    uint32_t n_windowed, window; /* groups after 0, and the positions that one attends to */
    uint32_t first_root, first_loose, index_root; /* as page_node has them for its children */
    uint64_t serial;
    struct page_index index;
    /* Without windowed pages: all pages of the tree without children and holds, and maybe others.
     */
    struct page_victims victims;
    uint32_t n_free; /* free pages as last counted; other workers may have taken some since */
    uint64_t seen;   /* changes that the tree has followed; UINT64_MAX: none */
    uint32_t cursor; /* where to look for a free page */
    struct page_node *nodes; /* [n_pages] */
    uint32_t *pending;       /* [n_pages] */
    uint32_t *windowed;      /* [n_pages][n_windowed]: a page's windowed pages; NO_PAGE: none */
    uint64_t evictions, windows_evicted; /* windows: of positions whose other page stayed */
};

struct page_tree_options {
    struct kv_pool pool;
    uint32_t worker, vocab; /* vocab: records with other tokens are dropped */
    uint32_t n_windowed, window;
};

/* The tree is empty until it follows. */
enum error_code page_tree_new(const struct page_tree_options *options, struct page_tree **out,
                              struct error *e);
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
static inline uint32_t page_tree_first_loose(const struct page_tree *t, uint32_t parent)
{
    return parent == KV_POOL_NO_PAGE ? t->first_loose : t->nodes[parent].first_loose;
}
static inline struct kv_page_record *page_tree_record(const struct page_tree *t, uint32_t page)
{
    return &t->pool.records[page];
}
static inline uint32_t page_tree_valid(const struct page_tree *t, uint32_t page)
{
    return atomic_load_explicit(&t->pool.records[page].n, memory_order_acquire);
}

static inline uint32_t *page_tree_windowed(const struct page_tree *t, uint32_t page)
{
    return t->windowed + (size_t)page * t->n_windowed;
}
/* Whether attention of all layers can read the page's positions. */
static inline bool page_tree_has_windows(const struct page_tree *t, uint32_t page)
{
    for (uint32_t i = 0; i < t->n_windowed; i++)
        if (page_tree_windowed(t, page)[i] == KV_POOL_NO_PAGE)
            return false;
    return true;
}
/* The index of the first page that the position attends to in layers with a window. */
static inline uint32_t page_tree_window_begin(const struct page_tree *t, uint32_t position)
{
    return position + 1 > t->window ? (position + 1 - t->window) / KV_POOL_TOKENS : 0;
}

/* Holds a page of the tree: its content stays. False: it has gone already. */
bool page_tree_hold(struct page_tree *t, uint32_t page);
void page_tree_release(struct page_tree *t, uint32_t page);

/* A page with an empty content of this worker's, held and owned, which continues parent. NO_PAGE:
 * no page is free, and none can be evicted. */
uint32_t page_tree_add(struct page_tree *t, uint32_t parent, uint64_t format);
/* Makes the worker, which holds a page with n positions, its writer. windows: and that of its
 * windowed pages, which it holds too. False: another one is, or has written more. */
bool page_tree_take_over(struct page_tree *t, uint32_t page, uint32_t n, bool windows);
/* The worker is no longer the page's writer, nor that of its windowed pages. */
void page_tree_finish(struct page_tree *t, uint32_t page);
/* Makes a page that has no positions yet, and is this worker's, continue another one, with its
 * windowed pages. */
void page_tree_move(struct page_tree *t, uint32_t page, uint32_t parent);
/* Frees a page that this worker does not hold, with its windowed pages. False: it is used, or has
 * children. */
bool page_tree_drop(struct page_tree *t, uint32_t page);

/* ---- Windowed pages; without effect where n_windowed is 0 ---- */

/* Of a page that is held: holds its windowed pages, which have its first n positions. False: they
 * are not there. */
bool page_tree_hold_windows(struct page_tree *t, uint32_t page, uint32_t n);
void page_tree_release_windows(struct page_tree *t, uint32_t page);
/* Gives a page that is held new windowed pages, empty, held and owned. False: no page is free. */
bool page_tree_add_windows(struct page_tree *t, uint32_t page);
/* The windowed pages of `from`, with this worker's holds, become those of `to`, of which it holds
 * none. Either both have the same content, or both are empty and this worker's. */
void page_tree_move_windows(struct page_tree *t, uint32_t from, uint32_t to);
/* The worker is no longer their writer. */
void page_tree_finish_windows(struct page_tree *t, uint32_t page);
/* Frees the page's windowed pages, which this worker owns, and which have no positions. */
void page_tree_discard_windows(struct page_tree *t, uint32_t page);
/* Frees the page's windowed pages, which this worker does not hold; those in use stay. */
void page_tree_drop_windows(struct page_tree *t, uint32_t page);

#endif
