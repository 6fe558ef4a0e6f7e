/* The tier's workers: attaching, what they write, leaving; see tier_internal.h. As with the expert cache (cache_workers.c),
 * what a worker writes is input: one that writes nonsense is served no more, but its epoch counts until the kernel says
 * that it is gone. */
#include "tier_internal.h"

#include "base/clock.h"

enum { RECORDS_AT_ONCE = 128 };

enum error_code tier_add_worker(struct tier *t, uint64_t key, const struct shm *region,
                                struct error *e)
{
    struct cache_worker new;
    enum error_code code = cache_worker_open(&new, key, region, t->options.generation, e);
    if (code)
        return code;
    pthread_mutex_lock(&t->lock);
    new.reader = cache_slots_add_reader(&t->slots, &new.channel.header->host_epoch);
    if (new.reader >= 0)
        t->workers[new.reader] = new; /* as many places as readers */
    pthread_mutex_unlock(&t->lock);
    if (new.reader < 0) {
        cache_worker_close(&new);
        return error_set(e, ERROR_LIMIT, "the tier serves %d workers already", CACHE_MAX_WORKERS);
    }
    doorbell_ring(&t->bell);
    return ERROR_OK;
}

void tier_remove_worker(struct tier *t, uint64_t key)
{
    pthread_mutex_lock(&t->lock);
    cache_workers_remove(t->workers, key);
    pthread_mutex_unlock(&t->lock);
    doorbell_ring(&t->bell);
}

/* The worker is done with its oldest fetch: it has used it, or has given it up. */
static void forget_oldest(struct tier *t, struct cache_worker *w)
{
    struct cache_queue *q = w->queue;
    const struct cache_load *l = cache_queue_load(q, ++q->consumed);
    struct tier_expert *x = tier_expert_at(t, l->layer, l->expert);
    if (q->consumed > q->served) { /* it had not begun */
        q->served = q->consumed;
        x->queued--;
    } else {
        x->pins--;
    }
}

static void forget_requests(struct tier *t, struct cache_worker *w)
{
    while (w->queue->consumed < w->queue->taken)
        forget_oldest(t, w);
    w->queue->n_predictions = 0;
}

void tier_release_fetched(struct tier *t)
{
    for (int i = 0; i < CACHE_MAX_WORKERS; i++) {
        struct cache_worker *w = &t->workers[i];
        if (!w->present || w->broken)
            continue;
        /* pairs with the worker's store: what it read of the slots is read */
        uint64_t fetched = atomic_load(&w->channel.header->fetched);
        while (w->queue->consumed < w->queue->taken && w->queue->consumed < fetched)
            forget_oldest(t, w);
    }
}

void tier_forget_leaving(struct tier *t)
{
    for (int i = 0; i < CACHE_MAX_WORKERS; i++) {
        struct cache_worker *w = &t->workers[i];
        if (!w->present || !w->leaving)
            continue;
        forget_requests(t, w);
        cache_slots_remove_reader(&t->slots, w->reader);
        cache_worker_close(w);
    }
}

static void take_routed(struct tier *t, struct cache_worker *w, const struct cache_record *r)
{
    uint16_t experts[CACHE_RECORD_ENTRIES], workloads[CACHE_RECORD_ENTRIES];
    for (uint32_t i = 0; i < r->n_entries; i++) {
        experts[i] = r->entries[i].expert;
        workloads[i] = r->entries[i].value;
        tier_mark_used(t, r->layer, experts[i]);
    }
    tier_forget_predicted_wishes(t, r->layer);
    if (cache_worker_routed(w, r, &t->step))
        sched_cache_routed(t->policy, t->step, r->layer, experts, workloads, r->n_entries);
}

static void take_fetches(struct tier *t, struct cache_worker *w, const struct cache_record *r)
{
    uint64_t now = clock_ns();
    for (uint32_t i = 0; i < r->n_entries; i++) {
        struct cache_load l = {.layer = r->layer, .expert = r->entries[i].expert, .asked_ns = now};
        tier_restore(t, l.layer, l.expert); /* before its slot is reclaimed */
        tier_expert_at(t, l.layer, l.expert)->queued++;
        cache_queue_push(w->queue, &l);
    }
}

static void take_record(struct tier *t, struct cache_worker *w, const struct cache_record *r)
{
    if (r->kind == CACHE_ROUTED)
        take_routed(t, w, r);
    else if (r->kind == CACHE_FETCH)
        take_fetches(t, w, r);
    else
        tier_count(t->counters.dropped, cache_worker_predicted(w, r));
}

static void give_up_on(struct tier *t, struct cache_worker *w, const char *what)
{
    cache_worker_break(w, what);
    forget_requests(t, w);
}

void tier_take_records(struct tier *t)
{
    for (int i = 0; i < CACHE_MAX_WORKERS; i++) {
        struct cache_worker *w = &t->workers[i];
        if (!w->present || w->broken || w->leaving)
            continue;
        struct cache_record r;
        const char *what = NULL;
        for (int n = 0;
             n < RECORDS_AT_ONCE && cache_worker_take(w, &w->channel.fetches, CACHE_FETCH,
                                                      t->pool->slabs, t->n_layers, &r, &what);
             n++)
            take_record(t, w, &r);
        if (what)
            give_up_on(t, w, what);
    }
}
