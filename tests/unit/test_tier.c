/* memd's host tier: how many experts fit a size, reading them from the file, who stays and who goes, files that fail, workers
 * that write nonsense. The truth: the same model loaded whole (tests/unit/tier_bench.h), and numbers worked out by hand from
 * tier.h and tier_plan.h. */
#include "tier_bench.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

/* ---- sizes ---- */

static void test_plan(void **state)
{
    struct mkmodel_options o;
    struct loaded_model m;
    struct tier_plan t;
    struct error e;
    bench_options(&o);
    load_model(&m, &o);
    uint64_t all = m.plan.header.bytes, dense = m.plan.slabs[0].offset;
    char text[32];
    must(tier_plan_new(&m.plan, NULL, &t, &e), &e);
    assert_int_equal(t.n_slots, 0);
    must(tier_plan_new(&m.plan, "100%", &t, &e), &e);
    assert_int_equal(t.n_slots, 0);
    must(tier_plan_new(&m.plan, "1G", &t, &e), &e);
    assert_int_equal(t.n_slots, 0);

    uint64_t largest = m.plan.slabs[0].slab_bytes; /* Q4_K_M: the first layer's down is wider */
    uint64_t slot = (largest + 4095) / 4096 * 4096;
    must(tier_plan_new(&m.plan, "60%", &t, &e), &e);
    assert_int_equal(t.slot_bytes, slot);
    /* a page of header and table: 128 + 3 * 16 * 8 bytes */
    assert_int_equal(t.n_slots, ((uint64_t)(0.6 * (double)all) - dense - 4096) / slot);
    assert_int_equal(t.bytes, 4096 + t.n_slots * slot);
    assert_true(dense + t.bytes <= (uint64_t)(0.6 * (double)all));

    /* two of 16 experts are used: 8 slots at least */
    snprintf(text, sizeof text, "%llu", (unsigned long long)(dense + 4096 + 8 * slot));
    must(tier_plan_new(&m.plan, text, &t, &e), &e);
    assert_int_equal(t.n_slots, 8);
    snprintf(text, sizeof text, "%llu", (unsigned long long)(dense + 4096 + 8 * slot - 1));
    assert_int_equal(tier_plan_new(&m.plan, text, &t, &e), ERROR_USAGE);
    /* the size that it names is enough, and little more than needed */
    double named = 0;
    assert_int_equal(sscanf(strstr(e.text, "at least "), "at least %lfM", &named), 1);
    snprintf(text, sizeof text, "%.1fM", named);
    must(tier_plan_new(&m.plan, text, &t, &e), &e);
    assert_int_equal(t.n_slots, 8);

    static const char *const nonsense[] = {"", "0", "x", "-1G", "50", "1e9", "5 G", "0%", "half"};
    for (size_t i = 0; i < sizeof nonsense / sizeof *nonsense; i++)
        assert_int_equal(tier_plan_new(&m.plan, nonsense[i], &t, &e), ERROR_USAGE);
    unload_model(&m);
}

/* Experts too few to leave any out. */
static void test_few_experts(void **state)
{
    struct mkmodel_options o;
    struct loaded_model m;
    struct tier_plan t;
    struct error e;
    bench_options(&o);
    o.layers = 1;
    o.experts = 8;
    load_model(&m, &o);
    assert_int_equal(tier_plan_new(&m.plan, "99%", &t, &e), ERROR_USAGE);
    assert_non_null(strstr(e.text, "all of"));
    unload_model(&m);
}

