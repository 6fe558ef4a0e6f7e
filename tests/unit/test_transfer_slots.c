/* The transfer scheduler's decisions (sched/prefetch/transfer_scheduler.h) on small cases worked
 * out by hand: which slots copies get. What is evicted, exchanged or kept, and what is never used.
 */
#include "transfer_bench.h"

/* A step over all layers that activates these experts of layer 0. */
static void step_of(struct bench *b, uint64_t step, const uint16_t *experts, uint32_t n)
{
    static const uint16_t tokens[EXPERTS] = {1, 1, 1, 1};
    for (uint32_t layer = 0; layer < LAYERS; layer++) {
        transfer_scheduler_place(b->copies, 0, step << 16 | layer);
        transfer_scheduler_routed(b->copies, 0, step, step << 16 | layer, false, experts, tokens,
                                  layer ? 0 : n);
    }
}

/* Experts 0 and 1 of layer 0 fill the device, and then only 2 is activated. The CPU computes it, as
 * a copy takes ten times as long, and nothing is predicted. So an idle link exchanges one of them
 * for it, once the costs are known. */
static void open_exchange(struct bench *b)
{
    const struct sched_costs costs = {
        .load_s = 10, .load_contended_s = 10, .cpu_s = 1, .cpu_contended_s = 1};
    open_bench(b, CACHE_VALUE, PREFETCH_PROBABLE, 4, 0);
    step_of(b, 1, (const uint16_t[]){0, 1}, 2);
    EXPECT_COPIES(b, 0, 1, 10, 11);
    for (uint64_t step = 2; step <= 60; step++)
        step_of(b, step, (const uint16_t[]){2}, 1);
    EXPECT_COPIES(b, -1);
    transfer_scheduler_costs(b->copies, &costs);
    sched_cache_costs(b->cache, &(struct sched_cache_costs){.load_s = 10, .cpu_s = 1});
}

static void test_exchange(void **state)
{
    struct bench b;
    open_exchange(&b);
    b.away[0][2] = true;
    EXPECT_COPIES(&b, -1);
    b.away[0][2] = false;
    transfer_scheduler_unused(b.copies, 0, true); /* what is on the device, nobody computes */
    EXPECT_COPIES(&b, -1);
    transfer_scheduler_unused(b.copies, 0, false);
    b.held = true; /* the slot comes back after the layer: the choice stays */
    EXPECT_COPIES(&b, -1);
    assert_int_equal(b.n_retired, 1);
    b.held = false;
    transfer_scheduler_load(b.copies, 0, 2, 3, 1, 1); /* loads go first */
    EXPECT_COPIES(&b, 230);
    struct copy_job job;
    assert_int_equal(begin_copy(&b, false, &job), 20);
    EXPECT_COPIES(&b, -1); /* one at a time */
    transfer_scheduler_end(b.copies, &job);
    EXPECT_COPIES(&b, 21, -1);
    close_bench(&b);
}

/* The choice waits for its slot while expert 3 becomes worth more. It stays, but not where the best
 * are kept in fewer slots: then the policy is asked again. */
static void test_choice_after_keep_best(void **state)
{
    (void)state;
    for (int keeps = 0; keeps <= 1; keeps++) {
        struct bench b;
        open_exchange(&b);
        b.held = true;
        EXPECT_COPIES(&b, -1);
        for (uint64_t step = 100; step < 160; step++)
            step_of(&b, step, (const uint16_t[]){3}, 1);
        if (keeps)
            transfer_scheduler_keep_best(b.copies, 1);
        b.held = false;
        EXPECT_COPIES(&b, keeps ? 30 : 20);
        close_bench(&b);
    }
}

/* Not for four steps after a prediction, which may also come after the choice. */
static void test_exchange_beside_predictions(void **state)
{
    struct bench b;
    open_exchange(&b);
    b.held = true;
    EXPECT_COPIES(&b, -1);
    assert_int_equal(b.n_retired, 1); /* for 2 */
    b.held = false;
    predict(&b, 61, 1, 3, 65535);
    EXPECT_COPIES(&b, 130);
    for (uint64_t step = 61; step <= 64; step++) {
        int last = copy(&b);
        assert_true(last == -1 || last == 131);
        step_of(&b, step, (const uint16_t[]){2}, 1);
    }
    EXPECT_COPIES(&b, 20);
    close_bench(&b);
}

