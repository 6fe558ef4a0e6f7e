/* What the tier does with its workers' records, and with workers that leave; see tier_internal.h.
 * slot_server.c checks the records. */
#include "tier_internal.h"

#include "base/clock.h"

/* The worker is done with its oldest fetch: it has used the expert, or has given up on it. */
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

void tier_forget_requests(void *arg, uint32_t worker)
{
    struct tier *t = arg;
    struct cache_worker *w = &t->server.workers[worker];
    while (w->queue->consumed < w->queue->taken)
        forget_oldest(t, w);
    w->queue->n_predictions = 0;
}

void tier_release_fetched(struct tier *t)
{
    struct cache_worker *w;
    for (uint32_t i = 0; (w = slot_server_next(&t->server, &i)); i++) {
        /* pairs with the worker's store: it has read the slots */
        uint64_t fetched = atomic_load(&w->channel.header->fetched);
        while (w->queue->consumed < w->queue->taken && w->queue->consumed < fetched)
            forget_oldest(t, w);
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
    tier_forget_predicted_hints(t, r->layer);
    if (cache_worker_routed(w, r, &t->step))
        sched_cache_routed(t->policy, t->step, r->layer, r->prompt != 0, experts, workloads,
                           r->n_entries);
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

void tier_take_record(void *arg, uint32_t worker, const struct cache_record *r)
{
    struct tier *t = arg;
    struct cache_worker *w = &t->server.workers[worker];
    if (r->kind == CACHE_ROUTED)
        take_routed(t, w, r);
    else if (r->kind == CACHE_FETCH)
        take_fetches(t, w, r);
    else
        tier_count(t->counters.dropped, cache_worker_predicted(w, r));
}
