/* lib/sched's caches from outside of mixture-of-experts: ARC, LRFU, W-TinyLFU; and SpecMD's
 * least-stale. Cases worked out by hand from the rule of each. */
#include "cache_owner.h"

enum { HIT = -1, LOADED = -2 };

/* Activates an expert of layer 0 in a step of its own, and loads it if it is absent. Returns the
 * expert that was evicted, HIT, or LOADED into a free slot. */
static int use(struct owner *o, uint16_t expert)
{
    uint32_t layer = 0, victim = 0;
    o->step++;
    route_one(o, 0, expert, 1);
    if (o->resident[0][expert])
        return HIT;
    bool full = o->total == o->shape.capacity;
    if (full) {
        assert_true(ask_victim(o, 0, expert, true, &layer, &victim));
        report(o, layer, victim, 0);
    }
    report(o, 0, expert, 1);
    return full ? (int)victim : LOADED;
}

struct use_case {
    uint16_t expert;
    int result;
};

static void expect_uses(struct owner *o, const struct use_case *cases, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        int got = use(o, cases[i].expert);
        if (got != cases[i].result)
            fail_msg("use %zu, of %u: %d, not %d", i, cases[i].expert, got, cases[i].result);
    }
}

/* Megiddo and Modha, figure 4, with c = 3. Lists from the most recent one on. */
static void test_arc(void **state)
{
    static const struct use_case cases[] = {
        {0, LOADED}, {0, HIT}, {1, LOADED}, {2, LOADED}, /* T1 = 2 1, T2 = 0, p = 0 */
        {3, 1},                                          /* |T1| = 2 > p: T1 = 3 2, B1 = 1 */
        {1, 2}, /* in B1: p = 1; T1 = 3, T2 = 1 0, B1 = 2. LRU: 0 */
        {4, 0}, /* |T1| = 1 = p: T1 = 4 3, T2 = 1, B1 = 2, B2 = 0 */
        {0, 3}, /* in B2: p = 0; T1 = 4, T2 = 0 1, B1 = 3 2 */
        {5, 4}, /* T1 = 5, B1 = 4 3 2, one more than c: 2 is forgotten */
        {2, 5}, /* so p stays 0; with p = 1 the oldest of T2 would go, 1 */
    };
    struct owner o = new_owner(CACHE_ARC, shape(1, 6, 1, 3), NULL);
    expect_uses(&o, cases, sizeof cases / sizeof *cases);
    sched_cache_free(o.cache);
}

/* The slot is for an expert of B2, and T1 has p experts: the oldest of T1 goes. c = 3. */
static void test_arc_of_b2(void **state)
{
    static const struct use_case cases[] = {
        {0, LOADED}, {1, LOADED}, {1, HIT}, {2, LOADED}, {2, HIT}, /* T1 = 0, T2 = 2 1 */
        {3, 0},                                                    /* T1 = 3, B1 = 0 */
        {0, 1}, /* p = 1 = |T1|: T1 = 3, T2 = 0 2, B2 = 1 */
        {4, 2}, /* T1 = 4 3, T2 = 0, B2 = 2 1 */
        {5, 3}, /* T1 = 5 4, B1 = 3 */
        {3, 0}, /* p = 1 + |B2| / |B1| = 3: T1 = 5 4, T2 = 3, B2 = 0 2 1 */
        {1, 4}, /* p = 2 = |T1|, for an expert of B2 */
    };
    struct owner o = new_owner(CACHE_ARC, shape(1, 6, 1, 3), NULL);
    expect_uses(&o, cases, sizeof cases / sizeof *cases);
    sched_cache_free(o.cache);
}

/* A prefetched expert was not used before its first activation: it stays in T1. And an activation
 * of a remembered expert adapts p although the CPU computes the expert. c = 2. */
static void test_arc_without_loads(void **state)
{
    struct owner o = new_owner(CACHE_ARC, shape(1, 6, 1, 2), NULL);
    o.step = 1;
    route_one(&o, 0, 5, 1);
    report(&o, 0, 0, 1); /* prefetched */
    assert_int_equal(use(&o, 0), HIT);
    assert_int_equal(use(&o, 1), LOADED);
    assert_int_equal(use(&o, 1), HIT); /* T1 = 0, T2 = 1 */
    assert_int_equal(use(&o, 2), 0);   /* p = 0: T1 = 2, B1 = 0 */
    o.step++;
    route_one(&o, 0, 0, 1);          /* computed by the CPU: p = 1 = |T1| */
    assert_int_equal(use(&o, 3), 1); /* the oldest of T2; with p = 0 it would be 2 */
    sched_cache_free(o.cache);
}

/* Einziger et al., figure 5: four experts fit, one of them in the window, two protected. Lists from
 * the most recent one on; in brackets the frequencies that decide. */
