/* Slots that come and go while workers read (memd/device/cache_resize.c). The bench's 48 segments
 * of 4096 bytes lie in extents of one slot, then of two (47 / 31): 16 slots are 1 + 7 * 2 + 1. The
 * states at each step are worked out by hand. */
#include "cache_bench.h"

#define FAST 0.0

static struct cache_resize_state resize_of(struct bench *b)
{
    struct cache_resize_state s;
    cache_resize_state(b->cache, &s);
    return s;
}

static bool is_over(struct bench *b)
{
    return !resize_of(b).busy;
}

/* The resize waits for that, and continues to wait for thirty turns of the engine. */
static void expect_waiting(struct bench *b, enum cache_resize_wait waits)
{
    BENCH_UNTIL(resize_of(b).waits == waits);
    bench_nap(30000000);
    assert_true(resize_of(b).busy && resize_of(b).waits == waits);
}

static void expect_slots(struct bench *b, uint32_t n)
{
    struct cache_state s = bench_state(b);
    assert_int_equal(resize_of(b).failed.code, ERROR_OK);
    assert_int_equal(s.usable, n);
    assert_int_equal(s.slots.total, n);
    assert_int_equal(residency_n_slots(b->table.header), n);
    const struct device_arena *a = cache_arena(b->cache);
    assert_true(a->layout.first == 1 && a->layout.each == 2);
    uint32_t extents = n == 1 ? 1 : 1 + n / 2; /* 1, 2-3, 4-5, ... */
    assert_int_equal(a->n_extents, extents);
    for (uint32_t i = 0; i < ARENA_EXTENTS; i++)
        assert_int_equal(b->table.header->extents[i].serial != 0, i < extents);
    bench_check(b);
}

/* Each expert of the layer, one after the other. */
static void load_layer(struct bench_worker *w, uint32_t layer)
{
    for (uint32_t expert = 0; expert < EXPERTS; expert++) {
        bench_load(w, layer, expert, bench_segments[layer]);
        assert_true(bench_await(w, layer, expert, bench_segments[layer]));
        bench_epoch(w);
        assert_int_equal(bench_read(w, layer, expert), bench_segments[layer]);
        bench_epoch(w);
        bench_consume(w, 1);
    }
}

static uint64_t resident(struct bench *b)
{
    return bench_state(b).slots.resident;
}

static void test_without_workers(void **state)
{
    struct bench b;
    static const uint32_t sizes[] = {16, 48, 47, 1, 2, 5, 4, 4, 31, 1, 48};
    bench_open(&b, CACHE_LRU, 16, FAST);
    expect_slots(&b, 16);
    for (uint32_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        assert_int_equal(cache_resize(b.cache, sizes[i]), i + 1);
        BENCH_UNTIL(is_over(&b));
        assert_int_equal(resize_of(&b).number, i + 1);
        expect_slots(&b, sizes[i]);
    }
    bench_close(&b);
}

/* Segments in slots that stay are kept. Segments in removed slots are evicted, from the first one
 * to the end of the expert. */
static void test_prefixes_stay(void **state)
{
    struct bench b;
    struct bench_worker w;
    bench_open(&b, CACHE_LRU, 48, FAST);
    bench_attach(&w, &b, 1);
    for (uint32_t layer = 1; layer < LAYERS; layer++)
        load_layer(&w, layer);
    assert_int_equal(resident(&b), 48);
    uint32_t expected[LAYERS][EXPERTS] = {0};
    for (uint32_t layer = 1; layer < LAYERS; layer++)
        for (uint32_t expert = 0; expert < EXPERTS; expert++)
            while (expected[layer][expert] < bench_segments[layer] &&
                   *residency_slot(&b.table, layer, expert, expected[layer][expert]) < 21)
                expected[layer][expert]++;
    uint64_t copied = counter_read(&b.demanded);
    cache_resize(b.cache, 21); /* whole extents */
    BENCH_UNTIL((bench_follow(&w), is_over(&b)));
    expect_slots(&b, 21);
    uint32_t sum = 0;
    for (uint32_t layer = 1; layer < LAYERS; layer++)
        for (uint32_t expert = 0; expert < EXPERTS; expert++) {
            assert_int_equal(bench_resident(&b, layer, expert), expected[layer][expert]);
            sum += expected[layer][expert];
        }
    assert_true(sum == 21 && counter_read(&b.demanded) == copied);
    cache_resize(b.cache, 48); /* enough slots for all again: segments are loaded when requested */
    BENCH_UNTIL((bench_follow(&w), is_over(&b)));
    for (uint32_t layer = 1; layer < LAYERS; layer++)
        load_layer(&w, layer);
    assert_int_equal(resident(&b), 48);
    expect_slots(&b, 48);
    bench_close(&b);
}

