/* The parts of the expert cache (slots, waiting for doorbells), and how memd treats workers that
 * write invalid records. The truth: rules of cache_slots.h and cache_channel.h worked out by hand,
 * and the clock. */
#include "cache_bench.h"

#include <fcntl.h>

#define FAST 0.0

/* ---- slots ---- */

static void test_slots(void **state)
{
    enum { N = 3 };
    static uint8_t memory[N * 64];
    _Atomic uint64_t epochs[2] = {0, 7};
    struct cache_slots s;
    uint32_t a = 0, b = 0, none;
    struct device_spec device = {.kind = DEVICE_EMU, .link_bytes_per_s = 1e9, .speed = 1};
    struct device_link *link;
    assert_int_equal(device_link_new(&device, &link, NULL), ERROR_OK);
    struct device_arena arena = {
        .slot_bytes = 64,
        .layout = {1, 1},
        .n_extents = N,
        .extents = {{.slots = memory}, {.slots = memory + 64}, {.slots = memory + 128}}};
    assert_int_equal(cache_slots_init(&s, link, &arena, 64, N, N, NULL), ERROR_OK);
    int even = cache_slots_add_reader(&s, &epochs[0]), odd = cache_slots_add_reader(&s, &epochs[1]);
    assert_true(cache_slots_take(&s, &a) && cache_slots_take(&s, &b) && a != b);
    memset(memory, 1, sizeof memory);
    cache_slots_filled(&s, a);
    cache_slots_filled(&s, b);
    cache_slots_retire(&s, a);
    assert_int_equal(cache_slots_reclaim(&s), 0); /* the odd reader may be reading it */
    epochs[0] = 1;                                /* an epoch that began later cannot read it */
    assert_int_equal(cache_slots_reclaim(&s), 0);
    epochs[1] = 9; /* passed, though odd again */
    cache_slots_retire(&s, b);
    assert_int_equal(cache_slots_reclaim(&s), 1);
    assert_true(bench_is_poison(memory + a * 64, 64));
    assert_false(bench_is_poison(memory + b * 64, 1)); /* both epochs prevent its reuse */
    epochs[0] = 2;
    assert_int_equal(cache_slots_reclaim(&s), 0);
    assert_true(cache_slots_add_up(&s));
    cache_slots_remove_reader(&s, odd);
    assert_int_equal(cache_slots_reclaim(&s), 1);
    assert_int_equal(s.counts[SLOT_FREE], N);
    assert_true(cache_slots_take(&s, &a) && cache_slots_take(&s, &b) &&
                cache_slots_take(&s, &none));
    assert_false(cache_slots_take(&s, &none));
    assert_true(cache_slots_add_up(&s));
    s.counts[SLOT_FREE]++;
    assert_false(cache_slots_add_up(&s));
    cache_slots_remove_reader(&s, even);
    cache_slots_fini(&s);
    device_link_free(link);
}

/* ---- waiting ---- */

static void *ring_soon(void *arg)
{
    bench_nap(30000000);
    doorbell_ring(arg);
    return NULL;
}

/* Waiting for two doorbells: by the kernel, and by polling. */
static void test_wait(void **state)
{
    for (int polling = 0; polling < 2; polling++)
        for (int which = 0; which < 3; which++) { /* the one that is rung; 2: none */
            struct doorbell bells[2] = {0};
            struct cache_wait w = {.polling = polling};
            pthread_t thread;
            cache_wait_begin(&w);
            cache_wait_watch(&w, &bells[0]);
            cache_wait_watch(&w, &bells[1]);
            uint64_t start = clock_ns();
            if (which < 2)
                assert_int_equal(pthread_create(&thread, NULL, ring_soon, &bells[which]), 0);
            cache_wait_sleep(&w, which < 2 ? 800000000 : 50000000);
            uint64_t took = clock_ns() - start;
            assert_true(took >= (which < 2 ? 30000000u : 50000000u) && took < 700000000u);
            if (which == 2)
                continue;
            pthread_join(thread, NULL);
            cache_wait_sleep(&w, 800000000); /* rung since it was watched: no sleep */
            assert_true(clock_ns() - start < 700000000u);
            assert_int_equal(bells[0].sleeping + bells[1].sleeping, 0);
        }
}

/* ---- workers ---- */

