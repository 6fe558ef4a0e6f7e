/* Making the copies that lib/sched/copies.h decides on; see cache_internal.h.
 *
 * Invariants:
 * 1. The residency word of an expert says what sched_copies_resident says, and one in flight while it is filling. Only
 * the functions of this file change it.
 * 2. The order in which a segment comes: bytes, slot number (release), word (seq_cst). A reader with an older word
 * may find the newer slot number: it finds the whole segment. The order in which one goes: word, then the slot is retired,
 * and only after its grace are its bytes changed.
 * 3. Where slots have flags: the announcement of slot and flag, the word with the segment in flight, bytes, flag, slot number,
 * word. Between the first two words nothing but the copy happens to the slot, which ends or takes the device with it.
 */
#include "cache_internal.h"

#include "base/clock.h"

#include <stdlib.h>

/* Waiting for room: nobody rings when a worker consumes a load or leaves its epoch. */
#define BLOCKED_NS 100000u
/* Slots to be reclaimed, loads to be given up: soon, though nobody waits. */
#define TIDY_NS 2000000u
#define IDLE_NS 1000000000u

/* ---- What the engine's decisions rest on ---- */

static uint32_t free_slots(void *arg)
{
    const struct cache *c = arg;
    return c->slots.counts[SLOT_FREE];
}

static uint32_t retired_slots(void *arg)
{
    const struct cache *c = arg;
    return c->slots.counts[SLOT_RETIRED] - c->slots.n_leaving;
}

static void reclaim(void *arg)
{
    struct cache *c = arg;
    cache_slots_reclaim(&c->slots);
}

static void evict(void *arg, uint32_t layer, uint32_t expert, uint32_t segment)
{
    struct cache *c = arg;
    uint32_t slot = atomic_load(residency_slot(&c->table, layer, expert, segment));
    residency_write(&c->table, layer, expert, (uint8_t)segment, 0);
    cache_slots_retire(&c->slots, slot);
}

static bool is_in_memory(void *arg, uint32_t layer, uint32_t expert)
{
    const struct cache *c = arg;
    return tier_holds(c->options.tier, layer, expert);
}

static void wish(void *arg, uint32_t layer, uint32_t expert, double probability, bool demanded)
{
    const struct cache *c = arg;
    tier_wish(c->options.tier, layer, expert, probability, demanded);
}

enum error_code cache_make_copies(struct cache *c, struct error *e)
{
    uint32_t n_layers = c->table.n_layers;
    uint8_t *segments = calloc(n_layers, sizeof *segments);
    uint64_t *bytes = calloc(n_layers, sizeof *bytes);
    for (uint32_t i = 0; segments && bytes && i < n_layers; i++) {
        const struct pool_slabs *s = cache_slabs(c, i);
        segments[i] = s->n_experts ? (uint8_t)s->n_segments : 0;
        bytes[i] = s->segment_bytes;
    }
    struct copies_shape shape = {.n_layers = n_layers,
                                 .n_experts = c->table.n_experts,
                                 .n_slots = c->slots.limit,
                                 .reserve = c->reserve,
                                 .layer_segments = segments,
                                 .segment_bytes = bytes};
    struct copies_owner owner = {.arg = c,
                                 .free_slots = free_slots,
                                 .retired_slots = retired_slots,
                                 .reclaim = reclaim,
                                 .evict = evict,
                                 .obtainable = c->options.tier ? is_in_memory : NULL,
                                 .wish = wish};
    if (segments && bytes)
        c->copies = sched_copies_new(&shape, &owner);
    c->measured = calloc((size_t)n_layers * c->table.n_experts, sizeof *c->measured);
    free(segments);
    free(bytes);
    return c->copies && c->measured ? ERROR_OK : error_set(e, ERROR_MEMORY, "no memory for the table of experts");
}

/* ---- Copies ---- */

/* Where the job's segment lies in host memory, which is held. False: it has left that meanwhile. */
static bool take_source(struct cache *c, struct cache_job *job)
{
    const struct copy_job *w = &job->what;
    const struct pool_slabs *s = cache_slabs(c, w->layer);
    const uint8_t *slab = c->options.tier ? tier_pin(c->options.tier, w->layer, w->expert)
                                          : c->map.base + s->offset + w->expert * s->slab_bytes;
    job->from = slab ? slab + w->segment * s->segment_bytes : NULL;
    return slab != NULL;
}

