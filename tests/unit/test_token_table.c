/* The table of what tokens activated before, and the predictor that reads it: by hand, and against
 * a plain record of each token's visits. */
#include "random_numbers.h"

#include "sched/predict/predict_internal.h"
#include "sched/predict/token_table.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <cmocka.h>

/* ---- the table ---- */

static void expect(const struct token_table *t, uint32_t id, uint32_t layer, uint32_t visits,
                   uint32_t n, const uint32_t *experts, const uint32_t *counts)
{
    struct token_visits got;
    assert_true(token_table_find(t, id, layer, &got));
    assert_int_equal(got.visits, visits);
    assert_int_equal(got.n, n);
    for (uint32_t i = 0; i < n; i++) {
        assert_int_equal(got.experts[i], experts[i]);
        assert_int_equal(got.counts[i], counts[i]);
    }
}

/* Two experts a token, so four are listed: the latest first, each with its visits. The fifth
 * expert pushes out the one that was activated the longest ago. */
static void test_visits(void **state)
{
    const struct token_table_shape shape = {.n_layers = 2, .n_used = 2, .n_tokens = 64};
    struct token_table *t = token_table_new(&shape);
    struct token_visits none;
    assert_false(token_table_find(t, 7, 0, &none));
    token_table_visit(t, 7, 0, (uint32_t[]){5, 3});
    assert_false(token_table_find(t, 7, 1, &none)); /* another layer, another token */
    assert_false(token_table_find(t, 8, 0, &none));
    expect(t, 7, 0, 1, 2, (uint32_t[]){5, 3}, (uint32_t[]){1, 1});
    token_table_visit(t, 7, 0, (uint32_t[]){3, 9});
    expect(t, 7, 0, 2, 3, (uint32_t[]){3, 9, 5}, (uint32_t[]){2, 1, 1});
    token_table_visit(t, 7, 0, (uint32_t[]){3, 4000});
    expect(t, 7, 0, 3, 4, (uint32_t[]){3, 4000, 9, 5}, (uint32_t[]){3, 1, 1, 1});
    token_table_visit(t, 7, 0, (uint32_t[]){1, 9});
    expect(t, 7, 0, 4, 4, (uint32_t[]){1, 9, 3, 4000}, (uint32_t[]){1, 2, 3, 1});
    token_table_visit(t, UINT32_MAX - 1, 1, (uint32_t[]){0, 1});
    expect(t, UINT32_MAX - 1, 1, 1, 2, (uint32_t[]){0, 1}, (uint32_t[]){1, 1});
    token_table_free(t);
    token_table_free(NULL);
}

/* Expert 0 in 15 visits, 1 in one of two, 2 in the third alone. Before the sixteenth visit all is
 * halved: 15 visits to 7, expert 0 to 7, 1 (even visits: 7 of 15) to 3; 2, 3, with one, are gone.
 */
static void test_halving(void **state)
{
    const struct token_table_shape shape = {.n_layers = 1, .n_used = 2, .n_tokens = 4};
    struct token_table *t = token_table_new(&shape);
    for (uint32_t visit = 1; visit < TOKEN_TABLE_VISITS; visit++)
        token_table_visit(t, 1, 0, (uint32_t[]){0, visit % 2 == 0 ? 1 : visit == 3 ? 2 : 3});
    expect(t, 1, 0, 15, 4, (uint32_t[]){0, 3, 1, 2}, (uint32_t[]){15, 7, 7, 1});
    token_table_visit(t, 1, 0, (uint32_t[]){0, 6});
    expect(t, 1, 0, 8, 4, (uint32_t[]){0, 6, 3, 1}, (uint32_t[]){8, 1, 3, 3});
    token_table_free(t);
}

/* A table of one set: a fifth token takes the row of the one that was visited the longest ago, and
 * begins without its visits. */