static void route_all(struct bench *b, uint64_t step, uint32_t layer)
{
    static const uint16_t experts[EXPERTS] = {0, 1, 2, 3}, workloads[EXPERTS] = {10, 10, 10, 10};
    transfer_scheduler_place(b->copies, 0, step << 16 | layer);
    for (uint32_t i = 0; i < EXPERTS; i++) /* in parts, as memd does */
        transfer_scheduler_routed(b->copies, 0, step, step << 16 | layer, true, experts + i,
                                  workloads + i, 1);
}

/* Layers 0 and 1 fill all 16 slots. A prompt that activates all experts is in layer 1: before a
 * slot is needed, two segments (a quarter of a layer's 8) of layer 0 go, the least valuable ones,
 * so that layer 2's come as soon as the worker has left the layer in which they went. In layer 0
 * nothing goes, and in the last layer nothing is needed. */
static void test_free_ahead(void **state)
{
    struct bench b;
    open_bench(&b, CACHE_VALUE, PREFETCH_PROBABLE, 16, 0);
    for (uint32_t layer = 0; layer < LAYERS; layer++)
        route_all(&b, 1, layer);
    for (uint32_t layer = 0; layer < 2; layer++)
        for (uint32_t expert = 0; expert < EXPERTS; expert++) {
            transfer_scheduler_load(b.copies, 0, layer, expert, SEGMENTS, 1);
            for (uint32_t s = 0; s < SEGMENTS; s++)
                assert_int_equal(copy(&b), layer * 100 + expert * 10 + s);
        }
    assert_int_equal(copy(&b), -1);
    transfer_scheduler_consumed(b.copies, 0, UINT64_MAX);
    route_all(&b, 2, 0);
    assert_int_equal(copy(&b), -1);
    assert_true(b.n_free == 0 && b.n_retired == 0);
    b.held = true;
    route_all(&b, 2, 1);
    assert_int_equal(copy(&b), -1); /* the worker may still read the slots */
    assert_true(b.n_free == 0 && b.n_retired == 2);
    assert_int_equal(transfer_scheduler_resident(b.copies, 0, 0), 0); /* of equal ones the first */
    b.held = false;
    EXPECT_COPIES(&b, 200, 201);
    transfer_scheduler_place(b.copies, 0, 2 << 16 | 2); /* layer 1 is computed: its slots too */
    for (int i = 0; i < 6; i++)
        assert_true(copy(&b) >= 200);
    assert_int_equal(copy(&b), -1);
    route_all(&b, 2, 2);
    uint32_t left = b.n_free + b.n_retired;
    copy(&b);
    assert_true(b.n_free + b.n_retired <= left);
    close_bench(&b);
}

static void route_one(struct bench *b, uint32_t requester, uint64_t place, uint16_t expert)
{
    const uint16_t workload = 1;
    transfer_scheduler_routed(b->copies, requester, place >> 16, place, false, &expert, &workload,
                              1);
}

/* A step activates most of a layer and reports it in parts. It gives up what it has used, the
 * oldest, for its next load, also where another worker reports a small step between the parts. A
 * small step keeps it, and something newer goes; so it is where the other worker activated it last.
 */
static void test_large_step_beside_another(void **state)
{
    enum { SMALL, LARGE, SHARED };
    for (int step = SMALL; step <= SHARED; step++) {
        struct bench b;
        struct cache_queue other = {0};
        open_bench(&b, CACHE_LRU, PREFETCH_PROBABLE, 4, 0);
        transfer_scheduler_join(b.copies, 1, &other);
        transfer_scheduler_place(b.copies, 0, 1 << 16);
        for (uint16_t expert = 0; expert < (step == SMALL ? 2 : 3); expert++) {
            route_one(&b, 0, 1 << 16, expert);
            route_one(&b, 1, 1 << 16 | 2, 3);
        }
        if (step == SHARED)
            route_one(&b, 1, 1 << 16, 0);
        transfer_scheduler_load(b.copies, 0, 0, 0, SEGMENTS, 1);
        transfer_scheduler_load(b.copies, 1, 1, 3, SEGMENTS, 1);
        for (int i = 0; i < 4; i++)
            copy(&b);
        transfer_scheduler_consumed(b.copies, 0, 1);
        transfer_scheduler_consumed(b.copies, 1, 1);
        transfer_scheduler_load(b.copies, 0, 0, 1, SEGMENTS, 1);
        EXPECT_COPIES(&b, 10, 11, -1);
        assert_int_equal(transfer_scheduler_resident(b.copies, 0, 0), step == LARGE ? 0 : SEGMENTS);
        close_bench(&b);
    }
}

