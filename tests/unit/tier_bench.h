/* A real host tier (memd/host/tier.h) over a small model's file, and workers of it in this process,
 * for test_tier.c, test_tier_stress.c and test_rounds.c. The truth is the same model loaded whole.
 * The workers use memd's own mappings, so that ThreadSanitizer sees both sides at one address. */
#ifndef MOED_TESTS_TIER_BENCH_H
#define MOED_TESTS_TIER_BENCH_H

#include "bench_wait.h"
#include "loaded_model.h"

#include "memd/host/tier_internal.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>
#include <cmocka.h>

enum { BENCH_GENERATION = 77 };

struct bench {
    struct loaded_model whole;
    struct gguf *g; /* the tier's own model file, with its plan */
    struct pool_plan plan;
    struct tier_plan tier_plan;
    struct tier *tier;
    struct counter read_bytes, reads, failed, prefetched, used, wasted, evictions, dropped;
    struct histogram seconds;
    _Atomic int changes;     /* calls of bench_file_changed */
    _Atomic uint64_t broken; /* key of the last worker that was reported */
};

struct bench_worker {
    struct bench *bench;
    struct shm region;
    struct cache_channel channel;
    uint64_t key, asked, counted;
};

static inline void bench_worker_broken(void *arg, uint64_t key)
{
    ((struct bench *)arg)->broken = key;
}

static inline void bench_file_changed(void *arg, const struct error *e)
{
    ((struct bench *)arg)->changes++;
}

static inline void bench_options(struct mkmodel_options *o)
{
    mkmodel_defaults(o);
    o->layers = 3;
    o->hidden = 256;
    o->experts = 16;
    o->top_k = 2;
    o->expert_width = 256;
    o->type = "Q4_K_M"; /* layers of different sizes */
    o->threads = 2;
}

static inline const char *bench_file(const struct bench *b)
{
    return b->whole.made;
}

/* The file and the plan. slots: of the tier. */
static inline void bench_plan(struct bench *b, const struct mkmodel_options *o, uint32_t slots)
{
    struct error e;
    memset(b, 0, sizeof *b);
    load_model(&b->whole, o);
    must(gguf_open(bench_file(b), &b->g, &e), &e);
    must(pool_plan_new(b->g, &b->plan, &e), &e);
    must(pool_plan_read_factors(&b->plan, b->g, &e), &e);
    char ram[32];
    uint64_t slot_bytes = 0;
    for (uint32_t i = 0; i < b->plan.header.n_layers; i++)
        if (b->plan.slabs[i].slab_bytes > slot_bytes)
            slot_bytes = b->plan.slabs[i].slab_bytes;
    slot_bytes = (slot_bytes + 4095) / 4096 * 4096;
    snprintf(ram, sizeof ram, "%llu",
             (unsigned long long)(b->plan.slabs[0].offset +
                                  host_tier_bytes(o->layers, o->experts, slot_bytes, slots)));
    must(tier_plan_new(&b->plan, ram, &b->tier_plan, &e), &e);
    assert_int_equal(b->tier_plan.n_slots, slots);
    pool_plan_keep_dense(&b->plan);
}

/* The tier, filled for the first time. */
static inline enum error_code bench_fill(struct bench *b, struct error *e)
{
    b->seconds.bounds = histogram_seconds_bounds;
    b->seconds.n_bounds = histogram_seconds_count;
    struct tier_counters counters = {&b->read_bytes, &b->reads,   &b->failed,
                                     &b->prefetched, &b->used,    &b->wasted,
                                     &b->evictions,  &b->dropped, &b->seconds};
    struct tier_options options = {.plan = &b->tier_plan,
                                   .generation = BENCH_GENERATION,
                                   .worker_broken = bench_worker_broken,
                                   .worker_broken_arg = b,
                                   .file_changed = bench_file_changed,
                                   .file_changed_arg = b};
    must(tier_new(b->g, &b->plan, &options, &counters, &b->tier, e), e);
    return tier_fill(b->tier, NULL, NULL, e);
}

static inline void bench_open(struct bench *b, const struct mkmodel_options *o, uint32_t slots)
{
    struct error e;
    bench_plan(b, o, slots);
    must(bench_fill(b, &e), &e);
}

/* The usual model on 8 slots. */
static inline void bench_start(struct bench *b)
{
    struct mkmodel_options o;
    bench_options(&o);
    bench_open(b, &o, 8);
}

static inline void bench_close(struct bench *b)
{
    tier_free(b->tier);
    pool_plan_free(&b->plan);
    gguf_close(b->g);
    unload_model(&b->whole);
}

static inline struct tier_state bench_state(struct bench *b)
{
    struct tier_state s;
    tier_state(b->tier, &s);
    return s;
}

static inline bool bench_is_slab(const struct bench *b, const uint8_t *at, uint32_t layer,
                                 uint32_t expert)
{
    return memcmp(at, pool_map_segment_place(&b->whole.map, layer, expert, 0),
                  b->whole.map.slabs[layer].slab_bytes) == 0;
}

/* Returns the slot as a worker sees it; -1: not in memory. */
static inline int64_t bench_slot(struct bench *b, uint32_t layer, uint32_t expert)
{
    return (int64_t)host_tier_read(&b->tier->table, layer, expert).slot_and_one - 1;
}

