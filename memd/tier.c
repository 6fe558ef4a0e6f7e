/* The host tier's thread and its interface; see tier.h and tier_internal.h.
 *
 * The thread waits at one place for everything that can give it work: the workers' rings, and its own doorbell, which the
 * lanes ring when they have read something. The lock is taken by the device cache's thread too (tier_pin), which holds
 * its own then; this thread never takes that one.
 */
#include "tier_internal.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/machine_memory.h"
#include "exec/numa.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define POPULATE_BYTES (64ull << 20) /* at once */

/* -- the thread -- */

static void watch_doorbells(struct tier *t)
{
    cache_wait_begin(&t->wait);
    cache_wait_watch(&t->wait, &t->bell);
    for (int i = 0; i < CACHE_MAX_WORKERS; i++) {
        struct cache_worker *w = &t->workers[i];
        if (w->present && !w->broken)
            cache_wait_watch(&t->wait, &w->channel.fetches.header->doorbell);
    }
}

static void count_busy(struct tier *t, int32_t change)
{
    uint64_t now = clock_ns();
    if (t->reading)
        t->busy_ns += now - t->busy_since_ns;
    t->busy_since_ns = now;
    t->reading += (uint32_t)change;
}

static void take_results(struct tier *t)
{
    struct disk_result result;
    while (disk_reader_take(t->reader, &result)) {
        count_busy(t, -1);
        tier_finish_job(t, &result);
    }
}

/* Keeps the lanes busy. The time at which to look again at the latest. */
static uint64_t give_out_jobs(struct tier *t)
{
    uint64_t timeout_ns = UINT64_MAX; /* a lane will ring */
    struct tier_job job;
    while (disk_reader_idle(t->reader) > 0 && tier_next_job(t, &job, &timeout_ns)) {
        uint8_t *to = (uint8_t *)t->region.base + t->table.header->slots_offset +
                      job.slot * t->table.slot_bytes;
        count_busy(t, 1);
        disk_reader_submit(t->reader, job.layer, job.expert, to);
        timeout_ns = UINT64_MAX;
    }
    return timeout_ns;
}

static void *disk_thread(void *arg)
{
    struct tier *t = arg;
    pthread_setname_np(pthread_self(), "memd/disk");
    pthread_mutex_lock(&t->lock);
    while (!t->stop) {
        tier_forget_leaving(t);
        watch_doorbells(t); /* before looking for work: what comes later wakes the sleeper */
        take_results(t);
        tier_release_fetched(t); /* which makes room for records */
        tier_take_records(t);
        /* again: what was there already may have been counted before it was taken */
        tier_release_fetched(t);
        cache_slots_reclaim(&t->slots);
        cache_workers_report_broken(t->workers, &t->lock, t->options.worker_broken,
                                    t->options.worker_broken_arg);
        uint64_t timeout_ns = give_out_jobs(t);
        pthread_mutex_unlock(&t->lock);
        cache_wait_sleep(&t->wait, timeout_ns);
        pthread_mutex_lock(&t->lock);
    }
    pthread_mutex_unlock(&t->lock);
    return NULL;
}

/* -- making it -- */

/* Any expert may come to lie in any slot. */
static void spread(void *memory, uint64_t bytes)
{
    static struct topology t; /* large */
    topology_read(&t);
    numa_spread(&t, memory, bytes);
}

static enum error_code make_region(struct tier *t, struct error *e)
{
    enum shm_pages pages;
    enum error_code code = shm_create_large("moed-host-tier", t->plan->bytes, &t->region, &pages, e);
    uint8_t *base = t->region.base;
    if (!code)
        spread(base, t->region.bytes);
    for (uint64_t at = 0; !code && at < t->plan->bytes; at += POPULATE_BYTES) {
        uint64_t left = t->plan->bytes - at;
        code = memory_populate(base + at, left < POPULATE_BYTES ? left : POPULATE_BYTES, e);
    }
    if (code)
        return code;
    host_tier_init(base, t->n_layers, t->n_experts, t->plan->slot_bytes, t->plan->n_slots,
                   t->options.generation);
    code = host_tier_attach(&t->table, base, t->region.bytes, e);
    return code ? code : shm_seal_writes(&t->region, e); /* this mapping stays writable */
}

