/* See turn_heap.h. */
#include "turn_heap.h"

#include <stddef.h>

static bool is_before(const struct turn_node *a, const struct turn_node *b)
{
    return a->running != b->running ? a->running < b->running : a->turn < b->turn;
}

/* Of two trees, or none, one. */
static struct turn_node *meld(struct turn_node *a, struct turn_node *b)
{
    if (!a || !b)
        return a ? a : b;
    if (is_before(b, a)) {
        struct turn_node *other = a;
        a = b;
        b = other;
    }
    b->prev = a;
    b->next = a->child;
    if (b->next)
        b->next->prev = b;
    a->child = b;
    return a;
}

/* Of siblings, one tree: pairs from the left, then these from the right. */
static struct turn_node *meld_siblings(struct turn_node *list)
{
    struct turn_node *pairs = NULL, *tree = NULL;
    while (list) {
        struct turn_node *a = list, *b = a->next;
        list = b ? b->next : NULL;
        a->next = NULL;
        if (b)
            b->next = NULL;
        a = meld(a, b);
        a->next = pairs;
        pairs = a;
    }
    while (pairs) {
        struct turn_node *next = pairs->next;
        pairs->next = NULL;
        tree = meld(tree, pairs);
        pairs = next;
    }
    return tree;
}

static void set_first(struct turn_heap *h, struct turn_node *tree)
{
    h->first = tree;
    if (tree)
        tree->next = tree->prev = NULL;
}

void turn_heap_enter(struct turn_heap *h, struct turn_node *n)
{
    n->child = n->next = n->prev = NULL;
    n->in = true;
    set_first(h, meld(h->first, n));
}

void turn_heap_leave(struct turn_heap *h, struct turn_node *n)
{
    struct turn_node *children = meld_siblings(n->child);
    n->in = false;
    if (h->first == n) {
        set_first(h, children);
        return;
    }
    if (n->prev->child == n)
        n->prev->child = n->next;
    else
        n->prev->next = n->next;
    if (n->next)
        n->next->prev = n->prev;
    set_first(h, meld(h->first, children));
}
