/* lib/sched's assigners: cases worked out by hand from each paper's rule. */
#include "assign_costs.h"

static void expect_plan(const struct sched_expert *e, uint32_t device, uint32_t load)
{
    if (e->device != device || e->load != load)
        fail_msg("expert %u: device %u load %u, not %u %u", e->expert, e->device, e->load, device,
                 load);
}

/* "ondemand: every activated expert is loaded when the gate has spoken." Arrivals at 10, 20, 30,
 * each computed in 2. */
static void test_load_all(void **state)
{
    struct sched_costs c = costs(10, 1, 1, 5, 0);
    struct sched_layer layer = {.n_segments = 2, .spare_slots = 1};
    struct sched_expert e[] = {{.expert = 3, .workload = 1},
                               {.expert = 5, .workload = 1, .resident = 1},
                               {.expert = 7, .workload = 1, .resident = 2}};
    expect_seconds(sched_assign(ASSIGN_LOAD_ALL, &c, &layer, e, 3), 32);
    expect_plan(&e[0], 0, 2);
    expect_plan(&e[1], 1, 1);
    expect_plan(&e[2], 2, 0);
}

/* "threshold (Fiddler): an uncached expert is computed on the CPU when t_cpu(w) < T_load +
 * t_gpu(w), else loaded." One segment: t_cpu = 2 + 3 w, T_load + t_gpu = 10 + 1 + w: w = 4: 14 <
 * 15, the CPU; w = 5: 17 >= 16, loaded. */
static void test_threshold(void **state)
{
    struct sched_costs c = costs(10, 1, 1, 2, 3);
    c.load_contended_s = 1000; /* the rule does not use it */
    c.cpu_contended_s = 0.001;
    struct sched_layer layer = {.n_segments = 1, .spare_slots = 8};
    struct sched_expert e[] = {{.expert = 0, .workload = 4},
                               {.expert = 1, .workload = 5},
                               {.expert = 2, .workload = 1, .resident = 1},
                               {.expert = 3, .workload = 900},
                               {.expert = 4, .workload = 1, .in_flight = 1}};
    sched_assign(ASSIGN_THRESHOLD, &c, &layer, e, 5);
    expect_plan(&e[0], 0, 0);
    expect_plan(&e[1], 0, 1);
    expect_plan(&e[2], 1, 0);
    expect_plan(&e[3], 0, 1);
    expect_plan(&e[4], 0, 1); /* a segment of it is in flight */
    layer.spare_slots = 1;    /* the expert with the most tokens */
    sched_assign(ASSIGN_THRESHOLD, &c, &layer, e, 5);
    expect_plan(&e[1], 0, 0);
    expect_plan(&e[3], 0, 1);
}

/* "m misses in a layer: fetch F, compute m - F on the CPU, F the floor or ceiling of m f that
 * minimises max(F (1 - f), (m - F) f), f = link / (link + cpu)". A load of 6 and a CPU of 4: f =
 * 0.4. m = 8, m f = 3.2: F = 3: max(1.8, 2.0); F = 4: max(2.4, 1.6): 3 are fetched. A load of 11
 * and a CPU of 9: f = 0.45, m f = 3.6: F = 3: max(1.65, 2.25); F = 4: max(2.2, 1.8): 4. "Fetch the
 * most recently active first". */
static void test_qstar(void **state)
{
    static const struct {
        double load, cpu;
        uint32_t fetched;
    } cases[] = {{6, 4, 3}, {11, 9, 4}, {1, 1e9, 8}, {1e9, 1, 0}, {1, 1, 4}};
    static const uint64_t last_use[8] = {50, 0, 70, 20, 70, 60, 0, 10};
    static const uint32_t order[8] = {2, 4, 5, 0, 3, 7, 1, 6}; /* ties by the lower number */
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        struct sched_costs c = costs(cases[k].load, 0.1, 0, cases[k].cpu - 1, 1);
        c.load_s = 1e6; /* qstar reads the times under contention only */
        c.cpu_s = 1e-6;
        struct sched_layer layer = {.n_segments = 1, .spare_slots = 8};
        struct sched_expert e[9];
        for (uint32_t i = 0; i < 8; i++)
            e[i] = (struct sched_expert){.expert = i, .workload = 1 + i, .last_use = last_use[i]};
        e[8] = (struct sched_expert){.expert = 8, .workload = 1, .resident = 1};
        sched_assign(ASSIGN_QSTAR, &c, &layer, e, 9);
        for (uint32_t i = 0; i < 8; i++)
            expect_plan(&e[order[i]], 0, i < cases[k].fetched);
        expect_plan(&e[8], 1, 0);
    }
}

