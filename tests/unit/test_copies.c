/* The copy engine's decisions (sched/copies.h) on small cases worked out by hand, with an owner that has plain counts for slots.
 * Three layers of four experts with two segments each. */
#include "sched/copies.h"
#include "sched/policy.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum { LAYERS = 3, EXPERTS = 4, SEGMENTS = 2 };

struct bench {
    struct sched_copies *copies;
    struct sched_cache *cache;
    struct cache_queue queue;
    uint32_t n_free, n_retired;
    bool held; /* what is retired: somebody may still read it */
    bool away[LAYERS][EXPERTS]; /* not in host memory */
    uint32_t wish_layer, wish_expert, wishes;
};

static uint32_t free_slots(void *arg)
{
    return ((struct bench *)arg)->n_free;
}

static uint32_t retired_slots(void *arg)
{
    return ((struct bench *)arg)->n_retired;
}

static void reclaim(void *arg)
{
    struct bench *b = arg;
    if (b->held)
        return;
    b->n_free += b->n_retired;
    b->n_retired = 0;
}

static void evict(void *arg, uint32_t layer, uint32_t expert, uint32_t segment)
{
    ((struct bench *)arg)->n_retired++;
}

static bool obtainable(void *arg, uint32_t layer, uint32_t expert)
{
    return !((struct bench *)arg)->away[layer][expert];
}

static void wish(void *arg, uint32_t layer, uint32_t expert, double probability, bool demanded)
{
    struct bench *b = arg;
    b->wish_layer = layer;
    b->wish_expert = expert;
    b->wishes++;
}

static void open_bench(struct bench *b, enum sched_cache_kind kind,
                       enum sched_prefetcher prefetcher, uint32_t n_slots, uint32_t reserve)
{
    static const uint8_t segments[LAYERS] = {SEGMENTS, SEGMENTS, SEGMENTS};
    static const uint64_t bytes[LAYERS] = {100, 100, 100};
    memset(b, 0, sizeof *b);
    b->n_free = n_slots;
    struct copies_shape shape = {LAYERS, EXPERTS, n_slots, reserve, segments, bytes};
    struct copies_owner owner = {b, free_slots, retired_slots, reclaim, evict, obtainable, wish};
    struct sched_cache_shape cache = {.n_layers = LAYERS,
                                      .n_experts = EXPERTS,
                                      .n_segments = SEGMENTS,
                                      .n_used = 1,
                                      .capacity = n_slots - reserve};
    b->copies = sched_copies_new(&shape, &owner);
    b->cache = sched_cache_new(kind, &cache, NULL);
    assert_non_null(b->copies);
    assert_non_null(b->cache);
    sched_copies_use(b->copies, b->cache);
    sched_copies_order(b->copies, prefetcher);
    sched_copies_join(b->copies, 0, &b->queue);
}

static void close_bench(struct bench *b)
{
    sched_copies_free(b->copies);
    sched_cache_free(b->cache);
}

static void predict(struct bench *b, uint64_t step, uint32_t layer, uint32_t expert,
                    uint16_t probability)
{
    uint16_t e = (uint16_t)expert;
    sched_copies_predicted(b->copies, 0, step, layer, &e, &probability, 1);
}

/* The next copy, made at once: layer * 100 + expert * 10 + segment; -1: none. */
static int copy(struct bench *b)
{
    struct copy_job job;
    if (sched_copies_next(b->copies, 1, &job) != COPIES_JOB)
        return -1;
    assert_true(b->n_free > 0);
    b->n_free--;
    sched_copies_begin(b->copies, &job);
    assert_true(sched_copies_filling(b->copies, job.layer, job.expert));
    sched_copies_end(b->copies, &job);
    return (int)(job.layer * 100 + job.expert * 10 + job.segment);
}

/* Step 1, layer 0. Predicted in this order: layer 2 expert 3 (40000), layer 1 expert 0 (20000), layer 1 expert 2 (30000). */
static void predict_three(struct bench *b)
{
    sched_copies_place(b->copies, 0, 1 << 16);
    predict(b, 1, 2, 3, 40000);
    predict(b, 1, 1, 0, 20000);
    predict(b, 1, 1, 2, 30000);
}

