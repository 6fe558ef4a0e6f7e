/* Conversations on a prefix cache, for test_prefix_cache.c and test_kv_file.c. The truth is the
 * definition: what a path has of a position is what computing that position gives. "Computing"
 * writes, in place of keys and values, a number that depends on all tokens up to the position and
 * on the way of computing. */
#ifndef MOED_TESTS_PREFIX_BENCH_H
#define MOED_TESTS_PREFIX_BENCH_H

#include "worker/kv/prefix_cache.h"

#include "base/checked.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum {
    PAGE_BYTES = KV_POOL_ALIGN,
    VOCAB = 50,
    MOST = 900,
    PATHS = 6,
    BATCH = 256, /* the most positions that are computed at once */
};

static _Thread_local uint64_t random_state;
static pthread_mutex_t memd_lock = PTHREAD_MUTEX_INITIALIZER; /* memd is one thread */

static inline uint32_t below(uint32_t n)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(random_state >> 33) % n;
}

/* ---- A pool in this process's memory ---- */

struct bench {
    void *memory;
    struct kv_pool pool;
    struct prefix_cache *cache;
    struct kv_store store;       /* header NULL: none */
    struct heartbeat *heartbeat; /* NULL: none */
    bool exact;
    bool shared;                 /* with other workers: what is found may change at any time */
    uint32_t worker;             /* its number */
    uint32_t n_windowed, window; /* as prefix_cache_options */
};

static inline void bench_attach(struct bench *b, uint64_t format)
{
    struct error e;
    struct prefix_cache_options options = {.pool = b->pool,
                                           .format = format,
                                           .vocab = VOCAB,
                                           .exact = b->exact,
                                           .n_windowed = b->n_windowed,
                                           .window = b->window,
                                           .store = b->store,
                                           .heartbeat = b->heartbeat};
    pthread_mutex_lock(&memd_lock);
    int worker = kv_pool_join(&b->pool, 1);
    pthread_mutex_unlock(&memd_lock);
    assert_true(worker >= 0);
    options.worker = b->worker = (uint32_t)worker;
    assert_int_equal(prefix_cache_new(&options, &b->cache, &e), ERROR_OK);
}

static inline void bench_open_windowed(struct bench *b, uint32_t n_pages, bool exact,
                                       uint32_t n_windowed, uint32_t window)
{
    struct error e;
    size_t bytes = kv_pool_bytes(n_pages, PAGE_BYTES);
    *b = (struct bench){.memory = aligned_alloc(KV_POOL_ALIGN, round_up(bytes, KV_POOL_ALIGN)),
                        .exact = exact,
                        .n_windowed = n_windowed,
                        .window = window};
    memset(b->memory, 0, bytes);
    kv_pool_init(b->memory, n_pages, PAGE_BYTES, 1);
    assert_int_equal(kv_pool_attach(&b->pool, b->memory, bytes, &e), ERROR_OK);
    bench_attach(b, 1);
}

static inline void bench_open(struct bench *b, uint32_t n_pages, bool exact)
{
    bench_open_windowed(b, n_pages, exact, 0, 0);
}

/* The worker is gone, as if it were killed. */
static inline void bench_kill(struct bench *b)
{
    prefix_cache_free(b->cache);
    pthread_mutex_lock(&memd_lock);
    kv_pool_forget(&b->pool, b->worker);
    pthread_mutex_unlock(&memd_lock);
}

static inline void bench_close(struct bench *b)
{
    bench_kill(b);
    free(b->memory);
}

/* ---- A conversation ---- */

struct talk {
    struct kv_path path;
    uint32_t pages[MOST / KV_POOL_TOKENS + 1];
    uint32_t tokens[MOST];
    uint32_t n, n_prompt, n_past;
    uint64_t salt; /* of its pages */
    bool passing;
    bool open;
};

static inline uint64_t number_of(const struct talk *t, uint32_t position, enum kv_kind kind)
{
    uint64_t h = 14695981039346656037u + (uint64_t)kind + 8 * t->salt;
    for (uint32_t i = 0; i <= position; i++)
        h = (h ^ t->tokens[i]) * 1099511628211u;
    return h;
}

/* In a group of layers, which the path has. */
static inline uint64_t *place_in(const struct bench *b, const struct talk *t, uint32_t position,
                                 uint32_t group)
{
    uint32_t index = position / KV_POOL_TOKENS;
    uint8_t *page = prefix_cache_memory(b->cache, t->path.pages[index], group);
    return (uint64_t *)(void *)page + position % KV_POOL_TOKENS;
}

static inline uint64_t *place_of(const struct bench *b, const struct talk *t, uint32_t position)
{
    return place_in(b, t, position, 0);
}

