/* How predictors are scored: sums worked out by hand, and a predictor that observes a sequence as
 * in the worker. */
#include "predict_score.h"
#include "predict_sequence.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

static void assert_close(double got, double want)
{
    if (!(fabs(got - want) < 1e-6))
        fail_msg("%.9g instead of %.9g", got, want);
}

/* Four experts are predicted with 0.8, 0, 0.4 and 0.25; 0 and 1 are activated. Log-loss: -ln 0.8 -
 * ln 2^-10 (clipped) - ln 0.6 - ln 0.75 = 0.223144 + 6.931472 + 0.510826 + 0.287682 = 7.953123. Of
 * the two most probable, 0 and 2, one is right. Bins: 0 holds expert 1, 2 expert 3, 4 expert 2, 8
 * expert 0; |sum - activated| = 1, 0.25, 0.4, 0.2, together 1.85. Then a layer of which nothing is
 * probable: two activated, none predicted. */
static void test_by_hand(void **state)
{
    const double p[4] = {0.8, 0, 0.4, 0.25}, nothing[4] = {0};
    const bool activated[4] = {true, true, false, false};
    struct predicted best[4];
    struct predict_score s = {0};
    assert_true(predict_score_log_loss(&s) == 0 && predict_score_recall(&s) == 0);
    predict_score_add(&s, p, activated, 4, best);
    assert_close(s.log_loss, 7.953123);
    assert_close(predict_score_log_loss(&s), 7.953123 / 4);
    assert_close(predict_score_calibration(&s), 1.85 / 4);
    assert_true(s.activated == 2 && s.predictions == 2 && s.right == 1 && s.layers == 1);
    assert_close(predict_score_recall(&s), 0.5);
    assert_true(s.bins[0].n == 1 && s.bins[0].activated == 1 && s.bins[2].n == 1 &&
                s.bins[4].n == 1 && s.bins[8].activated == 1);
    predict_score_add(&s, nothing, activated, 4, best);
    assert_true(s.activated == 4 && s.predictions == 2 && s.right == 1 && s.n == 8);
    assert_close(predict_score_recall(&s), 0.25);
    /* certainty belongs to the last bin */
    predict_score_add(&s, (double[4]){1, 1, 1, 1}, activated, 4, best);
    assert_int_equal(s.bins[SCORE_BINS - 1].n, 4);
}

static void show(void *arg, const struct predict_seen *seen)
{
    predict_trial_show(arg, seen);
}

/* Without noise or shifts the stream does not change from layer to layer. So the next gate is
 * always right about every layer but the first, which nothing predicts. Without a gate there is no
 * prediction. */
static void test_next_gate(void **state)
{
    static struct sequence s;
    for (int can_multiply = 0; can_multiply < 2; can_multiply++) {
        random_state = 5;
        seq_init(&s, 1, 0);
        memset(s.shift, 0, sizeof s.shift);
        struct predict_trial *t =
            predict_trial_new(PREDICT_NEXT_GATE, &seq_shape, can_multiply ? seq_gate : NULL, &s, 0);
        for (int step = 0; step < 50; step++)
            seq_step(&s, 1 + step % SEQ_TOKENS, show, t);
        struct predict_score total = predict_trial_total(t);
        const struct predict_score *scores = predict_trial_scores(t);
        assert_int_equal(scores[SEQ_FIRST].layers, 0);
        if (can_multiply) {
            assert_int_equal(total.layers, 50 * (SEQ_LAYERS - SEQ_FIRST - 1));
            assert_true(total.activated > 0 && total.right == total.activated);
        } else {
            assert_int_equal(total.layers, 0);
        }
        predict_trial_free(t);
    }
}

/* The frequency predicts at distance 2. Predictions that are one layer late are as good as those in
 * time. Predictions that are two layers late are discarded: a layer without a prediction has no
 * score. */
static void test_late(void **state)
{
    static struct sequence s;
    struct predict_score total[3];
    for (uint32_t late = 0; late < 3; late++) {
        random_state = 6;
        seq_init(&s, 1, 0.3f);
        struct predict_trial *t =
            predict_trial_new(PREDICT_FREQUENCY, &seq_shape, seq_gate, &s, late);
        for (int step = 0; step < 50; step++)
            seq_step(&s, 1, show, t);
        total[late] = predict_trial_total(t);
        assert_int_equal(predict_trial_last(t, s.step, SEQ_LAYERS - 1) != NULL, late < 2);
        assert_null(predict_trial_last(t, s.step + 9, SEQ_LAYERS - 1));
        predict_trial_clear(t);
        assert_true(predict_trial_total(t).n == 0);
        predict_trial_free(t);
    }
    assert_true(total[0].layers > 300 && total[0].log_loss == total[1].log_loss);
    assert_int_equal(total[2].layers, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_by_hand),
        cmocka_unit_test(test_next_gate),
        cmocka_unit_test(test_late),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