static struct sched_cache *new_policy(struct tier *t)
{
    uint32_t first = t->n_layers;
    while (first > 0 && t->pool->slabs[first - 1].n_experts)
        first--;
    struct sched_cache_shape shape = {.n_layers = t->n_layers,
                                      .n_experts = t->n_experts,
                                      .n_segments = 1, /* an expert is here or not */
                                      .first_layer = first,
                                      .n_used = t->pool->header.params.router.n_used,
                                      .capacity = t->slots.n - t->reserve};
    struct sched_cache_options options = {0};
    return sched_cache_new(CACHE_VALUE, &shape, &options);
}

/* What a token may miss in a layer, yet an eighth of all at most. */
static uint32_t reserve_of(const struct tier *t)
{
    uint32_t most = t->plan->n_slots / 8, layer = t->pool->header.params.router.n_used;
    return layer < most ? layer : most;
}

static enum error_code make_tables(struct tier *t, struct error *e)
{
    size_t n = (size_t)t->n_layers * t->n_experts;
    t->experts = calloc(n, sizeof *t->experts);
    t->owner = calloc(t->plan->n_slots, sizeof *t->owner);
    if (!t->experts || !t->owner)
        return error_set(e, ERROR_MEMORY, "no memory for the table of experts");
    for (size_t i = 0; i < n; i++)
        t->experts[i].slot = TIER_NO_SLOT;
    memset(t->owner, 0xff, t->plan->n_slots * sizeof *t->owner);
    for (uint32_t i = 0; i < t->n_layers; i++)
        t->total += t->pool->slabs[i].n_experts;
    t->reserve = reserve_of(t);
    uint64_t fill = t->plan->n_slots - t->reserve;
    t->fill_total = fill < t->total ? fill : t->total;
    enum error_code code =
        cache_slots_init(&t->slots, NULL, NULL, t->plan->slot_bytes, t->plan->n_slots, t->plan->n_slots, e);
    if (!code && !(t->policy = new_policy(t)))
        code = error_set(e, ERROR_MEMORY, "no memory for the tier's policy");
    return code;
}

static enum error_code make(struct tier *t, const struct gguf *g, struct error *e)
{
    enum error_code code = make_region(t, e);
    if (!code)
        code = make_tables(t, e);
    if (!code)
        code = disk_reader_new(g, t->pool, &t->bell, &t->reader, e);
    if (code)
        return code;
    t->started_ns = clock_ns();
    int failed = pthread_create(&t->thread, NULL, disk_thread, t);
    if (failed)
        return error_set(e, ERROR_MEMORY, "cannot start the thread memd/disk: %s",
                         strerror(failed));
    t->has_thread = true;
    return ERROR_OK;
}

enum error_code tier_new(const struct gguf *g, const struct pool_plan *pool,
                         const struct tier_options *options, const struct tier_counters *counters,
                         struct tier **out, struct error *e)
{
    struct tier *t = aligned_alloc(_Alignof(struct tier), sizeof *t);
    if (!t)
        return error_set(e, ERROR_MEMORY, "no memory for the host tier");
    *t = (struct tier){.pool = pool,
                       .plan = options->plan,
                       .options = *options,
                       .counters = *counters,
                       .n_layers = pool->header.n_layers,
                       .n_experts = pool->header.params.router.n_experts};
    t->region.fd = -1;
    pthread_mutex_init(&t->lock, NULL);
    pthread_cond_init(&t->filled, NULL);
    enum error_code code = make(t, g, e);
    if (code) {
        tier_free(t);
        return code;
    }
    log_info("tier: %" PRIu32 " of %" PRIu64 " experts in memory, %.2f MB each, %" PRIu32
             " of them kept free for reads",
             t->slots.n, t->total, (double)t->plan->slot_bytes * 1e-6, t->reserve);
    *out = t;
    return ERROR_OK;
}

void tier_free(struct tier *t)
{
    if (!t)
        return;
    if (t->has_thread) {
        pthread_mutex_lock(&t->lock);
        t->stop = true;
        pthread_mutex_unlock(&t->lock);
        doorbell_ring(&t->bell);
        pthread_join(t->thread, NULL);
        for (int i = 0; i < CACHE_MAX_WORKERS; i++)
            t->workers[i].leaving = t->workers[i].present;
        tier_forget_leaving(t);
    }
    disk_reader_free(t->reader);
    sched_cache_free(t->policy);
    free(t->experts);
    free(t->owner);
    cache_slots_fini(&t->slots);
    shm_close(&t->region);
    pthread_cond_destroy(&t->filled);
    pthread_mutex_destroy(&t->lock);
    free(t);
}

/* -- the interface -- */

