/* bench/replay/optimal.h: compares the exact assignment with every plan, and greedy and the other
 * assigners with the exact one. */
#include "random_numbers.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <cmocka.h>

#ifdef MOED_HAS_GLPK

#include "bench/replay/optimal.h"

#include <math.h>
#include <string.h>

enum { MOST = 24 };

/* A random layer. */
struct instance {
    struct sched_costs costs;
    struct sched_layer layer;
    struct sched_expert experts[MOST];
    uint32_t n;
};

static struct instance random_instance(uint32_t most, bool whole, bool capacity)
{
    struct instance x = {.n = 1 + below(most)};
    x.layer = (struct sched_layer){.n_segments = 1 + below(4), .whole = whole};
    x.layer.spare_slots = capacity ? 100000 : below(most * x.layer.n_segments);
    if (below(2)) {
        x.layer.cpu_busy_s = between(0, 5);
        x.layer.link_busy_s = between(0, 5);
    }
    double load = between(0.5, 8), device = between(0, 0.3), device_token = between(0, 0.05);
    double cpu = between(0.1, 6), cpu_token = between(0, 2);
    x.costs = (struct sched_costs){load,      load, device, device_token, cpu, cpu_token, cpu,
                                   cpu_token, 0,    0};
    for (uint32_t i = 0; i < x.n; i++)
        x.experts[i] =
            (struct sched_expert){.expert = i,
                                  .workload = 1 + below(below(4) ? 4 : 60),
                                  .resident = below(2) ? below(x.layer.n_segments + 1) : 0,
                                  .last_use = below(5)};
    return x;
}

static double finish(const struct instance *x)
{
    return optimal_finish(&x->costs, &x->layer, x->experts, x->n);
}

static double solve(struct instance *x)
{
    bool proven = false;
    double seconds = optimal_assign(&x->costs, &x->layer, x->experts, x->n, NULL, &proven);
    assert_true(proven);
    assert_true(fabs(seconds - finish(x)) <= 1e-12 * (1 + seconds));
    return seconds;
}

/* DALI's program (its equations 3 to 9) on three experts: T_load 10, t_gpu = w, t_cpu = 4 w, tokens
 * 5, 4, 3 (cached):
 *   on the device    sums: device, CPU
 *   5 4 3            10 + 10 + 3 = 23, 0
 *   5 4              20, 12
 *   5 3              13, 16       the best: 16
 *   4 3              13, 20
 *   5                10, 28 */
static void test_by_hand(void **state)
{
    struct instance x = {.costs = {10, 10, 0, 1, 0, 4, 0, 4, 0, 0},
                         .layer = {.n_segments = 1, .spare_slots = 2, .whole = true},
                         .experts = {{.expert = 0, .workload = 5},
                                     {.expert = 1, .workload = 4},
                                     {.expert = 2, .workload = 3, .resident = 1}},
                         .n = 3};
    assert_true(fabs(solve(&x) - 16) < 1e-9);
    assert_true(x.experts[0].load == 1 && x.experts[1].load == 0 && x.experts[2].device == 1);
    x.layer.spare_slots = 0; /* 3, 36; or nothing, 48 */
    assert_true(fabs(solve(&x) - 36) < 1e-9);
    x.layer = (struct sched_layer){.n_segments = 1, .spare_slots = 2, .cpu_busy_s = 9};
    assert_true(fabs(solve(&x) - 21) < 1e-9); /* 23, 9; 20, 21 with the cached one on the CPU */
}

/* Assigns each expert to one side by the bits of `who`. */
static void choose(struct instance *x, uint32_t who)
{
    for (uint32_t i = 0; i < x->n; i++) {
        struct sched_expert *e = &x->experts[i];
        bool part = !x->layer.whole && e->resident < x->layer.n_segments;
        bool on_device = who >> i & 1;
        e->device = on_device || part ? e->resident : 0;
        e->load = on_device ? x->layer.n_segments - e->resident : 0;
    }
}

static uint32_t loads(const struct instance *x)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < x->n; i++)
        n += x->experts[i].load;
    return n;
}

