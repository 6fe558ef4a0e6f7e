/* Makes the copies that lib/sched/prefetch/transfer_scheduler.h decides on; see cache_internal.h.
 *
 * Invariants:
 * 1. The residency word of an expert has the prefix of transfer_scheduler_resident, and in flight
 *    the segments of transfer_scheduler_filling. Only the functions of this file change it.
 * 2. A segment comes in this order: bytes, slot number (release), word (seq_cst). A reader with an
 *    older word that finds the newer slot number finds the whole segment. A segment goes in this
 *    order: word, slot retired; its bytes change only after its grace.
 * 3. Where slots have flags, the order is: announcement of slot and flag, word with the segment in
 *    flight, bytes, flag, slot number, word. Between the first two words nothing but the copy
 *    changes the slot. The copy ends, or the device is lost.
 * 4. Copies end in the order in which they began. */
#include "cache_internal.h"

#include "base/arrays.h"
#include "base/clock.h"

#include <stdlib.h>

/* Waiting for a free slot: a worker that consumes a load or leaves its epoch does not ring. */
#define BLOCKED_NS 100000u
/* Slots to reclaim, or loads to give up: soon, though no worker waits. */
#define TIDY_NS 2000000u
#define IDLE_NS 1000000000u

/* ---- What the scheduler asks of the cache ---- */

static uint32_t free_slots(void *arg)
{
    const struct cache *c = arg;
    return c->server.slots.counts[SLOT_FREE];
}

static uint32_t retired_slots(void *arg)
{
    const struct cache *c = arg;
    return c->server.slots.counts[SLOT_RETIRED] - c->server.slots.n_leaving;
}

static void reclaim(void *arg)
{
    struct cache *c = arg;
    cache_slots_reclaim(&c->server.slots);
}

static void evict(void *arg, uint32_t layer, uint32_t expert, uint32_t segment)
{
    struct cache *c = arg;
    uint32_t slot = atomic_load(residency_slot(&c->table, layer, expert, segment));
    residency_write(&c->table, layer, expert, (uint8_t)segment, 0);
    cache_slots_retire(&c->server.slots, slot);
}

static bool is_in_memory(void *arg, uint32_t layer, uint32_t expert)
{
    const struct cache *c = arg;
    return tier_holds(c->options.tier, layer, expert);
}

static void hint(void *arg, uint32_t layer, uint32_t expert, double probability, bool demanded)
{
    const struct cache *c = arg;
    tier_hint(c->options.tier, layer, expert, probability, demanded);
}

enum error_code cache_make_transfers(struct cache *c, struct error *e)
{
    uint32_t n_layers = c->table.n_layers;
    uint8_t *segments;
    uint64_t *bytes;
    void *memory = ARRAYS_NEW(ARRAY(segments, n_layers), ARRAY(bytes, n_layers));
    for (uint32_t i = 0; memory && i < n_layers; i++) {
        const struct pool_slabs *s = cache_slabs(c, i);
        segments[i] = s->n_experts ? (uint8_t)s->n_segments : 0;
        bytes[i] = s->segment_bytes;
    }
    struct transfer_shape shape = {.n_layers = n_layers,
                                   .n_experts = c->table.n_experts,
                                   .n_slots = c->server.slots.limit,
                                   .reserve = c->reserve,
                                   .layer_segments = segments,
                                   .segment_bytes = bytes};
    struct transfer_owner owner = {.arg = c,
                                   .free_slots = free_slots,
                                   .retired_slots = retired_slots,
                                   .reclaim = reclaim,
                                   .evict = evict,
                                   .obtainable = c->options.tier ? is_in_memory : NULL,
                                   .hint = hint};
    if (memory)
        c->transfers = transfer_scheduler_new(&shape, &owner);
    c->measured = calloc((size_t)n_layers * c->table.n_experts, sizeof *c->measured);
    free(memory);
    return c->transfers && c->measured
               ? ERROR_OK
               : error_set(e, ERROR_MEMORY, "no memory for the table of experts");
}

/* ---- Copies ---- */

/* Sets job->from and pins the slab in the host tier. False: the expert has left host memory since
 * the decision. */
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

/* A free slot, behind the last job's where that is free. */
static bool take_slot(struct cache *c, const struct cache_job *last, uint32_t *slot)
{
    struct cache_slots *s = &c->server.slots;
    if (!last || !cache_slots_is_free(s, last->slot + 1))
        return cache_slots_take(s, slot);
    *slot = last->slot + 1;
    cache_slots_take_this(s, *slot);
    return true;
}

/* Whether slot `next` lies so many bytes behind a slot, in the same allocation. */
static bool is_behind(const struct cache *c, uint32_t slot, uint32_t next, uint64_t bytes)
{
    struct arena_layout l = c->arena->layout;
    return next == slot + 1 && bytes == c->arena->slot_bytes &&
           arena_extent_of(l, next) == arena_extent_of(l, slot);
}

