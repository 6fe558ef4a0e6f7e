/* Device memory for workers that are not there; see cache_internal.h.
 *
 * A worker allocates its scratch and its KV cache itself, after memd has loaded the model, or some
 * time after the worker before it has died. Until then other programs could take that memory. So
 * memd holds as much:
 *
 *     memd allocates the arena         holds the shares of all planned workers
 *     a worker offers its channel      releases one share: the worker allocates next, and waits for
 *                                      the memory (worker/links/cuda_device.c)
 *     a worker's lease ends            takes a share again, once the kernel has freed the memory;
 *                                      retries, because that may be a moment later, or another
 *                                      program was faster
 *     a resize changes the KV cache    takes shares of the new size
 *
 * A worker needs no message for that: a share that is released late only lets it wait. */
#include "cache_internal.h"

#include "base/clock.h"
#include "base/log.h"

/* Between tries while the device has no memory: at first, and at most. */
#define PAUSE_NS      20000000u
#define LAST_PAUSE_NS 1000000000u

static uint32_t absent_workers(const struct cache *c)
{
    uint32_t n = c->plan.workers;
    for (int i = 0; i < CACHE_MAX_WORKERS && n > 0; i++)
        n -= c->server.workers[i].present;
    return n;
}

/* lack: what is to be held is not; NULL: it is. */
static void note(struct cache_hold *hold, bool changed, const struct error *lack)
{
    uint64_t before = changed ? 0 : hold->pause_ns, twice = 2 * before;
    hold->pause_ns = !lack                   ? 0
                     : before == 0           ? PAUSE_NS
                     : twice < LAST_PAUSE_NS ? twice
                                             : LAST_PAUSE_NS;
    hold->retry_ns = clock_ns() + hold->pause_ns;
    if (lack && hold->pause_ns == LAST_PAUSE_NS && before < LAST_PAUSE_NS)
        log_warn("other programs have taken memory of the device that a worker needs: %s",
                 lack->text);
}

void cache_hold_shares(struct cache *c)
{
    struct cache_hold *hold = &c->hold;
    const struct residency_header *shown = c->residency.base;
    uint32_t n = absent_workers(c);
    uint64_t bytes = device_share_worker_bytes(&c->plan, atomic_load(&shown->kv_bytes));
    bool changed = n != hold->n || bytes != hold->bytes;
    struct error e;
    if (!changed && (hold->pause_ns == 0 || clock_ns() < hold->retry_ns))
        return;
    pthread_mutex_unlock(&c->server.lock);
    enum error_code code = device_link_hold(c->link, n, bytes, &e);
    pthread_mutex_lock(&c->server.lock);
    hold->n = n;
    hold->bytes = bytes;
    note(hold, changed, code ? &e : NULL);
}

uint64_t cache_hold_left_ns(const struct cache *c)
{
    uint64_t now = clock_ns();
    if (c->hold.pause_ns == 0)
        return UINT64_MAX;
    return c->hold.retry_ns > now ? c->hold.retry_ns - now : 0;
}
