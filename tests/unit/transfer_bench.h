/* An owner of the transfer scheduler (sched/prefetch/transfer_scheduler.h), for its tests. It
 * counts its slots plainly. Three layers of four experts with two segments each. */
#ifndef MOED_TESTS_TRANSFER_BENCH_H
#define MOED_TESTS_TRANSFER_BENCH_H

#include "sched/prefetch/transfer_scheduler.h"
#include "sched/policy.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

enum { LAYERS = 3, EXPERTS = 4, SEGMENTS = 2 };

struct bench {
    struct transfer_scheduler *copies;
    struct sched_cache *cache;
    struct cache_queue queue;
    uint32_t n_free, n_retired;
    bool held;                  /* retired slots: a worker may still read them */
    bool away[LAYERS][EXPERTS]; /* not in host memory */
    uint32_t hint_layer, hint_expert, hints;
};

static inline uint32_t free_slots(void *arg)
{
    return ((struct bench *)arg)->n_free;
}

static inline uint32_t retired_slots(void *arg)
{
    return ((struct bench *)arg)->n_retired;
}

static inline void reclaim(void *arg)
{
    struct bench *b = arg;
    if (b->held)
        return;
    b->n_free += b->n_retired;
    b->n_retired = 0;
}

static inline void evict(void *arg, uint32_t layer, uint32_t expert, uint32_t segment)
{
    ((struct bench *)arg)->n_retired++;
}

static inline bool obtainable(void *arg, uint32_t layer, uint32_t expert)
{
    return !((struct bench *)arg)->away[layer][expert];
}

static inline void hint(void *arg, uint32_t layer, uint32_t expert, double probability,
                        bool demanded)
{
    struct bench *b = arg;
    b->hint_layer = layer;
    b->hint_expert = expert;
    b->hints++;
}

static inline void open_bench(struct bench *b, enum sched_cache_kind kind,
                              enum sched_prefetcher prefetcher, uint32_t n_slots, uint32_t reserve)
{
    static const uint8_t segments[LAYERS] = {SEGMENTS, SEGMENTS, SEGMENTS};
    static const uint64_t bytes[LAYERS] = {100, 100, 100};
    memset(b, 0, sizeof *b);
    b->n_free = n_slots;
    struct transfer_shape shape = {LAYERS, EXPERTS, n_slots, reserve, segments, bytes};
    struct transfer_owner owner = {b, free_slots, retired_slots, reclaim, evict, obtainable, hint};
    struct sched_cache_shape cache = {.n_layers = LAYERS,
                                      .n_experts = EXPERTS,
                                      .n_segments = SEGMENTS,
                                      .n_used = 1,
                                      .capacity = n_slots - reserve};
    b->copies = transfer_scheduler_new(&shape, &owner);
    b->cache = sched_cache_new(kind, &cache, NULL);
    assert_non_null(b->copies);
    assert_non_null(b->cache);
    transfer_scheduler_use(b->copies, b->cache);
    transfer_scheduler_order(b->copies, prefetcher);
    transfer_scheduler_join(b->copies, 0, &b->queue);
}

static inline void close_bench(struct bench *b)
{
    transfer_scheduler_free(b->copies);
    sched_cache_free(b->cache);
}

static inline void predict(struct bench *b, uint64_t step, uint32_t layer, uint32_t expert,
                           uint16_t probability)
{
    uint16_t e = (uint16_t)expert;
    transfer_scheduler_predicted(b->copies, 0, step, layer, &e, &probability, 1);
}

/* Starts the next copy: layer * 100 + expert * 10 + segment; -1: none. */
static inline int copy(struct bench *b)
{
    struct copy_job job;
    if (transfer_scheduler_next(b->copies, 1, &job) != TRANSFER_JOB)
        return -1;
    assert_true(b->n_free > 0);
    b->n_free--;
    transfer_scheduler_begin(b->copies, &job);
    assert_true(transfer_scheduler_filling(b->copies, job.layer, job.expert));
    transfer_scheduler_end(b->copies, &job);
    return (int)(job.layer * 100 + job.expert * 10 + job.segment);
}

/* Begins the next copy and leaves it under way; only_loads: of a load. */
static inline int begin_copy(struct bench *b, bool only_loads, struct copy_job *job)
{
    enum transfer_next next = only_loads ? transfer_scheduler_next_load(b->copies, 1, job)
                                         : transfer_scheduler_next(b->copies, 1, job);
    if (next != TRANSFER_JOB)
        return -1;
    assert_true(b->n_free > 0);
    b->n_free--;
    transfer_scheduler_begin(b->copies, job);
    return (int)(job->layer * 100 + job->expert * 10 + job->segment);
}

static inline void expect_copies(struct bench *b, const int *expected, size_t n)
{
    for (size_t i = 0; i < n; i++)
        assert_int_equal(copy(b), expected[i]);
}

#define EXPECT_COPIES(b, ...)                                                                      \
    expect_copies(b, (const int[]){__VA_ARGS__}, sizeof((int[]){__VA_ARGS__}) / sizeof(int))

#endif
