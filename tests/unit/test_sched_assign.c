/* lib/sched's assigners: cases worked out by hand from each paper's rule, and random instances held
 * against what the rule promises, with the time of a plan reckoned here by a simulation of link,
 * device and CPU. */
#include "random_numbers.h"

#include "sched/policy.h"

#include "base/clock.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum { N_ASSIGNERS = ASSIGN_BALANCE + 1, MOST = 64 };

static double uniform(double from, double to)
{
    return from + (to - from) * (double)(random_u64() >> 11) * 0x1p-53;
}

/* Alone and contended are the same. */
static struct sched_costs costs(double load, double device, double device_token, double cpu,
                                double cpu_token)
{
    return (struct sched_costs){load, load,      device, device_token, cpu, cpu_token,
                                cpu,  cpu_token, 0};
}

static void expect_plan(const struct sched_expert *e, uint32_t device, uint32_t load)
{
    if (e->device != device || e->load != load)
        fail_msg("expert %u: device %u load %u, not %u %u", e->expert, e->device, e->load, device,
                 load);
}

static void expect_seconds(double got, double expected)
{
    if (fabs(got - expected) > 1e-9 * (1 + fabs(expected)))
        fail_msg("%.12g seconds, not %.12g", got, expected);
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
    c.load_contended_s = 1000; /* not its figures */
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
    expect_plan(&e[4], 0, 1); /* already on its way */
    layer.spare_slots = 1;    /* the one with the most tokens */
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
        c.load_s = 1e6; /* measured while both run, not alone */
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
    /* In time: loads arrive at 10 and 20, the later one is computed until 24; the CPU has 24. */
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

    /* The link has 9 to do before, the CPU nothing: 9 + 3 n against the CPU's: 3 loads, 18 and 20;
     * 4: 21 and 17. */
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

/* Where all is resident and the device is slow, 3 seconds a segment to the CPU's 1: of four, three
 * go to the CPU: 3 and 3. */
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
    /* Segments of one expert: the tail is the CPU's. */
    layer.n_segments = 4;
    e[0].resident = 4;
    expect_seconds(sched_assign(ASSIGN_BALANCE, &c, &layer, e, 1), 3);
    expect_plan(&e[0], 1, 0);
}

/* "ties by the lower expert number", wherever it stands; and DALI's tie between the sides is the
 * device's. */
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

/* Both slow each other to half: a load of 2 alone takes 4, a CPU segment of 1 takes 2. Eight
 * segments on the CPU alone: 8. One load: the CPU's 7 take 4 contended seconds (2 done), then 5: 9,
 * later than without. So none is loaded. */
static void test_contention(void **state)
{
    struct sched_costs c = {.load_s = 2, .load_contended_s = 4, .cpu_s = 1, .cpu_contended_s = 2};
    struct sched_layer layer = {.n_segments = 8, .spare_slots = 8};
    struct sched_expert e = {.expert = 0, .workload = 1};
    expect_seconds(sched_assign(ASSIGN_BALANCE, &c, &layer, &e, 1), 8);
    expect_plan(&e, 0, 0);
    /* Only the CPU is slowed, by a tenth: n loads take 2 n, the CPU does 2 n / 1.1 of its 8 - n
     * meanwhile and the rest alone. n = 2: 4 and 4 + (6 - 4 / 1.1) = 6.36; n = 3: 6 and, as 5 * 1.1
     * <= 6, 5.5. */
    c = (struct sched_costs){
        .load_s = 2, .load_contended_s = 2, .cpu_s = 1, .cpu_contended_s = 1.1};
    expect_seconds(sched_assign(ASSIGN_BALANCE, &c, &layer, &e, 1), 6);
    expect_plan(&e, 0, 3);
}