/* In a prompt qstar-stream loads everything; else it plans as qstar. Of 4 missing experts f = 0.5
 * loads 2. */
static void test_qstar_stream(void **state)
{
    for (int prompt = 0; prompt <= 1; prompt++) {
        struct sched_costs c = costs(1, 0.1, 0, 0, 1);
        struct sched_layer layer = {
            .n_segments = 1, .spare_slots = 2, .n_tokens = 64, .prompt = prompt};
        struct sched_expert e[4];
        for (uint32_t i = 0; i < 4; i++)
            e[i] = (struct sched_expert){.expert = i, .workload = 1};
        sched_assign(ASSIGN_QSTAR_STREAM, &c, &layer, e, 4);
        for (uint32_t i = 0; i < 4; i++)
            expect_plan(&e[i], 0, prompt || i < 2);
    }
}

/* Experts that are not whole on the device go to the CPU; in a step of `least` tokens they are
 * loaded. */
static void expect_loads_from(enum sched_assigner kind, uint32_t least)
{
    for (uint32_t n_tokens = least - 1; n_tokens <= least; n_tokens++) {
        struct sched_costs c = costs(1, 0.1, 0, 0, 1);
        struct sched_layer layer = {.n_segments = 2, .spare_slots = 8, .n_tokens = n_tokens};
        struct sched_expert e[] = {{.expert = 0, .workload = 1, .resident = 2},
                                   {.expert = 1, .workload = 9, .resident = 1},
                                   {.expert = 2, .workload = 9}};
        sched_assign(kind, &c, &layer, e, 3);
        expect_plan(&e[0], 2, 0);
        expect_plan(&e[1], n_tokens == least, n_tokens == least);
        expect_plan(&e[2], 0, n_tokens == least ? 2 : 0);
    }
}

/* KTransformers' threshold is 512, llama.cpp's 32. */
static void test_layerwise_stream(void **state)
{
    (void)state;
    expect_loads_from(ASSIGN_LAYERWISE_STREAM, 512);
    expect_loads_from(ASSIGN_LAYERWISE_OFFLOAD, 32);
}

/* DALI loads into the slots outside of its cache; greedy-unbound may use half of the device. */
static void test_spare_slots(void **state)
{
    assert_int_equal(sched_spare_slots(ASSIGN_GREEDY, 100, 8), 8);
    assert_int_equal(sched_spare_slots(ASSIGN_GREEDY, 100, 0), 50);
    assert_int_equal(sched_spare_slots(ASSIGN_GREEDY_UNBOUND, 100, 8), 50);
}

/* DALI's greedy: "cpu = t_cpu(w); gpu = max(T, t_gpu(w)), T = 0 if cached, else T_load. Sort by
 * |gpu - cpu| descending; GPU if T_gpu + gpu <= T_cpu + cpu." T_load 10, t_gpu = w, t_cpu = 4 w:
 *   expert  w  cached  cpu  gpu  |gpu - cpu|
 *   0       1  no        4   10   6
 *   1       5  no       20   10  10
 *   2       3  yes      12    3   9
 *   3       4  no       16   10   6
 *   4       2  no        8   10   2
 * 1: 10 <= 20 GPU (10, 0). 2: 13 <= 12 no: CPU (10, 12), although cached. 0 (before 3: tie): 20 <=
 * 16 no: CPU (10, 16). 3: 20 <= 32 GPU (20, 16). 4: 30 <= 24 no: CPU (20, 24). */
