/* lib/sched's caches of KTransformers, MoE-Lightning, FlashMoE, AdapMoE and Fate: cases worked out
 * by hand from the rule of each. */
#include "cache_owner.h"

#include <math.h>

/* Two layers of four experts, two of each on the device. Nothing is known at first: the first ones
 * stay. A token activates two experts, so 512 tokens are 1,024 activations; with 1,023 the step is
 * no long prompt. */
static void test_prompt(void **state)
{
    struct owner o = new_owner(CACHE_PROMPT, shape(2, 4, 1, 4), NULL);
    fill(&o);
    for (uint32_t l = 0; l < 2; l++)
        for (uint32_t e = 0; e < 4; e++)
            assert_int_equal(o.resident[l][e], e < 2);
    o.step = 1;
    route(&o, 0, (const uint16_t[]){1, 2, 3}, (const uint16_t[]){11, 500, 512}, 3);
    route_one(&o, 1, 0, 1); /* layer 0 is over */
    expect_no_victim(&o, 0, 2, false);
    o.step = 2;
    route(&o, 0, (const uint16_t[]){1, 2, 3}, (const uint16_t[]){12, 500, 512}, 3);
    route_one(&o, 1, 0, 1);
    expect_victim(&o, 0, 2, false, 0, 0); /* 2 and 3 stay; 1 was used after 0 */
    report(&o, 0, 0, 0);
    expect_victim(&o, 0, 2, false, 0, 1);
    report(&o, 0, 1, 0);
    expect_no_victim(&o, 0, 2, false);
    fill(&o);
    assert_true(o.resident[0][2] && o.resident[0][3] && o.resident[1][0] && o.resident[1][1]);
    o.step = 3; /* of equal counts the lower number stays: 0 and 1 */
    route(&o, 0, (const uint16_t[]){0, 1, 3}, (const uint16_t[]){600, 300, 300}, 3);
    route_one(&o, 1, 3, 1);
    expect_victim(&o, 0, 0, false, 0, 2);
    sched_cache_free(o.cache);
}

/* A profile takes the place of the first prompt. */
static void test_prompt_profile(void **state)
{
    const uint32_t profile[] = {0, 5, 9, 5};
    const struct sched_cache_options options = {.budget = BUDGET_UNIFORM, .profile = profile};
    struct owner o = new_owner(CACHE_PROMPT, shape(1, 4, 1, 2), &options);
    fill(&o);
    assert_true(o.resident[0][1] && o.resident[0][2]);
    sched_cache_free(o.cache);
}

/* Four layers of two experts, six slots: (6 - 2 * 2) / (4 - 2) = 1 of each layer stays, expert 0;
 * the other two slots are the rests of two layers. */
static void test_streamed(void **state)
{
    struct owner o = new_owner(CACHE_STREAMED, shape(4, 2, 1, 6), NULL);
    uint32_t layer, expert;
    fill(&o); /* the first layer only: its turn is next */
    assert_true(o.total == 2 && o.resident[0][0] && o.resident[0][1]);
    o.step = 1;
    for (uint32_t l = 0; l < 2; l++) {
        route_one(&o, l, 0, 1);
        fill(&o);
        assert_true(o.resident[l + 1][0] && o.resident[l + 1][1]);
    }
    assert_true(o.total == 6);
    expect_victim(&o, 2, 0, false, 0, 1); /* layer 1 is under way, and 2 the next */
    route_one(&o, 2, 0, 1);
    assert_true(sched_cache_wanted(o.cache, 0, NULL, NULL, &layer, &expert));
    assert_true(layer == 3 && expert == 0);
    expect_victim(&o, 3, 0, false, 1, 1); /* the rest of the layer just before goes first */
    assert_true(sched_cache_passed(o.cache, is_blocked, NULL, &o, &layer, &expert));
    assert_true(layer == 1 && expert == 1);
    report(&o, 1, 1, 0);
    expect_victim(&o, 3, 0, false, 0, 1);
    report(&o, 0, 1, 0);
    expect_no_victim(&o, 3, 0, false); /* 2.1 is being computed, the others stay */
    report(&o, 3, 0, 1);
    report(&o, 3, 1, 1);
    expect_victim(&o, 2, 1, true, 3, 1); /* a load goes before what is streamed */
    report(&o, 3, 1, 0);
    expect_victim(&o, 2, 1, true, 2, 0); /* nothing is left but what stays */
    report(&o, 3, 1, 1);
    route_one(&o, 3, 0, 1); /* layer 0 is the next */
    assert_true(sched_cache_wanted(o.cache, 0, NULL, NULL, &layer, &expert));
    assert_true(layer == 0 && expert == 1);
    expect_victim(&o, 0, 1, false, 2, 1);
    sched_cache_free(o.cache);
    o = new_owner(CACHE_STREAMED, shape(4, 2, 1, 3), NULL); /* two layers do not fit: none stays */
    fill(&o);
    o.step = 1;
    route_one(&o, 0, 0, 1);
    report(&o, 1, 0, 1);
    assert_true(o.total == 3);
    expect_no_victim(&o, 1, 1, false);
    sched_cache_free(o.cache);
}