static void expect_copies(struct bench *b, const int *expected, size_t n)
{
    for (size_t i = 0; i < n; i++)
        assert_int_equal(copy(b), expected[i]);
}

#define EXPECT_COPIES(b, ...)                                                                      \
    expect_copies(b, (const int[]){__VA_ARGS__}, sizeof((int[]){__VA_ARGS__}) / sizeof(int))

/* By probability: 40000, 30000, 20000; an expert's segments one after the other. */
static void test_probable(void **state)
{
    struct bench b;
    open_bench(&b, CACHE_LRU, PREFETCH_PROBABLE, 12, 0);
    predict_three(&b);
    EXPECT_COPIES(&b, 230, 231, 120, 121, 100, 101, -1);
    close_bench(&b);
}

/* ProMoE: the nearest layer first, within it as predicted: layer 1's 0 then 2, then layer 2's. */
static void test_chunked(void **state)
{
    struct bench b;
    open_bench(&b, CACHE_LRU, PREFETCH_CHUNKED, 12, 0);
    predict_three(&b);
    EXPECT_COPIES(&b, 100, 101, 120, 121, 230, 231, -1);
    close_bench(&b);
}

/* FineMoE: p / (l - l_now), now at layer 0: 40000 / 2 = 20000, 20000 / 1, 30000 / 1. The first two are equal: as predicted. */
static void test_urgent(void **state)
{
    struct bench b;
    open_bench(&b, CACHE_LRU, PREFETCH_URGENT, 12, 0);
    predict_three(&b);
    EXPECT_COPIES(&b, 120, 121, 230, 231, 100, 101, -1);
    close_bench(&b);
}

/* AsyncIO: as issued; a group, of the layers of one parity, holds as many unused segments as the reserve, here 2. Layer 1's
 * experts share one: 100 and 101 fill it; expert 2 waits until they have served. */
static void test_rotating(void **state)
{
    struct bench b;
    open_bench(&b, CACHE_LRU, PREFETCH_ROTATING, 12, 2);
    predict_three(&b);
    EXPECT_COPIES(&b, 230, 231, 100, 101, -1);
    const uint16_t expert = 0, workload = 1;
    sched_copies_routed(b.copies, 0, 1, 1 << 16 | 1, &expert, &workload,
                        1); /* the group is used up */
    EXPECT_COPIES(&b, 120, 121, -1);
    assert_int_equal(sched_copies_counts(b.copies)->predicted_bytes, 600);
    assert_int_equal(sched_copies_counts(b.copies)->predicted_used_bytes, 200);
    close_bench(&b);
}

/* ProMoE's Algorithm 2, line 12: "first clears any existing low-priority tasks": when layer 1 has been routed nothing is left, of layer 2
 * neither; with `chunked` those of layer 2 stay. What is predicted afterwards counts. */
static void test_cleared(void **state)
{
    const uint16_t expert = 1, workload = 1;
    for (int all = 0; all < 2; all++) {
        struct bench b;
        open_bench(&b, CACHE_LRU, all ? PREFETCH_CLEARED : PREFETCH_CHUNKED, 12, 0);
        predict_three(&b);
        EXPECT_COPIES(&b, 100);
        sched_copies_place(b.copies, 0, 1 << 16 | 1);
        sched_copies_routed(b.copies, 0, 1, 1 << 16 | 1, &expert, &workload, 1);
        if (all)
            EXPECT_COPIES(&b, -1);
        else
            EXPECT_COPIES(&b, 230, 231, -1);
        assert_int_equal(sched_copies_counts(b.copies)->dropped, all ? 3 : 2);
        predict(&b, 1, 2, 0, 10);
        EXPECT_COPIES(&b, 200, 201, -1);
        close_bench(&b);
    }
}

/* DALI: as they were predicted, which is by workload, and before what its cache wants by itself: here the random experts that it
 * starts with, one of each layer. With `probable` these come first. */
