/* memd's host tier: how many experts fit a size, reads from the file, the choice of victims,
 * hints. test_tier_errors.c has what fails. The truth: the same model loaded whole
 * (tests/unit/tier_bench.h), and numbers worked out by hand from tier.h and tier_plan.h. */
#include "tier_bench.h"

#include "model/memory_need.h"

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
    /* the size that the message names is sufficient, and little more than needed */
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

/* The --ram that is proposed where the whole model does not fit, for what is free. */
static void test_ram_that_fits(void **state)
{
    const struct memory_worker worker = {.threads = 2};
    struct mkmodel_options o;
    struct loaded_model m;
    struct tier_plan t;
    struct error e;
    char text[24];
    bench_options(&o);
    o.expert_width *= 4; /* experts of some hundred kB: --ram comes in whole MB */
    load_model(&m, &o);
    uint64_t whole = memory_need_bytes(&m.plan, 0, &worker), proposed = 0;
    uint64_t slab = m.plan.slabs[0].slab_bytes, step = slab / 3;
    for (uint64_t available = step; available < whole; available += step) {
        if (!memory_need_ram(&m.plan, available, &worker, text))
            continue;
        struct pool_plan dense = m.plan;
        must(tier_plan_new(&m.plan, text, &t, &e), &e);
        dense.header.bytes = m.plan.slabs[0].offset; /* as pool_plan_keep_dense */
        uint64_t need = memory_need_bytes(&dense, t.bytes + t.read_bytes, &worker);
        assert_true(t.n_slots > 0 && need <= available);
        assert_true(need + 2 * slab + (8 << 20) > available); /* and not much less */
        proposed++;
    }
    assert_true(proposed > 3);
    assert_false(memory_need_ram(&m.plan, 64 << 20, &worker, text)); /* the margin alone */
    unload_model(&m);
}

/* Too few experts to leave any on disk. */
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
    assert_non_null(strstr(e.text, "too few experts"));
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
    /* no such slot */
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

/* The tier fills all layers evenly at first. Then every expert can be fetched, though few fit, from
 * every kind of file. */
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
        /* The tier keeps one of 9 slots free: 8 experts, the same number in each layer, but for
         * one. */
        assert_int_equal(bench_state(&b).slots.resident, 8);
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
        bench_read_all(&b, &o);
        assert_true(atomic_load(&b.tier->table.header->pieces) >= 2 * counter_read(&b.reads));
        bench_close(&b);
    }
}

/* ---- the choice of victims ---- */

/* A fetched expert is pinned until the worker counts it. More fetches than slots are served in
 * turns. */
static void test_turns(void **state)
{
    struct bench b;
    struct bench_worker w;
    bench_start(&b);
    bench_attach(&w, &b, 1);
    for (uint32_t i = 0; i < 16; i++)
        bench_fetch(&w, 2, i); /* all experts of a layer, with half as many slots */
    uint32_t counted = 0, rounds = 0;
    while (counted < 16) {
        assert_true(bench_await(&w, 2, counted));
        bench_nap(20000000); /* all that fit arrive */
        bench_epoch(&w);
        uint32_t n = 0;
        while (counted + n < 16 && bench_read(&w, 2, counted + n) == 1)
            n++;
        bench_epoch(&w);
        assert_in_range(n, 1, 8);
        bench_nap(20000000); /* the tier does not evict them */
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

/* An expert that is read under an odd epoch keeps its bytes, with any fetches. The tier restores it
 * without reading. */
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
    /* other experts are used often, so that this one has the least value, until it is evicted */
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
                reads + 1); /* but for an expert that the worker fetched before */
    bench_count(&other, 1);
    BENCH_UNTIL(bench_held(&b) == 0 && bench_state(&b).slots.retired == 0);
    bench_check(&b);
    bench_close(&b);
}

/* The copy engine pins the experts that it copies. The tier reads experts of its fetch hints. */
static void test_copies(void **state)
{
    struct bench b;
    struct bench_worker w;
    bench_start(&b);
    bench_attach(&w, &b, 1);
    assert_null(tier_pin(b.tier, 2, 15));
    tier_hint(b.tier, 1, 15, 1, true);
    BENCH_UNTIL(bench_slot(&b, 1, 15) >= 0);
    assert_int_equal(counter_read(&b.prefetched), 0); /* a worker waits for it */
    tier_hint(b.tier, 2, 15, 1, false);
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
    /* a hint without a fetch evicts no expert of more value */
    for (uint32_t step = 1; step < 5; step++)
        for (uint32_t layer = 0; layer < 3; layer++)
            for (uint32_t i = 0; i < 16; i++)
                if (layer != 0 || i != 9)
                    bench_push(&w, CACHE_ROUTED, step, layer, i, 1);
    BENCH_UNTIL(atomic_load(&w.channel.fetches.header->head) ==
                atomic_load(&w.channel.fetches.header->tail));
    tier_hint(b.tier, 0, 9, 0, false);
    bench_nap(50000000);
    assert_true(bench_slot(&b, 0, 9) < 0);
    bench_close(&b);
}

