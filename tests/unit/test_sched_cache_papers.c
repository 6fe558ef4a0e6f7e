/* lib/sched's caches of ProMoE, MoEpic, HybriMoE and FineMoE, and those for replay only: cases
 * worked out by hand from the rule of each. */
#include "cache_owner.h"

/* ProMoE: "Both prefetching and inference trigger a cache access. When adding prefetch tasks,
 * ProMoE leverages LRU by accessing experts that are already cached, thereby delaying their
 * eviction." Two layers with two slots each. */
static void test_lru_prefetch(void **state)
{
    static const enum sched_cache_kind kinds[] = {CACHE_LRU, CACHE_LRU_PREFETCH};
    for (int i = 0; i < 2; i++) {
        struct owner o = new_owner(kinds[i], shape(2, 4, 1, 4), &uniform);
        bool counts = kinds[i] == CACHE_LRU_PREFETCH;
        assert_int_equal(sched_cache_reads(kinds[i]), counts ? CACHE_READS_PREDICTIONS : 0);
        report(&o, 0, 0, 1);
        report(&o, 0, 1, 1);
        report(&o, 1, 0, 1);
        report(&o, 1, 1, 1);
        expect_victim(&o, 0, 3, true, 0, 0);
        sched_cache_predicted(o.cache, 1, 0, (const uint16_t[]){0, 2}, (const float[]){0.9f, 0.1f},
                              2);
        expect_victim(&o, 0, 3, true, 0, counts ? 1 : 0);
        expect_victim(&o, 1, 3, true, 1, 0); /* the ages in the other layer are unchanged */
        o.step = 1;
        route_one(&o, 0, 1, 1);
        expect_victim(&o, 0, 3, true, 0, 0);
        sched_cache_free(o.cache);
    }
}

/* Tokens of one expert each. */
static void tokens_of(struct owner *o, uint16_t expert, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        o->step++;
        route_one(o, 0, expert, 1);
    }
}

/* P = mu rho^(nu / omega), rho 0.25, omega 128. 0 activated by tokens 1 to 4, 2 by 34 to 36, 1 by
 * 68, 3, which is not there, by all others. After token 68:
 *   0   4 * 0.25^(64 / 128) = 2        2   3 * 0.25^(32 / 128) = 2.12        1   1 * 0.25^0 = 1
 * "Once the cache miss, MoEpic evicts the lowest-priority expert": 1. The least frequent is 1 too,
 * the least recent 0. After 64 more and one of 1: 0 has 4 * 0.25^(129 / 128) = 0.99, 2 has 3 *
 * 0.25^(97 / 128) = 1.05, 1 has 2: now 0 goes; the least frequent is still 1. */
static void test_lcp(void **state)
{
    struct sched_cache_shape s = shape(1, 4, 1, 3);
    s.n_used = 1;
    struct owner o = new_owner(CACHE_LCP, s, NULL);
    assert_true(sched_cache_keeps_loads(o.cache));
    for (uint32_t i = 0; i < 3; i++)
        report(&o, 0, i, 1);
    expect_victim(&o, 0, 3, true, 0, 0); /* none was activated: the victim is the oldest */
    tokens_of(&o, 0, 4);
    expect_victim(&o, 0, 3, true, 0, 1);
    tokens_of(&o, 3, 29);
    tokens_of(&o, 2, 3);
    tokens_of(&o, 3, 31);
    tokens_of(&o, 1, 1);
    expect_victim(&o, 0, 3, true, 0, 1);
    o.blocked[0][1] = true;
    expect_victim(&o, 0, 3, true, 0, 0); /* 2 against 2.12 */
    o.blocked[0][1] = false;
    tokens_of(&o, 3, 64);
    tokens_of(&o, 1, 1);
    expect_victim(&o, 0, 3, true, 0, 0);
    sched_cache_free(o.cache);
}

