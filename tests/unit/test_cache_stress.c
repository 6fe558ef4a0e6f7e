/* The expert cache under workers that read the arena while memd evicts, both without a break. A
 * segment that a worker finds in the table is whole until its epoch ends, also while slots come and
 * go with their memory. ThreadSanitizer, which sees workers and engine at one address, checks the
 * memory orders that tests/model/slots.pml assumes. */
#include "cache_bench.h"
#include "sched/prefetch/transfer_internal.h"

enum { WORKERS = 4, SLOTS = 10, SECONDS_EACH = 1 };

struct stress {
    struct bench bench;
    _Atomic bool stop;
    _Atomic uint64_t reads, loads, lives, wrong;
};

struct stress_worker {
    struct stress *stress;
    uint64_t key;
    uint32_t seed;
};

/* Reads all resident segments of the table in one epoch. */
static void read_some(struct stress *s, struct bench_worker *w, uint32_t *seed)
{
    bench_epoch(w);
    for (int i = 0; i < 6; i++) {
        int n = bench_read(w, 1 + bench_draw(seed, LAYERS - 1), bench_draw(seed, EXPERTS));
        if (n < 0)
            s->wrong++;
        else
            s->reads += (uint64_t)n;
    }
    bench_epoch(w);
}

/* Waits for the oldest load and uses it. Segments that other workers loaded may be evicted before
 * memd serves this load: then memd copies them again, and keeps them. */
static void use_load(struct stress *s, struct bench_worker *w, uint32_t layer, uint32_t expert)
{
    uint64_t end = clock_ns() + 10000000000u;
    int n = 0;
    while (n < (int)bench_segments[layer] && clock_ns() < end) {
        bench_await(w, layer, expert, bench_segments[layer]);
        bench_epoch(w);
        n = bench_read(w, layer, expert);
        bench_epoch(w);
        if (n < 0)
            break;
    }
    if (n != (int)bench_segments[layer])
        s->wrong++;
}

/* A layer like a worker's: routing, loads, each used on arrival. */
static void run_layer(struct stress *s, struct bench_worker *w, uint64_t step, uint32_t *seed)
{
    uint32_t layer = 1 + bench_draw(seed, LAYERS - 1), n = 1 + bench_draw(seed, 3), experts[3];
    atomic_store(&w->channel.header->place, step << 16 | layer);
    for (uint32_t i = 0; i < n; i++) {
        experts[i] = bench_draw(seed, EXPERTS);
        bench_push(w, CACHE_ROUTED, step, layer, experts[i], 1);
        bench_push(w, CACHE_PREDICTED, step + bench_draw(seed, 2), 1 + bench_draw(seed, LAYERS - 1),
                   bench_draw(seed, EXPERTS), bench_draw(seed, 65536));
    }
    for (uint32_t i = 0; i < n; i++)
        bench_load(w, layer, experts[i], bench_segments[layer]);
    read_some(s, w, seed);
    for (uint32_t i = 0; i < n; i++) {
        use_load(s, w, layer, experts[i]);
        bench_consume(w, 1);
        s->loads++;
    }
}

/* Lives of a worker, each ended as by a kill: at any point, with an odd epoch and loads
 * outstanding. */
static void *worker(void *arg)
{
    struct stress_worker *self = arg;
    struct stress *s = self->stress;
    while (!s->stop) {
        struct bench_worker w;
        self->key += WORKERS;
        while (bench_present(&s->bench) >=
               CACHE_MAX_WORKERS - WORKERS) /* if all is resident lives are short */
            bench_nap(100000);
        bench_attach(&w, &s->bench, self->key);
        uint64_t steps = 20 + bench_draw(&self->seed, 100);
        for (uint64_t step = 1; step < steps && !s->stop; step++)
            run_layer(s, &w, step, &self->seed);
        for (uint32_t i = 0; i < 3; i++)
            bench_load(&w, 1, bench_draw(&self->seed, EXPERTS), 2);
        bench_epoch(&w);
        cache_remove_worker(s->bench.cache, self->key); /* unmaps the region: no step after this */
        s->lives++;
    }
    return NULL;
}

