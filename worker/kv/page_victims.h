/* The pages that a worker could evict, the least value first: a binary heap. A page's value grows
 * while it is in the heap, because any worker may use it, so a key is a lower bound. The worker
 * compares the first page's key with its record, and raises it (page_claim.c).
 *
 * Threads: one. Nothing here allocates after page_victims_init. */
#ifndef MOED_WORKER_KV_PAGE_VICTIMS_H
#define MOED_WORKER_KV_PAGE_VICTIMS_H

#include <stdint.h>

struct page_victims {
    uint64_t *keys;  /* [n_pages]; of pages in the heap */
    uint32_t *heap;  /* [n_pages]: pages, in the order of key and number */
    uint32_t *place; /* [n_pages]: 1 + where a page is in the heap; 0: it is not */
    uint32_t n;
    uint64_t visits; /* pages that were looked at for eviction */
};

/* Zeroed arrays of the number of pages, which it borrows. */
void page_victims_init(struct page_victims *v, uint64_t *keys, uint32_t *heap, uint32_t *place);
/* Adds a page; one that is there gets this key if it is less than its own. */
void page_victims_offer(struct page_victims *v, uint32_t page, uint64_t key);
/* Of the first page, heap[0]; n is not 0. key: at least its own. */
void page_victims_raise(struct page_victims *v, uint64_t key);
void page_victims_remove(struct page_victims *v);

#endif