static void expect_capacity(const struct owner *o, uint32_t expert, bool demanded,
                            double probability, int victim)
{
    uint32_t l, e;
    bool found = sched_cache_victim(o->cache, 0, expert, demanded, probability, NULL, NULL, &l, &e);
    assert_int_equal(found ? (int)e : -1, victim);
}

/* MoEpic's prefetcher predicts all experts of a layer "in descending order of their predicted
 * scores"; a later prediction must not evict an earlier one. Cached 0, 1 and 2, activated 4, 1 and
 * 3 times; predicted 1/2 for 3, 3/8 for 1, 1/8 for 2, 1/16 for 0.
 *       1/2 may evict any: 1, the lowest priority        3/16 may evict 2 and 0: 2        1/32 may evict none
 * A load on demand evicts 1, and so does an expert that the cache itself wants (probability 0).
 * After the layer's turn the scores have no effect. Under `configured`, with the share and the
 * buffer full, a prediction evicts none. */
static void test_lcp_predicted(void **state)
{
    static const uint16_t experts[4] = {3, 1, 2, 0};
    static const float scores[4] = {0.5f, 0.375f, 0.125f, 0.0625f};
    struct sched_cache_shape s = shape(1, 4, 1, 3);
    s.n_used = 1;
    struct owner o = new_owner(CACHE_LCP, s, &uniform);
    for (uint32_t i = 0; i < 3; i++)
        report(&o, 0, i, 1);
    tokens_of(&o, 0, 4);
    tokens_of(&o, 2, 3);
    tokens_of(&o, 1, 1);
    sched_cache_predicted(o.cache, 9, 0, experts, scores, 4);
    expect_capacity(&o, 3, false, 0.5, 1);
    expect_capacity(&o, 3, false, 0.1875, 2);
    expect_capacity(&o, 3, false, 0.03125, -1);
    expect_capacity(&o, 3, true, 0, 1);
    expect_capacity(&o, 3, false, 0, 1);
    tokens_of(&o, 0, 2); /* two steps: the first step's turn is over */
    expect_capacity(&o, 3, false, 0.03125, 1);
    sched_cache_free(o.cache);

    struct sched_cache_options options = {.budget = BUDGET_CONFIGURED};
    o = new_owner(CACHE_LCP, shape(2, 8, 4, 32), &options);
    for (uint32_t i = 0; i < 5; i++)
        report(&o, 0, i, 4);               /* 20: its share of 12 and the buffer of 8 */
    expect_capacity(&o, 7, false, 0.5, 0); /* these have no prediction: the victim is the oldest */
    for (uint16_t i = 0; i < 8; i++)
        sched_cache_predicted(o.cache, 1, 0, &i, &(float){0.125f}, 1);
    expect_capacity(&o, 7, false, 0.5, -1);
    expect_capacity(&o, 7, true, 0, 0);
    sched_cache_free(o.cache);
}

/* Tokens, not steps: a batch of 64 tokens is as long as 64 of one, and what any of them activated
 * is of its end. 0 four times, then 64 tokens of which one is 1's: 4 * 0.25^(64 / 128) = 2 against
 * 1; then 128 of 2's: 0.5 and 0.25, and three of 1's: 4 * 0.25^(3 / 128) and 0.48. */
static void test_lcp_batches(void **state)
{
    struct sched_cache_shape s = shape(1, 4, 1, 2);
    s.n_used = 1;
    struct owner o = new_owner(CACHE_LCP, s, NULL);
    report(&o, 0, 0, 1);
    report(&o, 0, 1, 1);
    o.step = 1;
    route(&o, 0, (const uint16_t[]){0}, (const uint16_t[]){4}, 1);
    o.step = 2;
    route(&o, 0, (const uint16_t[]){3, 2, 1}, (const uint16_t[]){30, 33, 1}, 3);
    expect_victim(&o, 0, 3, true, 0, 1);
    o.step = 3;
    route(&o, 0, (const uint16_t[]){2}, (const uint16_t[]){128}, 1);
    expect_victim(&o, 0, 3, true, 0, 1);
    tokens_of(&o, 1, 3);
    expect_victim(&o, 0, 3, true, 0, 0);
    sched_cache_free(o.cache);
}

