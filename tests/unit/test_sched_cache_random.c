/* lib/sched's cache policies: random runs of an owner that obeys its policy. The test compares
 * every answer with a plain model in this file, and prints how long the calls take. */
#include "cache_owner.h"
#include "random_numbers.h"

#include "base/clock.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* The value by which the policy chooses the least; 0 if only the age counts. */
static long double model_key(const struct owner *o, uint32_t l, uint32_t e)
{
    switch (o->kind) {
    case CACHE_LFU:
        return (long double)o->tokens[l][e];
    case CACHE_VALUE:
        return fmaxl(o->value[l][e] + o->usual[l][e], o->upcoming[l][e]);
    case CACHE_LCP: /* P = mu rho^(nu / omega) */
        return (long double)o->tokens[l][e] *
               powl(0.25L, (long double)(o->layer_tokens[l] - o->token[l][e]) / 128);
    case CACHE_SCORE:
        return o->score[l][e];
    case CACHE_MAP_FREQUENCY: /* p freq, freq with one more and p at least a ten thousandth */
        return (1 + o->visits[l][e]) * (long double)fmaxf((float)o->probability[l][e], 1e-4f);
    default:
        return 0;
    }
}

/* By the place in the step: a coming layer's experts count as much as if two steps less had passed,
 * and a layer more, the sooner its turn comes: up to a fifth, evenly over the layers, nothing for
 * the one routed last. */
static long double by_turn(const struct owner *o, uint32_t layer)
{
    if (o->kind != CACHE_VALUE)
        return 1;
    uint32_t n = o->shape.n_layers, others_first = (layer + n - o->routed_layer - 1) % n;
    long double missing = layer > o->routed_layer ? 1 / (o->decay * o->decay) : 1;
    return missing * (1.2L - 0.2L * (1 + others_first) / n);
}

/* True if `layer` follows the routed layer in such a step, nothing is predicted of it, and what
 * that one lacked was activated by two tokens each or more, on average. */
static bool is_coming(const struct owner *o, uint32_t layer)
{
    bool coming = uses_most(o) && layer == o->routed_layer + 1 && layer < o->shape.n_layers &&
                  o->layer_ratio >= 2;
    for (uint32_t e = 0; coming && e < o->shape.n_experts; e++)
        coming = o->upcoming[layer][e] == 0;
    return coming;
}

/* True if in such a step some layer up to the routed one has a segment that can be evicted: then
 * the victim comes from these. */
static bool passed_may_go(const struct owner *o, uint32_t layer, uint32_t expert)
{
    for (uint32_t l = 0; l <= o->routed_layer && uses_most(o); l++)
        for (uint32_t e = 0; e < o->shape.n_experts; e++)
            if (evictable(o, layer, expert, l, e))
                return true;
    return false;
}

