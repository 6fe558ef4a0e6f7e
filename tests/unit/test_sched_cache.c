/* lib/sched's cache policies: cases worked out by hand from each policy's rule, and random runs of
 * an owner that obeys, in which every answer is held against a plain model kept here. */
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

/* Each kind with its budget, and lru with the other one after them. */
enum {
    N_KINDS = CACHE_VALUE + 1,
    LRU_UNIFORM = N_KINDS,
    N_VARIANTS,
    MOST_LAYERS = 6,
    MOST_EXPERTS = 24
};

static const struct sched_cache_options uniform = {.budget = BUDGET_UNIFORM};

static enum sched_cache_kind kind_of(int variant)
{
    return variant == LRU_UNIFORM ? CACHE_LRU : (enum sched_cache_kind)variant;
}

static enum sched_budget budget_of(int variant)
{
    return variant == LRU_UNIFORM ? BUDGET_UNIFORM : sched_cache_budget(kind_of(variant));
}

/* The owner, and what it knows by itself. */
struct owner {
    struct sched_cache *cache;
    enum sched_cache_kind kind;
    enum sched_budget budget;
    struct sched_cache_shape shape;
    uint32_t resident[MOST_LAYERS][MOST_EXPERTS], layer_resident[MOST_LAYERS];
    uint64_t last[MOST_LAYERS][MOST_EXPERTS]; /* activation or arrival, in order */
    uint64_t tokens[MOST_LAYERS][MOST_EXPERTS];
    long double value[MOST_LAYERS][MOST_EXPERTS];
    bool blocked[MOST_LAYERS][MOST_EXPERTS];
    uint64_t clock, step, total;
    uint64_t digest; /* of every answer */
};

static struct owner new_owner(enum sched_cache_kind kind, struct sched_cache_shape shape,
                              const struct sched_cache_options *options)
{
    struct owner o = {.kind = kind, .shape = shape};
    o.budget = options ? options->budget : sched_cache_budget(kind);
    o.cache = sched_cache_new(kind, &shape, options);
    assert_non_null(o.cache);
    return o;
}

static void tell(struct owner *o, uint32_t layer, uint32_t expert, uint32_t segments)
{
    uint32_t before = o->resident[layer][expert];
    if (before == 0 && segments)
        o->last[layer][expert] = ++o->clock;
    o->layer_resident[layer] += segments - before;
    o->total = o->total + segments - before;
    o->resident[layer][expert] = segments;
    sched_cache_resident(o->cache, layer, expert, segments);
    assert_int_equal(sched_cache_segments(o->cache, layer, expert), segments);
}

static void route(struct owner *o, uint32_t layer, const uint16_t *experts,
                  const uint16_t *workloads, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        o->last[layer][experts[i]] = ++o->clock;
        o->tokens[layer][experts[i]] += workloads[i];
        o->value[layer][experts[i]] += 1;
    }
    /* as memd does: a few at a time */
    for (uint32_t i = 0; i < n; i += 3)
        sched_cache_routed(o->cache, o->step, layer, experts + i, workloads + i,
                           n - i < 3 ? n - i : 3);
}

static void route_one(struct owner *o, uint32_t layer, uint16_t expert, uint16_t workload)
{
    route(o, layer, &expert, &workload, 1);
}

static bool is_blocked(void *arg, uint32_t layer, uint32_t expert)
{
    struct owner *o = arg;
    assert_true(layer < o->shape.n_layers && expert < o->shape.n_experts);
    return o->blocked[layer][expert];
}

static bool evictable(const struct owner *o, uint32_t for_layer, uint32_t for_expert,
                      uint32_t layer, uint32_t expert)
{
    return o->resident[layer][expert] && !o->blocked[layer][expert] &&
           (layer != for_layer || expert != for_expert);
}

static void note(struct owner *o, uint64_t answer)
{
    o->digest = (o->digest ^ answer) * 0x100000001b3u;
}