static void test_loaded(void **state)
{
    for (int loaded = 0; loaded < 2; loaded++) {
        struct bench b;
        open_bench(&b, CACHE_DALI, loaded ? PREFETCH_LOADED : PREFETCH_PROBABLE, 12, 6);
        predict_three(&b);
        int first[6];
        for (int i = 0; i < 6; i++)
            first[i] = copy(&b);
        static const int in_order[6] = {230, 231, 100, 101, 120, 121};
        uint32_t predicted = 0;
        for (int i = 0; i < 6; i++)
            predicted += first[i] == in_order[i];
        if (loaded)
            assert_int_equal(predicted, 6);
        else
            assert_true(predicted < 6);
        close_bench(&b);
    }
}

/* Two askers, whose steps are not comparable: at layer 0 of step 1 and at layer 1 of step 9. Both predict for layer 2: the first 40000,
 * two layers away, the other 30000, one away. By probability the first's; nearer is the other's, and so is what is urgent: 30000 / 1
 * against 40000 / 2. */
static void test_two_askers(void **state)
{
    static const enum sched_prefetcher kinds[] = {PREFETCH_PROBABLE, PREFETCH_CHUNKED, PREFETCH_URGENT,
                                                  PREFETCH_ROTATING, PREFETCH_CLEARED, PREFETCH_LOADED};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        struct bench b;
        static struct cache_queue other;
        const uint16_t expert = 1, probability = 30000;
        memset(&other, 0, sizeof other);
        open_bench(&b, CACHE_LRU, kinds[i], 12, 2);
        sched_copies_join(b.copies, 1, &other);
        sched_copies_place(b.copies, 0, 1 << 16);
        sched_copies_place(b.copies, 1, 9 << 16 | 1);
        predict(&b, 1, 2, 3, 40000);
        sched_copies_predicted(b.copies, 1, 9, 2, &expert, &probability, 1);
        assert_int_equal(copy(&b), kinds[i] == PREFETCH_PROBABLE ? 230 : 210);
        close_bench(&b);
    }
}

/* A load goes before every prediction, unless the prefetcher is `value` and the prediction saves more than the load's wait:
 * sched_prefetch_gain = p t_cpu - 0 (the CPU is not slowed down), so 40000 / 65535 x 3 = 1.8 > t_load = 1 and 30000 / 65535 x 3 =
 * 1.4 > 1, but 20000 / 65535 x 3 = 0.9. Once only. */
static void test_value(void **state)
{
    const struct sched_costs costs = {
        .load_s = 1, .load_contended_s = 1, .cpu_s = 3, .cpu_contended_s = 3};
    struct bench b;
    for (int told = 0; told < 2; told++) {
        open_bench(&b, CACHE_LRU, PREFETCH_VALUE, 12, 0);
        if (told)
            sched_copies_costs(b.copies, &costs);
        predict_three(&b);
        sched_copies_load(b.copies, 0, 0, 1, 2, 1);
        if (told)
            EXPECT_COPIES(&b, 230, 10, 11, 231, 120, 121, 100, 101, -1);
        else
            EXPECT_COPIES(&b, 10, 11, 230, 231, 120, 121, 100, 101, -1);
        close_bench(&b);
    }
}

/* ProMoE, early preemption: "clears any remaining low-priority speculative prefetch tasks for that layer", here whatever the
 * prefetcher. When a layer is routed its predictions are dropped, those of later layers stay. */
static void test_dropped_when_routed(void **state)
{
    struct bench b;
    open_bench(&b, CACHE_LRU, PREFETCH_PROBABLE, 12, 0);
    predict_three(&b);
    sched_copies_place(b.copies, 0, 1 << 16 | 1);
    EXPECT_COPIES(&b, 230, 231, -1);
    assert_int_equal(sched_copies_counts(b.copies)->dropped, 2);
    close_bench(&b);
}

/* What cannot be had now is wished for and holds nobody up; a load that cannot be had is waited for. */
static void test_not_obtainable(void **state)
{
    struct bench b;
    struct copy_job job;
    open_bench(&b, CACHE_LRU, PREFETCH_PROBABLE, 12, 0);
    predict_three(&b);
    b.away[2][3] = true;
    EXPECT_COPIES(&b, 120, 121, 100, 101, -1);
    assert_true(b.wishes > 0 && b.wish_layer == 2 && b.wish_expert == 3);
    b.away[2][3] = false;
    EXPECT_COPIES(&b, 230, 231, -1);
    b.away[0][1] = true;
    sched_copies_load(b.copies, 0, 0, 1, 2, 1);
    assert_int_equal(sched_copies_next(b.copies, 1, &job), COPIES_BLOCKED);
    assert_true(b.wish_layer == 0 && b.wish_expert == 1);
    b.away[0][1] = false;
    EXPECT_COPIES(&b, 10, 11, -1);
    close_bench(&b);
}