/* A segment in flight is awaited where that is sooner than computing it again: the copy's rest of 3 and 1 on the device
 * against the CPU's 2 for each of the expert's two segments. With another 3 for the CPU to do, 7 against 4. */
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
    /* Of three segments one is there, one in flight: the CPU's 2 for the last and the device's 4, or the CPU's 4 for
     * both and 1. */
    layer = (struct sched_layer){.n_segments = 3, .spare_slots = 4, .link_busy_s = 3};
    e = (struct sched_expert){.workload = 1, .resident = 1, .in_flight = 1};
    expect_seconds(sched_assign(ASSIGN_BALANCE, &c, &layer, &e, 1), 4);
    expect_plan(&e, 1, 1);
    layer.link_busy_s = 4; /* 5 against 4 */
    expect_seconds(sched_assign(ASSIGN_BALANCE, &c, &layer, &e, 1), 4);
    expect_plan(&e, 1, 0);
    layer.whole = true; /* all three by the CPU, 6; the rest over the link, 4 + 10 + 1 */
    expect_seconds(sched_assign(ASSIGN_BALANCE, &c, &layer, &e, 1), 6);
    expect_plan(&e, 0, 0);
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

/* A random layer. */
struct instance {
    struct sched_costs costs;
    struct sched_layer layer;
    struct sched_expert experts[MOST];
    uint32_t n;
};

static struct instance random_instance(uint32_t most)
{
    struct instance x = {.n = 1 + below(most)};
    x.layer = (struct sched_layer){.n_segments = 1 + below(6), .whole = below(2)};
    x.layer.spare_slots = below(3) ? 100000 : below(most * x.layer.n_segments);
    if (below(2)) {
        x.layer.cpu_busy_s = uniform(0, 5);
        x.layer.link_busy_s = uniform(0, 5);
    }
    /* one after the other: the order of a call's arguments is the compiler's */
    double load = uniform(0.5, 8), device = uniform(0, 0.1), device_token = uniform(0, 0.02);
    double cpu = uniform(0.1, 6), cpu_token = uniform(0, 2);
    x.costs = costs(load, device, device_token, cpu, cpu_token);
    uint32_t deepest = below(4) ? 4 : 200;
    for (uint32_t i = 0; i < x.n; i++) {
        struct sched_expert *e = &x.experts[i];
        *e = (struct sched_expert){.expert = i * 3, .workload = 1 + below(deepest)};
        e->last_use = below(5);
        e->device = e->load = 77; /* must be overwritten */
        if (below(2))
            e->resident = below(x.layer.n_segments + 1);
    }
    if (below(2)) { /* one copy is under way at most */
        struct sched_expert *e = &x.experts[below(x.n)];
        e->in_flight = e->resident < x.layer.n_segments;
    }
    return x;
}

static void slow_down(struct instance *x)
{
    double link = uniform(1, 2), cpu = uniform(1, 2);
    x->costs.load_contended_s *= link;
    x->costs.cpu_contended_s *= cpu;
    x->costs.cpu_contended_token_s *= cpu;
}

static uint32_t missing(const struct instance *x, const struct sched_expert *e)
{
    return x->layer.n_segments - e->resident - e->in_flight;
}

/* Segments that the plan copies and that were not on their way. */
static uint32_t new_loads(const struct instance *x, const struct sched_expert *e)
{
    uint32_t there = e->resident + e->in_flight, wanted = e->device + e->load;
    return e->load && wanted > there ? wanted - there : 0;
}

static void check_valid(const struct instance *x, enum sched_assigner kind)
{
    uint32_t loads = 0;
    for (uint32_t i = 0; i < x->n; i++) {
        const struct sched_expert *e = &x->experts[i];
        assert_true(e->device <= e->resident);
        assert_true(e->device + e->load <= x->layer.n_segments);
        assert_true(e->load == 0 || e->device == e->resident); /* a copy extends the prefix */
        if (x->layer.whole)
            assert_true(e->device + e->load == x->layer.n_segments || e->device + e->load == 0);
        loads += new_loads(x, e);
    }
    if (kind != ASSIGN_LOAD_ALL)
        assert_true(loads <= x->layer.spare_slots);
    if (kind == ASSIGN_LAYERWISE)
        assert_int_equal(loads, 0);
}

/* When a plan is done, where nothing slows anything else: every segment is followed. Loads come in
 * the order of falling workload, and the device computes what is there first, then in the order of
 * arrival. */
