/* The mixture of predictors: the regression, its features, and that its log-loss is lower than that
 * of each part. */
#include "predict_score.h"
#include "predict_sequence.h"

#include "sched/predict/blend.h"
#include "sched/predict/logistic.h"
#include "sched/predict/predict_internal.h"
#include "train/image.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

static void assert_close(double got, double want, double by)
{
    if (!(fabs(got - want) < by))
        fail_msg("%.9g instead of %.9g", got, want);
}

/* ---- the regression ---- */

/* One feature, w = (0, 1) at first. Two samples x = 0 and x = 2, of which the first came true:
 *     p = 1/2 and 1 / (1 + e^-2) = 0.880797
 *     gradient sum (y - p) (1, x) = (1/2 - 0.880797, -2 0.880797) = (-0.380797, -1.761594)
 *     v = p (1 - p) = 0.25 and 0.104994
 *     S = (0.354994, 0.209987; 0.209987, 0.419974); + 4 on the diagonal: (4.354994, 0.209987;
 * 0.209987, 4.419974) determinant 19.248965 - 0.044095 = 19.204866 step: ((4.419974 -0.380797 -
 * 0.209987 -1.761594) / 19.204866, (4.354994 -1.761594 - 0.209987 -0.380797) / 19.204866) =
 * (-1.313202 / 19.204866, -7.591770 / 19.204866) = (-0.068379, -0.395304). */
static void test_newton_step(void **state)
{
    float x[LOGISTIC_LANES] = {0, 2}, p[LOGISTIC_LANES] = {0}, y[LOGISTIC_LANES] = {1, 0};
    float scratch[LOGISTIC_LANES];
    const float *features[1] = {x};
    struct logistic r;
    logistic_init(&r, 1);
    assert_true(r.w[0] == 0 && r.w[1] == 1);
    logistic_predict(&r, features, 2, p);
    assert_close((double)p[0], 0.5, 1e-6);
    assert_close((double)p[1], 0.880797, 1e-6);
    logistic_learn(&r, features, 2, p, y, scratch);
    assert_close(r.w[0], -0.068379, 1e-5);
    assert_close(r.w[1], 1 - 0.395304, 1e-5);
    /* no step is longer than one half */
    x[1] = 6;
    for (int i = 0; i < 3; i++) {
        double before = r.w[1];
        logistic_predict(&r, features, 2, p);
        logistic_learn(&r, features, 2, p, y, scratch);
        assert_true(fabs(r.w[1] - before) <= 0.5);
    }
}

/* Samples drawn from known weights: the regression finds the weights. Three features, one of them
 * noise. */
static void test_finds_weights(void **state)
{
    enum { N = 64 };
    static const double truth[4] = {-1.5, 0.8, 0, -0.4};
    float x[3][N], p[N], y[N], scratch[N];
    const float *features[3] = {x[0], x[1], x[2]};
    struct logistic r;
    random_state = 23;
    logistic_init(&r, 3);
    for (int step = 0; step < 2000; step++) {
        for (uint32_t s = 0; s < N; s++) {
            double z = truth[0];
            for (uint32_t i = 0; i < 3; i++) {
                x[i][s] = seq_random() * 2;
                z += truth[1 + i] * (double)x[i][s];
            }
            y[s] = (double)(random_u64() >> 11) * 0x1p-53 < 1 / (1 + exp(-z));
        }
        logistic_predict(&r, features, N, p);
        logistic_learn(&r, features, N, p, y, scratch);
    }
    for (uint32_t i = 0; i < 4; i++) /* of 128,000 samples: a standard error is about 0.006 */
        assert_close(r.w[i], truth[i], 0.04);
}

/* ---- the blend of the parts ---- */

/* Two parts with the same probabilities for two experts: the mean of their log-odds is the log-odds
 * of each. The blend omits a part that has no prediction, or one for another step or another number
 * of tokens. The second part's prediction is valid for two steps. */
