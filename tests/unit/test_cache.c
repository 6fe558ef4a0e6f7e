/* memd's expert cache: loads in order, free slots, eviction, predictions, workers that leave, a
 * change of the policy, metrics. The truth: a made-up pool whose every byte is known, compared with
 * the arena's slots; order and counts worked out by hand from cache.h. */
#include "cache_bench.h"
#include "loaded_model.h"
#include "memd/device/cache_metrics.h"

#define FAST 0.0
#define SLOW 0.005

/* ---- loads ---- */

/* An arena for all segments: each load arrives after all loads before it, with any records, and
 * stays. */
static void test_in_order(void **state)
{
    static const uint8_t asked[][3] = {{3, 5, 1}, {1, 0, 2}, {2, 7, 3}, {2, 1, 1},
                                       {1, 0, 1}, {3, 5, 1}, {2, 1, 2}, {1, 7, 2}};
    enum { N = sizeof asked / sizeof asked[0] };
    struct bench b;
    struct bench_worker w;
    bench_open(&b, CACHE_LRU, ALL_SEGMENTS, 0.001);
    bench_attach(&w, &b, 1);
    struct cache_record r[3] = {{.kind = CACHE_LOAD, .layer = 2}};
    for (int i = 0; i < N; i++)
        bench_load(&w, asked[i][0], asked[i][1], asked[i][2]);
    bool all = false;
    for (uint64_t end = clock_ns() + 10000000000u; !all && clock_ns() < end;) {
        uint32_t there = 0; /* bit i: load i is; the last is looked at first */
        for (int i = N; i-- > 0;)
            if (bench_resident(&b, asked[i][0], asked[i][1]) >= asked[i][2])
                there |= 1u << i;
        /* 1 covers 4, 0 is 5, so of the loads that need a copy of their own these must be a prefix
         */
        static const int own[] = {0, 1, 2, 3, 6, 7};
        for (int i = 1; i < 6; i++)
            assert_true(!(there >> own[i] & 1) || (there >> own[i - 1] & 1));
        all = there == (1u << N) - 1;
        bench_check(&b);
    }
    assert_true(all);
    assert_int_equal(counter_read(&b.demanded), 4032 + 2 * 4096 + 3 * 1920 + 2 * 1920 + 2 * 4096);
    assert_int_equal(counter_read(&b.prefetched) + counter_read(&b.evictions), 0);
    assert_int_equal(bench_state(&b).slots.resident, 1 + 2 + 3 + 2 + 2);
    assert_int_equal(bench_resident(&b, 2, 1), 2); /* the requested segments */
    /* One record of many entries, of which two of the same expert. */
    r[0].n_entries = 3;
    r[0].entries[0] = (struct cache_entry){4, 3};
    r[0].entries[1] = (struct cache_entry){6, 1};
    r[0].entries[2] = (struct cache_entry){4, 2};
    assert_int_equal(ring_push(&w.channel.requests, &r[0]), 1);
    ring_notify(&w.channel.requests);
    assert_true(bench_await(&w, 2, 6, 1) && bench_resident(&b, 2, 4) == 3);
    BENCH_UNTIL(bench_served(&b, 0) == N + 3);
    bench_check(&b);
    bench_close(&b);
}

