/* Which expert is read next, and into which slot; see tier_internal.h.
 *
 * Invariants:
 * 1. A word names a slot while that is resident and owned by the word's expert. Only the functions
 *    of this file change either.
 * 2. An expert comes in this order: bytes, word. It goes in this order: word, slot retired; its
 * bytes change only after the slot's grace.
 * 3. An expert that is pinned or being read is never evicted.
 * 4. A retired slot, and even a free one, holds its last owner's bytes until it is taken for
 * another expert: the tier puts that owner back, and reads nothing, if it is wanted again. So the
 * slots of the reserve hold the experts that were evicted last.
 *
 * The tier begins fetches in the order of their requests, over all workers, and pins each when it
 * begins. A worker uses whatever has come, and counts its first fetches as soon as it has used
 * them. So with any number of slots, a live worker always gives back some fetches, and the next
 * ones get their slots. */
#include "tier_internal.h"

#include "base/clock.h"

/* Waiting for a free slot: a worker that leaves its epoch does not ring. */
#define BLOCKED_NS 100000u
/* Slots to reclaim: soon, though no worker waits. */
#define TIDY_NS 2000000u
#define IDLE_NS 1000000000u
/* Steps for which a hint stands. The copy engine decides at least once a step, and repeats the
 * hints that still stand. */
#define HINT_STEPS 2

/* True: the slot that the expert had last has had no other owner since. */
static bool is_owner(const struct tier *t, const struct tier_expert *x)
{
    return x->slot != TIER_NO_SLOT && t->owner[x->slot] == (uint32_t)(x - t->experts);
}

enum slot_state tier_where(struct tier *t, uint32_t layer, uint32_t expert)
{
    struct tier_expert *x = tier_expert_at(t, layer, expert);
    return is_owner(t, x) ? (enum slot_state)t->server.slots.states[x->slot] : SLOT_FREE;
}

static void write_word(struct tier *t, uint32_t layer, uint32_t expert, uint32_t slot_and_one)
{
    struct host_expert word = {slot_and_one, tier_expert_at(t, layer, expert)->failures};
    atomic_store(host_tier_word(&t->table, layer, expert), host_expert_pack(word));
}

/* True: there was a hint for it. */
static bool forget_hint(struct tier *t, uint32_t layer, uint32_t expert)
{
    for (uint32_t i = 0; i < t->n_hints; i++)
        if (t->hints[i].layer == layer && t->hints[i].expert == expert) {
            t->hints[i] = t->hints[--t->n_hints];
            return true;
        }
    return false;
}

void tier_wake_hinter(struct tier *t)
{
    for (unsigned i = 0; i < t->n_devices; i++)
        if (t->devices[i].wake)
            t->devices[i].wake(t->devices[i].wake_arg);
}

/* The expert's slot is resident: puts it into the table, and wakes the workers and the hinter. */
static void publish(struct tier *t, uint32_t layer, uint32_t expert)
{
    write_word(t, layer, expert, tier_expert_at(t, layer, expert)->slot + 1);
    sched_cache_resident(t->policy, layer, expert, 1);
    slot_server_ring_workers(&t->server);
    if (forget_hint(t, layer, expert))
        tier_wake_hinter(t);
}

bool tier_restore(struct tier *t, uint32_t layer, uint32_t expert)
{
    enum slot_state where = tier_where(t, layer, expert);
    if (where == SLOT_RETIRED) {
        cache_slots_restore(&t->server.slots, tier_expert_at(t, layer, expert)->slot);
        publish(t, layer, expert);
    }
    return where == SLOT_RETIRED || where == SLOT_RESIDENT;
}

void tier_mark_used(struct tier *t, uint32_t layer, uint32_t expert)
{
    struct tier_expert *x = tier_expert_at(t, layer, expert);
    if (!x->prefetched)
        return;
    x->prefetched = false;
    tier_count(t->counters.prefetched_used_bytes, tier_slabs(t, layer)->slab_bytes);
}

/* -- free slots -- */

static void evict(struct tier *t, uint32_t layer, uint32_t expert)
{
    struct tier_expert *x = tier_expert_at(t, layer, expert);
    write_word(t, layer, expert, 0);
    cache_slots_retire(&t->server.slots, x->slot);
    if (x->prefetched)
        tier_count(t->counters.prefetched_wasted_bytes, tier_slabs(t, layer)->slab_bytes);
    x->prefetched = false;
    tier_count(t->counters.evictions, 1);
    sched_cache_resident(t->policy, layer, expert, 0);
}

