/* The prefix cache (worker/kv/prefix_cache.h) against the definition (prefix_bench.h). */
#include "prefix_bench.h"

#include "ipc/kv_page.h"

enum { PAGES = 40 };

/* A page in the pool by its memory. */
static uint32_t number_in_pool(const struct bench *b, uint32_t page, uint32_t group)
{
    return (uint32_t)((size_t)(prefix_cache_memory(b->cache, page, group) - b->pool.pages) /
                      PAGE_BYTES);
}

static void check_counts(const struct bench *b, const struct talk *talks)
{
    bool used[PAGES] = {false};
    uint32_t n = 0;
    for (uint32_t i = 0; i < PATHS; i++)
        for (uint32_t k = 0; k < talks[i].path.n_pages; k++)
            for (uint32_t group = 0; group <= b->n_windowed; group++)
                if (group == 0 || (k >= talks[i].path.first_windowed))
                    used[number_in_pool(b, talks[i].path.pages[k], group)] = true;
    for (uint32_t i = 0; i < PAGES; i++)
        n += used[i];
    struct prefix_cache_stats s = prefix_cache_stats(b->cache);
    assert_int_equal(s.in_use, n);
    assert_int_equal(prefix_cache_available(b->cache), PAGES - n);
    assert_int_equal(kv_pool_use(&b->pool).pages_used, PAGES - s.free);
}

/* What the life has: how many windowed pages go with a page, and the window. */
struct windows {
    uint32_t n, window;
};

/* Returns how many windowed pages were evicted alone. */
static uint64_t check_life(bool exact, uint64_t seed, struct windows w)
{
    static struct talk talks[PATHS];
    struct bench b;
    random_state = seed;
    memset(talks, 0, sizeof talks);
    bench_open_windowed(&b, PAGES, exact, w.n, w.window);
    for (uint32_t i = 0; i < (w.n ? 2000 : 6000); i++) {
        step(&b, talks);
        if (below(500) == 0)
            die(&b, talks);
        if (i % 16 == 0)
            check_counts(&b, talks);
    }
    struct prefix_cache_stats s = prefix_cache_stats(b.cache);
    assert_true(s.evictions > 0 || s.adopted > 0);
    uint64_t windows_evicted = s.windows_evicted;
    for (uint32_t i = 0; i < PATHS; i++)
        if (talks[i].open)
            close_talk(&b, &talks[i]);
    prefix_cache_clear(b.cache);
    assert_int_equal(prefix_cache_stats(b.cache).free, PAGES);
    bench_close(&b);
    return windows_evicted;
}

static void test_life(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 6; seed++)
        check_life(seed % 2, seed, (struct windows){0, 0});
}

/* Windows of a page and less, of several pages, and longer than any talk. */
static void test_life_with_windows(void **state)
{
    static const struct windows w[] = {{1, 1}, {1, 5}, {1, 64}, {2, 100}, {1, 300}, {1, 5000}};
    uint64_t evicted = 0;
    (void)state;
    for (uint64_t i = 0; i < sizeof w / sizeof *w; i++) {
        evicted += check_life(true, 10 + i, w[i]);
        evicted += check_life(false, 20 + i, w[i]);
    }
    assert_true(evicted > 100);
}

/* ---- By hand ---- */

static void set_tokens(struct talk *t, uint32_t n, uint32_t first_other)
{
    memset(t, 0, sizeof *t);
    for (uint32_t i = 0; i < n; i++)
        t->tokens[i] = i < first_other ? 1 : 2;
    t->n = n;
}

static uint32_t find(struct bench *b, const struct talk *t, uint32_t n, uint32_t n_prompt,
                     uint32_t *known)
{
    return prefix_cache_find(b->cache, &(struct kv_prefix){t->tokens, n, n_prompt, t->salt}, known);
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

/* ---- Windows, by hand ---- */

/* Windowed pages in the pool. */
static uint32_t count_windowed(const struct bench *b)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < b->pool.n_pages; i++)
        n += kv_page_has_content(kv_page_word(&b->pool, i)) && b->pool.records[i].group > 0;
    return n;
}