/* "The top segments of these experts are then cached": 8 segments of 4 experts, so the first 2 of 4
 * segments of each, highest priority first. A load of the rest of 0 takes the place of the lowest
 * other one; a load of what is then missing takes the second half of 0, for there are no more than
 * 4 experts again. */
static void test_lcp_split(void **state)
{
    struct sched_cache_shape s = shape(1, 6, 4, 8);
    s.n_used = 1;
    struct owner o = new_owner(CACHE_LCP, s, NULL);
    uint64_t segments;
    uint32_t n_experts;
    assert_true(sched_cache_configuration(o.cache, 0, &segments, &n_experts));
    assert_true(segments == 8 && n_experts == 2); /* without a configuration whole experts */
    sched_cache_configure(o.cache, 0, 8, 4);
    assert_true(sched_cache_configuration(o.cache, 0, &segments, &n_experts));
    assert_true(segments == 8 && n_experts == 4);
    for (uint16_t i = 0; i < 5; i++)
        tokens_of(&o, i, i + 1u);
    static const uint32_t order[] = {4, 4, 3, 3, 2, 2, 1, 1};
    uint32_t layer, expert;
    for (uint32_t i = 0; i < 8; i++) {
        assert_true(sched_cache_wanted(o.cache, 8 - i, NULL, NULL, &layer, &expert));
        assert_int_equal(expert, order[i]);
        report(&o, 0, expert, o.resident[0][expert] + 1);
    }
    assert_false(sched_cache_wanted(o.cache, 1, NULL, NULL, &layer, &expert)); /* its share */
    for (uint32_t i = 3; i <= 4; i++) {
        expect_victim(&o, 0, 4, true, 0, 1); /* the lowest priority */
        report(&o, 0, 1, o.resident[0][1] - 1);
        report(&o, 0, 4, i);
    }
    expect_victim(&o, 0, 5, true, 0, 4); /* with 5 four experts: a second half goes */
    report(&o, 0, 4, 3);
    report(&o, 0, 5, 1);
    expect_victim(&o, 0, 0, true, 0, 5); /* 0 would be the fifth: the victim is the lowest */
    /* No victim for a wanted segment within the share. */
    report(&o, 0, 4, 2);
    expect_no_victim(&o, 0, 3, false);
    expect_victim(&o, 0, 3, true, 0, 5);
    sched_cache_free(o.cache);
}

/* Under `configured`: of 32 segments the K = 2 experts' 8 are the buffer. "the developer ... adopts
 * a uniform VRAM allocation strategy and an expert split ratio of 0.5": 12 for each of two layers,
 * of 6 experts. A layer uses the buffer during its turn, in the slots that the layer before has
 * beyond its share. */
static void test_lcp_configured(void **state)
{
    struct sched_cache_options options = {.budget = BUDGET_CONFIGURED};
    struct owner o = new_owner(CACHE_LCP, shape(2, 8, 4, 32), &options);
    uint64_t segments;
    uint32_t n_experts;
    for (uint32_t layer = 0; layer < 2; layer++) {
        assert_true(sched_cache_configuration(o.cache, layer, &segments, &n_experts));
        assert_true(segments == 12 && n_experts == 6);
    }
    for (uint16_t i = 0; i < 6; i++)
        for (uint32_t layer = 0; layer < 2; layer++) {
            o.step = i + 1;
            route_one(&o, layer, i, 1);
            report(&o, layer, i, 2);
        }
    report(&o, 0, 4, 4); /* 16, 4 more than its share, and no slot is free */
    report(&o, 0, 5, 4);
    report(&o, 1, 4, 4);
    report(&o, 1, 5, 4);
    expect_victim(&o, 1, 0, true, 0, 4); /* layer 1 is below its share and the buffer */
    report(&o, 0, 4, 3);
    report(&o, 0, 4, 2);
    report(&o, 0, 5, 3);
    report(&o, 0, 5, 2);
    expect_victim(&o, 1, 0, true, 1, 4); /* no other layer is above its share */
    expect_victim(&o, 0, 0, true, 1, 4);
    sched_cache_free(o.cache);
}