static void test_who_has_spoken(void **state)
{
    const struct blend_shape shape = {.n_layers = 2, .n_experts = 2, .n_parts = 2, .keeps = {0, 2}};
    struct blend *b = blend_new(&shape);
    double got[2];
    assert_false(blend_predict(b, 0, 1, 1, got));
    float *row = blend_row(b, 0, 0, 1, 1);
    row[0] = blend_logit(0.75);
    row[1] = blend_logit(0.1);
    assert_true(blend_predict(b, 0, 1, 1, got));
    assert_close(got[0], 0.75, 1e-6);
    assert_close(got[1], 0.1, 1e-6);
    assert_false(blend_predict(b, 1, 1, 1, got)); /* another layer, step, number of tokens */
    assert_false(blend_predict(b, 0, 2, 1, got));
    assert_false(blend_predict(b, 0, 1, 2, got));
    row = blend_row(b, 0, 1, 1, 1);
    row[0] = blend_logit(0.5);
    row[1] = blend_logit(0.1);
    assert_true(blend_predict(b, 0, 1, 1, got));
    assert_close(got[0], 1 / (1 + 1 / sqrt(3)), 1e-6); /* odds 3 and 1: sqrt 3 */
    assert_close(got[1], 0.1, 1e-6);
    assert_true(blend_predict(b, 0, 3, 1, got)); /* only the second part */
    assert_close(got[0], 0.5, 1e-6);
    assert_false(blend_predict(b, 0, 4, 1, got));
    assert_false(blend_predict(b, 0, 0, 1, got)); /* no part predicts the past */
    blend_free(b);
}

/* Six layers in three groups of two. Only layer 0 observes, and its part predicts the opposite of
 * the activations. Layer 1, of the same group and never observed, uses the group's weights; layer 5
 * has no samples. Then layer 1 observes steps in which the part is right: after 64 it has weights
 * of its own, and layer 0's stay. */
static void test_groups(void **state)
{
    const struct blend_shape shape = {.n_layers = 6, .n_experts = 8, .n_parts = 1};
    struct blend *b = blend_new(&shape);
    double got[8];
    uint64_t step = 1;
    for (uint32_t turn = 0; turn < 2; turn++)
        for (uint32_t i = 0; i < 400; i++, step++) {
            float *row = blend_row(b, turn, 0, step, 1);
            uint32_t chosen = i % 8, reported = turn == 0 ? (i + 1 + i % 7) % 8 : chosen;
            for (uint32_t e = 0; e < 8; e++)
                row[e] = blend_logit(e == reported ? 0.9 : 0.1);
            assert_true(blend_predict(b, turn, step, 1, got));
            blend_check(b, turn, step, &chosen, 1, 1);
            if (turn == 1 && i == 0)
                assert_true(got[reported] < 0.2); /* by the group's weights */
            if (turn == 1 && i > 300)             /* about nine in ten of its samples */
                assert_true(got[reported] > 0.85);
        }
    for (uint32_t layer = 0; layer < 6; layer += 5) {
        float *row = blend_row(b, layer, 0, step, 1);
        for (uint32_t e = 0; e < 8; e++)
            row[e] = blend_logit(e == 3 ? 0.9 : 0.1);
        blend_predict(b, layer, step, 1, got);
        assert_true(layer == 0 ? got[3] < 0.2 : fabs(got[3] - 0.9) < 1e-5);
    }
    blend_free(b);
}

/* The parts of the pattern predict expert `reported`; the layer activates `chosen`. Returns what
 * was predicted for `reported`. */
static double step_pattern(struct blend *b, uint32_t layer, uint32_t pattern, uint64_t step,
                           uint32_t reported, uint32_t chosen)
{
    double got[8];
    for (uint32_t part = 0; part < 5; part++) {
        float *row = pattern >> part & 1 ? blend_row(b, layer, part, step, 1) : NULL;
        for (uint32_t e = 0; row && e < 8; e++)
            row[e] = blend_logit(e == reported ? 0.9 : 0.1);
    }
    assert_true(blend_predict(b, layer, step, 1, got));
    blend_check(b, layer, step, &chosen, 1, 1);
    return got[reported];
}

