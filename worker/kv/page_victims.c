/* The heap of pages; see page_victims.h. */
#include "page_victims.h"

#include <stdbool.h>

void page_victims_init(struct page_victims *v, uint64_t *keys, uint32_t *heap, uint32_t *place)
{
    *v = (struct page_victims){.keys = keys, .heap = heap, .place = place};
}

static bool is_before(const struct page_victims *v, uint32_t a, uint32_t b)
{
    return v->keys[a] != v->keys[b] ? v->keys[a] < v->keys[b] : a < b;
}

static void put(struct page_victims *v, uint32_t at, uint32_t page)
{
    v->heap[at] = page;
    v->place[page] = at + 1;
}

static void rise(struct page_victims *v, uint32_t at)
{
    uint32_t page = v->heap[at];
    for (; at > 0 && is_before(v, page, v->heap[(at - 1) / 2]); at = (at - 1) / 2)
        put(v, at, v->heap[(at - 1) / 2]);
    put(v, at, page);
}

static void sink(struct page_victims *v, uint32_t at)
{
    uint32_t page = v->heap[at];
    for (uint32_t child; (child = 2 * at + 1) < v->n; at = child) {
        if (child + 1 < v->n && is_before(v, v->heap[child + 1], v->heap[child]))
            child++;
        if (!is_before(v, v->heap[child], page))
            break;
        put(v, at, v->heap[child]);
    }
    put(v, at, page);
}

void page_victims_offer(struct page_victims *v, uint32_t page, uint64_t key)
{
    if (!v->place[page])
        put(v, v->n++, page);
    else if (key >= v->keys[page])
        return;
    v->keys[page] = key;
    rise(v, v->place[page] - 1);
}

void page_victims_raise(struct page_victims *v, uint64_t key)
{
    v->keys[v->heap[0]] = key;
    sink(v, 0);
}

void page_victims_remove(struct page_victims *v)
{
    uint32_t last = v->heap[--v->n];
    v->place[v->heap[0]] = 0;
    if (v->n == 0)
        return;
    put(v, 0, last);
    sink(v, 0);
}
