/* lib/sched's cache policy value: cases worked out by hand from its rule. */
#include "cache_owner.h"

#include <math.h>

/* Half-life of one step: an activation counts 1, 1/2, 1/4 ... In three steps expert 0 has 1/4 +
 * 1/2, expert 1 has 1, expert 2 has 1/4 + 1, expert 3 nothing. In the long run, which is looked at
 * after the first step, 0 and 2 have one each and the mean 1/2: worth 1 / 24 / (1/2 + 1), two steps
 * later a quarter of it, 1/144. */
static void test_value(void **state)
{
    struct sched_cache_options options = {.value_half_life = 1};
    struct owner o = new_owner(CACHE_VALUE, shape(1, 4, 2, 6), &options);
    assert_true(sched_cache_keeps_loads(o.cache));
    uint32_t layer, expert;
    assert_false(sched_cache_wanted(o.cache, 6, NULL, NULL, &layer, &expert));
    o.step = 1;
    route(&o, 0, (const uint16_t[]){0, 2}, (const uint16_t[]){50, 1}, 2);
    o.step = 2;
    route(&o, 0, (const uint16_t[]){0}, (const uint16_t[]){1}, 1);
    o.step = 3;
    route(&o, 0, (const uint16_t[]){1, 2}, (const uint16_t[]){1, 1}, 2);
    static const uint32_t order[] = {2, 2, 1, 1, 0, 0};
    for (uint32_t i = 0; i < 6; i++) {
        assert_true(sched_cache_wanted(o.cache, 6 - i, NULL, NULL, &layer, &expert));
        assert_int_equal(expert, order[i]);
        report(&o, 0, expert, o.resident[0][expert] + 1);
    }
    assert_false(
        sched_cache_wanted(o.cache, 1, NULL, NULL, &layer, &expert)); /* 3 was never activated */
    expect_no_victim(&o, 0, 3, false);
    expect_victim(&o, 0, 3, true, 0, 0);
    report(&o, 0, 0, 0);
    assert_false(sched_cache_wanted(o.cache, 0, NULL, NULL, &layer, &expert)); /* no free slot */
    expect_no_victim(&o, 0, 0, false);                                         /* 3/4 for 1: no */
    expect_victim(&o, 0, 0, true, 0, 1);
    o.step = 4;
    route_one(&o, 0, 0, 1); /* now 3/8 + 1, against 1/2 and 5/8 */
    expect_victim(&o, 0, 0, false, 0, 1);
    o.blocked[0][1] = true;
    expect_victim(&o, 0, 0, false, 0, 2);
    o.blocked[0][2] = true;
    expect_no_victim(&o, 0, 0, true);
    o.blocked[0][1] = o.blocked[0][2] = false;
    /* A prediction of 3, never seen, is worth its share of what all steps before this one would
     * make, 1/2 + 1/4 + ... = 1, four times for it is needed next: against 1's 1/2. */
    assert_true(sched_cache_victim(o.cache, 0, 3, false, 0.13, is_blocked, &o, &layer, &expert));
    assert_int_equal(expert, 1);
    assert_false(sched_cache_victim(o.cache, 0, 3, false, 0.12, is_blocked, &o, &layer, &expert));
    sched_cache_free(o.cache);
}

/* Half-life of one step, three layers of two experts: one of each is activated in step 1, the other
 * one in step 2. After layer 1 of step 2, the expert of layer 2 that step 1 activated is the next
 * to be used, and counts 1/2 * 2 * 2, more than the 1 of what step 2 has activated. So the least
 * is layer 1's expert of step 1, then layer 0's, whose turn comes sooner by a third of a step; and
 * so for those of step 2. */