/* Five parts, 31 patterns, all wrong in layer 0 for 80 steps each. The first BLEND_OWN patterns get
 * weights of the layer's own, the others keep the group's. Then all are right in layer 1 of the
 * same group, for too few steps to leave the group: of layer 0's patterns only those without own
 * weights follow. */
static void test_own_patterns(void **state)
{
    const struct blend_shape shape = {.n_layers = 6, .n_experts = 8, .n_parts = 5};
    struct blend *b = blend_new(&shape);
    uint64_t step = 1;
    for (uint32_t pattern = 1; pattern < 32; pattern++)
        for (uint32_t i = 0; i < 80; i++, step++)
            step_pattern(b, 0, pattern, step, (i + 1 + i % 7) % 8, i % 8);
    for (uint32_t pattern = 1; pattern < 32; pattern++)
        for (uint32_t i = 0; i < 60; i++, step++)
            step_pattern(b, 1, pattern, step, i % 8, i % 8);
    for (uint32_t pattern = 1; pattern < 32; pattern++, step++) {
        double got = step_pattern(b, 0, pattern, step, 3, 3);
        if (pattern <= BLEND_OWN ? got > 0.2 : got < 0.25)
            fail_msg("pattern %u: %g", pattern, got);
    }
    blend_free(b);
}

/* ---- the time since an expert was activated last ---- */

/* Four experts, one a token: an idle time that was never seen is worth (0 + 1/4) / (0 + 1) = 1/4.
 * The first token chooses 2: all four had never been activated, and one was: that class is worth (1
 * + 1/4) / (4 + 1) = 1/4. The second chooses 2 again, which was idle for 0 tokens: that class is
 * worth (1 + 1/4) / (1 + 1) = 5/8; with q = 2^(-1/4096) the three others make (q + 1/4) / (4 q + 3
 * + 1). The third chooses 1: 2 is idle for one token, of which nothing is known, and 1 for none:
 * with that one of two is (q + 1/4) / (q + 1 + 1). Of two tokens at least one with 1 - (1 - p)^2.
 */
static void test_recency(void **state)
{
    const struct predict_shape s = {
        .n_layers = 1, .n_experts = 4, .n_used = 1, .d_model = 1, .max_tokens = 2};
    static const uint32_t chosen[3] = {2, 2, 1};
    struct predictor *p = predictor_new_of(predictor_recency.background, &s);
    struct predict_seen seen = {.n_tokens = 1};
    double got[4], q = exp2(-1.0 / 4096);
    for (uint64_t step = 0; step < 3; step++) {
        seen.step = step;
        seen.selected = &chosen[step];
        predictor_observe(p, &seen);
        predictor_predict(p, &seen, &(struct predict_target){step + 1, 0}, NULL, got);
        if (step == 0)
            for (uint32_t e = 0; e < 4; e++)
                assert_close(got[e], 0.25, 1e-6);
        if (step == 1) {
            assert_close(got[2], 0.625, 1e-6);
            assert_close(got[0], (q + 0.25) / (4 * q + 4), 1e-6);
        }
    }
    assert_close(got[2], 0.25, 1e-6);
    assert_close(got[1], (q + 0.25) / (q + 2), 1e-6);
    seen.n_tokens = 2;
    predictor_predict(p, &seen, &(struct predict_target){9, 0}, NULL, got);
    assert_close(got[2], 1 - 0.75 * 0.75, 1e-6);
    predictor_free(p);
}

/* ---- the mixture ---- */

/* Three in-line halves observe the same layers. One gets its updates in time, one gets updates of
 * steps long past, one gets none: the last two predict the same, the first does not. */
