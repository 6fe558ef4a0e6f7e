/* lib/sched's cache policies: cases worked out by hand from each policy's rule.
 * test_sched_cache_value.c tests the policy value, test_sched_cache_papers.c the policies of four
 * more papers, test_sched_cache_random.c has random runs. */
#include "cache_owner.h"

#include <math.h>
#include <stdlib.h>

/* "ondemand: no cache": memd gives up loads after their use. Segments of an earlier policy are
 * evicted first, the oldest before the others. */
static void test_none(void **state)
{
    struct owner o = new_owner(CACHE_NONE, shape(2, 4, 2, 4), NULL);
    assert_false(sched_cache_keeps_loads(o.cache));
    expect_no_victim(&o, 0, 0, true);
    report(&o, 1, 2, 2);
    report(&o, 0, 3, 1);
    expect_victim(&o, 0, 0, true, 1, 2);
    expect_victim(&o, 1, 2, true, 0, 3); /* not the expert itself */
    fill(&o);
    assert_int_equal(o.total, 3);
    sched_cache_free(o.cache);
}

/* "global LRU over all layers" */
static void test_lru(void **state)
{
    struct owner o = new_owner(CACHE_LRU, shape(2, 4, 2, 6), NULL);
    assert_true(sched_cache_keeps_loads(o.cache));
    report(&o, 0, 0, 2);
    report(&o, 0, 1, 2);
    report(&o, 1, 0, 2);
    expect_victim(&o, 1, 3, true, 0, 0);
    o.step = 1;
    route_one(&o, 0, 0, 1);
    expect_victim(&o, 1, 3, true, 0, 1);
    report(&o, 0, 1, 1);
    expect_victim(&o, 1, 3, false, 0, 1); /* the rest of the same expert */
    report(&o, 0, 1, 0);
    expect_victim(&o, 1, 3, true, 1, 0);
    o.blocked[1][0] = true;
    expect_victim(&o, 1, 3, true, 0, 0);
    expect_no_victim(&o, 0, 0, true);
    sched_cache_free(o.cache);
}

/* The budgets that a cache takes: each rule defines how the layers share; lru takes both. */
static void test_budgets(void **state)
{
    static const bool takes[CACHE_KINDS][BUDGET_KINDS] = {
        [CACHE_NONE] = {[BUDGET_GLOBAL] = true, [BUDGET_UNIFORM] = true},
        [CACHE_LRU] = {[BUDGET_GLOBAL] = true, [BUDGET_UNIFORM] = true},
        [CACHE_STATIC] = {[BUDGET_GLOBAL] = true, [BUDGET_UNIFORM] = true},
        [CACHE_LFU] = {[BUDGET_UNIFORM] = true},
        [CACHE_DALI] = {[BUDGET_UNIFORM] = true},
        [CACHE_DALI_GUARDED] = {[BUDGET_UNIFORM] = true},
        [CACHE_LAYERWISE] = {[BUDGET_GLOBAL] = true},
        [CACHE_VALUE] = {[BUDGET_GLOBAL] = true},
        [CACHE_LRU_PREFETCH] = {[BUDGET_UNIFORM] = true},
        [CACHE_LCP] = {[BUDGET_UNIFORM] = true, [BUDGET_CONFIGURED] = true},
        [CACHE_SCORE] = {[BUDGET_UNIFORM] = true},
        [CACHE_MAP_FREQUENCY] = {[BUDGET_GLOBAL] = true},
        [CACHE_ARC] = {[BUDGET_GLOBAL] = true},
        [CACHE_LRFU] = {[BUDGET_GLOBAL] = true},
        [CACHE_TINYLFU] = {[BUDGET_GLOBAL] = true},
        [CACHE_LEAST_STALE] = {[BUDGET_GLOBAL] = true},
        [CACHE_PROMPT] = {[BUDGET_UNIFORM] = true},
        [CACHE_STREAMED] = {[BUDGET_UNIFORM] = true},
        [CACHE_LEARNED] = {[BUDGET_UNIFORM] = true},
        [CACHE_ALLOCATED] = {[BUDGET_UNIFORM] = true},
        [CACHE_SHALLOW] = {[BUDGET_UNIFORM] = true},
        [CACHE_BELADY] = {[BUDGET_GLOBAL] = true, [BUDGET_UNIFORM] = true},
        [CACHE_RANDOM] = {[BUDGET_UNIFORM] = true},
    };
    for (int kind = 0; kind < CACHE_KINDS; kind++)
        for (int budget = 0; budget < BUDGET_KINDS; budget++)
            assert_int_equal(
                sched_cache_takes((enum sched_cache_kind)kind, (enum sched_budget)budget),
                takes[kind][budget]);
}