static double simulate(const struct instance *x)
{
    double device = 0, cpu = 0, link = x->layer.link_busy_s;
    uint32_t order[MOST];
    for (uint32_t i = 0; i < x->n; i++) {
        const struct sched_expert *e = &x->experts[i];
        double device_s = x->costs.device_s + e->workload * x->costs.device_token_s;
        device += e->device * device_s;
        cpu += (x->layer.n_segments - e->device - e->load) *
               (x->costs.cpu_s + e->workload * x->costs.cpu_token_s);
        uint32_t j = i;
        for (; j > 0 && x->experts[order[j - 1]].workload < e->workload; j--)
            order[j] = order[j - 1];
        order[j] = i;
    }
    for (int awaited = 1; awaited >= 0; awaited--)
        for (uint32_t i = 0; i < x->n; i++) {
            const struct sched_expert *e = &x->experts[order[i]];
            uint32_t loads = new_loads(x, e), n = awaited ? e->load - loads : loads;
            for (uint32_t s = 0; s < n; s++) {
                if (!awaited)
                    link += x->costs.load_s;
                double device_s = x->costs.device_s + e->workload * x->costs.device_token_s;
                device = fmax(device, link) + device_s;
            }
        }
    return fmax(device, cpu > 0 ? x->layer.cpu_busy_s + cpu : 0);
}

/* Every plan is one that can be carried out, takes the time that it says, and comes again. */
static void test_plans(void **state)
{
    random_state = 1;
    for (int round = 0; round < 20000; round++) {
        struct instance x = random_instance(12);
        bool contended = below(2);
        if (contended)
            slow_down(&x);
        for (int kind = 0; kind < N_ASSIGNERS; kind++) {
            struct instance y = x, z = x;
            double seconds =
                sched_assign((enum sched_assigner)kind, &y.costs, &y.layer, y.experts, y.n);
            check_valid(&y, (enum sched_assigner)kind);
            if (!contended)
                expect_seconds(seconds, simulate(&y));
            assert_true(sched_assign((enum sched_assigner)kind, &z.costs, &z.layer, z.experts,
                                     z.n) == seconds);
            assert_memory_equal(&y.experts, &z.experts, sizeof y.experts);
        }
    }
}

/* Each missing expert's own comparison, as written. */
static void test_threshold_rule(void **state)
{
    random_state = 2;
    for (int round = 0; round < 5000; round++) {
        struct instance x = random_instance(12);
        x.layer.whole = true;
        x.layer.spare_slots = 100000;
        sched_assign(ASSIGN_THRESHOLD, &x.costs, &x.layer, x.experts, x.n);
        for (uint32_t i = 0; i < x.n; i++) {
            const struct sched_expert *e = &x.experts[i];
            double s = x.layer.n_segments;
            double cpu = s * (x.costs.cpu_s + e->workload * x.costs.cpu_token_s);
            double device = missing(&x, e) * x.costs.load_s +
                            s * (x.costs.device_s + e->workload * x.costs.device_token_s);
            bool on_cpu = missing(&x, e) && cpu < device;
            assert_int_equal(e->device + e->load, on_cpu ? 0 : x.layer.n_segments);
        }
    }
}

/* DALI's accounting of its own plan: never later than all on one side. */
static void test_greedy_bound(void **state)
{
    random_state = 3;
    for (int round = 0; round < 5000; round++) {
        struct instance x = random_instance(MOST);
        x.layer.whole = true;
        x.layer.spare_slots = 100000;
        sched_assign(ASSIGN_GREEDY, &x.costs, &x.layer, x.experts, x.n);
        double cpu = x.layer.cpu_busy_s, device = x.layer.link_busy_s, all_cpu = cpu,
               all_device = device;
        for (uint32_t i = 0; i < x.n; i++) {
            const struct sched_expert *e = &x.experts[i];
            double s = x.layer.n_segments;
            double on_cpu = s * (x.costs.cpu_s + e->workload * x.costs.cpu_token_s);
            double on_device = fmax(missing(&x, e) * x.costs.load_s,
                                    s * (x.costs.device_s + e->workload * x.costs.device_token_s));
            all_cpu += on_cpu;
            all_device += on_device;
            if (e->device + e->load)
                device += on_device;
            else
                cpu += on_cpu;
        }
        assert_true(fmax(cpu, device) <= 1e-9 + fmax(all_cpu, x.layer.link_busy_s));
        assert_true(fmax(cpu, device) <= 1e-9 + fmax(all_device, x.layer.cpu_busy_s));
    }
}