struct blocked_by {
    struct tier *tier;
    bool queued; /* also spare experts that a queued fetch wants */
    bool absent; /* also spare experts that are not whole on all devices */
};

static bool is_on_devices(const struct tier *t, uint32_t layer, uint32_t expert)
{
    for (unsigned i = 0; i < t->n_devices; i++)
        if (t->devices[i].residency &&
            residency_read(t->devices[i].residency, layer, expert).resident <
                tier_slabs(t, layer)->n_segments)
            return false;
    return true;
}

static bool blocked(void *arg, uint32_t layer, uint32_t expert)
{
    const struct blocked_by *b = arg;
    const struct tier_expert *x = tier_expert_at(b->tier, layer, expert);
    return x->pins || (b->queued && x->queued) ||
           tier_where(b->tier, layer, expert) != SLOT_RESIDENT ||
           (b->absent && !is_on_devices(b->tier, layer, expert));
}

static bool evict_for(struct tier *t, uint32_t layer, uint32_t expert, bool demanded,
                      double probability, bool spare_queued)
{
    struct blocked_by b = {t, spare_queued, t->n_devices > 0};
    uint32_t victim_layer, victim_expert;
    while (!sched_cache_victim(t->policy, layer, expert, demanded, probability, blocked, &b,
                               &victim_layer, &victim_expert)) {
        if (!b.absent)
            return false;
        b.absent = false; /* the devices hold no candidate */
    }
    /* A policy's fault must not corrupt the tier. */
    if (victim_layer >= t->n_layers || victim_expert >= t->n_experts ||
        blocked(&b, victim_layer, victim_expert))
        return false;
    evict(t, victim_layer, victim_expert);
    return true;
}

/* Takes a free slot: the expert's own if it is free and still holds its bytes. */
static bool take_slot(struct tier *t, uint32_t layer, uint32_t expert, uint32_t *slot)
{
    const struct tier_expert *x = tier_expert_at(t, layer, expert);
    if (!is_owner(t, x) || t->server.slots.states[x->slot] != SLOT_FREE)
        return cache_slots_take(&t->server.slots, slot);
    cache_slots_take_this(&t->server.slots, x->slot);
    *slot = x->slot;
    return true;
}

static uint32_t free_soon(const struct tier *t)
{
    return t->server.slots.counts[SLOT_FREE] + t->server.slots.counts[SLOT_RETIRED];
}

/* Evicts nothing while a retired slot is on its way: it is free no later than a slot that is
 * retired now. Evicts for the next fetch already: the grace of that slot passes while this expert
 * is read. */
static bool evict_for_fetch(struct tier *t, uint32_t layer, uint32_t expert, uint32_t *slot)
{
    if (t->server.slots.counts[SLOT_FREE] == 0)
        cache_slots_reclaim(&t->server.slots);
    if (free_soon(t) == 0 &&
        (evict_for(t, layer, expert, true, 0, true) || evict_for(t, layer, expert, true, 0, false)))
        cache_slots_reclaim(&t->server.slots);
    if (!take_slot(t, layer, expert, slot))
        return false;
    while (free_soon(t) < t->reserve && evict_for(t, layer, expert, true, 0, true))
        ;
    return true;
}

static bool evict_for_prefetch(struct tier *t, uint32_t layer, uint32_t expert, double probability,
                               uint32_t *slot)
{
    if (t->server.slots.counts[SLOT_FREE] <= t->reserve)
        cache_slots_reclaim(&t->server.slots);
    if (free_soon(t) <= t->reserve && evict_for(t, layer, expert, false, probability, true))
        cache_slots_reclaim(&t->server.slots);
    return t->server.slots.counts[SLOT_FREE] > t->reserve && take_slot(t, layer, expert, slot);
}

/* -- jobs -- */

/* The slot was taken for the expert. True: job is to be read. False: it was the expert's old slot,
 * with its bytes, and it is in memory now. */