static void test_greedy(void **state)
{
    struct sched_costs c = costs(10, 0, 1, 0, 4);
    struct sched_layer layer = {.n_segments = 1, .spare_slots = 8, .whole = true};
    struct sched_expert e[] = {{.expert = 0, .workload = 1},
                               {.expert = 1, .workload = 5},
                               {.expert = 2, .workload = 3, .resident = 1},
                               {.expert = 3, .workload = 4},
                               {.expert = 4, .workload = 2}};
    /* In time: loads arrive at 10 and 20; the device computes the later one until 24; the CPU needs
     * 24. */
    expect_seconds(sched_assign(ASSIGN_GREEDY, &c, &layer, e, 5), 24);
    expect_plan(&e[0], 0, 0);
    expect_plan(&e[1], 0, 1);
    expect_plan(&e[2], 0, 0);
    expect_plan(&e[3], 0, 1);
    expect_plan(&e[4], 0, 0);
    /* "the loaded experts must fit the spare slots": 1 alone; 3 goes to the CPU: (10, 32); 4
     * too. */
    layer.spare_slots = 1;
    sched_assign(ASSIGN_GREEDY, &c, &layer, e, 5);
    expect_plan(&e[1], 0, 1);
    expect_plan(&e[3], 0, 0);
    expect_plan(&e[4], 0, 0);
}

/* "whole layers' experts on the device, the rest on the CPU, nothing moves" */
static void test_layerwise(void **state)
{
    struct sched_costs c = costs(1, 1, 1, 100, 100);
    struct sched_layer layer = {.n_segments = 4, .spare_slots = 8};
    struct sched_expert e[] = {{.expert = 0, .workload = 1, .resident = 4},
                               {.expert = 1, .workload = 1, .resident = 3, .in_flight = 1},
                               {.expert = 2, .workload = 1}};
    sched_assign(ASSIGN_LAYERWISE, &c, &layer, e, 3);
    expect_plan(&e[0], 4, 0);
    expect_plan(&e[1], 0, 0);
    expect_plan(&e[2], 0, 0);
}

/* "segments of missing experts are taken off the CPU and onto the link in order of CPU seconds
 * saved per link second until link and CPU finish together". Four segments an expert, 3 seconds a
 * load; on the CPU 1 + w a segment: expert 0 (w = 1) 2 each, expert 1 (w = 5, one resident) 6 each,
 * expert 2 (w = 2) 3 each; the device takes no time. All on the CPU: 8 + 18 + 12 = 38. Off it: 6,
 * 6, 6 (of 1), 3, 3, 3, 3 (of 2), 2 ...
 *   loads   0   1   2   3   4   5   6
 *   link    0   3   6   9  12  15  18
 *   CPU    38  32  26  20  17  14  11
 * 5 loads: 15; 4: 17. So all of expert 1 and two of expert 2. */
static void test_balance(void **state)
{
    struct sched_costs c = costs(3, 0, 0, 1, 1);
    struct sched_layer layer = {.n_segments = 4, .spare_slots = 12};
    struct sched_expert e[] = {{.expert = 0, .workload = 1},
                               {.expert = 1, .workload = 5, .resident = 1},
                               {.expert = 2, .workload = 2}};
    expect_seconds(sched_assign(ASSIGN_BALANCE, &c, &layer, e, 3), 15);
    expect_plan(&e[0], 0, 0);
    expect_plan(&e[1], 1, 3);
    expect_plan(&e[2], 0, 2);

    layer.spare_slots = 2;
    expect_seconds(sched_assign(ASSIGN_BALANCE, &c, &layer, e, 3), 26);
    expect_plan(&e[1], 1, 2);
    expect_plan(&e[2], 0, 0);

    /* The link has 9 seconds of earlier work, the CPU none: 9 + 3 n for the link. 3 loads: 18 and
     * 20; 4: 21 and 17. */
    layer.spare_slots = 12;
    layer.link_busy_s = 9;
    expect_seconds(sched_assign(ASSIGN_BALANCE, &c, &layer, e, 3), 20);
    expect_plan(&e[1], 1, 3);
    expect_plan(&e[2], 0, 0);

    /* Whole experts; saved per link second: 0: 8 / 12, 1: 24 / 9, 2: 12 / 12. All on the CPU 44; 1
     * loaded: 9 and 20; 1 and 2: 21 and 8. */
    layer.link_busy_s = 0;
    layer.whole = true;
    expect_seconds(sched_assign(ASSIGN_BALANCE, &c, &layer, e, 3), 20);
    expect_plan(&e[0], 0, 0);
    expect_plan(&e[1], 1, 3);
    expect_plan(&e[2], 0, 0);
}

