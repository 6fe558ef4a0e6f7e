/* lib/sched/cache/half_lives.c against its definition in plain arrays, and the cache `value` on
 * texts of which the locality changes. */
#include "cache_owner.h"
#include "random_numbers.h"

#include "sched/cache/half_lives.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { EXPERTS = 40, KEPT = 12, USED = 4 };

/* ---- The definition ---- */

struct model {
    long double count[HALF_LIVES][EXPERTS], threshold[HALF_LIVES], tied[HALF_LIVES];
    long double hits[HALF_LIVES];
    bool loaded[EXPERTS]; /* all misses are loaded: the same for all half-lives */
};

static long double model_decay(uint32_t i)
{
    return exp2l(-1 / (long double)(1u << i));
}

static void model_activate(struct model *m, uint32_t i, uint32_t expert)
{
    long double count = m->count[i][expert], slack = 1e-9L * m->threshold[i];
    if (m->loaded[expert])
        m->hits[i] += count > m->threshold[i] + slack    ? 1
                      : count >= m->threshold[i] - slack ? m->tied[i]
                                                         : 0;
    m->count[i][expert] += 1;
}

/* The KEPT-th largest count of the experts that were loaded, by counting how many are larger. */
static void model_threshold(struct model *m, uint32_t i)
{
    uint32_t loaded = 0;
    m->threshold[i] = 0;
    m->tied[i] = 1;
    for (uint32_t e = 0; e < EXPERTS; e++)
        loaded += m->loaded[e];
    for (uint32_t e = 0; loaded > KEPT && e < EXPERTS; e++) {
        uint32_t above = 0, equal = 0;
        for (uint32_t f = 0; f < EXPERTS && m->loaded[e]; f++) {
            long double difference = m->count[i][f] - m->count[i][e];
            long double slack = 1e-9L * m->count[i][e];
            above += m->loaded[f] && difference > slack;
            equal += m->loaded[f] && fabsl(difference) <= slack;
        }
        if (m->loaded[e] && above < KEPT && above + equal >= KEPT) {
            m->threshold[i] = m->count[i][e];
            m->tied[i] = (long double)(KEPT - above) / equal;
        }
    }
}

static void model_step(struct model *m, const uint32_t *experts)
{
    for (uint32_t i = 0; i < HALF_LIVES; i++)
        for (uint32_t k = 0; k < USED; k++)
            model_activate(m, i, experts[k]);
    for (uint32_t k = 0; k < USED; k++)
        m->loaded[experts[k]] = true;
    for (uint32_t i = 0; i < HALF_LIVES; i++) {
        model_threshold(m, i);
        m->threshold[i] *= model_decay(i);
        m->hits[i] *= exp2l(-1 / 64.0L);
        for (uint32_t e = 0; e < EXPERTS; e++)
            m->count[i][e] *= model_decay(i);
    }
}

/* USED different experts: those of the step before with probability `stay`, else any, the first
 * ones more often. */
static void draw(uint32_t *experts, uint32_t n_experts, double stay)
{
    for (uint32_t k = 0; k < USED; k++) {
        bool again = between(0, 1) < stay;
        for (bool taken = !again; taken;) {
            double u = between(0, 1);
            experts[k] = (uint32_t)(u * u * n_experts);
            taken = false;
            for (uint32_t j = 0; j < USED; j++)
                taken |= j != k && experts[j] == experts[k];
        }
    }
}

static void test_definition(void **state)
{
    for (uint64_t seed = 1; seed <= 20; seed++) {
        struct model m = {0};
        struct half_lives h;
        uint32_t experts[USED] = {0, 1, 2, 3};
        random_state = seed;
        assert_true(half_lives_init(&h, EXPERTS, KEPT, 0));
        for (uint32_t step = 0; step < 60; step++) { /* while all thresholds are found */
            draw(experts, EXPERTS, (double)seed / 20);
            for (uint32_t k = 0; k < USED; k++)
                half_lives_count(&h, experts[k], 1, false);
            half_lives_layer_over(&h, true);
            half_lives_step_over(&h);
            model_step(&m, experts);
            for (uint32_t i = 0; i < HALF_LIVES; i++) {
                assert_true(fabsl((long double)h.of[i].hits - m.hits[i]) <= 1e-6L);
                for (uint32_t e = 0; e < EXPERTS; e++)
                    assert_true(fabsl((long double)(h.counts[e][i] / h.of[i].now) -
                                      m.count[i][e]) <= 1e-9L);
            }
        }
        half_lives_fini(&h);
    }
}