static bool begin(struct tier *t, uint32_t layer, uint32_t expert, uint32_t slot,
                  struct tier_job *job)
{
    struct tier_expert *x = tier_expert_at(t, layer, expert);
    if (is_owner(t, x) && x->slot == slot) {
        cache_slots_filled(&t->server.slots, slot);
        publish(t, layer, expert);
        return false;
    }
    x->slot = slot;
    t->owner[slot] = (uint32_t)(x - t->experts);
    *job = (struct tier_job){layer, expert, slot};
    return true;
}

/* The worker with the oldest fetch that has not begun; NULL: none. */
static struct cache_worker *oldest_fetch(struct tier *t)
{
    struct cache_worker *oldest = NULL;
    for (int i = 0; i < CACHE_MAX_WORKERS; i++) {
        struct cache_worker *w = &t->server.workers[i];
        if (w->present && !w->broken && cache_queue_next(w->queue) &&
            (!oldest ||
             cache_queue_next(w->queue)->asked_ns < cache_queue_next(oldest->queue)->asked_ns))
            oldest = w;
    }
    return oldest;
}

/* Begins fetches until one needs a read (true) or none is left. *stuck: a fetch needs a read, and
 * no slot is free. */
static bool fetch_job(struct tier *t, struct tier_job *job, bool *stuck)
{
    struct cache_worker *w;
    *stuck = false;
    while ((w = oldest_fetch(t))) {
        const struct cache_load *l = cache_queue_next(w->queue);
        uint32_t slot = TIER_NO_SLOT;
        bool there = tier_where(t, l->layer, l->expert) == SLOT_FILLING ||
                     tier_restore(t, l->layer, l->expert);
        if (!there && !evict_for_fetch(t, l->layer, l->expert, &slot)) {
            *stuck = true;
            return false;
        }
        struct tier_expert *x = tier_expert_at(t, l->layer, l->expert);
        x->pins++;
        x->queued--;
        w->queue->served++;
        if (!there && begin(t, l->layer, l->expert, slot, job))
            return true;
    }
    return false;
}

/* The first filling: expert 0 of each layer, then expert 1, ... */
static bool fill_job(struct tier *t, struct tier_job *job)
{
    uint64_t last = (uint64_t)t->n_layers * t->n_experts;
    while (t->fill_asked < t->fill_total && t->fill_next < last && !t->fill_code) {
        uint32_t layer = (uint32_t)(t->fill_next % t->n_layers);
        uint32_t expert = (uint32_t)(t->fill_next++ / t->n_layers), slot;
        if (expert >= tier_slabs(t, layer)->n_experts)
            continue;
        if (!cache_slots_take(&t->server.slots, &slot))
            return false;
        t->fill_asked++;
        return begin(t, layer, expert, slot, job);
    }
    return false;
}

struct candidate {
    bool found, urgent;
    double probability;
    uint32_t layer, expert;
};

static void consider(struct candidate *best, uint32_t layer, uint32_t expert, double probability,
                     bool urgent)
{
    if (!best->found || urgent > best->urgent ||
        (urgent == best->urgent && probability > best->probability))
        *best = (struct candidate){true, urgent, probability, layer, expert};
}

static void consider_predictions(struct tier *t, struct candidate *best)
{
    struct cache_worker *w;
    for (uint32_t i = 0; (w = slot_server_next(&t->server, &i)); i++) {
        /* a worker that has entered a layer has requested its experts */
        uint64_t place = atomic_load_explicit(&w->channel.header->place, memory_order_acquire);
        tier_count(t->counters.dropped, cache_queue_drop_passed(w->queue, place + 1));
        for (uint32_t p = w->queue->n_predictions; p-- > 0;) {
            const struct cache_prediction *q = &w->queue->predictions[p];
            if (tier_where(t, q->layer, q->expert) == SLOT_FILLING ||
                tier_restore(t, q->layer, q->expert))
                cache_queue_forget(w->queue, p);
            else
                consider(best, q->layer, q->expert, q->probability / 65535.0, false);
        }
    }
}

void tier_forget_predicted_hints(struct tier *t, uint32_t layer)
{
    for (uint32_t i = t->n_hints; i-- > 0;) {
        const struct tier_hint *w = &t->hints[i];
        if (w->layer != layer || w->urgent || !(w->probability > 0))
            continue;
        tier_count(t->counters.dropped, 1);
        t->hints[i] = t->hints[--t->n_hints];
    }
}

/* A hint for an expert that is being read stands until the read ends, for the hinter is woken then.
 */