/* Six experts of one segment are missing, and the device has spare slots for two. A load takes 1
 * second, the device 1 for a call and none for a segment, the CPU 20 for an expert. Loads in waves
 * of two: two are there after 2 s and computed at 3, the next two are copied from then on, and so
 * on: 2 + 1, 2 + 1, 2 + 1 = 9 seconds at most, less than one expert on the CPU. Where the CPU takes
 * 1 second, it computes the most of them instead. */
static void test_balance_in_waves(void **state)
{
    struct sched_layer layer = {
        .n_segments = 1, .spare_slots = 2, .free_slots = 2, .device_call_s = 1};
    struct sched_expert e[6];
    for (uint32_t i = 0; i < 6; i++)
        e[i] = (struct sched_expert){.expert = i, .workload = 1};
    struct sched_costs slow_cpu = costs(1, 0, 0, 20, 0), fast_cpu = costs(1, 0, 0, 1, 0);
    assert_true(sched_assign(ASSIGN_BALANCE, &slow_cpu, &layer, e, 6) <= 9);
    for (uint32_t i = 0; i < 6; i++)
        expect_plan(&e[i], 0, 1);
    uint32_t loads = 0;
    assert_true(sched_assign(ASSIGN_BALANCE, &fast_cpu, &layer, e, 6) <= 4);
    for (uint32_t i = 0; i < 6; i++)
        loads += e[i].load;
    assert_true(loads <= 2);
    /* without a call's time the waves cannot be followed */
    layer.device_call_s = 0;
    sched_assign(ASSIGN_BALANCE, &slow_cpu, &layer, e, 6);
    loads = 0;
    for (uint32_t i = 0; i < 6; i++)
        loads += e[i].load;
    assert_true(loads <= 2);
}

/* A device that is the last to finish gives the CPU half of 4 resident segments, or 1 while the
 * link copies for the next layer: it would take 3 seconds for each. */
static void test_balance_beside_prefetches(void **state)
{
    const struct sched_costs c = {
        .load_s = 1, .load_contended_s = 1, .device_s = 1, .cpu_s = 1, .cpu_contended_s = 3};
    struct sched_layer layer = {.n_segments = 4, .spare_slots = 4};
    struct sched_expert e[] = {{.workload = 1, .resident = 4}};
    expect_seconds(sched_assign(ASSIGN_BALANCE, &c, &layer, e, 1), 2);
    expect_plan(&e[0], 2, 0);
    layer.prefetches = 8;
    expect_seconds(sched_assign(ASSIGN_BALANCE, &c, &layer, e, 1), 3);
    expect_plan(&e[0], 3, 0);
}

/* All experts are resident and the device is slow, 3 seconds a segment to the CPU's 1: of four,
 * three go to the CPU: 3 and 3. */
static void test_balance_slow_device(void **state)
{
    struct sched_costs c = costs(50, 3, 0, 1, 0);
    struct sched_layer layer = {.n_segments = 1, .spare_slots = 4};
    struct sched_expert e[4];
    for (uint32_t i = 0; i < 4; i++)
        e[i] = (struct sched_expert){.expert = 4 - i, .workload = 1, .resident = 1};
    expect_seconds(sched_assign(ASSIGN_BALANCE, &c, &layer, e, 4), 3);
    for (uint32_t i = 0; i < 4; i++)
        expect_plan(&e[i], i == 0, 0);
    /* Segments of one expert: the CPU computes the last ones. */
    layer.n_segments = 4;
    e[0].resident = 4;
    expect_seconds(sched_assign(ASSIGN_BALANCE, &c, &layer, e, 1), 3);
    expect_plan(&e[0], 1, 0);
}

/* "ties by the lower expert number", at any place of the list; in DALI a tie between the sides goes
 * to the device. */
