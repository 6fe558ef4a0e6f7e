/* A real cache (memd/device/cache.h) over a made-up pool whose every byte is known, and workers of
 * it in this process, for test_cache.c and test_cache_stress.c. The workers use memd's own
 * mappings, so that ThreadSanitizer sees both sides at one address. */
#ifndef MOED_TESTS_CACHE_BENCH_H
#define MOED_TESTS_CACHE_BENCH_H

#include "bench_wait.h"

#include "base/checked.h"
#include "ipc/arena_follow.h"
#include "memd/device/cache_internal.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <cmocka.h>

/* Layers of the made-up pool: the first has no experts, the others differ in segments and their
 * size. */
enum { LAYERS = 4, EXPERTS = 8, MOST_SEGMENTS = 3, SLOT_BYTES = 4096 };
static const uint32_t bench_segments[LAYERS] = {0, 2, 3, 1};
static const uint32_t bench_segment_bytes[LAYERS] = {0, 4096, 1920, 4032};
enum { ALL_SEGMENTS = EXPERTS * (2 + 3 + 1), BENCH_GENERATION = 77 };

struct bench {
    struct pool_header header;
    struct pool_slabs slabs[LAYERS];
    uint8_t *pool;
    struct cache *cache;
    struct residency_table table;
    struct counter asked, measured, used, demanded, prefetched, predicted, predicted_used, wasted,
        merged, dropped, evictions;
    struct histogram queue, copy;
    _Atomic uint64_t broken; /* key of the last worker that was reported */
    _Atomic uint32_t n_broken;
};

struct bench_worker {
    struct cache *cache;
    struct residency_table table;
    struct shm region;
    struct cache_channel channel;
    struct arena_follower follower;
    const uint8_t
        *places[ARENA_EXTENTS]; /* each extent's first slot; NULL: this worker does not have it */
    uint64_t key, asked, consumed;
};

/* Word i of a segment: unlike any other segment's, and never poison. */
static inline uint64_t bench_word(uint32_t layer, uint32_t expert, uint32_t segment, uint32_t i)
{
    return ((uint64_t)layer << 48 | (uint64_t)expert << 40 | (uint64_t)segment << 32) + i + 1;
}

/* Is this segment's content whole at `at`? */
static inline bool bench_is_segment(const uint8_t *at, uint32_t layer, uint32_t expert,
                                    uint32_t segment)
{
    const uint64_t *words = (const uint64_t *)at;
    for (uint32_t i = 0; i < bench_segment_bytes[layer] / 8; i++)
        if (words[i] != bench_word(layer, expert, segment, i))
            return false;
    return true;
}

static inline bool bench_is_poison(const uint8_t *at, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        if (at[i] != 0xff)
            return false;
    return true;
}

static inline void bench_worker_broken(void *arg, uint64_t key)
{
    struct bench *b = arg;
    b->broken = key;
    b->n_broken++;
}

static inline void bench_make_pool(struct bench *b)
{
    uint64_t bytes = 0;
    for (uint32_t layer = 0; layer < LAYERS; layer++) {
        struct pool_slabs *s = &b->slabs[layer];
        s->offset = bytes;
        s->n_segments = bench_segments[layer];
        s->n_experts = s->n_segments ? EXPERTS : 0;
        s->segment_bytes = bench_segment_bytes[layer];
        s->slab_bytes = s->segment_bytes * s->n_segments;
        bytes += s->slab_bytes * s->n_experts;
    }
    b->header = (struct pool_header){
        .generation = BENCH_GENERATION, .n_layers = LAYERS, .expert_bytes = bytes};
    b->pool = aligned_alloc(64, round_up(bytes, 64));
    uint64_t *word = (uint64_t *)b->pool;
    for (uint32_t layer = 0; layer < LAYERS; layer++)
        for (uint32_t expert = 0; expert < b->slabs[layer].n_experts; expert++)
            for (uint32_t segment = 0; segment < bench_segments[layer]; segment++)
                for (uint32_t i = 0; i < bench_segment_bytes[layer] / 8; i++)
                    *word++ = bench_word(layer, expert, segment, i);
}