/* A real model in the pool, the arena mapped read-only by its descriptor as a worker has it. */
static void test_real_model(void **state)
{
    static struct loaded_model m;
    struct mkmodel_options o;
    mkmodel_defaults(&o);
    o.layers = 2;
    o.hidden = 256;
    o.experts = 8;
    o.expert_width = 256;
    o.type = "Q4_K_M"; /* layers of different sizes */
    o.threads = 2;
    load_model(&m, &o);
    struct cache_options options = {.cache = CACHE_LRU};
    struct cache_counters none = {0};
    struct error e;
    struct bench b = {0};
    struct device_spec device;
    must(device_parse("emu:vram=50%,link=10G", &device, &e), &e);
    must(device_link_new(&device, &options.link, &e), &e);
    struct device_plan plan;
    must(bench_make_arena(&m.map, &device, &options, &plan, &e), &e);
    must(cache_new(&m.map, &options, &none, &b.cache, &e), &e);
    const struct shm *table = cache_residency(b.cache);
    must(residency_attach(&b.table, table->base, table->bytes, &e), &e);
    struct bench_worker w;
    bench_make_region(&w, &b, 1);
    cache_channel_init(w.region.base, m.map.header->generation);
    must(cache_add_worker(b.cache, 1, &w.region, &e), &e);
    const struct device_arena *arena = cache_arena(b.cache);
    assert_true(arena->n_extents > 1);
    /* As others come to it: by the descriptor of the first extent, and never writable. */
    const struct shm *shared = &arena->extents[0].shared;
    struct shm region;
    assert_int_equal(shm_map(dup(shared->fd), true, 1, &region, NULL), ERROR_PROTOCOL);
    must(shm_map(dup(shared->fd), false, shared->bytes, &region, &e), &e);
    uint64_t offsets[ARENA_EXTENTS];
    for (uint32_t i = 0; i < arena->n_extents; i++)
        memcpy(&offsets[i], arena->extents[i].handle.bytes, sizeof offsets[i]);
    for (uint32_t layer = 0; layer < 2; layer++)
        for (uint32_t expert = 0; expert < 8; expert++) {
            const struct pool_slabs *s = &m.map.slabs[layer];
            bench_load(&w, layer, expert, s->n_segments);
            assert_true(bench_await(&w, layer, expert, s->n_segments));
            for (uint32_t i = 0; i < s->n_segments; i++) {
                uint32_t slot = *residency_slot(&b.table, layer, expert, i);
                uint32_t extent = arena_extent_of(arena->layout, slot);
                const uint8_t *at =
                    (const uint8_t *)region.base + offsets[extent] +
                    (slot - arena_extent_begin(arena->layout, extent)) * b.table.header->slot_bytes;
                assert_memory_equal(at, pool_map_segment_place(&m.map, layer, expert, i),
                                    s->segment_bytes);
            }
            bench_consume(&w, 1);
        }
    shm_close(&region);
    cache_free(b.cache);
    unload_model(&m);
}

/* A load arrives soon behind any number of records that cause no copy, though memd takes a limited
 * number of records of a worker at once. They ring once; memd would sleep for a second. */
static void test_behind_many_records(void **state)
{
    static const int before[] = {127, 128, 129, 500};
    for (size_t n = 0; n < sizeof before / sizeof before[0]; n++) {
        struct bench b;
        struct bench_worker w;
        bench_open(&b, CACHE_LRU, ALL_SEGMENTS, FAST);
        bench_attach(&w, &b, 1);
        bench_nap(20000000); /* the engine thread sleeps */
        struct cache_record r = {.kind = CACHE_ROUTED, .layer = 1, .n_entries = 1, .step = 1};
        r.entries[0] = (struct cache_entry){7, 1};
        for (int i = 0; i < before[n]; i++)
            assert_int_equal(ring_push(&w.channel.requests, &r), 1);
        uint64_t began = clock_ns();
        bench_load(&w, 1, 0, 2);
        assert_true(bench_await(&w, 1, 0, 2));
        assert_in_range(clock_ns() - began, 0, 500000000);
        bench_close(&b);
    }
}

/* Under each policy, far more loads than slots: each load arrives and stays until its worker
 * consumes it, and the slots add up. */
static void test_policies(void **state)
{
    for (int kind = CACHE_NONE; kind <= CACHE_VALUE; kind++) {
        struct bench b;
        struct bench_worker w;
        bench_open(&b, (enum sched_cache_kind)kind, 16, FAST);
        bench_attach(&w, &b, 1);
        uint32_t seed = 1;
        for (uint64_t step = 1; step <= 60; step++)
            for (uint32_t layer = 1; layer < LAYERS; layer++) {
                uint32_t first = (seed = seed * 1664525 + 1013904223) >> 24;
                uint32_t x[2] = {first % EXPERTS, (first + 3) % EXPERTS};
                for (int i = 0; i < 2; i++)
                    bench_push(&w, CACHE_ROUTED, step, layer, x[i], 1);
                for (int i = 0; i < 2; i++)
                    bench_load(&w, layer, x[i], bench_segments[layer]);
                for (int i = 0; i < 2; i++)
                    assert_true(bench_await(&w, layer, x[i], bench_segments[layer]));
                bench_check(&b);
                for (int i = 0; i < 2; i++)
                    assert_int_equal(bench_resident(&b, layer, x[i]), bench_segments[layer]);
                bench_consume(&w, 2);
            }
        assert_true(counter_read(&b.evictions) > 0);
        if (kind == CACHE_NONE)
            BENCH_UNTIL(bench_state(&b).slots.free == 16);
        else if (kind == CACHE_LRU)
            assert_true(bench_state(&b).slots.resident >= 14); /* all but the reserve */
        /* Without requests the policy's own copies come to an end. */
        uint64_t bytes = 0, end = clock_ns() + 10000000000u;
        while (bytes != bench_state(&b).link_bytes && clock_ns() < end) {
            bytes = bench_state(&b).link_bytes;
            bench_nap(30000000);
        }
        assert_int_equal(bytes, bench_state(&b).link_bytes);
        bench_check(&b);
        bench_close(&b);
    }
}