static void test_tinylfu(void **state)
{
    static const struct use_case cases[] = {
        {0, LOADED}, {1, LOADED}, {2, LOADED}, {3, LOADED}, /* window 3, probation 2 1 0 */
        {0, HIT},                                           /* probation 2 1, protected 0 */
        {4, 3},                                             /* 3 (1) against 1 (1): window 4 */
        {3, 4},                                             /* 4 (1) against 1 (1): window 3 */
        {5, 1},   /* 3 (2) against 1 (1): window 5, probation 3 2 */
        {2, HIT}, /* protected 2 0 */
        {3, HIT}, /* protected 3 2, probation 0 */
        {6, 5},   /* 5 (1) against 0 (2): window 6 */
    };
    struct owner o = new_owner(CACHE_TINYLFU, shape(1, 7, 1, 4), NULL);
    expect_uses(&o, cases, sizeof cases / sizeof *cases);
    o.blocked[0][6] = true;
    expect_victim(&o, 0, 5, true, 0, 0); /* the window's is blocked */
    o.blocked[0][0] = true;
    expect_victim(&o, 0, 5, true, 0, 2); /* and the one on probation: the oldest protected one */
    sched_cache_free(o.cache);
}

/* Two fit, so 20 activations halve the frequencies; the 21st would be the 11th of the next 20. */
static void test_tinylfu_forgets(void **state)
{
    struct owner o = new_owner(CACHE_TINYLFU, shape(1, 7, 1, 2), NULL);
    for (int i = 0; i < 15; i++)
        use(&o, 0);
    assert_int_equal(use(&o, 1), LOADED);
    assert_int_equal(use(&o, 2), 1); /* 1 (1) against 0 (15) */
    use(&o, 2);
    use(&o, 2);
    assert_int_equal(use(&o, 3), 2); /* the 20th: 2 (1) against 0 (7) */
    assert_int_equal(use(&o, 4), 3);
    for (int i = 0; i < 8; i++)
        use(&o, 4);
    assert_int_equal(use(&o, 5), 0); /* halved again: 4 (4) against 0 (3) */
    sched_cache_free(o.cache);
}

/* Others: activations of an expert that is not resident. */
static void pass_time(struct owner *o, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        o->step++;
        route_one(o, 0, 3, 1);
    }
}

/* lambda = 1 / 1000. 0 four times, x others, 1 two times:
 *     x = 500     C(0) = 4 2^-0.5 = 2.8 > 2        x = 1500     4 2^-1.5 = 1.4 < 2
 * The least frequent is 1 in both, the least recent 0. Then the same after so many activations that
 * the numbers were scaled down. */
static void test_lrfu(void **state)
{
    for (uint32_t late = 0; late < 2; late++)
        for (uint32_t x = 500; x <= 1500; x += 1000) {
            struct owner o = new_owner(CACHE_LRFU, shape(1, 5, 1, 2), NULL);
            pass_time(&o, late ? 499000 : 0);
            report(&o, 0, 0, 1);
            report(&o, 0, 1, 1);
            for (int i = 0; i < 4; i++)
                use(&o, 0);
            pass_time(&o, x);
            use(&o, 1);
            use(&o, 1);
            pass_time(&o, late ? 2000 : 0);
            expect_victim(&o, 0, 4, true, 0, x == 500 ? 1 : 0);
            sched_cache_free(o.cache);
        }
}

/* Three layers, two resident experts each, the last layer's loaded first. In the second pass 0 of
 * layers 0 and 1 were used. */
static void test_least_stale(void **state)
{
    struct owner o = new_owner(CACHE_LEAST_STALE, shape(3, 4, 1, 6), NULL);
    assert_int_equal(sched_cache_reads(CACHE_LEAST_STALE), CACHE_READS_PREDICTIONS);
    o.step = 1;
    for (uint32_t l = 0; l < 3; l++)
        route_one(&o, l, 3, 1);
    for (uint32_t l = 3; l-- > 0;) {
        report(&o, l, 0, 1);
        report(&o, l, 1, 1);
    }
    o.step = 2;
    route_one(&o, 0, 0, 1);
    route_one(&o, 1, 0, 1);
    expect_victim(&o, 1, 2, true, 0, 1); /* the least recently used is 2.0 */
    o.blocked[0][1] = true;
    expect_victim(&o, 1, 2, true, 1, 1);
    o.blocked[1][1] = true;
    expect_victim(&o, 1, 2, true, 2, 0);
    sched_cache_predicted(o.cache, 2, 2, (const uint16_t[]){0}, (const float[]){0.9f}, 1);
    expect_victim(&o, 1, 2, true, 2, 1);
    o.blocked[2][1] = true;
    expect_victim(&o, 1, 2, true, 2, 0); /* all others are current: the least recently used */
    o.blocked[2][0] = true;
    expect_victim(&o, 1, 2, true, 0, 0);
    memset(o.blocked, 0, sizeof o.blocked);
    o.step = 3;
    route_one(&o, 0, 1, 1);
    expect_victim(&o, 0, 2, true, 0, 0); /* used in the pass before: stale */
    report(&o, 0, 0, 0);
    report(&o, 0, 2, 1); /* loaded in this pass */
    expect_victim(&o, 1, 2, true, 1, 1);
    sched_cache_free(o.cache);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_arc),
        cmocka_unit_test(test_arc_of_b2),
        cmocka_unit_test(test_arc_without_loads),
        cmocka_unit_test(test_tinylfu),
        cmocka_unit_test(test_tinylfu_forgets),
        cmocka_unit_test(test_lrfu),
        cmocka_unit_test(test_least_stale),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