/* Segments that can be cut as fine as one likes, the most saving first, a device that takes no
 * time: where the link's and the CPU's lines cross. By bisection over the seconds of link. */
static double continuous_optimum(const struct instance *x, double *segment_s)
{
    double low = 0, high = 0;
    *segment_s = x->costs.load_s;
    for (uint32_t i = 0; i < x->n; i++)
        high += missing(x, &x->experts[i]);
    double all = high;
    bool done[MOST];
    for (int round = 0; round < 100; round++) {
        double loads = (low + high) / 2, left = loads, cpu = 0;
        memset(done, 0, sizeof done);
        for (uint32_t k = 0; k < x->n; k++) {
            uint32_t most = MOST;
            for (uint32_t i = 0; i < x->n; i++)
                if (!done[i] &&
                    (most == MOST || x->experts[i].workload > x->experts[most].workload))
                    most = i;
            done[most] = true;
            const struct sched_expert *e = &x->experts[most];
            double taken = fmin(left, missing(x, e));
            double each = x->costs.cpu_s + e->workload * x->costs.cpu_token_s;
            left -= taken;
            cpu += (missing(x, e) - taken) * each;
            if (missing(x, e))
                *segment_s = fmax(*segment_s, each);
        }
        double link = x->layer.link_busy_s + loads * x->costs.load_s;
        if (x->layer.cpu_busy_s + cpu > link)
            low = loads;
        else
            high = loads;
    }
    if (low >= all - 1e-9) /* the CPU is late even with nothing to do */
        return x->layer.link_busy_s + all * x->costs.load_s;
    return x->layer.link_busy_s + high * x->costs.load_s;
}

static void test_balance_continuous(void **state)
{
    random_state = 4;
    for (int round = 0; round < 3000; round++) {
        struct instance x = random_instance(40);
        x.layer.whole = false;
        x.layer.spare_slots = 100000;
        x.costs.device_s = x.costs.device_token_s = 0;
        double segment_s, optimum = continuous_optimum(&x, &segment_s);
        double got = sched_assign(ASSIGN_BALANCE, &x.costs, &x.layer, x.experts, x.n);
        uint32_t loads = 0;
        for (uint32_t i = 0; i < x.n; i++)
            loads += new_loads(&x, &x.experts[i]);
        if (loads && got > optimum + segment_s + 1e-9)
            fail_msg("%g seconds, the optimum is %g, a segment %g", got, optimum, segment_s);
        /* Never better than without cutting; a link that is busy for longer than all else does not
         * count. */
        if (x.layer.link_busy_s == 0)
            assert_true(got >= optimum - 1e-6 || loads == 0);
    }
}

/* Every plan of a few experts, by simulation: balance is within one segment of the best, segment by
 * segment and whole. */
static void enumerate(struct instance *x, uint32_t i, double *best)
{
    if (i == x->n) {
        *best = fmin(*best, simulate(x));
        return;
    }
    struct sched_expert *e = &x->experts[i];
    uint32_t there = e->resident + e->in_flight;
    for (uint32_t total = there; total <= x->layer.n_segments; total++) {
        if (x->layer.whole && total != x->layer.n_segments)
            continue;
        e->device = e->resident;
        e->load = total - e->device;
        enumerate(x, i + 1, best);
    }
    if (x->layer.whole) {
        e->device = e->load = 0;
        enumerate(x, i + 1, best);
    }
}

static void test_balance_best(void **state)
{
    random_state = 5;
    for (int round = 0; round < 2000; round++) {
        struct instance x = random_instance(5);
        x.layer.n_segments = x.layer.n_segments > 4 ? 4 : x.layer.n_segments;
        for (uint32_t i = 0; i < x.n; i++) {
            struct sched_expert *e = &x.experts[i];
            e->resident = e->resident % (x.layer.n_segments + 1);
            e->in_flight = e->in_flight && e->resident < x.layer.n_segments;
        }
        x.layer.spare_slots = 100000;
        struct instance y = x;
        double best = INFINITY, largest = x.costs.load_s + x.costs.device_s;
        enumerate(&y, 0, &best);
        for (uint32_t i = 0; i < x.n; i++) {
            double each = x.costs.cpu_s + x.experts[i].workload * x.costs.cpu_token_s;
            largest = fmax(largest, each);
        }
        if (x.layer.whole) /* an expert is what is moved */
            largest *= x.layer.n_segments;
        double got = sched_assign(ASSIGN_BALANCE, &x.costs, &x.layer, x.experts, x.n);
        if (got > best + largest + 1e-9)
            fail_msg("round %d: %g, the best is %g, a segment %g", round, got, best, largest);
    }
}