static bool is_whole(struct bench *b, uint32_t expert)
{
    for (uint32_t layer = 1; layer < LAYERS; layer++)
        if (bench_resident(b, layer, expert) < bench_segments[layer])
            return false;
    return true;
}

/* `value` keeps what it has learnt: the experts that were activated are on the device afterwards,
 * wherever their slots were, and no request has brought them. */
static void test_value_stays(void **state)
{
    struct bench b;
    struct bench_worker w;
    bench_open(&b, CACHE_VALUE, 48, FAST);
    bench_attach(&w, &b, 1);
    for (uint32_t layer = LAYERS - 1; layer > 0; layer--)
        load_layer(&w, layer);
    for (uint64_t step = 2; step < 20; step++)
        for (uint32_t layer = 1; layer < LAYERS; layer++)
            for (uint32_t i = 0; i < 2; i++)
                bench_push(&w, CACHE_ROUTED, step, layer, i ? 7 : 3, 1);
    BENCH_UNTIL(atomic_load(&w.channel.requests.header->head) ==
                atomic_load(&w.channel.requests.header->tail));
    uint64_t copied = counter_read(&b.demanded);
    cache_resize(b.cache, 24);
    BENCH_UNTIL((bench_follow(&w), is_over(&b)));
    BENCH_UNTIL(is_whole(&b, 3) && is_whole(&b, 7));
    assert_true(counter_read(&b.demanded) == copied);
    expect_slots(&b, 24);
    bench_close(&b);
}

/* More slots: a larger extent replaces the last one, in which nothing lies, and nothing is evicted.
 */
static void test_value_grows(void **state)
{
    struct bench b;
    struct bench_worker w;
    (void)state;
    bench_open(&b, CACHE_VALUE, 18, FAST);
    bench_attach(&w, &b, 1);
    load_layer(&w, 3);
    for (uint32_t expert = 0; expert < 4; expert++) {
        bench_load(&w, 1, expert, 2);
        assert_true(bench_await(&w, 1, expert, 2));
        bench_consume(&w, 1);
    }
    assert_int_equal(resident(&b), 16);
    uint64_t evicted = counter_read(&b.evictions);
    cache_resize(b.cache, 48);
    expect_waiting(&b, CACHE_RESIZE_CLOSE);
    assert_int_equal(bench_state(&b).usable, 17);
    BENCH_UNTIL((bench_follow(&w), is_over(&b)));
    assert_int_equal(counter_read(&b.evictions), evicted);
    expect_slots(&b, 48);
    bench_close(&b);
}

/* A reader in the middle of its epoch continues to read. Then memd waits until the worker has
 * closed the removed extents; a new worker never had them. */
