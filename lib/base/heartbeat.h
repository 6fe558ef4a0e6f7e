/* The heartbeat of one thread: since when its present work lasts. The thread writes it, any thread
 * reads it. A thread that waits for work has none and is never late. */
#ifndef MOED_BASE_HEARTBEAT_H
#define MOED_BASE_HEARTBEAT_H

#include "base/clock.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

struct heartbeat {
    _Atomic uint64_t since_ns; /* 0: the thread waits for work */
};

/* The thread begins work, or gets on with it. Takes NULL. */
static inline void heartbeat_beat(struct heartbeat *h)
{
    if (h)
        atomic_store_explicit(&h->since_ns, clock_ns(), memory_order_relaxed);
}

/* The thread waits for work. Takes NULL. */
static inline void heartbeat_rest(struct heartbeat *h)
{
    if (h)
        atomic_store_explicit(&h->since_ns, 0, memory_order_relaxed);
}

/* Whether the thread works and has not got on for longer than limit_ns. */
static inline bool heartbeat_late(const struct heartbeat *h, uint64_t limit_ns)
{
    uint64_t since = atomic_load_explicit(&h->since_ns, memory_order_relaxed), now = clock_ns();
    return since && now > since && now - since > limit_ns;
}

#endif