/* The plain models: the possible answers. */
static void check_against_model(const struct owner *o, uint32_t layer, uint32_t expert,
                                bool demanded, bool found, uint32_t victim_layer,
                                uint32_t victim_expert)
{
    const struct sched_cache_shape *s = &o->shape;
    uint32_t from = 0, to = s->n_layers;
    bool layered = o->budget == BUDGET_UNIFORM && o->kind != CACHE_NONE;
    if (layered) {
        uint64_t share = s->capacity / (s->n_layers - s->first_layer);
        if (o->kind == CACHE_LCP && share > s->n_experts * s->n_segments)
            share = s->n_experts * s->n_segments;
        from = layer;
        if (o->layer_resident[layer] < share || o->layer_resident[layer] == 0)
            for (uint32_t l = 0; l < s->n_layers; l++)
                if (o->layer_resident[l] > share && o->layer_resident[l] > o->layer_resident[from])
                    from = l;
        to = from + 1;
        if (o->kind == CACHE_LCP && !demanded && from == layer &&
            o->layer_resident[layer] < share) {
            assert_false(found); /* below its share a layer loses no segment */
            return;
        }
    }
    bool coming = o->kind == CACHE_VALUE && !demanded && is_coming(o, layer);
    if (o->kind == CACHE_VALUE && (coming || passed_may_go(o, layer, expert)))
        to = o->routed_layer + 1;
    long double best = INFINITY;
    uint64_t best_last = UINT64_MAX;
    for (uint32_t l = from; l < to; l++)
        for (uint32_t e = 0; e < s->n_experts; e++) {
            if (!evictable(o, layer, expert, l, e))
                continue;
            long double key = model_key(o, l, e) * by_turn(o, l);
            if (key < best || (key == best && o->last[l][e] < best_last)) {
                best = key;
                best_last = o->last[l][e];
            }
        }
    if (best == INFINITY) {
        assert_true(!found || (layered && demanded));
        return;
    }
    if (o->kind == CACHE_LCP || o->kind == CACHE_SCORE || o->kind == CACHE_MAP_FREQUENCY) {
        /* The model adds up in another order and to more digits; and during a step lcp takes the
         * tokens reported so far. */
        long double slack = o->kind == CACHE_LCP ? exp2l(2.0L / 128 * 16) : 1 + 1e-9L;
        long double got = found ? model_key(o, victim_layer, victim_expert) : INFINITY;
        if (got > best * slack + 1e-140L)
            fail_msg("%s: %Lg goes, %Lg is there", sched_cache_name(o->kind), got, best);
        return;
    }
    if (o->kind == CACHE_VALUE) {
        /* The model adds up in another order and to more digits. */
        long double slack = best * 1e-9L + 1e-140L;
        long double incoming = coming ? INFINITY : model_key(o, layer, expert) * by_turn(o, layer);
        long double goes =
            found ? model_key(o, victim_layer, victim_expert) * by_turn(o, victim_layer) : 0;
        if (found)
            assert_true(goes <= best + slack);
        if (!demanded && found)
            assert_true(goes < incoming + slack);
        if (!found)
            assert_true(!demanded && best >= incoming - slack);
        return;
    }
    assert_true(found);
    assert_true(o->last[victim_layer][victim_expert] == best_last);
}

static bool lacks_some(const struct owner *o, uint32_t layer)
{
    for (uint32_t e = 0; layer < o->shape.n_layers && e < o->shape.n_experts; e++)
        if (o->resident[layer][e] < o->shape.n_segments)
            return true;
    return false;
}

static unsigned exchanges; /* of all runs */

static void check_wanted(const struct owner *o, bool found, uint32_t layer, uint32_t expert)
{
    long double best = 0;
    uint32_t from = 0, to = o->shape.n_layers, next = o->routed_layer + 1;
    if (o->kind != CACHE_VALUE)
        return;
    if (is_coming(o, next) && lacks_some(o, next)) {
        assert_true(found && layer == next);
        from = next;
        to = next + 1;
    } else if (o->total == o->shape.capacity) {
        assert_false(found);
        return;
    }
    for (uint32_t l = from; l < to; l++)
        for (uint32_t e = 0; e < o->shape.n_experts; e++)
            if (o->resident[l][e] < o->shape.n_segments && model_key(o, l, e) > best)
                best = model_key(o, l, e);
    if (found)
        assert_true(model_key(o, layer, expert) >= best * (1 - 1e-9L) - 1e-140L);
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

/* Adds one more segment of an expert, after an eviction if no slot is free. */
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
            o->kind == CACHE_VALUE || o->kind == CACHE_LRU_PREFETCH || o->kind == CACHE_SCORE ||
            o->kind == CACHE_MAP_FREQUENCY || (o->kind == CACHE_LCP && o->budget == BUDGET_UNIFORM))
            check_against_model(o, layer, expert, demanded, found, l, e);
        if (!found)
            return false;
        report(o, l, e, o->resident[l][e] - 1);
    }
    report(o, layer, expert, o->resident[layer][expert] + 1);
    assert_true(o->total <= o->shape.capacity);
    return true;
}

/* The gate's probabilities for the experts of a layer, and the predicted activations of the next
 * layer. */