/* resizes: slots come and go concurrently, except as many as an expert has segments. */
static void run_policy(enum sched_cache_kind kind, enum sched_cache_kind other, bool resizes)
{
    static struct stress s;
    memset(&s, 0, sizeof s);
    bench_open(&s.bench, kind, SLOTS, 0);
    pthread_t threads[WORKERS];
    struct stress_worker workers[WORKERS];
    for (uint32_t i = 0; i < WORKERS; i++) {
        workers[i] = (struct stress_worker){&s, i + 1, i * 77 + 1};
        assert_int_equal(pthread_create(&threads[i], NULL, worker, &workers[i]), 0);
    }
    uint64_t end = clock_ns() + SECONDS_EACH * 1000000000ull, sizes = 0;
    uint32_t seed = 4711;
    for (int i = 0; clock_ns() < end; i++) {
        bench_nap(resizes ? 3000000 : 10000000);
        bench_check(&s.bench);
        struct cache_resize_state now;
        cache_resize_state(s.bench.cache, &now);
        if (resizes && (!now.busy || i % 16 == 0)) { /* often another before the last is over */
            sizes += !now.busy;
            cache_resize(s.bench.cache,
                         MOST_SEGMENTS + bench_draw(&seed, ALL_SEGMENTS - MOST_SEGMENTS + 1));
        }
        if (i % 10 == 9) { /* another policy while serving */
            enum sched_cache_kind next = i % 20 == 9 ? other : kind;
            enum sched_budget budget = i % 40 < 20 ? BUDGET_GLOBAL : BUDGET_UNIFORM;
            if (!sched_cache_takes(next, budget))
                budget = sched_cache_budget(next);
            assert_int_equal(cache_set_policy(s.bench.cache, next, budget, NULL), 0);
        }
    }
    s.stop = true;
    for (uint32_t i = 0; i < WORKERS; i++)
        pthread_join(threads[i], NULL);
    BENCH_UNTIL(!bench_present(&s.bench));
    struct cache_resize_state last;
    BENCH_UNTIL((cache_resize_state(s.bench.cache, &last), !last.busy));
    assert_int_equal(last.failed.code, ERROR_OK);
    assert_true(!resizes || sizes > 0);
    BENCH_UNTIL(bench_state(&s.bench).slots.filling == 0 &&
                bench_state(&s.bench).slots.retired == 0);
    bench_check(&s.bench);
    for (size_t i = 0; i < LAYERS * EXPERTS; i++)
        assert_true(s.bench.cache->transfers->experts[i].pins == 0 &&
                    s.bench.cache->transfers->experts[i].queued == 0);
    print_message(
        "%s and %s: %lu lives, %lu resizes, %lu loads, %lu segments read, %lu evictions\n",
        sched_cache_name(kind), sched_cache_name(other), (unsigned long)s.lives,
        (unsigned long)sizes, (unsigned long)s.loads, (unsigned long)s.reads,
        (unsigned long)counter_read(&s.bench.evictions));
    assert_int_equal(s.wrong, 0);
    assert_int_equal(s.bench.n_broken, 0);
    assert_true(s.loads > 100 && s.reads > 100 && counter_read(&s.bench.evictions) > 100);
    bench_close(&s.bench);
}

static void test_stress_keeping(void **state)
{
    run_policy(CACHE_LRU, CACHE_VALUE, false);
}

static void test_stress_papers(void **state)
{
    run_policy(CACHE_LCP, CACHE_MAP_FREQUENCY, false);
}

static void test_stress_giving_up(void **state)
{
    run_policy(CACHE_NONE, CACHE_DALI, false);
}

static void test_stress_resizing(void **state)
{
    run_policy(CACHE_VALUE, CACHE_LRU, true);
    run_policy(CACHE_NONE, CACHE_DALI, true);
    run_policy(CACHE_STATIC, CACHE_LCP, true);
    run_policy(CACHE_LAYERWISE, CACHE_LRU_PREFETCH, true);
    run_policy(CACHE_SCORE, CACHE_LFU, true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_stress_keeping),
        cmocka_unit_test(test_stress_papers),
        cmocka_unit_test(test_stress_giving_up),
        cmocka_unit_test(test_stress_resizing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