static uint32_t in_flight(const struct bench *b, uint32_t layer, uint32_t expert)
{
    return residency_read(&b->table, layer, expert).in_flight;
}

/* Loads are queued behind the copy under way; segments that are neighbours in host memory get
 * neighbouring slots and are one copy. A worker that leaves then takes no queued copy with it, and
 * the cache may end with copies in the queue. */
static void test_queue(void **state)
{
    for (int ends = 0; ends < 2; ends++) {
        struct bench b;
        struct bench_worker w;
        bench_open(&b, CACHE_LRU, ALL_SEGMENTS, 40 * SLOW);
        bench_attach(&w, &b, 1);
        bench_load(&w, 3, 0, 1); /* takes the first slot, which has no neighbour: its extent ends */
        assert_true(bench_await(&w, 3, 0, 1));
        for (uint32_t expert = 0; expert < 4; expert++)
            bench_load(&w, 1, expert, 2);
        BENCH_UNTIL(in_flight(&b, 1, 0) == 2 && in_flight(&b, 1, 1) == 2);
        assert_int_equal(in_flight(&b, 1, 2), 0); /* the link is slow: two copies are enough */
        bench_check(&b);
        if (ends) {
            bench_close(&b);
            return;
        }
        cache_remove_worker(b.cache, 1);
        BENCH_UNTIL(bench_resident(&b, 1, 1) == 2);
        assert_int_equal(bench_resident(&b, 1, 0), 2);
        assert_int_equal(atomic_load(residency_slot(&b.table, 1, 0, 1)),
                         atomic_load(residency_slot(&b.table, 1, 0, 0)) + 1);
        BENCH_UNTIL(bench_state(&b).slots.filling == 0);
        uint64_t copies = 0;
        for (uint32_t i = 0; i <= b.copy.n_bounds; i++)
            copies += b.copy.buckets[i];
        assert_int_equal(copies, 1 + 2); /* of five segments */
        assert_int_equal(bench_resident(&b, 1, 2), 0);
        bench_check(&b);
        bench_close(&b);
    }
}

/* More loads of a layer than slots: in waves, as they are consumed. One slot; and two, of experts
 * of two segments. */
static void test_waves(void **state)
{
    static const struct {
        enum sched_cache_kind kind;
        uint32_t slots, layer;
    } cases[] = {{CACHE_NONE, 1, 3}, {CACHE_LRU, 1, 3},    {CACHE_NONE, 2, 1},
                 {CACHE_LRU, 2, 1},  {CACHE_STATIC, 3, 1}, {CACHE_VALUE, 3, 2}};
    for (size_t n = 0; n < sizeof cases / sizeof cases[0]; n++) {
        struct bench b;
        struct bench_worker w;
        uint32_t segments = bench_segments[cases[n].layer];
        bench_open(&b, cases[n].kind, cases[n].slots, FAST);
        bench_attach(&w, &b, 1);
        for (uint32_t round = 0; round < 3; round++) {
            for (uint32_t i = 0; i < EXPERTS; i++)
                bench_load(&w, cases[n].layer, i, segments);
            for (uint32_t i = 0; i < EXPERTS; i++) {
                assert_true(bench_await(&w, cases[n].layer, i, segments));
                bench_epoch(&w);
                assert_int_equal(bench_read(&w, cases[n].layer, i), segments);
                bench_check(&b);
                bench_epoch(&w);
                bench_consume(&w, 1);
            }
        }
        bench_close(&b);
    }
}