static void test_attach(void **state)
{
    enum { LAYERS = 2, EXPERTS = 3, SLOTS = 4 };
    size_t bytes = host_tier_bytes(LAYERS, EXPERTS, 4096, SLOTS);
    uint8_t *memory = aligned_alloc(4096, bytes);
    struct host_tier_header *h = (struct host_tier_header *)memory;
    struct host_tier t;
    memset(memory, 0, bytes);
    assert_int_equal(host_tier_attach(&t, memory, bytes, NULL), ERROR_PROTOCOL);
    host_tier_init(memory, LAYERS, EXPERTS, 4096, SLOTS, 5);
    assert_int_equal(host_tier_attach(&t, memory, bytes, NULL), ERROR_OK);
    assert_ptr_equal(host_tier_slot(&t, SLOTS - 1), memory + bytes - 4096);
    /* a slot that is not there */
    atomic_store(host_tier_word(&t, 1, 2), host_expert_pack((struct host_expert){SLOTS + 1, 7}));
    assert_int_equal(host_tier_read(&t, 1, 2).slot_and_one, 0);
    assert_int_equal(host_tier_read(&t, 1, 2).failures, 7);
    assert_int_equal(host_tier_attach(&t, memory, bytes - 1, NULL), ERROR_PROTOCOL);
    h->layout_version++;
    assert_int_equal(host_tier_attach(&t, memory, bytes, NULL), ERROR_VERSION);
    h->layout_version--;
    h->slots_offset += 4096;
    assert_int_equal(host_tier_attach(&t, memory, bytes, NULL), ERROR_PROTOCOL);
    h->slots_offset -= 4096;
    h->n_slots = UINT32_MAX;
    assert_int_equal(host_tier_attach(&t, memory, bytes, NULL), ERROR_PROTOCOL);
    h->n_slots = SLOTS;
    h->slot_bytes = 0;
    assert_int_equal(host_tier_attach(&t, memory, bytes, NULL), ERROR_PROTOCOL);
    free(memory);
}

/* ---- reading ---- */

static void read_all(struct bench *b, const struct mkmodel_options *o)
{
    struct bench_worker w;
    bench_attach(&w, b, 1);
    for (int round = 0; round < 2; round++)
        for (uint32_t layer = 0; layer < o->layers; layer++)
            for (uint32_t expert = 0; expert < b->plan.slabs[layer].n_experts; expert++) {
                bench_fetch(&w, layer, expert);
                assert_true(bench_await(&w, layer, expert));
                bench_epoch(&w);
                assert_int_equal(bench_read(&w, layer, expert), 1);
                bench_epoch(&w);
                bench_count(&w, 1);
            }
    bench_check(b);
    BENCH_UNTIL(bench_held(b) == 0);
    assert_int_equal(counter_read(&b->failed), 0);
}

/* Filled evenly at first; then every expert comes, though few fit, of every kind of file. */
static void test_reading(void **state)
{
    for (int kind = 0; kind < 4; kind++) {
        struct mkmodel_options o;
        struct bench b;
        bench_options(&o);
        if (kind == 1) { /* biases, and several segments of some layers */
            o.arch = "gpt-oss";
            o.type = "MXFP4";
            o.head_dim = 64;
        } else if (kind == 2) { /* fused or split attention, a layer without experts */
            o.arch = "deepseek2";
            o.type = "Q8_0";
        } else if (kind == 3) { /* rows of an odd number of bytes, expert after expert */
            o.type = "Q6_K";
            o.experts = 9;
        }
        bench_open(&b, &o, 9);
        /* one of 9 slots is kept free: 8 experts, as many in each layer as in another, but for one */
        assert_int_equal(bench_state(&b).resident, 8);
        uint32_t least = 9, most = 0;
        for (uint32_t layer = 0; layer < o.layers; layer++) {
            uint32_t n = 0;
            for (uint32_t expert = 0; expert < b.plan.slabs[layer].n_experts; expert++)
                n += bench_slot(&b, layer, expert) >= 0;
            if (b.plan.slabs[layer].n_experts) {
                least = n < least ? n : least;
                most = n > most ? n : most;
            }
        }
        assert_true(most - least <= 1);
        bench_check(&b);
        read_all(&b, &o);
        bench_close(&b);
    }
}

/* ---- who stays ---- */

/* What a worker has been told of is pinned until it counts it; more fetches than slots come in turns. */
static void test_turns(void **state)
{
    struct bench b;
    struct bench_worker w;
    bench_start(&b);
    bench_attach(&w, &b, 1);
    for (uint32_t i = 0; i < 16; i++)
        bench_fetch(&w, 2, i); /* all of a layer, on half as many slots */
    uint32_t counted = 0, rounds = 0;
    while (counted < 16) {
        assert_true(bench_await(&w, 2, counted));
        bench_nap(20000000); /* whatever else fits comes */
        bench_epoch(&w);
        uint32_t n = 0;
        while (counted + n < 16 && bench_read(&w, 2, counted + n) == 1)
            n++;
        bench_epoch(&w);
        assert_in_range(n, 1, 8);
        bench_nap(20000000); /* nobody takes them away */
        for (uint32_t i = 0; i < n; i++)
            assert_true(bench_slot(&b, 2, counted + i) >= 0);
        bench_check(&b);
        bench_count(&w, n);
        counted += n;
        rounds++;
    }
    assert_true(rounds >= 2);
    BENCH_UNTIL(bench_held(&b) == 0);
    bench_close(&b);
}

