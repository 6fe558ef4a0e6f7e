/* lib/sched's assigners that work along a queue, PreSched and HybriMoE's, and the further duties of
 * an assigner: cases worked out by hand. test_sched_assign_random.c checks random plans of both
 * with those of all others. */
#include "random_numbers.h"

#include "sched/assign/assign.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

/* The same costs with and without contention. */
static struct sched_costs costs(double load, double device, double device_token, double cpu,
                                double cpu_token)
{
    return (struct sched_costs){load,      load, device, device_token, cpu, cpu_token, cpu,
                                cpu_token, 0,    0};
}

/* One segment an expert: T_load 10, t_gpu 1, t_cpu(w) = w. */
static const struct sched_costs by_tokens = {10, 10, 1, 0, 0, 1, 0, 1, 0, 0};

/* Experts with these tokens, none resident, numbered from 0. Returns the loaded experts, one bit
 * each. */
static unsigned loads(const struct sched_layer *layer, const uint32_t *tokens, uint32_t n)
{
    struct sched_expert e[8];
    unsigned loaded = 0;
    for (uint32_t i = 0; i < n; i++)
        e[i] = (struct sched_expert){.expert = i, .workload = tokens[i]};
    sched_assign(ASSIGN_PRESCHED, &by_tokens, layer, e, n);
    for (uint32_t i = 0; i < n; i++) {
        assert_int_equal(e[i].device, 0);
        loaded |= e[i].load << i;
    }
    return loaded;
}

static struct sched_layer whole(void)
{
    return (struct sched_layer){.n_segments = 1, .spare_slots = 8, .whole = true};
}

/* Q1 within the layer: "transfer is mandatory if the total GPU cost is lower than the CPU cost".
 * Tokens 2, 3, 12, 20:
 *   20: 10 + 1 < 37          loaded
 *   12: 20 + 1 < 17? no      from here on the CPU */
static void test_presched_on_demand(void **state)
{
    static const uint32_t tokens[] = {12, 20, 2, 3}; /* in no order */
    struct sched_layer layer = whole();
    assert_int_equal(loads(&layer, tokens, 4), 1 << 1);
    /* "the delay in starting the on-demand operation due to previous prefetching": 26 + 11 < 37 no,
     * 25 + 11 < 37. */
    layer.link_busy_s = 26;
    assert_int_equal(loads(&layer, tokens, 4), 0);
    layer.link_busy_s = 25;
    assert_int_equal(loads(&layer, tokens, 4), 1 << 1);
    /* The CPU starts late: 21 < 17 + 5. */
    layer.link_busy_s = 0;
    layer.cpu_busy_s = 5;
    assert_int_equal(loads(&layer, tokens, 4), 1 << 1 | 1 << 0);
    layer.spare_slots = 1;
    assert_int_equal(loads(&layer, tokens, 4), 1 << 1);
    /* Of as many tokens the lower number is loaded: 11 < 24, 21 < 12 no. */
    layer = whole();
    assert_int_equal(loads(&layer, (const uint32_t[]){12, 12}, 2), 1 << 0);
}

/* This layer has 2, 3, 12, 20, the next is predicted to have 15 and 18. Q = 2 3 12 15' 18' 20, sum
 * 70:
 *   20   11 < 70    18'  21 < 50    15'  31 < 32    12   41 < 17 no
 * so the queue is 15' 18' 20; of this layer only 20, and 11 < 37. The CPU has 2 + 3 + 12 = 17, the
 * link 10. */
static struct sched_upcoming upcoming[2];

static unsigned prefetches_with(double attention_s, double critical, double larger)
{
    struct sched_layer layer = whole();
    upcoming[0] =
        (struct sched_upcoming){.expert = 5, .workload = 15, .missing = 1, .prefetch = true};
    upcoming[1] =
        (struct sched_upcoming){.expert = 6, .workload = 18, .missing = 1, .prefetch = true};
    layer.upcoming = upcoming;
    layer.n_upcoming = 2;
    layer.attention_s = attention_s;
    upcoming[0].hit_rate = critical;
    upcoming[1].hit_rate = larger;
    assert_int_equal(loads(&layer, (const uint32_t[]){12, 20, 2, 3}, 4), 1 << 1);
    return upcoming[0].prefetch | upcoming[1].prefetch << 1;
}

static unsigned prefetches(double attention_s, double hit_rate)
{
    return prefetches_with(attention_s, hit_rate, hit_rate);
}

/* Q2: gap = 17 - 10 = 7 and the attention's time; "we round to the nearest integer", the most
 * loaded first. Q3: the critical one is late by C and gains p (10 - C) - (1 - p) C.
 *   gap   n_pre          C               gain
 *    7    round(0.7) 1   3   p 7 - (1 - p) 3 = 10 p - 3
 *   11    round(1.1) 1   0   10 p
 *   15    round(1.5) 2   5   10 p - 5
 *   27    both, no more than the queue has */
