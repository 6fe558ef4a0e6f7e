/* The cache's workers: attaching, what they write, leaving; see cache_internal.h.
 *
 * What a worker writes is input. Its records are copied out of the ring and every number is checked; one that makes no
 * sense ends its asking: it is marked broken, its loads and pins are forgotten, its ring is not read again. Its epoch
 * counts until the kernel says that it is gone, for it may be reading still. `consumed` and `place` are taken as they
 * come: whatever they say harms nobody but the worker's own loads.
 */
#include "cache_internal.h"

#include "base/clock.h"

/* A worker's records are taken at most so many at once: one that writes as fast as they are read stops nobody. */
enum { RECORDS_AT_ONCE = CACHE_RING_RECORDS };

enum error_code cache_add_worker(struct cache *c, uint64_t key, const struct shm *region,
                                 struct error *e)
{
    struct cache_worker new;
    enum error_code code = cache_worker_open(&new, key, region, c->map.header->generation, e);
    if (code)
        return code;
    pthread_mutex_lock(&c->lock);
    new.reader = cache_slots_add_reader(&c->slots, &new.channel.header->epoch);
    if (new.reader >= 0)
        c->workers[new.reader] = new; /* as many places as readers */
    pthread_mutex_unlock(&c->lock);
    if (new.reader < 0) {
        cache_worker_close(&new);
        return error_set(e, ERROR_LIMIT, "the cache serves %d workers already", CACHE_MAX_WORKERS);
    }
    doorbell_ring(&c->bell);
    return ERROR_OK;
}

void cache_remove_worker(struct cache *c, uint64_t key)
{
    pthread_mutex_lock(&c->lock);
    cache_workers_remove(c->workers, key);
    pthread_mutex_unlock(&c->lock);
    doorbell_ring(&c->bell);
}

/* The worker is done with its oldest load: it has used it, perhaps before it was noticed here that all of it is there,
 * or has given it up. */
static void forget_oldest(struct cache *c, struct cache_worker *w)
{
    struct cache_queue *q = w->queue;
    const struct cache_load *l = cache_queue_load(q, ++q->consumed);
    struct cache_expert *x = cache_expert_at(c, l->layer, l->expert);
    if (l->prefix <= x->resident)
        cache_mark_used(c, l->layer, l->expert, l->prefix);
    bool pinned = true;
    if (q->consumed > q->served) {
        q->served = q->consumed;
        x->queued--;
        pinned = c->serving == w;
        if (pinned)
            c->serving = NULL;
    }
    x->pins -= pinned;
    cache_settle(c, l->layer, l->expert);
}

static void forget_requests(struct cache *c, struct cache_worker *w)
{
    while (w->queue->consumed < w->queue->taken)
        forget_oldest(c, w);
    w->queue->n_predictions = 0;
}

void cache_release_consumed(struct cache *c)
{
    for (int i = 0; i < CACHE_MAX_WORKERS; i++) {
        struct cache_worker *w = &c->workers[i];
        if (!w->present || w->broken)
            continue;
        /* pairs with the worker's store: what it read of the load's segments is read */
        uint64_t consumed = atomic_load(&w->channel.header->consumed);
        while (w->queue->consumed < w->queue->taken && w->queue->consumed < consumed)
            forget_oldest(c, w);
    }
}

void cache_forget_leaving(struct cache *c)
{
    for (int i = 0; i < CACHE_MAX_WORKERS; i++) {
        struct cache_worker *w = &c->workers[i];
        if (!w->present || !w->leaving)
            continue;
        forget_requests(c, w);
        cache_slots_remove_reader(&c->slots, w->reader);
        cache_worker_close(w);
    }
}

static void take_routed(struct cache *c, struct cache_worker *w, const struct cache_record *r)
{
    for (uint32_t i = 0; i < r->n_entries; i++) {
        uint32_t expert = r->entries[i].expert;
        cache_mark_used(c, r->layer, expert, cache_expert_at(c, r->layer, expert)->resident);
    }
    cache_worker_routed(w, r, &c->step, c->policy);
}

static void take_loads(struct cache *c, struct cache_worker *w, const struct cache_record *r)
{
    uint64_t now = clock_ns();
    for (uint32_t i = 0; i < r->n_entries; i++) {
        uint32_t prefix = r->entries[i].value;
        if (prefix > c->slots.n) /* more will never be there at once */
            prefix = c->slots.n;
        struct cache_load l = {r->layer, r->entries[i].expert, (uint8_t)prefix, false, now};
        struct cache_expert *x = cache_expert_at(c, l.layer, l.expert);
        if (x->resident < prefix && (x->queued || x->filling))
            cache_count(c->counters.merged, 1);
        x->queued++;
        cache_queue_push(w->queue, &l);
    }
}

static void take_record(struct cache *c, struct cache_worker *w, const struct cache_record *r)
{
    if (r->kind == CACHE_ROUTED)
        take_routed(c, w, r);
    else if (r->kind == CACHE_LOAD)
        take_loads(c, w, r);
    else
        cache_count(c->counters.dropped, cache_worker_predicted(w, r));
}

static void give_up_on(struct cache *c, struct cache_worker *w, const char *what)
{
    cache_worker_break(w, what);
    forget_requests(c, w);
}

void cache_take_records(struct cache *c)
{
    for (int i = 0; i < CACHE_MAX_WORKERS; i++) {
        struct cache_worker *w = &c->workers[i];
        if (!w->present || w->broken || w->leaving)
            continue;
        struct cache_record r;
        const char *what = NULL;
        for (int n = 0;
             n < RECORDS_AT_ONCE && cache_worker_take(w, &w->channel.requests, CACHE_LOAD,
                                                      c->map.slabs, c->table.n_layers, &r, &what);
             n++)
            take_record(c, w, &r);
        if (what)
            give_up_on(c, w, what);
    }
}