static void test_ties(void **state)
{
    static const enum sched_assigner kinds[] = {ASSIGN_THRESHOLD, ASSIGN_QSTAR, ASSIGN_GREEDY,
                                                ASSIGN_BALANCE};
    struct sched_costs c = costs(4, 0, 0, 4, 0);
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        struct sched_layer layer = {.n_segments = 1, .spare_slots = 1, .whole = k % 2};
        struct sched_expert e[] = {{.expert = 7, .workload = 2}, {.expert = 3, .workload = 2}};
        expect_seconds(sched_assign(kinds[k], &c, &layer, e, 2), 4);
        expect_plan(&e[0], 0, 0);
        expect_plan(&e[1], 0, 1);
    }
}

/* Each slows the other to half: a load takes 2 without the CPU and 4 with it, a CPU segment 1 and
 * 2. Eight segments on the CPU without loads: 8. One load: during it, 4 s, the CPU computes 2 of
 * its 7, then 5 more: 9, later than without. So the plan has no load. */
static void test_contention(void **state)
{
    struct sched_costs c = {.load_s = 2, .load_contended_s = 4, .cpu_s = 1, .cpu_contended_s = 2};
    struct sched_layer layer = {.n_segments = 8, .spare_slots = 8};
    struct sched_expert e = {.expert = 0, .workload = 1};
    expect_seconds(sched_assign(ASSIGN_BALANCE, &c, &layer, &e, 1), 8);
    expect_plan(&e, 0, 0);
    /* Only the CPU is slowed, by a tenth: n loads take 2 n; during them the CPU computes 2 n / 1.1
     * of its 8 - n, and the rest without slow-down. n = 2: 4 and 4 + (6 - 4 / 1.1) = 6.36; n = 3: 6
     * and, as 5 * 1.1 <= 6, 5.5. */
    c = (struct sched_costs){
        .load_s = 2, .load_contended_s = 2, .cpu_s = 1, .cpu_contended_s = 1.1};
    expect_seconds(sched_assign(ASSIGN_BALANCE, &c, &layer, &e, 1), 6);
    expect_plan(&e, 0, 3);
}

/* The device waits for a segment in flight if that is faster than computing it on the CPU: the rest
 * of the copy, 3, and 1 on the device, against the CPU's 2 for each of the expert's two segments.
 * If the CPU has 3 more to do: 7 against 4. */
static void test_in_flight(void **state)
{
    struct sched_costs c = costs(10, 1, 0, 2, 0);
    struct sched_layer layer = {.n_segments = 1, .spare_slots = 4, .link_busy_s = 3};
    struct sched_expert e = {.workload = 1, .in_flight = 1};
    (void)state;
    expect_seconds(sched_assign(ASSIGN_BALANCE, &c, &layer, &e, 1), 2);
    expect_plan(&e, 0, 0);
    layer.cpu_busy_s = 3;
    expect_seconds(sched_assign(ASSIGN_BALANCE, &c, &layer, &e, 1), 4);
    expect_plan(&e, 0, 1);
    /* Of three segments one is resident, one in flight: the CPU's 2 for the last and the device's
     * 4, or the CPU's 4 for both and 1. */
    layer = (struct sched_layer){.n_segments = 3, .spare_slots = 4, .link_busy_s = 3};
    e = (struct sched_expert){.workload = 1, .resident = 1, .in_flight = 1};
    expect_seconds(sched_assign(ASSIGN_BALANCE, &c, &layer, &e, 1), 4);
    expect_plan(&e, 1, 1);
    layer.link_busy_s = 4; /* 5 against 4 */
    expect_seconds(sched_assign(ASSIGN_BALANCE, &c, &layer, &e, 1), 4);
    expect_plan(&e, 1, 0);
    layer.whole = true; /* all three on the CPU, 6; the rest over the link, 4 + 10 + 1 */
    expect_seconds(sched_assign(ASSIGN_BALANCE, &c, &layer, &e, 1), 6);
    expect_plan(&e, 0, 0);
}

/* A call of the device takes 15, a load 8, a segment 1 on the device and 2 on the CPU, which has 30
 * of earlier work. Two experts are resident, one is missing. A call for the resident ones, 15 + 2,
 * then one for the load, 15 + 1, take 33. The CPU would take 32. One call after the load takes 8 +
 * 15 + 3 = 26. A second missing expert goes to the CPU, 32: the device never waits for two
 * loads. */
