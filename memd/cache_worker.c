/* Workers of the cache and the tier; see cache_worker.h. */
#include "cache_worker.h"

#include "base/log.h"

#include <inttypes.h>
#include <stdlib.h>

enum error_code cache_worker_open(struct cache_worker *w, uint64_t key, const struct shm *region,
                                  uint64_t pool_generation, struct error *e)
{
    *w = (struct cache_worker){.present = true, .key = key, .region = *region};
    enum error_code code = cache_channel_attach(&w->channel, w->region.base, w->region.bytes, e);
    if (!code && w->channel.header->pool_generation != pool_generation)
        code =
            error_set(e, ERROR_PROTOCOL, "cache channel: it belongs to another load of the pool");
    if (!code && !(w->queue = calloc(1, sizeof *w->queue)))
        code = error_set(e, ERROR_MEMORY, "no memory for what a worker asks");
    if (code)
        cache_worker_close(w);
    return code;
}

void cache_worker_close(struct cache_worker *w)
{
    shm_close(&w->region);
    free(w->queue);
    *w = (struct cache_worker){0};
}

void cache_workers_remove(struct cache_worker workers[CACHE_MAX_WORKERS], uint64_t key)
{
    for (int i = 0; i < CACHE_MAX_WORKERS; i++)
        if (workers[i].present && workers[i].key == key)
            workers[i].leaving = true;
}

const struct cache_worker *
cache_workers_newly_broken(struct cache_worker workers[CACHE_MAX_WORKERS])
{
    for (int i = 0; i < CACHE_MAX_WORKERS; i++) {
        struct cache_worker *w = &workers[i];
        if (!w->present || !w->broken || w->reported)
            continue;
        w->reported = true;
        return w;
    }
    return NULL;
}

void cache_worker_break(struct cache_worker *w, const char *what)
{
    log_warn("cache: the worker of lease %" PRIu64 " wrote %s: it is served no more", w->key, what);
    w->broken = true;
}