static void test_presched_prefetch(void **state)
{
    enum { NONE = 0, LARGER = 2, BOTH = 3 };
    assert_int_equal(prefetches(0, 0.94), LARGER);
    assert_int_equal(prefetches(4, 0.94), LARGER);
    assert_int_equal(prefetches(8, 0.94), BOTH);
    assert_int_equal(prefetches(20, 0.94), BOTH);
    /* "if greater than 0 ...; otherwise" one less: a predictor that is mostly wrong */
    assert_int_equal(prefetches(0, 0.31), LARGER);
    assert_int_equal(prefetches(0, 0.29), NONE);
    assert_int_equal(prefetches(4, 0.05), LARGER); /* nothing is late */
    assert_int_equal(prefetches(8, 0.49), LARGER);
    assert_int_equal(prefetches(8, 0.51), BOTH);
    /* p is that of the critical one's rank, the last of the row: whatever that of the first is */
    assert_int_equal(prefetches_with(8, 0.49, 1), LARGER);
    assert_int_equal(prefetches_with(8, 0.51, 0), BOTH);
    assert_int_equal(prefetches_with(0, 0, 0.31), LARGER);
}

/* A good predictor is never vetoed: after rounding C is at most half a load, so the gain is at
 * least (p - 1/2) T_load. And what the veto takes away is one at most. */
static void test_presched_veto(void **state)
{
    uint32_t vetoed = 0, kept = 0;
    random_state = 21;
    for (int round = 0; round < 5000; round++) {
        struct sched_upcoming a[6];
        struct sched_expert e[6];
        struct sched_layer layer = whole();
        uint32_t issued[2] = {0};
        layer.attention_s = below(40);
        layer.upcoming = a;
        layer.n_upcoming = 6;
        for (uint32_t i = 0; i < 6; i++) {
            e[i] = (struct sched_expert){.expert = i, .workload = 1 + below(30)};
            a[i] = (struct sched_upcoming){.expert = i, .workload = 1 + below(60), .missing = 1};
        }
        for (int bad = 0; bad < 2; bad++) {
            for (uint32_t i = 0; i < 6; i++)
                a[i].hit_rate = bad ? 0.05 : 0.94;
            sched_assign(ASSIGN_PRESCHED, &by_tokens, &layer, e, 6);
            for (uint32_t i = 0; i < 6; i++)
                issued[bad] += a[i].prefetch;
        }
        assert_true(issued[1] == issued[0] || issued[1] + 1 == issued[0]);
        vetoed += issued[1] < issued[0];
        kept += issued[0];
        for (uint32_t i = 0; i < 6; i++)
            a[i].hit_rate = 1;
        sched_assign(ASSIGN_PRESCHED, &by_tokens, &layer, e, 6);
        for (uint32_t i = 0; i < 6; i++)
            issued[0] -= a[i].prefetch;
        assert_int_equal(issued[0], 0); /* 0.94 counts as certain */
    }
    assert_true(vetoed > 100 && kept > 1000);
}

/* "The subsequence belonging to the current layer is rechecked": 2, 3, 8, 9 and predicted 5', 5':
 *   9   11 < 32    8   21 < 23    5'  31 < 15 no
 * but within this layer 21 < 2 + 3 + 8 does not hold for 8, 11 < 22 does for 9. The CPU has 13,
 * the link 10. Q4: the queue has none of the next layer, so the one after, with 30'', is looked at:
 * 11 < 62: it is in the queue. The gap of 3 is too short for it; with 5 of attention it is late
 * by 2. */
static void test_presched_recheck(void **state)
{
    static const uint32_t tokens[] = {2, 3, 8, 9};
    struct sched_upcoming a[] = {
        {.expert = 0, .workload = 5, .missing = 1, .hit_rate = 1},
        {.expert = 1, .workload = 5, .missing = 1, .hit_rate = 1},
        {.expert = 2, .workload = 30, .missing = 1, .distance = 2, .hit_rate = 1}};
    struct sched_layer layer = whole();
    layer.upcoming = a;
    layer.n_upcoming = 3;
    assert_int_equal(loads(&layer, tokens, 4), 1 << 3);
    assert_false(a[0].prefetch || a[1].prefetch || a[2].prefetch);
    layer.attention_s = 5;
    assert_int_equal(loads(&layer, tokens, 4), 1 << 3);
    assert_false(a[0].prefetch || a[1].prefetch);
    assert_true(a[2].prefetch);
    a[2].hit_rate = 0.19; /* of its own layer: 10 p - 2 */
    assert_int_equal(loads(&layer, tokens, 4), 1 << 3);
    assert_false(a[2].prefetch);
    a[2].hit_rate = 0.21;
    assert_int_equal(loads(&layer, tokens, 4), 1 << 3);
    assert_true(a[2].prefetch);
    /* If the queue has an expert of the next layer, no expert of the layer after it is loaded: 5'
     * is 28' now, 11 < 50 for it. */
    a[0].workload = 28;
    assert_int_equal(loads(&layer, tokens, 4), 1 << 3);
    assert_true(a[0].prefetch);
    assert_false(a[2].prefetch);
    /* Of as many tokens this layer's come before what is predicted, for they are sure: 12 is
     * loaded, 11 < 24, and then 12' is not in the queue, 21 < 12. */
    a[0].workload = 12;
    a[0].missing = 1;
    a[1].missing = a[2].missing = 0;
    assert_int_equal(loads(&layer, (const uint32_t[]){12}, 1), 1);
    assert_false(a[0].prefetch);
    /* Experts that are already resident belong to no queue. */
    a[0].missing = 0;
    assert_int_equal(loads(&layer, tokens, 4), 1 << 3);
    assert_false(a[0].prefetch || a[1].prefetch || a[2].prefetch);
}

