/* lib/sched/cache/last_turn.c: fits of which the result is known; what half_lives.c observes; and
 * what that brings the cache `value`. */
#include "random_numbers.h"
#include "sched/cache/cache.h"
#include "sched/cache/half_lives.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

/* ---- The fit ---- */

enum { MANY = 1000 };

struct law {
    double by_count, by_last, always;
};

static void observe(struct last_turn *t, struct law l, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        double expected = between(0.3, 0.6), last = below(2) ? between(1, 3) : 0;
        last_turn_observe(t, expected, last, l.by_count * expected + l.by_last * last + l.always);
    }
    last_turn_step_over(t);
}

static double worth_of(struct law l, uint32_t n)
{
    struct last_turn t = {0};
    observe(&t, l, n);
    return t.worth;
}

/* Where the law holds exactly, the worth is exactly its ratio, by the turns that an expert stays.
 */
static void test_fit(void **state)
{
    random_state = 5;
    for (uint32_t i = 0; i < 50; i++) {
        struct law l = {between(0.2, 1), between(0, 1), between(0, 1)};
        double ratio = fmin(l.by_last / l.by_count / LAST_TURN_STAYS, 1);
        assert_true(fabs(worth_of(l, MANY) - ratio) < 1e-9);
    }
}

static void test_limits(void **state)
{
    random_state = 6;
    assert_true(worth_of((struct law){0.5, -0.2, 0}, MANY) == 0);
    assert_true(worth_of((struct law){0.5, 0, 0}, MANY) < 1e-9);
    assert_true(worth_of((struct law){0.1, 0.9, 0}, MANY) == 1);
    /* A count that says nothing, or the reverse, is taken for one that says little. */
    assert_true(fabs(worth_of((struct law){-0.5, 0.1, 0}, MANY) - 0.1 / 0.05 / LAST_TURN_STAYS) <
                1e-9);
    assert_true(worth_of((struct law){0.5, 0.5, 0}, 400) == 0); /* too few */
    assert_true(worth_of((struct law){0.5, 0.5, 0}, 0) == 0);
}

/* Experts that were all in the last turn, or none, tell nothing of it. */
static void test_nothing_to_tell(void **state)
{
    for (uint32_t all = 0; all < 2; all++) {
        struct last_turn t = {0};
        for (uint32_t i = 0; i < MANY; i++)
            last_turn_observe(&t, between(0.3, 0.6), all, i % 2);
        last_turn_step_over(&t);
        assert_true(t.worth == 0);
    }
}

/* Of a changed law the last steps count the most: after six half-lives of the sums 1/64 is of the
 * first. */
static void test_changes(void **state)
{
    struct last_turn t = {0};
    random_state = 7;
    observe(&t, (struct law){0.5, 0.5, 0}, MANY);
    assert_true(fabs(t.worth - 0.2) < 1e-9);
    for (uint32_t step = 0; step < 6 * 128; step++)
        observe(&t, (struct law){0.5, 1, 0}, 10);
    assert_true(t.worth > 0.38 && t.worth < 0.4);
}

/* ---- What is observed ---- */

enum { SLABS = 40, HALF_LIFE = 5 };

static void expect_sums(const struct half_lives *h, double n, double x, double y)
{
    const struct last_turn *t = &h->of[HALF_LIFE].last_turn;
    assert_true(fabs(t->n - n) < 1e-9 && fabs(t->x - x) < 1e-9 && fabs(t->y - y) < 1e-9);
}

/* An expert that the half-life of 32 steps expects with 0.4 is just at the threshold. Of ten
 * experts with 0.04, 0.08, ... that is those from 0.28 to 0.56 without the ends. A prompt's turn
 * counts as one without activations. */
static void test_observed(void **state)
{
    struct half_lives h;
    assert_true(half_lives_init(&h, SLABS, SLABS / 2, 0));
    struct half_life *l = &h.of[HALF_LIFE];
    double always = l->now / (l->growth - 1);
    assert_true(h.used == HALF_LIFE && half_lives_always(&h) == always);
    l->threshold = 0.4 * l->growth / (l->growth - 1);
    for (uint32_t i = 0; i < SLABS; i++) {
        h.counts[i][HALF_LIFE] = 0.04 * (i + 1) * always;
        half_lives_count(&h, i, 1, i % 2);
        assert_true(half_lives_turn_over(&h, i) == !(i % 2));
        half_lives_count(&h, i, 3, false);
        h.counts[i][HALF_LIFE] -= l->now; /* of the first of the two turns */
    }
    half_lives_observe(&h, 0, SLABS, 1); /* 7 to 12, of which 8, 10, 12 were in no prompt */
    expect_sums(&h, 6, 3, 18);
    half_lives_observe(&h, 2, 9, 2); /* 8 */
    expect_sums(&h, 7, 4, 21);
    half_lives_step_over(&h);
    assert_true(l->last_turn.n < 7 && l->last_turn.n > 6.9);
    double before = l->last_turn.n;
    half_lives_step_over(&h); /* of a prompt: nothing was observed, and nothing is forgotten */
    assert_true(l->last_turn.n == before);
    half_lives_fini(&h);
}

