/* MoEpic's cache configuration (lib/sched/cache/budget_moepic.h): cases worked out by hand, small
 * cases compared with every possible configuration, and its cache policy compared with the others
 * on a skewed trace. */
#include "random_numbers.h"

#include "sched/cache/budget_moepic.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static struct budget_moepic *new_budget(uint32_t n_layers, uint32_t n_experts, uint8_t n_segments,
                                        uint64_t segments, const struct sched_cache_costs *costs)
{
    uint8_t of_layer[4];
    memset(of_layer, n_segments, sizeof of_layer);
    struct budget_moepic_shape shape = {n_layers, 0, n_experts, of_layer, segments};
    struct budget_moepic *b = budget_moepic_new(&shape);
    assert_non_null(b);
    budget_moepic_costs(b, costs);
    return b;
}

static void configure(struct budget_moepic *b)
{
    uint32_t chunks = 0;
    budget_moepic_begin(b);
    while (!budget_moepic_work(b))
        assert_true(++chunks < 1000000);
    assert_false(budget_moepic_working(b));
}

/* A step of a layer that activates one expert; the number is its rank too. */
static void step(struct budget_moepic *b, uint32_t layer, uint32_t rank)
{
    budget_moepic_activated(b, layer, rank, rank);
    budget_moepic_step_over(b, layer, 1);
}

static void expect(const struct budget_moepic *b, uint32_t layer, uint64_t segments,
                   uint32_t n_experts)
{
    if (budget_moepic_segments(b, layer) != segments ||
        budget_moepic_experts(b, layer) != n_experts)
        fail_msg("layer %u: %llu segments of %u experts, not %llu of %u", layer,
                 (unsigned long long)budget_moepic_segments(b, layer),
                 budget_moepic_experts(b, layer), (unsigned long long)segments, n_experts);
}

static void expect_exposed(const struct budget_moepic *b, double seconds)
{
    if (fabs(budget_moepic_exposed(b) - seconds) > 1e-6)
        fail_msg("%.9g exposed, not %.9g", budget_moepic_exposed(b), seconds);
}

/* Two layers of 3 experts of 2 segments, one activated a token, nothing predicted; 4 segments in
 * all, so a step is one. A load takes 2, computing 2. Layer 0 always activates the first by
 * priority, H = 1 1 1; layer 1 each as often, H = 1/3 2/3 1.
 *   V    layer 0                              layer 1
 *   1    C = 1: m = 1 * 1/2       T = 0       C = 1: m = 1/3 * 1/2 = 1/6           T = 10/6 - 2/6 = 4/3
 *   2    C = 1: m = 1             T = 0       C = 1: m = 1/3; C = 2: 2/3 * 1/2     T = 4/3 - 2/3 = 2/3
 *   3    C = 1: m = 1             T = 0       C = 2: m = 2/3 * 3/4 = 1/2           T = 0       (C = 3: 1 * 1/2 too)
 * From 2, 2 with 2/3: the most gains layer 1, the least (0) loses layer 0: 1, 3 with 0. Back again
 * would be 2/3: undone. */
static void test_by_hand(void **state)
{
    struct sched_cache_costs costs = {.load_s = 1, .compute_s = 1};
    struct budget_moepic *b = new_budget(2, 3, 2, 4, &costs);
    expect(b, 0, 2, 2); /* "a uniform VRAM allocation strategy and an expert split ratio of 0.5" */
    expect(b, 1, 2, 2);
    assert_true(isnan(budget_moepic_exposed(b)));
    for (uint32_t token = 0; token < 30; token++) {
        step(b, 0, 0);
        step(b, 1, token % 3);
    }
    assert_false(budget_moepic_work(b)); /* 30 tokens are not 5,000 */
    configure(b);
    expect(b, 0, 1, 1);
    expect(b, 1, 3, 2);
    expect_exposed(b, 0);
    /* With computing for nothing nothing is hidden, T = (1 - m) 2: at 2, 2: 0 + 4/3, at 1, 3: 1 +
     * 1, which is more. What the last configuration gave is where the next begins: from 1, 3 back
     * to 2, 2. */
    budget_moepic_costs(b, &(struct sched_cache_costs){.load_s = 1});
    configure(b);
    expect(b, 0, 2, 1);
    expect(b, 1, 2, 1);
    expect_exposed(b, 4.0 / 3);
    budget_moepic_free(b);
}

/* "Otherwise, the algorithm reverts the adjustment": the algorithm does not take a step that
 * changes nothing. Here both layers have no exposed time with 1, 2 or 3 segments. */
