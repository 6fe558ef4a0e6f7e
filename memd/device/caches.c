/* Several expert caches; see caches.h. */
#include "memd/device/caches.h"

#include "base/clock.h"
#include "base/log.h"

static void *pin_main(void *arg)
{
    struct caches *c = arg;
    struct error e;
    uint64_t started = clock_ns(), bytes;
    pthread_setname_np(pthread_self(), "memd/pin");
    if (cache_pin(c->each[0], &c->stop_pinning, &bytes, &e))
        log_warn("of the host memory %s; copies from there to the device are slower", e.text);
    else if (bytes && !atomic_load(&c->stop_pinning))
        log_info("%.2f GB of host memory pinned in %.2f s", (double)bytes * 1e-9,
                 (double)(clock_ns() - started) * 1e-9);
    for (unsigned i = 0; i < c->n; i++)
        cache_show_pinning(c->each[i], false);
    return NULL;
}

void caches_start_pinning(struct caches *c)
{
    if (!c->n || cache_arena(c->each[0])->extents[0].shared.base)
        return;
    for (unsigned i = 0; i < c->n; i++)
        cache_show_pinning(c->each[i], true);
    int failed = pthread_create(&c->pin_thread, NULL, pin_main, c);
    c->has_pin_thread = failed == 0;
    for (unsigned i = 0; failed && i < c->n; i++)
        cache_show_pinning(c->each[i], false);
    if (failed)
        log_warn("cannot start the thread memd/pin: error %d", failed);
}

/* The first cache's link has pinned the memory for all: it goes last. */
void caches_free(struct caches *c)
{
    atomic_store(&c->stop_pinning, true);
    if (c->has_pin_thread)
        pthread_join(c->pin_thread, NULL);
    while (c->n)
        cache_free(c->each[--c->n]);
}

void caches_state(const struct caches *c, struct cache_state *out)
{
    *out = (struct cache_state){0};
    for (unsigned i = 0; i < c->n; i++) {
        struct cache_state s;
        cache_state(c->each[i], &s);
        out->usable += s.usable;
        out->kv_bytes = s.kv_bytes == UINT64_MAX || out->kv_bytes == UINT64_MAX
                            ? UINT64_MAX
                            : out->kv_bytes + s.kv_bytes;
        out->slots.total += s.slots.total;
        out->slots.free += s.slots.free;
        out->slots.resident += s.slots.resident;
        out->slots.filling += s.slots.filling;
        out->slots.retired += s.slots.retired;
        out->slots.slot_bytes = s.slots.slot_bytes;
        out->link_bytes += s.link_bytes;
        out->link_busy_ns += s.link_busy_ns;
        out->since_ns += s.since_ns;
    }
}

void caches_set_prefetcher(const struct caches *c, enum sched_prefetcher prefetcher)
{
    for (unsigned i = 0; i < c->n; i++)
        cache_set_prefetcher(c->each[i], prefetcher);
}

enum error_code caches_set_policy(const struct caches *c, enum sched_cache_kind kind,
                                  enum sched_budget budget, struct error *e)
{
    enum error_code code = ERROR_OK;
    for (unsigned i = 0; i < c->n && !code; i++)
        code = cache_set_policy(c->each[i], kind, budget, e);
    return code;
}

void caches_resize_state(const struct caches *c, struct cache_resize_state *out)
{
    for (unsigned i = 0; i < c->n; i++) {
        struct cache_resize_state s;
        cache_resize_state(c->each[i], &s);
        if (i == 0)
            *out = s;
        if (s.busy && !out->busy) {
            out->busy = true;
            out->waits = s.waits;
        }
        if (s.failed.code && !out->failed.code)
            out->failed = s.failed;
    }
}