/* The value cache fills free room with the most valuable absent expert (1, activated twice); while that is away, with the next
 * (2, once). */
static void test_wanted_not_obtainable(void **state)
{
    struct bench b;
    open_bench(&b, CACHE_VALUE, PREFETCH_PROBABLE, 12, 0);
    for (uint64_t step = 1; step <= 2; step++) {
        const uint16_t experts[] = {1, 2}, workloads[] = {1, 1};
        sched_copies_routed(b.copies, 0, step, step << 16, experts, workloads, step == 1 ? 2 : 1);
        for (uint32_t layer = 1; layer < LAYERS;
             layer++) /* a step over all layers, or nothing decays */
            sched_copies_routed(b.copies, 0, step, step << 16 | layer, experts, workloads, 0);
    }
    b.away[0][1] = true;
    EXPECT_COPIES(&b, 20, 21);
    assert_true(b.wishes > 0 && b.wish_layer == 0 && b.wish_expert == 1);
    b.away[0][1] = false;
    EXPECT_COPIES(&b, 10, 11);
    close_bench(&b);
}

/* A prediction that did not come true gives up its buffer when its layer is over, so the group goes on. */
static void test_rotating_turns_over(void **state)
{
    struct bench b;
    open_bench(&b, CACHE_LRU, PREFETCH_ROTATING, 12, 2);
    for (uint64_t step = 1; step <= 5; step++) {
        sched_copies_place(b.copies, 0, step << 16);
        predict(&b, step, 1, (uint32_t)(step % EXPERTS), 30000);
        copy(&b);
        copy(&b);
        sched_copies_place(b.copies, 0, step << 16 | 2);
    }
    assert_int_equal(sched_copies_counts(b.copies)->predicted_bytes,
                     800); /* of four experts; the fifth is there */
    close_bench(&b);
}

/* What an asker that has gone activated last is in nobody's use, though its successor counts from 1 again. */
static void test_successor(void **state)
{
    struct bench b;
    open_bench(&b, CACHE_LRU, PREFETCH_PROBABLE, 4, 0);
    const uint16_t experts[] = {0, 1}, workloads[] = {1, 1};
    sched_copies_place(b.copies, 0, 9 << 16);
    sched_copies_load(b.copies, 0, 0, 0, 2, 1);
    sched_copies_load(b.copies, 0, 0, 1, 2, 1);
    EXPECT_COPIES(&b, 0, 1, 10, 11, -1);
    sched_copies_routed(b.copies, 0, 9, 9 << 16, experts, workloads, 2);
    sched_copies_leave(b.copies, 0);
    memset(&b.queue, 0, sizeof b.queue);
    sched_copies_join(b.copies, 0, &b.queue);
    sched_copies_place(b.copies, 0, 1 << 16);
    predict(&b, 1, 1, 3, 60000);
    EXPECT_COPIES(&b, 130, 131, -1);
    close_bench(&b);
}

/* A load waits for its room while the slots are pinned; what is given up is told, and counted as wasted where it never
 * served. */
static void test_room_and_waste(void **state)
{
    struct bench b;
    struct copy_job job;
    open_bench(&b, CACHE_LRU, PREFETCH_PROBABLE, 2, 0);
    sched_copies_place(b.copies, 0, 1 << 16);
    predict(&b, 1, 1, 0, 1000);
    EXPECT_COPIES(&b, 100, 101, -1);
    sched_copies_load(b.copies, 0, 0, 1, 2, 1); /* evicts both, unused */
    EXPECT_COPIES(&b, 10, 11, -1);
    assert_int_equal(sched_copies_counts(b.copies)->wasted_bytes, 200);
    sched_copies_load(b.copies, 0, 0, 2, 2, 1);
    assert_int_equal(sched_copies_next(b.copies, 1, &job), COPIES_BLOCKED); /* 1 is pinned */
    assert_true(sched_copies_outstanding(b.copies));
    sched_copies_consumed(b.copies, 0, 1);
    EXPECT_COPIES(&b, 20, 21, -1);
    assert_int_equal(sched_copies_counts(b.copies)->wasted_bytes, 200); /* 1 has served */
    sched_copies_leave(b.copies, 0);
    assert_false(sched_copies_outstanding(b.copies));
    close_bench(&b);
}