static struct {
    struct predictor *background, *line[3];
    float update[512], old[512];
    uint32_t old_layer;
    uint64_t n_old, n_different;
    void *sequence;
} updated;

static void show_lines(void *arg, const struct predict_seen *seen)
{
    uint32_t layer, predicted_routing[SEQ_USED];
    bool embedding = seen->layer == PREDICT_EMBEDDING;
    for (uint32_t i = 0; !embedding && i < 3; i++)
        predictor_observe(updated.line[i], seen);
    predictor_observe(updated.background, seen);
    while (predictor_next_update(updated.background, &layer, updated.update)) {
        predictor_apply_update(updated.line[0], layer, updated.update);
        if (seen->step == 3 && updated.update[2] > 0) { /* no mean step */
            memcpy(updated.old, updated.update, sizeof updated.old);
            updated.old_layer = layer;
        }
    }
    struct predict_target target = {seen->step, seen->layer + 1};
    if (embedding || target.layer == SEQ_LAYERS) /* omits the first layer of the next step */
        return;
    if (seen->step > 20 && ++updated.n_old)
        predictor_apply_update(updated.line[1], updated.old_layer, updated.old);
    double got[3][SEQ_EXPERTS];
    seq_gate(updated.sequence, &target, seen->hidden, 1, predicted_routing);
    for (uint32_t i = 0; i < 3; i++)
        predictor_predict(updated.line[i], seen, &target, predicted_routing, got[i]);
    assert_memory_equal(got[1], got[2], sizeof got[1]);
    updated.n_different += memcmp(got[0], got[2], sizeof got[0]) != 0;
}

static void test_old_updates(void **state)
{
    static struct sequence s;
    random_state = 9;
    seq_init(&s, 1, 0.3f);
    updated.sequence = &s;
    assert_true(predictor_update_floats(PREDICT_MIXTURE, &seq_shape) <= 512);
    updated.background = predictor_new(PREDICT_MIXTURE, PREDICT_BACKGROUND, &seq_shape);
    for (uint32_t i = 0; i < 3; i++)
        updated.line[i] = predictor_new(PREDICT_MIXTURE, PREDICT_IN_LINE, &seq_shape);
    for (int step = 0; step < 40; step++)
        seq_step(&s, 1, show_lines, NULL);
    assert_true(updated.n_old > 100 && updated.n_different > 200);
    predictor_free(updated.background);
    for (uint32_t i = 0; i < 3; i++)
        predictor_free(updated.line[i]);
}

/* The mixture's parts and the other predictors that a user can choose, then the mixture. */
static const struct {
    const char *name;
    const struct predictor_kind *kind;
    bool is_part;
} compared[] = {{"next-gate", &predictor_next_gate, false},
                {"residual", &predictor_residual, true},
                {"frequency", &predictor_frequency, true},
                {"recency", &predictor_recency, true},
                {"expert-map", &predictor_expert_map, false},
                {"shares of a map", &predictor_map_shares, true},
                {"mlp", &predictor_mlp, true},
                {"token table", &predictor_token_table, true},
                {"activation-matrix", &predictor_activation_matrix, false},
                {"mixture", &predictor_mixture, false}};
enum { N_COMPARED = sizeof compared / sizeof *compared, MIXTURE = N_COMPARED - 1 };

/* Trained predictors made by hand. The network of each layer passes on its input, as relu(x) -
 * relu(-x), and multiplies it with that layer's gate, as a linear network would after training. An
 * eighth of the experts is activated, the sums have a deviation of about 5. */
