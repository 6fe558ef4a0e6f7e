/* The prefix cache (worker/kv/prefix_cache.h) against the definition (prefix_bench.h). */
#include "prefix_bench.h"

enum { PAGES = 40 };

static void check_counts(const struct bench *b, const struct talk *talks)
{
    bool used[PAGES] = {false};
    uint32_t n = 0;
    for (uint32_t i = 0; i < PATHS; i++)
        for (uint32_t k = 0; k < talks[i].path.n_pages; k++)
            used[talks[i].path.pages[k]] = true;
    for (uint32_t i = 0; i < PAGES; i++)
        n += used[i];
    struct prefix_cache_stats s = prefix_cache_stats(b->cache);
    assert_int_equal(s.in_use, n);
    assert_int_equal(prefix_cache_available(b->cache), PAGES - n);
    assert_int_equal(kv_pool_use(&b->pool).pages_used, PAGES - s.free);
}

static void check_life(bool exact, uint64_t seed)
{
    static struct talk talks[PATHS];
    struct bench b;
    random_state = seed;
    memset(talks, 0, sizeof talks);
    bench_open(&b, PAGES, exact);
    for (uint32_t i = 0; i < 6000; i++) {
        step(&b, talks);
        if (below(500) == 0)
            die(&b, talks);
        if (i % 16 == 0)
            check_counts(&b, talks);
    }
    struct prefix_cache_stats s = prefix_cache_stats(b.cache);
    assert_true(s.evictions > 0 || s.adopted > 0);
    for (uint32_t i = 0; i < PATHS; i++)
        if (talks[i].open)
            close_talk(&b, &talks[i]);
    prefix_cache_clear(b.cache);
    assert_int_equal(prefix_cache_stats(b.cache).free, PAGES);
    bench_close(&b);
}

static void test_life(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 6; seed++)
        check_life(seed % 2, seed);
}

/* ---- By hand ---- */

static void set_tokens(struct talk *t, uint32_t n, uint32_t first_other)
{
    memset(t, 0, sizeof *t);
    for (uint32_t i = 0; i < n; i++)
        t->tokens[i] = i < first_other ? 1 : 2;
    t->n = n;
}

static void compute_all(struct bench *b, struct talk *t)
{
    while (t->n_past < t->n)
        assert_true(compute(b, t));
}

/* Two conversations with 100 tokens in common: a page is shared, a part of one is copied. */
static void test_divergence(void **state)
{
    static struct talk one, two;
    struct bench b;
    (void)state;
    bench_open(&b, 8, true);
    set_tokens(&one, 150, 150);
    open_talk(&b, &one);
    assert_int_equal(one.path.n, 0);
    compute_all(&b, &one);
    set_tokens(&two, 150, 100);
    open_talk(&b, &two);
    assert_int_equal(two.path.n, 100);
    assert_int_equal(two.path.pages[0], one.path.pages[0]);
    assert_int_not_equal(two.path.pages[1], one.path.pages[1]);
    assert_int_equal(prefix_cache_stats(b.cache).copies, 1);
    compute_all(&b, &two);
    check_path(&b, &one);
    close_talk(&b, &one);
    close_talk(&b, &two);
    /* a conversation goes on in its own last page */
    one.n = 160;
    for (uint32_t i = 150; i < 160; i++)
        one.tokens[i] = 3;
    open_talk(&b, &one);
    assert_int_equal(one.path.n, 150);
    assert_int_equal(prefix_cache_stats(b.cache).copies, 1);
    close_talk(&b, &one);
    bench_close(&b);
}

/* Two that compute the same at once have one set of pages in the end. */
static void test_twins(void **state)
{
    static struct talk one, two;
    struct bench b;
    (void)state;
    bench_open(&b, 8, true);
    set_tokens(&one, 130, 130);
    set_tokens(&two, 130, 130);
    open_talk(&b, &one);
    open_talk(&b, &two);
    compute_all(&b, &one);
    compute_all(&b, &two);
    assert_int_equal(prefix_cache_stats(b.cache).shared, 2);
    assert_memory_equal(one.path.pages, two.path.pages, 2 * sizeof *one.pages);
    assert_int_equal(prefix_cache_stats(b.cache).in_use, 4); /* each has a last page */
    close_talk(&b, &one);
    close_talk(&b, &two);
    bench_close(&b);
}