/* A load waits for a slot while all are pinned. The scheduler reports an eviction to the owner, and
 * counts an unused segment as wasted. */
static void test_slots_and_waste(void **state)
{
    struct bench b;
    struct copy_job job;
    open_bench(&b, CACHE_LRU, PREFETCH_PROBABLE, 2, 0);
    transfer_scheduler_place(b.copies, 0, 1 << 16);
    predict(&b, 1, 1, 0, 1000);
    EXPECT_COPIES(&b, 100, 101, -1);
    transfer_scheduler_load(b.copies, 0, 0, 1, 2, 1); /* evicts both, unused */
    EXPECT_COPIES(&b, 10, 11, -1);
    assert_int_equal(transfer_scheduler_counts(b.copies)->wasted_bytes, 200);
    transfer_scheduler_load(b.copies, 0, 0, 2, 2, 1);
    assert_int_equal(transfer_scheduler_next(b.copies, 1, &job),
                     TRANSFER_BLOCKED); /* 1 is pinned */
    assert_true(transfer_scheduler_outstanding(b.copies));
    transfer_scheduler_consumed(b.copies, 0, 1);
    EXPECT_COPIES(&b, 20, 21, -1);
    assert_int_equal(transfer_scheduler_counts(b.copies)->wasted_bytes, 200); /* a step used 1 */
    transfer_scheduler_leave(b.copies, 0);
    assert_false(transfer_scheduler_outstanding(b.copies));
    close_bench(&b);
}

/* A prefetch with a probability above one half (of 65535) continues while no retired slot is free.
 * Two slots are reserved: the prefetch may use one, because another slot is about to become free;
 * not the last one, which a load takes at once. A less probable prefetch waits. */
static void test_capacity_while_read(void **state)
{
    struct bench b;
    open_bench(&b, CACHE_LRU, PREFETCH_PROBABLE, 6, 2);
    transfer_scheduler_place(b.copies, 0, 1 << 16);
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
    transfer_scheduler_load(b.copies, 0, 0, 1, 1, 1);
    EXPECT_COPIES(&b, 10, -1);
    transfer_scheduler_consumed(b.copies, 0, 1);
    b.held = false;
    EXPECT_COPIES(&b, 231);
    close_bench(&b);
}

/* The segments that the running layer activated stay while there are others. Of 0 (least used,
 * activated by the running layer) and 1 (used more, in the step before) the victim is 1, although
 * LFU would choose 0. If no other is left, the victim is 0. */
static void test_in_use(void **state)
{
    struct bench b;
    open_bench(&b, CACHE_LFU, PREFETCH_PROBABLE, 4, 0);
    const uint16_t experts[] = {1, 0}, workloads[] = {5, 1};
    transfer_scheduler_place(b.copies, 0, 1 << 16);
    transfer_scheduler_routed(b.copies, 0, 1, 1 << 16, false, experts, workloads, 1);
    transfer_scheduler_load(b.copies, 0, 0, 1, 2, 1);
    EXPECT_COPIES(&b, 10, 11, -1);
    transfer_scheduler_consumed(b.copies, 0, 1);
    transfer_scheduler_place(b.copies, 0, 2 << 16);
    transfer_scheduler_routed(b.copies, 0, 2, 2 << 16, false, experts + 1, workloads + 1, 1);
    transfer_scheduler_load(b.copies, 0, 0, 0, 2, 2);
    EXPECT_COPIES(&b, 0, 1, -1);
    transfer_scheduler_consumed(b.copies, 0, 2); /* no longer pinned, but its layer is not over */
    transfer_scheduler_load(b.copies, 0, 0, 2, 2, 2);
    EXPECT_COPIES(&b, 20, 21, -1);
    assert_int_equal(transfer_scheduler_resident(b.copies, 0, 1), 0);
    assert_int_equal(transfer_scheduler_resident(b.copies, 0, 0), 2);
    transfer_scheduler_load(b.copies, 0, 0, 3, 2, 2); /* 2 is pinned: 0 */
    EXPECT_COPIES(&b, 30, 31, -1);
    assert_int_equal(transfer_scheduler_resident(b.copies, 0, 0), 0);
    close_bench(&b);
}

static uint32_t resident(const struct bench *b, uint32_t layer)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < EXPERTS; i++)
        n += transfer_scheduler_resident(b->copies, layer, i);
    return n;
}

/* Six experts of layers 0 and 1 are resident. The user chooses a policy that keeps no loads. It
 * gives up the segments that it would not keep; segments in use follow after their use. `none`
 * gives up all. `layerwise`, which has slots for one layer, gives up those that are not layer 0's,
 * and completes layer 0. */