static struct image train_by_hand(const struct sequence *s)
{
    static const struct net_shape net = {SEQ_D, 2 * SEQ_D, SEQ_EXPERTS, 0, TRAINED_RELU, 0};
    static float w[2 * SEQ_D + SEQ_EXPERTS + SEQ_D * 2 * SEQ_D + 2 * SEQ_D * SEQ_EXPERTS];
    const struct trained_header h = {.magic = TRAINED_MAGIC,
                                     .version = TRAINED_VERSION,
                                     .n_layers = SEQ_LAYERS,
                                     .first_layer = SEQ_FIRST,
                                     .n_experts = SEQ_EXPERTS,
                                     .n_used = SEQ_USED,
                                     .d_model = SEQ_D,
                                     .stride = 2,
                                     .model = "by hand"};
    struct image m;
    assert_true(image_init(&m, &h));
    for (uint32_t l = SEQ_FIRST + 2; l < SEQ_LAYERS; l++)
        image_place_network(&m, &m.layers[l].mlp, &net);
    assert_true(image_allocate(&m));
    struct net_parts at = net_parts(&net);
    assert_int_equal(at.n, sizeof w / sizeof *w);
    for (uint32_t l = SEQ_FIRST + 2; l < SEQ_LAYERS; l++) {
        memset(w, 0, sizeof w);
        for (uint32_t e = 0; e < SEQ_EXPERTS; e++)
            w[at.b_out + e] = -3;
        for (uint32_t i = 0; i < SEQ_D; i++) {
            w[at.w_in + i * 2 * SEQ_D + i] = 1;
            w[at.w_in + i * 2 * SEQ_D + SEQ_D + i] = -1;
            for (uint32_t e = 0; e < SEQ_EXPERTS; e++) {
                w[at.w_out + i * SEQ_EXPERTS + e] = 0.3f * s->gate[l][e][i];
                w[at.w_out + (SEQ_D + i) * SEQ_EXPERTS + e] = -0.3f * s->gate[l][e][i];
            }
        }
        struct net filled = {.shape = net, .parts = at, .w = w};
        image_fill_network(&m, &m.layers[l].mlp, &filled);
    }
    image_finish(&m);
    return m;
}

static void show_all(void *arg, const struct predict_seen *seen)
{
    struct predict_trial **trials = arg;
    for (uint32_t i = 0; i < N_COMPARED; i++)
        predict_trial_show(trials[i], seen);
}

/* The mixture's loss over the layers that another predictor predicts is less than that predictor's.
 * The token table says nothing of a token that it does not know: its mean loss counts for these.
 * In a single layer one part may be the best possible predictor. There the mixture may lose up to
 * one hundredth more, the price of learning that. */
static void compare(uint32_t text, uint32_t other, const struct predict_score *part,
                    const struct predict_score *mixture)
{
    const char *name = compared[other].name;
    double sum = 0, of_mixture = 0;
    for (uint32_t l = SEQ_FIRST; l < SEQ_LAYERS; l++) {
        if (!part[l].n)
            continue;
        assert_true(part[l].n <= mixture[l].n);
        double loss = part[l].log_loss * (double)mixture[l].n / (double)part[l].n;
        sum += loss;
        of_mixture += mixture[l].log_loss;
        if (compared[other].is_part && mixture[l].log_loss > loss * 1.01)
            fail_msg("text %u, layer %u: %g, %s %g", text, l, predict_score_log_loss(&mixture[l]),
                     name, predict_score_log_loss(&part[l]));
    }
    if (of_mixture > sum)
        fail_msg("text %u: %g, %s %g", text, of_mixture, name, sum);
}

/* A made-up text. late: as in predict_trial_new. trained: mlp is one of the parts with
 * predictions. */
struct made_up {
    float topic, noise;
    uint32_t n, late;
    bool trained, no_ids;
};

/* The mixture's log-loss on unseen layers is below that of each of its parts and of every other
 * predictor, and its probabilities are calibrated. gate NULL: no gate predicts. Each prediction
 * precedes the observation of its layer. The first steps, in which all learn, do not count. */
