/* The transfer scheduler's decisions (sched/prefetch/transfer_scheduler.h) on small cases worked
 * out by hand: which copy is next. test_transfer_slots.c tests which slots copies get. */
#include "transfer_bench.h"

/* Step 1, layer 0. Predicted in this order: layer 2 expert 3 (40000), layer 1 expert 0 (20000),
 * layer 1 expert 2 (30000). */
static void predict_three(struct bench *b)
{
    transfer_scheduler_place(b->copies, 0, 1 << 16);
    predict(b, 1, 2, 3, 40000);
    predict(b, 1, 1, 0, 20000);
    predict(b, 1, 1, 2, 30000);
}

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

/* FineMoE: p / (l - l_now), now at layer 0: 40000 / 2 = 20000, 20000 / 1, 30000 / 1. The first two
 * are equal: as predicted. */
static void test_urgent(void **state)
{
    struct bench b;
    open_bench(&b, CACHE_LRU, PREFETCH_URGENT, 12, 0);
    predict_three(&b);
    EXPECT_COPIES(&b, 120, 121, 230, 231, 100, 101, -1);
    close_bench(&b);
}

/* AsyncIO: in the order of the predictions. A group holds the layers of one parity, and at most as
 * many unused segments as the reserve, here 2. Layer 1's experts share one group: 100 and 101 fill
 * it; expert 2 waits until a step has used them. */
static void test_rotating(void **state)
{
    struct bench b;
    open_bench(&b, CACHE_LRU, PREFETCH_ROTATING, 12, 2);
    predict_three(&b);
    EXPECT_COPIES(&b, 230, 231, 100, 101, -1);
    const uint16_t expert = 0, workload = 1;
    transfer_scheduler_routed(b.copies, 0, 1, 1 << 16 | 1, false, &expert, &workload,
                              1); /* the group is full */
    EXPECT_COPIES(&b, 120, 121, -1);
    assert_int_equal(transfer_scheduler_counts(b.copies)->predicted_bytes, 600);
    assert_int_equal(transfer_scheduler_counts(b.copies)->predicted_used_bytes, 200);
    close_bench(&b);
}

/* ProMoE's Algorithm 2, line 12: "first clears any existing low-priority tasks". After the routing
 * of layer 1 no task is left, not even layer 2's; with `chunked` those of layer 2 stay. Later
 * predictions count. */
static void test_cleared(void **state)
{
    const uint16_t expert = 1, workload = 1;
    for (int all = 0; all < 2; all++) {
        struct bench b;
        open_bench(&b, CACHE_LRU, all ? PREFETCH_CLEARED : PREFETCH_CHUNKED, 12, 0);
        predict_three(&b);
        EXPECT_COPIES(&b, 100);
        transfer_scheduler_place(b.copies, 0, 1 << 16 | 1);
        transfer_scheduler_routed(b.copies, 0, 1, 1 << 16 | 1, false, &expert, &workload, 1);
        if (all)
            EXPECT_COPIES(&b, -1);
        else
            EXPECT_COPIES(&b, 230, 231, -1);
        assert_int_equal(transfer_scheduler_counts(b.copies)->dropped, all ? 3 : 2);
        predict(&b, 1, 2, 0, 10);
        EXPECT_COPIES(&b, 200, 201, -1);
        close_bench(&b);
    }
}

/* DALI: in the order of the predictions, which is by workload, and before the experts that its
 * cache wants: here the random experts of its start, one of each layer. With `probable` those come
 * first. */
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

/* Two requesters with steps that cannot be compared: at layer 0 of step 1 and at layer 1 of step 9.
 * Both predict for layer 2: the first 40000, two layers ahead, the second 30000, one layer ahead.
 * By probability the first's is next; by distance the second's, and by urgency too: 30000 / 1
 * against 40000 / 2. */
static void test_two_requesters(void **state)
{
    static const enum sched_prefetcher kinds[] = {PREFETCH_PROBABLE, PREFETCH_CHUNKED,
                                                  PREFETCH_URGENT,   PREFETCH_ROTATING,
                                                  PREFETCH_CLEARED,  PREFETCH_LOADED};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        struct bench b;
        static struct cache_queue other;
        const uint16_t expert = 1, probability = 30000;
        memset(&other, 0, sizeof other);
        open_bench(&b, CACHE_LRU, kinds[i], 12, 2);
        transfer_scheduler_join(b.copies, 1, &other);
        transfer_scheduler_place(b.copies, 0, 1 << 16);
        transfer_scheduler_place(b.copies, 1, 9 << 16 | 1);
        predict(&b, 1, 2, 3, 40000);
        transfer_scheduler_predicted(b.copies, 1, 9, 2, &expert, &probability, 1);
        assert_int_equal(copy(&b), kinds[i] == PREFETCH_PROBABLE ? 230 : 210);
        close_bench(&b);
    }
}