static void test_reader(void **state)
{
    struct bench b;
    struct bench_worker w[2];
    bench_open(&b, CACHE_LRU, 48, FAST);
    bench_attach(&w[0], &b, 1);
    load_layer(&w[0], 1); /* 16 segments, in as many slots from the first on */
    bench_epoch(&w[0]);
    cache_resize(b.cache, 1);
    expect_waiting(&b, CACHE_RESIZE_USE);
    assert_true(resident(&b) == 1 && bench_state(&b).slots.retired == 15);
    for (uint32_t expert = 0; expert < EXPERTS; expert++) /* as the worker found them before */
        for (uint32_t i = 0; i < 2; i++) {
            uint32_t slot = *residency_slot(&b.table, 1, expert, i),
                     extent = slot ? 1 + (slot - 1) / 2 : 0;
            const uint8_t *at =
                w[0].places[extent] + (extent ? (slot - 1) % 2 : 0) * (size_t)SLOT_BYTES;
            assert_true(bench_is_segment(at, 1, expert, i));
        }
    bench_epoch(&w[0]);
    expect_waiting(&b, CACHE_RESIZE_CLOSE);
    assert_int_equal(cache_arena(b.cache)->n_extents, 25);
    bench_attach(&w[1], &b, 2);
    assert_null(w[1].places[1]);
    expect_waiting(&b, CACHE_RESIZE_CLOSE);
    bench_epoch(&w[0]); /* which follows */
    for (uint32_t i = 1; i < ARENA_EXTENTS; i++)
        assert_null(w[0].places[i]);
    BENCH_UNTIL(is_over(&b));
    bench_epoch(&w[0]);
    expect_slots(&b, 1);
    /* growing: memd uses no extent that one of the workers lacks */
    cache_resize(b.cache, 10);
    expect_waiting(&b, CACHE_RESIZE_MAP);
    assert_int_equal(bench_state(&b).usable, 1);
    bench_follow(&w[1]);
    expect_waiting(&b, CACHE_RESIZE_MAP);
    bench_follow(&w[0]);
    BENCH_UNTIL(is_over(&b));
    expect_slots(&b, 10);
    assert_true(w[0].places[5] && w[1].places[5] && !w[0].places[6]);
    bench_close(&b);
}

/* A served load stays until its worker consumes it. Until then memd serves other loads in the slots
 * that stay. */
static void test_loads(void **state)
{
    struct bench b;
    struct bench_worker w;
    bench_open(&b, CACHE_LRU, 16, FAST);
    bench_attach(&w, &b, 1);
    load_layer(&w, 1);
    for (uint32_t expert = 0; expert < 3; expert++)
        bench_load(&w, 2, expert, 3);
    assert_true(bench_await(&w, 2, 2, 3));
    BENCH_UNTIL(bench_served(&b, 0) == 8 + 3);
    cache_resize(b.cache, 3);
    expect_waiting(&b, CACHE_RESIZE_USE);
    for (uint32_t expert = 0; expert < 3; expert++)
        assert_int_equal(bench_resident(&b, 2, expert), 3);
    bench_load(&w, 3, 7, 1);
    bench_consume(&w, 3);
    assert_true(bench_await(&w, 3, 7, 1));
    bench_consume(&w, 1);
    BENCH_UNTIL((bench_follow(&w), is_over(&b)));
    expect_slots(&b, 3);
    /* with more segments than slots: as many as fit */
    cache_resize(b.cache, 2);
    BENCH_UNTIL((bench_follow(&w), is_over(&b)));
    bench_load(&w, 2, 5, 3);
    assert_true(bench_await(&w, 2, 5, 2));
    BENCH_UNTIL(bench_served(&b, 0) == 8 + 3 + 1 + 1);
    assert_int_equal(bench_resident(&b, 2, 5), 2);
    bench_consume(&w, 1);
    bench_check(&b);
    bench_close(&b);
}

/* The target changes during a resize: memd finishes the removal of withdrawn extents and adds them
 * again, and keeps the others. */
static void test_other_aim(void **state)
{
    struct bench b;
    struct bench_worker w;
    bench_open(&b, CACHE_LRU, 16, FAST);
    bench_attach(&w, &b, 1);
    load_layer(&w, 1);
    bench_epoch(&w);
    cache_resize(b.cache, 3);
    expect_waiting(&b, CACHE_RESIZE_USE);
    assert_int_equal(cache_resize(b.cache, 16), 2); /* nothing is withdrawn yet */
    BENCH_UNTIL(is_over(&b));
    expect_slots(&b, 16);
    assert_true(w.places[8] && resident(&b) <= 3);
    bench_epoch(&w);
    load_layer(&w, 1);
    cache_resize(b.cache, 3);
    expect_waiting(&b, CACHE_RESIZE_CLOSE);
    cache_resize(b.cache, 40);
    expect_waiting(&b, CACHE_RESIZE_CLOSE);
    uint32_t serial = b.table.header->extents[1].serial;
    bench_follow(&w);
    expect_waiting(&b, CACHE_RESIZE_MAP);
    bench_follow(&w);
    BENCH_UNTIL(is_over(&b));
    assert_int_equal(resize_of(&b).number, 4);
    expect_slots(&b, 40);
    assert_int_equal(b.table.header->extents[1].serial, serial);
    cache_resize(b.cache, 48);
    expect_waiting(&b, CACHE_RESIZE_CLOSE); /* the last extent has one slot: another replaces it */
    cache_resize(b.cache, 5);
    BENCH_UNTIL((bench_follow(&w), is_over(&b)));
    expect_slots(&b, 5);
    bench_close(&b);
}