/* Expert 0 is used in every fifth step, each of the 15 others in every 19th or so, so that its next
 * use is as good as never (12 steps, three quarters of the experts). Experts 0, 14 and 15 are
 * resident and were used 4, 1 and 2 steps ago. The regression begins with the age: 0 goes. Later it
 * knows that 0 will be used soon, and another one goes. */
static void test_learned(void **state)
{
    for (uint32_t rounds = 0; rounds <= 40; rounds += 40) {
        struct owner o = new_owner(CACHE_LEARNED, shape(1, 16, 1, 3), NULL);
        uint16_t other = 0;
        uint32_t layer, expert;
        for (uint32_t i = 0; i < rounds * 15; i++) {
            o.step++;
            route_one(&o, 0, i % 5 == 0 ? 0 : (uint16_t)(1 + other++ % 15), 1);
        }
        static const uint16_t last[] = {0, 13, 12, 15, 14};
        for (uint32_t i = 0; i < 5; i++) {
            o.step++;
            route_one(&o, 0, last[i], 1);
        }
        o.step++;
        report(&o, 0, 0, 1);
        report(&o, 0, 14, 1);
        report(&o, 0, 15, 1);
        sched_cache_routed(o.cache, o.step, 0, false, (const uint16_t[]){3}, (const uint16_t[]){1},
                           1);
        assert_true(ask_victim(&o, 0, 3, true, &layer, &expert));
        assert_int_equal(expert == 0, rounds == 0);
        sched_cache_free(o.cache);
    }
}

/* The sums of a class. Four experts, so distances up to three steps. 0 is used in step 1, 1 in
 * those that follow. The sample after step 1 notes 0 at age 0 with all of the most uses, and the
 * others as never used. It is complete after step 4: 1 was used one step later, the others not: 3.
 *     age 0, frequency 1:    (8 * 1 + 3) / 9 = 1.22
 *     never, frequency 0:    (8 * 3 + 1 + 3 + 3) / 11 = 2.82
 * Ages of 2 and more are still 3, and so farther than never. Without a sample both are 3, and the
 * least recently used goes. */
static void test_learned_sums(void **state)
{
    for (uint32_t sampled = 0; sampled < 2; sampled++) {
        struct owner o = new_owner(CACHE_LEARNED, shape(1, 4, 1, 2), NULL);
        report(&o, 0, 2, 1); /* never used; it came first */
        report(&o, 0, 0, 1);
        o.step = 1;
        route_one(&o, 0, 0, 1);
        for (o.step = 2; o.step <= (sampled ? 3 : 2); o.step++)
            route_one(&o, 0, 1, 1);
        for (uint32_t i = 0; i < 2; i++, o.step++)
            route_one(&o, 0, 1, 1);
        /* 0 was used three steps ago, or, with the sample complete, four */
        expect_victim(&o, 0, 3, true, 0, sampled ? 0 : 2);
        sched_cache_free(o.cache);
    }
}

/* AdapMoE's published function for 8 experts of which a token activates two: the loads on demand of
 * a layer with t experts, if the prefetch of one missing expert is right with probability b. */
static double expected_loads(double b, uint32_t t)
{
    double both = (8.0 - t) * (7.0 - t) / 56, one = 2.0 * (8 - t) * t / 56;
    return 2 * both * (1 - b) + both * b + one * (1 - b);
}

static double least_loads(const double b[3], uint32_t capacity)
{
    double least = INFINITY;
    for (uint32_t x = 0; x <= 8 && x <= capacity; x++)
        for (uint32_t y = 0; y <= 8 && x + y <= capacity; y++) {
            uint32_t z = capacity - x - y < 8 ? capacity - x - y : 8;
            least = fmin(least, expected_loads(b[0], x) + expected_loads(b[1], y) +
                                    expected_loads(b[2], z));
        }
    return least;
}

/* Three layers and ten experts: 4, 3 and 3 at first. Of the predictions of 64 steps all are right
 * in layer 0, none in layer 1, every second in layer 2, so b = 65 / 66, 1 / 66, 33 / 66. One more
 * expert saves 1/4 - b t / 28 loads: the first one 1/4 everywhere, each further one of layer 1 at
 * least 0.246, of layer 2 0.232, of layer 0 0.215. So layer 1 gets all of its 8. */