static bool ask_victim(struct owner *o, uint32_t layer, uint32_t expert, bool demanded,
                       uint32_t *victim_layer, uint32_t *victim_expert)
{
    bool found = sched_cache_victim(o->cache, layer, expert, demanded, 0, is_blocked, o,
                                    victim_layer, victim_expert);
    note(o, found ? 1000 + *victim_layer * 100 + *victim_expert : 7);
    return found;
}

static void expect_victim(struct owner *o, uint32_t layer, uint32_t expert, bool demanded,
                          uint32_t victim_layer, uint32_t victim_expert)
{
    uint32_t l = 99, e = 99;
    if (!ask_victim(o, layer, expert, demanded, &l, &e))
        fail_msg("no victim, not %u.%u", victim_layer, victim_expert);
    if (l != victim_layer || e != victim_expert)
        fail_msg("victim %u.%u, not %u.%u", l, e, victim_layer, victim_expert);
}

static void expect_no_victim(struct owner *o, uint32_t layer, uint32_t expert, bool demanded)
{
    uint32_t l, e;
    assert_false(ask_victim(o, layer, expert, demanded, &l, &e));
}

/* Everything that the policy wants by itself, while there is room. */
static void fill(struct owner *o)
{
    uint32_t layer, expert;
    while (sched_cache_wanted(o->cache, o->shape.capacity - o->total, &layer, &expert)) {
        assert_true(o->total < o->shape.capacity);
        assert_true(o->resident[layer][expert] < o->shape.n_segments);
        tell(o, layer, expert, o->resident[layer][expert] + 1);
    }
}

static struct sched_cache_shape shape(uint32_t layers, uint32_t experts, uint32_t segments,
                                      uint64_t capacity)
{
    return (struct sched_cache_shape){.n_layers = layers,
                                      .n_experts = experts,
                                      .n_segments = segments,
                                      .n_used = 2,
                                      .capacity = capacity};
}

/* "ondemand: no cache": loads are given up. What an earlier policy left goes, the oldest first. */
static void test_none(void **state)
{
    struct owner o = new_owner(CACHE_NONE, shape(2, 4, 2, 4), NULL);
    assert_false(sched_cache_keeps_loads(o.cache));
    expect_no_victim(&o, 0, 0, true);
    tell(&o, 1, 2, 2);
    tell(&o, 0, 3, 1);
    expect_victim(&o, 0, 0, true, 1, 2);
    expect_victim(&o, 1, 2, true, 0, 3); /* not itself */
    fill(&o);
    assert_int_equal(o.total, 3);
    sched_cache_free(o.cache);
}

/* "global LRU over all layers" */
static void test_lru(void **state)
{
    struct owner o = new_owner(CACHE_LRU, shape(2, 4, 2, 6), NULL);
    assert_true(sched_cache_keeps_loads(o.cache));
    tell(&o, 0, 0, 2);
    tell(&o, 0, 1, 2);
    tell(&o, 1, 0, 2);
    expect_victim(&o, 1, 3, true, 0, 0);
    o.step = 1;
    route_one(&o, 0, 0, 1);
    expect_victim(&o, 1, 3, true, 0, 1);
    tell(&o, 0, 1, 1);
    expect_victim(&o, 1, 3, false, 0, 1); /* the rest of the same */
    tell(&o, 0, 1, 0);
    expect_victim(&o, 1, 3, true, 1, 0);
    o.blocked[1][0] = true;
    expect_victim(&o, 1, 3, true, 0, 0);
    expect_no_victim(&o, 0, 0, true);
    sched_cache_free(o.cache);
}