/* What is read under an odd epoch keeps its bytes, whatever is fetched; and comes back without being read. */
static void test_epoch(void **state)
{
    struct mkmodel_options o;
    struct bench b;
    struct bench_worker reader, other;
    bench_options(&o);
    bench_open(&b, &o, 8);
    bench_attach(&reader, &b, 1);
    bench_attach(&other, &b, 2);
    uint32_t layer = 0, expert = 0;
    assert_true(bench_slot(&b, layer, expert) >= 0);
    bench_epoch(&reader); /* R1 */
    uint32_t slot = (uint32_t)bench_slot(&b, layer, expert);
    const uint8_t *at = host_tier_slot(&b.tier->table, slot);
    /* others are used often, so that it is worth the least, until it has gone */
    for (uint32_t step = 1; step < 40 && bench_slot(&b, layer, expert) >= 0; step++) {
        uint32_t i = 3 + step % 12;
        bench_push(&other, CACHE_ROUTED, step, 1, i, 1);
        bench_fetch(&other, 1, i);
        if (bench_slot(&b, layer, expert) < 0 || !bench_await(&other, 1, i))
            break;
        bench_count(&other, 1);
    }
    BENCH_UNTIL(bench_slot(&b, layer, expert) < 0);
    bench_nap(50000000);
    assert_true(bench_is_slab(&b, at, layer, expert)); /* R3 */
    uint64_t reads = counter_read(&b.reads);
    bench_count(&other, other.asked - other.counted);
    bench_fetch(&other, layer, expert);
    assert_true(bench_await(&other, layer, expert));
    assert_int_equal(bench_slot(&b, layer, expert), slot);
    assert_true(bench_is_slab(&b, at, layer, expert));
    bench_epoch(&reader); /* R4 */
    assert_true(counter_read(&b.reads) <=
                reads + 1); /* but for one that had been asked for before */
    bench_count(&other, 1);
    BENCH_UNTIL(bench_held(&b) == 0 && bench_state(&b).retired == 0);
    bench_check(&b);
    bench_close(&b);
}

/* The device's copies hold what they copy; what they wish for comes. */
static void test_copies(void **state)
{
    struct bench b;
    struct bench_worker w;
    bench_start(&b);
    bench_attach(&w, &b, 1);
    assert_null(tier_pin(b.tier, 2, 15));
    tier_wish(b.tier, 1, 15, 1, true);
    BENCH_UNTIL(bench_slot(&b, 1, 15) >= 0);
    assert_int_equal(counter_read(&b.prefetched), 0); /* somebody waits for it */
    tier_wish(b.tier, 2, 15, 1, false);
    BENCH_UNTIL(bench_slot(&b, 2, 15) >= 0);
    assert_int_equal(counter_read(&b.prefetched), b.plan.slabs[2].slab_bytes);
    const uint8_t *slab = tier_pin(b.tier, 2, 15);
    assert_non_null(slab);
    for (uint32_t i = 0; i < 15; i++) {
        bench_fetch(&w, 2, i);
        assert_true(bench_await(&w, 2, i));
        bench_count(&w, 1);
    }
    assert_true(bench_is_slab(&b, slab, 2, 15));
    assert_true(bench_slot(&b, 2, 15) >= 0);
    tier_unpin(b.tier, 2, 15, true);
    assert_int_equal(counter_read(&b.used), b.plan.slabs[2].slab_bytes);
    /* a wish that is no fetch takes nothing that is worth more */
    for (uint32_t step = 1; step < 5; step++)
        for (uint32_t layer = 0; layer < 3; layer++)
            for (uint32_t i = 0; i < 16; i++)
                if (layer != 0 || i != 9)
                    bench_push(&w, CACHE_ROUTED, step, layer, i, 1);
    BENCH_UNTIL(atomic_load(&w.channel.fetches.header->head) ==
                atomic_load(&w.channel.fetches.header->tail));
    tier_wish(b.tier, 0, 9, 0, false);
    bench_nap(50000000);
    assert_true(bench_slot(&b, 0, 9) < 0);
    bench_close(&b);
}

/* ---- what is put back without being read ---- */