static void test_replaces_the_oldest(void **state)
{
    const struct token_table_shape shape = {.n_layers = 2, .n_used = 1, .n_tokens = 1};
    struct token_table *t = token_table_new(&shape);
    struct token_visits none;
    for (uint32_t id = 0; id < TOKEN_TABLE_WAYS; id++)
        for (uint32_t layer = 0; layer < 2; layer++)
            token_table_visit(t, id, layer, &id);
    token_table_visit(t, 0, 1, (uint32_t[]){9});
    token_table_visit(t, 100, 0, (uint32_t[]){8});
    expect(t, 100, 0, 1, 1, (uint32_t[]){8}, (uint32_t[]){1});
    assert_false(token_table_find(t, 100, 1, &none));
    assert_false(token_table_find(t, 1, 0, &none));
    expect(t, 0, 1, 2, 2, (uint32_t[]){9, 0}, (uint32_t[]){1, 1});
    for (uint32_t id = 2; id < TOKEN_TABLE_WAYS; id++)
        expect(t, id, 0, 1, 1, &id, (uint32_t[]){1});
    token_table_free(t);
}

/* The figures of predict_token_table.c. */
static void test_bytes(void **state)
{
    const struct token_table_shape demo = {.n_layers = 8, .n_used = 4};
    const struct token_table_shape large = {.n_layers = 94, .n_used = 8};
    assert_int_equal(token_table_bytes_per_token(&demo), 16 + 8 * 26);
    assert_int_equal(token_table_bytes_per_token(&large), 16 + 94 * 50);
}

enum { LAYERS = 3, EXPERTS = 40, USED = 4, IDS = 50 };

/* A token's visits to a layer, expert by expert. */
struct record {
    uint32_t visits, count[EXPERTS];
    uint64_t used[EXPERTS]; /* when, later choices of a visit before earlier ones */
};

/* Keeps the listed experts: those that were used last. */
static void forget(struct record *r)
{
    for (uint32_t e = 0; e < EXPERTS; e++) {
        uint32_t later = 0;
        for (uint32_t o = 0; o < EXPERTS; o++)
            later += r->count[o] && r->used[o] > r->used[e];
        if (later >= TOKEN_TABLE_LIST * USED)
            r->count[e] = 0;
    }
}

static void test_against_a_record(void **state)
{
    static struct record records[IDS][LAYERS];
    const struct token_table_shape shape = {.n_layers = LAYERS, .n_used = USED, .n_tokens = 400};
    struct token_table *t = token_table_new(&shape);
    random_state = 24;
    for (uint64_t now = 1; now < 20000; now++) {
        uint32_t id = below(IDS) * below(2), layer = below(LAYERS), selected[USED];
        struct record *r = &records[id][layer];
        struct token_visits v;
        assert_int_equal(token_table_find(t, id * 3000, layer, &v), r->visits > 0);
        uint32_t n = 0;
        for (uint32_t e = 0; e < EXPERTS && r->visits; e++)
            n += r->count[e] > 0;
        for (uint32_t i = 0; i < n; i++) {
            assert_int_equal(v.counts[i], r->count[v.experts[i]]);
            assert_true(i == 0 || r->used[v.experts[i]] < r->used[v.experts[i - 1]]);
        }
        assert_true(!r->visits || (v.visits == r->visits && v.n == n));

        if (r->visits == TOKEN_TABLE_VISITS - 1) {
            r->visits /= 2;
            for (uint32_t e = 0; e < EXPERTS; e++)
                r->count[e] /= 2;
        }
        r->visits++;
        uint32_t first = below(9);
        for (uint32_t i = USED; i-- > 0;) {
            selected[i] = (first + i * (1 + id % 4)) % EXPERTS;
            r->count[selected[i]]++;
            r->used[selected[i]] = now * USED - i;
            forget(r);
        }
        token_table_visit(t, id * 3000, layer, selected);
    }
    token_table_free(t);
}

/* ---- the predictor ---- */

static const struct predict_shape four = {
    .n_layers = 2, .first_layer = 1, .n_experts = 4, .n_used = 1, .d_model = 1, .max_tokens = 2};