static void test_policy_that_keeps_nothing(void **state)
{
    static const enum sched_cache_kind kinds[] = {CACHE_NONE, CACHE_LAYERWISE};
    for (int k = 0; k < 2; k++) {
        struct bench b;
        open_bench(&b, CACHE_LRU, PREFETCH_PROBABLE, 12, 0);
        transfer_scheduler_place(b.copies, 0, 1 << 16);
        for (uint16_t i = 0; i < 6; i++)
            transfer_scheduler_load(b.copies, 0, i / 3, i % 3, 2, 1);
        EXPECT_COPIES(&b, 0, 1, 10, 11, 20, 21, 100, 101, 110, 111, 120, 121, -1);
        transfer_scheduler_consumed(b.copies, 0, 5); /* (1, 2) is not used up */
        const uint16_t expert = 1, workload = 1;
        transfer_scheduler_routed(b.copies, 0, 1, 1 << 16 | 1, false, &expert, &workload, 1);
        transfer_scheduler_place(b.copies, 0, 1 << 16 | 1); /* the layer of (1, 1) is not over */
        struct sched_cache_shape shape = {.n_layers = LAYERS,
                                          .n_experts = EXPERTS,
                                          .n_segments = SEGMENTS,
                                          .n_used = 1,
                                          .capacity = EXPERTS * SEGMENTS};
        struct sched_cache *next = sched_cache_new(kinds[k], &shape, NULL);
        assert_non_null(next);
        transfer_scheduler_use(b.copies, next);
        if (kinds[k] == CACHE_NONE) { /* as after a resize: the scheduler evicts nothing for it */
            EXPECT_COPIES(&b, -1);
            assert_int_equal(resident(&b, 0) + resident(&b, 1), 12);
        }
        transfer_scheduler_tidy(b.copies);
        for (int i = 0; i < 16; i++)
            copy(&b);
        assert_int_equal(resident(&b, 0), k == 0 ? 0 : 8);
        assert_int_equal(transfer_scheduler_resident(b.copies, 1, 0), 0);
        assert_int_equal(transfer_scheduler_resident(b.copies, 1, 1), 2);
        assert_int_equal(transfer_scheduler_resident(b.copies, 1, 2), 2);
        transfer_scheduler_consumed(b.copies, 0, 6);
        transfer_scheduler_place(b.copies, 0, 1 << 16 | 2);
        for (int i = 0; i < 16; i++)
            copy(&b);
        assert_int_equal(resident(&b, 0), k == 0 ? 0 : 8);
        assert_int_equal(resident(&b, 1), 0);
        sched_cache_free(b.cache);
        b.cache = next;
        close_bench(&b);
    }
}

/* A policy that keeps loads keeps the resident segments. */
static void test_policy_that_keeps(void **state)
{
    struct bench b;
    open_bench(&b, CACHE_NONE, PREFETCH_PROBABLE, 12, 0);
    transfer_scheduler_place(b.copies, 0, 1 << 16);
    transfer_scheduler_load(b.copies, 0, 0, 1, 2, 1);
    EXPECT_COPIES(&b, 10, 11, -1);
    struct sched_cache_shape shape = {.n_layers = LAYERS,
                                      .n_experts = EXPERTS,
                                      .n_segments = SEGMENTS,
                                      .n_used = 1,
                                      .capacity = 12};
    struct sched_cache *next = sched_cache_new(CACHE_LFU, &shape, NULL);
    assert_non_null(next);
    transfer_scheduler_use(b.copies, next);
    transfer_scheduler_tidy(b.copies);
    transfer_scheduler_consumed(b.copies, 0, 1);
    transfer_scheduler_place(b.copies, 0, 1 << 16 | 2);
    EXPECT_COPIES(&b, -1, -1, -1);
    assert_int_equal(transfer_scheduler_resident(b.copies, 0, 1), 2);
    sched_cache_free(b.cache);
    b.cache = next;
    close_bench(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_exchange),
        cmocka_unit_test(test_choice_after_keep_best),
        cmocka_unit_test(test_exchange_beside_predictions),
        cmocka_unit_test(test_free_ahead),
        cmocka_unit_test(test_slots_and_waste),
        cmocka_unit_test(test_capacity_while_read),
        cmocka_unit_test(test_in_use),
        cmocka_unit_test(test_large_step_beside_another),
        cmocka_unit_test(test_policy_that_keeps_nothing),
        cmocka_unit_test(test_policy_that_keeps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