/* Makes (0, 0) worth the least and fetches others until it has gone. */
static void drive_out(struct bench *b, struct bench_worker *w)
{
    for (uint32_t step = 1; step < 40 && bench_slot(b, 0, 0) >= 0; step++) {
        uint32_t i = 3 + step % 12;
        bench_push(w, CACHE_ROUTED, step, 1, i, 1);
        bench_fetch(w, 1, i);
        if (!bench_await(w, 1, i))
            break;
        bench_count(w, 1);
    }
    assert_true(bench_slot(b, 0, 0) < 0);
}

/* A fetch that comes with the end of the epoch that held its slot back: the slot is given back, not reclaimed. */
static void test_fetch_of_retired(void **state)
{
    struct bench b;
    struct bench_worker reader, other;
    bench_start(&b);
    bench_attach(&reader, &b, 1);
    bench_attach(&other, &b, 2);
    bench_epoch(&reader);
    uint32_t slot = (uint32_t)bench_slot(&b, 0, 0);
    drive_out(&b, &other);
    BENCH_UNTIL(bench_held(&b) == 0 && bench_state(&b).filling == 0);
    pthread_mutex_lock(&b.tier->lock); /* so that it finds both at once */
    assert_int_equal(tier_where(b.tier, 0, 0), SLOT_RETIRED);
    uint64_t reads = counter_read(&b.reads);
    bench_epoch(&reader);
    bench_fetch(&reader, 0, 0);
    pthread_mutex_unlock(&b.tier->lock);
    assert_true(bench_await(&reader, 0, 0));
    assert_int_equal(bench_slot(&b, 0, 0), slot);
    assert_int_equal(counter_read(&b.reads), reads);
    bench_count(&reader, 1);
    BENCH_UNTIL(bench_held(&b) == 0);
    bench_check(&b);
    bench_close(&b);
}

/* What went last lies in the slots that are kept free: a fetch, a wish and a prediction find it there. Of 8 slots one is kept
 * free, so it holds what went last. */
static void test_free_slots_remember(void **state)
{
    for (int how = 0; how < 3; how++) {
        struct bench b;
        struct bench_worker w;
        bench_start(&b);
        bench_attach(&w, &b, 1);
        drive_out(&b, &w);
        BENCH_UNTIL(bench_held(&b) == 0 && bench_state(&b).retired == 0 &&
                    bench_state(&b).filling == 0);
        uint64_t reads = counter_read(&b.reads), free_slots = bench_state(&b).free;
        assert_int_equal(free_slots, 1);
        if (how == 0) {
            bench_fetch(&w, 0, 0);
            assert_true(bench_await(&w, 0, 0));
            bench_count(&w, 1);
        } else if (how == 1) {
            tier_wish(b.tier, 0, 0, 1, true);
            BENCH_UNTIL(bench_slot(&b, 0, 0) >= 0);
        } else {
            bench_push(&w, CACHE_PREDICTED, 99, 0, 0, 65535);
            BENCH_UNTIL(bench_slot(&b, 0, 0) >= 0);
            assert_int_equal(counter_read(&b.prefetched), 0); /* nothing was read */
        }
        assert_int_equal(counter_read(&b.reads), reads);
        BENCH_UNTIL(bench_held(&b) == 0 && bench_state(&b).retired == 0);
        assert_int_equal(bench_state(&b).free, 1); /* its room was another's */
        bench_check(&b);
        bench_close(&b);
    }
}