/* A copy ahead that is more likely than not (of 65535) goes on while nothing that was given up comes back: of the two slots that are
 * kept free one may be used, for another is on its way; not the last one, which a load takes at once. A less likely one waits. */
static void test_room_while_read(void **state)
{
    struct bench b;
    open_bench(&b, CACHE_LRU, PREFETCH_PROBABLE, 6, 2);
    sched_copies_place(b.copies, 0, 1 << 16);
    predict(&b, 1, 1, 0, 30000);
    predict(&b, 1, 1, 2, 20000);
    EXPECT_COPIES(&b, 100, 101, 120, 121, -1);
    assert_int_equal(b.n_free, 2);
    b.held = true;
    predict(&b, 1, 2, 2, 30000);
    EXPECT_COPIES(&b, -1);
    predict(&b, 1, 2, 3, 40000);
    EXPECT_COPIES(&b, 230, -1);
    assert_int_equal(b.n_free, 1);
    sched_copies_load(b.copies, 0, 0, 1, 1, 1);
    EXPECT_COPIES(&b, 10, -1);
    sched_copies_consumed(b.copies, 0, 1);
    b.held = false;
    EXPECT_COPIES(&b, 231);
    close_bench(&b);
}

/* What the layer under way activated stays while there is anything else: of 0 (least used, under way) and 1 (used more, of the step
 * before) 1 goes, though LFU would have 0 go. When nothing else is left it goes all the same. */
static void test_in_use(void **state)
{
    struct bench b;
    open_bench(&b, CACHE_LFU, PREFETCH_PROBABLE, 4, 0);
    const uint16_t experts[] = {1, 0}, workloads[] = {5, 1};
    sched_copies_place(b.copies, 0, 1 << 16);
    sched_copies_routed(b.copies, 0, 1, 1 << 16, experts, workloads, 1);
    sched_copies_load(b.copies, 0, 0, 1, 2, 1);
    EXPECT_COPIES(&b, 10, 11, -1);
    sched_copies_consumed(b.copies, 0, 1);
    sched_copies_place(b.copies, 0, 2 << 16);
    sched_copies_routed(b.copies, 0, 2, 2 << 16, experts + 1, workloads + 1, 1);
    sched_copies_load(b.copies, 0, 0, 0, 2, 2);
    EXPECT_COPIES(&b, 0, 1, -1);
    sched_copies_consumed(b.copies, 0, 2); /* its pin is gone, its layer is not over */
    sched_copies_load(b.copies, 0, 0, 2, 2, 2);
    EXPECT_COPIES(&b, 20, 21, -1);
    assert_int_equal(sched_copies_resident(b.copies, 0, 1), 0);
    assert_int_equal(sched_copies_resident(b.copies, 0, 0), 2);
    sched_copies_load(b.copies, 0, 0, 3, 2, 2); /* 2 is pinned: 0 */
    EXPECT_COPIES(&b, 30, 31, -1);
    assert_int_equal(sched_copies_resident(b.copies, 0, 0), 0);
    close_bench(&b);
}

static uint32_t resident(const struct bench *b, uint32_t layer)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < EXPERTS; i++)
        n += sched_copies_resident(b->copies, layer, i);
    return n;
}

/* Six experts are there, of layers 0 and 1. A policy that keeps no loads takes over, and gives up what it would not keep, and what
 * is in use when that is over: of `none` that is all, of `layerwise`, for which there is room for one layer, what is not
 * layer 0's; that is completed. */
