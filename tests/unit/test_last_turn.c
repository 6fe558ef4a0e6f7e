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

/* What a fit begins with, and what it has after its first step. */
#define PRIOR 100
#define DECAY exp2(-1.0 / 128)

struct law {
    double by_count, by_last, always;
};

/* Every expectation with every last weight, so that they do not depend on each other. */
static void observe(struct last_turn *t, struct law l, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        double expected = 0.3 + 0.01 * (i / 2 % 25), last = i % 2 ? 1.5 : 0;
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

/* Where the law holds, the worth is its ratio, with the prior's slope of 1 for the count, by the
 * turns that an expert stays. */
static void test_fit(void **state)
{
    random_state = 5;
    for (uint32_t i = 0; i < 50; i++) {
        uint32_t n = 50 * (1 + below(100));
        struct law l = {between(0.2, 1), between(0, 1), between(0, 1)};
        double ratio = l.by_last / (l.by_count + PRIOR / (n * DECAY)) / LAST_TURN_STAYS;
        assert_true(fabs(worth_of(l, n) - fmin(ratio, 1)) < 1e-9);
    }
}

/* Where the count depends on the last turn, too: the same equations from sums of differences to the
 * means. */
static void test_dependent(void **state)
{
    enum { N = 400 };
    static double p[N], x[N], y[N];
    random_state = 6;
    for (uint32_t round = 0; round < 20; round++) {
        struct last_turn t = {0};
        long double mp = 0, mx = 0, my = 0, pp = 0, px = 0, xx = 0, py = 0, xy = 0;
        for (uint32_t i = 0; i < N; i++) {
            x[i] = below(2) ? between(1, 3) : 0;
            p[i] = 0.3 + 0.1 * x[i] + between(0, 0.2);
            y[i] = 0.3 * p[i] + 0.2 * x[i] + between(0, 1);
            mp += p[i] / (long double)N;
            mx += x[i] / (long double)N;
            my += y[i] / (long double)N;
            last_turn_observe(&t, p[i], x[i], y[i]);
        }
        last_turn_step_over(&t);
        for (uint32_t i = 0; i < N; i++) {
            pp += (p[i] - mp) * (p[i] - mp);
            px += (p[i] - mp) * (x[i] - mx);
            xx += (x[i] - mx) * (x[i] - mx);
            py += (p[i] - mp) * (y[i] - my);
            xy += (x[i] - mx) * (y[i] - my);
        }
        long double m = PRIOR / (N * (long double)DECAY); /* x' = A x, solved by elimination */
        long double first = px / (pp * (1 + m));
        long double b = (xy - first * (py + m * pp)) / (xx * (1 + m) - first * px);
        long double slope = (py + m * pp - px * b) / (pp * (1 + m));
        long double worth = fminl(fmaxl(b / fmaxl(slope, 0.05L) / LAST_TURN_STAYS, 0), 1);
        assert_true(fabsl(t.worth - worth) < 1e-9L);
    }
}

static void test_limits(void **state)
{
    assert_true(worth_of((struct law){0.5, -0.2, 0}, 1000) == 0);
    assert_true(worth_of((struct law){0.5, 0, 0}, 1000) < 1e-9);
    assert_true(worth_of((struct law){0.01, 0.9, 0}, 5000) == 1);
    /* A count that says the reverse is taken for one that says little. */
    assert_true(fabs(worth_of((struct law){-0.5, 0.1, 0}, 1000) -
                     0.1 / (1 + PRIOR / (1000 * DECAY)) / 0.05 / LAST_TURN_STAYS) < 1e-9);
    assert_true(worth_of((struct law){0.5, 0.5, 0}, 0) == 0);
}

/* Experts that were all in the last turn, or none, tell nothing of it; nor what the count expects
 * of them, if it is the same. Over many steps the sums are not exact. */
static void test_nothing_to_tell(void **state)
{
    static const double same[] = {0, 1, 1.3};
    random_state = 8;
    for (uint32_t k = 0; k < 6; k++) {
        struct last_turn t = {0};
        for (uint32_t step = 0; step < 2000; step++) {
            for (uint32_t i = 0; i < 10; i++)
                last_turn_observe(&t, k < 3 ? between(0.3, 0.6) : 0.37,
                                  k < 3 ? same[k] : between(0, 2), below(2));
            last_turn_step_over(&t);
            assert_true(t.worth == 0);
        }
    }
}

/* Of a changed law the last steps count the most: after six half-lives of the sums 1/64 is of the
 * first. */
static void test_changes(void **state)
{
    struct last_turn t = {0};
    observe(&t, (struct law){0.5, 0.5, 0}, 10000);
    assert_true(t.worth > 0.19 && t.worth < 0.2);
    for (uint32_t step = 0; step < 6 * 128; step++)
        observe(&t, (struct law){0.5, 1, 0}, 50);
    assert_true(t.worth > 0.37 && t.worth < 0.4);
}

/* ---- What is observed ---- */

enum { SLABS = 40, HALF_LIFE = 5 };

static void expect_sums(const struct half_lives *h, double n, double p, double x, double y)
{
    const struct last_turn *t = &h->of[HALF_LIFE].last_turn;
    assert_true(fabs(t->n - n) < 1e-9 && fabs(t->p - p) < 1e-9 && fabs(t->x - x) < 1e-9 &&
                fabs(t->y - y) < 1e-9);
}

/* An expert that the half-life of 32 steps expects with 0.41 is just at the threshold. Of experts
 * with 0.04, 0.08, ... those from 0.287 to 0.574 are observed. A prompt's turn counts as one
 * without activations. */
static void test_observed(void **state)
{
    struct half_lives h;
    assert_true(half_lives_init(&h, SLABS, SLABS / 2, 0));
    struct half_life *l = &h.of[HALF_LIFE];
    double always = l->now / (l->growth - 1);
    assert_true(h.used == HALF_LIFE && half_lives_always(&h) == always);
    l->threshold = 0.41 * l->growth / (l->growth - 1);
    for (uint32_t i = 0; i < SLABS; i++) {
        half_lives_count(&h, i, 1, i % 2);
        assert_false(half_lives_turn_over(&h, i));
        h.counts[i][HALF_LIFE] = 0.04 * (i + 1) * always;
        half_lives_count(&h, i, 1, false);
        half_lives_count(&h, i, 2, false); /* reported in two parts */
    }
    half_lives_observe(&h, 0, SLABS, 1); /* 7 to 13, of which 8, 10, 12 were in no prompt */
    expect_sums(&h, 7, 0.04 * (8 + 9 + 10 + 11 + 12 + 13 + 14), 3, 21);
    half_lives_observe(&h, 2, 9, 2); /* 8 */
    expect_sums(&h, 8, 0.04 * (77 + 9), 4, 24);
    half_lives_step_over(&h);
    assert_true(fabs(l->last_turn.n - 8 * DECAY) < 1e-9);
    half_lives_step_over(&h); /* of a prompt: nothing was observed, and nothing is forgotten */
    assert_true(fabs(l->last_turn.n - 8 * DECAY) < 1e-9);
    half_lives_fini(&h);
}

/* What was in the last turn, or is in the current one, counts by the worth, in units of an expert
 * that is always activated. */
static void test_recent(void **state)
{
    struct half_lives h;
    assert_true(half_lives_init(&h, SLABS, SLABS / 2, 0));
    h.of[HALF_LIFE].last_turn.worth = 0.25;
    double now = half_lives_used(&h)->now, adds = 0.25 * half_lives_always(&h);
    half_lives_count(&h, 3, 2, false);
    assert_true(fabs(half_lives_recent(&h, 3) - 2 * now - 2 * adds) < 1e-9);
    assert_false(half_lives_turn_over(&h, 3));
    assert_true(fabs(half_lives_recent(&h, 3) - 2 * now - 2 * adds) < 1e-9);
    half_lives_count(&h, 3, 2, false);
    assert_true(fabs(half_lives_recent(&h, 3) - 4 * now - 2 * adds) < 1e-9);
    assert_false(half_lives_turn_over(&h, 3)); /* the same again */
    assert_true(half_lives_turn_over(&h, 3));
    assert_true(fabs(half_lives_recent(&h, 3) - 4 * now) < 1e-9);
    half_lives_count(&h, 3, 1, true);
    assert_true(fabs(half_lives_recent(&h, 3) - 5 * now) < 1e-9);
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

/* Of the layer that is being computed, what it uses stays; or anything may go. */
struct in_use {
    uint32_t layer;
    const bool *active; /* [EXPERTS] */
    bool stays;
};

static bool is_in_use(void *arg, uint32_t layer, uint32_t expert)
{
    const struct in_use *u = arg;
    return u->stays && layer == u->layer && u->active[expert];
}

/* The share of activations that find their expert. Of the misses every third is loaded, as on a
 * slow link. */
static double hits(double half_life, double stay, bool in_use_stays)
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
            struct in_use in_use = {l, active[l], in_use_stays};
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
    for (uint32_t i = 0; i < 4; i++) {
        double stay = stays[i % 2], adapts = hits(0, stay, i < 2), best = 0;
        for (uint32_t half_life = 1; half_life <= 128; half_life *= 2)
            best = fmax(best, hits(half_life, stay, i < 2));
        print_message("%g stay: %.4f of the activations find their expert, %.4f with the best "
                      "half-life\n",
                      stay, adapts, best);
        assert_true(adapts > best * (stay > 0 ? 1.01 : 0.99));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fit),     cmocka_unit_test(test_dependent),
        cmocka_unit_test(test_limits),  cmocka_unit_test(test_nothing_to_tell),
        cmocka_unit_test(test_changes), cmocka_unit_test(test_observed),
        cmocka_unit_test(test_recent),  cmocka_unit_test(test_value),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
