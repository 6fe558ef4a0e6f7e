/* The indices of a queue between two threads of one process: one producer, one consumer, n places
 * that the caller keeps in arrays of its own. (lib/ipc/ring.h is the queue between two processes:
 * it holds the records too, and distrusts the other side.)
 *
 *     producer                                     consumer
 *     if (spsc_free(&q, n, &place)) {              if (spsc_first(&q, n, &place)) {
 *         write what belongs to the place              read what belongs to the place
 *         spsc_push(&q);                               spsc_pop(&q);
 *     }                                            }
 *
 * Only the producer stores tail and only the consumer stores head, both with release; the other
 * side loads with acquire. So a place and what lies in it change hands together. Zeroed: empty. */
#ifndef MOED_BASE_SPSC_H
#define MOED_BASE_SPSC_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct spsc {
    _Alignas(64) _Atomic uint64_t head; /* consumer: places that it has given back */
    _Alignas(64) _Atomic uint64_t tail; /* producer: places that it has filled */
};

/* Producer: how many of the n places are free. *place is the next one, valid where the result is
 * not 0. */
static inline uint64_t spsc_free(const struct spsc *q, uint64_t n, uint64_t *place)
{
    uint64_t tail = atomic_load_explicit(&q->tail, memory_order_relaxed);
    *place = tail % n;
    /* pairs with the release store in spsc_pop */
    return n - (tail - atomic_load_explicit(&q->head, memory_order_acquire));
}

static inline void spsc_push(struct spsc *q)
{
    uint64_t tail = atomic_load_explicit(&q->tail, memory_order_relaxed);
    atomic_store_explicit(&q->tail, tail + 1, memory_order_release);
}

/* Consumer: whether a place is filled; *place is the oldest one. */
static inline bool spsc_first(const struct spsc *q, uint64_t n, uint64_t *place)
{
    uint64_t head = atomic_load_explicit(&q->head, memory_order_relaxed);
    *place = head % n;
    /* pairs with the release store in spsc_push */
    return head != atomic_load_explicit(&q->tail, memory_order_acquire);
}

static inline void spsc_pop(struct spsc *q)
{
    uint64_t head = atomic_load_explicit(&q->head, memory_order_relaxed);
    atomic_store_explicit(&q->head, head + 1, memory_order_release);
}

#endif