/* Plans and allocates the arena before there is a cache, as memd does. Frees the link on failure.
 */
static inline enum error_code bench_make_arena(const struct pool_map *map,
                                               const struct device_spec *device,
                                               struct cache_options *options,
                                               struct device_plan *plan, struct error *e)
{
    struct device_plan_options o = {.device = device, .parallel = 1};
    enum error_code code = device_plan_new(options->link, map, &o, plan, e);
    if (!code)
        code =
            device_link_allocate(options->link, plan->dense_bytes, plan->n_flags, plan->slot_bytes,
                                 plan->layout, plan->n_slots, &options->arena, e);
    if (code)
        device_link_free(options->link);
    options->plan = plan;
    return code;
}

static inline enum error_code bench_try(struct bench *b, enum sched_cache_kind kind, uint64_t vram,
                                        double latency_s, struct error *e)
{
    memset(b, 0, sizeof *b);
    bench_make_pool(b);
    struct pool_map map = {.base = b->pool, .header = &b->header, .slabs = b->slabs};
    map.params.router.n_experts = EXPERTS;
    map.params.router.n_used = 2;
    map.params.n_layers = LAYERS;
    struct device_spec device = {.kind = DEVICE_EMU,
                                 .vram_bytes = vram,
                                 .link_bytes_per_s = 50e9,
                                 .link_latency_s = latency_s,
                                 .speed = 1};
    struct cache_options options = {
        .cache = kind,
        .budget = sched_cache_budget(kind),
        .worker_broken = bench_worker_broken,
        .worker_broken_arg = b,
    };
    b->queue.bounds = b->copy.bounds = histogram_seconds_bounds;
    b->queue.n_bounds = b->copy.n_bounds = histogram_seconds_count;
    struct cache_counters counters = {
        .asked_bytes = &b->asked,
        .measured_bytes = &b->measured,
        .used_bytes = &b->used,
        .demanded_bytes = &b->demanded,
        .prefetched_bytes = &b->prefetched,
        .predicted_bytes = &b->predicted,
        .predicted_used_bytes = &b->predicted_used,
        .wasted_bytes = &b->wasted,
        .merged = &b->merged,
        .dropped = &b->dropped,
        .evictions = &b->evictions,
        .queue_seconds = &b->queue,
        .copy_seconds = &b->copy,
    };
    struct device_plan plan;
    enum error_code code = device_link_new(&device, &options.link, e);
    if (!code)
        code = bench_make_arena(&map, &device, &options, &plan, e);
    return code ? code : cache_new(&map, &options, &counters, &b->cache, e);
}

static inline void bench_open(struct bench *b, enum sched_cache_kind kind, uint32_t slots,
                              double latency_s)
{
    struct error e;
    if (bench_try(b, kind, (uint64_t)slots * SLOT_BYTES, latency_s, &e))
        fail_msg("%s", e.text);
    const struct shm *s = cache_residency(b->cache);
    if (residency_attach(&b->table, s->base, s->bytes, &e))
        fail_msg("%s", e.text);
}

static inline void bench_close(struct bench *b)
{
    cache_free(b->cache);
    free(b->pool);
}