static void release_source(struct cache *c, const struct cache_job *job, bool copied)
{
    if (c->options.tier)
        tier_unpin(c->options.tier, job->what.layer, job->what.expert, copied);
}

bool cache_next_job(struct cache *c, struct cache_job *job, uint64_t *timeout_ns)
{
    enum copies_next next = sched_copies_next(c->copies, clock_ns(), &job->what);
    *timeout_ns = BLOCKED_NS;
    if (next == COPIES_JOB) {
        if (!take_source(c, job))
            return false;
        if (cache_slots_take(&c->slots, &job->slot))
            return true;
        release_source(c, job, false);
        return false;
    }
    if (next == COPIES_BLOCKED)
        return false;
    bool untidy = c->slots.counts[SLOT_RETIRED] > 0 || sched_copies_outstanding(c->copies);
    *timeout_ns = untidy ? TIDY_NS : IDLE_NS;
    return false;
}

/* A stream may wait for the segment from now on: what is begun is copied to the end, or the device is lost. */
static void announce(struct cache *c, struct cache_job *job)
{
    const struct copy_job *w = &job->what;
    job->flag = ++c->fills[job->slot];
    residency_announce(&c->table, w->layer, w->expert,
                       (struct residency_arrival){job->slot, job->flag});
}

void cache_begin_copy(struct cache *c, struct cache_job *job)
{
    const struct copy_job *w = &job->what;
    if (w->asked_ns && c->counters.queue_seconds && !c->measuring)
        histogram_observe(c->counters.queue_seconds, (double)(clock_ns() - w->asked_ns) * 1e-9);
    sched_copies_begin(c->copies, w);
    if (c->fills)
        announce(c, job);
    residency_write(&c->table, w->layer, w->expert, (uint8_t)w->segment, 1);
    if (c->fills)
        cache_workers_ring(c->workers);
}

void cache_end_copy(struct cache *c, const struct cache_job *job)
{
    const struct copy_job *w = &job->what;
    release_source(c, job, true);
    cache_slots_filled(&c->slots, job->slot);
    sched_copies_end(c->copies, w);
    c->measured[w->layer * c->table.n_experts + w->expert] |= c->measuring && w->reason == COPY_DEMANDED;
    cache_publish_counts(c); /* who sees the segment finds it counted */
    /* Release: the bytes are there for whoever acquires the number, even with an older word. */
    atomic_store_explicit(residency_slot(&c->table, w->layer, w->expert, w->segment), job->slot,
                          memory_order_release);
    residency_write(&c->table, w->layer, w->expert, (uint8_t)(w->segment + 1), 0);
    cache_workers_ring(c->workers);
}

void cache_drop_measured(struct cache *c)
{
    for (uint32_t layer = 0; layer < c->table.n_layers; layer++)
        for (uint32_t expert = 0; expert < c->table.n_experts; expert++) {
            bool *measured = &c->measured[layer * c->table.n_experts + expert];
            if (*measured)
                sched_copies_shorten(c->copies, layer, expert, 0);
            *measured = false;
        }
}

/* ---- Metrics ---- */

static void publish(struct counter *counter, uint64_t *counted, uint64_t now)
{
    if (counter && now != *counted)
        counter_add(counter, now - *counted);
    *counted = now;
}

void cache_publish_counts(struct cache *c)
{
    static const struct cache_counters nowhere;
    const struct copies_counts *now = sched_copies_counts(c->copies);
    const struct cache_counters *to = c->measuring ? &nowhere : &c->counters;
    struct copies_counts *counted = &c->counted;
    publish(to->asked_bytes, &counted->asked_bytes, now->asked_bytes);
    publish(to->used_bytes, &counted->used_bytes, now->used_bytes);
    publish(c->measuring ? c->counters.measured_bytes : to->demanded_bytes, &counted->demanded_bytes, now->demanded_bytes);
    publish(c->counters.prefetched_bytes, &counted->prefetched_bytes, now->prefetched_bytes);
    publish(to->predicted_bytes, &counted->predicted_bytes, now->predicted_bytes);
    publish(to->predicted_used_bytes, &counted->predicted_used_bytes, now->predicted_used_bytes);
    publish(to->wasted_bytes, &counted->wasted_bytes, now->wasted_bytes);
    publish(to->merged, &counted->merged, now->merged);
    publish(to->dropped, &counted->dropped, now->dropped);
    publish(to->evictions, &counted->evictions, now->evictions);
}