/* "lru, lfu per layer". Two layers, 4 segments each: layer 1 has its share and evicts its own
 * segments, although layer 0's are older. */
static void test_layered(void **state)
{
    struct owner o = new_owner(CACHE_LRU, shape(2, 4, 2, 8), &uniform);
    report(&o, 0, 0, 2);
    report(&o, 0, 1, 1);
    report(&o, 1, 0, 2);
    report(&o, 1, 1, 2);
    expect_victim(&o, 1, 3, true, 1, 0);
    o.step = 1;
    route_one(&o, 1, 0, 1);
    expect_victim(&o, 1, 3, true, 1, 1);
    report(&o, 1, 2, 1); /* 5: one above its share; layer 0 has 3 */
    expect_victim(&o, 0, 3, true, 1, 1);
    o.blocked[1][0] = o.blocked[1][1] = o.blocked[1][2] = true;
    expect_no_victim(&o, 0, 3, false);
    expect_victim(&o, 0, 3, true, 0, 0); /* a load gets a slot if any segment can be evicted */
    sched_cache_free(o.cache);

    o = new_owner(CACHE_LFU, shape(1, 4, 2, 6), NULL);
    o.step = 1;
    route_one(&o, 0, 0, 3);
    route_one(&o, 0, 1, 1);
    o.step = 2;
    route_one(&o, 0, 2, 3);
    route_one(&o, 0, 1, 1);
    report(&o, 0, 0, 2);
    report(&o, 0, 1, 2);
    report(&o, 0, 2, 2);
    expect_victim(&o, 0, 3, true, 0, 1); /* 3, 2, 3 tokens */
    o.step = 3;
    route_one(&o, 0, 1, 9);
    expect_victim(&o, 0, 3, true, 0, 0); /* 3, 11, 3: the older of the two */
    sched_cache_free(o.cache);
}

/* "whole layers' experts on the device": 3 experts of 2 segments a layer, 15 slots: two layers. */
static void test_layerwise(void **state)
{
    struct sched_cache_shape s = shape(4, 3, 2, 15);
    s.first_layer = 1;
    struct owner o = new_owner(CACHE_LAYERWISE, s, NULL);
    assert_false(sched_cache_keeps_loads(o.cache));
    uint32_t l, e;
    assert_false(sched_cache_wanted(o.cache, 0, NULL, NULL, &l, &e)); /* no slot, no victim */
    fill(&o);
    for (uint32_t layer = 0; layer < 4; layer++)
        for (uint32_t expert = 0; expert < 3; expert++)
            assert_int_equal(o.resident[layer][expert], layer == 1 || layer == 2 ? 2 : 0);
    report(&o, 3, 1, 1); /* loaded on demand: the only segment that the policy gives up unasked */
    expect_victim(&o, 3, 0, false, 3, 1);
    report(&o, 3, 1, 0);
    expect_no_victim(&o, 3, 0, false);
    assert_true(ask_victim(&o, 3, 0, true, &l, &e));
    sched_cache_free(o.cache);
}

/* "the experts most activated in a profile, fixed": 5 segments a layer of experts of 2: two whole
 * and half of the third. */
static void test_static(void **state)
{
    static const uint32_t profile[2 * 4] = {5, 9, 0, 7, 1, 1, 1, 8};
    static const uint32_t expected[2 * 4] = {1, 2, 0, 2, 2, 1, 0, 2};
    struct sched_cache_options options = {.budget = BUDGET_UNIFORM, .profile = profile};
    struct owner o = new_owner(CACHE_STATIC, shape(2, 4, 2, 10), &options);
    fill(&o);
    for (uint32_t i = 0; i < 8; i++)
        assert_int_equal(o.resident[i / 4][i % 4], expected[i]);
    for (o.step = 1; o.step < 200; o.step++) /* fixed, with any activations */
        for (uint32_t layer = 0; layer < 2; layer++)
            route_one(&o, layer, 2, 100);
    fill(&o);
    expect_no_victim(&o, 0, 2, false);
    assert_int_equal(o.total, 10);
    sched_cache_free(o.cache);

    o = new_owner(CACHE_STATIC, shape(2, 4, 2, 10), &uniform);
    assert_false(sched_cache_keeps_loads(o.cache));
    for (o.step = 1; o.step <= 32; o.step++) {
        fill(&o);
        assert_int_equal(o.total, 0);
        for (uint32_t i = 0; i < 8; i++)
            if (profile[i])
                route_one(&o, i / 4, (uint16_t)(i % 4), (uint16_t)profile[i]);
    }
    route_one(&o, 0, 2, 1); /* step 32 is over for layer 1 too */
    fill(&o);
    for (uint32_t i = 0; i < 8; i++)
        assert_int_equal(o.resident[i / 4][i % 4], expected[i]);
    sched_cache_free(o.cache);
}