static void test_no_gain(void **state)
{
    struct sched_cache_costs costs = {.load_s = 1, .compute_s = 1};
    struct budget_moepic *b = new_budget(2, 3, 2, 4, &costs);
    for (uint32_t token = 0; token < 10; token++) {
        step(b, 0, 0);
        step(b, 1, 0);
    }
    configure(b);
    expect(b, 0, 2, 1);
    expect(b, 1, 2, 1);
    expect_exposed(b, 0);
    budget_moepic_free(b);
}

/* One layer, 3 experts of 4 segments, slots for one expert. The first predicted expert comes true 3
 * times of 4 and is always the last by priority, the second one of 4 and always the first. A load
 * takes 2. H = 1/4 1/4 1.
 *   W = head + attention = 1.9   C = 1: 2 for the first does not fit: m = 1/4
 *                                C = 2: nor here: m = 1/4 * 1/2
 *                                C = 3: theta = 1/3, (1 - 1/3) 2 = 4/3 fits, the second does not: m
 * = 1/3 + 2/3 * 3/4 = 5/6 so 3, and T = 1/6 * 2
 *   W = 2                        C = 1: it fits, m = 1/4 + 3/4 (and the second, of which nothing is missing): T = 0 */
static void test_window(void **state)
{
    static const double heads[] = {1.4, 1.5};
    for (int i = 0; i < 2; i++) {
        struct sched_cache_costs costs = {.load_s = 0.5, .attention_s = 0.5, .head_s = heads[i]};
        struct budget_moepic *b = new_budget(1, 3, 4, 4, &costs);
        for (uint32_t token = 0; token < 40; token++) {
            budget_moepic_predicted(b, 0, 2, 2); /* expert and rank are equal */
            budget_moepic_predicted(b, 0, 0, 0);
            budget_moepic_predicted(b, 0, 0, 0); /* reported twice: no third place */
            step(b, 0, token % 4 ? 2 : 0);
        }
        configure(b);
        expect(b, 0, 4, i ? 1 : 3);
        expect_exposed(b, i ? 0 : 1.0 / 3);
        budget_moepic_free(b);
    }
}

/* The next layer's window is what the one before leaves: W = t_moe - min(hidden, missed) +
 * t_attention. Layer 0 has one of its two activated experts: m = 1, hides 1 * 1 of the 1 * 4 that
 * it misses; W = 2 * 1 - 1 + 2 = 3: too short for a load of 4; with attention of 3 there is time
 * for one. */
static void test_chain(void **state)
{
    for (int longer = 0; longer < 2; longer++) {
        struct sched_cache_costs costs = {.load_s = 4, .compute_s = 1, .attention_s = 2 + longer};
        struct budget_moepic *b = new_budget(2, 2, 1, 2, &costs);
        for (uint32_t token = 0; token < 10; token++)
            for (uint32_t layer = 0; layer < 2; layer++) {
                if (layer == 1)
                    budget_moepic_predicted(b, layer, 1, 1);
                for (uint32_t rank = 0; rank < 2; rank++)
                    budget_moepic_activated(b, layer, rank, rank);
                budget_moepic_step_over(b, layer, 1);
            }
        configure(b);
        expect(b, 0, 1, 1);
        expect(b, 1, 1, 1);
        expect_exposed(
            b, 3 + (longer ? 0 : 3)); /* (2 - 1) 4 - 1 each; layer 1 has both where there is time */
        budget_moepic_free(b);
    }
}

/* This file's own record of activations and predictions. */
enum { LAYERS = 3, EXPERTS = 4, SEGMENTS = 2, PREDICTED = 2 };
struct record {
    double hits[LAYERS][EXPERTS + 1], predicted[LAYERS][PREDICTED];
    double cached[LAYERS][PREDICTED][EXPERTS + 1];
    double steps, k;
};