/* Of what the device holds whole the least valuable goes first, though it is worth more than the others; then those. */
static void test_device_holds(void **state)
{
    static _Alignas(64) uint8_t memory[8192];
    struct bench b;
    struct bench_worker w;
    struct residency_table table;
    struct error e;
    bench_start(&b);
    bench_attach(&w, &b, 1);
    uint8_t segments = (uint8_t)b.plan.slabs[0].n_segments;
    assert_true(residency_bytes(3, 16, segments) <= sizeof memory);
    memset(memory, 0, sizeof memory);
    residency_init(memory, 3, 16, segments, 64, 4, BENCH_GENERATION);
    must(residency_attach(&table, memory, sizeof memory, &e), &e);
    struct tier_device device = {&table, NULL, NULL};
    tier_set_device(b.tier, &device);
    /* seven are in memory: (l, 0), (l, 1), and (0, 2) */
    assert_int_equal(bench_state(&b).resident, 7);
    for (uint32_t step = 1; step < 5; step++)
        for (uint32_t layer = 1; layer < 3; layer++)
            bench_push(&w, CACHE_ROUTED, step, layer, 0, 1);
    bench_push(&w, CACHE_ROUTED, 5, 2, 0, 1);
    BENCH_UNTIL(atomic_load(&w.channel.fetches.header->head) ==
                atomic_load(&w.channel.fetches.header->tail));
    residency_write(&table, 1, 0, segments, 0);
    residency_write(&table, 2, 0, segments, 0);
    residency_write(&table, 0, 0, segments - 1, 0); /* not whole */
    static const struct {
        uint32_t layer, expert;
    } goes[] = {{1, 0}, {2, 0}};
    for (uint32_t i = 0; i < 2; i++) { /* each takes the free slot and one is made free */
        assert_true(bench_slot(&b, goes[i].layer, goes[i].expert) >= 0);
        bench_fetch(&w, 0, 10 + i);
        assert_true(bench_await(&w, 0, 10 + i));
        BENCH_UNTIL(bench_slot(&b, goes[i].layer, goes[i].expert) < 0);
    }
    assert_true(bench_slot(&b, 0, 0) >= 0 && bench_slot(&b, 0, 1) >= 0);
    bench_fetch(&w, 0, 12); /* nothing is left there: the least valuable of all */
    assert_true(bench_await(&w, 0, 12));
    BENCH_UNTIL(bench_state(&b).resident == 7 && bench_state(&b).free == 1);
    bench_count(&w, 3);
    tier_set_device(b.tier, NULL);
    bench_close(&b);
}

/* ---- wishes ---- */

static void count_wakes(void *arg)
{
    atomic_fetch_add((_Atomic uint32_t *)arg, 1);
}

static uint32_t wishes(struct bench *b)
{
    pthread_mutex_lock(&b->tier->lock);
    uint32_t n = b->tier->n_wishes;
    pthread_mutex_unlock(&b->tier->lock);
    return n;
}

/* Who wished is told when it has come, however it came. */
static void test_wishes_are_told(void **state)
{
    struct bench b;
    struct bench_worker w;
    _Atomic uint32_t wakes = 0;
    bench_start(&b);
    bench_attach(&w, &b, 1);
    struct tier_device device = {NULL, count_wakes, &wakes};
    tier_set_device(b.tier, &device);
    tier_wish(b.tier, 1, 15, 1, true);
    BENCH_UNTIL(wakes == 1);
    assert_true(bench_slot(&b, 1, 15) >= 0);
    tier_wish(b.tier, 1, 15, 1, true); /* it is there: look again */
    assert_int_equal(wakes, 2);
    pthread_mutex_lock(&b.tier->lock); /* a fetch brings it, a wish waits for the same */
    bench_fetch(&w, 2, 15);
    pthread_mutex_unlock(&b.tier->lock);
    tier_wish(b.tier, 2, 15, 0.5, false);
    assert_true(bench_await(&w, 2, 15));
    BENCH_UNTIL(wakes == 3);
    assert_int_equal(wishes(&b), 0);
    bench_count(&w, 1);
    tier_set_device(b.tier, NULL);
    tier_wish(b.tier, 2, 14, 1, true);
    BENCH_UNTIL(bench_slot(&b, 2, 14) >= 0);
    assert_int_equal(wakes, 3);
    bench_close(&b);
}

/* Everything but (0, 9) is used in each step, so nothing makes room for a wish for it. */
static void use_the_others(struct bench *b, struct bench_worker *w, uint32_t step)
{
    for (uint32_t layer = 0; layer < 3; layer++)
        for (uint32_t i = 0; i < 16; i++)
            if (layer != 0 || i != 9)
                bench_push(w, CACHE_ROUTED, step, layer, i, 1);
    BENCH_UNTIL(atomic_load(&w->channel.fetches.header->head) ==
                atomic_load(&w->channel.fetches.header->tail));
}