/* Which budgets a cache takes: the rule of each says how it shares, lru's both. */
static void test_budgets(void **state)
{
    static const bool takes[N_KINDS][2] = {
        [CACHE_NONE] = {[BUDGET_GLOBAL] = true, [BUDGET_UNIFORM] = true},
        [CACHE_LRU] = {[BUDGET_GLOBAL] = true, [BUDGET_UNIFORM] = true},
        [CACHE_STATIC] = {[BUDGET_UNIFORM] = true},
        [CACHE_LFU] = {[BUDGET_UNIFORM] = true},
        [CACHE_DALI] = {[BUDGET_UNIFORM] = true},
        [CACHE_LAYERWISE] = {[BUDGET_GLOBAL] = true},
        [CACHE_VALUE] = {[BUDGET_GLOBAL] = true},
    };
    for (int kind = 0; kind < N_KINDS; kind++)
        for (int budget = 0; budget < 2; budget++)
            assert_int_equal(
                sched_cache_takes((enum sched_cache_kind)kind, (enum sched_budget)budget),
                takes[kind][budget]);
}

/* "lru, lfu per layer". Two layers, 4 segments each: layer 1 has its share and evicts its own,
 * although layer 0's are older. */
static void test_layered(void **state)
{
    struct owner o = new_owner(CACHE_LRU, shape(2, 4, 2, 8), &uniform);
    tell(&o, 0, 0, 2);
    tell(&o, 0, 1, 1);
    tell(&o, 1, 0, 2);
    tell(&o, 1, 1, 2);
    expect_victim(&o, 1, 3, true, 1, 0);
    o.step = 1;
    route_one(&o, 1, 0, 1);
    expect_victim(&o, 1, 3, true, 1, 1);
    tell(&o, 1, 2, 1); /* 5: one above its share; layer 0 has 3 */
    expect_victim(&o, 0, 3, true, 1, 1);
    o.blocked[1][0] = o.blocked[1][1] = o.blocked[1][2] = true;
    expect_no_victim(&o, 0, 3, false);
    expect_victim(&o, 0, 3, true, 0, 0); /* a load gets room wherever there is some */
    sched_cache_free(o.cache);

    o = new_owner(CACHE_LFU, shape(1, 4, 2, 6), NULL);
    o.step = 1;
    route_one(&o, 0, 0, 3);
    route_one(&o, 0, 1, 1);
    o.step = 2;
    route_one(&o, 0, 2, 3);
    route_one(&o, 0, 1, 1);
    tell(&o, 0, 0, 2);
    tell(&o, 0, 1, 2);
    tell(&o, 0, 2, 2);
    expect_victim(&o, 0, 3, true, 0, 1); /* 3, 2, 3 tokens */
    o.step = 3;
    route_one(&o, 0, 1, 9);
    expect_victim(&o, 0, 3, true, 0, 0); /* 3, 11, 3: the older of the two */
    sched_cache_free(o.cache);
}

/* "whole layers' experts on the device": 3 experts of 2 segments a layer, room for 15: two
 * layers. */