/* ---- slots restored without reading ---- */

/* Gives (0, 0) the least value and fetches others until it is evicted. */
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

/* A fetch arrives together with the end of the epoch that delayed the reuse of the expert's slot.
 * The tier restores the slot, and does not reclaim it. */
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
    BENCH_UNTIL(bench_held(&b) == 0 && bench_state(&b).slots.filling == 0);
    pthread_mutex_lock(&b.tier->server.lock); /* so that the tier finds both at once */
    assert_int_equal(tier_where(b.tier, 0, 0), SLOT_RETIRED);
    uint64_t reads = counter_read(&b.reads);
    bench_epoch(&reader);
    bench_fetch(&reader, 0, 0);
    pthread_mutex_unlock(&b.tier->server.lock);
    assert_true(bench_await(&reader, 0, 0));
    assert_int_equal(bench_slot(&b, 0, 0), slot);
    assert_int_equal(counter_read(&b.reads), reads);
    bench_count(&reader, 1);
    BENCH_UNTIL(bench_held(&b) == 0);
    bench_check(&b);
    bench_close(&b);
}

/* The free slots hold the experts that were evicted last: a fetch, a hint and a prediction find
 * them there. The tier keeps one of 8 slots free, so it holds one evicted expert. */
static void test_free_slots_remember(void **state)
{
    for (int how = 0; how < 3; how++) {
        struct bench b;
        struct bench_worker w;
        bench_start(&b);
        bench_attach(&w, &b, 1);
        drive_out(&b, &w);
        BENCH_UNTIL(bench_held(&b) == 0 && bench_state(&b).slots.retired == 0 &&
                    bench_state(&b).slots.filling == 0);
        uint64_t reads = counter_read(&b.reads), free_slots = bench_state(&b).slots.free;
        assert_int_equal(free_slots, 1);
        if (how == 0) {
            bench_fetch(&w, 0, 0);
            assert_true(bench_await(&w, 0, 0));
            bench_count(&w, 1);
        } else if (how == 1) {
            tier_hint(b.tier, 0, 0, 1, true);
            BENCH_UNTIL(bench_slot(&b, 0, 0) >= 0);
        } else {
            bench_push(&w, CACHE_PREDICTED, 99, 0, 0, 65535);
            BENCH_UNTIL(bench_slot(&b, 0, 0) >= 0);
            assert_int_equal(counter_read(&b.prefetched), 0); /* the tier read nothing */
        }
        assert_int_equal(counter_read(&b.reads), reads);
        BENCH_UNTIL(bench_held(&b) == 0 && bench_state(&b).slots.retired == 0);
        assert_int_equal(bench_state(&b).slots.free, 1); /* its slot holds another expert now */
        bench_check(&b);
        bench_close(&b);
    }
}

/* The tier first evicts the experts that the device holds whole, the least valuable one first,
 * although they have more value than the others. Then it evicts the others. */
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
    tier_add_device(b.tier, &device);
    /* seven are in memory: (l, 0), (l, 1), and (0, 2) */
    assert_int_equal(bench_state(&b).slots.resident, 7);
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
    for (uint32_t i = 0; i < 2;
         i++) { /* each fetch takes the free slot, and the tier evicts one expert */
        assert_true(bench_slot(&b, goes[i].layer, goes[i].expert) >= 0);
        bench_fetch(&w, 0, 10 + i);
        assert_true(bench_await(&w, 0, 10 + i));
        BENCH_UNTIL(bench_slot(&b, goes[i].layer, goes[i].expert) < 0);
    }
    assert_true(bench_slot(&b, 0, 0) >= 0 && bench_slot(&b, 0, 1) >= 0);
    bench_fetch(&w, 0, 12); /* the victim is the least valuable of all */
    assert_true(bench_await(&w, 0, 12));
    BENCH_UNTIL(bench_state(&b).slots.resident == 7 && bench_state(&b).slots.free == 1);
    bench_count(&w, 3);
    tier_remove_device(b.tier, device.wake_arg);
    bench_close(&b);
}

/* ---- hints ---- */

static void count_wakes(void *arg)
{
    atomic_fetch_add((_Atomic uint32_t *)arg, 1);
}

static uint32_t hints(struct bench *b)
{
    pthread_mutex_lock(&b->tier->server.lock);
    uint32_t n = b->tier->n_hints;
    pthread_mutex_unlock(&b->tier->server.lock);
    return n;
}