enum error_code tier_fill(struct tier *t,
                          void (*progress)(void *arg, uint64_t done, uint64_t total), void *arg,
                          struct error *e)
{
    uint64_t percent = 0;
    pthread_mutex_lock(&t->lock);
    while (t->fill_done < t->fill_total && !t->fill_failed) {
        pthread_cond_wait(&t->filled, &t->lock);
        uint64_t done = t->fill_done, now = done * 100 / t->fill_total;
        if (now == percent || !progress)
            continue;
        percent = now;
        pthread_mutex_unlock(&t->lock);
        progress(arg, done * t->plan->slot_bytes, t->fill_total * t->plan->slot_bytes);
        pthread_mutex_lock(&t->lock);
    }
    bool failed = t->fill_failed;
    pthread_mutex_unlock(&t->lock);
    return failed ? error_set(e, ERROR_IO, "%s: experts cannot be read; see the log",
                              t->pool->header.path)
                  : ERROR_OK;
}

const struct shm *tier_region(const struct tier *t)
{
    return &t->region;
}

const uint8_t *tier_pin(struct tier *t, uint32_t layer, uint32_t expert)
{
    const uint8_t *slab = NULL;
    pthread_mutex_lock(&t->lock);
    if (tier_restore(t, layer, expert)) {
        struct tier_expert *x = tier_expert_at(t, layer, expert);
        x->pins++;
        slab = host_tier_slot(&t->table, x->slot);
    }
    pthread_mutex_unlock(&t->lock);
    return slab;
}

bool tier_holds(struct tier *t, uint32_t layer, uint32_t expert)
{
    pthread_mutex_lock(&t->lock);
    enum slot_state where = tier_where(t, layer, expert);
    pthread_mutex_unlock(&t->lock);
    return where == SLOT_RESIDENT || where == SLOT_RETIRED; /* tier_restore */
}

void tier_unpin(struct tier *t, uint32_t layer, uint32_t expert, bool copied)
{
    pthread_mutex_lock(&t->lock);
    struct tier_expert *x = tier_expert_at(t, layer, expert);
    assert(x->pins > 0);
    x->pins--;
    if (copied)
        tier_mark_used(t, layer, expert);
    pthread_mutex_unlock(&t->lock);
}

/* Where its wish stands; where a new one goes, in place of the oldest if there are too many. */
static struct tier_wish *place_of_wish(struct tier *t, uint32_t layer, uint32_t expert)
{
    struct tier_wish *oldest = t->wishes;
    for (uint32_t i = 0; i < t->n_wishes; i++) {
        struct tier_wish *w = &t->wishes[i];
        if (w->layer == layer && w->expert == expert)
            return w;
        if (w->step < oldest->step)
            oldest = w;
    }
    if (t->n_wishes < TIER_WISHES)
        oldest = &t->wishes[t->n_wishes++];
    *oldest = (struct tier_wish){.layer = TIER_NO_LAYER};
    return oldest;
}

void tier_wish(struct tier *t, uint32_t layer, uint32_t expert, double probability, bool urgent)
{
    bool rings = false;
    pthread_mutex_lock(&t->lock);
    if (tier_restore(t, layer, expert)) { /* it has come since it was looked for */
        tier_wake_wisher(t);
    } else {
        struct tier_wish *w = place_of_wish(t, layer, expert);
        rings = w->layer != layer || urgent > w->urgent;
        *w = (struct tier_wish){layer, expert, probability, urgent, t->step};
    }
    pthread_mutex_unlock(&t->lock);
    if (rings)
        doorbell_ring(&t->bell);
}

void tier_wake_wisher(struct tier *t)
{
    if (t->device.wake)
        t->device.wake(t->device.wake_arg);
}

void tier_set_device(struct tier *t, const struct tier_device *device)
{
    pthread_mutex_lock(&t->lock);
    t->device = device ? *device : (struct tier_device){0};
    pthread_mutex_unlock(&t->lock);
}

void tier_state(struct tier *t, struct tier_state *out)
{
    pthread_mutex_lock(&t->lock);
    assert(cache_slots_add_up(&t->slots));
    const uint32_t *counts = t->slots.counts;
    count_busy(t, 0);
    *out = (struct tier_state){
        .slots = t->slots.n,
        .free = counts[SLOT_FREE],
        .resident = counts[SLOT_RESIDENT],
        .filling = counts[SLOT_FILLING],
        .retired = counts[SLOT_RETIRED],
        .slot_bytes = t->plan->slot_bytes,
        .experts = t->total,
        .since_ns = clock_ns() - t->started_ns,
        .busy_ns = t->busy_ns,
    };
    pthread_mutex_unlock(&t->lock);
}