static void expect_resident(const struct owner *o, const uint32_t *expected)
{
    for (uint32_t i = 0; i < 8; i++)
        assert_int_equal(o->resident[i / 4][i % 4], expected[i]);
}

/* PreScope, section 5: "ranking all (layer, expert_id) pairs by empirical activation frequency,
 * [...] loads the top-ranked experts up to the computed limit". By falling counts: 9 of layer 0, 8
 * of layer 1, 7 and 5 of layer 0, then three with 1 of layer 1, the first of which has one segment
 * of the 9. The prefetch buffers are not filled: 9 - 4 = 5 is two and a half. Without a
 * profile all layers' first 32 steps are one, and nothing is kept before the last layer's are over.
 */
static void test_static_global(void **state)
{
    static const uint32_t profile[2 * 4] = {5, 9, 0, 7, 1, 1, 1, 8};
    static const uint32_t nine[2 * 4] = {2, 2, 0, 2, 1, 0, 0, 2},
                                   five[2 * 4] = {0, 2, 0, 1, 0, 0, 0, 2};
    struct sched_cache_options options = {.budget = BUDGET_GLOBAL, .profile = profile};
    struct owner o = new_owner(CACHE_STATIC, shape(2, 4, 2, 9), &options);
    fill(&o);
    expect_resident(&o, nine);
    sched_cache_free(o.cache);
    options.buffers = 4;
    o = new_owner(CACHE_STATIC, shape(2, 4, 2, 9), &options);
    fill(&o);
    expect_resident(&o, five);
    sched_cache_free(o.cache);
    options.buffers = 100;
    o = new_owner(CACHE_STATIC, shape(2, 4, 2, 9), &options);
    fill(&o);
    assert_int_equal(o.total, 0);
    sched_cache_free(o.cache);

    o = new_owner(CACHE_STATIC, shape(2, 4, 2, 9), NULL);
    assert_int_equal(o.budget, BUDGET_GLOBAL);
    for (o.step = 1; o.step <= 32; o.step++)
        for (uint32_t i = 0; i < 8; i++) {
            fill(&o);
            assert_int_equal(o.total, 0);
            if (profile[i])
                route_one(&o, i / 4, (uint16_t)(i % 4), (uint16_t)profile[i]);
        }
    route_one(&o, 0, 2, 1);
    fill(&o);
    expect_resident(&o, nine);
    sched_cache_free(o.cache);
}

/* "every w_size steps swap the u_size highest-scored uncached with the u_size lowest-scored cached,
 * then zero the scores. Starts random." One layer, 6 experts, 3 cached; w_size 2, u_size 2. */
static void check_dali(bool guard)
{
    struct sched_cache_options options = {
        .budget = BUDGET_UNIFORM, .dali_w_size = 2, .dali_u_size = 2};
    struct owner o =
        new_owner(guard ? CACHE_DALI_GUARDED : CACHE_DALI, shape(1, 6, 1, 3), &options);
    assert_false(sched_cache_keeps_loads(o.cache));
    fill(&o);
    uint16_t in[3], out[3];
    uint32_t n_in = 0, n_out = 0;
    for (uint16_t i = 0; i < 6; i++)
        if (o.resident[0][i])
            in[n_in++] = i;
        else
            out[n_out++] = i;
    assert_int_equal(n_in, 3);
    /* Scores after two steps: cached 4, 1, 6; uncached 0, 2, 5. */
    o.step = 1;
    route_one(&o, 0, in[0], 4);
    route_one(&o, 0, in[1], 1);
    route_one(&o, 0, out[2], 5);
    fill(&o);
    uint32_t layer, expert;
    assert_false(
        sched_cache_wanted(o.cache, 1, NULL, NULL, &layer, &expert)); /* not after the first step */
    o.step = 2;
    route_one(&o, 0, in[2], 6);
    route_one(&o, 0, out[1], 2);
    o.step = 3;
    route_one(&o, 0, in[0], 1);
    /* Pairs: 5 for 1, and 2 for 4, which the guard prevents. */
    bool swapped[6] = {false};
    swapped[in[1]] = swapped[out[2]] = true;
    swapped[in[0]] = swapped[out[1]] = !guard;
    for (int i = 0; i < 2; i++)
        if (sched_cache_wanted(o.cache, 0, NULL, NULL, &layer, &expert)) {
            uint32_t l, e;
            assert_true(ask_victim(&o, layer, expert, false, &l, &e));
            report(&o, l, e, 0);
            report(&o, layer, expert, 1);
        }
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(o.resident[0][in[i]], !swapped[in[i]]);
        assert_int_equal(o.resident[0][out[i]], swapped[out[i]]);
    }
    assert_false(sched_cache_wanted(o.cache, 1, NULL, NULL, &layer, &expert));
    expect_no_victim(&o, 0, out[0], false);
    sched_cache_free(o.cache);
}