/* A half-life of 1 scales its counts down every 500 steps, and they stay what they were. */
static void test_scaling(void **state)
{
    struct half_lives h;
    uint32_t scaled = 0;
    assert_true(half_lives_init(&h, EXPERTS, KEPT, 1));
    for (uint32_t step = 0; step < 2600; step++) {
        half_lives_count(&h, step % 2, 1, false);
        half_lives_layer_over(&h, true);
        assert_true(fabs(half_lives_recent(&h, step % 2) / half_lives_used(&h)->now -
                         4 * (1 - exp2(-2.0 * (step / 2 + 1))) / 3) < 1e-9);
        enum half_lives_change change = half_lives_step_over(&h);
        assert_true(change != HALF_LIVES_CHANGED);
        scaled += change == HALF_LIVES_RESCALED;
    }
    assert_int_equal(scaled, 5);
    half_lives_fini(&h);
}

/* Only a third of the misses is loaded, so what comes once is seldom found; and a step that uses
 * most of a layer gives no hits. */
static void test_share(void **state)
{
    struct half_lives h;
    assert_true(half_lives_init(&h, 3, 3, 0));
    half_lives_missed(&h, 3);
    half_lives_arrived(&h, 1);
    half_lives_step_over(&h);
    assert_true(fabs(h.share_loaded - 1.0 / 3) < 1e-12);
    for (uint32_t round = 0; round < 2; round++) {
        for (uint32_t e = 0; e < 3; e++)
            half_lives_count(&h, e, 1, false);
        half_lives_layer_over(&h, round == 0);
    }
    uint32_t found = 0;
    for (uint32_t e = 0; e < 3; e++)
        found += h.loaded[e] & 1;
    assert_in_range(found, 1, 2);
    assert_true(h.of[0].hits == 0);
    half_lives_fini(&h);
}

/* ---- The cache ---- */

enum { LAYERS = 4, MANY = 24, PART = 1500 };

struct text {
    uint32_t experts[2 * PART][LAYERS][USED];
};

/* The first half stays with its experts, the second half draws them anew in each step. */
static struct text *new_text(void)
{
    struct text *t = calloc(1, sizeof *t);
    assert_non_null(t);
    random_state = 11;
    for (uint32_t l = 0; l < LAYERS; l++) {
        uint32_t experts[USED] = {0, 1, 2, 3};
        for (uint32_t s = 0; s < 2 * PART; s++) {
            draw(experts, MANY, s < PART ? 0.85 : 0);
            memcpy(t->experts[s][l], experts, sizeof experts);
        }
    }
    return t;
}

struct hits {
    uint32_t of_part[2];
    uint64_t digest; /* of all victims */
};