/* Where products round by groups, a prompt that has another cut takes only what has its own. */
static void test_groups(void **state)
{
    static struct talk t;
    struct bench b;
    (void)state;
    bench_open(&b, 16, false);
    set_tokens(&t, 300, 300); /* 256 in a large group, 44 by the definition */
    open_talk(&b, &t);
    compute_all(&b, &t);
    close_talk(&b, &t);
    t.n = 310;
    open_talk(&b, &t);
    assert_int_equal(t.path.n, 300);
    close_talk(&b, &t);
    t.n = 330; /* the 44 are in a small group now */
    open_talk(&b, &t);
    assert_int_equal(t.path.n, 256);
    close_talk(&b, &t);
    t.n = 200; /* no large group */
    open_talk(&b, &t);
    assert_int_equal(t.path.n, 0);
    close_talk(&b, &t);
    t.n = 256; /* the last token's group has to be computed whole */
    open_talk(&b, &t);
    assert_int_equal(t.path.n, 0);
    close_talk(&b, &t);
    bench_close(&b);
}

/* What was used lately, and what was expensive, stays. */
static void test_eviction(void **state)
{
    static struct talk talks[3], more;
    struct bench b;
    (void)state;
    bench_open(&b, 3, true);
    for (uint32_t i = 0; i < 3; i++) {
        set_tokens(&talks[i], 10, 0);
        talks[i].tokens[0] = 10 + i;
        open_talk(&b, &talks[i]);
        assert_true(prefix_cache_extend(b.cache, &talks[i].path, 10));
        for (uint32_t k = 0; k < 10; k++)
            *place_of(&b, &talks[i], k) = number_of(&talks[i], k, KV_DEFINED);
        prefix_cache_fill(b.cache, &talks[i].path, talks[i].tokens, 10, KV_DEFINED,
                          i == 1 ? 1000 : 5000);
        close_talk(&b, &talks[i]);
    }
    set_tokens(&more, 10, 0);
    more.tokens[0] = 20;
    open_talk(&b, &more);
    compute_all(&b, &more);
    close_talk(&b, &more);
    for (uint32_t i = 0; i < 3; i++)
        assert_int_equal(prefix_cache_find(b.cache, talks[i].tokens, 10, 10), i == 1 ? 0 : 10);
    bench_close(&b);
}

/* ---- Adoption ---- */

/* Pages of another format are of no use, but stay while there is room; damaged records, and what
 * continues them, are dropped. */
static void test_adoption(void **state)
{
    static struct talk t;
    struct bench b;
    (void)state;
    for (int fault = 0; fault < 7; fault++) {
        bench_open(&b, 8, true);
        set_tokens(&t, 200, 200);
        open_talk(&b, &t);
        compute_all(&b, &t);
        struct kv_page_record *r = &b.pool.records[t.path.pages[1]];
        uint32_t last = t.path.pages[3];
        bench_kill(&b);
        switch (fault) {
        case 1:
            atomic_store(&r->tokens[3], VOCAB);
            break;
        case 2:
            atomic_store(&r->n, KV_POOL_TOKENS + 1);
            break;
        case 3:
            atomic_store(&r->parent, 8);
            break;
        case 4:
            atomic_fetch_add(&r->parent_generation, 2);
            break;
        case 5:
            atomic_store(&r->depth, 3);
            break;
        case 6:
            atomic_store(&r->parent, last); /* a circle */
            break;
        }
        bench_attach(&b, 1);
        assert_int_equal(prefix_cache_stats(b.cache).adopted, fault ? 1 : 4);
        assert_int_equal(prefix_cache_find(b.cache, t.tokens, 199, 200), fault ? 64 : 199);
        bench_close(&b);
    }
    bench_open(&b, 8, true);
    set_tokens(&t, 200, 200);
    open_talk(&b, &t);
    compute_all(&b, &t);
    bench_kill(&b);
    bench_attach(&b, 2);
    assert_int_equal(prefix_cache_stats(b.cache).adopted, 4);
    assert_int_equal(prefix_cache_find(b.cache, t.tokens, 199, 200), 0);
    set_tokens(&t, 8 * KV_POOL_TOKENS, MOST);
    open_talk(&b, &t);
    compute_all(&b, &t);
    assert_int_equal(t.path.n_pages, 8);
    bench_close(&b);
}

/* ---- Several workers on one pool ---- */