static void test_most_readers(void **state)
{
    struct bench b;
    struct error e;
    bench_open(&b, CACHE_LRU, 4, FAST);
    static struct bench_worker w[CACHE_MAX_WORKERS + 1];
    for (int i = 0; i < CACHE_MAX_WORKERS; i++)
        bench_attach(&w[i], &b, (uint64_t)i + 1);
    bench_make_region(&w[CACHE_MAX_WORKERS], &b, 99);
    assert_int_equal(cache_add_worker(b.cache, 99, &w[CACHE_MAX_WORKERS].region, &e), ERROR_LIMIT);
    for (int i = 0; i < CACHE_MAX_WORKERS; i++)
        cache_remove_worker(b.cache, (uint64_t)i + 1);
    BENCH_UNTIL(!bench_present(&b));
    bench_attach(&w[2], &b, 100);
    bench_load(&w[2], 1, 0, 1);
    assert_true(bench_await(&w[2], 1, 0, 1));
    bench_close(&b);
}

static void send_nonsense(struct bench_worker *w, int i)
{
    struct cache_record r = {.kind = CACHE_LOAD, .layer = 1, .n_entries = 1};
    r.entries[0].value = 1;
    switch (i) {
    case 0:
        r.kind = 0;
        break;
    case 1:
        r.kind = CACHE_PREDICTED + 1;
        break;
    case 2:
        r.layer = LAYERS;
        break;
    case 3:
        r.layer = 0; /* has no experts */
        break;
    case 4:
        r.n_entries = CACHE_RECORD_ENTRIES + 1;
        break;
    case 5:
        r.entries[0].expert = EXPERTS;
        break;
    case 6:
        r.entries[0].value = 0;
        break;
    case 7:
        r.entries[0].value = 3; /* layer 1 has two */
        break;
    case 8:
        r.kind = CACHE_ROUTED;
        r.entries[0].expert = UINT16_MAX;
        break;
    case 9:
        r.kind = CACHE_PREDICTED;
        r.layer = UINT16_MAX;
        break;
    default:
        atomic_store(&w->channel.requests.header->tail, 5000);
    }
    if (i <= 9)
        assert_int_equal(ring_push(&w->channel.requests, &r), 1);
    ring_notify(&w->channel.requests);
}

static void test_nonsense(void **state)
{
    struct bench b;
    struct bench_worker good, bad;
    bench_open(&b, CACHE_LRU, 4, FAST);
    bench_attach(&good, &b, 1000);
    for (int i = 0; i <= 10; i++) {
        uint64_t key = (uint64_t)i + 1;
        bench_attach(&bad, &b, key);
        bench_load(&bad, 1, 0, 2);
        bench_load(&bad, 1, 1, 2);
        assert_true(bench_await(&bad, 1, 1, 2));
        send_nonsense(&bad, i);
        BENCH_UNTIL(b.n_broken == (uint32_t)i + 1 && b.broken == key);
        /* Its pins are gone; memd does not read its later records. */
        if (i < 10)
            bench_load(&bad, 3, 7, 1);
        bench_load(&good, 2, 1, 2);
        bench_load(&good, 1, (uint32_t)i % 4 + 2, 2);
        assert_true(bench_await(&good, 1, (uint32_t)i % 4 + 2, 2));
        bench_consume(&good, 2);
        assert_int_equal(bench_resident(&b, 3, 7), 0);
        cache_remove_worker(b.cache, key);
        bench_check(&b);
    }
    assert_int_equal(b.n_broken, 11);
    bench_close(&b);
}

static void test_refused_regions(void **state)
{
    struct bench b;
    struct bench_worker w;
    struct error e;
    bench_open(&b, CACHE_LRU, 4, FAST);
    for (int i = 0; i < 3; i++) {
        bench_make_region(&w, &b, 1);
        int fd = w.region.fd;
        if (i == 0)
            w.channel.header->magic++;
        else if (i == 1)
            w.channel.header->pool_generation++;
        else
            w.channel.requests.header->capacity = 7;
        assert_int_equal(cache_add_worker(b.cache, 1, &w.region, &e), ERROR_PROTOCOL);
        assert_int_equal(fcntl(fd, F_GETFD), -1); /* closed */
    }
    bench_close(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_slots),           cmocka_unit_test(test_wait),
        cmocka_unit_test(test_most_readers),    cmocka_unit_test(test_nonsense),
        cmocka_unit_test(test_refused_regions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
