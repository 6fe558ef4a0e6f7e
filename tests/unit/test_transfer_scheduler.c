/* The transfer scheduler's decisions (sched/prefetch/transfer_scheduler.h) on small cases worked
 * out by hand. The owner counts its slots plainly. Three layers of four experts with two segments
 * each. */
#include "sched/prefetch/transfer_scheduler.h"
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
    struct transfer_scheduler *copies;
    struct sched_cache *cache;
    struct cache_queue queue;
    uint32_t n_free, n_retired;
    bool held;                  /* retired slots: a worker may still read them */
    bool away[LAYERS][EXPERTS]; /* not in host memory */
    uint32_t hint_layer, hint_expert, hints;
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

static void hint(void *arg, uint32_t layer, uint32_t expert, double probability, bool demanded)
{
    struct bench *b = arg;
    b->hint_layer = layer;
    b->hint_expert = expert;
    b->hints++;
}

static void open_bench(struct bench *b, enum sched_cache_kind kind,
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

static void close_bench(struct bench *b)
{
    transfer_scheduler_free(b->copies);
    sched_cache_free(b->cache);
}

static void predict(struct bench *b, uint64_t step, uint32_t layer, uint32_t expert,
                    uint16_t probability)
{
    uint16_t e = (uint16_t)expert;
    transfer_scheduler_predicted(b->copies, 0, step, layer, &e, &probability, 1);
}

/* Starts the next copy: layer * 100 + expert * 10 + segment; -1: none. */
static int copy(struct bench *b)
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
static int begin_copy(struct bench *b, bool only_loads, struct copy_job *job)
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

/* Step 1, layer 0. Predicted in this order: layer 2 expert 3 (40000), layer 1 expert 0 (20000),
 * layer 1 expert 2 (30000). */
static void predict_three(struct bench *b)
{
    transfer_scheduler_place(b->copies, 0, 1 << 16);
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
        cmocka_unit_test(test_exchange),
        cmocka_unit_test(test_choice_after_keep_best),
        cmocka_unit_test(test_exchange_beside_predictions),
        cmocka_unit_test(test_free_ahead),
        cmocka_unit_test(test_slots_and_waste),
        cmocka_unit_test(test_capacity_while_read),
        cmocka_unit_test(test_in_use),
        cmocka_unit_test(test_large_step_beside_another),
        cmocka_unit_test(test_rotating_turns_over),
        cmocka_unit_test(test_successor),
        cmocka_unit_test(test_policy_that_keeps_nothing),
        cmocka_unit_test(test_policy_that_keeps),
        cmocka_unit_test(test_several_under_way),
        cmocka_unit_test(test_leaves_under_way),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
