/* What page_tree.c (links, following) and page_claim.c (uses, eviction) share. */
#ifndef MOED_WORKER_KV_PAGE_TREE_INTERNAL_H
#define MOED_WORKER_KV_PAGE_TREE_INTERNAL_H

#include "worker/kv/page_tree.h"

#include <assert.h>

#define NONE KV_POOL_NO_PAGE

static inline uint32_t page_field(const _Atomic uint32_t *from)
{
    return atomic_load_explicit(from, memory_order_relaxed);
}

/* ---- page_tree.c ---- */

void page_tree_link(struct page_tree *t, uint32_t page, uint32_t parent);
void page_tree_unlink(struct page_tree *t, uint32_t page);
/* Makes a windowed page, whose node says which group it is of, the owner's. */
void page_tree_attach(struct page_tree *t, uint32_t windowed, uint32_t owner);
/* Takes a windowed page out of the tree. */
void page_tree_detach(struct page_tree *t, uint32_t windowed);
/* Takes a page out of the tree whose content has gone, with all that continues it. */
void page_tree_forget(struct page_tree *t, uint32_t page);
/* Puts a child into the trie if no worker extends it, else among the loose ones. */
void page_tree_settle(struct page_tree *t, uint32_t page);
/* A node of a page that is not in the tree. */
#define NO_NODE                                                                                    \
    (struct page_node)                                                                             \
    {                                                                                              \
        .first_child = NONE, .first_loose = NONE, .index_root = NONE                               \
    }
/* A page may have become one that can be evicted. */
void page_tree_offer(struct page_tree *t, uint32_t page);
/* Frees a page that was claimed and is not in the tree. */
void page_tree_release_claimed(struct page_tree *t, uint32_t page);
/* Whether a windowed page has the first n positions of `page`. */
bool page_tree_is_window_of(const struct page_tree *t, uint32_t windowed, uint32_t page,
                            uint32_t n);

/* ---- page_claim.c ---- */

/* The page that is evicted next, its word and value. NONE: none can be. */
uint32_t page_tree_victim(struct page_tree *t, uint64_t *word, uint64_t *value);

#endif