static void report_more(struct owner *o, uint32_t l, const uint16_t *experts, uint32_t n,
                        double alpha, long double always)
{
    uint32_t reads = sched_cache_reads(o->kind), next = l + 1 < o->shape.n_layers ? l + 1 : l;
    float numbers[8];
    for (uint32_t i = 0; i < n; i++)
        numbers[i] = (float)(1 + below(1000)) / 1000;
    for (uint32_t e = 0; e < o->shape.n_experts; e++)
        o->score[l][e] *= 1 - (long double)alpha;
    if (reads & CACHE_READS_SCORES)
        for (uint32_t i = 0; i < n; i++) {
            o->score[l][experts[i]] += (long double)alpha * (long double)numbers[i];
            sched_cache_scored(o->cache, l, &experts[i], &numbers[i], 1);
        }
    if (next == l || !(reads & CACHE_READS_PREDICTIONS) || below(3) == 0)
        return;
    memset(o->probability[next], 0, sizeof o->probability[next]);
    for (uint32_t i = 0; i < n; i++) {
        uint16_t expert = (uint16_t)((experts[i] * 5 + i) % o->shape.n_experts);
        o->probability[next][expert] = (double)numbers[i];
        o->upcoming[next][expert] = 4 * (long double)numbers[i] * always; /* PREDICTED_COUNTS */
        if (o->kind == CACHE_LRU_PREFETCH && o->resident[next][expert])
            o->last[next][expert] = ++o->clock;
        sched_cache_predicted(o->cache, o->step, next, &expert, &numbers[i], 1);
    }
}

/* What is exchanged can be copied, and finds a victim. */
static void exchange(struct owner *o)
{
    uint32_t layer, expert;
    if (!sched_cache_exchange(o->cache, 0.001 * below(100), is_blocked, NULL, o, &layer, &expert))
        return;
    assert_int_equal(o->kind, CACHE_VALUE);
    assert_true(!o->prompt && layer >= o->shape.first_layer);
    assert_true(o->resident[layer][expert] < o->shape.n_segments);
    note(o, 5000 + layer * 100 + expert);
    assert_true(load(o, layer, expert, false));
    exchanges++;
}

static void step_through(struct owner *o, double half_life, double alpha)
{
    long double decay = exp2l(-1 / (long double)half_life);
    for (uint32_t l = 0; l < o->shape.n_layers; l++)
        for (uint32_t e = 0; e < o->shape.n_experts; e++)
            o->value[l][e] *= decay, o->usual[l][e] *= decay;
    o->step++;
    uint16_t tokens = o->kind == CACHE_VALUE && below(2) ? 20 : 1;
    o->prompt = below(2);
    for (uint32_t l = o->shape.first_layer; l < o->shape.n_layers; l++) {
        uint16_t experts[8], workloads[8];
        uint32_t n = 0, first = below(o->shape.n_experts);
        for (uint32_t i = 0; i < o->shape.n_experts && n < 8;
             i++) /* some are activated more often */
            if (below(2 + i))
                continue;
            else {
                experts[n] = (uint16_t)((first * first + i) % o->shape.n_experts);
                workloads[n++] = (uint16_t)(tokens * (1 + below(4)));
            }
        if (n == 0) {
            experts[n] = (uint16_t)first;
            workloads[n++] = 1;
        }
        route(o, l, experts, workloads, n);
        report_more(o, l, experts, n, alpha, decay / (1 - decay));
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
        uint64_t capacity = o->shape.capacity - o->total;
        bool wanted =
            sched_cache_wanted(o->cache, capacity, NULL, NULL, &wanted_layer, &wanted_expert);
        note(o, wanted ? wanted_layer * 100 + wanted_expert : 3);
        check_wanted(o, wanted, wanted_layer, wanted_expert);
        if (wanted) {
            assert_true(o->resident[wanted_layer][wanted_expert] < o->shape.n_segments);
            assert_true(wanted_layer >= o->shape.first_layer);
            load(o, wanted_layer, wanted_expert, false);
        }
        exchange(o);
        if (!sched_cache_keeps_loads(o->cache) && below(2)) /* given up after their use */
            for (uint32_t i = 0; i < n; i++)
                if (o->resident[l][experts[i]])
                    report(o, l, experts[i], o->resident[l][experts[i]] - 1);
    }
}

/* Arbitrary, but the same for the same seed. */
static uint64_t made_up_future(void *arg, uint32_t layer, uint32_t expert)
{
    const struct owner *o = arg;
    return (o->step * 977 + layer * 31 + expert * 7919) % 10007;
}