static void test_allocated(void **state)
{
    const double b[] = {65.0 / 66, 1.0 / 66, 33.0 / 66};
    const uint32_t first[] = {4, 3, 3}, then[] = {1, 8, 1};
    struct owner o = new_owner(CACHE_ALLOCATED, shape(3, 8, 1, 10), NULL);
    uint64_t segments;
    uint32_t n;
    double loads = 0;
    assert_int_equal(sched_cache_reads(CACHE_ALLOCATED), CACHE_READS_PREDICTIONS);
    for (uint32_t l = 0; l < 3; l++)
        assert_true(sched_cache_configuration(o.cache, l, &segments, &n) && n == first[l]);
    for (o.step = 1; o.step <= 64; o.step++)
        for (uint32_t l = 0; l < 3; l++) {
            uint16_t right = l == 0 || (l == 2 && o.step % 2) ? 5 : 6;
            sched_cache_predicted(o.cache, o.step, l, (const uint16_t[]){right, 5},
                                  (const float[]){0.9f, 0.8f}, 2);
            route(&o, l, (const uint16_t[]){1, 5}, (const uint16_t[]){1, 1}, 2);
        }
    route_one(&o, 0, 1, 1); /* step 64 is over */
    for (uint32_t l = 0; l < 3; l++) {
        assert_true(sched_cache_configuration(o.cache, l, &segments, &n));
        assert_true(n == then[l] && segments == n);
        loads += expected_loads(b[l], n);
    }
    assert_true(fabs(loads - least_loads(b, 10)) < 1e-12);
    for (uint32_t e = 0; e < 8; e++) /* layer 2 is 2 above its share, layer 0 has it */
        report(&o, e < 5 ? 1 : e < 6 ? 0 : 2, e, 1);
    report(&o, 2, 0, 1);
    expect_victim(&o, 0, 1, true, 0, 5);
    expect_victim(&o, 1, 7, true, 2, 6);
    sched_cache_free(o.cache);
}

/* The shares reach the program's optimum for any accuracies. memd counts steps since its start, the
 * worker, which predicts, since its own. */
static void test_allocated_is_optimal(void **state)
{
    for (uint32_t i = 0; i < 200; i++) {
        uint32_t capacity = 1 + i % 24;
        struct owner o = new_owner(CACHE_ALLOCATED, shape(3, 8, 1, capacity), NULL);
        double b[3], loads = 0;
        uint64_t segments;
        uint32_t n, right[3] = {0};
        uint64_t before = i % 3 * 1000;
        for (o.step = before + 1; o.step <= before + 64; o.step++)
            for (uint32_t l = 0; l < 3; l++) {
                bool hits = (o.step * (7 + i) + l * 13) % 64 < (i * 29 + l * 17) % 65;
                right[l] += hits;
                sched_cache_predicted(o.cache, o.step - before, l, (const uint16_t[]){hits ? 1 : 2},
                                      (const float[]){0.5f}, 1);
                route_one(&o, l, 1, 1);
            }
        route_one(&o, 0, 1, 1);
        for (uint32_t l = 0; l < 3; l++) {
            b[l] = (right[l] + 1) / 66.0;
            assert_true(sched_cache_configuration(o.cache, l, &segments, &n));
            loads += expected_loads(b[l], n);
        }
        assert_true(fabs(loads - least_loads(b, capacity)) < 1e-12);
        sched_cache_free(o.cache);
    }
}

struct use_case {
    uint16_t expert;
    int evicted; /* -1: none, into a free slot or because it is there */
};

/* Two layers: a sixth is one, which stays whole. Layer 1 has the other three slots, and ARC: the
 * case of Megiddo and Modha's figure 4 in test_arc (test_sched_cache_general.c). */
static void test_shallow(void **state)
{
    static const struct use_case cases[] = {{0, -1}, {0, -1}, {1, -1}, {2, -1}, {3, 1},
                                            {1, 2},  {4, 0},  {0, 3},  {5, 4},  {2, 5}};
    struct owner o = new_owner(CACHE_SHALLOW, shape(2, 6, 1, 9), NULL);
    uint32_t layer, expert;
    fill(&o);
    assert_int_equal(o.layer_resident[0], 6);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        o.step++;
        route_one(&o, 0, 0, 1);
        route_one(&o, 1, cases[i].expert, 1);
        if (o.resident[1][cases[i].expert])
            continue;
        bool full = o.total == 9;
        assert_int_equal(full, cases[i].evicted >= 0);
        if (full) {
            expect_victim(&o, 1, cases[i].expert, true, 1, (uint32_t)cases[i].evicted);
            report(&o, 1, (uint32_t)cases[i].evicted, 0);
        }
        report(&o, 1, cases[i].expert, 1);
    }
    for (uint32_t e = 0; e < 6; e++)
        o.blocked[1][e] = true;
    expect_no_victim(&o, 1, 3, false); /* a prefetch takes nothing from layer 0, a load does */
    assert_true(ask_victim(&o, 1, 3, true, &layer, &expert) && layer == 0);
    sched_cache_free(o.cache);
    o = new_owner(CACHE_SHALLOW, shape(2, 6, 1, 4), NULL); /* not even one layer fits */
    fill(&o);
    assert_int_equal(o.total, 0);
    report(&o, 1, 0, 1);
    for (uint32_t e = 0; e < 3; e++)
        report(&o, 0, e, 1);
    expect_victim(&o, 0, 3, false, 1, 0); /* all slots are layer 0's */
    sched_cache_free(o.cache);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_prompt),
        cmocka_unit_test(test_prompt_profile),
        cmocka_unit_test(test_streamed),
        cmocka_unit_test(test_learned),
        cmocka_unit_test(test_learned_sums),
        cmocka_unit_test(test_allocated),
        cmocka_unit_test(test_allocated_is_optimal),
        cmocka_unit_test(test_shallow),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