/* What was in the last turn counts by the worth, in units of an expert that is always activated. */
static void test_recent(void **state)
{
    struct half_lives h;
    assert_true(half_lives_init(&h, SLABS, SLABS / 2, 0));
    half_lives_count(&h, 3, 2, false);
    h.of[HALF_LIFE].last_turn.worth = 0.25;
    double count = half_lives_recent(&h, 3);
    assert_true(fabs(count - 2 * h.of[HALF_LIFE].now) < 1e-12); /* the turn is not over */
    assert_true(half_lives_turn_over(&h, 3));
    assert_true(fabs(half_lives_recent(&h, 3) - count - 0.5 * half_lives_always(&h)) < 1e-9);
    half_lives_count(&h, 3, 2, false);
    assert_false(half_lives_turn_over(&h, 3)); /* the same again */
    assert_true(half_lives_turn_over(&h, 3));
    assert_true(fabs(half_lives_recent(&h, 3) - 2 * count) < 1e-9);
    half_lives_fini(&h);
}

/* ---- The cache ---- */

enum { LAYERS = 4, EXPERTS = 64, USED = 16, STEPS = 3000, CAPACITY = LAYERS * EXPERTS / 2 };

/* Each expert is used with a probability of its own; of those of the step before, `stay` remain. */
static void draw(bool *active, double stay)
{
    bool now[EXPERTS] = {false};
    for (uint32_t e = 0; e < EXPERTS; e++) {
        double p = USED * (0.5 + (double)e / EXPERTS) / EXPERTS;
        now[e] = active[e] && between(0, 1) < stay ? true : between(0, 1) < p;
    }
    for (uint32_t e = 0; e < EXPERTS; e++)
        active[e] = now[e];
}

/* Of the layer that is being computed, what it uses stays. */
struct in_use {
    uint32_t layer;
    const bool *active; /* [EXPERTS] */
};

static bool is_in_use(void *arg, uint32_t layer, uint32_t expert)
{
    const struct in_use *u = arg;
    return layer == u->layer && u->active[expert];
}

/* The share of activations that find their expert. Of the misses every third is loaded, as on a
 * slow link. */
static double hits(double half_life, double stay)
{
    static bool active[LAYERS][EXPERTS];
    struct sched_cache_shape s = {.n_layers = LAYERS,
                                  .n_experts = EXPERTS,
                                  .n_segments = 1,
                                  .n_used = USED,
                                  .capacity = CAPACITY};
    struct sched_cache_options options = {.value_half_life = half_life};
    struct sched_cache *c = sched_cache_new(CACHE_VALUE, &s, &options);
    uint32_t total = 0, found = 0, n_active = 0, from_layer, from;
    assert_non_null(c);
    random_state = 3;
    for (uint32_t step = 0; step < STEPS; step++)
        for (uint32_t l = 0; l < LAYERS; l++) {
            uint16_t experts[EXPERTS], weights[EXPERTS], n = 0;
            struct in_use in_use = {l, active[l]};
            draw(active[l], stay);
            for (uint32_t e = 0; e < EXPERTS; e++)
                if (active[l][e]) {
                    weights[n] = 1;
                    experts[n++] = (uint16_t)e;
                }
            sched_cache_routed(c, step + 1, l, false, experts, weights, n);
            for (uint32_t i = 0; i < n; i++) {
                bool there = sched_cache_segments(c, l, experts[i]);
                found += there;
                if (there || n_active++ % 3)
                    continue;
                if (total == CAPACITY) {
                    assert_true(sched_cache_victim(c, l, experts[i], true, 0, is_in_use, &in_use,
                                                   &from_layer, &from));
                    sched_cache_resident(c, from_layer, from, 0);
                    total--;
                }
                sched_cache_resident(c, l, experts[i], 1);
                total++;
            }
        }
    sched_cache_free(c);
    return (double)found / (found + n_active);
}

/* A fixed half-life has no fit. With one, `value` finds more than with any of them where experts
 * repeat, and no less where they do not. */
static void test_value(void **state)
{
    static const double stays[] = {0, 0.3};
    for (uint32_t i = 0; i < 2; i++) {
        double adapts = hits(0, stays[i]), best = 0;
        for (uint32_t half_life = 1; half_life <= 128; half_life *= 2)
            best = fmax(best, hits(half_life, stays[i]));
        print_message("%g stay: %.4f of the activations find their expert, %.4f with the best "
                      "half-life\n",
                      stays[i], adapts, best);
        assert_true(adapts > best * (stays[i] > 0 ? 1.01 : 0.99));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fit),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_nothing_to_tell),
        cmocka_unit_test(test_changes),
        cmocka_unit_test(test_observed),
        cmocka_unit_test(test_recent),
        cmocka_unit_test(test_value),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