static void try_text(uint32_t text, const struct made_up *t, predict_trial_gate *gate,
                     double calibration)
{
    static struct sequence s;
    seq_init(&s, t->topic, t->noise);
    s.no_ids = t->no_ids;
    struct image image = train_by_hand(&s);
    struct trained_predictors trained;
    char why[TRAINED_WHY];
    assert_true(trained_view(image.bytes, image.end, &trained, why));
    struct predict_shape known = seq_shape;
    known.trained = t->trained ? &trained : NULL;
    assert_true(predictor_traits(PREDICT_MIXTURE, &known).early == t->trained);
    struct predict_trial *trials[N_COMPARED];
    for (uint32_t i = 0; i < N_COMPARED; i++)
        assert_non_null(trials[i] =
                            predict_trial_new_of(compared[i].kind, &known, gate, &s, t->late));
    for (int step = 0; step < 1200; step++) {
        if (step == 400)
            for (uint32_t i = 0; i < N_COMPARED; i++)
                predict_trial_clear(trials[i]);
        seq_step(&s, t->n, show_all, trials);
    }
    const struct predict_score *mixture = predict_trial_scores(trials[MIXTURE]);
    for (uint32_t i = 0; i < N_COMPARED; i++) {
        struct predict_score total = predict_trial_total(trials[i]);
        print_message("text %u, %s: %llu layers, log-loss %.4f, calibration %.4f, recall %.3f\n",
                      text, compared[i].name, (unsigned long long)total.layers,
                      predict_score_log_loss(&total), predict_score_calibration(&total),
                      predict_score_recall(&total));
        if (compared[i].kind == &predictor_mlp)
            assert_int_equal(total.n > 0, t->trained);
        if (compared[i].kind == &predictor_token_table) /* it predicts four layers before */
            assert_int_equal(total.n > 0, !t->no_ids && t->late < 4);
        if (i < MIXTURE && total.n)
            compare(text, i, predict_trial_scores(trials[i]), mixture);
    }
    for (uint32_t l = SEQ_FIRST; l < SEQ_LAYERS; l++)
        assert_int_equal(mixture[l].layers, 800);
    struct predict_score total = predict_trial_total(trials[MIXTURE]);
    assert_true(predict_score_calibration(&total) < calibration);
    for (uint32_t i = 0; i < N_COMPARED; i++)
        predict_trial_free(trials[i]);
    image_free(&image);
}

/* At every batch size, in time and late. */
static void test_log_loss(void **state)
{
    static const struct made_up texts[] = {
        {1.0f, 0.3f, 1, 0, false, false}, {0, 0.1f, 1, 0, false, false},
        {2.0f, 1.5f, 1, 0, false, false}, {1.0f, 0.6f, 4, 0, false, false},
        {1.0f, 0.3f, 1, 2, false, false}, {2.0f, 1.5f, 2, 9, false, false},
        {1.0f, 0.3f, 1, 0, true, false},  {1.0f, 0.6f, 4, 0, true, false},
        {2.0f, 1.5f, 1, 1, true, false},  {.topic = 1.0f, .noise = 0.3f, .n = 1, .no_ids = true}};
    (void)state;
    for (uint32_t text = 0; text < sizeof texts / sizeof *texts; text++) {
        random_state = 100 + text;
        try_text(text, &texts[text], seq_gate, 0.02);
    }
}

/* Without a gate the background half's early prediction is the only one. */
static void test_early(void **state)
{
    static const struct made_up texts[] = {{1.0f, 0.3f, 1, 0, false, false},
                                           {1.0f, 0.3f, 1, 0, true, false},
                                           {1.0f, 0.3f, 4, 0, true, false}};
    (void)state;
    for (uint32_t text = 0; text < sizeof texts / sizeof *texts; text++) {
        random_state = 200 + text;
        try_text(text, &texts[text], NULL, 0.025);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_newton_step),    cmocka_unit_test(test_finds_weights),
        cmocka_unit_test(test_who_has_spoken), cmocka_unit_test(test_groups),
        cmocka_unit_test(test_own_patterns),   cmocka_unit_test(test_recency),
        cmocka_unit_test(test_old_updates),    cmocka_unit_test(test_log_loss),
        cmocka_unit_test(test_early),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