static void test_value_by_turn(void **state)
{
    struct sched_cache_options options = {.value_half_life = 1};
    struct owner o = new_owner(CACHE_VALUE, shape(3, 2, 1, 6), &options);
    for (uint32_t layer = 0; layer < 3; layer++)
        for (uint32_t e = 0; e < 2; e++)
            report(&o, layer, e, 1);
    for (o.step = 1; o.step <= 2; o.step++)
        for (uint32_t layer = 0; layer < (o.step == 1 ? 3 : 2); layer++)
            route_one(&o, layer, o.step == 1 ? 0 : 1, 1);
    o.step = 2;
    o.blocked[2][1] = true; /* never activated */
    expect_victim(&o, 1, 1, true, 1, 0);
    report(&o, 1, 0, 0);
    expect_victim(&o, 2, 1, true, 0, 0);
    report(&o, 0, 0, 0);
    expect_victim(&o, 2, 1, true, 1, 1);
    report(&o, 1, 1, 0);
    expect_victim(&o, 2, 1, true, 0, 1);
    report(&o, 0, 1, 0);
    expect_victim(&o, 2, 1, true, 2, 0);
    sched_cache_free(o.cache);
}

struct exchange {
    struct owner *owner;
    uint32_t away; /* this expert cannot be copied */
};

static bool exchange_blocked(void *arg, uint32_t layer, uint32_t expert)
{
    return is_blocked(((struct exchange *)arg)->owner, layer, expert);
}

static bool exchange_away(void *arg, uint32_t layer, uint32_t expert)
{
    return expert == ((struct exchange *)arg)->away;
}

/* The expert that a copy of copy_s brings; 99: none. */
static uint32_t exchanged(struct owner *o, double copy_s, uint32_t away)
{
    struct exchange x = {o, away};
    uint32_t layer, expert;
    return sched_cache_exchange(o->cache, copy_s, exchange_blocked, exchange_away, &x, &layer,
                                &expert)
               ? expert
               : 99;
}

/* Half-life of one step, a segment takes the CPU a second. Steps 1 to 3 activate 0 and 1, which are
 * resident, then 2, then 2 again: it counts 1/2 + 1, each of them 1/4, and the difference lasts for
 * a step. Less one deviation, sqrt((3/2 + 1/4) / 2) = 0.935, the copy saves 0.315 s, less 0.01 to
 * 0.02 for the long run, in which 0 and 1 have come once. */
static void test_value_exchange(void **state)
{
    struct sched_cache_options options = {.value_half_life = 1};
    struct owner o = new_owner(CACHE_VALUE, shape(1, 4, 1, 2), &options);
    report(&o, 0, 0, 1);
    report(&o, 0, 1, 1);
    o.step = 1;
    route(&o, 0, (const uint16_t[]){0, 1}, (const uint16_t[]){1, 1}, 2);
    o.step = 2;
    route_one(&o, 0, 2, 1);
    assert_int_equal(exchanged(&o, 0, 99), 99); /* costs are not known */
    sched_cache_costs(o.cache, &(struct sched_cache_costs){.load_s = 1, .cpu_token_s = 1});
    assert_int_equal(exchanged(&o, 0, 99), 99); /* twice as much is not enough */
    o.step = 3;
    route_one(&o, 0, 2, 1);
    assert_int_equal(exchanged(&o, 0.29, 99), 2);
    assert_int_equal(exchanged(&o, 0.32, 99), 99);
    assert_int_equal(exchanged(&o, 0, 2), 99); /* only 2 is worth it */
    o.blocked[0][0] = o.blocked[0][1] = true;
    assert_int_equal(exchanged(&o, 0, 99), 99); /* nothing may go */
    o.blocked[0][0] = o.blocked[0][1] = false;
    expect_victim(&o, 0, 2, false, 0, 0);
    o.step = 4;
    sched_cache_routed(o.cache, o.step, 0, true, &(uint16_t){2}, &(uint16_t){1}, 1);
    assert_int_equal(exchanged(&o, 0, 99), 99); /* a prompt */
    sched_cache_free(o.cache);

    o = new_owner(CACHE_LRU, shape(1, 4, 1, 2), NULL);
    report(&o, 0, 0, 1);
    for (o.step = 1; o.step < 9; o.step++)
        route_one(&o, 0, 2, 1);
    assert_int_equal(exchanged(&o, 0, 99), 99); /* the published caches load what they demand */
    sched_cache_free(o.cache);
}

