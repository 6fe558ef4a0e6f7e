/* What lies in the arena: room, eviction, publishing; see cache_internal.h.
 *
 * Invariants:
 * 1. The residency word of an expert says what cache_expert.resident says, and one in flight while it is `filling`. Only
 * the functions of this file change either.
 * 2. The order in which a segment comes: bytes, slot number (release), word (seq_cst). A reader with an older word
 * may find the newer slot number: it finds the whole segment. The order in which one goes: word, then the slot is retired,
 * and only after its grace are its bytes changed.
 * 3. A pinned expert, and one that is filling, is never evicted from.
 */
#include "cache_internal.h"

#include "base/clock.h"

/* How long a load waits for others to be consumed before it takes what the policy keeps. */
#define SPARE_NS 2000000u

void cache_tell_policy(struct cache *c, uint32_t layer, uint32_t expert)
{
    sched_cache_resident(c->policy, layer, expert, cache_expert_at(c, layer, expert)->resident);
}

void cache_mark_used(struct cache *c, uint32_t layer, uint32_t expert, uint32_t segments)
{
    struct cache_expert *x = cache_expert_at(c, layer, expert);
    uint32_t bits = x->predicted & ((1u << segments) - 1);
    x->predicted &= (uint16_t)~bits;
    cache_count(c->counters.predicted_used_bytes,
                (uint64_t)__builtin_popcount(bits) * cache_slabs(c, layer)->segment_bytes);
    if (x->used < segments)
        x->used = (uint8_t)segments;
}

void cache_evict(struct cache *c, uint32_t layer, uint32_t expert)
{
    struct cache_expert *x = cache_expert_at(c, layer, expert);
    uint32_t segment = --x->resident;
    uint32_t slot = atomic_load(residency_slot(&c->table, layer, expert, segment));
    residency_write(&c->table, layer, expert, x->resident, 0);
    cache_slots_retire(&c->slots, slot);
    x->predicted &= (uint16_t) ~(1u << segment);
    if (x->transient)
        x->transient--;
    if (x->used > segment)
        x->used = (uint8_t)segment;
    else
        cache_count(c->counters.wasted_bytes, cache_slabs(c, layer)->segment_bytes);
    cache_count(c->counters.evictions, 1);
    cache_tell_policy(c, layer, expert);
}

void cache_settle(struct cache *c, uint32_t layer, uint32_t expert)
{
    struct cache_expert *x = cache_expert_at(c, layer, expert);
    if (x->pins || x->queued || x->filling)
        return;
    while (x->transient)
        cache_evict(c, layer, expert);
}

struct blocked_by {
    struct cache *cache;
    bool queued;            /* spare what a load in the queue wants, too */
    uint32_t layer, expert; /* and what the room is for */
};

static bool blocked(void *arg, uint32_t layer, uint32_t expert)
{
    const struct blocked_by *b = arg;
    const struct cache_expert *x = cache_expert_at(b->cache, layer, expert);
    return x->pins || x->filling || x->resident == 0 || (b->queued && x->queued) ||
           (layer == b->layer && expert == b->expert);
}

static bool evict_for(struct cache *c, uint32_t layer, uint32_t expert, bool demanded,
                      double probability, bool spare_queued)
{
    struct blocked_by b = {c, spare_queued, layer, expert};
    uint32_t victim_layer, victim_expert;
    if (!sched_cache_victim(c->policy, layer, expert, demanded, probability, blocked, &b,
                            &victim_layer, &victim_expert))
        return false;
    /* A policy's mistake must not take down what it advises. */
    if (victim_layer >= c->table.n_layers || victim_expert >= c->table.n_experts ||
        blocked(&b, victim_layer, victim_expert))
        return false;
    cache_evict(c, victim_layer, victim_expert);
    return true;
}