/* "MoEpic adjusts the expert cache in VRAM based on the updated cache configuration": 6 of layer
 * 0's 12 segments are layer 1's from now on, which are wanted one by one. Layer 0 has the
 * buffer's 8 in addition to its share, so each replaces one of its segments; then nothing is wanted
 * any more. */
static void test_lcp_carried_out(void **state)
{
    struct sched_cache_options options = {.budget = BUDGET_CONFIGURED};
    struct owner o = new_owner(CACHE_LCP, shape(2, 8, 4, 32), &options);
    uint32_t layer, expert, from, victim, hints = 0;
    for (uint16_t i = 0; i < 8; i++) {
        o.step = i + 1;
        route_one(&o, 0, i, 1);
        route_one(&o, 1, i, 1);
    }
    fill(&o);
    assert_true(o.layer_resident[0] == 12 && o.layer_resident[1] == 12);
    for (uint32_t i = 0; i < 8 && o.total < 32; i++)
        report(&o, 0, i, 4);
    while (o.total > 32)
        report(&o, 0, 0, o.resident[0][0] - 1);
    sched_cache_configure(o.cache, 0, 6, 3);
    sched_cache_configure(o.cache, 1, 18, 8);
    while (sched_cache_wanted(o.cache, 32 - o.total, NULL, NULL, &layer, &expert)) {
        assert_true(layer == 1 && ++hints <= 6);
        assert_true(ask_victim(&o, layer, expert, false, &from, &victim));
        assert_int_equal(from, 0);
        report(&o, from, victim, o.resident[from][victim] - 1);
        report(&o, layer, expert, o.resident[layer][expert] + 1);
    }
    assert_int_equal(hints, 6);
    assert_int_equal(o.layer_resident[1], 18);
    sched_cache_free(o.cache);
}

/* S = alpha TopP(s) + (1 - alpha) S, alpha 0.5:
 *   step 1   0: 0.6   1: 0.4           S  0.3    0.2    0
 *   step 2   0: 0.1          2: 0.9       0.2    0.1    0.45
 *   step 3          1: 0.3                0.1    0.2    0.225
 * The other layer's steps are not this one's. */
static void test_score(void **state)
{
    struct sched_cache_options options = {.budget = BUDGET_UNIFORM, .score_alpha = 0.5};
    struct owner o = new_owner(CACHE_SCORE, shape(2, 4, 1, 6), &options);
    assert_int_equal(sched_cache_reads(CACHE_SCORE), CACHE_READS_SCORES);
    for (uint32_t i = 0; i < 3; i++)
        report(&o, 0, i, 1);
    static const struct {
        uint16_t expert[2];
        float score[2];
        uint32_t n, victim;
    } steps[] = {{{0, 1}, {0.6f, 0.4f}, 2, 2}, {{0, 2}, {0.1f, 0.9f}, 2, 1}, {{1}, {0.3f}, 1, 0}};
    for (uint32_t i = 0; i < 3; i++) {
        o.step = i + 1;
        for (uint32_t layer = 0; layer < 2; layer++)
            route(&o, layer, steps[i].expert, (const uint16_t[]){1, 1}, steps[i].n);
        sched_cache_scored(o.cache, 0, steps[i].expert, steps[i].score, steps[i].n);
        expect_victim(&o, 0, 3, true, 0, steps[i].victim);
    }
    sched_cache_free(o.cache);
}

