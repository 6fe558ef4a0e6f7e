/* lib/sched's caches of KTransformers, MoE-Lightning and FlashMoE: cases worked out by hand from
 * the rule of each. */
#include "cache_owner.h"

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
    assert_true(sched_cache_passed(o.cache, is_blocked, &o, &layer, &expert));
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
 * knows that 0 will be used soon, and one of the others goes. */
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
        sched_cache_routed(o.cache, o.step, 0, (const uint16_t[]){3}, (const uint16_t[]){1}, 1);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_prompt),       cmocka_unit_test(test_prompt_profile),
        cmocka_unit_test(test_streamed),     cmocka_unit_test(test_learned),
        cmocka_unit_test(test_learned_sums),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