static void test_layerwise(void **state)
{
    struct sched_cache_shape s = shape(4, 3, 2, 15);
    s.first_layer = 1;
    struct owner o = new_owner(CACHE_LAYERWISE, s, NULL);
    assert_false(sched_cache_keeps_loads(o.cache));
    uint32_t l, e;
    assert_false(sched_cache_wanted(o.cache, 0, &l, &e)); /* no room, and nothing that could go */
    fill(&o);
    for (uint32_t layer = 0; layer < 4; layer++)
        for (uint32_t expert = 0; expert < 3; expert++)
            assert_int_equal(o.resident[layer][expert], layer == 1 || layer == 2 ? 2 : 0);
    tell(&o, 3, 1, 1); /* loaded on demand: the only one that goes of itself */
    expect_victim(&o, 3, 0, false, 3, 1);
    tell(&o, 3, 1, 0);
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
    for (o.step = 1; o.step < 200; o.step++) /* fixed, whatever comes */
        for (uint32_t layer = 0; layer < 2; layer++)
            route_one(&o, layer, 2, 100);
    fill(&o);
    expect_no_victim(&o, 0, 2, false);
    assert_int_equal(o.total, 10);
    sched_cache_free(o.cache);

    o = new_owner(CACHE_STATIC, shape(2, 4, 2, 10), NULL);
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

/* "every w_size steps swap the u_size highest-scored uncached with the u_size lowest-scored cached,
 * then zero the scores. Starts random." One layer, 6 experts, 3 cached; w_size 2, u_size 2. */
static void check_dali(bool guard)
{
    struct sched_cache_options options = {
        .budget = BUDGET_UNIFORM, .dali_w_size = 2, .dali_u_size = 2, .dali_guard = guard};
    struct owner o = new_owner(CACHE_DALI, shape(1, 6, 1, 3), &options);
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
    assert_false(sched_cache_wanted(o.cache, 1, &layer, &expert)); /* not after the first */
    o.step = 2;
    route_one(&o, 0, in[2], 6);
    route_one(&o, 0, out[1], 2);
    o.step = 3;
    route_one(&o, 0, in[0], 1);
    /* Pairs: 5 for 1, and 2 for 4, which with the guard is not done. */
    bool swapped[6] = {false};
    swapped[in[1]] = swapped[out[2]] = true;
    swapped[in[0]] = swapped[out[1]] = !guard;
    for (int i = 0; i < 2; i++)
        if (sched_cache_wanted(o.cache, 0, &layer, &expert)) {
            uint32_t l, e;
            assert_true(ask_victim(&o, layer, expert, false, &l, &e));
            tell(&o, l, e, 0);
            tell(&o, layer, expert, 1);
        }
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(o.resident[0][in[i]], !swapped[in[i]]);
        assert_int_equal(o.resident[0][out[i]], swapped[out[i]]);
    }
    assert_false(sched_cache_wanted(o.cache, 1, &layer, &expert));
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
    for (uint32_t i = 0; sched_cache_wanted(c, 1, &layer, &expert); i++) {
        assert_true(i < n_experts / 2);
        cached[expert] = true;
        sched_cache_resident(c, layer, expert, 1);
    }
    for (uint64_t step = 1; step <= 5; step++) {
        assert_false(sched_cache_wanted(c, 1, &layer, &expert));
        for (uint16_t i = 0; i < n_experts; i++)
            if (!cached[i])
                sched_cache_routed(c, step, 0, &i, &(uint16_t){1}, 1);
    }
    for (; sched_cache_wanted(c, 1, &layer, &expert); n_wanted++) {
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

/* Starts random: every expert is cached at first in about the share of the layers that the budget
 * allows. */
static void test_dali_random(void **state)
{
    struct sched_cache_shape s = shape(400, 8, 1, 400 * 2);
    struct sched_cache *c = sched_cache_new(CACHE_DALI, &s, NULL);
    uint32_t layer, expert, counts[8] = {0}, per_layer[400] = {0};
    while (sched_cache_wanted(c, 1, &layer, &expert)) {
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

/* Half-life of one step: an activation counts 1, 1/2, 1/4 ... In three steps expert 0 has 1/4 +
 * 1/2, expert 1 has 1, expert 2 has 1/4 + 1, expert 3 nothing. */
static void test_value(void **state)
{
    struct sched_cache_options options = {.value_half_life = 1};
    struct owner o = new_owner(CACHE_VALUE, shape(1, 4, 2, 6), &options);
    assert_true(sched_cache_keeps_loads(o.cache));
    uint32_t layer, expert;
    assert_false(sched_cache_wanted(o.cache, 6, &layer, &expert));
    o.step = 1;
    route(&o, 0, (const uint16_t[]){0, 2}, (const uint16_t[]){50, 1}, 2);
    o.step = 2;
    route(&o, 0, (const uint16_t[]){0}, (const uint16_t[]){1}, 1);
    o.step = 3;
    route(&o, 0, (const uint16_t[]){1, 2}, (const uint16_t[]){1, 1}, 2);
    static const uint32_t order[] = {2, 2, 1, 1, 0, 0};
    for (uint32_t i = 0; i < 6; i++) {
        assert_true(sched_cache_wanted(o.cache, 6 - i, &layer, &expert));
        assert_int_equal(expert, order[i]);
        tell(&o, 0, expert, o.resident[0][expert] + 1);
    }
    assert_false(sched_cache_wanted(o.cache, 1, &layer, &expert)); /* 3 was never seen */
    expect_no_victim(&o, 0, 3, false);
    expect_victim(&o, 0, 3, true, 0, 0);
    tell(&o, 0, 0, 0);
    assert_false(sched_cache_wanted(o.cache, 0, &layer, &expert)); /* no room */
    expect_no_victim(&o, 0, 0, false);                             /* 3/4 for 1: no */
    expect_victim(&o, 0, 0, true, 0, 1);
    o.step = 4;
    route_one(&o, 0, 0, 1); /* now 3/8 + 1, against 1/2 and 5/8 */
    expect_victim(&o, 0, 0, false, 0, 1);
    o.blocked[0][1] = true;
    expect_victim(&o, 0, 0, false, 0, 2);
    o.blocked[0][2] = true;
    expect_no_victim(&o, 0, 0, true);
    o.blocked[0][1] = o.blocked[0][2] = false;
    /* A prediction of 3, never seen, is worth its share of what all steps before this one would make,
     * 1/2 + 1/4 + ... = 1: against 1's 1/2. */
    assert_true(sched_cache_victim(o.cache, 0, 3, false, 0.6, is_blocked, &o, &layer, &expert));
    assert_int_equal(expert, 1);
    assert_false(sched_cache_victim(o.cache, 0, 3, false, 0.4, is_blocked, &o, &layer, &expert));
    sched_cache_free(o.cache);
}

/* The plain models: what may be the answer. */
static void check_against_model(const struct owner *o, uint32_t layer, uint32_t expert,
                                bool demanded, bool found, uint32_t victim_layer,
                                uint32_t victim_expert)
{
    const struct sched_cache_shape *s = &o->shape;
    uint32_t from = 0, to = s->n_layers;
    bool layered = (o->kind == CACHE_LRU && o->budget == BUDGET_UNIFORM) || o->kind == CACHE_LFU;
    if (layered) {
        uint64_t share = s->capacity / (s->n_layers - s->first_layer);
        from = layer;
        if (o->layer_resident[layer] < share || o->layer_resident[layer] == 0)
            for (uint32_t l = 0; l < s->n_layers; l++)
                if (o->layer_resident[l] > share && o->layer_resident[l] > o->layer_resident[from])
                    from = l;
        to = from + 1;
    }
    long double best = INFINITY;
    uint64_t best_last = UINT64_MAX;
    for (uint32_t l = from; l < to; l++)
        for (uint32_t e = 0; e < s->n_experts; e++) {
            if (!evictable(o, layer, expert, l, e))
                continue;
            long double key = o->kind == CACHE_LFU     ? (long double)o->tokens[l][e]
                              : o->kind == CACHE_VALUE ? o->value[l][e]
                                                       : 0;
            if (key < best || (key == best && o->last[l][e] < best_last)) {
                best = key;
                best_last = o->last[l][e];
            }
        }
    if (best == INFINITY) {
        assert_true(!found || (layered && demanded));
        return;
    }
    if (o->kind == CACHE_VALUE) {
        /* The model adds up in another order and to more digits. */
        long double slack = best * 1e-9L + 1e-140L, incoming = o->value[layer][expert];
        if (found)
            assert_true(o->value[victim_layer][victim_expert] <= best + slack);
        if (!demanded && found)
            assert_true(o->value[victim_layer][victim_expert] < incoming + slack);
        if (!found)
            assert_true(!demanded && best >= incoming - slack);
        return;
    }
    assert_true(found);
    assert_true(o->last[victim_layer][victim_expert] == best_last);
}

static void check_wanted(const struct owner *o, bool found, uint32_t layer, uint32_t expert)
{
    long double best = 0;
    if (o->kind != CACHE_VALUE)
        return;
    for (uint32_t l = 0; l < o->shape.n_layers; l++)
        for (uint32_t e = 0; e < o->shape.n_experts; e++)
            if (o->resident[l][e] < o->shape.n_segments && o->value[l][e] > best)
                best = o->value[l][e];
    if (found)
        assert_true(o->value[layer][expert] >= best * (1 - 1e-9L) - 1e-140L);
    else
        assert_true(best == 0);
}

static bool anything_evictable(const struct owner *o, uint32_t layer, uint32_t expert)
{
    for (uint32_t l = 0; l < o->shape.n_layers; l++)
        for (uint32_t e = 0; e < o->shape.n_experts; e++)
            if (evictable(o, layer, expert, l, e))
                return true;
    return false;
}

/* One more segment of an expert, making room for it where there is none. */
static bool load(struct owner *o, uint32_t layer, uint32_t expert, bool demanded)
{
    if (o->total == o->shape.capacity) {
        uint32_t l = 99, e = 99;
        bool found = ask_victim(o, layer, expert, demanded, &l, &e);
        if (found)
            assert_true(evictable(o, layer, expert, l, e)); /* never a blocked one */
        if (demanded)
            assert_true(found == anything_evictable(o, layer, expert));
        if (o->kind == CACHE_LRU || o->kind == CACHE_NONE || o->kind == CACHE_LFU ||
            o->kind == CACHE_VALUE)
            check_against_model(o, layer, expert, demanded, found, l, e);
        if (!found)
            return false;
        tell(o, l, e, o->resident[l][e] - 1);
    }
    tell(o, layer, expert, o->resident[layer][expert] + 1);
    assert_true(o->total <= o->shape.capacity);
    return true;
}

static void step_through(struct owner *o, double half_life)
{
    long double decay = exp2l(-1 / (long double)half_life);
    for (uint32_t l = 0; l < o->shape.n_layers; l++)
        for (uint32_t e = 0; e < o->shape.n_experts; e++)
            o->value[l][e] *= decay;
    o->step++;
    for (uint32_t l = o->shape.first_layer; l < o->shape.n_layers; l++) {
        uint16_t experts[8], workloads[8];
        uint32_t n = 0, first = below(o->shape.n_experts);
        for (uint32_t i = 0; i < o->shape.n_experts && n < 8;
             i++) /* some are activated more often */
            if (below(2 + i))
                continue;
            else {
                experts[n] = (uint16_t)((first * first + i) % o->shape.n_experts);
                workloads[n++] = (uint16_t)(1 + below(4));
            }
        if (n == 0) {
            experts[n] = (uint16_t)first;
            workloads[n++] = 1;
        }
        route(o, l, experts, workloads, n);
        memset(o->blocked, 0, sizeof o->blocked);
        for (uint32_t i = 0; i < n; i++) /* in use */
            o->blocked[l][experts[i]] = below(2);
        if (below(50) == 0)
            memset(o->blocked, 1, sizeof o->blocked);
        for (uint32_t i = 0; i < n; i++)
            while (o->resident[l][experts[i]] < o->shape.n_segments && below(4))
                if (!load(o, l, experts[i], below(3)))
                    break;
        uint32_t wanted_layer, wanted_expert;
        uint64_t room = o->shape.capacity - o->total;
        bool wanted = sched_cache_wanted(o->cache, room, &wanted_layer, &wanted_expert);
        note(o, wanted ? wanted_layer * 100 + wanted_expert : 3);
        if (room)
            check_wanted(o, wanted, wanted_layer, wanted_expert);
        if (wanted) {
            assert_true(o->resident[wanted_layer][wanted_expert] < o->shape.n_segments);
            assert_true(wanted_layer >= o->shape.first_layer);
            load(o, wanted_layer, wanted_expert, false);
        }
        if (!sched_cache_keeps_loads(o->cache) && below(2)) /* given up after their use */
            for (uint32_t i = 0; i < n; i++)
                if (o->resident[l][experts[i]])
                    tell(o, l, experts[i], o->resident[l][experts[i]] - 1);
    }
}

static uint64_t random_run(int variant, uint64_t seed, unsigned steps)
{
    static const double half_lives[] = {0.5, 4, 20};
    random_state = seed;
    struct sched_cache_shape s =
        shape(1 + below(MOST_LAYERS), 1 + below(MOST_EXPERTS), 1 + below(4), 0);
    s.first_layer = below(s.n_layers);
    s.capacity = 1 + below(s.n_layers * s.n_experts * s.n_segments);
    struct sched_cache_options options = {.budget = budget_of(variant),
                                          .value_half_life = half_lives[seed % 3],
                                          .dali_u_size = below(4)};
    struct owner o = new_owner(kind_of(variant), s, &options);
    for (unsigned i = 0; i < steps; i++)
        step_through(&o, options.value_half_life);
    sched_cache_free(o.cache);
    return o.digest;
}

static void test_random(void **state)
{
    for (int variant = 0; variant < N_VARIANTS; variant++)
        for (uint64_t seed = 1; seed <= 60; seed++)
            random_run(variant, seed, 150);
    /* Long enough for the values to be made smaller, many times. */
    for (uint64_t seed = 1; seed <= 10; seed++)
        random_run(CACHE_VALUE, seed, 5000);
}

static void test_deterministic(void **state)
{
    for (int variant = 0; variant < N_VARIANTS; variant++) {
        uint64_t first = random_run(variant, 99, 200);
        assert_true(random_run(variant, 99, 200) == first);
        assert_true(random_run(variant, 98, 200) != first);
    }
}

/* DALI's cached set over many swaps, against the rule carried out on plain arrays. */
static void test_dali_model(void **state)
{
    enum { N = 20, CACHED = 7, W = 3, U = 4 };
    struct sched_cache_options options = {
        .budget = BUDGET_UNIFORM, .dali_w_size = W, .dali_u_size = U};
    struct owner o = new_owner(CACHE_DALI, shape(1, N, 2, 2 * CACHED), &options);
    random_state = 5;
    fill(&o);
    bool cached[N];
    uint32_t scores[N] = {0};
    for (uint32_t i = 0; i < N; i++)
        cached[i] = o.resident[0][i] == 2;
    for (o.step = 1; o.step <= 600; o.step++) {
        for (uint16_t k = 0; k < 5; k++) {
            uint16_t expert = (uint16_t)((o.step * 3 + k * 7 + below(2)) % N);
            uint16_t tokens = (uint16_t)(1 + below(5));
            route_one(&o, 0, expert, tokens);
            scores[expert] += tokens;
        }
        if (o.step % W)
            continue;
        bool new_cached[N];
        memcpy(new_cached, cached, sizeof cached);
        for (uint32_t u = 0; u < U; u++) {
            uint32_t in = N, out = N;
            for (uint32_t i = 0; i < N; i++) {
                if (!cached[i] && !new_cached[i] && (in == N || scores[i] > scores[in]))
                    in = i;
                if (cached[i] && new_cached[i] && (out == N || scores[i] < scores[out]))
                    out = i;
            }
            new_cached[in] = true;
            new_cached[out] = false;
        }
        memcpy(cached, new_cached, sizeof cached);
        memset(scores, 0, sizeof scores);
        /* The step is over when the next begins; a route of nothing begins it. */
        sched_cache_routed(o.cache, o.step + 1, 0, NULL, NULL, 0);
        uint32_t layer, expert, l, e;
        while (sched_cache_wanted(o.cache, o.shape.capacity - o.total, &layer, &expert))
            assert_true(load(&o, layer, expert, false));
        assert_false(ask_victim(&o, 0, cached[0] ? 1 : 0, false, &l, &e));
        for (uint32_t i = 0; i < N; i++)
            assert_int_equal(o.resident[0][i], cached[i] ? 2 : 0);
    }
    sched_cache_free(o.cache);
}

/* Layers of different segments; and input that makes no sense is not taken. */
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
    for (int variant = 0; variant < N_VARIANTS; variant++) {
        struct sched_cache *c =
            sched_cache_new(kind_of(variant), &s, variant == LRU_UNIFORM ? &uniform : NULL);
        uint16_t experts[] = {3, 4, 65535}, workloads[] = {1, 1, 1};
        sched_cache_routed(c, 1, 1, experts, workloads, 3);
        sched_cache_routed(c, 1, 0, experts, workloads, 3);
        sched_cache_routed(c, 1, 3, experts, workloads, 3);
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

/* Others at each call. */
static bool one_in_four(void *arg, uint32_t layer, uint32_t expert)
{
    const uint32_t *call = arg;
    return ((layer * 512 + expert + *call * 77) * 2654435761u >> 24) % 4 == 0;
}

/* Microseconds of each call on the largest models; for the reader of the log. */
static void test_speed(void **state)
{
    enum { L = 60, N = 512, S = 4, USED = 8, STEPS = 300 };
    struct sched_cache_shape s = shape(L, N, S, (uint64_t)L * N * S / 4);
    for (int variant = 0; variant < N_VARIANTS; variant++) {
        struct sched_cache *c =
            sched_cache_new(kind_of(variant), &s, variant == LRU_UNIFORM ? &uniform : NULL);
        double routed = 0, victim = 0, wanted = 0;
        uint64_t total = 0, victims = 0, wants = 0;
        uint32_t l, e, call = 0;
        random_state = 3;
        for (uint64_t step = 1; step <= STEPS; step++)
            for (uint32_t layer = 0; layer < L; layer++) {
                uint16_t experts[USED], workloads[USED];
                for (uint32_t i = 0; i < USED; i++) {
                    uint32_t x = below(N), y = below(N);
                    experts[i] = (uint16_t)(x < y ? x : y);
                    workloads[i] = 1;
                }
                double t0 = clock_s();
                sched_cache_routed(c, step, layer, experts, workloads, USED);
                double t1 = clock_s();
                bool want = sched_cache_wanted(c, s.capacity - total, &l, &e);
                double t2 = clock_s();
                routed += t1 - t0;
                wanted += t2 - t1;
                wants++;
                for (uint32_t i = 0; i < S && want && total < s.capacity; i++, total++)
                    sched_cache_resident(c, l, e, sched_cache_segments(c, l, e) + 1);
                uint32_t layer_to = layer, expert_to = experts[0];
                uint32_t there = sched_cache_segments(c, layer_to, expert_to);
                if (there == S)
                    continue;
                bool room = total < s.capacity;
                if (!room) {
                    t0 = clock_s();
                    room = sched_cache_victim(c, layer_to, expert_to, true, 0, one_in_four, &call,
                                              &l, &e);
                    victim += clock_s() - t0;
                    victims++;
                    call++;
                    assert_true(room);
                    sched_cache_resident(c, l, e, sched_cache_segments(c, l, e) - 1);
                    total--;
                }
                uint32_t segments = there + 1;
                for (; segments < S && total + 1 < s.capacity; segments++)
                    total++;
                sched_cache_resident(c, layer_to, expert_to, segments);
                total++;
            }
        print_message("%-9s%s routed %.2f, wanted %.2f, victim %.2f microseconds (%llu)\n",
                      sched_cache_name(kind_of(variant)),
                      variant == LRU_UNIFORM ? " (uniform)" : "", routed * 1e6 / (STEPS * L),
                      wanted * 1e6 / (double)wants, victims ? victim * 1e6 / (double)victims : 0,
                      (unsigned long long)victims);
        sched_cache_free(c);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_none),        cmocka_unit_test(test_lru),
        cmocka_unit_test(test_layered),     cmocka_unit_test(test_layerwise),
        cmocka_unit_test(test_budgets),     cmocka_unit_test(test_static),
        cmocka_unit_test(test_dali),        cmocka_unit_test(test_dali_defaults),
        cmocka_unit_test(test_dali_random), cmocka_unit_test(test_value),
        cmocka_unit_test(test_random),      cmocka_unit_test(test_deterministic),
        cmocka_unit_test(test_dali_model),  cmocka_unit_test(test_shapes),
        cmocka_unit_test(test_speed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
