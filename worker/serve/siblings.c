/* The other workers; see siblings.h. Every value is a hint: a late one costs a moment. */
#include "worker/serve/siblings.h"

#include "base/clock.h"

/* A worker that has not repeated that it waits for so long is stopped, or has gone. */
#define PATIENCE_NS 1000000000ull

void siblings_report(const struct siblings *s, uint32_t running, uint32_t waiting)
{
    if (!s->entries)
        return;
    struct kv_pool_worker *own = &s->entries[s->own];
    if (atomic_load_explicit(&own->running, memory_order_relaxed) != running)
        atomic_store_explicit(&own->running, running, memory_order_relaxed);
    if (atomic_load_explicit(&own->waiting, memory_order_relaxed) != waiting)
        atomic_store_explicit(&own->waiting, waiting, memory_order_relaxed);
}

static bool is_busy(const struct kv_pool_worker *w)
{
    return atomic_load_explicit(&w->running, memory_order_relaxed) &&
           atomic_load_explicit(&w->pid, memory_order_relaxed);
}

void siblings_share_cores(const struct siblings *s, struct pool *pool)
{
    unsigned rank = 0, n = 1;
    for (uint32_t i = 0; s->entries && i < KV_POOL_WORKERS; i++)
        if (i != s->own && is_busy(&s->entries[i])) {
            rank += i < s->own;
            n++;
        }
    pool_share(pool, rank, n);
}

void siblings_wait(const struct siblings *s, uint64_t submitted_ns)
{
    if (!s->entries)
        return;
    struct kv_pool_worker *own = &s->entries[s->own];
    if (submitted_ns)
        atomic_store_explicit(&own->waits_seen_ns, clock_ns(), memory_order_relaxed);
    if (atomic_load_explicit(&own->waits_since_ns, memory_order_relaxed) != submitted_ns)
        atomic_store_explicit(&own->waits_since_ns, submitted_ns, memory_order_release);
}

bool siblings_may_start(const struct siblings *s, uint64_t submitted_ns)
{
    for (uint32_t i = 0; s->entries && i < KV_POOL_WORKERS; i++) {
        const struct kv_pool_worker *w = &s->entries[i];
        uint64_t since = atomic_load_explicit(&w->waits_since_ns, memory_order_acquire);
        if (i == s->own || !since || since >= submitted_ns)
            continue;
        uint64_t seen = atomic_load_explicit(&w->waits_seen_ns, memory_order_relaxed);
        if (seen + PATIENCE_NS > clock_ns())
            return false;
    }
    return true;
}