/* Returns the first inconsistency of slots, table and arena at this moment; NULL: none. */
static inline const char *bench_check_locked(const struct bench *b)
{
    const struct cache_slots *s = &b->cache->server.slots;
    static uint8_t named[1024];
    if (!cache_slots_add_up(s))
        return "the slots do not add up";
    memset(named, 0, sizeof named);
    uint32_t resident = 0, filling = 0;
    for (uint32_t layer = 0; layer < LAYERS; layer++)
        for (uint32_t expert = 0; expert < b->slabs[layer].n_experts; expert++) {
            struct residency r = residency_read(&b->table, layer, expert);
            filling += r.in_flight;
            for (uint32_t i = 0; i < r.resident; i++, resident++) {
                uint32_t slot = atomic_load(residency_slot(&b->table, layer, expert, i));
                if (slot >= s->n || named[slot]++ || s->states[slot] != SLOT_RESIDENT)
                    return "a resident segment has no slot of its own";
                const uint8_t *at = device_arena_slot(s->arena, slot);
                if (!bench_is_segment(at, layer, expert, i))
                    return "a resident segment is not the pool's";
                if (!bench_is_poison(at + bench_segment_bytes[layer],
                                     SLOT_BYTES - bench_segment_bytes[layer]))
                    return "what a segment leaves of its slot is not poison";
            }
        }
    for (uint32_t i = 0; i < s->n; i++)
        if (s->states[i] == SLOT_FREE &&
            !bench_is_poison(device_arena_slot(s->arena, i), SLOT_BYTES))
            return "a free slot is not poison";
    if (resident != s->counts[SLOT_RESIDENT] || filling != s->counts[SLOT_FILLING])
        return "the table and the slots count differently";
    return NULL;
}

static inline void bench_check(struct bench *b)
{
    pthread_mutex_lock(&b->cache->server.lock);
    const char *wrong = bench_check_locked(b);
    pthread_mutex_unlock(&b->cache->server.lock);
    if (wrong)
        fail_msg("%s", wrong);
    struct cache_state s;
    cache_state(b->cache, &s);
    assert_int_equal(s.slots.total,
                     s.slots.free + s.slots.resident + s.slots.filling + s.slots.retired);
}

/* The loads of the worker in this place (0: the first that attached) that memd served and the
 * worker consumed so far. */
static inline uint64_t bench_queue(struct bench *b, int place, bool served)
{
    pthread_mutex_lock(&b->cache->server.lock);
    const struct cache_worker *w = &b->cache->server.workers[place];
    uint64_t n = !w->present ? 0 : served ? w->queue->served : w->queue->consumed;
    pthread_mutex_unlock(&b->cache->server.lock);
    return n;
}

static inline uint64_t bench_served(struct bench *b, int place)
{
    return bench_queue(b, place, true);
}

static inline uint64_t bench_consumed(struct bench *b, int place)
{
    return bench_queue(b, place, false);
}

/* Returns the number of workers. */
static inline uint32_t bench_present(struct bench *b)
{
    uint32_t present = 0;
    pthread_mutex_lock(&b->cache->server.lock);
    for (int i = 0; i < CACHE_MAX_WORKERS; i++)
        present += b->cache->server.workers[i].present;
    pthread_mutex_unlock(&b->cache->server.lock);
    return present;
}

static inline struct cache_state bench_state(struct bench *b)
{
    struct cache_state s;
    cache_state(b->cache, &s);
    return s;
}

static inline uint32_t bench_resident(const struct bench *b, uint32_t layer, uint32_t expert)
{
    return residency_read(&b->table, layer, expert).resident;
}

/* ---- workers ---- */

/* memd's own mapping, so that ThreadSanitizer sees what memd writes there before it shows the
 * extent and after the extent is closed. */
static inline enum error_code bench_import(void *arg, uint32_t extent,
                                           const struct residency_extent *what, struct error *e)
{
    struct bench_worker *w = arg;
    (void)e;
    assert_null(w->places[extent]);
    assert_true(what->n_slots > 0);
    w->places[extent] = cache_arena(w->cache)->extents[extent].slots;
    return ERROR_OK;
}

static inline void bench_close_extent(void *arg, uint32_t extent)
{
    ((struct bench_worker *)arg)->places[extent] = NULL;
}