static void test_every_plan(void **state)
{
    uint32_t beaten = 0;
    random_state = 1;
    for (int round = 0; round < 400; round++) {
        struct instance x = random_instance(9, below(2), below(2)), y = x;
        double best = INFINITY;
        for (uint32_t who = 0; who < 1u << x.n; who++) {
            choose(&y, who);
            if (loads(&y) <= y.layer.spare_slots)
                best = fmin(best, finish(&y));
        }
        double got = solve(&x);
        if (fabs(got - best) > 1e-6 * best)
            fail_msg("round %d: %.12g, the best plan has %.12g", round, got, best);
        assert_true(loads(&x) <= x.layer.spare_slots);
        /* a check of the test's own search: no assigner's whole plan may be better than the best
         * plan that the search found */
        for (int kind = 0; x.layer.whole && kind <= ASSIGN_BALANCE; kind++) {
            sched_assign((enum sched_assigner)kind, &y.costs, &y.layer, y.experts, y.n);
            if (loads(&y) <= y.layer.spare_slots && finish(&y) < best * (1 - 1e-9))
                fail_msg("round %d: assigner %d has %.12g, the best plan %.12g", round, kind,
                         finish(&y), best);
            beaten += finish(&y) > got * (1 + 1e-6);
        }
    }
    assert_true(beaten > 0); /* else the comparison proves nothing */
}

/* "optimal never worse than greedy", nor than any other whole plan within the slots; "greedy never
 * worse than all-CPU or all-GPU". The ratio is DALI's "within 92 % of the optimal plan's time". */
static void test_order(void **state)
{
    enum { ROUNDS = 400, SMALL = 8 };
    double sum[2] = {0}, worst = 1;
    uint32_t n[2] = {0}, equal = 0;
    random_state = 2;
    for (int round = 0; round < ROUNDS; round++) {
        struct instance x = random_instance(MOST, true, true), y = x;
        double optimal = solve(&x);
        for (int kind = 0; kind <= ASSIGN_BALANCE; kind++) {
            sched_assign((enum sched_assigner)kind, &y.costs, &y.layer, y.experts, y.n);
            if (optimal > finish(&y) * (1 + 1e-9))
                fail_msg("round %d: %g, assigner %d has %g", round, optimal, kind, finish(&y));
        }
        sched_assign(ASSIGN_GREEDY, &y.costs, &y.layer, y.experts, y.n);
        double greedy = finish(&y), ratio = optimal / greedy;
        sum[x.n > SMALL] += ratio;
        n[x.n > SMALL]++;
        worst = fmin(worst, ratio);
        equal += ratio > 1 - 1e-9;
        choose(&y, 0);
        assert_true(greedy <= finish(&y) * (1 + 1e-9));
        choose(&y, UINT32_MAX);
        assert_true(greedy <= finish(&y) * (1 + 1e-9));
    }
    double few = sum[0] / n[0], many = sum[1] / n[1];
    print_message("optimal / greedy: mean %.3f to 8 experts, %.3f to %d, worst %.3f, equal in %u "
                  "of %d layers\n",
                  few, many, MOST, worst, equal, ROUNDS);
    assert_true(few > 0.8 && many > 0.8); /* its Table 4: 0.78 to 0.88 */
}

/* A large layer of equal experts is hard for a search tree. After a limit of nodes the search
 * returns the best plan so far, which is never worse than greedy's, and the same each time. */
static void test_bounded(void **state)
{
    struct optimal_options few = {.gap = 0, .max_nodes = 200};
    random_state = 3;
    for (int round = 0; round < 20; round++) {
        struct instance x = random_instance(MOST, true, false), y = x, z = x;
        bool proven, again;
        double first = optimal_assign(&x.costs, &x.layer, x.experts, x.n, &few, &proven);
        double second = optimal_assign(&z.costs, &z.layer, z.experts, z.n, &few, &again);
        assert_true(first == second && proven == again);
        assert_memory_equal(x.experts, z.experts, sizeof x.experts);
        sched_assign(ASSIGN_GREEDY, &y.costs, &y.layer, y.experts, y.n);
        assert_true(first <= finish(&y));
    }
}

static void test_no_cpu(void **state)
{
    struct instance x = random_instance(5, true, true);
    bool proven = false;
    x.costs.cpu_s = x.costs.cpu_contended_s = INFINITY;
    optimal_assign(&x.costs, &x.layer, x.experts, x.n, NULL, &proven);
    assert_true(proven);
    for (uint32_t i = 0; i < x.n; i++)
        assert_int_equal(x.experts[i].device + x.experts[i].load, x.layer.n_segments);
    assert_true(optimal_assign(&x.costs, &x.layer, x.experts, 0, NULL, &proven) ==
                x.layer.link_busy_s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_by_hand), cmocka_unit_test(test_every_plan),
        cmocka_unit_test(test_order),   cmocka_unit_test(test_bounded),
        cmocka_unit_test(test_no_cpu),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

#else

int main(void)
{
    fputs("built without GLPK (package libglpk-dev): nothing to test\n", stderr);
    return 77;
}

#endif