static void record_random(struct budget_moepic *b, struct record *r)
{
    uint32_t skew[LAYERS];
    *r = (struct record){.steps = 40, .k = 2};
    for (uint32_t l = 0; l < LAYERS; l++)
        skew[l] = below(3);
    for (uint32_t token = 0; token < 40; token++)
        for (uint32_t l = 0; l < LAYERS; l++) {
            uint32_t first = below(EXPERTS), other = below(EXPERTS), rank[2], prediction[PREDICTED];
            for (uint32_t i = 0; i < skew[l]; i++)
                first = first < other ? first : below(other + 1);
            rank[0] = first;
            rank[1] = (first + 1 + below(EXPERTS - 1)) % EXPERTS;
            prediction[0] = below(3) ? rank[below(2)] : below(EXPERTS);
            prediction[1] = (prediction[0] + 1 + below(EXPERTS - 1)) % EXPERTS;
            for (uint32_t y = 0; y < PREDICTED; y++) {
                budget_moepic_predicted(b, l, prediction[y], prediction[y]);
                for (uint32_t c = prediction[y] + 1; c <= EXPERTS; c++)
                    r->cached[l][y][c]++;
                r->predicted[l][y] += prediction[y] == rank[0] || prediction[y] == rank[1];
            }
            for (uint32_t i = 0; i < 2; i++) {
                budget_moepic_activated(b, l, rank[i], rank[i]);
                for (uint32_t c = rank[i] + 1; c <= EXPERTS; c++)
                    r->hits[l][c]++;
            }
            budget_moepic_step_over(b, l, 1);
        }
}

/* The sum of T by the paper's equations 5 to 11, for given shares and sizes; *m: of the last layer.
 */
static double exposed(const struct record *r, const struct sched_cache_costs *costs,
                      const uint32_t *v, const uint32_t *c, uint32_t n_layers, double *m)
{
    double sum = 0, window = costs->head_s + costs->attention_s, k = r->k;
    double load = SEGMENTS * costs->load_s, compute = SEGMENTS * costs->compute_s;
    for (uint32_t l = 0; l < n_layers; l++) {
        double theta = c[l] ? fmin(1, (double)v[l] / SEGMENTS / c[l]) : 0, busy = 0;
        *m = k * r->hits[l][c[l]] / (r->steps * k) * theta;
        for (uint32_t y = 0; y < PREDICTED; y++) {
            double part = 1 - r->cached[l][y][c[l]] / r->steps * theta;
            if (busy + part * load > window * (1 + 1e-6))
                break;
            busy += part * load;
            *m += part * r->predicted[l][y] / r->steps;
        }
        *m = fmin(*m, k);
        sum += fmax(0, (k - *m) * load - *m * compute);
        window = k * compute - fmin(*m * compute, (k - *m) * load) + costs->attention_s;
    }
    return sum;
}

/* For given shares, the sizes that the algorithm chooses: in each layer the size with the most m,
 * given the layers before it. */
static void best_sizes(const struct record *r, const struct sched_cache_costs *costs,
                       const uint32_t *v, uint32_t *c)
{
    for (uint32_t l = 0; l < LAYERS; l++) {
        double best = -1, m;
        uint32_t taken = 0;
        for (c[l] = v[l] ? 1 : 0; c[l] <= EXPERTS && c[l] <= v[l]; c[l]++) {
            if ((double)v[l] / SEGMENTS / c[l] >
                1.999) /* two halves of an expert: at most as good as a whole one */
                continue;
            exposed(r, costs, v, c, l + 1, &m);
            if (m > best + 1e-6) {
                best = m;
                taken = c[l];
            }
        }
        c[l] = taken;
    }
}

/* The least of all (V, C): every share of each layer, and every size for it. */
static double brute_force(const struct record *r, const struct sched_cache_costs *costs,
                          uint32_t segments)
{
    double best = INFINITY, m;
    uint32_t v[LAYERS], c[LAYERS];
    for (v[0] = 1; v[0] < segments; v[0]++)
        for (v[1] = 1; v[0] + v[1] < segments; v[1]++) {
            v[2] = segments - v[0] - v[1];
            for (uint32_t sizes = 0; sizes < 125; sizes++) {
                c[0] = sizes % 5;
                c[1] = sizes / 5 % 5;
                c[2] = sizes / 25;
                bool possible = true;
                for (uint32_t l = 0; l < LAYERS; l++)
                    possible &= c[l] <= v[l] && v[l] <= SEGMENTS * EXPERTS;
                if (possible)
                    best = fmin(best, exposed(r, costs, v, c, LAYERS, &m));
            }
        }
    return best;
}

/* The found configuration has the stated time. It is at least as good as the even shares, and never
 * better than the best possible one. It may be worse than the best: the algorithm climbs one hill.
 * The test prints by how much. */