enum { WORKERS = 3 };

struct crew {
    struct bench bench;
    struct talk talks[PATHS];
};

/* Adds a worker to the pool of the first. */
static void join(struct crew *new, const struct crew *first)
{
    new->bench = first->bench;
    new->bench.shared = true;
    bench_attach(&new->bench, 1);
}

static void end_all(struct crew *crew)
{
    for (uint32_t i = 0; i < PATHS; i++)
        if (crew->talks[i].open)
            close_talk(&crew->bench, &crew->talks[i]);
}

/* Nothing is used, and all pages can be had: none was lost, whatever died. */
static void check_all_free(struct crew *first, uint32_t n_pages)
{
    struct prefix_cache *c = first->bench.cache;
    assert_int_equal(kv_pool_use(&first->bench.pool).pages_in_use, 0);
    assert_int_equal(prefix_cache_available(c), n_pages);
    prefix_cache_clear(c);
    assert_int_equal(prefix_cache_stats(c).free, n_pages);
}

static void check_workers(bool exact, uint64_t seed)
{
    static struct crew crews[WORKERS];
    uint64_t shared = 0;
    random_state = seed;
    memset(crews, 0, sizeof crews);
    bench_open(&crews[0].bench, PAGES, exact);
    crews[0].bench.shared = true;
    for (uint32_t i = 1; i < WORKERS; i++)
        join(&crews[i], &crews[0]);
    for (uint32_t i = 0; i < 12000; i++) {
        struct crew *crew = &crews[below(WORKERS)];
        step(&crew->bench, crew->talks);
        if (below(20) == 0) /* another one asks the same */
            crews[0].talks[0].open ? (void)0
                                   : (void)memcpy(crews[0].talks[0].tokens, crew->talks[1].tokens,
                                                  sizeof crew->talks[1].tokens);
        if (below(400) == 0) {
            shared += prefix_cache_stats(crew->bench.cache).shared;
            die(&crew->bench, crew->talks);
        }
    }
    for (uint32_t i = 0; i < WORKERS; i++)
        end_all(&crews[i]);
    check_all_free(&crews[0], PAGES);
    for (uint32_t i = 1; i < WORKERS; i++)
        bench_kill(&crews[i].bench);
    bench_close(&crews[0].bench);
}

static void test_workers(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 4; seed++)
        check_workers(seed % 2, seed);
}

/* What one worker computed another finds; a page that is being written is copied, not shared. */
static void test_two_workers(void **state)
{
    static struct crew one, two;
    (void)state;
    memset(&one, 0, sizeof one);
    memset(&two, 0, sizeof two);
    bench_open(&one.bench, 8, true);
    join(&two, &one);
    set_tokens(&one.talks[0], 100, MOST);
    open_talk(&one.bench, &one.talks[0]);
    compute_all(&one.bench, &one.talks[0]);
    set_tokens(&two.talks[0], 120, MOST);
    open_talk(&two.bench, &two.talks[0]); /* 64 shared, 36 copied */
    assert_int_equal(two.talks[0].path.n, 100);
    assert_int_equal(two.talks[0].path.pages[0], one.talks[0].path.pages[0]);
    assert_int_not_equal(two.talks[0].path.pages[1], one.talks[0].path.pages[1]);
    assert_int_equal(prefix_cache_available(one.bench.cache), 8 - 3);
    compute_all(&two.bench, &two.talks[0]);
    close_talk(&two.bench, &two.talks[0]);
    /* the first one dies in the middle: its page keeps what is valid */
    bench_kill(&one.bench);
    assert_int_equal(prefix_cache_available(two.bench.cache), 8);
    set_tokens(&two.talks[1], 130, MOST);
    open_talk(&two.bench, &two.talks[1]);
    assert_int_equal(two.talks[1].path.n, 120);
    close_talk(&two.bench, &two.talks[1]);
    bench_close(&two.bench);
}