static void observe(struct predictor *p, uint32_t id, uint32_t selected)
{
    const struct predict_token token = {.id = id};
    predictor_observe(
        p, &(struct predict_seen){
               .step = 1, .layer = 1, .n_tokens = 1, .tokens = &token, .selected = &selected});
}

static void predict(struct predictor *p, uint32_t n, const uint32_t *ids, double got[4])
{
    struct predict_token tokens[2] = {{.id = ids[0]}, {.id = ids[n - 1]}};
    const struct predict_seen seen = {
        .step = 1, .layer = PREDICT_EMBEDDING, .n_tokens = n, .tokens = tokens};
    predictor_predict(p, &seen, &(struct predict_target){1, 1}, NULL, got);
}

static void expect_probabilities(const double *got, const double *want)
{
    for (uint32_t i = 0; i < 4; i++)
        if (!(fabs(got[i] - want[i]) < 1e-9))
            fail_msg("expert %u: %.12g instead of %.12g", i, got[i], want[i]);
}

/* Four experts, one a token. After one visit with expert 2: (1 + 1/4) / 2 = 5/8 for it, (1/4) / 2 =
 * 1/8 for each other one. The second visit, with expert 2 again, shows of such classes: one expert
 * of one was activated, so (1 + 5/8) / 2 = 13/16, and none of three, so (1/8) / 4 = 1/32. Token 9,
 * seen once, has these; token 5, seen twice, is of another class: (2 + 1/4) / 3 = 3/4 and (1/4) / 3
 * = 1/12. Of both at least one: 1 - (1 - p) (1 - q). An unknown token activates each with 1/4. */
static void test_shares(void **state)
{
    struct predictor *p = predictor_new_of(predictor_token_table.background, &four);
    double got[4];
    predict(p, 1, (uint32_t[]){5}, got);
    expect_probabilities(got, (double[]){0, 0, 0, 0});
    observe(p, 5, 2);
    predict(p, 1, (uint32_t[]){5}, got);
    expect_probabilities(got, (double[]){0.125, 0.125, 0.625, 0.125});
    observe(p, 5, 2);
    observe(p, 9, 0);
    predict(p, 1, (uint32_t[]){9}, got);
    expect_probabilities(got, (double[]){13.0 / 16, 1.0 / 32, 1.0 / 32, 1.0 / 32});
    predict(p, 1, (uint32_t[]){5}, got);
    expect_probabilities(got, (double[]){1.0 / 12, 1.0 / 12, 0.75, 1.0 / 12});
    predict(p, 2, (uint32_t[]){9, 5}, got);
    double other = 1 - 31.0 / 32 * 11 / 12;
    expect_probabilities(got,
                         (double[]){1 - 3.0 / 16 * 11 / 12, other, 1 - 31.0 / 32 * 0.25, other});
    predict(p, 2, (uint32_t[]){9, 77}, got);
    other = 1 - 31.0 / 32 * 0.75;
    expect_probabilities(got, (double[]){1 - 3.0 / 16 * 0.75, other, other, other});
    predictor_free(p);
}

/* A trace or a peer without ids: nothing is counted, nothing predicted. */
static void test_no_ids(void **state)
{
    struct predictor *p = predictor_new_of(predictor_token_table.background, &four);
    double got[4];
    for (uint32_t i = 0; i < 10; i++)
        observe(p, PREDICT_NO_ID, 2);
    predict(p, 1, (uint32_t[]){PREDICT_NO_ID}, got);
    expect_probabilities(got, (double[]){0, 0, 0, 0});
    predict(p, 2, (uint32_t[]){PREDICT_NO_ID, 3}, got);
    expect_probabilities(got, (double[]){0, 0, 0, 0});
    predictor_free(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_visits),
        cmocka_unit_test(test_halving),
        cmocka_unit_test(test_replaces_the_oldest),
        cmocka_unit_test(test_bytes),
        cmocka_unit_test(test_against_a_record),
        cmocka_unit_test(test_shares),
        cmocka_unit_test(test_no_ids),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