/* A talk longer than its windows holds their pages alone, and goes on with them when it comes
 * again; it does not begin in its middle once the pages there are needed elsewhere. */
static void test_window_goes_on(void **state)
{
    static struct talk t, other;
    struct bench b;
    (void)state;
    bench_open_windowed(&b, 12 + 16, true, 1, 70); /* 2 windowed pages of the first talk stay */
    set_tokens(&t, 640, 640);
    open_talk(&b, &t);
    while (t.n_past < t.n) {
        assert_true(compute(&b, &t));
        assert_true(t.path.n_windowed - t.path.first_windowed <= 3); /* 70 positions, and a page */
    }
    assert_int_equal(t.path.first_windowed, (640 + 1 - 70) / 64);
    close_talk(&b, &t);
    assert_int_equal(find(&b, &t, 640, 640, NULL), 640);
    set_tokens(&other, 500, 0);
    open_talk(&b, &other);
    assert_true(prefix_cache_extend(b.cache, &other.path, 500)); /* 8 pages and 8 windowed ones */
    compute_all(&b, &other);
    close_talk(&b, &other);
    uint32_t known;
    assert_int_equal(find(&b, &t, 640, 640, NULL), 640);
    assert_true(find(&b, &t, 300, 300, &known) < 300);
    assert_int_equal(known, 300);
    assert_true(prefix_cache_stats(b.cache).windows_evicted > 0);
    open_talk(&b, &t);
    assert_int_equal(t.path.n, 639);
    close_talk(&b, &t);
    bench_close(&b);
}

/* A prompt that a talk shares up to a place without windows computes from before it, and leaves
 * windows there for the next one. */
static void test_window_at_branch(void **state)
{
    static struct talk one, two, three;
    struct bench b;
    (void)state;
    bench_open_windowed(&b, 64, true, 1, 10);
    set_tokens(&one, 400, 400);
    open_talk(&b, &one);
    compute_all(&b, &one);
    close_talk(&b, &one);
    bench_kill(&b);
    for (uint32_t i = 0; i < b.pool.n_pages; i++) /* the windows in the middle get lost */
        if (b.pool.records[i].group > 0 && b.pool.records[i].depth < 5 &&
            kv_page_claim(&b.pool, 0, i, kv_page_word(&b.pool, i)))
            kv_page_release(&b.pool, i);
    bench_attach(&b, 1);
    set_tokens(&two, 400, 200);
    uint32_t known;
    assert_int_equal(find(&b, &two, 399, 400, &known), 0);
    assert_int_equal(known, 200);
    open_talk(&b, &two);
    assert_int_equal(two.path.n, 0);
    two.path.kept[1] = (struct kv_kept){known, known};
    compute_all(&b, &two);
    close_talk(&b, &two);
    set_tokens(&three, 300, 200);
    three.tokens[200] = 9;
    assert_int_equal(find(&b, &three, 299, 300, NULL), 200);
    assert_true(prefix_cache_stats(b.cache).shared > 0); /* pages were known, windows not */
    bench_close(&b);
}