/* More segments than slots: memd loads as many as fit, and continues. */
static void test_larger_than_the_arena(void **state)
{
    struct bench b;
    struct bench_worker w;
    struct error e;
    bench_open(&b, CACHE_LRU, 2, FAST);
    bench_attach(&w, &b, 1);
    bench_load(&w, 2, 0, 3);
    bench_load(&w, 1, 1, 1);
    assert_true(bench_await(&w, 2, 0, 2));
    bench_consume(&w, 1);
    assert_true(bench_await(&w, 1, 1, 1));
    bench_close(&b);
    assert_int_equal(bench_try(&b, CACHE_LRU, SLOT_BYTES - 1, 0, &e), ERROR_USAGE);
    free(b.pool);
}

/* Two workers request the same segment: memd copies it once, and keeps it until both have consumed
 * it. */
static void test_merged(void **state)
{
    struct bench b;
    struct bench_worker w[2];
    bench_open(&b, CACHE_NONE, 4, SLOW);
    bench_attach(&w[0], &b, 1);
    bench_attach(&w[1], &b, 2);
    bench_load(&w[0], 1, 3, 2);
    bench_load(&w[1], 1, 3, 2);
    assert_true(bench_await(&w[0], 1, 3, 2) && bench_await(&w[1], 1, 3, 2));
    assert_int_equal(counter_read(&b.demanded), 2 * 4096);
    BENCH_UNTIL(bench_served(&b, 0) == 1 && bench_served(&b, 1) == 1);
    assert_int_equal(counter_read(&b.merged), 1);
    bench_consume(&w[0], 1);
    BENCH_UNTIL(bench_consumed(&b, 0) == 1);
    bench_nap(10000000);
    assert_int_equal(bench_resident(&b, 1, 3), 2);
    bench_consume(&w[1], 1);
    BENCH_UNTIL(bench_state(&b).slots.free == 4);
    assert_int_equal(counter_read(&b.wasted), 0);
    bench_check(&b);
    bench_close(&b);
}

/* If a worker counts a load as consumed before memd serves it, memd does not wait for it and pins
 * nothing. */
static void test_reclaimed(void **state)
{
    struct bench b;
    struct bench_worker w;
    bench_open(&b, CACHE_NONE, 2, SLOW);
    bench_attach(&w, &b, 1);
    bench_load(&w, 1, 0, 2);
    for (uint32_t i = 1; i < EXPERTS; i++)
        bench_load(&w, 1, i, 2);
    assert_true(bench_await(&w, 1, 0, 2));
    bench_consume(&w, EXPERTS - 1); /* all but the last */
    assert_true(bench_await(&w, 1, EXPERTS - 1, 2));
    bench_consume(&w, 100); /* more than it requested: later loads are void as well */
    BENCH_UNTIL(bench_state(&b).slots.free == 2);
    assert_true(counter_read(&b.demanded) <= 5 * 4096); /* one more had begun at most */
    bench_check(&b);
    bench_close(&b);
}

/* ---- epochs and leaving ---- */

static void test_epoch_holds(void **state)
{
    struct bench b;
    struct bench_worker w[2];
    bench_open(&b, CACHE_LRU, 1, FAST);
    bench_attach(&w[0], &b, 1);
    bench_attach(&w[1], &b, 2);
    bench_load(&w[0], 3, 0, 1);
    assert_true(bench_await(&w[0], 3, 0, 1));
    bench_epoch(&w[0]);
    bench_consume(&w[0], 1);
    bench_load(&w[1], 3, 1, 1);
    BENCH_UNTIL(bench_resident(&b, 3, 0) == 0); /* taken out of the table */
    bench_nap(20000000);
    assert_int_equal(bench_state(&b).slots.retired, 1);
    assert_true(bench_is_segment(cache_arena(b.cache)->extents[0].slots, 3, 0,
                                 0)); /* and its bytes are still in the slot */
    assert_int_equal(bench_resident(&b, 3, 1), 0);
    bench_epoch(&w[0]);
    assert_true(bench_await(&w[1], 3, 1, 1));
    bench_check(&b);
    bench_close(&b);
}

