/* Merging by rank; see merge.h.
 *
 * Invariant: the heap holds every pair of neighbours that may merge. It may also hold stale pairs,
 * whose sides have changed since; merge_run drops them when they reach the top. It never holds more
 * than 2 * count pairs: count - 1 at first, and each merge removes one and adds at most two. */
#include "tokenizer/merge.h"

#include <stdlib.h>

bool merge_space_reserve(struct merge_space *s, size_t count)
{
    if (count <= s->capacity)
        return true;
    size_t capacity = count < 256 ? 256 : count + count / 4;
    merge_space_fini(s);
    s->nodes = malloc(capacity * sizeof *s->nodes);
    s->heap = malloc(2 * capacity * sizeof *s->heap);
    if (!s->nodes || !s->heap) {
        merge_space_fini(s);
        return false;
    }
    s->capacity = capacity;
    return true;
}

void merge_space_fini(struct merge_space *s)
{
    free(s->nodes);
    free(s->heap);
    *s = (struct merge_space){0};
}

static void heap_push(struct merge_space *s, struct merge_pair pair)
{
    size_t i = s->heap_count++;
    while (i > 0) {
        size_t parent = (i - 1) / 2;
        if (s->heap[parent].priority <= pair.priority)
            break;
        s->heap[i] = s->heap[parent];
        i = parent;
    }
    s->heap[i] = pair;
}

static struct merge_pair heap_pop(struct merge_space *s)
{
    struct merge_pair top = s->heap[0];
    struct merge_pair last = s->heap[--s->heap_count];
    size_t i = 0;
    for (;;) {
        size_t child = 2 * i + 1;
        if (child >= s->heap_count)
            break;
        if (child + 1 < s->heap_count && s->heap[child + 1].priority < s->heap[child].priority)
            child++;
        if (last.priority <= s->heap[child].priority)
            break;
        s->heap[i] = s->heap[child];
        i = child;
    }
    s->heap[i] = last;
    return top;
}

static void consider(struct merge_space *s, uint32_t left, uint32_t right, merge_lookup *lookup,
                     const void *context)
{
    if (left == MERGE_END || right == MERGE_END)
        return;
    const struct merge_node *l = &s->nodes[left], *r = &s->nodes[right];
    uint32_t rank, symbol;
    if (!lookup(context, l, r, &rank, &symbol))
        return;
    heap_push(s, (struct merge_pair){
                     .priority = (uint64_t)rank << 32 | left,
                     .left = left,
                     .right = right,
                     .length = l->length + r->length,
                     .symbol = symbol,
                 });
}

void merge_run(struct merge_space *s, uint32_t count, merge_lookup *lookup, const void *context)
{
    s->heap_count = 0;
    for (uint32_t i = 0; i < count; i++) {
        s->nodes[i].prev = i ? i - 1 : MERGE_END;
        s->nodes[i].next = i + 1 < count ? i + 1 : MERGE_END;
    }
    for (uint32_t i = 0; i + 1 < count; i++)
        consider(s, i, i + 1, lookup, context);
    while (s->heap_count > 0) {
        struct merge_pair p = heap_pop(s);
        struct merge_node *l = &s->nodes[p.left], *r = &s->nodes[p.right];
        /* Stale: one side grew or merged into another node (length 0). */
        if (l->length == 0 || r->length == 0 || l->length + r->length != p.length)
            continue;
        l->length = p.length;
        l->symbol = p.symbol;
        l->next = r->next;
        r->length = 0;
        if (l->next != MERGE_END)
            s->nodes[l->next].prev = p.left;
        consider(s, l->prev, p.left, lookup, context);
        consider(s, p.left, l->next, lookup, context);
    }
}