/* As assign_finish() tells, with contention: no other assigner is better by more than a segment,
 * and neither extreme at all. */
static void test_balance_others(void **state)
{
    random_state = 6;
    for (int round = 0; round < 20000; round++) {
        struct instance x = random_instance(MOST);
        if (below(2))
            slow_down(&x);
        double got[N_ASSIGNERS], segment_s = x.costs.load_contended_s;
        for (int kind = 0; kind < N_ASSIGNERS; kind++) {
            struct instance y = x;
            got[kind] = sched_assign((enum sched_assigner)kind, &y.costs, &y.layer, y.experts, y.n);
        }
        for (uint32_t i = 0; i < x.n; i++)
            segment_s = fmax(segment_s, x.costs.cpu_contended_s +
                                            x.experts[i].workload * x.costs.cpu_contended_token_s);
        if (x.layer.whole)
            segment_s *= x.layer.n_segments;
        double balance = got[ASSIGN_BALANCE];
        for (int kind = 0; kind < ASSIGN_BALANCE; kind++) {
            bool bounded = kind != ASSIGN_LOAD_ALL || x.layer.spare_slots == 100000;
            if (bounded && balance > got[kind] + segment_s + 1e-9)
                fail_msg("round %d: %g, %s has %g, a segment %g", round, balance,
                         sched_assigner_name((enum sched_assigner)kind), got[kind], segment_s);
        }
        if (x.layer.spare_slots == 100000)
            assert_true(balance <= got[ASSIGN_LOAD_ALL] + 1e-9);
        struct sched_layer no_slots = x.layer;
        no_slots.spare_slots = 0;
        assert_true(balance <=
                    1e-9 + sched_assign(ASSIGN_BALANCE, &x.costs, &no_slots, x.experts, x.n));
    }
}

/* How long a plan takes; for the reader of the log. */
static void test_speed(void **state)
{
    static struct sched_expert experts[SCHED_MAX_EXPERTS];
    static const uint32_t sizes[] = {8, 32, 128, 512, SCHED_MAX_EXPERTS};
    struct sched_costs c = costs(3, 0.1, 0.01, 1, 0.5);
    random_state = 7;
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
        uint32_t n = sizes[k], rounds = 1 + 20000 / n;
        struct sched_layer layer = {.n_segments = 8, .spare_slots = 100000};
        for (uint32_t i = 0; i < n; i++)
            experts[i] = (struct sched_expert){.expert = i,
                                               .workload = 1 + below(32),
                                               .resident = below(3) * 4,
                                               .last_use = below(1000)};
        char line[160] = "";
        for (int kind = 0; kind < N_ASSIGNERS; kind++) {
            double best = INFINITY;
            for (int batch = 0; batch < 9; batch++) {
                double start = clock_s();
                for (uint32_t r = 0; r < rounds; r++)
                    sched_assign((enum sched_assigner)kind, &c, &layer, experts, n);
                best = fmin(best, (clock_s() - start) * 1e6 / rounds);
            }
            snprintf(line + strlen(line), sizeof line - strlen(line), " %s %.2f",
                     sched_assigner_name((enum sched_assigner)kind), best);
        }
        print_message("%u experts, microseconds:%s\n", n, line);
        for (uint32_t i = 0; i < n; i++)
            assert_true(experts[i].device + experts[i].load <= layer.n_segments);
    }
}

