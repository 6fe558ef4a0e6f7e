/* A worker of the cache or the tier; see cache_worker.h. */
#include "cache_worker.h"

#include "base/log.h"
#include "cache_record.h"

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
        code = error_set(e, ERROR_MEMORY, "no memory for a worker's requests");
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

void cache_worker_break(struct cache_worker *w, const char *what)
{
    log_warn("cache: the worker of lease %" PRIu64 " wrote %s: it is not served any more", w->key,
             what);
    w->broken = true;
}

bool cache_worker_take(struct cache_worker *w, struct ring *ring, enum cache_record_kind asking,
                       const struct pool_slabs *slabs, uint32_t n_layers, struct cache_record *r,
                       const char **what)
{
    *what = NULL;
    if (!cache_queue_has_capacity(w->queue, CACHE_RECORD_ENTRIES))
        return false;
    int got = ring_pop(ring, r);
    if (got == 0)
        return false;
    *what =
        got < 0 ? "invalid indices into its ring" : cache_record_check(r, asking, slabs, n_layers);
    return !*what;
}

bool cache_worker_routed(struct cache_worker *w, const struct cache_record *r, uint64_t *step)
{
    if (r->step != w->step) {
        w->step = r->step;
        ++*step;
    }
    return r->n_entries > 0;
}

uint32_t cache_worker_predicted(struct cache_worker *w, const struct cache_record *r)
{
    uint32_t dropped = 0;
    for (uint32_t i = 0; i < r->n_entries; i++) {
        struct cache_prediction p = {.deadline = r->step << 16 | r->layer,
                                     .layer = r->layer,
                                     .expert = r->entries[i].expert,
                                     .probability = r->entries[i].value};
        dropped += cache_queue_predict(w->queue, &p);
    }
    return dropped;
}