bool cache_has_neighbour(const struct cache *c, const struct cache_job *job)
{
    const struct pool_slabs *s = cache_slabs(c, job->what.layer);
    return job->what.segment + 1 < s->n_segments &&
           cache_slots_is_free(&c->server.slots, job->slot + 1) &&
           is_behind(c, job->slot, job->slot + 1, s->segment_bytes);
}

bool cache_continues(const struct cache *c, const struct cache_job *last,
                     const struct cache_job *job)
{
    uint64_t bytes = cache_slabs(c, last->what.layer)->segment_bytes;
    return job->from == last->from + bytes && is_behind(c, last->slot, job->slot, bytes);
}

bool cache_next_job(struct cache *c, bool loads_only, const struct cache_job *last,
                    struct cache_job *job, uint64_t *timeout_ns)
{
    uint64_t now_ns = clock_ns();
    enum transfer_next next = loads_only
                                  ? transfer_scheduler_next_load(c->transfers, now_ns, &job->what)
                                  : transfer_scheduler_next(c->transfers, now_ns, &job->what);
    *timeout_ns = BLOCKED_NS;
    if (next == TRANSFER_JOB) {
        if (!take_source(c, job))
            return false;
        if (take_slot(c, last, &job->slot))
            return true;
        release_source(c, job, false);
        return false;
    }
    if (next == TRANSFER_BLOCKED)
        return false;
    bool untidy =
        c->server.slots.counts[SLOT_RETIRED] > 0 || transfer_scheduler_outstanding(c->transfers);
    *timeout_ns = untidy ? TIDY_NS : IDLE_NS;
    return false;
}

/* A worker's stream may wait for the segment from now on: a copy that has begun ends, or the device
 * is lost. */
static void announce(struct cache *c, struct cache_job *job)
{
    const struct copy_job *w = &job->what;
    job->flag = ++c->fills[job->slot];
    residency_announce(&c->table, w->layer, w->expert, w->segment,
                       (struct residency_arrival){job->slot, job->flag});
}

static void write_word(struct cache *c, const struct copy_job *w)
{
    residency_write(&c->table, w->layer, w->expert,
                    (uint8_t)transfer_scheduler_resident(c->transfers, w->layer, w->expert),
                    (uint8_t)transfer_scheduler_filling(c->transfers, w->layer, w->expert));
}

void cache_begin_copy(struct cache *c, struct cache_job *job)
{
    const struct copy_job *w = &job->what;
    if (w->asked_ns && c->counters.queue_seconds && !c->measuring)
        histogram_observe(c->counters.queue_seconds, (double)(clock_ns() - w->asked_ns) * 1e-9);
    transfer_scheduler_begin(c->transfers, w);
    if (c->fills)
        announce(c, job);
    write_word(c, w);
    if (c->fills)
        slot_server_ring_workers(&c->server);
}

void cache_end_copy(struct cache *c, const struct cache_job *job)
{
    const struct copy_job *w = &job->what;
    release_source(c, job, true);
    cache_slots_filled(&c->server.slots, job->slot);
    c->measured[w->layer * c->table.n_experts + w->expert] |=
        c->measuring && w->reason == COPY_DEMANDED;
    /* Release: a reader that acquires the number finds the bytes, even with an older word. */
    atomic_store_explicit(residency_slot(&c->table, w->layer, w->expert, w->segment), job->slot,
                          memory_order_release);
    transfer_scheduler_end(c->transfers, w);
    cache_publish_counts(c); /* before the word: a worker that sees the segment finds it counted */
    write_word(c, w);
    slot_server_ring_workers(&c->server);
}

void cache_drop_copy(struct cache *c, const struct cache_job *job)
{
    release_source(c, job, false);
}

void cache_drop_measured(struct cache *c)
{
    for (uint32_t layer = 0; layer < c->table.n_layers; layer++)
        for (uint32_t expert = 0; expert < c->table.n_experts; expert++) {
            bool *measured = &c->measured[layer * c->table.n_experts + expert];
            if (*measured)
                transfer_scheduler_shorten(c->transfers, layer, expert, 0);
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
    const struct transfer_counts *now = transfer_scheduler_counts(c->transfers);
    const struct cache_counters *to = c->measuring ? &nowhere : &c->counters;
    struct transfer_counts *counted = &c->counted;
    publish(to->asked_bytes, &counted->asked_bytes, now->asked_bytes);
    publish(to->used_bytes, &counted->used_bytes, now->used_bytes);
    publish(c->measuring ? c->counters.measured_bytes : to->demanded_bytes,
            &counted->demanded_bytes, now->demanded_bytes);
    publish(c->counters.prefetched_bytes, &counted->prefetched_bytes, now->prefetched_bytes);
    publish(to->predicted_bytes, &counted->predicted_bytes, now->predicted_bytes);
    publish(to->predicted_used_bytes, &counted->predicted_used_bytes, now->predicted_used_bytes);
    publish(to->wasted_bytes, &counted->wasted_bytes, now->wasted_bytes);
    publish(to->merged, &counted->merged, now->merged);
    publish(to->dropped, &counted->dropped, now->dropped);
    publish(to->evictions, &counted->evictions, now->evictions);
}