static void test_names(void **state)
{
    static const struct {
        const char *name;
        enum sched_assigner assigner;
        enum sched_cache_kind cache;
        enum sched_budget budget;
        bool predicts;
    } presets[] = {
        {"ondemand", ASSIGN_LOAD_ALL, CACHE_NONE, BUDGET_GLOBAL, false},
        {"static", ASSIGN_LOAD_ALL, CACHE_STATIC, BUDGET_UNIFORM, false},
        {"lru", ASSIGN_LOAD_ALL, CACHE_LRU, BUDGET_UNIFORM, false},
        {"lfu", ASSIGN_LOAD_ALL, CACHE_LFU, BUDGET_UNIFORM, false},
        {"mixtral-offloading", ASSIGN_LOAD_ALL, CACHE_LRU, BUDGET_UNIFORM, true},
        {"eam", ASSIGN_LOAD_ALL, CACHE_LFU, BUDGET_UNIFORM, true},
        {"score", ASSIGN_SCORE_QUEUE, CACHE_SCORE, BUDGET_UNIFORM, true},
        {"prescope", ASSIGN_PRESCHED, CACHE_STATIC, BUDGET_UNIFORM, true},
        {"moepic", ASSIGN_LOAD_ALL, CACHE_LCP, BUDGET_CONFIGURED, true},
        {"promoe", ASSIGN_LOAD_ALL, CACHE_LRU_AHEAD, BUDGET_UNIFORM, true},
        {"finemoe", ASSIGN_LOAD_ALL, CACHE_MAP_FREQUENCY, BUDGET_GLOBAL, true},
        {"qstar", ASSIGN_QSTAR, CACHE_LRU, BUDGET_GLOBAL, false},
        {"layerwise", ASSIGN_LAYERWISE, CACHE_LAYERWISE, BUDGET_GLOBAL, false},
        {"dali", ASSIGN_GREEDY, CACHE_DALI, BUDGET_UNIFORM, true},
        {"moed", ASSIGN_BALANCE, CACHE_VALUE, BUDGET_GLOBAL, true},
    };
    for (size_t i = 0; i < sizeof presets / sizeof *presets; i++) {
        const struct sched_policy *p = sched_policy_find(presets[i].name);
        assert_non_null(p);
        assert_int_equal(p->assigner, presets[i].assigner);
        assert_int_equal(p->cache, presets[i].cache);
        assert_int_equal(p->budget, presets[i].budget);
        assert_int_equal(p->predictor != PREDICT_NONE, presets[i].predicts);
    }
    assert_int_equal(sched_policy_find("threshold")->assigner, ASSIGN_THRESHOLD);
    assert_int_equal(sched_policy_find("dali")->predictor, PREDICT_RESIDUAL);
    assert_null(sched_policy_find("moe"));
    assert_null(sched_policy_find(""));
    uint32_t n = 0;
    for (; sched_policy_at(n); n++) {
        const struct sched_policy *p = sched_policy_at(n);
        assert_ptr_equal(sched_policy_find(p->name), p);
        assert_non_null(strstr(sched_policy_names(), p->name));
        assert_true(strlen(p->what) > 10);
        assert_true(sched_cache_takes(p->cache, p->budget));
    }
    assert_int_equal(n, 16);
    assert_string_equal(sched_policy_names(),
                        "ondemand, static, lru, lfu, mixtral-offloading, eam, threshold, score, "
                        "qstar, layerwise, dali, prescope, moepic, promoe, finemoe, moed");
    /* The oracles are replay's alone. */
    assert_string_equal(sched_policy_at_any(n)->name, "belady");
    assert_string_equal(sched_policy_at_any(n + 1)->name, "optimal");
    assert_null(sched_policy_at_any(n + 2));
    assert_null(sched_policy_find("belady"));
    for (int i = 0; i < 5; i++) {
        enum sched_prefetcher found;
        const char *name = sched_prefetcher_name((enum sched_prefetcher)i);
        assert_true(sched_prefetcher_find(name, &found) && (int)found == i);
        assert_non_null(strstr(sched_prefetcher_names(), name));
    }
    assert_null(sched_prefetcher_name((enum sched_prefetcher)5));
    for (int kind = 0; kind < N_ASSIGNERS; kind++) {
        enum sched_assigner found = ASSIGN_LOAD_ALL;
        assert_true(sched_assigner_find(sched_assigner_name((enum sched_assigner)kind), &found));
        assert_int_equal(found, kind);
        assert_true(strlen(sched_assigner_what(found)) > 10);
    }
    assert_string_equal(sched_assigner_names(),
                        "load-all, threshold, qstar, greedy, layerwise, presched, score-queue, "
                        "balance");
    assert_non_null(strstr(sched_assigner_help(), sched_assigner_names()));
    for (int kind = 0; kind < CACHE_KINDS; kind++) {
        enum sched_cache_kind found = CACHE_NONE;
        const char *name = sched_cache_name((enum sched_cache_kind)kind);
        assert_true(sched_cache_find_any(name, &found));
        assert_non_null(strstr(sched_cache_names_any(), name));
        /* What only replay may use is neither found nor told. */
        enum sched_cache_kind other = CACHE_NONE;
        bool live = kind <= CACHE_VALUE;
        assert_int_equal(sched_cache_replay_only(found), !live);
        assert_int_equal(sched_cache_find(name, &other), live);
        assert_int_equal(other, live ? found : CACHE_NONE);
        assert_int_equal(found, kind);
        assert_true(strlen(sched_cache_what(found)) > 10);
        assert_true(sched_cache_takes(found, sched_cache_budget(found)));
    }
    assert_string_equal(sched_cache_names(), "none, static, lru, lfu, workload, layerwise, "
                                             "lru-ahead, lcp, score, map-frequency, value");
    assert_null(strstr(sched_cache_names(), "belady"));
    assert_null(strstr(sched_cache_help(), "random"));
    assert_non_null(strstr(sched_cache_help(), sched_cache_names()));
    enum sched_assigner a = ASSIGN_QSTAR;
    assert_false(sched_assigner_find("load", &a));
    assert_int_equal(a, ASSIGN_QSTAR);
    enum sched_cache_kind c;
    assert_true(sched_cache_find("workload", &c) && c == CACHE_DALI);
    assert_false(sched_cache_find("dali", &c));
    assert_string_equal(sched_assigner_name(ASSIGN_OPTIMAL), "optimal"); /* of replay */
    assert_null(sched_assigner_name((enum sched_assigner)(ASSIGN_OPTIMAL + 1)));
    assert_null(sched_cache_name((enum sched_cache_kind)CACHE_KINDS));
    for (int kind = 0; kind < PREDICT_KINDS; kind++) {
        enum sched_predictor found = PREDICT_NONE;
        const char *name = sched_predictor_name((enum sched_predictor)kind);
        assert_true(sched_predictor_find(name, &found));
        assert_int_equal(found, kind);
        assert_true(strlen(sched_predictor_what(found)) > 10);
        assert_non_null(strstr(sched_predictor_names(), name));
    }
    assert_null(sched_predictor_name((enum sched_predictor)PREDICT_KINDS));
    for (int kind = 0; kind < BUDGET_KINDS; kind++) {
        enum sched_budget found = BUDGET_GLOBAL;
        const char *name = sched_budget_name((enum sched_budget)kind);
        assert_true(sched_budget_find(name, &found));
        assert_int_equal(found, kind);
        assert_true(strlen(sched_budget_what(found)) > 10);
        assert_non_null(strstr(sched_budget_names(), name));
    }
    assert_null(sched_budget_name((enum sched_budget)BUDGET_KINDS));
    enum sched_predictor p = PREDICT_RESIDUAL;
    assert_false(sched_predictor_find("", &p));
    assert_int_equal(p, PREDICT_RESIDUAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_load_all),
        cmocka_unit_test(test_threshold),
        cmocka_unit_test(test_qstar),
        cmocka_unit_test(test_greedy),
        cmocka_unit_test(test_layerwise),
        cmocka_unit_test(test_balance),
        cmocka_unit_test(test_balance_slow_device),
        cmocka_unit_test(test_ties),
        cmocka_unit_test(test_contention),
        cmocka_unit_test(test_in_flight),
        cmocka_unit_test(test_no_cpu),
        cmocka_unit_test(test_plans),
        cmocka_unit_test(test_threshold_rule),
        cmocka_unit_test(test_greedy_bound),
        cmocka_unit_test(test_balance_continuous),
        cmocka_unit_test(test_balance_best),
        cmocka_unit_test(test_balance_others),
        cmocka_unit_test(test_speed),
        cmocka_unit_test(test_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