static uint64_t random_run(enum sched_cache_kind kind, enum sched_budget budget, uint64_t seed,
                           unsigned steps)
{
    static const double half_lives[] = {0.5, 4, 20};
    random_state = seed;
    struct sched_cache_shape s =
        shape(1 + below(MOST_LAYERS), 1 + below(MOST_EXPERTS), 1 + below(4), 0);
    s.first_layer = below(s.n_layers);
    s.capacity = 1 + below(s.n_layers * s.n_experts * s.n_segments);
    struct owner o;
    struct sched_cache_options options = {.budget = budget,
                                          .value_half_life = half_lives[seed % 3],
                                          .dali_u_size = below(4),
                                          .score_alpha = seed % 2 ? 0.3 : 0.7,
                                          .next_use = made_up_future,
                                          .next_use_arg = &o,
                                          .seed = seed};
    o = new_owner(kind, s, &options);
    o.decay = exp2l(-1 / (long double)options.value_half_life);
    if (kind == CACHE_VALUE)
        sched_cache_costs(o.cache, &(struct sched_cache_costs){.cpu_s = 1}); /* counts by steps */
    for (unsigned i = 0; i < steps; i++)
        step_through(&o, options.value_half_life, options.score_alpha);
    sched_cache_free(o.cache);
    return o.digest;
}

static void test_random(void **state)
{
    enum sched_cache_kind kind;
    enum sched_budget budget;
    for (uint32_t i = 0; variant_at(i, &kind, &budget); i++)
        for (uint64_t seed = 1; seed <= 60; seed++)
            random_run(kind, budget, seed, 150);
    /* Long enough for the cache to scale its values down many times, and to change
     * configurations. */
    for (uint64_t seed = 1; seed <= 10; seed++) {
        random_run(CACHE_VALUE, BUDGET_GLOBAL, seed, 5000);
        random_run(CACHE_SCORE, BUDGET_UNIFORM, seed, 5000);
        random_run(CACHE_LCP, BUDGET_CONFIGURED, seed, 3000);
    }
    assert_true(exchanges > 100);
}

static void test_deterministic(void **state)
{
    enum sched_cache_kind kind;
    enum sched_budget budget;
    for (uint32_t i = 0; variant_at(i, &kind, &budget); i++) {
        uint64_t first = random_run(kind, budget, 99, 200);
        assert_true(random_run(kind, budget, 99, 200) == first);
        assert_true(random_run(kind, budget, 98, 200) != first);
    }
}

/* DALI's cached set over many swaps, compared with the rule on plain arrays. */
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
        /* A step ends when the next begins; a route of no experts begins the next. */
        sched_cache_routed(o.cache, o.step + 1, 0, false, NULL, NULL, 0);
        uint32_t layer, expert, l, e;
        while (sched_cache_wanted(o.cache, o.shape.capacity - o.total, NULL, NULL, &layer, &expert))
            assert_true(load(&o, layer, expert, false));
        assert_false(ask_victim(&o, 0, cached[0] ? 1 : 0, false, &l, &e));
        for (uint32_t i = 0; i < N; i++)
            assert_int_equal(o.resident[0][i], cached[i] ? 2 : 0);
    }
    sched_cache_free(o.cache);
}

/* Whole experts, demanded one after the other. */
struct demand_trace {
    uint32_t n, n_layers, n_experts;
    uint8_t layer[3000], expert[3000];
    uint32_t now;
};

static uint64_t next_in_trace(void *arg, uint32_t layer, uint32_t expert)
{
    const struct demand_trace *t = arg;
    for (uint32_t i = t->now + 1; i < t->n; i++)
        if (t->layer[i] == layer && t->expert[i] == expert)
            return i;
    return UINT64_MAX;
}

static uint32_t misses(struct demand_trace *t, enum sched_cache_kind kind, enum sched_budget budget,
                       uint32_t capacity)
{
    struct sched_cache_shape s = shape(t->n_layers, t->n_experts, 1, capacity);
    struct sched_cache_options options = {
        .budget = budget, .next_use = next_in_trace, .next_use_arg = t, .seed = 5};
    struct sched_cache *c = sched_cache_new(kind, &s, &options);
    uint32_t missed = 0, total = 0, l, e;
    for (t->now = 0; t->now < t->n; t->now++) {
        uint16_t expert = t->expert[t->now];
        uint32_t layer = t->layer[t->now];
        sched_cache_routed(c, t->now / t->n_layers + 1, layer, false, &expert, &(uint16_t){1}, 1);
        if (sched_cache_segments(c, layer, expert))
            continue;
        missed++;
        if (total == capacity) {
            if (!sched_cache_victim(c, layer, expert, true, 0, NULL, NULL, &l, &e))
                fail_msg("%s %s: no victim", sched_cache_name(kind), sched_budget_name(budget));
            sched_cache_resident(c, l, e, 0);
            total--;
        }
        total++;
        sched_cache_resident(c, layer, expert, 1);
        if (!sched_cache_keeps_loads(c)) {
            sched_cache_resident(c, layer, expert, 0);
            total--;
        }
    }
    sched_cache_free(c);
    return missed;
}

