/* An indexed binary heap; see heap.h. */
#include "base/arrays.h"
#include "sched/cache/heap.h"

#include <stdlib.h>

bool heap_init(struct heap *h, const double *values, uint32_t n_items, bool falling)
{
    *h = (struct heap){.values = values, .falling = falling};
    if (!ARRAYS_NEW(ARRAY(h->items, n_items), ARRAY(h->places, n_items)))
        return false;
    for (uint32_t i = 0; i < n_items; i++)
        h->places[i] = HEAP_ABSENT;
    return true;
}

void heap_fini(struct heap *h)
{
    free(h->items); /* the first array: both */
}

static bool comes_before(const struct heap *h, uint32_t x, uint32_t y)
{
    double a = h->values[x], b = h->values[y];
    if (a != b)
        return h->falling ? a > b : a < b;
    return x < y;
}

static void put(struct heap *h, uint32_t place, uint32_t item)
{
    h->items[place] = item;
    h->places[item] = place;
}

static void sift_up(struct heap *h, uint32_t place)
{
    uint32_t item = h->items[place];
    while (place > 0) {
        uint32_t parent = (place - 1) / 2;
        if (!comes_before(h, item, h->items[parent]))
            break;
        put(h, place, h->items[parent]);
        place = parent;
    }
    put(h, place, item);
}

static void sift_down(struct heap *h, uint32_t place)
{
    uint32_t item = h->items[place];
    for (;;) {
        uint32_t child = 2 * place + 1;
        if (child >= h->n)
            break;
        if (child + 1 < h->n && comes_before(h, h->items[child + 1], h->items[child]))
            child++;
        if (!comes_before(h, h->items[child], item))
            break;
        put(h, place, h->items[child]);
        place = child;
    }
    put(h, place, item);
}

void heap_insert(struct heap *h, uint32_t item)
{
    put(h, h->n, item);
    sift_up(h, h->n++);
}

void heap_remove(struct heap *h, uint32_t item)
{
    uint32_t place = h->places[item], last = h->items[--h->n];
    h->places[item] = HEAP_ABSENT;
    if (last == item)
        return;
    put(h, place, last);
    heap_moved(h, last);
}

void heap_moved(struct heap *h, uint32_t item)
{
    sift_up(h, h->places[item]);
    sift_down(h, h->places[item]);
}

void heap_place(struct heap *h, uint32_t item, bool belongs)
{
    if (heap_has(h, item) && belongs)
        heap_moved(h, item);
    else if (belongs)
        heap_insert(h, item);
    else if (heap_has(h, item))
        heap_remove(h, item);
}

void heap_rebuild(struct heap *h)
{
    for (uint32_t place = h->n / 2; place-- > 0;)
        sift_down(h, place);
}

/* Searches below `place` for an item before *best (HEAP_ABSENT: none yet). Recursion is as deep as
 * the heap. */
static void search(const struct heap *h, uint32_t place, heap_accept *accept, const void *arg,
                   uint32_t *best)
{
    if (place >= h->n || (*best != HEAP_ABSENT && !comes_before(h, h->items[place], *best)))
        return;
    if (accept(arg, h->items[place])) { /* all items below come after it */
        *best = h->items[place];
        return;
    }
    search(h, 2 * place + 1, accept, arg, best);
    search(h, 2 * place + 2, accept, arg, best);
}

bool heap_first(const struct heap *h, heap_accept *accept, const void *arg, uint32_t *item)
{
    uint32_t best = HEAP_ABSENT;
    search(h, 0, accept, arg, &best);
    if (best == HEAP_ABSENT)
        return false;
    *item = best;
    return true;
}