/* The tier wakes the requester of a hint when the expert has arrived, for any reason. */
static void test_hints_are_reported(void **state)
{
    struct bench b;
    struct bench_worker w;
    _Atomic uint32_t wakes = 0;
    bench_start(&b);
    bench_attach(&w, &b, 1);
    struct tier_device device = {NULL, count_wakes, &wakes};
    tier_add_device(b.tier, &device);
    tier_hint(b.tier, 1, 15, 1, true);
    BENCH_UNTIL(wakes == 1);
    assert_true(bench_slot(&b, 1, 15) >= 0);
    tier_hint(b.tier, 1, 15, 1, true); /* the expert is in memory: the requester checks again */
    assert_int_equal(wakes, 2);
    pthread_mutex_lock(&b.tier->server.lock); /* a fetch and a hint for the same expert */
    bench_fetch(&w, 2, 15);
    pthread_mutex_unlock(&b.tier->server.lock);
    tier_hint(b.tier, 2, 15, 0.5, false);
    assert_true(bench_await(&w, 2, 15));
    BENCH_UNTIL(wakes == 3);
    assert_int_equal(hints(&b), 0);
    bench_count(&w, 1);
    tier_remove_device(b.tier, device.wake_arg);
    tier_hint(b.tier, 2, 14, 1, true);
    BENCH_UNTIL(bench_slot(&b, 2, 14) >= 0);
    assert_int_equal(wakes, 3);
    bench_close(&b);
}

/* Each step uses all experts but (0, 9), so the tier frees no slot for a hint for it. */
static void use_the_others(struct bench *b, struct bench_worker *w, uint32_t step)
{
    for (uint32_t layer = 0; layer < 3; layer++)
        for (uint32_t i = 0; i < 16; i++)
            if (layer != 0 || i != 9)
                bench_push(w, CACHE_ROUTED, step, layer, i, 1);
    BENCH_UNTIL(atomic_load(&w->channel.fetches.header->head) ==
                atomic_load(&w->channel.fetches.header->tail));
}

/* A policy's hint is valid for two steps; a repeated hint is valid longer. */
static void test_hints_expire(void **state)
{
    struct bench b;
    struct bench_worker w;
    _Atomic uint32_t wakes = 0;
    bench_start(&b);
    bench_attach(&w, &b, 1);
    struct tier_device device = {NULL, count_wakes, &wakes};
    tier_add_device(b.tier, &device);
    for (uint32_t step = 1; step < 5; step++)
        use_the_others(&b, &w, step);
    tier_hint(b.tier, 0, 9, 0, false);
    for (uint32_t step = 5; step < 10; step++) {
        use_the_others(&b, &w, step); /* the first step after the hint */
        bench_nap(5000000);
        assert_int_equal(hints(&b), 1);
        tier_hint(b.tier, 0, 9, 0, false);
        assert_int_equal(hints(&b), 1); /* the same hint */
    }
    assert_int_equal(wakes, 0);
    use_the_others(&b, &w, 10);
    bench_nap(5000000);
    assert_int_equal(hints(&b), 1);
    use_the_others(&b, &w, 11); /* the second */
    BENCH_UNTIL(hints(&b) == 0);
    assert_int_equal(wakes, 1); /* the requester repeats a hint that it still needs */
    assert_true(bench_slot(&b, 0, 9) < 0);
    assert_int_equal(counter_read(&b.dropped), 0);
    bench_close(&b);
}

/* The tier drops a hint of a prediction when a worker enters its layer; other hints stay. */
static void test_hints_of_passed_layers(void **state)
{
    struct bench b;
    struct bench_worker w;
    bench_start(&b);
    bench_attach(&w, &b, 1);
    for (uint32_t step = 1; step < 5; step++)
        use_the_others(&b, &w, step);
    tier_hint(b.tier, 0, 9, 1e-6, false);
    bench_push(&w, CACHE_ROUTED, 4, 1, 3, 1);
    bench_nap(20000000);
    assert_int_equal(hints(&b), 1);
    bench_push(&w, CACHE_ROUTED, 5, 0, 3, 1);
    BENCH_UNTIL(hints(&b) == 0);
    assert_int_equal(counter_read(&b.dropped), 1);
    tier_hint(b.tier, 0, 9, 0, false); /* a policy's hint is independent of it */
    bench_push(&w, CACHE_ROUTED, 5, 0, 3, 1);
    bench_nap(20000000);
    assert_int_equal(hints(&b), 1);
    bench_close(&b);
}

/* The tier reads an expert for a prediction, before a fetch, if no worker has entered its layer. */
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plan),
        cmocka_unit_test(test_few_experts),
        cmocka_unit_test(test_ram_that_fits),
        cmocka_unit_test(test_attach),
        cmocka_unit_test(test_reading),
        cmocka_unit_test(test_turns),
        cmocka_unit_test(test_epoch),
        cmocka_unit_test(test_copies),
        cmocka_unit_test(test_predictions),
        cmocka_unit_test(test_fetch_of_retired),
        cmocka_unit_test(test_free_slots_remember),
        cmocka_unit_test(test_device_holds),
        cmocka_unit_test(test_hints_are_reported),
        cmocka_unit_test(test_hints_expire),
        cmocka_unit_test(test_hints_of_passed_layers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