/* A path of unknown tokens has all its pages at once, but only so many windowed ones. */
static void test_window_of_unknown(void **state)
{
    static struct talk t;
    struct bench b;
    (void)state;
    bench_open_windowed(&b, 10 + 2 * 3, true, 2, 50);
    t.path = (struct kv_path){.pages = t.pages, .capacity = 14, .window_pages = 3};
    assert_true(prefix_cache_extend(b.cache, &t.path, 640));
    assert_int_equal(prefix_cache_stats(b.cache).free, 0);
    assert_int_equal(count_windowed(&b), 6);
    t.n = 640;
    for (uint32_t n = 0; n < 640; n += 80) {
        for (uint32_t i = n; i < n + 80; i++) {
            assert_true(i / 64 >= t.path.first_windowed && i / 64 < t.path.n_windowed);
            write_position(&b, &t, i, KV_DEFINED);
        }
        for (uint32_t i = n; i < n + 80; i++)
            for (uint32_t k = first_attended(&b, i, 1); k <= i; k++)
                assert_true(*place_in(&b, &t, k, 2) == number_of(&t, k, KV_DEFINED) + 2);
        prefix_cache_pass(b.cache, &t.path, n + 80);
    }
    assert_false(prefix_cache_extend(b.cache, &t.path, 641 + 64 * 4));
    prefix_cache_close(b.cache, &t.path);
    assert_int_equal(prefix_cache_stats(b.cache).free, 16);
    bench_close(&b);
}

/* A talk of n tokens like none that begins with another token; open. */
static void open_another(struct bench *b, struct talk *t, uint32_t n, uint32_t first)
{
    bool passing = t->passing;
    set_tokens(t, n, 0);
    t->tokens[0] = first;
    t->passing = passing;
    open_talk(b, t);
}

/* Computes all that it lacks, in this time. */
static void compute_in(struct bench *b, struct talk *t, uint64_t ns)
{
    assert_true(prefix_cache_extend(b->cache, &t->path, t->n));
    for (uint32_t k = t->path.n; k < t->n; k++)
        *place_of(b, t, k) = number_of(t, k, KV_DEFINED);
    prefix_cache_fill(b->cache, &t->path, t->tokens, t->n, KV_DEFINED, ns);
}

static void add_another(struct bench *b, struct talk *t, uint32_t n, uint32_t first, uint64_t ns)
{
    open_another(b, t, n, first);
    compute_in(b, t, ns);
    close_talk(b, t);
}

/* What was used lately, and what was expensive, stays. */
static void test_eviction(void **state)
{
    static struct talk talks[3], more;
    struct bench b;
    (void)state;
    bench_open(&b, 3, true);
    for (uint32_t i = 0; i < 3; i++)
        add_another(&b, &talks[i], 10, 10 + i, i == 1 ? 1000 : 5000);
    add_another(&b, &more, 10, 20, 10000);
    for (uint32_t i = 0; i < 3; i++)
        assert_int_equal(find(&b, &talks[i], 10, 10, NULL), i == 1 ? 0 : 10);
    bench_close(&b);
}

/* A passing request's pages go first, however long they took, until another request uses them. It
 * does not lower the worth of pages that it finds. */
static void test_eviction_passing(void **state)
{
    static struct talk talks[2], passing = {.passing = true}, more;
    struct bench b;
    (void)state;
    bench_open(&b, 3, true);
    for (int used = 0; used < 2; used++) {
        add_another(&b, &talks[0], 10, 10, 2000);
        add_another(&b, &talks[1], 10, 11, 1000);
        add_another(&b, &passing, 11, 10, 9000); /* goes on in the page of talks[0] */
        add_another(&b, &passing, 10, 12, 9000);
        if (used)
            add_another(&b, &more, 11, 12, 1);
        add_another(&b, &more, 10, 20, 1000);
        assert_int_equal(find(&b, &talks[0], 10, 10, NULL), 10);
        assert_int_equal(find(&b, &talks[1], 10, 10, NULL), used ? 0 : 10);
        assert_int_equal(find(&b, &passing, 10, 10, NULL), used ? 10 : 0);
        prefix_cache_clear(b.cache);
    }
    bench_close(&b);
}