static inline void bench_make_region(struct bench_worker *w, struct bench *b, uint64_t key)
{
    struct error e;
    *w = (struct bench_worker){.cache = b->cache, .table = b->table, .key = key};
    w->places[0] = cache_arena(b->cache)->extents[0].slots;
    if (shm_create("moed-test-cache", cache_channel_bytes(), &w->region, &e))
        fail_msg("%s", e.text);
    cache_channel_init(w->region.base, BENCH_GENERATION);
    if (cache_channel_attach(&w->channel, w->region.base, w->region.bytes, &e))
        fail_msg("%s", e.text);
    w->follower = (struct arena_follower){.header = b->table.header,
                                          .channel = w->channel.header,
                                          .arg = w,
                                          .import = bench_import,
                                          .close = bench_close_extent};
}

/* Follows the arena like a worker's engine, between two epochs. */
static inline void bench_follow(struct bench_worker *w)
{
    struct error e;
    if (arena_changed(&w->follower) && arena_follow(&w->follower, &e))
        fail_msg("%s", e.text);
}

static inline void bench_attach(struct bench_worker *w, struct bench *b, uint64_t key)
{
    struct error e;
    bench_make_region(w, b, key);
    if (cache_add_worker(b->cache, key, &w->region, &e))
        fail_msg("%s", e.text);
    bench_follow(w);
}

static inline void bench_push_record(struct bench_worker *w, const struct cache_record *r)
{
    while (ring_push(&w->channel.requests, r) != 1)
        bench_nap(100000);
    ring_notify(&w->channel.requests);
    w->asked += r->kind == CACHE_LOAD ? r->n_entries : 0;
}

static inline void bench_push(struct bench_worker *w, enum cache_record_kind kind, uint64_t step,
                              uint32_t layer, uint32_t expert, uint32_t value)
{
    struct cache_record r = {.kind = kind, .layer = (uint16_t)layer, .n_entries = 1, .step = step};
    r.entries[0] = (struct cache_entry){(uint16_t)expert, (uint16_t)value};
    bench_push_record(w, &r);
}

static inline void bench_load(struct bench_worker *w, uint32_t layer, uint32_t expert,
                              uint32_t prefix)
{
    bench_push(w, CACHE_LOAD, 1, layer, expert, prefix);
}

static inline void bench_consume(struct bench_worker *w, uint64_t n)
{
    w->consumed += n;
    atomic_store(&w->channel.header->consumed, w->consumed);
}

/* Begins an epoch (odd) or ends it (even). */
static inline void bench_epoch(struct bench_worker *w)
{
    if (atomic_load(&w->channel.header->epoch) % 2 == 0)
        bench_follow(w);
    atomic_fetch_add(&w->channel.header->epoch, 1);
}

struct bench_awaited {
    struct bench_worker *worker;
    uint32_t layer, expert, prefix;
};

static inline bool bench_arrived(void *arg)
{
    const struct bench_awaited *a = arg;
    return residency_read(&a->worker->table, a->layer, a->expert).resident >= a->prefix;
}

/* Waits by the doorbell, like a worker. False: ten seconds have passed. */
static inline bool bench_await(struct bench_worker *w, uint32_t layer, uint32_t expert,
                               uint32_t prefix)
{
    struct bench_awaited a = {w, layer, expert, prefix};
    return doorbell_wait(&w->channel.header->arrivals, bench_arrived, &a, NULL, 10000);
}

/* Within an odd epoch: the resident segments of an expert as the table has them; -1: one is not
 * whole. */
static inline int bench_read(const struct bench_worker *w, uint32_t layer, uint32_t expert)
{
    struct arena_layout layout = w->table.header->slots;
    struct residency r = residency_read(&w->table, layer, expert);
    for (uint32_t i = 0; i < r.resident; i++) {
        uint32_t slot =
            atomic_load_explicit(residency_slot(&w->table, layer, expert, i), memory_order_acquire);
        uint32_t extent = arena_extent_of(layout, slot);
        const uint8_t *at = w->places[extent];
        if (!at ||
            !bench_is_segment(at + (size_t)(slot - arena_extent_begin(layout, extent)) * SLOT_BYTES,
                              layer, expert, i))
            return -1;
    }
    return r.resident;
}

#endif