/* A load goes before every prediction, unless the prefetcher is `value` and the prediction saves
 * more than the load's wait: sched_prefetch_gain = p t_cpu - 0 (the CPU is not slowed down), so
 * 40000 / 65535 x 3 = 1.8 > t_load = 1 and 30000 / 65535 x 3 = 1.4 > 1, but 20000 / 65535 x 3 =
 * 0.9. Once only. */
static void test_value(void **state)
{
    const struct sched_costs costs = {
        .load_s = 1, .load_contended_s = 1, .cpu_s = 3, .cpu_contended_s = 3};
    struct bench b;
    for (int reported = 0; reported < 2; reported++) {
        open_bench(&b, CACHE_LRU, PREFETCH_VALUE, 12, 0);
        if (reported)
            transfer_scheduler_costs(b.copies, &costs);
        predict_three(&b);
        transfer_scheduler_load(b.copies, 0, 0, 1, 2, 1);
        if (reported)
            EXPECT_COPIES(&b, 230, 10, 11, 231, 120, 121, 100, 101, -1);
        else
            EXPECT_COPIES(&b, 10, 11, 230, 231, 120, 121, 100, 101, -1);
        close_bench(&b);
    }
}

/* ProMoE, early preemption: "clears any remaining low-priority speculative prefetch tasks for that
 * layer", here with every prefetcher. The routing of a layer drops its predictions; those of later
 * layers stay. */
static void test_dropped_when_routed(void **state)
{
    struct bench b;
    open_bench(&b, CACHE_LRU, PREFETCH_PROBABLE, 12, 0);
    predict_three(&b);
    transfer_scheduler_place(b.copies, 0, 1 << 16 | 1);
    EXPECT_COPIES(&b, 230, 231, -1);
    assert_int_equal(transfer_scheduler_counts(b.copies)->dropped, 2);
    close_bench(&b);
}

/* An expert that is not in host memory gets a fetch hint and delays no other prefetch. A load of
 * such an expert waits, and blocks the rest. */
static void test_not_obtainable(void **state)
{
    struct bench b;
    struct copy_job job;
    open_bench(&b, CACHE_LRU, PREFETCH_PROBABLE, 12, 0);
    predict_three(&b);
    b.away[2][3] = true;
    EXPECT_COPIES(&b, 120, 121, 100, 101, -1);
    assert_true(b.hints > 0 && b.hint_layer == 2 && b.hint_expert == 3);
    b.away[2][3] = false;
    EXPECT_COPIES(&b, 230, 231, -1);
    b.away[0][1] = true;
    transfer_scheduler_load(b.copies, 0, 0, 1, 2, 1);
    assert_int_equal(transfer_scheduler_next(b.copies, 1, &job), TRANSFER_BLOCKED);
    assert_true(b.hint_layer == 0 && b.hint_expert == 1);
    b.away[0][1] = false;
    EXPECT_COPIES(&b, 10, 11, -1);
    close_bench(&b);
}

/* The value cache fills free slots with the most valuable absent expert (1, activated twice). If
 * that is not in host memory, it takes the next (2, activated once). */
static void test_wanted_not_obtainable(void **state)
{
    struct bench b;
    open_bench(&b, CACHE_VALUE, PREFETCH_PROBABLE, 12, 0);
    for (uint64_t step = 1; step <= 2; step++) {
        const uint16_t experts[] = {1, 2}, workloads[] = {1, 1};
        transfer_scheduler_routed(b.copies, 0, step, step << 16, false, experts, workloads,
                                  step == 1 ? 2 : 1);
        for (uint32_t layer = 1; layer < LAYERS;
             layer++) /* a step over all layers, because counts decay only then */
            transfer_scheduler_routed(b.copies, 0, step, step << 16 | layer, false, experts,
                                      workloads, 0);
    }
    b.away[0][1] = true;
    EXPECT_COPIES(&b, 20, 21);
    assert_true(b.hints > 0 && b.hint_layer == 0 && b.hint_expert == 1);
    b.away[0][1] = false;
    EXPECT_COPIES(&b, 10, 11);
    close_bench(&b);
}

/* A wrong prediction frees its place in the group when its layer is over, so the group
 * continues. */
static void test_rotating_turns_over(void **state)
{
    struct bench b;
    open_bench(&b, CACHE_LRU, PREFETCH_ROTATING, 12, 2);
    for (uint64_t step = 1; step <= 5; step++) {
        transfer_scheduler_place(b.copies, 0, step << 16);
        predict(&b, step, 1, (uint32_t)(step % EXPERTS), 30000);
        copy(&b);
        copy(&b);
        transfer_scheduler_place(b.copies, 0, step << 16 | 2);
    }
    assert_int_equal(transfer_scheduler_counts(b.copies)->predicted_bytes,
                     800); /* of four experts; the fifth is resident */
    close_bench(&b);
}

/* The last activations of a requester that has left protect no segment, although its successor
 * counts from 1 again. */