/* Whole experts, all misses loaded; a quarter of them fits. */
static struct hits serve(const struct text *t, enum sched_cache_kind kind, double half_life)
{
    struct sched_cache_shape s = {.n_layers = LAYERS,
                                  .n_experts = MANY,
                                  .n_segments = 1,
                                  .n_used = USED,
                                  .capacity = LAYERS * MANY / 4};
    struct sched_cache_options options = {.value_half_life = half_life};
    struct sched_cache *c = sched_cache_new(kind, &s, &options);
    struct hits h = {{0}, 1};
    uint64_t total = 0;
    assert_non_null(c);
    for (uint32_t step = 0; step < 2 * PART; step++)
        for (uint32_t l = 0; l < LAYERS; l++)
            for (uint32_t k = 0; k < USED; k++) {
                uint16_t expert = (uint16_t)t->experts[step][l][k];
                uint32_t victim_layer, victim;
                bool there = sched_cache_segments(c, l, expert);
                sched_cache_routed(c, step + 1, l, false, &expert, &(uint16_t){1}, 1);
                h.of_part[step / PART] += there;
                if (there)
                    continue;
                if (total == s.capacity) {
                    assert_true(sched_cache_victim(c, l, expert, true, 0, NULL, NULL, &victim_layer,
                                                   &victim));
                    h.digest = h.digest * 31 + victim_layer * MANY + victim;
                    sched_cache_resident(c, victim_layer, victim, 0);
                    total--;
                }
                sched_cache_resident(c, l, expert, 1);
                total++;
            }
    sched_cache_free(c);
    return h;
}

/* In each half of the text as good as the fixed half-life that is the best there, to 2 % in the
 * first and to 5 % in the second, which begins with the first one's choice; no fixed one is as good
 * in both, and LRU loses in the second half. */
static void test_follows_text(void **state)
{
    struct text *t = new_text();
    struct hits adapts = serve(t, CACHE_VALUE, 0), again = serve(t, CACHE_VALUE, 0);
    struct hits lru = serve(t, CACHE_LRU, 0);
    uint32_t best[2] = {0}, both = 0;
    for (uint32_t half_life = 1; half_life <= 128; half_life *= 2) {
        struct hits h = serve(t, CACHE_VALUE, half_life);
        for (uint32_t p = 0; p < 2; p++)
            best[p] = h.of_part[p] > best[p] ? h.of_part[p] : best[p];
        uint32_t sum = h.of_part[0] + h.of_part[1];
        both = sum > both ? sum : both;
    }
    print_message("hits of both halves: %u + %u adapted, %u + %u best, %u one for both, %u + %u "
                  "lru\n",
                  adapts.of_part[0], adapts.of_part[1], best[0], best[1], both, lru.of_part[0],
                  lru.of_part[1]);
    assert_true(adapts.of_part[0] >= 0.98 * best[0] && adapts.of_part[1] >= 0.95 * best[1]);
    assert_true(adapts.of_part[0] + adapts.of_part[1] > both);
    assert_true(adapts.of_part[0] >= 0.98 * lru.of_part[0]);
    assert_true(adapts.of_part[1] > 1.05 * lru.of_part[1]);
    assert_true(adapts.digest == again.digest);
    free(t);
}

/* Another number of experts that fit: after the next step all thresholds are those of half-lives
 * that had it from the beginning. */
static void test_resize(void **state)
{
    struct half_lives h, fresh;
    (void)state;
    assert_true(half_lives_init(&h, EXPERTS, KEPT, 0));
    assert_true(half_lives_init(&fresh, EXPERTS, KEPT / 2, 0));
    for (uint32_t step = 0; step < 200; step++) {
        for (uint32_t i = 0; i < USED; i++) {
            uint32_t expert = step * (step % 7) * (i + 1) % EXPERTS;
            half_lives_count(&h, expert, 1, false);
            half_lives_count(&fresh, expert, 1, false);
        }
        if (step == 199)
            half_lives_resize(&h, KEPT / 2);
        fresh.stale = true;
        half_lives_step_over(&h);
        half_lives_step_over(&fresh);
    }
    for (uint32_t i = 0; i < HALF_LIVES; i++) {
        assert_true(h.of[i].threshold > 0);
        assert_float_equal(h.of[i].threshold, fresh.of[i].threshold, 0);
        assert_float_equal(h.of[i].tied, fresh.of[i].tied, 0);
    }
    half_lives_resize(&h, 1000);
    assert_int_equal(h.kept, EXPERTS); /* no more than there are */
    half_lives_fini(&h);
    half_lives_fini(&fresh);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_definition),   cmocka_unit_test(test_scaling),
        cmocka_unit_test(test_share),        cmocka_unit_test(test_resize),
        cmocka_unit_test(test_follows_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
