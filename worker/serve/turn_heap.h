/* Those that wait for a turn: first the one with the fewest running, and of those with as many the
 * one whose turn was earliest. A pairing heap (Fredman, Sedgewick, Sleator, Tarjan 1986) of the
 * caller's nodes: entering takes constant time, leaving logarithmic time on average. */
#ifndef MOED_WORKER_SERVE_TURN_HEAP_H
#define MOED_WORKER_SERVE_TURN_HEAP_H

#include <stdbool.h>
#include <stdint.h>

struct turn_node {
    uint64_t running, turn; /* do not change while it is in a heap */
    void *owner;            /* the caller's */
    /* the module's */
    struct turn_node *child, *next, *prev; /* prev: the parent, of its first child */
    bool in;
};

struct turn_heap {
    struct turn_node *first; /* NULL: empty */
};

void turn_heap_enter(struct turn_heap *h, struct turn_node *n); /* n is in no heap */
void turn_heap_leave(struct turn_heap *h, struct turn_node *n); /* n is in h */

#endif