/* A profile of 10, 30, 0 and 20, the mean 15. An expert that every step activates has 45.7 with the
 * first half-life, 32 steps; so 45.7 / 24 * 30 / 16 = 3.57, then 2.38, 1.19 and nothing. What is
 * activated once has 1; twice, 1.98 and 0.11 of the long run, more than the 1.15 of the profile's
 * last one then. */
static void test_value_profile(void **state)
{
    static const uint32_t profile[] = {10, 30, 0, 20};
    struct sched_cache_options options = {.profile = profile};
    struct owner o = new_owner(CACHE_VALUE, shape(1, 4, 1, 3), &options);
    static const uint32_t order[] = {1, 3, 0};
    uint32_t layer, expert;
    for (uint32_t i = 0; i < 3; i++) {
        assert_true(sched_cache_wanted(o.cache, 3 - i, NULL, NULL, &layer, &expert));
        assert_int_equal(expert, order[i]);
        report(&o, 0, expert, 1);
    }
    assert_false(sched_cache_wanted(o.cache, 1, NULL, NULL, &layer, &expert));
    o.step = 1;
    route_one(&o, 0, 2, 1);
    expect_no_victim(&o, 0, 2, false);
    expect_victim(&o, 0, 2, true, 0, 0);
    o.step = 2;
    route_one(&o, 0, 2, 1);
    expect_victim(&o, 0, 2, false, 0, 0);
    sched_cache_free(o.cache);
}

/* The layer is being computed, so its experts are in use. */
static void block_layer(struct owner *o, uint32_t layer, bool blocked)
{
    for (uint32_t e = 0; e < o->shape.n_experts; e++)
        o->blocked[layer][e] = blocked;
}

static void expect_passed(struct owner *o, uint32_t layer, uint32_t expert)
{
    uint32_t got_layer, got_expert;
    assert_true(sched_cache_passed(o->cache, is_blocked, NULL, o, &got_layer, &got_expert));
    assert_true(got_layer == layer && got_expert == expert);
}

static void expect_none_passed(struct owner *o)
{
    uint32_t layer, expert;
    assert_false(sched_cache_passed(o->cache, is_blocked, NULL, o, &layer, &expert));
}

/* Three layers of four experts, two of each resident: layer 0's activated twice, layer 1's once,
 * layer 2's once in all. A prompt activates three of layer 1: the victim is layer 0's expert 1; if
 * that may not be evicted, its expert 0; only if neither may, the least valuable of all that may,
 * layer 2's. If the step activates two, the victim is layer 2's at once. In the first layer the
 * step has passed no other layer. sched_cache_passed finds the same of layer 0, and nothing where
 * there is none, where the step activates two, or where layer 2 lacks nothing. */