/* "Belady never worse than any cache": with global shares than any cache at all, with equal shares
 * than any cache that keeps to them, if every load is on demand. */
static void test_belady(void **state)
{
    static struct demand_trace t;
    uint32_t sum[CACHE_KINDS][BUDGET_KINDS] = {{0}};
    enum sched_cache_kind kind;
    enum sched_budget budget;
    random_state = 11;
    for (uint32_t round = 0; round < 40; round++) {
        t.n_layers = 1 + below(3);
        t.n_experts = 4 + below(12);
        t.n = 500 + below(500);
        for (uint32_t i = 0; i < t.n; i++) {
            uint32_t x = below(t.n_experts), y = below(t.n_experts), recent = 1 + below(20);
            t.layer[i] = (uint8_t)(i % t.n_layers);
            t.expert[i] =
                (uint8_t)(below(2) && i >= recent * t.n_layers ? t.expert[i - recent * t.n_layers]
                          : x < y                              ? x
                                                               : y);
        }
        uint32_t share = 1 + below(t.n_experts - 1), capacity = share * t.n_layers;
        uint32_t everywhere = misses(&t, CACHE_BELADY, BUDGET_GLOBAL, capacity);
        uint32_t in_shares = misses(&t, CACHE_BELADY, BUDGET_UNIFORM, capacity);
        for (uint32_t i = 0; variant_at(i, &kind, &budget); i++) {
            uint32_t got = misses(&t, kind, budget, capacity);
            sum[kind][budget] += got;
            if (got < everywhere || (t.n_layers == 1 && got < in_shares))
                fail_msg("round %u: %s %s misses %u, belady %u and %u", round,
                         sched_cache_name(kind), sched_budget_name(budget), got, everywhere,
                         in_shares);
        }
    }
    for (uint32_t i = 0; variant_at(i, &kind, &budget); i++)
        print_message("%-13s %-10s %u misses\n", sched_cache_name(kind), sched_budget_name(budget),
                      sum[kind][budget]);
}

/* Returns other experts at each call. */
static bool one_in_four(void *arg, uint32_t layer, uint32_t expert)
{
    const uint32_t *call = arg;
    return ((layer * 512 + expert + *call * 77) * 2654435761u >> 24) % 4 == 0;
}

/* Prints the microseconds of each call on the largest models. */
static void test_speed(void **state)
{
    enum { L = 60, N = 512, S = 4, USED = 8, STEPS = 300 };
    struct sched_cache_shape s = shape(L, N, S, (uint64_t)L * N * S / 4);
    enum sched_cache_kind kind;
    struct sched_cache_options options = {0};
    for (uint32_t n = 0; variant_at(n, &kind, &options.budget); n++) {
        struct sched_cache *c = sched_cache_new(kind, &s, &options);
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
                sched_cache_routed(c, step, layer, false, experts, workloads, USED);
                double t1 = clock_s();
                bool want = sched_cache_wanted(c, s.capacity - total, NULL, NULL, &l, &e);
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
                bool capacity = total < s.capacity;
                if (!capacity) {
                    t0 = clock_s();
                    capacity = sched_cache_victim(c, layer_to, expert_to, true, 0, one_in_four,
                                                  &call, &l, &e);
                    victim += clock_s() - t0;
                    victims++;
                    call++;
                    assert_true(capacity);
                    sched_cache_resident(c, l, e, sched_cache_segments(c, l, e) - 1);
                    total--;
                }
                uint32_t segments = there + 1;
                for (; segments < S && total + 1 < s.capacity; segments++)
                    total++;
                sched_cache_resident(c, layer_to, expert_to, segments);
                total++;
            }
        print_message("%-13s %-10s routed %.2f, wanted %.2f, victim %.2f microseconds (%llu)\n",
                      sched_cache_name(kind), sched_budget_name(options.budget),
                      routed * 1e6 / (STEPS * L), wanted * 1e6 / (double)wants,
                      victims ? victim * 1e6 / (double)victims : 0, (unsigned long long)victims);
        sched_cache_free(c);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random),     cmocka_unit_test(test_deterministic),
        cmocka_unit_test(test_dali_model), cmocka_unit_test(test_belady),
        cmocka_unit_test(test_speed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
