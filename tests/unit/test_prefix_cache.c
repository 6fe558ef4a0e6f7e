/* The prefix cache (worker/kv/prefix_cache.h) against the definition: what a path has of a position
 * is what computing that position gives. "Computing" writes, in place of keys and values, a number
 * that depends on all tokens up to the position and on the way of computing. */
#include "worker/kv/prefix_cache.h"

#include "base/checked.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum { PAGE_BYTES = KV_POOL_ALIGN, VOCAB = 50, MOST = 900, PATHS = 6, PAGES = 40 };

static uint64_t random_state;

static uint32_t below(uint32_t n)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(random_state >> 33) % n;
}

/* ---- A pool in this process's memory ---- */

struct bench {
    void *memory;
    struct kv_pool pool;
    struct prefix_cache *cache;
    bool exact;
};

static void bench_attach(struct bench *b, uint64_t format)
{
    struct error e;
    struct prefix_cache_options options = {
        .pool = b->pool, .format = format, .vocab = VOCAB, .exact = b->exact};
    assert_int_equal(prefix_cache_new(&options, &b->cache, &e), ERROR_OK);
}

static void bench_open(struct bench *b, uint32_t n_pages, bool exact)
{
    struct error e;
    size_t bytes = kv_pool_bytes(n_pages, PAGE_BYTES);
    *b = (struct bench){.memory = aligned_alloc(KV_POOL_ALIGN, round_up(bytes, KV_POOL_ALIGN)),
                        .exact = exact};
    memset(b->memory, 0, bytes);
    kv_pool_init(b->memory, n_pages, PAGE_BYTES, 1);
    assert_int_equal(kv_pool_attach(&b->pool, b->memory, bytes, &e), ERROR_OK);
    bench_attach(b, 1);
}

static void bench_close(struct bench *b)
{
    prefix_cache_free(b->cache);
    free(b->memory);
}

/* ---- A conversation ---- */

struct talk {
    struct kv_path path;
    uint32_t pages[MOST / KV_POOL_TOKENS + 1];
    uint32_t tokens[MOST];
    uint32_t n, n_prompt, n_past;
    bool open;
};

static uint64_t number_of(const struct talk *t, uint32_t position, enum kv_kind kind)
{
    uint64_t h = 14695981039346656037u + (uint64_t)kind;
    for (uint32_t i = 0; i <= position; i++)
        h = (h ^ t->tokens[i]) * 1099511628211u;
    return h;
}

static uint64_t *place_of(const struct bench *b, const struct talk *t, uint32_t position)
{
    uint64_t *page =
        (uint64_t *)(void *)prefix_cache_memory(b->cache, t->path.pages[position / KV_POOL_TOKENS]);
    return page + position % KV_POOL_TOKENS;
}

static void check_path(const struct bench *b, const struct talk *t)
{
    assert_true(t->path.n <= t->n);
    for (uint32_t i = 0; i < t->path.n; i++)
        if (*place_of(b, t, i) != number_of(t, i, kv_kind_of(i, t->n_prompt, b->exact)))
            fail_msg("position %u of %u is another's", i, t->path.n);
}

/* Opens the talk for its first n_prompt tokens; at least the last is to be computed. */
static void open_talk(struct bench *b, struct talk *t)
{
    t->path = (struct kv_path){.pages = t->pages, .capacity = MOST / KV_POOL_TOKENS + 1};
    t->n_prompt = t->n;
    uint32_t found = prefix_cache_find(b->cache, t->tokens, t->n - 1, t->n_prompt);
    prefix_cache_open(b->cache, t->tokens, t->n - 1, t->n_prompt, &t->path);
    assert_true(t->path.n <= found && t->path.n < t->n);
    t->n_past = t->path.n;
    t->open = true;
    check_path(b, t);
}

static void close_talk(struct bench *b, struct talk *t)
{
    prefix_cache_close(b->cache, &t->path);
    t->open = false;
}