/* A worker dies with pins, with an odd epoch, with loads waiting. */
static void test_worker_leaves(void **state)
{
    struct bench b;
    struct bench_worker w[2];
    bench_open(&b, CACHE_LRU, 2, FAST);
    bench_attach(&w[0], &b, 1);
    bench_attach(&w[1], &b, 2);
    bench_load(&w[0], 1, 0, 2);
    assert_true(bench_await(&w[0], 1, 0, 2));
    bench_load(&w[0], 1, 5, 2); /* waits for the slots of its own pins */
    bench_epoch(&w[0]);
    bench_nap(5000000);
    bench_load(&w[1], 2, 3, 2);
    bench_nap(20000000);
    assert_int_equal(bench_resident(&b, 2, 3), 0);
    assert_int_equal(bench_resident(&b, 1, 0), 2);
    cache_remove_worker(b.cache, 1);
    assert_true(bench_await(&w[1], 2, 3, 2));
    assert_int_equal(bench_resident(&b, 1, 5), 0);
    bench_check(&b);
    bench_close(&b);
}

/* ---- predictions ---- */

static void test_predictions(void **state)
{
    struct bench b;
    struct bench_worker w;
    bench_open(&b, CACHE_LRU, 16, 6 * SLOW);
    bench_attach(&w, &b, 1);
    atomic_store(&w.channel.header->place, 5 << 16 | 2);
    bench_push(&w, CACHE_PREDICTED, 5, 1, 0, 60000); /* passed */
    bench_push(&w, CACHE_PREDICTED, 4, 3, 0, 60000); /* passed a step ago */
    bench_push(&w, CACHE_PREDICTED, 5, 3, 1, 100);
    BENCH_UNTIL(bench_resident(&b, 3, 1) == 1);
    assert_int_equal(counter_read(&b.dropped), 2);
    assert_int_equal(counter_read(&b.prefetched), 4032);
    /* The most probable prediction is served first; a load precedes all predictions, after one
     * segment at most. */
    for (uint32_t i = 4; i-- > 0;) /* the engine may take each at once */
        bench_push(&w, CACHE_PREDICTED, 6, 2, i, 1000 * (i + 1));
    BENCH_UNTIL(bench_resident(&b, 2, 3) + residency_read(&b.table, 2, 3).in_flight > 0);
    uint64_t before = counter_read(&b.prefetched);
    bench_load(&w, 1, 6, 1);
    assert_true(bench_await(&w, 1, 6, 1));
    assert_true(counter_read(&b.prefetched) <= before + 2 * 1920);
    assert_int_equal(bench_resident(&b, 2, 0), 0);
    atomic_store(&w.channel.header->place, 7 << 16); /* the rest is too late */
    ring_notify(&w.channel.requests);
    BENCH_UNTIL(counter_read(&b.dropped) > 2);
    bench_nap(20000000);
    assert_int_equal(bench_resident(&b, 2, 0), 0);
    bench_check(&b);
    bench_close(&b);
}

/* The first n experts are activated, by so many tokens each. */
static void route_first(struct bench_worker *w, uint64_t step, uint32_t layer, uint32_t n,
                        uint16_t tokens, bool prompt)
{
    struct cache_record r = {.kind = CACHE_ROUTED,
                             .layer = (uint16_t)layer,
                             .n_entries = (uint16_t)n,
                             .step = step,
                             .prompt = prompt};
    for (uint16_t i = 0; i < n; i++)
        r.entries[i] = (struct cache_entry){i, tokens};
    atomic_store(&w->channel.header->place, step << 16 | layer);
    bench_push_record(w, &r);
}

/* Layer 1 fills all slots. A step activates five of eight experts of layer 2: after a prompt's,
 * which goes through the layers like a stream, layer 3 comes into slots of layer 1. Many answers
 * at once say nothing about layer 3. */
static void test_prompt(void **state)
{
    for (int prompt = 0; prompt <= 1; prompt++) {
        struct bench b;
        struct bench_worker w;
        bench_open(&b, CACHE_VALUE, EXPERTS * bench_segments[1], FAST);
        bench_attach(&w, &b, 1);
        for (uint64_t step = 1; step <= 3; step++)
            route_first(&w, step, 1, EXPERTS, 1, false);
        for (uint32_t i = 0; i < EXPERTS; i++)
            bench_load(&w, 1, i, bench_segments[1]);
        for (uint32_t i = 0; i < EXPERTS; i++) {
            assert_true(bench_await(&w, 1, i, bench_segments[1]));
            bench_consume(&w, 1);
        }
        route_first(&w, 4, 2, 5, 4, prompt);
        if (prompt)
            BENCH_UNTIL(bench_resident(&b, 3, 0) == 1);
        else { /* a load that comes after the record: nothing was copied in between */
            bench_load(&w, 2, 0, 1);
            assert_true(bench_await(&w, 2, 0, 1));
            assert_int_equal(bench_resident(&b, 3, 0), 0);
        }
        bench_check(&b);
        bench_close(&b);
    }
}