/* The first position that a group attends to from `position`. */
static inline uint32_t first_attended(const struct bench *b, uint32_t position, uint32_t group)
{
    return group > 0 && position + 1 > b->window ? position + 1 - b->window : 0;
}

static inline void check_path(const struct bench *b, const struct talk *t)
{
    assert_true(t->path.n <= t->n);
    for (uint32_t group = 0; group <= b->n_windowed; group++)
        for (uint32_t i = first_attended(b, t->path.n, group); i < t->path.n; i++)
            if (*place_in(b, t, i, group) !=
                number_of(t, i, kv_kind_of(i, t->n_prompt, b->exact)) + group)
                fail_msg("position %u of %u is another's", i, t->path.n);
}

/* Writes a position that is computed now. */
static inline void write_position(struct bench *b, struct talk *t, uint32_t i, enum kv_kind kind)
{
    for (uint32_t group = 0; group <= b->n_windowed; group++)
        *place_in(b, t, i, group) = number_of(t, i, kind) + group;
}

/* Opens the talk for its first n_prompt tokens; at least the last is to be computed. */
static inline void open_talk(struct bench *b, struct talk *t)
{
    t->path = (struct kv_path){.pages = t->pages, .capacity = MOST / KV_POOL_TOKENS + 1};
    t->n_prompt = t->n;
    t->path.salt = t->salt;
    t->path.passing = t->passing;
    const struct kv_prefix prefix = {t->tokens, t->n - 1, t->n_prompt, t->salt};
    uint32_t found = prefix_cache_find(b->cache, &prefix, NULL);
    prefix_cache_open(b->cache, &prefix, &t->path);
    assert_true((t->path.n <= found || b->store.header || b->shared) && t->path.n < t->n);
    t->n_past = t->path.n;
    t->path.kept[0] = (struct kv_kept){t->n - 1, t->n};
    t->open = true;
    check_path(b, t);
}

static inline void close_talk(struct bench *b, struct talk *t)
{
    prefix_cache_close(b->cache, &t->path);
    t->open = false;
}

/* Positions that are computed next, in the way of their kind. */
static inline uint32_t next_chunk(const struct bench *b, const struct talk *t)
{
    enum kv_kind kind = kv_kind_of(t->n_past, t->n_prompt, b->exact);
    uint32_t left = t->n - t->n_past;
    if (kind == KV_DEFINED)
        return 1 + below(left < BATCH ? left : BATCH);
    uint32_t group = kind == KV_LARGE_GROUP ? KV_LARGE_TOKENS : KV_SMALL_TOKENS;
    assert_int_equal(t->n_past % group, 0);
    assert_true(group <= left);
    return group;
}

/* Computes some positions. False: the cache has no page. */
static inline bool compute(struct bench *b, struct talk *t)
{
    uint32_t n = next_chunk(b, t);
    enum kv_kind kind = kv_kind_of(t->n_past, t->n_prompt, b->exact);
    if (!prefix_cache_extend(b->cache, &t->path, t->n_past + n))
        return false;
    for (uint32_t i = t->n_past; i < t->n_past + n; i++)
        write_position(b, t, i, kind);
    t->n_past += n;
    prefix_cache_fill(b->cache, &t->path, t->tokens, t->n_past, kind, 1000u * n);
    assert_int_equal(t->path.n, t->n_past);
    prefix_cache_pass(b->cache, &t->path, t->n_past);
    check_path(b, t);
    return true;
}

/* What the next turn asks: a part of this talk or of another one, and more. */
static inline void new_turn(struct talk *t, const struct talk *other)
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

/* The worker dies and another one finds the pool: all paths are gone. */
static inline void die(struct bench *b, struct talk *talks)
{
    bench_kill(b);
    if (!b->shared)
        assert_int_equal(kv_pool_use(&b->pool).pages_in_use, 0);
    bench_attach(b, 1);
    for (uint32_t i = 0; i < PATHS; i++) {
        talks[i].open = false;
        talks[i].path.n_pages = talks[i].path.n = 0;
    }
}

static inline void step(struct bench *b, struct talk *talks)
{
    struct talk *t = &talks[below(PATHS)];
    if (!t->open) {
        new_turn(t, &talks[below(PATHS)]);
        t->salt = below(4) == 0; /* most talks have none */
        open_talk(b, t);
    } else if (t->n_past == t->n && (t->n == MOST || below(20) == 0)) {
        close_talk(b, t);
    } else if (t->n_past == t->n) {
        t->tokens[t->n++] = below(VOCAB); /* a token of the answer */
    } else if (!compute(b, t)) {
        close_talk(b, t);
    }
}

#endif