static void test_value_of_a_step_that_uses_most(void **state)
{
    struct owner o = new_owner(CACHE_VALUE, shape(3, 4, 1, 6), NULL);
    o.step = 1;
    route(&o, 0, (const uint16_t[]){0, 1}, (const uint16_t[]){1, 1}, 2);
    route(&o, 1, (const uint16_t[]){0, 1}, (const uint16_t[]){1, 1}, 2);
    route_one(&o, 2, 0, 1);
    o.step = 2;
    route_one(&o, 0, 0, 1);
    for (uint32_t layer = 0; layer < 3; layer++)
        for (uint32_t e = 0; e < 2; e++)
            report(&o, layer, e, 1);
    o.prompt = true;
    route(&o, 1, (const uint16_t[]){0, 1, 2}, (const uint16_t[]){30, 30, 30}, 3);
    block_layer(&o, 1, true);
    expect_victim(&o, 1, 2, true, 0, 1);
    expect_passed(&o, 0, 1);
    o.blocked[0][1] = true;
    expect_victim(&o, 1, 2, true, 0, 0);
    expect_passed(&o, 0, 0);
    o.blocked[0][0] = true;
    expect_victim(&o, 1, 2, true, 2, 1); /* never activated */
    expect_none_passed(&o);
    block_layer(&o, 1, false); /* it is computed */
    expect_passed(&o, 1, 0);
    block_layer(&o, 1, true);
    o.blocked[0][0] = o.blocked[0][1] = false;
    report(&o, 2, 2, 1);
    report(&o, 2, 3, 1);
    expect_none_passed(&o);
    report(&o, 2, 2, 0);
    report(&o, 2, 3, 0);
    o.step = 3;
    route(&o, 1, (const uint16_t[]){2, 3}, (const uint16_t[]){1, 1}, 2);
    expect_victim(&o, 1, 2, true, 2, 1);
    expect_none_passed(&o);
    o.step = 4;
    block_layer(&o, 1, false);
    route(&o, 0, (const uint16_t[]){0, 2, 3}, (const uint16_t[]){30, 30, 30}, 3);
    block_layer(&o, 0, true);
    expect_victim(&o, 0, 2, true, 2, 1);
    expect_none_passed(&o);
    sched_cache_free(o.cache);
}

/* Three layers of four experts, each token activates two; two of each layer are resident. A step of
 * 64 tokens activates three of layer 1. If it is a prompt, the victim is of the passed layer 0,
 * though that is activated more often than layer 2. The next step of
 * a batch of answers comes back to layer 0: there the victim is the least valuable of all, layer
 * 2's. Where answers activate all four experts, it is layer 0's again. */
static void test_value_of_many_answers(void **state)
{
    static const uint16_t three[] = {0, 1, 2}, all[] = {0, 1, 2, 3};
    for (int prompt = 0; prompt <= 2; prompt++) {
        struct sched_cache_shape s = shape(3, 4, 1, 6);
        s.n_used = 2;
        struct owner o = new_owner(CACHE_VALUE, s, NULL);
        o.step = 1;
        route(&o, 0, three, (const uint16_t[]){1, 1}, 2);
        route(&o, 1, three, (const uint16_t[]){1, 1}, 2);
        route(&o, 2, three, (const uint16_t[]){1, 1}, 2);
        o.step = 2;
        route(&o, 0, three, (const uint16_t[]){1, 1}, 2);
        for (uint32_t layer = 0; layer < 3; layer++)
            for (uint32_t e = 0; e < 2; e++)
                report(&o, layer, e + (layer == 2), 1); /* of layer 2 expert 2, never activated */
        o.prompt = prompt == 1;
        route(&o, 1, prompt == 2 ? all : three, (const uint16_t[]){64, 63, 1, 1},
              prompt == 2 ? 4 : 3);
        block_layer(&o, 1, true);
        if (prompt)
            expect_victim(&o, 1, 2, true, 0, 0);
        else
            expect_victim(&o, 1, 2, true, 2, 2);
        sched_cache_free(o.cache);
    }
}

/* The cache wants the experts that such a step uses next, even without free slots: of layer 1 its
 * 3, activated twice, then 1, activated once, then 0, never. Only passed layers lose segments: in
 * layer 0 there is no such layer; in layer 1 the victim for layer 2's expert is layer 0's expert 1,
 * then its expert 0, and then none. A prediction must be worth its victim. The cache wants no
 * expert of a predicted layer, and none after the last layer. */