/* A policy's wish stands for two steps; one that is repeated goes on. */
static void test_wishes_get_old(void **state)
{
    struct bench b;
    struct bench_worker w;
    _Atomic uint32_t wakes = 0;
    bench_start(&b);
    bench_attach(&w, &b, 1);
    struct tier_device device = {NULL, count_wakes, &wakes};
    tier_set_device(b.tier, &device);
    for (uint32_t step = 1; step < 5; step++)
        use_the_others(&b, &w, step);
    tier_wish(b.tier, 0, 9, 0, false);
    for (uint32_t step = 5; step < 10; step++) {
        use_the_others(&b, &w, step); /* the first step after it */
        bench_nap(5000000);
        assert_int_equal(wishes(&b), 1);
        tier_wish(b.tier, 0, 9, 0, false);
        assert_int_equal(wishes(&b), 1); /* the same one */
    }
    assert_int_equal(wakes, 0);
    use_the_others(&b, &w, 10);
    bench_nap(5000000);
    assert_int_equal(wishes(&b), 1);
    use_the_others(&b, &w, 11); /* the second */
    BENCH_UNTIL(wishes(&b) == 0);
    assert_int_equal(wakes, 1); /* if it still stands it is to be repeated */
    assert_true(bench_slot(&b, 0, 9) < 0);
    assert_int_equal(counter_read(&b.dropped), 0);
    bench_close(&b);
}

/* A predicted wish has lost its point when its layer is entered; others stay. */
static void test_wishes_of_passed_layers(void **state)
{
    struct bench b;
    struct bench_worker w;
    bench_start(&b);
    bench_attach(&w, &b, 1);
    for (uint32_t step = 1; step < 5; step++)
        use_the_others(&b, &w, step);
    tier_wish(b.tier, 0, 9, 1e-6, false);
    bench_push(&w, CACHE_ROUTED, 4, 1, 3, 1);
    bench_nap(20000000);
    assert_int_equal(wishes(&b), 1);
    bench_push(&w, CACHE_ROUTED, 5, 0, 3, 1);
    BENCH_UNTIL(wishes(&b) == 0);
    assert_int_equal(counter_read(&b.dropped), 1);
    tier_wish(b.tier, 0, 9, 0, false); /* a policy's has nothing to do with it */
    bench_push(&w, CACHE_ROUTED, 5, 0, 3, 1);
    bench_nap(20000000);
    assert_int_equal(wishes(&b), 1);
    bench_close(&b);
}

/* A prediction brings an expert before it is asked for, if its layer has not been entered. */
static void test_predictions(void **state)
{
    struct bench b;
    struct bench_worker w;
    bench_start(&b);
    bench_attach(&w, &b, 1);
    atomic_store(&w.channel.header->place, 5ull << 16 | 1);
    bench_push(&w, CACHE_PREDICTED, 5, 1, 14, 65535); /* too late */
    bench_push(&w, CACHE_PREDICTED, 5, 2, 15, 65535);
    BENCH_UNTIL(bench_slot(&b, 2, 15) >= 0);
    bench_nap(20000000);
    assert_true(bench_slot(&b, 1, 14) < 0);
    assert_int_equal(counter_read(&b.dropped), 1);
    assert_int_equal(counter_read(&b.used), 0);
    bench_push(&w, CACHE_ROUTED, 5, 2, 15, 1);
    BENCH_UNTIL(counter_read(&b.used) == b.plan.slabs[2].slab_bytes);
    bench_close(&b);
}

/* ---- when something fails ---- */

static void test_cut_file(void **state)
{
    struct bench b;
    struct bench_worker w;
    bench_start(&b);
    bench_attach(&w, &b, 1);
    int fd = open(bench_file(&b), O_RDWR);
    off_t whole = lseek(fd, 0, SEEK_END);
    uint8_t *copy = malloc((size_t)whole);
    assert_int_equal(pread(fd, copy, (size_t)whole, 0), whole);
    assert_int_equal(ftruncate(fd, 8192), 0);
    uint64_t resident = bench_state(&b).resident;
    for (uint32_t i = 8; i < 12; i++)
        bench_fetch(&w, 2, i);
    for (uint32_t i = 8; i < 12; i++) {
        BENCH_UNTIL(host_tier_read(&b.tier->table, 2, i).failures == 1);
        assert_true(bench_slot(&b, 2, i) < 0);
    }
    assert_int_equal(counter_read(&b.failed), 4);
    assert_true(atomic_load(&b.tier->table.header->reads) >= 4);
    bench_count(&w, 4);
    BENCH_UNTIL(bench_held(&b) == 0 && bench_state(&b).retired == 0);
    assert_true(bench_state(&b).resident >= resident - 4);
    bench_check(&b);
    /* it is there again: asking once more is enough */
    assert_int_equal(pwrite(fd, copy, (size_t)whole, 0), whole);
    bench_fetch(&w, 2, 9);
    assert_true(bench_await(&w, 2, 9));
    assert_int_equal(host_tier_read(&b.tier->table, 2, 9).failures, 1);
    bench_check(&b);
    free(copy);
    close(fd);
    bench_close(&b);
}