/* Positions that are computed next, in the way of their kind. */
static uint32_t next_chunk(const struct bench *b, const struct talk *t)
{
    enum kv_kind kind = kv_kind_of(t->n_past, t->n_prompt, b->exact);
    uint32_t left = t->n - t->n_past;
    if (kind == KV_DEFINED)
        return 1 + below(left);
    uint32_t group = kind == KV_LARGE_GROUP ? KV_LARGE_TOKENS : KV_SMALL_TOKENS;
    assert_int_equal(t->n_past % group, 0);
    assert_true(group <= left);
    return group;
}

/* Computes some positions. False: the cache has no page. */
static bool compute(struct bench *b, struct talk *t)
{
    uint32_t n = next_chunk(b, t);
    enum kv_kind kind = kv_kind_of(t->n_past, t->n_prompt, b->exact);
    if (!prefix_cache_extend(b->cache, &t->path, t->n_past + n))
        return false;
    for (uint32_t i = t->n_past; i < t->n_past + n; i++)
        *place_of(b, t, i) = number_of(t, i, kind);
    t->n_past += n;
    prefix_cache_fill(b->cache, &t->path, t->tokens, t->n_past, kind, 1000u * n);
    assert_int_equal(t->path.n, t->n_past);
    check_path(b, t);
    return true;
}

/* What the next turn asks: a part of this talk or of another one, and more. */
static void new_turn(struct talk *t, const struct talk *other)
{
    const struct talk *from = below(3) ? t : other;
    uint32_t keep = from->n ? below(from->n + 1) : 0;
    keep = below(3) ? from->n : keep;
    keep = keep > MOST / 2 ? below(MOST / 2) : keep;
    memmove(t->tokens, from->tokens, keep * sizeof *t->tokens);
    t->n = keep + 1 + below(below(2) ? 400 : 70);
    for (uint32_t i = keep; i < t->n; i++)
        t->tokens[i] = below(4) ? 7 : below(VOCAB); /* beginnings that are alike */
}

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

/* The worker dies and another one finds the pool: all paths are gone. */
static void die(struct bench *b, struct talk *talks)
{
    prefix_cache_free(b->cache);
    bench_attach(b, 1);
    for (uint32_t i = 0; i < PATHS; i++) {
        talks[i].open = false;
        talks[i].path.n_pages = talks[i].path.n = 0;
    }
    assert_int_equal(prefix_cache_stats(b->cache).in_use, 0);
}

static void step(struct bench *b, struct talk *talks)
{
    struct talk *t = &talks[below(PATHS)];
    if (!t->open) {
        new_turn(t, &talks[below(PATHS)]);
        open_talk(b, t);
    } else if (t->n_past == t->n && (t->n == MOST || below(20) == 0)) {
        close_talk(b, t);
    } else if (t->n_past == t->n) {
        t->tokens[t->n++] = below(VOCAB); /* a token of the answer */
    } else if (!compute(b, t)) {
        close_talk(b, t);
    }
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

/* Another format frees all; damaged records, and what continues them, are dropped. */
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
        prefix_cache_free(b.cache);
        switch (fault) {
        case 1:
            r->tokens[3] = VOCAB;
            break;
        case 2:
            atomic_store(&r->n, KV_POOL_TOKENS + 1);
            break;
        case 3:
            r->parent = 8;
            break;
        case 4:
            r->parent_serial++;
            break;
        case 5:
            r->depth = 3;
            break;
        case 6:
            r->parent = last; /* a circle */
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
    prefix_cache_free(b.cache);
    bench_attach(&b, 2);
    assert_int_equal(prefix_cache_stats(b.cache).adopted, 0);
    assert_int_equal(prefix_cache_stats(b.cache).free, 8);
    bench_close(&b);
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
        cmocka_unit_test(test_life),     cmocka_unit_test(test_divergence),
        cmocka_unit_test(test_twins),    cmocka_unit_test(test_groups),
        cmocka_unit_test(test_eviction), cmocka_unit_test(test_adoption),
        cmocka_unit_test(test_visit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