static void test_value_of_what_comes_next(void **state)
{
    static const uint16_t three[] = {0, 1, 2}, ones[] = {1, 1, 1}, many[] = {30, 30, 30};
    struct owner o = new_owner(CACHE_VALUE, shape(3, 4, 1, 4), NULL);
    uint32_t layer, expert;
    for (o.step = 1; o.step <= 2; o.step++) {
        route(&o, 0, three, ones, o.step == 1 ? 2 : 1);
        route(&o, 1, (const uint16_t[]){3, 1}, ones, o.step == 1 ? 2 : 1);
        route_one(&o, 2, 0, 1);
    }
    report(&o, 0, 0, 1);
    report(&o, 0, 1, 1);
    report(&o, 2, 0, 1);
    o.prompt = true;
    route(&o, 0, three, many, 3);
    block_layer(&o, 0, true);
    static const uint32_t order[] = {3, 1, 0};
    for (uint32_t i = 0; i < 3; i++) {
        assert_true(sched_cache_wanted(o.cache, 0, NULL, NULL, &layer, &expert));
        assert_true(layer == 1 && expert == order[i]);
        expect_no_victim(&o, 1, expert, false);
        o.blocked[1][expert] = true;
        report(&o, 1, expert, 1);
    }
    report(&o, 1, 0, 0);
    sched_cache_predicted(o.cache, o.step, 1, three, (const float[]){0.5f}, 1);
    assert_false(sched_cache_wanted(o.cache, 0, NULL, NULL, &layer, &expert));
    route(&o, 1, three, many, 3);
    block_layer(&o, 0, false);
    block_layer(&o, 1, true);
    assert_true(sched_cache_wanted(o.cache, 0, NULL, NULL, &layer, &expert));
    assert_true(layer == 2 && expert == 1);
    assert_false(sched_cache_victim(o.cache, 2, 1, false, 0.01, is_blocked, &o, &layer, &expert));
    expect_victim(&o, 2, 1, false, 0, 1);
    report(&o, 0, 1, 0);
    expect_victim(&o, 2, 1, false, 0, 0);
    report(&o, 0, 0, 0);
    expect_no_victim(&o, 2, 1, false);
    route(&o, 2, three, many, 3);
    assert_false(sched_cache_wanted(o.cache, 0, NULL, NULL, &layer, &expert));
    sched_cache_free(o.cache);
}

/* Three layers of eight experts, five of each resident. A prompt activates layer 1's five and one
 * of its three absent ones. The cache wants layer 2's absent ones if those of layer 1 had six
 * tokens or more, also where that one has come since layer 0 was routed. */
static void test_value_of_absent_ones(void **state)
{
    static const uint16_t experts[] = {0, 1, 2, 3, 4, 6};
    for (uint16_t tokens = 4; tokens <= 7; tokens++)
        for (uint32_t come = 0; come <= 1; come++) {
            struct owner o = new_owner(CACHE_VALUE, shape(3, 8, 1, 16), NULL);
            for (uint32_t layer = 0; layer < 3; layer++)
                for (uint32_t e = 0; e < 5; e++)
                    report(&o, layer, e, 1);
            o.step = 1;
            o.prompt = true;
            route_one(&o, 0, 0, 1);
            report(&o, 1, 6, come);
            route(&o, 1, experts, (const uint16_t[]){30, 30, 30, 30, 30, tokens}, 6);
            uint32_t layer, expert;
            bool wanted = sched_cache_wanted(o.cache, 0, NULL, NULL, &layer, &expert);
            assert_int_equal(wanted, tokens >= 6);
            assert_true(!wanted || layer == 2);
            sched_cache_free(o.cache);
        }
}

/* Another worker's answer between two layers of a prompt, of which the second lacks nothing: what
 * the prompt used of the first layer's absent experts still counts. */