/* Returns the first inconsistency of this moment; NULL: none. */
static inline const char *bench_check_locked(struct bench *b)
{
    struct tier *t = b->tier;
    uint32_t resident = 0;
    if (!cache_slots_add_up(&t->server.slots))
        return "the slots do not add up";
    for (uint32_t layer = 0; layer < t->n_layers; layer++)
        for (uint32_t expert = 0; expert < b->plan.slabs[layer].n_experts; expert++) {
            int64_t slot = bench_slot(b, layer, expert);
            if ((tier_where(t, layer, expert) == SLOT_RESIDENT) != (slot >= 0))
                return "the table and the slots differ";
            if (slot < 0)
                continue;
            resident++;
            if (!bench_is_slab(b, host_tier_slot(&t->table, (uint32_t)slot), layer, expert))
                return "an expert in memory is not the model's";
        }
    return resident == t->server.slots.counts[SLOT_RESIDENT] ? NULL : "some slots have no owner";
}

static inline void bench_check(struct bench *b)
{
    pthread_mutex_lock(&b->tier->server.lock);
    const char *wrong = bench_check_locked(b);
    pthread_mutex_unlock(&b->tier->server.lock);
    if (wrong)
        fail_msg("%s", wrong);
}

static inline bool bench_present(struct bench *b)
{
    bool present = false;
    pthread_mutex_lock(&b->tier->server.lock);
    for (int i = 0; i < CACHE_MAX_WORKERS; i++)
        present |= b->tier->server.workers[i].present;
    pthread_mutex_unlock(&b->tier->server.lock);
    return present;
}

/* Pins and queued fetches of all experts together. */
static inline uint64_t bench_held(struct bench *b)
{
    uint64_t n = 0;
    pthread_mutex_lock(&b->tier->server.lock);
    for (size_t i = 0; i < (size_t)b->tier->n_layers * b->tier->n_experts; i++)
        n += b->tier->experts[i].pins + b->tier->experts[i].queued;
    pthread_mutex_unlock(&b->tier->server.lock);
    return n;
}

/* ---- workers ---- */

static inline void bench_attach(struct bench_worker *w, struct bench *b, uint64_t key)
{
    struct error e;
    *w = (struct bench_worker){.bench = b, .key = key};
    must(shm_create("moed-test-tier", cache_channel_bytes(), &w->region, &e), &e);
    cache_channel_init(w->region.base, BENCH_GENERATION);
    must(cache_channel_attach(&w->channel, w->region.base, w->region.bytes, &e), &e);
    must(tier_add_worker(b->tier, key, &w->region, &e), &e);
}

static inline void bench_push(struct bench_worker *w, uint32_t kind, uint64_t step, uint32_t layer,
                              uint32_t expert, uint32_t value)
{
    struct cache_record r = {.kind = kind, .layer = (uint16_t)layer, .n_entries = 1, .step = step};
    r.entries[0] = (struct cache_entry){(uint16_t)expert, (uint16_t)value};
    while (ring_push(&w->channel.fetches, &r) != 1)
        bench_nap(100000);
    ring_notify(&w->channel.fetches);
    w->asked += kind == CACHE_FETCH;
}

static inline void bench_fetch(struct bench_worker *w, uint32_t layer, uint32_t expert)
{
    bench_push(w, CACHE_FETCH, 1, layer, expert, 1);
}

static inline void bench_count(struct bench_worker *w, uint64_t n)
{
    w->counted += n;
    atomic_store(&w->channel.header->fetched, w->counted);
    ring_notify(&w->channel.fetches);
}

static inline void bench_epoch(struct bench_worker *w)
{
    atomic_fetch_add(&w->channel.header->host_epoch, 1);
}

struct bench_awaited {
    struct bench *bench;
    uint32_t layer, expert;
};

static inline bool bench_arrived(void *arg)
{
    const struct bench_awaited *a = arg;
    return bench_slot(a->bench, a->layer, a->expert) >= 0;
}

/* Waits by the doorbell, as a worker does. False: ten seconds have passed. */
static inline bool bench_await(struct bench_worker *w, uint32_t layer, uint32_t expert)
{
    struct bench_awaited a = {w->bench, layer, expert};
    return doorbell_wait(&w->channel.header->arrivals, bench_arrived, &a, NULL, 10000);
}

/* Within an odd epoch. Returns 1: in memory and whole; 0: not in memory; -1: not whole. */
static inline int bench_read(struct bench_worker *w, uint32_t layer, uint32_t expert)
{
    int64_t slot = bench_slot(w->bench, layer, expert);
    if (slot < 0)
        return 0;
    const uint8_t *at = host_tier_slot(&w->bench->tier->table, (uint32_t)slot);
    return bench_is_slab(w->bench, at, layer, expert) ? 1 : -1;
}

/* The expert comes, and its bytes are right. */
static inline void bench_fetch_once(struct bench_worker *w, uint32_t layer, uint32_t expert)
{
    bench_fetch(w, layer, expert);
    assert_true(bench_await(w, layer, expert));
    bench_epoch(w);
    assert_int_equal(bench_read(w, layer, expert), 1);
    bench_epoch(w);
    bench_count(w, 1);
}

/* The same for every expert, twice, by a worker of its own. */
static inline void bench_read_all(struct bench *b, const struct mkmodel_options *o)
{
    struct bench_worker w;
    bench_attach(&w, b, 1);
    for (int round = 0; round < 2; round++)
        for (uint32_t layer = 0; layer < o->layers; layer++)
            for (uint32_t expert = 0; expert < b->plan.slabs[layer].n_experts; expert++)
                bench_fetch_once(&w, layer, expert);
    bench_check(b);
    BENCH_UNTIL(bench_held(b) == 0);
    assert_int_equal(counter_read(&b->failed), 0);
}

#endif