/* Two that compute the same at once have one set of full pages in the end. */
static void test_twins_of_workers(void **state)
{
    static struct crew one, two;
    (void)state;
    memset(&one, 0, sizeof one);
    memset(&two, 0, sizeof two);
    bench_open(&one.bench, 8, true);
    join(&two, &one);
    set_tokens(&one.talks[0], 130, MOST);
    set_tokens(&two.talks[0], 130, MOST);
    open_talk(&one.bench, &one.talks[0]);
    open_talk(&two.bench, &two.talks[0]);
    compute_all(&one.bench, &one.talks[0]);
    compute_all(&two.bench, &two.talks[0]);
    assert_int_equal(prefix_cache_stats(two.bench.cache).shared, 2);
    assert_memory_equal(one.talks[0].pages, two.talks[0].pages, 2 * sizeof *one.talks[0].pages);
    close_talk(&one.bench, &one.talks[0]);
    close_talk(&two.bench, &two.talks[0]);
    bench_kill(&two.bench);
    bench_close(&one.bench);
}

/* A worker cannot take pages that another one uses, and gets them when that one is done. */
static void test_pages_of_others(void **state)
{
    static struct crew one, two;
    (void)state;
    memset(&one, 0, sizeof one);
    memset(&two, 0, sizeof two);
    bench_open(&one.bench, 4, true);
    join(&two, &one);
    set_tokens(&one.talks[0], 190, MOST);
    open_talk(&one.bench, &one.talks[0]);
    compute_all(&one.bench, &one.talks[0]);
    set_tokens(&two.talks[0], 100, 0);
    open_talk(&two.bench, &two.talks[0]);
    assert_true(prefix_cache_extend(two.bench.cache, &two.talks[0].path, 64));
    assert_false(prefix_cache_extend(two.bench.cache, &two.talks[0].path, 100));
    close_talk(&one.bench, &one.talks[0]);
    compute_all(&two.bench, &two.talks[0]);
    close_talk(&two.bench, &two.talks[0]);
    check_all_free(&one, 4);
    bench_kill(&two.bench);
    bench_close(&one.bench);
}

/* Threads in the place of workers: ThreadSanitizer sees what processes would do. */
static void *work(void *arg)
{
    struct crew *crew = arg;
    random_state = 77 + crew->bench.worker;
    for (uint32_t i = 0; i < 2500; i++) {
        step(&crew->bench, crew->talks);
        if (below(300) == 0)
            die(&crew->bench, crew->talks);
    }
    end_all(crew);
    return NULL;
}

static void test_at_once(void **state)
{
    static struct crew crews[WORKERS];
    pthread_t threads[WORKERS];
    (void)state;
    for (int exact = 0; exact < 2; exact++) {
        memset(crews, 0, sizeof crews);
        bench_open(&crews[0].bench, PAGES, exact);
        crews[0].bench.shared = true;
        for (uint32_t i = 1; i < WORKERS; i++)
            join(&crews[i], &crews[0]);
        for (uint32_t i = 0; i < WORKERS; i++)
            assert_int_equal(pthread_create(&threads[i], NULL, work, &crews[i]), 0);
        for (uint32_t i = 0; i < WORKERS; i++)
            pthread_join(threads[i], NULL);
        check_all_free(&crews[0], PAGES);
        for (uint32_t i = 1; i < WORKERS; i++)
            bench_kill(&crews[i].bench);
        bench_close(&crews[0].bench);
    }
}

static void count_leaf(void *arg, const struct kv_leaf *leaf)
{
    uint32_t *tokens = arg;
    *tokens += leaf->tokens;
}

static void test_visit(void **state)
{
    static struct talk one, two;
    struct bench b;
    uint32_t tokens = 0;
    (void)state;
    bench_open(&b, 8, true);
    set_tokens(&one, 150, 150);
    set_tokens(&two, 90, 64);
    open_talk(&b, &one);
    compute_all(&b, &one);
    open_talk(&b, &two);
    compute_all(&b, &two);
    prefix_cache_visit(b.cache, count_leaf, &tokens);
    assert_int_equal(tokens, 150 + 90);
    close_talk(&b, &one);
    assert_int_equal(prefix_cache_clear(b.cache), 2); /* the first page is the other's, too */
    close_talk(&b, &two);
    bench_close(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_life),
        cmocka_unit_test(test_divergence),
        cmocka_unit_test(test_twins),
        cmocka_unit_test(test_groups),
        cmocka_unit_test(test_eviction),
        cmocka_unit_test(test_adoption),
        cmocka_unit_test(test_visit),
        cmocka_unit_test(test_workers),
        cmocka_unit_test(test_two_workers),
        cmocka_unit_test(test_twins_of_workers),
        cmocka_unit_test(test_pages_of_others),
        cmocka_unit_test(test_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