/* Two requests computed a page: it is worth the longer time. */
static void test_eviction_twins(void **state)
{
    static struct talk twins[2], talks[2], more;
    struct bench b;
    (void)state;
    bench_open(&b, 3, true);
    for (int i = 0; i < 2; i++)
        open_another(&b, &twins[i], KV_POOL_TOKENS, 10);
    for (int i = 0; i < 2; i++)
        compute_in(&b, &twins[i], i ? 9000 : 1000);
    assert_int_equal(prefix_cache_stats(b.cache).shared, 1);
    for (int i = 0; i < 2; i++)
        close_talk(&b, &twins[i]);
    for (uint32_t i = 0; i < 2; i++)
        add_another(&b, &talks[i], 10, 11 + i, 5000);
    add_another(&b, &more, 10, 20, 1000);
    assert_int_equal(find(&b, &twins[0], KV_POOL_TOKENS, KV_POOL_TOKENS, NULL), KV_POOL_TOKENS);
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
        assert_int_equal(find(&b, &t, 199, 200, NULL), fault ? 64 : 199);
        bench_close(&b);
    }
    bench_open(&b, 8, true);
    set_tokens(&t, 200, 200);
    open_talk(&b, &t);
    compute_all(&b, &t);
    bench_kill(&b);
    bench_attach(&b, 2);
    assert_int_equal(prefix_cache_stats(b.cache).adopted, 4);
    assert_int_equal(find(&b, &t, 199, 200, NULL), 0);
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

static void check_workers(bool exact, uint64_t seed, struct windows w)
{
    static struct crew crews[WORKERS];
    random_state = seed;
    memset(crews, 0, sizeof crews);
    bench_open_windowed(&crews[0].bench, PAGES, exact, w.n, w.window);
    crews[0].bench.shared = true;
    for (uint32_t i = 1; i < WORKERS; i++)
        join(&crews[i], &crews[0]);
    for (uint32_t i = 0; i < (w.n ? 4000 : 12000); i++) {
        struct crew *crew = &crews[below(WORKERS)];
        step(&crew->bench, crew->talks);
        if (below(20) == 0) /* another one asks the same */
            crews[0].talks[0].open ? (void)0
                                   : (void)memcpy(crews[0].talks[0].tokens, crew->talks[1].tokens,
                                                  sizeof crew->talks[1].tokens);
        if (below(400) == 0)
            die(&crew->bench, crew->talks);
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
        check_workers(seed % 2, seed, (struct windows){0, 0});
    for (uint64_t seed = 1; seed <= 6; seed++)
        check_workers(seed % 2, seed, (struct windows){1 + seed % 2, 30 * (uint32_t)seed});
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
    for (uint32_t way = 0; way < 4; way++) {
        memset(crews, 0, sizeof crews);
        bench_open_windowed(&crews[0].bench, PAGES, way % 2, way / 2, 70);
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

/* Talks of different salts share nothing, of the same one all; a new worker keeps that. */
static void test_salts(void **state)
{
    static struct talk talks[3];
    struct bench b;
    (void)state;
    bench_open(&b, 16, true);
    for (uint32_t i = 0; i < 3; i++) {
        set_tokens(&talks[i], 200, 200);
        talks[i].salt = i;
        open_talk(&b, &talks[i]);
        assert_int_equal(talks[i].path.n, 0);
        compute_all(&b, &talks[i]);
        close_talk(&b, &talks[i]);
    }
    bench_kill(&b);
    bench_attach(&b, 1);
    for (uint64_t salt = 0; salt < 4; salt++) {
        talks[0].salt = salt;
        assert_int_equal(find(&b, &talks[0], 199, 200, NULL), salt < 3 ? 199 : 0);
    }
    assert_int_equal(prefix_cache_stats(b.cache).adopted, 12);
    bench_close(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_life),
        cmocka_unit_test(test_life_with_windows),
        cmocka_unit_test(test_window_goes_on),
        cmocka_unit_test(test_window_at_branch),
        cmocka_unit_test(test_window_of_unknown),
        cmocka_unit_test(test_divergence),
        cmocka_unit_test(test_twins),
        cmocka_unit_test(test_groups),
        cmocka_unit_test(test_eviction),
        cmocka_unit_test(test_eviction_passing),
        cmocka_unit_test(test_eviction_twins),
        cmocka_unit_test(test_salts),
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
