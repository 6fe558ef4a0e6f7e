/* Of the pages that continue one page, those whose content is settled, by their tokens: a binary
 * trie for each parent (crit-bit: Morrison, "PATRICIA", 1968). It finds the page that shares most
 * tokens with a prompt in as many steps as the trie is deep, however many pages there are.
 *
 * Settled is a content that no worker extends; those that one does are few, and are in a list
 * (page_node.first_loose).
 *
 * Invariants:
 * 1. It is this worker's own memory. It has copies of what the records say, so it is whole whatever
 *    another worker writes, and what it finds is to be compared with the record.
 * 2. A page's key is its kind, its format, its tokens, an end, and its number. All keys differ, and
 *    none is the beginning of another one.
 * 3. An inner node's bit is the first in which its keys differ; those below it have higher ones.
 *
 * Threads: one. Nothing here allocates after page_index_init. */
#ifndef MOED_WORKER_KV_PAGE_INDEX_H
#define MOED_WORKER_KV_PAGE_INDEX_H

#include "ipc/kv_pool.h"

struct page_tree;

/* What is in the trie, for a page. */
struct index_leaf {
    uint64_t format;
    uint32_t parent; /* inner node; KV_POOL_NO_PAGE: none */
    uint32_t kind;
    uint32_t n; /* tokens */
    uint32_t tokens[KV_POOL_TOKENS];
};

struct index_inner {
    uint32_t child[2]; /* a page, or an inner node | INDEX_INNER */
    uint32_t parent;   /* inner node; KV_POOL_NO_PAGE: none */
    uint32_t bit;
    uint32_t best;   /* of the pages below (page_index_better) */
    uint32_t newest; /* of them: linked last */
};
#define INDEX_INNER (1u << 31)

struct page_index {
    struct index_leaf *leaves; /* [n_pages] */
    struct index_inner *inner; /* [n_pages] */
    uint32_t first_free;       /* inner nodes, by parent */
    uint64_t visits;           /* nodes and pages that lookups have looked at */
};

/* inner and leaves: zeroed arrays of n_pages, which it borrows. */
void page_index_init(struct page_index *x, struct index_leaf *leaves, struct index_inner *inner,
                     uint32_t n_pages);

/* Of two pages that share equally many tokens with a prompt: the one that a path takes. With
 * windowed pages, and then the one that was linked later; without, the earlier. */
uint32_t page_index_better(const struct page_tree *t, uint32_t a, uint32_t b);

/* A page in the tree, with its tokens now. */
void page_index_add(struct page_tree *t, uint32_t page);
void page_index_remove(struct page_tree *t, uint32_t page);
/* The page has, or has no longer, windowed pages. No effect on one that is not indexed. */
void page_index_update(struct page_tree *t, uint32_t page);

struct index_query {
    uint64_t format;
    uint32_t kind;
    const uint32_t *tokens;
    uint32_t n;
    bool newest; /* of several pages the one that was linked last; else the better one */
};
/* The page below `parent` that begins with most of the tokens; *same: how many. KV_POOL_NO_PAGE:
 * none begins with the first one. */
uint32_t page_index_find(struct page_tree *t, uint32_t parent, const struct index_query *q,
                         uint32_t *same);

#endif