static void test_dali(void **state)
{
    check_dali(false);
    check_dali(true);
}

/* Its defaults: "(4, 1) for Mixtral, (4, 8) for 64- and 128-expert models". How many experts change
 * at the swap after four steps in which only the uncached are activated. */
static void check_dali_defaults(uint32_t n_experts, uint32_t swaps)
{
    struct sched_cache_shape s = shape(1, n_experts, 1, n_experts / 2);
    struct sched_cache *c = sched_cache_new(CACHE_DALI, &s, NULL);
    uint32_t layer, expert, n_wanted = 0;
    bool *cached = calloc(n_experts, sizeof *cached);
    for (uint32_t i = 0; sched_cache_wanted(c, 1, NULL, NULL, &layer, &expert); i++) {
        assert_true(i < n_experts / 2);
        cached[expert] = true;
        sched_cache_resident(c, layer, expert, 1);
    }
    for (uint64_t step = 1; step <= 5; step++) {
        assert_false(sched_cache_wanted(c, 1, NULL, NULL, &layer, &expert));
        for (uint16_t i = 0; i < n_experts; i++)
            if (!cached[i])
                sched_cache_routed(c, step, 0, false, &i, &(uint16_t){1}, 1);
    }
    for (; sched_cache_wanted(c, 1, NULL, NULL, &layer, &expert); n_wanted++) {
        assert_false(cached[expert]);
        sched_cache_resident(c, layer, expert, 1);
    }
    assert_int_equal(n_wanted, swaps);
    free(cached);
    sched_cache_free(c);
}

static void test_dali_defaults(void **state)
{
    check_dali_defaults(8, 1);
    check_dali_defaults(64, 8);
    check_dali_defaults(128, 8);
}

/* Starts random: over many starts the policy caches each expert about as often as the budget's
 * share of a layer. */
static void test_dali_random(void **state)
{
    struct sched_cache_shape s = shape(400, 8, 1, 400 * 2);
    struct sched_cache *c = sched_cache_new(CACHE_DALI, &s, NULL);
    uint32_t layer, expert, counts[8] = {0}, per_layer[400] = {0};
    while (sched_cache_wanted(c, 1, NULL, NULL, &layer, &expert)) {
        counts[expert]++;
        per_layer[layer]++;
        sched_cache_resident(c, layer, expert, 1);
    }
    for (uint32_t i = 0; i < 8; i++) /* 100 expected, deviation 8.7 */
        assert_in_range(counts[i], 65, 135);
    for (uint32_t i = 0; i < 400; i++)
        assert_int_equal(per_layer[i], 2);
    sched_cache_free(c);
}

/* lru-allocated: the layers' shares are those of a new cache of this capacity. */
static void expect_shares_of_new(const struct owner *o)
{
    struct owner new = new_owner(o->kind, o->shape, NULL);
    for (uint32_t l = 0; l < o->shape.n_layers; l++) {
        uint64_t segments[2];
        uint32_t n[2];
        bool has = sched_cache_configuration(o->cache, l, &segments[0], &n[0]);
        assert_int_equal(sched_cache_configuration(new.cache, l, &segments[1], &n[1]), has);
        assert_int_equal(has, o->kind == CACHE_ALLOCATED);
        if (has)
            assert_true(segments[0] == segments[1] && n[0] == n[1]);
    }
    sched_cache_free(new.cache);
}

/* Another capacity: what was learnt stays, and the shares follow. Layer 0 has six residents, layer
 * 1 two: less than its share of 8, and its share of 4. Experts 0, 2 and 3 are activated. */