static void test_leaving(void **state)
{
    struct mkmodel_options o;
    struct bench b;
    struct bench_worker w, other;
    bench_options(&o);
    bench_open(&b, &o, 8);
    bench_attach(&w, &b, 1);
    bench_attach(&other, &b, 2);
    bench_epoch(&w);
    for (uint32_t i = 0; i < 16; i++)
        bench_fetch(&w, 1, i); /* more than there is room for, and nothing is ever counted */
    bench_nap(20000000);
    assert_true(bench_held(&b) > 0);
    tier_remove_worker(b.tier, 1);
    for (uint32_t i = 0; i < 16; i++) {
        bench_fetch(&other, 2, i);
        assert_true(bench_await(&other, 2, i));
        bench_count(&other, 1);
    }
    BENCH_UNTIL(bench_held(&b) == 0);
    bench_check(&b);
    bench_close(&b);
}

static void test_nonsense(void **state)
{
    struct bench b;
    bench_start(&b);
    struct bench_worker good;
    bench_attach(&good, &b, 100);
    struct cache_record records[] = {
        {.kind = CACHE_LOAD, .layer = 1, .n_entries = 1}, /* of the other ring */
        {.kind = 99},
        {.kind = CACHE_FETCH, .layer = 3},
        {.kind = CACHE_FETCH, .layer = 1, .n_entries = CACHE_RECORD_ENTRIES + 1},
        {.kind = CACHE_FETCH, .layer = 1, .n_entries = 1, .entries = {{16, 1}}},
        {.kind = CACHE_PREDICTED, .layer = 2, .n_entries = 1, .entries = {{65535, 1}}},
    };
    for (uint64_t i = 0; i <= sizeof records / sizeof *records; i++) {
        struct bench_worker w;
        bench_attach(&w, &b, 200 + i);
        bench_fetch(&w, 1, 9);
        if (i < sizeof records / sizeof *records)
            assert_int_equal(ring_push(&w.channel.fetches, &records[i]), 1);
        else
            atomic_fetch_add(&w.channel.fetches.header->tail, 5000);
        ring_notify(&w.channel.fetches);
        BENCH_UNTIL(b.broken == 200 + i);
        BENCH_UNTIL(bench_held(&b) == 0);
        tier_remove_worker(b.tier, 200 + i);
        bench_fetch(&good, 2, (uint32_t)i);
        assert_true(bench_await(&good, 2, (uint32_t)i));
        bench_count(&good, 1);
    }
    bench_check(&b);
    bench_close(&b);
}

/* From now on this thread, and those that it makes, have no io_uring (as in many containers) and no direct reads (as on some
 * file systems). */
static void forbid(void)
{
    enum { NR = offsetof(struct seccomp_data, nr), FLAGS = offsetof(struct seccomp_data, args[2]) };
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, NR),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_io_uring_setup, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_openat, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, FLAGS),
        BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, O_DIRECT, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EINVAL),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
    assert_int_equal(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
    assert_int_equal(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program), 0);
}

/* The last test: it cannot be undone. */
static void test_without_io_uring(void **state)
{
    struct mkmodel_options o;
    struct bench b;
    bench_options(&o);
    forbid();
    assert_int_equal(open("/proc/self/exe", O_RDONLY | O_DIRECT), -1);
    bench_open(&b, &o, 8);
    read_all(&b, &o);
    assert_true(counter_read(&b.reads) > 40);
    bench_close(&b);
    test_cut_file(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plan),
        cmocka_unit_test(test_few_experts),
        cmocka_unit_test(test_attach),
        cmocka_unit_test(test_reading),
        cmocka_unit_test(test_turns),
        cmocka_unit_test(test_epoch),
        cmocka_unit_test(test_copies),
        cmocka_unit_test(test_predictions),
        cmocka_unit_test(test_fetch_of_retired),
        cmocka_unit_test(test_free_slots_remember),
        cmocka_unit_test(test_device_holds),
        cmocka_unit_test(test_wishes_are_told),
        cmocka_unit_test(test_wishes_get_old),
        cmocka_unit_test(test_wishes_of_passed_layers),
        cmocka_unit_test(test_cut_file),
        cmocka_unit_test(test_leaving),
        cmocka_unit_test(test_nonsense),
        cmocka_unit_test(test_without_io_uring),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