/* Segments: 3 seconds each. An expert of 4 tokens lacks 1 of 4, one of 3 all. T_load is what lacks:
 * 3 and 12; the CPU would take 4 and 4 * 3 = 12 seconds. 4: 3 + 1 < 16; 3: 15 + 4 < 12 no. */
static void test_presched_segments(void **state)
{
    struct sched_costs c = costs(3, 1, 0, 0, 1);
    struct sched_layer layer = {.n_segments = 4, .spare_slots = 8};
    struct sched_expert e[] = {{.expert = 0, .workload = 4, .resident = 3},
                               {.expert = 1, .workload = 3},
                               {.expert = 2, .workload = 9, .resident = 4}};
    sched_assign(ASSIGN_PRESCHED, &c, &layer, e, 3);
    assert_true(e[0].device == 3 && e[0].load == 1);
    assert_true(e[1].device == 0 && e[1].load == 0);
    assert_true(e[2].device == 4 && e[2].load == 0);
}

/* "the CPU takes the lowest-workload uncached experts, the GPU the highest, greedy by queue until
 * both finish together". T_load 10, t_gpu = w, t_cpu = 4 w; a cached one of 3 tokens, missing 1, 2,
 * 4, 5:
 *   device would be done with     CPU would be done with
 *   5 at 10 + 5 = 15              1 at 4        the CPU's
 *   5 at 15                       2 at 12       the CPU's
 *   5 at 15                       4 at 28       the device's
 *   4 at 20 + 4 = 24              4 at 28       the device's */
static void test_score_queue(void **state)
{
    struct sched_costs c = costs(10, 0, 1, 0, 4);
    struct sched_layer layer = {.n_segments = 1, .spare_slots = 8, .whole = true};
    struct sched_expert e[] = {{.expert = 0, .workload = 4},
                               {.expert = 1, .workload = 1},
                               {.expert = 2, .workload = 3, .resident = 1},
                               {.expert = 3, .workload = 5},
                               {.expert = 4, .workload = 2}};
    static const uint32_t load[2][5] = {{1, 0, 0, 1, 0}, {0, 0, 0, 1, 0}};
    static const double seconds[2] = {24, 28}; /* one slot: 4 is the CPU's too: 4 + 8 + 16 */
    for (int one_slot = 0; one_slot < 2; one_slot++) {
        if (one_slot)
            layer.spare_slots = 1;
        double got = sched_assign(ASSIGN_SCORE_QUEUE, &c, &layer, e, 5);
        assert_true(fabs(got - seconds[one_slot]) < 1e-9);
        for (uint32_t i = 0; i < 5; i++) {
            assert_int_equal(e[i].device, i == 2);
            assert_int_equal(e[i].load, load[one_slot][i]);
        }
    }
    /* "the device side also cached ones first": 9 seconds of them make it late for 5: 18 + 5
     * against 16 for 4 */
    layer.spare_slots = 8;
    e[2].workload = 18;
    sched_assign(ASSIGN_SCORE_QUEUE, &c, &layer, e, 2);
    sched_assign(ASSIGN_SCORE_QUEUE, &c, &layer, e, 3);
    assert_true(e[2].device == 1);
    assert_true(e[0].load == 0 && e[1].load == 0); /* 1: 4 < 22; 4: 4 + 16 = 20 < 22 */
}

static void test_traits(void **state)
{
    for (int kind = 0; kind <= ASSIGN_BALANCE; kind++) {
        enum sched_assigner a = (enum sched_assigner)kind;
        assert_int_equal(sched_assigner_plans_prefetch(a), a == ASSIGN_PRESCHED);
        /* "DALI loads into slots beside its cache"; others into half of the device */
        assert_int_equal(sched_spare_slots(a, 100, 7), a == ASSIGN_GREEDY ? 7 : 50);
        assert_int_equal(sched_spare_slots(a, 101, 0), 50);
        assert_int_equal(sched_spare_slots(a, UINT64_MAX, 0), UINT32_MAX);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_presched_on_demand),
        cmocka_unit_test(test_presched_prefetch),
        cmocka_unit_test(test_presched_veto),
        cmocka_unit_test(test_presched_recheck),
        cmocka_unit_test(test_presched_segments),
        cmocka_unit_test(test_score_queue),
        cmocka_unit_test(test_traits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
