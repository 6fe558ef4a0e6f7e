/* A binary heap of numbered items, ordered by a value that each has in a separate array. Any item
 * can be found, moved and removed. Equal values are ordered by number, so the first item never
 * depends on the heap's history. */
#ifndef MOED_SCHED_CACHE_HEAP_H
#define MOED_SCHED_CACHE_HEAP_H

#include <stdbool.h>
#include <stdint.h>

#define HEAP_ABSENT UINT32_MAX

struct heap {
    const double *values; /* [items]; borrowed */
    bool falling;         /* the largest value first */
    uint32_t *items;      /* [n] in heap order */
    uint32_t *places;     /* [items] in items, or HEAP_ABSENT */
    uint32_t n;
};

bool heap_init(struct heap *h, const double *values, uint32_t n_items, bool falling);
void heap_fini(struct heap *h);

static inline bool heap_has(const struct heap *h, uint32_t item)
{
    return h->places[item] != HEAP_ABSENT;
}

void heap_insert(struct heap *h, uint32_t item);
void heap_remove(struct heap *h, uint32_t item);
/* Call after the item's value has changed. */
void heap_moved(struct heap *h, uint32_t item);
/* Inserts, moves or removes the item, after its value or membership may have changed. */
void heap_place(struct heap *h, uint32_t item, bool belongs);
/* Call after many values have changed. */
void heap_rebuild(struct heap *h);

/* The first item that `accept` takes. It is called only for the items before that and their
 * children. */
typedef bool heap_accept(const void *arg, uint32_t item);
bool heap_first(const struct heap *h, heap_accept *accept, const void *arg, uint32_t *item);

#endif