/* A segment that is evicted unused is wasted; one that was used is not. */
static void test_wasted(void **state)
{
    struct bench b;
    struct bench_worker w;
    bench_open(&b, CACHE_LRU, 2, FAST);
    bench_attach(&w, &b, 1);
    bench_push(&w, CACHE_PREDICTED, 1, 3, 0, 100);
    bench_push(&w, CACHE_PREDICTED, 1, 3, 1, 100);
    BENCH_UNTIL(bench_state(&b).slots.resident == 2);
    bench_push(&w, CACHE_ROUTED, 1, 3, 1, 1);
    bench_load(&w, 1, 0, 2); /* evicts both */
    assert_true(bench_await(&w, 1, 0, 2));
    assert_int_equal(counter_read(&b.wasted), 4032);
    bench_consume(&w, 1);
    bench_load(&w, 1, 1, 2);
    assert_true(bench_await(&w, 1, 1, 2));
    assert_int_equal(counter_read(&b.wasted), 4032);
    assert_int_equal(counter_read(&b.evictions), 4);
    assert_int_equal(counter_read(&b.predicted), 2 * 4032);
    assert_int_equal(counter_read(&b.predicted_used), 4032);
    bench_close(&b);
}

static void load_to_measure(struct bench_worker *w, uint16_t expert)
{
    bench_push(w, CACHE_LOAD, 0, 1, expert, 2);
    assert_true(bench_await(w, 1, expert, 2));
    bench_consume(w, 1);
}

/* Loads of step 0 belong to a worker's calibration: memd copies them like others, but does not
 * count them as traffic. The first load of a step ends the calibration. */
static void test_calibration(void **state)
{
    struct bench b;
    struct bench_worker w;
    bench_open(&b, CACHE_NONE, 8, FAST);
    bench_attach(&w, &b, 1);
    for (uint16_t i = 0; i < 4; i++) {
        load_to_measure(&w, i);
        BENCH_UNTIL(bench_resident(&b, 1, i) == 0);
    }
    BENCH_UNTIL(counter_read(&b.measured) == 4 * 8192);
    assert_int_equal(bench_state(&b).link_bytes, 0);
    assert_int_equal(bench_state(&b).link_busy_ns, 0);
    assert_int_equal(counter_read(&b.asked) + counter_read(&b.demanded) + counter_read(&b.used) +
                         counter_read(&b.wasted) + counter_read(&b.evictions),
                     0);
    bench_load(&w, 1, 5, 2);
    assert_true(bench_await(&w, 1, 5, 2));
    bench_consume(&w, 1);
    BENCH_UNTIL(counter_read(&b.evictions) == 2);
    assert_int_equal(counter_read(&b.measured), 4 * 8192);
    assert_int_equal(counter_read(&b.asked), 8192);
    assert_int_equal(counter_read(&b.demanded), 8192);
    assert_int_equal(counter_read(&b.used), 8192);
    assert_int_equal(counter_read(&b.wasted), 0);
    assert_int_equal(bench_state(&b).link_bytes, 8192);
    assert_true(bench_state(&b).link_busy_ns > 0);
    bench_check(&b);
    bench_close(&b);
}

/* memd gives up the segments of a calibration: when it is over, when a layer follows without that,
 * and when the worker leaves in the middle of it. The first layer finds an empty device. */
static void test_calibration_leaves_nothing(void **state)
{
    enum { SAYS_SO, GOES_ON, LEAVES, ENDS };
    for (int end = 0; end < ENDS; end++) {
        struct bench b;
        struct bench_worker w;
        bench_open(&b, CACHE_LRU, 16, FAST);
        bench_attach(&w, &b, 1);
        for (uint16_t i = 0; i < 4; i++)
            load_to_measure(&w, i);
        BENCH_UNTIL(bench_state(&b).slots.resident == 8);
        if (end == LEAVES)
            cache_remove_worker(b.cache, 1);
        else
            bench_push(&w, end == SAYS_SO ? CACHE_MEASURED : CACHE_ROUTED, 1, 1, 5, 1);
        BENCH_UNTIL(bench_state(&b).slots.resident == 0);
        if (end == LEAVES)
            bench_attach(&w, &b, 2);
        bench_load(&w, 1, 5, 2);
        assert_true(bench_await(&w, 1, 5, 2));
        bench_consume(&w, 1);
        BENCH_UNTIL(bench_state(&b).slots.resident == 2);
        assert_int_equal(counter_read(&b.evictions), 0);
        assert_int_equal(counter_read(&b.wasted), 0);
        bench_check(&b);
        bench_close(&b);
    }
}

