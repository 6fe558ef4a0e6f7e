/* What one worker has requested from the cache: loads in the order in which they were pushed, and
 * predictions. The owner has checked every number in it. One thread at a time.
 *
 * Loads are numbered from 1, as ipc/cache_channel.h describes:
 *
 *     1 ... consumed | consumed + 1 ... served | served + 1 ... taken
 *     forgotten        pinned on the device      waiting */
#ifndef MOED_SCHED_CACHE_CACHE_QUEUE_H
#define MOED_SCHED_CACHE_CACHE_QUEUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Loads that a worker may have outstanding; more stay in its ring until some are consumed. A layer
 * has at most as many loads as experts, and waves span a few layers at most. */
enum { CACHE_LOADS = 4096, CACHE_PREDICTIONS = 512 };

struct cache_load {
    uint16_t layer, expert;
    uint8_t prefix;  /* segments wanted */
    bool waited_for; /* a copy was made for it, and its wait is counted */
    uint64_t asked_ns;
    bool outranked; /* a prediction went before it, once */
};

struct cache_prediction {
    uint64_t deadline; /* as cache_channel_header.place: step << 16 | layer */
    uint16_t layer, expert;
    uint16_t probability; /* of 65535 */
    uint64_t order;       /* of arrival; set by the queue */
};

struct cache_queue {
    struct cache_load loads[CACHE_LOADS]; /* load n at n % CACHE_LOADS */
    uint64_t consumed, served, taken;
    struct cache_prediction predictions[CACHE_PREDICTIONS];
    uint32_t keys[CACHE_PREDICTIONS]; /* of the predictions; different keys, different experts */
    uint32_t n_predictions;
    uint64_t n_predicted; /* in all */
};

static inline struct cache_load *cache_queue_load(struct cache_queue *q, uint64_t number)
{
    return &q->loads[number % CACHE_LOADS];
}

static inline bool cache_queue_has_capacity(const struct cache_queue *q, uint32_t n)
{
    return q->taken - q->consumed + n <= CACHE_LOADS;
}

/* The oldest load that is not served; NULL: none. */
static inline struct cache_load *cache_queue_next(struct cache_queue *q)
{
    return q->served < q->taken ? cache_queue_load(q, q->served + 1) : NULL;
}

/* Gives the load the next number. The queue must have a free entry. */
void cache_queue_push(struct cache_queue *q, const struct cache_load *load);

/* Adds a prediction, or updates the probability of one for the same expert and deadline. If the
 * queue is full the least probable one is dropped; true then. */
bool cache_queue_predict(struct cache_queue *q, const struct cache_prediction *p);
/* Drops the predictions whose layer has passed; returns how many. */
uint32_t cache_queue_drop_passed(struct cache_queue *q, uint64_t place);
void cache_queue_forget(struct cache_queue *q, uint32_t prediction);

#endif
