/* Which segment is copied next: see cache_internal.h.
 *
 * Loads on demand are served one at a time, the one that was asked for first of all workers' oldest, and none else
 * holds a part of its segments: every other pin belongs to a load that is served whole, which its worker can consume
 * without anything more from here. So whatever the number of slots, the load being served gets its room in the end, and no
 * two loads can wait for each other.
 */
#include "cache_internal.h"

#include "base/clock.h"

/* Waiting for room: nobody rings when a worker consumes a load or leaves its epoch. */
#define BLOCKED_NS 100000u
/* Slots to be reclaimed, loads to be given up: soon, though nobody waits. */
#define TIDY_NS 2000000u
#define IDLE_NS 1000000000u

/* Where the job's segment lies in host memory, which is held. False: it is not there. */
static bool take_source(struct cache *c, struct cache_job *job)
{
    const struct pool_slabs *s = cache_slabs(c, job->layer);
    const uint8_t *slab = c->options.tier ? tier_pin(c->options.tier, job->layer, job->expert)
                                          : c->map.base + s->offset + job->expert * s->slab_bytes;
    job->from = slab ? slab + job->segment * s->segment_bytes : NULL;
    return slab != NULL;
}

void cache_release_source(struct cache *c, const struct cache_job *job, bool copied)
{
    if (c->options.tier)
        tier_unpin(c->options.tier, job->layer, job->expert, copied);
}

/* The worker with the oldest load that is not served; NULL: none. */
static struct cache_worker *oldest_demand(struct cache *c)
{
    struct cache_worker *oldest = NULL;
    uint64_t asked_ns = 0;
    for (int i = 0; i < CACHE_MAX_WORKERS; i++) {
        struct cache_worker *w = &c->workers[i];
        const struct cache_load *l = w->present && !w->broken ? cache_queue_next(w->queue) : NULL;
        if (l && (!oldest || l->asked_ns < asked_ns)) {
            oldest = w;
            asked_ns = l->asked_ns;
        }
    }
    return oldest;
}

static void count_wait(struct cache *c, struct cache_load *l)
{
    if (!l->waited_for && c->counters.queue_seconds)
        histogram_observe(c->counters.queue_seconds, (double)(clock_ns() - l->asked_ns) * 1e-9);
    l->waited_for = true;
}

/* Serves loads until one needs a copy (true) or none is left. *blocked: one is, and there is no room. */
static bool demand_job(struct cache *c, struct cache_job *job, bool *blocked)
{
    *blocked = false;
    for (;;) {
        if (!c->serving) {
            c->serving = oldest_demand(c);
            if (!c->serving)
                return false;
            const struct cache_load *l = cache_queue_next(c->serving->queue);
            cache_expert_at(c, l->layer, l->expert)->pins++;
            c->sparing_since_ns = 0;
        }
        struct cache_queue *q = c->serving->queue;
        struct cache_load *l = cache_queue_next(q);
        struct cache_expert *x = cache_expert_at(c, l->layer, l->expert);
        if (x->resident >= l->prefix) { /* its pin stays until it is consumed */
            q->served++;
            x->queued--;
            c->serving = NULL;
            continue;
        }
        *job = (struct cache_job){l->layer, l->expert, x->resident, 0, COPY_DEMANDED, NULL};
        *blocked = true;
        if (!take_source(c, job)) {
            tier_wish(c->options.tier, l->layer, l->expert, 1, true);
            return false;
        }
        *blocked = !cache_room_for_demand(c, l->layer, l->expert, &job->slot);
        if (*blocked)
            cache_release_source(c, job, false);
        else
            count_wait(c, l);
        return !*blocked;
    }
}

static bool is_whole(struct cache *c, uint32_t layer, uint32_t expert)
{
    return cache_expert_at(c, layer, expert)->resident >= cache_slabs(c, layer)->n_segments;
}

/* probability: as predicted, 0 where it is the policy's own wish. */
static bool prefetch(struct cache *c, uint32_t layer, uint32_t expert, double probability,
                     enum cache_reason reason, struct cache_job *job)
{
    *job = (struct cache_job){layer, expert, cache_expert_at(c, layer, expert)->resident,
                              0,     reason, NULL};
    if (!take_source(c, job)) {
        tier_wish(c->options.tier, layer, expert, probability, false);
        return false;
    }
    bool room = cache_room_for_prefetch(c, layer, expert, probability, &job->slot);
    if (!room)
        cache_release_source(c, job, false);
    return room;
}

/* What the policy wants by itself. A wish is kept while room is being made for it, and while loads go before it. */
static bool wanted_job(struct cache *c, struct cache_job *job)
{
    if (c->wishing && is_whole(c, c->wish_layer, c->wish_expert))
        c->wishing = false; /* it has come by another way */
    if (!c->wishing) {
        uint32_t n_free = c->slots.counts[SLOT_FREE];
        uint64_t spare = n_free > c->reserve ? n_free - c->reserve : 0;
        uint32_t layer, expert;
        if (!sched_cache_wanted(c->policy, spare, &layer, &expert) || layer >= c->table.n_layers ||
            expert >= cache_slabs(c, layer)->n_experts || is_whole(c, layer, expert))
            return false;
        c->wishing = true;
        c->wish_layer = layer;
        c->wish_expert = expert;
    }
    bool found = prefetch(c, c->wish_layer, c->wish_expert, 0, COPY_WANTED, job);
    /* No room, and none on its way: the policy may think of something else. */
    c->wishing = !found && c->slots.counts[SLOT_RETIRED] > 0;
    return found;
}

static bool predicted_job(struct cache *c, struct cache_job *job)
{
    bool found = false;
    struct cache_prediction best = {0};
    for (int i = 0; i < CACHE_MAX_WORKERS; i++) {
        struct cache_worker *w = &c->workers[i];
        if (!w->present || w->broken)
            continue;
        uint64_t place = atomic_load_explicit(&w->channel.header->place, memory_order_acquire);
        cache_count(c->counters.dropped, cache_queue_drop_passed(w->queue, place));
        for (uint32_t p = w->queue->n_predictions; p-- > 0;) {
            const struct cache_prediction *q = &w->queue->predictions[p];
            if (is_whole(c, q->layer, q->expert)) {
                cache_queue_forget(w->queue, p);
            } else if (!found || q->probability > best.probability) {
                best = *q;
                found = true;
            }
        }
    }
    return found &&
           prefetch(c, best.layer, best.expert, best.probability / 65535.0, COPY_PREDICTED, job);
}

static bool loads_outstanding(const struct cache *c)
{
    for (int i = 0; i < CACHE_MAX_WORKERS; i++) {
        const struct cache_queue *q = c->workers[i].queue;
        if (q && q->consumed < q->served)
            return true;
    }
    return false;
}

bool cache_next_job(struct cache *c, struct cache_job *job, uint64_t *timeout_ns)
{
    bool blocked;
    if (demand_job(c, job, &blocked))
        return true;
    *timeout_ns = BLOCKED_NS;
    if (blocked)
        return false;
    if (wanted_job(c, job) || predicted_job(c, job))
        return true;
    bool untidy = c->slots.counts[SLOT_RETIRED] > 0 || loads_outstanding(c);
    *timeout_ns = untidy ? TIDY_NS : IDLE_NS;
    return false;
}