/* ---- changes while serving ---- */

static void test_set_policy(void **state)
{
    struct bench b;
    struct bench_worker w;
    struct error e;
    bench_open(&b, CACHE_LRU, 24, FAST);
    bench_attach(&w, &b, 1);
    bench_load(&w, 2, 0, 3);
    assert_true(bench_await(&w, 2, 0, 3));
    bench_consume(&w, 1);
    assert_int_equal(cache_set_policy(b.cache, CACHE_NONE, BUDGET_GLOBAL, &e), ERROR_OK);
    bench_load(&w, 2, 1, 3);
    assert_true(bench_await(&w, 2, 1, 3));
    bench_consume(&w, 1);
    BENCH_UNTIL(bench_resident(&b, 2, 1) == 0); /* the cache policy `none` keeps nothing */
    BENCH_UNTIL(bench_resident(&b, 2, 0) == 0); /* and evicts the older segments */
    BENCH_UNTIL(bench_state(&b).slots.free == 24);
    assert_int_equal(cache_set_policy(b.cache, CACHE_LAYERWISE, BUDGET_GLOBAL, &e), ERROR_OK);
    /* layerwise fills the free slots unasked, from the first layer */
    BENCH_UNTIL(bench_resident(&b, 1, 5) == 2);
    assert_true(counter_read(&b.prefetched) > 0);
    bench_check(&b);
    bench_close(&b);
}

/* ---- metrics ---- */

/* Two of eight slots are resident, of 4096 bytes each. The times are the link's own. */
static void test_metrics(void **state)
{
    struct bench b;
    struct bench_worker w;
    struct strbuf text;
    struct metrics *m = metrics_new();
    bench_open(&b, CACHE_LRU, 8, FAST);
    bench_attach(&w, &b, 1);
    struct caches caches = {.each = {b.cache}, .n = 1};
    cache_metrics_state(m, &caches, true);
    bench_load(&w, 1, 0, 2);
    assert_true(bench_await(&w, 1, 0, 2));
    strbuf_init(&text);
    metrics_render(m, &text);
    const char *slots = "# HELP moed_memd_slots Slots in the device's memory, by state.\n"
                        "# TYPE moed_memd_slots gauge\n"
                        "moed_memd_slots{state=\"free\"} 6\n"
                        "moed_memd_slots{state=\"resident\"} 2\n"
                        "moed_memd_slots{state=\"filling\"} 0\n"
                        "moed_memd_slots{state=\"retired\"} 0\n"
                        "# HELP moed_memd_link_bytes_total ";
    assert_int_equal(strncmp(text.data, slots, strlen(slots)), 0);
    assert_non_null(strstr(text.data, "\nmoed_memd_link_bytes_total 8192\n"));
    assert_non_null(strstr(text.data, "\nmoed_memd_link_busy_seconds_total "));
    assert_non_null(strstr(text.data, "\nmoed_memd_device_bytes{use=\"experts\"} 32768\n"));
    assert_null(strstr(text.data, "use=\"kv\"")); /* nothing but the slots is known */
    strbuf_fini(&text);
    bench_close(&b);
    metrics_free(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_in_order),
        cmocka_unit_test(test_real_model),
        cmocka_unit_test(test_behind_many_records),
        cmocka_unit_test(test_policies),
        cmocka_unit_test(test_queue),
        cmocka_unit_test(test_waves),
        cmocka_unit_test(test_larger_than_the_arena),
        cmocka_unit_test(test_merged),
        cmocka_unit_test(test_reclaimed),
        cmocka_unit_test(test_epoch_holds),
        cmocka_unit_test(test_worker_leaves),
        cmocka_unit_test(test_predictions),
        cmocka_unit_test(test_prompt),
        cmocka_unit_test(test_wasted),
        cmocka_unit_test(test_calibration),
        cmocka_unit_test(test_calibration_leaves_nothing),
        cmocka_unit_test(test_set_policy),
        cmocka_unit_test(test_metrics),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