static void test_value_of_absent_ones_of_two(void **state)
{
    static const uint16_t experts[] = {0, 1, 2, 3, 4, 5}, many[] = {30, 30, 30, 30, 30, 30};
    struct owner o = new_owner(CACHE_VALUE, shape(3, 8, 1, 16), NULL);
    for (uint32_t i = 0; i < 16; i++)
        report(&o, i / 8 ? 1 : 2, i % 8, 1);
    report(&o, 2, 7, 0);
    o.step = 1;
    o.prompt = true;
    route(&o, 0, experts, many, 6);
    o.step = 2;
    o.prompt = false;
    route_one(&o, 0, 6, 1);
    o.step = 3;
    o.prompt = true;
    route(&o, 1, experts, many, 6);
    uint32_t layer, expert;
    assert_true(sched_cache_wanted(o.cache, 0, NULL, NULL, &layer, &expert));
    assert_true(layer == 2 && expert == 7);
    sched_cache_free(o.cache);
}

static bool is_of_layer_2(void *arg, uint32_t layer, uint32_t expert)
{
    return layer == 2;
}

/* The same, with no token for the absent ones. Layer 2's absent expert 5 was activated six times:
 * a segment of layer 0, passed, goes for it where its own were activated once, not where four
 * times, and not where expert 5 cannot be copied. */
static void test_value_evicts_ahead(void **state)
{
    static const uint16_t experts[] = {0, 1, 2, 3, 4, 5}, ones[] = {1, 1, 1, 1, 1, 1};
    uint32_t layer, expert;
    for (uint32_t times = 1; times <= 4; times += 3) {
        struct sched_cache_options options = {.value_half_life = 16};
        struct owner o = new_owner(CACHE_VALUE, shape(3, 8, 1, 15), &options);
        for (o.step = 1; o.step <= 6; o.step++) {
            route(&o, 0, experts, ones, o.step <= times ? 5 : 0);
            route(&o, 1, experts, ones, 5);
            route(&o, 2, experts, ones, 6);
        }
        for (uint32_t i = 0; i < 15; i++)
            report(&o, i / 5, i % 5, 1);
        o.prompt = true;
        route(&o, 1, experts, ones, 5);
        block_layer(&o, 1, true);
        if (times == 1)
            expect_passed(&o, 0, 0);
        else
            expect_none_passed(&o);
        assert_false(sched_cache_passed(o.cache, is_blocked, is_of_layer_2, &o, &layer, &expert));
        sched_cache_free(o.cache);
    }
}

/* Prompts do not choose the half-life, not those either that activate few experts. Here each expert
 * is used three steps in a row and not again, which short half-lives find best. Then 0 is activated
 * 20 times and 1 twice: with the first half-life, 32, it is worth more. Answers do choose. */
static void test_value_of_prompts(void **state)
{
    (void)state;
    for (int prompt = 0; prompt <= 1; prompt++) {
        struct owner o = new_owner(CACHE_VALUE, shape(1, 24, 1, 2), NULL);
        o.prompt = prompt;
        for (o.step = 1; o.step <= 300; o.step++) {
            uint16_t expert = (uint16_t)(2 + o.step / 3 % 22);
            route_one(&o, 0, expert, 1);
            report(&o, 0, expert, 1);
            if (o.step % 3 == 2)
                report(&o, 0, expert, 0);
        }
        report(&o, 0, 2 + 300 / 3 % 22, 0);
        report(&o, 0, 0, 1);
        report(&o, 0, 1, 1);
        for (int i = 0; i < 22; i++, o.step++)
            route_one(&o, 0, i < 20 ? 0 : 1, 1);
        expect_victim(&o, 0, 9, true, 0, prompt ? 1 : 0);
        sched_cache_free(o.cache);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_value),
        cmocka_unit_test(test_value_by_turn),
        cmocka_unit_test(test_value_exchange),
        cmocka_unit_test(test_value_profile),
        cmocka_unit_test(test_value_of_a_step_that_uses_most),
        cmocka_unit_test(test_value_of_many_answers),
        cmocka_unit_test(test_value_of_absent_ones),
        cmocka_unit_test(test_value_of_absent_ones_of_two),
        cmocka_unit_test(test_value_of_prompts),
        cmocka_unit_test(test_value_evicts_ahead),
        cmocka_unit_test(test_value_of_what_comes_next),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