static void test_resize(void **state)
{
    static const enum sched_cache_kind kinds[] = {
        CACHE_VALUE,       CACHE_LFU,  CACHE_SCORE,        CACHE_MAP_FREQUENCY,
        CACHE_LRU,         CACHE_LRFU, CACHE_LRU_PREFETCH, CACHE_ALLOCATED,
        CACHE_LEAST_STALE, CACHE_ARC,  CACHE_STATIC};
    uint32_t layer, expert;
    (void)state;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        bool learns =
            kinds[i] < CACHE_LRU_PREFETCH ? kinds[i] != CACHE_STATIC : kinds[i] != CACHE_ARC;
        struct owner o = new_owner(kinds[i], shape(2, 8, 1, 8), NULL);
        for (uint32_t e = 0; e < 8; e++)
            report(&o, e / 6, e % 6, 1);
        for (o.step = 1; o.step <= 40; o.step++)
            for (uint32_t l = 0; l < 2; l++) {
                uint16_t used = o.step % 5 < 3 ? 2 : (uint16_t)(o.step % 2 ? 0 : 3);
                route_one(&o, l, used, 1);
                sched_cache_scored(o.cache, l, &used, (const float[]){0.9f}, 1);
            }
        assert_int_equal(sched_cache_resize(o.cache, 4), learns);
        o.shape.capacity = learns ? 4 : 8;
        if (learns) {
            bool shares = o.budget == BUDGET_UNIFORM;
            assert_true(ask_victim(&o, 1, 7, true, &layer, &expert));
            if (layer != shares || expert != 1)
                fail_msg("%s: victim %u.%u", sched_cache_name(kinds[i]), layer, expert);
            expect_shares_of_new(&o);
        }
        bool says = sched_cache_least(o.cache, is_blocked, &o, &layer, &expert);
        assert_int_equal(says, kinds[i] == CACHE_VALUE);
        if (says)
            assert_true(expert == 1);
        sched_cache_free(o.cache);
    }
}

/* Layers of different segments; and the cache refuses invalid input. */
static void test_shapes(void **state)
{
    static const uint8_t segments[] = {0, 2, 3};
    struct sched_cache_shape s = shape(3, 4, 3, 40);
    s.first_layer = 1;
    s.layer_segments = segments;
    struct owner o = new_owner(CACHE_LAYERWISE, s, NULL);
    fill(&o);
    for (uint32_t i = 0; i < 4; i++) {
        assert_int_equal(o.resident[1][i], 2);
        assert_int_equal(o.resident[2][i], 3);
    }
    sched_cache_free(o.cache);
    s.layer_segments = NULL;
    enum sched_cache_kind kind;
    struct sched_cache_options options = {0};
    for (uint32_t i = 0; variant_at(i, &kind, &options.budget); i++) {
        struct sched_cache *c = sched_cache_new(kind, &s, &options);
        const float ones[] = {1, 1, NAN}, huge[] = {INFINITY, -1, 1};
        uint16_t experts[] = {3, 4, 65535}, workloads[] = {1, 1, 1};
        sched_cache_routed(c, 1, 1, false, experts, workloads, 3);
        sched_cache_routed(c, 1, 0, false, experts, workloads, 3);
        sched_cache_routed(c, 1, 3, false, experts, workloads, 3);
        for (uint32_t l = 0; l < 5; l++) {
            sched_cache_scored(c, l, experts, ones, 3);
            sched_cache_scored(c, l, experts, huge, 3);
            sched_cache_predicted(c, 2, l, experts, ones, 3);
            sched_cache_predicted(c, 2, l, experts, huge, 3);
            sched_cache_configure(c, l, 1000, 1000);
            sched_cache_configure(c, l, 0, 0);
            sched_cache_costs(c, &(struct sched_cache_costs){NAN, -1, INFINITY, 0, NAN, -1});
        }
        sched_cache_resident(c, 1, 4, 1);
        sched_cache_resident(c, 3, 0, 1);
        sched_cache_resident(c, 1, 1, 200);
        assert_int_equal(sched_cache_segments(c, 1, 1), 3);
        assert_int_equal(sched_cache_segments(c, 3, 0), 0);
        uint32_t l, e;
        assert_false(sched_cache_victim(c, 3, 0, true, 0, NULL, NULL, &l, &e));
        assert_true(sched_cache_victim(c, 2, 0, true, 0, NULL, NULL, &l, &e));
        assert_true(l == 1 && e == 1);
        sched_cache_free(c);
    }
    sched_cache_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_none),          cmocka_unit_test(test_lru),
        cmocka_unit_test(test_layered),       cmocka_unit_test(test_layerwise),
        cmocka_unit_test(test_budgets),       cmocka_unit_test(test_static),
        cmocka_unit_test(test_static_global), cmocka_unit_test(test_dali),
        cmocka_unit_test(test_dali_defaults), cmocka_unit_test(test_dali_random),
        cmocka_unit_test(test_resize),        cmocka_unit_test(test_shapes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