/* Without scores the victim is the least recently used. */
static void test_score_without(void **state)
{
    struct owner o = new_owner(CACHE_SCORE, shape(1, 4, 1, 3), NULL);
    for (uint32_t i = 0; i < 3; i++)
        report(&o, 0, i, 1);
    o.step = 1;
    route_one(&o, 0, 0, 9);
    expect_victim(&o, 0, 3, true, 0, 1);
    sched_cache_free(o.cache);
}

/* "PRI evict = 1 / (p freq)": the least p freq of all goes, freq the visits and one. Over two
 * layers:
 *            visits   first map           second map of layer 0
 *   0.0      3        0.1 * 4 = 0.4       0.0001 * 4 = 0.0004
 *   0.1      1        0.5 * 2 = 1         0.0001 * 2 = 0.0002
 *   0.2      9        0.0001 * 10 = 0.001 0.3 * 10 = 3
 *   1.0      1        0.0001 * 2 (no map) 0.0001 * 2
 * "we do not consider the recent usage": 0.1 was the last one used. */
static void test_map_frequency(void **state)
{
    struct owner o = new_owner(CACHE_MAP_FREQUENCY, shape(2, 4, 1, 4), NULL);
    assert_int_equal(sched_cache_reads(CACHE_MAP_FREQUENCY), CACHE_READS_PREDICTIONS);
    static const uint16_t visits[] = {3, 1, 9};
    for (uint16_t expert = 0; expert < 3; expert++)
        report(&o, 0, expert, 1);
    report(&o, 1, 0, 1);
    for (o.step = 1; o.step <= 9; o.step++) {
        for (uint16_t expert = 0; expert < 3; expert++)
            if (o.step > (uint64_t)(expert == 1 ? 8 : 9 - visits[expert]))
                route_one(&o, 0, expert, 50); /* the number of tokens does not count */
        if (o.step == 1)
            route_one(&o, 1, 0, 1);
    }
    expect_victim(&o, 1, 3, true, 0, 1); /* no maps: 0.0002 twice, the lower number */
    /* the layer's prediction comes in two parts */
    sched_cache_predicted(o.cache, 10, 0, (const uint16_t[]){1}, (const float[]){0.5f}, 1);
    sched_cache_predicted(o.cache, 10, 0, (const uint16_t[]){0}, (const float[]){0.1f}, 1);
    expect_victim(&o, 0, 3, true, 1, 0);
    o.blocked[1][0] = true;
    expect_victim(&o, 0, 3, true, 0, 2);
    o.blocked[0][2] = true;
    expect_victim(&o, 0, 3, true, 0, 0);
    o.blocked[0][2] = false;
    sched_cache_predicted(o.cache, 11, 0, (const uint16_t[]){2}, (const float[]){0.3f}, 1);
    expect_victim(&o, 0, 3, true, 0, 1);
    report(&o, 0, 1, 0);
    expect_victim(&o, 0, 3, true, 0, 0);
    report(&o, 0, 0, 0);
    expect_victim(&o, 0, 3, true, 0, 2);
    sched_cache_free(o.cache);
}

/* A prefetched expert that was never used has the value of its probability, not 0. */
static void test_map_prefetched(void **state)
{
    struct owner o = new_owner(CACHE_MAP_FREQUENCY, shape(1, 4, 1, 2), NULL);
    report(&o, 0, 0, 1);
    report(&o, 0, 1, 1);
    o.step = 1;
    route_one(&o, 0, 0, 1);
    sched_cache_predicted(o.cache, 2, 0, (const uint16_t[]){1}, (const float[]){0.2f}, 1);
    expect_victim(&o, 0, 3, true, 0, 0); /* 0.0002 against 0.2 */
    sched_cache_free(o.cache);
}

/* Uses still to come, by layer and expert. */
static uint64_t table_next(void *arg, uint32_t layer, uint32_t expert)
{
    uint64_t(*next)[4] = arg;
    return next[layer][expert];
}