static void test_policy_that_keeps_nothing(void **state)
{
    static const enum sched_cache_kind kinds[] = {CACHE_NONE, CACHE_LAYERWISE};
    for (int k = 0; k < 2; k++) {
        struct bench b;
        open_bench(&b, CACHE_LRU, PREFETCH_PROBABLE, 12, 0);
        sched_copies_place(b.copies, 0, 1 << 16);
        for (uint16_t i = 0; i < 6; i++)
            sched_copies_load(b.copies, 0, i / 3, i % 3, 2, 1);
        EXPECT_COPIES(&b, 0, 1, 10, 11, 20, 21, 100, 101, 110, 111, 120, 121, -1);
        sched_copies_consumed(b.copies, 0, 5); /* (1, 2) is not used up */
        const uint16_t expert = 1, workload = 1;
        sched_copies_routed(b.copies, 0, 1, 1 << 16 | 1, &expert, &workload, 1);
        sched_copies_place(b.copies, 0, 1 << 16 | 1); /* nor is the layer of (1, 1) over */
        struct sched_cache_shape shape = {.n_layers = LAYERS, .n_experts = EXPERTS, .n_segments = SEGMENTS,
                                          .n_used = 1, .capacity = EXPERTS * SEGMENTS};
        struct sched_cache *next = sched_cache_new(kinds[k], &shape, NULL);
        assert_non_null(next);
        sched_copies_use(b.copies, next);
        if (kinds[k] == CACHE_NONE) { /* as after a resize: nothing goes for that */
            EXPECT_COPIES(&b, -1);
            assert_int_equal(resident(&b, 0) + resident(&b, 1), 12);
        }
        sched_copies_tidy(b.copies);
        for (int i = 0; i < 16; i++)
            copy(&b);
        assert_int_equal(resident(&b, 0), k == 0 ? 0 : 8);
        assert_int_equal(sched_copies_resident(b.copies, 1, 0), 0);
        assert_int_equal(sched_copies_resident(b.copies, 1, 1), 2);
        assert_int_equal(sched_copies_resident(b.copies, 1, 2), 2);
        sched_copies_consumed(b.copies, 0, 6);
        sched_copies_place(b.copies, 0, 1 << 16 | 2);
        for (int i = 0; i < 16; i++)
            copy(&b);
        assert_int_equal(resident(&b, 0), k == 0 ? 0 : 8);
        assert_int_equal(resident(&b, 1), 0);
        sched_cache_free(b.cache);
        b.cache = next;
        close_bench(&b);
    }
}

/* A policy that keeps loads keeps what there is. */
static void test_policy_that_keeps(void **state)
{
    struct bench b;
    open_bench(&b, CACHE_NONE, PREFETCH_PROBABLE, 12, 0);
    sched_copies_place(b.copies, 0, 1 << 16);
    sched_copies_load(b.copies, 0, 0, 1, 2, 1);
    EXPECT_COPIES(&b, 10, 11, -1);
    struct sched_cache_shape shape = {.n_layers = LAYERS, .n_experts = EXPERTS, .n_segments = SEGMENTS,
                                      .n_used = 1, .capacity = 12};
    struct sched_cache *next = sched_cache_new(CACHE_LFU, &shape, NULL);
    assert_non_null(next);
    sched_copies_use(b.copies, next);
    sched_copies_tidy(b.copies);
    sched_copies_consumed(b.copies, 0, 1);
    sched_copies_place(b.copies, 0, 1 << 16 | 2);
    EXPECT_COPIES(&b, -1, -1, -1);
    assert_int_equal(sched_copies_resident(b.copies, 0, 1), 2);
    sched_cache_free(b.cache);
    b.cache = next;
    close_bench(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_probable),
        cmocka_unit_test(test_chunked),
        cmocka_unit_test(test_urgent),
        cmocka_unit_test(test_cleared),
        cmocka_unit_test(test_loaded),
        cmocka_unit_test(test_two_askers),
        cmocka_unit_test(test_rotating),
        cmocka_unit_test(test_value),
        cmocka_unit_test(test_dropped_when_routed),
        cmocka_unit_test(test_not_obtainable),
        cmocka_unit_test(test_wanted_not_obtainable),
        cmocka_unit_test(test_room_and_waste),
        cmocka_unit_test(test_room_while_read),
        cmocka_unit_test(test_in_use),
        cmocka_unit_test(test_rotating_turns_over),
        cmocka_unit_test(test_successor),
        cmocka_unit_test(test_policy_that_keeps_nothing),
        cmocka_unit_test(test_policy_that_keeps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