static void test_successor(void **state)
{
    struct bench b;
    open_bench(&b, CACHE_LRU, PREFETCH_PROBABLE, 4, 0);
    const uint16_t experts[] = {0, 1}, workloads[] = {1, 1};
    transfer_scheduler_place(b.copies, 0, 9 << 16);
    transfer_scheduler_load(b.copies, 0, 0, 0, 2, 1);
    transfer_scheduler_load(b.copies, 0, 0, 1, 2, 1);
    EXPECT_COPIES(&b, 0, 1, 10, 11, -1);
    transfer_scheduler_routed(b.copies, 0, 9, 9 << 16, false, experts, workloads, 2);
    transfer_scheduler_leave(b.copies, 0);
    memset(&b.queue, 0, sizeof b.queue);
    transfer_scheduler_join(b.copies, 0, &b.queue);
    transfer_scheduler_place(b.copies, 0, 1 << 16);
    predict(&b, 1, 1, 3, 60000);
    EXPECT_COPIES(&b, 130, 131, -1);
    close_bench(&b);
}

/* With several copies under way the same copies are chosen, in the same order, as one at a time: a
 * segment that is under way is not chosen again, and counts for the policy. They end in that order.
 */
static void test_several_under_way(void **state)
{
    static const enum sched_cache_kind kinds[] = {CACHE_LRU, CACHE_NONE, CACHE_VALUE, CACHE_LCP,
                                                  CACHE_LAYERWISE};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        struct bench one, b;
        struct copy_job jobs[2 * SEGMENTS * EXPERTS];
        open_bench(&one, kinds[i], PREFETCH_PROBABLE, 2 * SEGMENTS, 0);
        open_bench(&b, kinds[i], PREFETCH_PROBABLE, 2 * SEGMENTS, 0);
        for (uint32_t expert = 0; expert < 2; expert++) {
            transfer_scheduler_load(one.copies, 0, 1, expert, SEGMENTS, 1);
            transfer_scheduler_load(b.copies, 0, 1, expert, SEGMENTS, 1);
        }
        transfer_scheduler_load(b.copies, 0, 1, 0, SEGMENTS, 1); /* shares the copies */
        uint32_t n = 0, most = 2 * SEGMENTS;
        for (; n < most; n++)
            assert_int_equal(begin_copy(&b, n % 2, &jobs[n]), copy(&one));
        assert_int_equal(begin_copy(&b, true, &jobs[n]), -1);
        assert_int_equal(transfer_scheduler_filling(b.copies, 1, 0), SEGMENTS);
        assert_int_equal(transfer_scheduler_resident(b.copies, 1, 0), 0);
        for (uint32_t k = 0; k < n; k++) {
            transfer_scheduler_end(b.copies, &jobs[k]);
            if (transfer_scheduler_filling(b.copies, 1, 1)) /* what is there stays meanwhile */
                assert_false(transfer_scheduler_shorten(b.copies, 1, 0, 0));
        }
        assert_int_equal(transfer_scheduler_resident(b.copies, 1, 0), SEGMENTS);
        assert_int_equal(transfer_scheduler_filling(b.copies, 1, 0), 0);
        assert_int_equal(transfer_scheduler_counts(b.copies)->demanded_bytes,
                         transfer_scheduler_counts(one.copies)->demanded_bytes);
        close_bench(&one);
        close_bench(&b);
    }
}

/* A requester that leaves while its load is under way: the copy ends, and under a policy that keeps
 * no loads its segments go then. */
static void test_leaves_under_way(void **state)
{
    struct bench b;
    struct copy_job jobs[SEGMENTS];
    open_bench(&b, CACHE_NONE, PREFETCH_PROBABLE, 4, 0);
    transfer_scheduler_load(b.copies, 0, 1, 1, SEGMENTS, 1);
    for (uint32_t i = 0; i < SEGMENTS; i++)
        assert_int_equal(begin_copy(&b, true, &jobs[i]), 110 + i);
    transfer_scheduler_leave(b.copies, 0);
    for (uint32_t i = 0; i < SEGMENTS; i++) {
        assert_int_equal(transfer_scheduler_filling(b.copies, 1, 1), SEGMENTS - i);
        transfer_scheduler_end(b.copies, &jobs[i]);
    }
    assert_int_equal(transfer_scheduler_resident(b.copies, 1, 1), 0);
    assert_int_equal(transfer_scheduler_counts(b.copies)->evictions, SEGMENTS);
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
        cmocka_unit_test(test_two_requesters),
        cmocka_unit_test(test_rotating),
        cmocka_unit_test(test_value),
        cmocka_unit_test(test_dropped_when_routed),
        cmocka_unit_test(test_not_obtainable),
        cmocka_unit_test(test_wanted_not_obtainable),
        cmocka_unit_test(test_rotating_turns_over),
        cmocka_unit_test(test_successor),
        cmocka_unit_test(test_several_under_way),
        cmocka_unit_test(test_leaves_under_way),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