static void test_brute_force(void **state)
{
    enum { ROUNDS = 300, EACH = 3 };
    uint32_t equal = 0;
    double even_sum = 0, found_sum = 0, best_sum = 0;
    random_state = 31;
    for (int round = 0; round < ROUNDS; round++) {
        struct sched_cache_costs costs = {.load_s = 1,
                                          .compute_s = 0.1 * below(8),
                                          .attention_s = 0.3 * below(8),
                                          .head_s = below(3)};
        struct budget_moepic *b = new_budget(LAYERS, EXPERTS, SEGMENTS, EACH * LAYERS, &costs);
        struct record r;
        uint32_t v[LAYERS] = {EACH, EACH, EACH}, c[LAYERS], sum = 0;
        double m;
        record_random(b, &r);
        best_sizes(&r, &costs, v, c);
        double even = exposed(&r, &costs, v, c, LAYERS, &m);
        configure(b);
        for (uint32_t l = 0; l < LAYERS; l++) {
            sum += v[l] = (uint32_t)budget_moepic_segments(b, l);
            c[l] = budget_moepic_experts(b, l);
            assert_true(v[l] >= 1 && v[l] <= SEGMENTS * EXPERTS && c[l] >= 1 && c[l] <= v[l]);
        }
        assert_int_equal(sum, EACH * LAYERS);
        double found = exposed(&r, &costs, v, c, LAYERS, &m);
        double best = brute_force(&r, &costs, EACH * LAYERS);
        expect_exposed(b, found);
        assert_true(found <= even + 1e-5);
        assert_true(found >= best - 1e-5);
        uint32_t sizes[LAYERS];
        best_sizes(&r, &costs, v, sizes);
        assert_true(fabs(exposed(&r, &costs, v, sizes, LAYERS, &m) - found) < 1e-5);
        equal += found <= best + 1e-5;
        even_sum += even;
        found_sum += found;
        best_sum += best;
        budget_moepic_free(b);
    }
    print_message("exposed: even shares %.1f, found %.1f, best %.1f; the best in %u of %d\n",
                  even_sum, found_sum, best_sum, equal, ROUNDS);
    assert_true(found_sum < even_sum && equal > ROUNDS / 2);
}

/* "Every time the system processes 5,000 tokens", and first after 500: the budget works in items
 * while memd is idle, and lcp uses the result. Layer 0 always activates the same two experts, layer
 * 1 any: shares move to layer 1. */
static void test_in_the_cache(void **state)
{
    struct sched_cache_shape shape = {
        .n_layers = 2, .n_experts = 16, .n_segments = 2, .n_used = 2, .capacity = 32};
    struct sched_cache_options options = {.budget = BUDGET_CONFIGURED};
    struct sched_cache *c = sched_cache_new(CACHE_LCP, &shape, &options);
    uint64_t segments[2];
    uint32_t n_experts, layer, expert, changed_at = 0;
    random_state = 41;
    assert_int_equal(sched_cache_reads(CACHE_LCP), CACHE_READS_PREDICTIONS);
    for (uint32_t token = 1; token <= 5400; token++)
        for (uint32_t l = 0; l < 2; l++) {
            uint16_t first = (uint16_t)below(16);
            uint16_t experts[2] = {l ? first : 3, l ? (first + 1) % 16 : 5};
            sched_cache_routed(c, token, l, false, experts, (const uint16_t[]){1, 1}, 2);
            sched_cache_wanted(c, 0, NULL, NULL, &layer, &expert);
            sched_cache_configuration(c, 0, &segments[0], &n_experts);
            if (segments[0] != 14 && !changed_at)
                changed_at = token;
        }
    assert_in_range(changed_at, 501, 900);
    sched_cache_configuration(c, 0, &segments[0], &n_experts);
    sched_cache_configuration(c, 1, &segments[1], &n_experts);
    assert_int_equal(segments[0] + segments[1], 28); /* less the buffer of 2 experts */
    assert_true(segments[0] < 10 && segments[1] > 18);
    sched_cache_free(c);
}

/* lcp records ranks as they were before the step, whatever the order in which its experts are
 * reported. Always 0 and 1, 1 reported first: ranks 0 and 1, of equal priorities the lower number's
 * the higher. So H = 1/2 1 1 1, and with a share of one expert of 2 segments C = 1 is as good as C
 * = 2, m = 2 * 1/2 * 1 = 2 * 1 * 1/2, and is taken. */
