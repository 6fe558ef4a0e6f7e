/* The host tier with workers that compute without a break while memd evicts; some workers die. An
 * expert that a worker finds in the table is whole until its epoch ends. ThreadSanitizer sees
 * workers, lanes and the tier's thread at one address. */
#include "tier_bench.h"

enum { WORKERS = 3, SLOTS = 10, SECONDS = 2, COPIERS = 1 };

struct stress {
    struct bench bench;
    _Atomic bool stop;
    _Atomic uint64_t layers, found, lives, wrong, copies;
};

struct stress_worker {
    struct stress *stress;
    uint64_t key;
    uint32_t seed;
};

/* Reads a layer like a worker: resident experts under the epoch, the others when they arrive. False
 * if they do not arrive. */
static bool run_layer(struct stress *s, struct bench_worker *w, uint64_t step, uint32_t *seed)
{
    uint32_t layer = bench_draw(seed, 3), n = 1 + bench_draw(seed, 12), left = 0, experts[12];
    uint64_t end = clock_ns() + 20000000000u;
    atomic_store(&w->channel.header->place, step << 16 | layer);
    for (uint32_t i = 0; i < n; i++) {
        experts[i] = (i + bench_draw(seed, 16)) % 16;
        bench_push(w, CACHE_ROUTED, step, layer, experts[i], 1);
        bench_push(w, CACHE_PREDICTED, step + bench_draw(seed, 2), bench_draw(seed, 3),
                   bench_draw(seed, 16), bench_draw(seed, 65536));
    }
    bench_epoch(w);
    for (uint32_t i = 0; i < n; i++) {
        int there = bench_read(w, layer, experts[i]);
        s->wrong += there < 0;
        s->found += there > 0;
        if (there <= 0)
            experts[left++] = experts[i];
    }
    bench_epoch(w);
    for (uint32_t i = 0; i < left; i++)
        bench_fetch(w, layer, experts[i]);
    for (uint32_t i = 0; i < left; i++) {
        bool whole = false;
        while (!whole &&
               clock_ns() <
                   end) { /* the tier may evict it again before the worker's fetch begins */
            bench_await(w, layer, experts[i]);
            bench_epoch(w);
            int there = bench_read(w, layer, experts[i]);
            bench_epoch(w);
            s->wrong += there < 0;
            whole = there > 0;
        }
        if (!whole)
            return false;
        bench_count(w, 1);
    }
    s->layers++;
    return true;
}

/* Lives of a worker, each ended as a kill would: with an odd epoch and fetches outstanding. */
static void *worker(void *arg)
{
    struct stress_worker *self = arg;
    struct stress *s = self->stress;
    while (!s->stop) {
        struct bench_worker w;
        self->key += WORKERS;
        bench_attach(&w, &s->bench, self->key);
        uint64_t steps = 20 + bench_draw(&self->seed, 60);
        for (uint64_t step = 1; step < steps && !s->stop; step++)
            if (!run_layer(s, &w, step, &self->seed))
                s->wrong++;
        for (uint32_t i = 0; i < 5; i++)
            bench_fetch(&w, 1, bench_draw(&self->seed, 16));
        bench_epoch(&w);
        tier_remove_worker(s->bench.tier, self->key); /* unmaps the region: no step after this */
        s->lives++;
    }
    return NULL;
}

/* Pins and reads experts like the device's copy engine. */
static void *copier(void *arg)
{
    struct stress *s = arg;
    uint32_t seed = 5;
    while (!s->stop) {
        uint32_t layer = bench_draw(&seed, 3), expert = bench_draw(&seed, 16);
        const uint8_t *slab = tier_pin(s->bench.tier, layer, expert);
        if (!slab) {
            tier_hint(s->bench.tier, layer, expert, bench_draw(&seed, 100) / 100.0,
                      bench_draw(&seed, 4) == 0);
            bench_nap(100000);
            continue;
        }
        s->wrong += !bench_is_slab(&s->bench, slab, layer, expert);
        tier_unpin(s->bench.tier, layer, expert, true);
        s->copies++;
    }
    return NULL;
}

static void test_stress(void **state)
{
    static struct stress s;
    struct mkmodel_options o;
    bench_options(&o);
    bench_open(&s.bench, &o, SLOTS);
    pthread_t threads[WORKERS], copies;
    struct stress_worker workers[WORKERS];
    for (uint32_t i = 0; i < WORKERS; i++) {
        workers[i] = (struct stress_worker){&s, i + 1, i * 77 + 1};
        assert_int_equal(pthread_create(&threads[i], NULL, worker, &workers[i]), 0);
    }
    assert_int_equal(pthread_create(&copies, NULL, copier, &s), 0);
    uint64_t end = clock_ns() + SECONDS * 1000000000ull;
    while (clock_ns() < end) {
        bench_nap(10000000);
        bench_check(&s.bench);
    }
    s.stop = true;
    for (uint32_t i = 0; i < WORKERS; i++)
        pthread_join(threads[i], NULL);
    pthread_join(copies, NULL);
    BENCH_UNTIL(!bench_present(&s.bench));
    BENCH_UNTIL(bench_held(&s.bench) == 0 && bench_state(&s.bench).slots.filling == 0 &&
                bench_state(&s.bench).slots.retired == 0);
    bench_check(&s.bench);
    print_message("%lu lives, %lu layers, %lu found, %lu reads, %lu evictions, %lu copies\n",
                  (unsigned long)s.lives, (unsigned long)s.layers, (unsigned long)s.found,
                  (unsigned long)counter_read(&s.bench.reads),
                  (unsigned long)counter_read(&s.bench.evictions), (unsigned long)s.copies);
    assert_int_equal(s.wrong, 0);
    assert_int_equal(s.bench.broken, 0);
    assert_true(s.layers > 20 && counter_read(&s.bench.evictions) > 100 && s.copies > 10);
    bench_close(&s.bench);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_stress)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