static void consider_hints(struct tier *t, struct candidate *best)
{
    for (uint32_t i = t->n_hints; i-- > 0;) {
        const struct tier_hint *w = &t->hints[i];
        if (tier_where(t, w->layer, w->expert) == SLOT_FILLING)
            continue;
        if (t->step - w->step < HINT_STEPS) {
            consider(best, w->layer, w->expert, w->probability, w->urgent);
            continue;
        }
        t->hints[i] = t->hints[--t->n_hints];
        tier_wake_hinter(t);
    }
}

/* A prediction is tried once: after a failed read, only a fetch tries again. */
static void forget_predictions(struct tier *t, const struct candidate *c)
{
    for (int i = 0; i < CACHE_MAX_WORKERS; i++) {
        struct cache_queue *q = t->server.workers[i].queue;
        for (uint32_t p = q ? q->n_predictions : 0; p-- > 0;)
            if (q->predictions[p].layer == c->layer && q->predictions[p].expert == c->expert)
                cache_queue_forget(q, p);
    }
}

/* A prediction leaves half of the lanes to fetches. */
static bool evict_for_candidate(struct tier *t, const struct candidate *c, uint32_t *slot)
{
    if (c->urgent)
        return evict_for_fetch(t, c->layer, c->expert, slot);
    return disk_reader_idle(t->reader) > DISK_LANES / 2 &&
           evict_for_prefetch(t, c->layer, c->expert, c->probability, slot);
}

/* Begins hints and predictions until one needs a read (true), the best gets no slot, or none is
 * left.
 */
static bool prefetch_job(struct tier *t, struct tier_job *job)
{
    for (;;) {
        struct candidate best = {0};
        uint32_t slot;
        consider_hints(t, &best);
        consider_predictions(t, &best);
        if (!best.found || !evict_for_candidate(t, &best, &slot))
            return false;
        forget_predictions(t, &best);
        if (!begin(t, best.layer, best.expert, slot, job))
            continue;
        if (!best.urgent) { /* no worker waits for it */
            tier_expert_at(t, best.layer, best.expert)->prefetched = true;
            tier_count(t->counters.prefetched_bytes, tier_slabs(t, best.layer)->slab_bytes);
        }
        return true;
    }
}

bool tier_next_job(struct tier *t, struct tier_job *job, uint64_t *timeout_ns)
{
    bool stuck;
    if (fetch_job(t, job, &stuck))
        return true;
    *timeout_ns = BLOCKED_NS;
    if (stuck)
        return false;
    if (fill_job(t, job) || prefetch_job(t, job))
        return true;
    *timeout_ns = t->server.slots.counts[SLOT_RETIRED] > 0 ? TIDY_NS : IDLE_NS;
    return false;
}

/* -- afterwards -- */

/* The slot has never been in the table. It is retired like the others. */
static void give_back_slot(struct tier *t, struct tier_expert *x)
{
    cache_slots_retire(&t->server.slots, x->slot);
    t->owner[x->slot] = UINT32_MAX;
    x->slot = TIER_NO_SLOT;
    x->prefetched = false;
    x->failures++;
}

void tier_finish_job(struct tier *t, const struct disk_result *result)
{
    uint32_t layer = result->layer, expert = result->expert;
    struct tier_expert *x = tier_expert_at(t, layer, expert);
    tier_count(t->counters.read_bytes, result->bytes);
    tier_count(t->counters.reads, 1);
    cache_slots_filled(&t->server.slots, x->slot);
    if (result->code) {
        tier_count(t->counters.failed_reads, 1);
        if (x->prefetched)
            tier_count(t->counters.prefetched_wasted_bytes, tier_slabs(t, layer)->slab_bytes);
        give_back_slot(t, x);
        write_word(t, layer, expert, 0);
        forget_hint(t, layer, expert);
    } else {
        if (t->counters.read_seconds)
            histogram_observe(t->counters.read_seconds, (double)result->read_ns * 1e-9);
        publish(t, layer, expert);
    }
    if (t->fill_done < t->fill_total) {
        t->fill_done++;
        if (!t->fill_code && result->code) {
            t->fill_code = result->code;
            t->fill_error = result->error;
        }
        pthread_cond_signal(&t->filled);
    }
    atomic_fetch_add_explicit(&t->table.header->reads, 1, memory_order_release);
    slot_server_ring_workers(&t->server);
}