static void test_ranks_in_the_cache(void **state)
{
    struct sched_cache_shape shape = {
        .n_layers = 1, .n_experts = 4, .n_segments = 2, .n_used = 2, .capacity = 2};
    struct sched_cache_options options = {.budget = BUDGET_CONFIGURED};
    struct sched_cache *c = sched_cache_new(CACHE_LCP, &shape, &options);
    uint64_t segments;
    uint32_t n_experts, layer, expert;
    assert_true(sched_cache_configuration(c, 0, &segments, &n_experts));
    assert_true(segments == 2 && n_experts == 2);
    for (uint32_t token = 1; token <= 5100; token++) {
        sched_cache_routed(c, token, 0, false, (const uint16_t[]){1}, (const uint16_t[]){1}, 1);
        sched_cache_routed(c, token, 0, false, (const uint16_t[]){0}, (const uint16_t[]){1}, 1);
        sched_cache_wanted(c, 0, NULL, NULL, &layer, &expert);
    }
    assert_true(sched_cache_configuration(c, 0, &segments, &n_experts));
    assert_true(segments == 2 && n_experts == 1);
    sched_cache_free(c);
}

/* A layer of 60 experts, 4 a token: some are activated more often than others, lately activated
 * ones more often again, and which are frequent changes in time: "long-tail distribution" and
 * "temporal locality". */
enum { TOKENS = 8000, USED = 4, MANY = 60 };
static uint16_t skewed[TOKENS][USED];

static void make_skewed(void)
{
    uint32_t order[MANY];
    for (uint32_t i = 0; i < MANY; i++)
        order[i] = i;
    for (uint32_t t = 0; t < TOKENS; t++) {
        if (t % 500 == 0) { /* two experts swap their frequency */
            uint32_t x = below(MANY), y = below(MANY), kept = order[x];
            order[x] = order[y];
            order[y] = kept;
        }
        for (uint32_t i = 0; i < USED; i++) {
            uint16_t expert;
            bool again;
            do {
                uint32_t x = below(MANY), y = below(MANY), z = below(MANY), back = 1 + below(12);
                x = x < y ? x : y;
                expert = below(8) == 0 && t > back ? skewed[t - back][below(USED)]
                                                   : (uint16_t)order[x < z ? x : z];
                again = false;
                for (uint32_t j = 0; j < i; j++)
                    again |= skewed[t][j] == expert;
            } while (again);
            skewed[t][i] = expert;
        }
    }
}

static double hit_rate(enum sched_cache_kind kind, uint32_t cached)
{
    struct sched_cache_shape shape = {
        .n_layers = 1, .n_experts = MANY, .n_segments = 1, .n_used = USED, .capacity = cached};
    struct sched_cache_options options = {.budget = BUDGET_UNIFORM, .seed = 1};
    struct sched_cache *c = sched_cache_new(kind, &shape, &options);
    uint32_t hits = 0, total = 0, l, e;
    static const uint16_t ones[USED] = {1, 1, 1, 1};
    for (uint32_t t = 0; t < TOKENS; t++) {
        for (uint32_t i = 0; i < USED; i++)
            hits += sched_cache_segments(c, 0, skewed[t][i]);
        sched_cache_routed(c, t + 1, 0, false, skewed[t], ones, USED);
        for (uint32_t i = 0; i < USED; i++) {
            if (sched_cache_segments(c, 0, skewed[t][i]))
                continue;
            if (total == cached) {
                assert_true(sched_cache_victim(c, 0, skewed[t][i], true, 0, NULL, NULL, &l, &e));
                sched_cache_resident(c, l, e, 0);
                total--;
            }
            sched_cache_resident(c, 0, skewed[t][i], 1);
            total++;
        }
    }
    sched_cache_free(c);
    return (double)hits / (TOKENS * USED);
}

/* The order of the paper's Table 1, for 10 to 40 of 60 cached (with 50 its LFU and LRU are all but
 * equal). */
static void test_skewed(void **state)
{
    static const enum sched_cache_kind kinds[] = {CACHE_LCP, CACHE_LFU, CACHE_LRU, CACHE_RANDOM};
    random_state = 51;
    make_skewed();
    for (uint32_t cached = 10; cached <= 40; cached += 10) {
        double rates[4];
        for (int i = 0; i < 4; i++)
            rates[i] = hit_rate(kinds[i], cached);
        print_message("%u cached: lcp %.2f, lfu %.2f, lru %.2f, random %.2f %%\n", cached,
                      rates[0] * 100, rates[1] * 100, rates[2] * 100, rates[3] * 100);
        for (int i = 1; i < 4; i++)
            assert_true(rates[i - 1] > rates[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_by_hand),      cmocka_unit_test(test_window),
        cmocka_unit_test(test_no_gain),      cmocka_unit_test(test_ranks_in_the_cache),
        cmocka_unit_test(test_chain),        cmocka_unit_test(test_brute_force),
        cmocka_unit_test(test_in_the_cache), cmocka_unit_test(test_skewed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