/* memd does not wait for a worker that is gone. A broken worker may still read until it is gone. */
static void test_deaths(void **state)
{
    struct bench b;
    struct bench_worker w;
    bench_open(&b, CACHE_LRU, 16, FAST);
    for (uint64_t key = 1; key <= 3; key++) {
        bench_attach(&w, &b, key);
        cache_resize(b.cache, 48);
        BENCH_UNTIL((bench_follow(&w), is_over(&b)));
        load_layer(&w, 2);
        if (key == 1) /* during its epoch */
            bench_epoch(&w);
        for (uint32_t expert = 0; key == 2 && expert < EXPERTS;
             expert++) /* with loads that it has not consumed */
            bench_load(&w, 2, expert, 3);
        BENCH_UNTIL(key != 2 || bench_served(&b, 0) == 2 * EXPERTS);
        cache_resize(b.cache, 4);
        expect_waiting(&b, key == 3 ? CACHE_RESIZE_CLOSE : CACHE_RESIZE_USE);
        cache_remove_worker(b.cache, key);
        BENCH_UNTIL(is_over(&b));
        expect_slots(&b, 4);
    }
    bench_attach(&w, &b, 4);
    cache_resize(b.cache, 8);
    BENCH_UNTIL((bench_follow(&w), is_over(&b)));
    struct cache_record nonsense = {.kind = 77};
    assert_int_equal(ring_push(&w.channel.requests, &nonsense), 1);
    ring_notify(&w.channel.requests);
    BENCH_UNTIL(b.broken == 4);
    cache_resize(b.cache, 4);
    expect_waiting(&b, CACHE_RESIZE_CLOSE);
    cache_remove_worker(b.cache, 4);
    BENCH_UNTIL(is_over(&b));
    expect_slots(&b, 4);
    bench_close(&b);
}

/* ---- The KV cache ---- */

/* Divides memory like a device's plan: memory for 48 slots, and a KV cache of eight slots' size
 * takes the rest. */
static void share_kv(struct bench *b)
{
    struct device_plan *p = &b->cache->plan;
    p->kv_bytes = p->kv_most_bytes = 8 * SLOT_BYTES;
    p->kv_least_bytes = 2 * SLOT_BYTES;
    p->capacity_bytes = 48 * SLOT_BYTES;
    ((struct residency_header *)b->cache->residency.base)->kv_bytes = 8 * SLOT_BYTES;
}

static uint64_t kv(struct bench *b)
{
    return bench_state(b).kv_bytes / SLOT_BYTES;
}

/* The worker's part: it shrinks to its limit when a request ends, and grows to its limit. */
static void keep_kv(struct bench_worker *w, uint64_t slots)
{
    atomic_store(&w->channel.header->kv_bytes, slots * SLOT_BYTES);
}