/* Some load that was served will be consumed, and gives back slots then; not of this expert itself. */
static bool room_will_return(struct cache *c, uint32_t layer, uint32_t expert)
{
    for (int i = 0; i < CACHE_MAX_WORKERS; i++) {
        struct cache_queue *q = c->workers[i].queue;
        for (uint64_t n = q ? q->consumed + 1 : 1; q && n <= q->served; n++) {
            const struct cache_load *l = cache_queue_load(q, n);
            if (cache_expert_at(c, l->layer, l->expert)->transient &&
                (l->layer != layer || l->expert != expert))
                return true;
        }
    }
    return false;
}

static uint32_t free_slots(const struct cache *c)
{
    return c->slots.counts[SLOT_FREE];
}

static uint32_t free_soon(const struct cache *c)
{
    return c->slots.counts[SLOT_FREE] + c->slots.counts[SLOT_RETIRED];
}

/* Where the policy does not keep loads, they take turns in the slots that they give back, and what it does keep is
 * spared for them. Not for long: a worker may want them all before it consumes the first. */
static bool should_wait(struct cache *c, uint32_t layer, uint32_t expert)
{
    if (c->keeps_loads || !room_will_return(c, layer, expert))
        return false;
    uint64_t now = clock_ns();
    if (!c->sparing_since_ns)
        c->sparing_since_ns = now;
    return now - c->sparing_since_ns < SPARE_NS;
}

/* A slot that was retired earlier is free no later than one that is retired now, so nothing more is evicted while one
 * is on its way. */
bool cache_room_for_demand(struct cache *c, uint32_t layer, uint32_t expert, uint32_t *slot)
{
    if (free_slots(c) == 0)
        cache_slots_reclaim(&c->slots);
    if (free_soon(c) == 0 && !should_wait(c, layer, expert) &&
        (evict_for(c, layer, expert, true, 0, true) || evict_for(c, layer, expert, true, 0, false)))
        cache_slots_reclaim(&c->slots);
    if (!cache_slots_take(&c->slots, slot))
        return false;
    c->sparing_since_ns = 0;
    /* The next load's room is made now: the grace of what goes runs while this one is copied. */
    while (c->keeps_loads && free_soon(c) < c->reserve &&
           evict_for(c, layer, expert, true, 0, true))
        ;
    return true;
}

bool cache_room_for_prefetch(struct cache *c, uint32_t layer, uint32_t expert, double probability,
                             uint32_t *slot)
{
    if (free_slots(c) <= c->reserve)
        cache_slots_reclaim(&c->slots);
    if (free_soon(c) <= c->reserve && evict_for(c, layer, expert, false, probability, true))
        cache_slots_reclaim(&c->slots);
    return free_slots(c) > c->reserve && cache_slots_take(&c->slots, slot);
}

void cache_begin_copy(struct cache *c, const struct cache_job *job)
{
    struct cache_expert *x = cache_expert_at(c, job->layer, job->expert);
    x->filling = true;
    residency_write(&c->table, job->layer, job->expert, x->resident, 1);
}

void cache_end_copy(struct cache *c, const struct cache_job *job)
{
    struct cache_expert *x = cache_expert_at(c, job->layer, job->expert);
    uint64_t bytes = cache_slabs(c, job->layer)->segment_bytes;
    cache_count(job->reason == COPY_DEMANDED ? c->counters.demanded_bytes
                                             : c->counters.prefetched_bytes,
                bytes);
    if (job->reason == COPY_PREDICTED) {
        cache_count(c->counters.predicted_bytes, bytes);
        x->predicted |= (uint16_t)(1u << job->segment);
    }
    cache_slots_filled(&c->slots, job->slot);
    /* Release: the bytes are there for whoever acquires the number, even with an older word. */
    atomic_store_explicit(residency_slot(&c->table, job->layer, job->expert, job->segment),
                          job->slot, memory_order_release);
    x->filling = false;
    x->resident++;
    residency_write(&c->table, job->layer, job->expert, x->resident, 0);
    cache_workers_ring(c->workers);
    if (job->reason == COPY_WANTED)
        x->transient = 0; /* it is the policy's own now */
    else if (!c->keeps_loads)
        x->transient++;
    cache_tell_policy(c, job->layer, job->expert);
}