static void test_device_waits(void **state)
{
    struct sched_costs c = costs(8, 1, 0, 2, 0);
    struct sched_layer layer = {
        .n_segments = 1, .spare_slots = 4, .device_call_s = 15, .cpu_busy_s = 30};
    struct sched_expert e[] = {{.expert = 0, .workload = 1, .resident = 1},
                               {.expert = 1, .workload = 1, .resident = 1},
                               {.expert = 2, .workload = 1},
                               {.expert = 3, .workload = 1}};
    expect_seconds(sched_assign(ASSIGN_BALANCE, &c, &layer, e, 3), 26);
    expect_plan(&e[2], 0, 1);
    assert_true(sched_device_waits(&c, &layer, e, 3));
    expect_seconds(sched_assign(ASSIGN_BALANCE, &c, &layer, e, 4), 32);
    expect_plan(&e[2], 0, 1);
    expect_plan(&e[3], 0, 0);
    assert_true(sched_device_waits(&c, &layer, e, 4));
    /* Both loaded: 15 + 2, then 15 + 2 in one call, because both have arrived. */
    expect_seconds(sched_assign(ASSIGN_LOAD_ALL, &c, &layer, e, 4), 34);
    assert_false(sched_device_waits(&c, &layer, e, 4));
    /* In flight, arrives in 3: 3 + 15 + 3. */
    layer.link_busy_s = 3;
    e[2].in_flight = 1;
    expect_seconds(sched_assign(ASSIGN_BALANCE, &c, &layer, e, 3), 21);
    assert_true(sched_device_waits(&c, &layer, e, 3));
    layer.link_busy_s = 0;
    e[2].in_flight = 0;
    layer.device_call_s = 4; /* 4 + 2 during the load, then 8 + 4 + 1, against 8 + 4 + 3 */
    expect_seconds(sched_assign(ASSIGN_BALANCE, &c, &layer, e, 3), 13);
    expect_plan(&e[2], 0, 1);
    assert_false(sched_device_waits(&c, &layer, e, 3));
    layer.device_call_s = 15; /* a plan that may not wait uses the CPU: 32 */
    layer.never_waits = true;
    expect_seconds(sched_assign(ASSIGN_BALANCE, &c, &layer, e, 3), 32);
    expect_plan(&e[2], 0, 0);
    assert_false(sched_device_waits(&c, &layer, e, 3));
    layer.never_waits = false;
    /* False without a missing expert, and without any expert. */
    assert_false(sched_device_waits(&c, &layer, e, 2));
    assert_false(sched_device_waits(&c, &layer, e, 0));
}

/* "The CPU may be missing: then everything is loaded, whatever the assigner", in as many waves as
 * it takes. */
static void test_no_cpu(void **state)
{
    struct sched_costs c = costs(3, 1, 0, INFINITY, INFINITY);
    for (int kind = 0; kind < N_ASSIGNERS; kind++) {
        struct sched_layer layer = {.n_segments = 2, .spare_slots = 1, .whole = kind % 2};
        struct sched_expert e[] = {{.expert = 0, .workload = 1},
                                   {.expert = 1, .workload = 2, .resident = 1, .in_flight = 1}};
        expect_seconds(sched_assign((enum sched_assigner)kind, &c, &layer, e, 2), 7);
        expect_plan(&e[0], 0, 2);
        expect_plan(&e[1], 1, 1);
        assert_true(sched_assign((enum sched_assigner)kind, &c, &layer, e, 0) == 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_load_all),
        cmocka_unit_test(test_threshold),
        cmocka_unit_test(test_qstar),
        cmocka_unit_test(test_qstar_stream),
        cmocka_unit_test(test_layerwise_stream),
        cmocka_unit_test(test_spare_slots),
        cmocka_unit_test(test_greedy),
        cmocka_unit_test(test_layerwise),
        cmocka_unit_test(test_balance),
        cmocka_unit_test(test_balance_in_waves),
        cmocka_unit_test(test_balance_beside_prefetches),
        cmocka_unit_test(test_balance_slow_device),
        cmocka_unit_test(test_ties),
        cmocka_unit_test(test_contention),
        cmocka_unit_test(test_in_flight),
        cmocka_unit_test(test_device_waits),
        cmocka_unit_test(test_no_cpu),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