/* "evict what is used farthest in the future": 0.0 at 10, 0.1 at 30, 1.0 at 20; with 0.0 used at 10
 * and then never. In equal shares only the layer's own. A prefetch evicts only what is used
 * later. */
static void test_belady(void **state)
{
    uint64_t next[2][4] = {{10, 30, 25, 40}, {20, 50, 9, 9}};
    struct sched_cache_options options = {
        .budget = BUDGET_GLOBAL, .next_use = table_next, .next_use_arg = next};
    struct owner o = new_owner(CACHE_BELADY, shape(2, 4, 1, 3), &options);
    report(&o, 0, 0, 1);
    report(&o, 0, 1, 1);
    report(&o, 1, 0, 1);
    expect_victim(&o, 1, 3, true, 0, 1);
    expect_victim(&o, 0, 2, false, 0, 1); /* 25 before 30 */
    expect_no_victim(&o, 0, 3, false);    /* 40 after 30 */
    expect_victim(&o, 0, 3, true, 0, 1);
    next[0][0] = UINT64_MAX;
    o.step = 1;
    route_one(&o, 0, 0, 1);
    expect_victim(&o, 1, 3, true, 0, 0);
    sched_cache_free(o.cache);

    options.budget = BUDGET_UNIFORM;
    next[0][0] = 10;
    o = new_owner(CACHE_BELADY, shape(2, 4, 1, 4), &options);
    report(&o, 0, 0, 1);
    report(&o, 0, 1, 1);
    report(&o, 1, 0, 1);
    report(&o, 1, 2, 1);
    expect_victim(&o, 1, 3, true, 1, 0); /* 20 and 9; 0.1's 30 is another layer's */
    sched_cache_free(o.cache);
    /* An owner without future uses gets an answer too. */
    o = new_owner(CACHE_BELADY, shape(1, 4, 1, 2), NULL);
    report(&o, 0, 0, 1);
    report(&o, 0, 1, 1);
    expect_victim(&o, 0, 3, true, 0, 0);
    sched_cache_free(o.cache);
}

/* Each of the four resident experts is the victim equally often, in a fourth of 4,000 calls
 * (deviation 27). The cache evicts the rest of an expert before it chooses another one. Other seeds
 * give other rows. */
static void test_random_cache(void **state)
{
    uint64_t digests[2] = {0};
    for (uint64_t seed = 0; seed < 2; seed++) {
        struct sched_cache_options options = {.budget = BUDGET_UNIFORM, .seed = seed};
        struct owner o = new_owner(CACHE_RANDOM, shape(1, 5, 2, 8), &options);
        uint32_t counts[4] = {0}, layer, expert;
        for (uint32_t i = 0; i < 4; i++)
            report(&o, 0, i, 2);
        for (uint32_t i = 0; i < 4000; i++) {
            assert_true(ask_victim(&o, 0, 4, true, &layer, &expert));
            assert_true(expert < 4);
            counts[expert]++;
            report(&o, 0, expert, 1);
            expect_victim(&o, 0, 4, false, 0, expert);
            report(&o, 0, expert, 0);
            report(&o, 0, expert, 2);
        }
        for (uint32_t i = 0; i < 4; i++)
            assert_in_range(counts[i], 880, 1120);
        digests[seed] = o.digest;
        sched_cache_free(o.cache);
    }
    assert_true(digests[0] != digests[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lru_prefetch),    cmocka_unit_test(test_lcp),
        cmocka_unit_test(test_lcp_batches),     cmocka_unit_test(test_lcp_predicted),
        cmocka_unit_test(test_lcp_split),       cmocka_unit_test(test_lcp_configured),
        cmocka_unit_test(test_lcp_carried_out), cmocka_unit_test(test_score),
        cmocka_unit_test(test_score_without),   cmocka_unit_test(test_map_frequency),
        cmocka_unit_test(test_map_prefetched),  cmocka_unit_test(test_belady),
        cmocka_unit_test(test_random_cache),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