static void test_kv(void **state)
{
    struct bench b;
    struct bench_worker w[2];
    bench_open(&b, CACHE_LRU, 40, FAST);
    share_kv(&b);
    for (uint64_t i = 0; i < 2; i++) {
        bench_attach(&w[i], &b, i + 1);
        keep_kv(&w[i], 8);
    }
    cache_resize(b.cache, 44);
    expect_waiting(&b, CACHE_RESIZE_KV);
    assert_int_equal(kv(&b), 4);
    assert_true(bench_state(&b).usable == 40 && cache_arena(b.cache)->n_extents == 21);
    keep_kv(&w[0], 4);
    keep_kv(&w[1], 5);
    expect_waiting(&b, CACHE_RESIZE_KV);
    keep_kv(&w[1], 0);
    BENCH_UNTIL((bench_follow(&w[0]), bench_follow(&w[1]), is_over(&b)));
    expect_slots(&b, 44);
    assert_int_equal(kv(&b), 4);
    /* fewer slots: the limit rises when the memory is free, not before, and at most to the whole KV
     * cache */
    cache_resize(b.cache, 42);
    expect_waiting(&b, CACHE_RESIZE_CLOSE);
    assert_int_equal(kv(&b), 4);
    BENCH_UNTIL((bench_follow(&w[0]), bench_follow(&w[1]), is_over(&b)));
    assert_int_equal(kv(&b), 6);
    cache_resize(b.cache, 3);
    BENCH_UNTIL((bench_follow(&w[0]), bench_follow(&w[1]), is_over(&b)));
    assert_int_equal(kv(&b), 8);
    expect_slots(&b, 3);
    /* another target during the wait: memd returns the memory */
    keep_kv(&w[0], 8);
    cache_resize(b.cache, 46);
    expect_waiting(&b, CACHE_RESIZE_KV);
    assert_int_equal(kv(&b), 2);
    cache_resize(b.cache, 39);
    BENCH_UNTIL((bench_follow(&w[0]), bench_follow(&w[1]), is_over(&b)));
    assert_int_equal(kv(&b), 8);
    expect_slots(&b, 39);
    bench_close(&b);
}

static enum error_code refuse(void *arg, uint32_t extent, const struct residency_extent *what,
                              struct error *e)
{
    (void)what;
    return extent > 10 ? error_set(e, ERROR_MEMORY, "no more") : bench_import(arg, extent, what, e);
}

/* If a worker cannot map the new memory, the size stays, and the KV cache gets its memory back. */
static void test_refused(void **state)
{
    struct bench b;
    struct bench_worker w;
    struct error e;
    bench_open(&b, CACHE_LRU, 15, FAST);
    share_kv(&b);
    bench_attach(&w, &b, 1);
    load_layer(&w, 1);
    keep_kv(&w, 3);
    w.follower.import = refuse;
    uint64_t before = resident(&b);
    cache_resize(b.cache, 45);
    expect_waiting(&b, CACHE_RESIZE_MAP);
    assert_int_equal(kv(&b), 3);
    assert_int_equal(arena_follow(&w.follower, &e), ERROR_MEMORY);
    BENCH_UNTIL((bench_follow(&w), is_over(&b)));
    assert_int_equal(resize_of(&b).failed.code, ERROR_MEMORY);
    assert_string_equal(resize_of(&b).failed.text,
                        "a worker cannot map more of the device's memory: its log says why");
    assert_int_equal(kv(&b), 8);
    assert_true(bench_state(&b).slots.total == 15 && cache_arena(b.cache)->n_extents == 8);
    assert_true(resident(&b) == before && w.places[8] == NULL);
    bench_check(&b);
    cache_resize(b.cache, 20); /* this size it can map */
    BENCH_UNTIL((bench_follow(&w), is_over(&b)));
    expect_slots(&b, 20);
    bench_close(&b);
}

/* A failed resize costs no present slot, not even the last extent, which a larger one was to
 * replace. */
static void test_refused_in_mid_chunk(void **state)
{
    struct bench b;
    struct bench_worker w;
    struct error e;
    (void)state;
    bench_open(&b, CACHE_LRU, 16, FAST);
    bench_attach(&w, &b, 1);
    keep_kv(&w, 0);
    w.follower.import = refuse;
    cache_resize(b.cache, 45);
    while (!resize_of(&b).failed.code)
        arena_follow(&w.follower, &e);
    BENCH_UNTIL((bench_follow(&w), is_over(&b)));
    assert_int_equal(resize_of(&b).failed.code, ERROR_MEMORY);
    assert_true(bench_state(&b).usable == 16 && bench_state(&b).slots.total == 16);
    assert_int_equal(cache_arena(b.cache)->n_extents, 9);
    bench_check(&b);
    bench_close(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_without_workers),
        cmocka_unit_test(test_prefixes_stay),
        cmocka_unit_test(test_value_stays),
        cmocka_unit_test(test_value_grows),
        cmocka_unit_test(test_reader),
        cmocka_unit_test(test_loads),
        cmocka_unit_test(test_other_aim),
        cmocka_unit_test(test_deaths),
        cmocka_unit_test(test_kv),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_refused_in_mid_chunk),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
