/* lib/train: each part on cases worked out by hand, gradients compared with differences, and the
 * whole training on a trace whose next layers are known functions of the earlier ones. */
#include "train/adam.h"
#include "train/blas.h"
#include "train/fit.h"
#include "train/groups.h"
#include "train/half.h"
#include "train/pca.h"
#include "train/samples.h"
#include "train/train.h"

#include "model/router.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

static void assert_close(double got, double want, double within)
{
    if (!(fabs(got - want) <= within))
        fail_msg("%.9g instead of %.9g", got, want);
}

static void open_blas(void)
{
    struct error e;
    if (blas_open(&e))
        fail_msg("%s", e.text);
}

/* ---- Loss ---- */

/* One token, two experts, z = (0, log 3), so p = (1/2, 3/4); the first is activated. BCE: -log 1/2
 * and -log 1/4, together 3 log 2, half of it the mean: 1.0397. Its derivatives are p - y = (-1/2,
 * 3/4). */
static void test_bce(void **state)
{
    const float z[2] = {0, logf(3)};
    const uint32_t active[1] = {0};
    float error[2];
    const struct loss plain = {.lambda = 1};
    assert_close(loss_of(&plain, z, active, 1, 2, 1, error), 1.5 * log(2), 1e-6);
    assert_close(error[0], -0.5, 1e-6);
    assert_close(error[1], 0.75, 1e-6);
    /* two tokens alike: each counts half in the derivative */
    const float twice[4] = {z[0], z[1], z[0], z[1]};
    const uint32_t both[2] = {0, 0};
    float errors[4];
    assert_close(loss_of(&plain, twice, both, 2, 2, 1, errors), 1.5 * log(2), 1e-6);
    assert_close(errors[1], 0.375, 1e-6);
}

/* The same, hybrid: weights (2, 1/2), lambda 1/2, gamma 2. q, the probability of what is true, is
 * (1/2, 1/4). First:  1/2 * 2 * log 2 + 1/2 * (1/2)^2 log 2 = 1.125 log 2. Second: 1/2 * 1/2 * log
 * 4 + 1/2 * (3/4)^2 log 4 = 0.53125 * 2 log 2 = 1.0625 log 2. Mean: 1.09375 log 2. */
static void test_hybrid(void **state)
{
    const float z[2] = {0, logf(3)}, weight[2] = {2, 0.5f};
    const uint32_t active[1] = {0};
    float error[2], other[2];
    const struct loss hybrid = {.lambda = 0.5f, .weight = weight};
    assert_close(loss_of(&hybrid, z, active, 1, 2, 1, error), 1.09375 * log(2), 1e-6);
    for (int i = 0; i < 2;
         i++) { /* the mean over two experts is half of what the derivative is of */
        float up[2] = {z[0], z[1]}, down[2] = {z[0], z[1]};
        up[i] += 1e-2f;
        down[i] -= 1e-2f;
        double slope = (loss_of(&hybrid, up, active, 1, 2, 1, other) -
                        loss_of(&hybrid, down, active, 1, 2, 1, other)) /
                       2e-2 * 2;
        assert_close(error[i], slope, 1e-3);
    }
}

/* Activated 30, 10 and 0 times: shares of the mean 90/40, 30/40 and 0, which counts as 1/20.
 * Inverse: 4/9, 4/3, 20; their mean is (4 + 12 + 180) / 27 = 196 / 27. */
static void test_weights(void **state)
{
    const uint64_t counts[3] = {30, 10, 0};
    float weight[3];
    loss_weights(counts, 3, weight);
    assert_close(weight[0], 4.0 / 9 * 27 / 196, 1e-6);
    assert_close(weight[1], 4.0 / 3 * 27 / 196, 1e-6);
    assert_close(weight[2], 20.0 * 27 / 196, 1e-5);
}

/* ---- Networks ---- */

/* The loss of a batch; error filled. */
static double batch_loss(struct net *n, const float *x, const uint32_t *active, uint32_t batch)
{
    static const float weight[3] = {0.5f, 1, 1.5f};
    const struct loss l = {.lambda = 0.5f, .weight = weight};
    net_forward(n, x, batch, NULL);
    return loss_of(&l, n->logits, active, batch, n->shape.n_out, 1, n->error) * n->shape.n_out;
}

/* Compares every 3rd parameter's gradient of net_backward with (L(w + h) - L(w - h)) / 2h. */
static void check_gradient(uint32_t n_gated, enum trained_activation activation)
{
    enum { BATCH = 5, IN = 4 };
    const struct net_shape shape = {IN, 6, 3, n_gated, activation, 0};
    struct noise r = noise_of(7, n_gated, 0);
    struct net n;
    float x[BATCH * IN];
    const uint32_t active[BATCH] = {0, 1, 2, 0, 1};
    assert_true(net_init(&n, &shape, BATCH, &r));
    for (size_t i = 0; i < n.parts.n;
         i++) /* no value near 0, so that every parameter has an effect */
        n.w[i] = 0.7f * noise_normal(&r);
    for (int i = 0; i < BATCH * IN; i++)
        x[i] = noise_normal(&r);
    batch_loss(&n, x, active, BATCH);
    net_backward(&n, x, BATCH);
    float *gradient = malloc(n.parts.n * sizeof *gradient);
    memcpy(gradient, n.gradient, n.parts.n * sizeof *gradient);
    double largest = 0;
    for (size_t i = 0; i < n.parts.n; i += 3) {
        float keep = n.w[i], h = 2e-3f;
        n.w[i] = keep + h;
        double up = batch_loss(&n, x, active, BATCH);
        n.w[i] = keep - h;
        double down = batch_loss(&n, x, active, BATCH);
        n.w[i] = keep;
        assert_close(gradient[i], (up - down) / (2 * h), 2e-3);
        largest = fabs(gradient[i]) > largest ? fabs(gradient[i]) : largest;
    }
    assert_true(largest > 0.05);
    free(gradient);
    net_fini(&n);
}

static void test_gradients(void **state)
{
    open_blas();
    check_gradient(0, TRAINED_GELU);
    check_gradient(0, TRAINED_RELU);
    check_gradient(3, TRAINED_GELU);
}

/* A network that starts from a linear map computes that map: z = (2 x0 - x1 + 1/2, x1 - 1/4), the
 * third input without effect. */
static void test_start_linear(void **state)
{
    const float map[4] = {2, -1, 0, 1}, bias[2] = {0.5f, -0.25f}, x[3] = {0.75f, -1.5f, 9};
    for (int i = 0; i < 4; i++) {
        const struct net_shape shape = {3, 8, 2, i / 2 * 2, (enum trained_activation)(i % 2), 0.5f};
        struct noise r = noise_of(1, 2, 3);
        struct net n;
        assert_true(net_init(&n, &shape, 1, &r));
        net_start_linear(&n, map, 2, bias);
        net_forward(&n, x, 1, NULL);
        assert_close(n.logits[0], 2 * 0.75 + 1.5 + 0.5, 1e-5);
        assert_close(n.logits[1], -1.5 - 0.25, 1e-5);
        net_fini(&n);
    }
}

/* g = 2 and w = 3 at first, rate 0.1, decay 0.5. Step 1: m' = g, v' = g^2, so w -= 0.1 (1 + 0.5 *
 * 3) = 0.25 and 2.75 is left; a bias without decay loses 0.1. Step 2 with g = 0: m = 0.18, m' =
 * 0.18 / 0.19; v = 0.003996, v' = 0.003996 / 0.001999. */
static void test_adam(void **state)
{
    struct adam a;
    float w[2] = {3, 3}, g[2] = {2, 2};
    assert_true(adam_init(&a, 2));
    adam_step(&a, g, 0.1f, 0.5f, 1, w);
    assert_close(w[0], 2.9, 1e-6);
    assert_close(w[1], 2.75, 1e-6);
    g[0] = g[1] = 0;
    adam_step(&a, g, 0.1f, 0.5f, 1, w);
    double step = 0.18 / 0.19 / sqrt(0.003996 / 0.001999);
    assert_close(w[0], 2.9 - 0.1 * step, 1e-5);
    assert_close(w[1], 2.75 - 0.1 * (step + 0.5 * 2.75), 1e-5);
    adam_fini(&a);
    /* a fifth of warming up: half of it at a tenth, all at a fifth; then half a cosine: half of it
     * in the middle of the rest */
    assert_close(adam_schedule(0.1f, 0.2f), 0.5, 1e-6);
    assert_close(adam_schedule(0.2f, 0.2f), 1, 1e-6);
    assert_close(adam_schedule(0.6f, 0.2f), 0.5, 1e-6);
    assert_close(adam_schedule(1, 0.2f), 0, 1e-6);
}

/* 0 is the nearest even half of 1 + 2^-8, which lies in the middle of 1 and 1 + 2^-7; 3 * 2^-8
 * above 1 goes to 1 + 2^-6. */
static void test_half(void **state)
{
    assert_true(half_value(1.5f) == 1.5f && half_value(-0.0f) == 0);
    assert_true(half_value(1 + 0x1p-8f) == 1);
    assert_true(half_value(1 + 3 * 0x1p-8f) == 1 + 0x1p-6f);
    assert_int_equal(half_of(1), 0x3f80);
}

/* Logits 2 y - 1 with y right in 3 of 4 cases: the log-odds of that are log 3, so a = log 3, b = 0,
 * and the loss is that of a coin that falls 3 to 1, 0.5623. */
static void test_platt(void **state)
{
    float z[8];
    uint32_t active[4] = {0, 0, 0, 0};
    for (int t = 0; t < 4; t++) { /* two experts; the last token's logits have the wrong sign */
        z[2 * t] = t < 3 ? 1 : -1;
        z[2 * t + 1] = -z[2 * t];
    }
    double a, b, loss = fit_platt(z, active, 4, 2, 1, &a, &b);
    assert_close(a, log(3), 1e-4);
    assert_close(b, 0, 1e-6);
    assert_close(loss, -0.75 * log(0.75) - 0.25 * log(0.25), 1e-6);
}

/* ---- Components ---- */

/* Points (5, 1) +- 3 (3/5, 4/5) and +- 1 (4/5, -3/5), equally often: around the mean (5, 1) the
 * variance along the first direction is 9/2, along the second 1/2. The first component keeps 9/10;
 * divided by its deviation sqrt(9/2), the points have +-sqrt 2 and 0. */
static void test_pca(void **state)
{
    open_blas();
    const float points[8] = {5 + 1.8f, 1 + 2.4f, 5 - 1.8f, 1 - 2.4f,
                             5 + 0.8f, 1 - 0.6f, 5 - 0.8f, 1 + 0.6f};
    struct pca_sums sums;
    struct pca p;
    struct error e;
    assert_int_equal(pca_sums_new(2, &sums, &e), ERROR_OK);
    pca_sums_add(&sums, points, 3);
    pca_sums_add(&sums, points + 6, 1);
    assert_int_equal(pca_fit(&sums, 1, false, &p, &e), ERROR_OK);
    assert_close(p.kept, 0.9, 1e-6);
    double sign = p.basis[0] > 0 ? 1 : -1, size = sqrt(4.5);
    assert_close(sign * p.basis[0], 0.6 / size, 2e-3); /* a bf16 */
    assert_close(sign * p.basis[1], 0.8 / size, 2e-3);
    assert_close(sign * p.inverse[0], 0.6 * size, 1e-5);
    assert_close(sign * p.inverse[1], 0.8 * size, 1e-5);
    for (int i = 0; i < 4; i++) {
        double c = p.bias[0] + points[2 * i] * p.basis[0] + points[2 * i + 1] * p.basis[1];
        assert_close(sign * c, i == 0 ? sqrt(2) : i == 1 ? -sqrt(2) : 0, 1e-2);
    }
    pca_free(&p);
    /* Both: the mean variance is 5/2, by which both are divided; whitened each has 1. */
    assert_int_equal(pca_fit(&sums, 2, false, &p, &e), ERROR_OK);
    assert_close(fabs(p.inverse[0]), 0.6 * sqrt(2.5), 1e-5);
    assert_close(fabs(p.inverse[2]), 0.8 * sqrt(2.5), 1e-5);
    pca_free(&p);
    assert_int_equal(pca_fit(&sums, 2, true, &p, &e), ERROR_OK);
    assert_close(fabs(p.inverse[0]), 0.6 * sqrt(4.5), 1e-5);
    assert_close(fabs(p.inverse[2]), 0.8 * sqrt(0.5), 1e-5);
    assert_close(p.kept, 1, 1e-6);
    pca_free(&p);
    pca_sums_free(&sums);
}

/* Six layers, alike 0.5 0.5 0.9 0.9 0.9 0.5, skew the same everywhere: the scores are -1 and 1, and
 * layers 2 to 4 are the upper ones.
 *
 * With skews 0.7, but 0.4 in layers 3 and 4 (standardised 1 / sqrt 2 and -sqrt 2), layer 2 counts
 * less: the scores are -1.707, -1.707, 0.293, 2.414, 2.414, -1.707. The run 2..4 has the mean 1.707
 * against -1.707: 3 * 3 / 6 * 3.414^2 = 17.5. The run 3..4 has 2.414 against -1.207: 2 * 4 / 6
 * * 3.621^2 = 17.5: both are 9 + 6 sqrt 2, so the longest. */
static void test_groups(void **state)
{
    const double alike[6] = {0.5, 0.5, 0.9, 0.9, 0.9, 0.5}, even[6] = {0};
    const double skew[6] = {0.7, 0.7, 0.7, 0.4, 0.4, 0.7};
    const double upside[6] = {0.9, 0.9, 0.5, 0.5, 0.9, 0.9};
    enum layer_group g[6];
    groups_find(6, alike, even, g);
    const enum layer_group want[6] = {GROUP_INPUT,  GROUP_INPUT,  GROUP_MIDDLE,
                                      GROUP_MIDDLE, GROUP_MIDDLE, GROUP_OUTPUT};
    assert_memory_equal(g, want, sizeof want);
    groups_find(6, alike, skew, g);
    assert_memory_equal(g, want, sizeof want);
    groups_find(2, alike, even, g);
    assert_true(g[0] == GROUP_INPUT && g[1] == GROUP_INPUT);
    groups_find(6, even, even, g); /* no run is above the rest */
    assert_true(g[0] == GROUP_INPUT && g[3] == GROUP_INPUT && g[5] == GROUP_INPUT);
    /* where the middle is the worst, the best run is only 1 or only 4: 5/6 * (0.9 - 0.74)^2 in
     * similarity; the first */
    groups_find(6, upside, even, g);
    assert_true(g[0] == GROUP_INPUT && g[1] == GROUP_MIDDLE && g[2] == GROUP_OUTPUT);
}

/* ---- The whole ---- */

/* A made-up model. Layer l + 1 sees h' = M h, M a fixed rotation (a shuffle of the values with
 * signs), and its gate chooses by random rows, so each layer's choice is a known linear function of
 * the gate inputs of all before. */
enum { LAYERS = 5, FIRST = 1, EXPERTS = 8, USED = 2, WIDTH = 8, SEQUENCES = 24, LENGTH = 300 };

struct model {
    float matrices[LAYERS][EXPERTS][WIDTH];
    uint32_t from[LAYERS][WIDTH];
    float sign[LAYERS][WIDTH];
    float step[WIDTH]; /* added at each layer */
};

static void make_model(struct model *m, bool rotates)
{
    struct noise r = noise_of(11, 0, 0);
    for (uint32_t l = 0; l < LAYERS; l++) {
        noise_shuffle(&r, WIDTH, m->from[l]);
        for (uint32_t i = 0; i < WIDTH; i++) {
            m->from[l][i] = rotates ? m->from[l][i] : i;
            m->sign[l][i] = rotates && noise_below(&r, 2) ? -1 : 1;
            m->step[i] = rotates ? 0 : 0.5f * (float)(i % 3);
            for (uint32_t e = 0; e < EXPERTS; e++)
                m->matrices[l][e][i] = noise_normal(&r);
        }
    }
}

/* The next layer's gate input from this one's. */
static void advance(const struct model *m, uint32_t layer, const float *h, float *next)
{
    for (uint32_t i = 0; i < WIDTH; i++)
        next[i] = m->sign[layer][i] * h[m->from[layer][i]] + m->step[i];
}

static const struct router_params router = {
    .kind = ROUTER_SOFTMAX, .n_experts = EXPERTS, .n_used = USED, .renormalise = true, .scale = 1};

static void choose(const struct model *m, uint32_t layer, const float *h, float *gate,
                   uint16_t *selected)
{
    uint32_t best[USED];
    float weights[USED];
    for (uint32_t e = 0; e < EXPERTS; e++) {
        gate[e] = 0;
        for (uint32_t i = 0; i < WIDTH; i++)
            gate[e] += m->matrices[layer][e][i] * h[i];
    }
    router_select(&router, gate, NULL, best, weights);
    for (uint32_t k = 0; k < USED; k++)
        selected[k] = (uint16_t)best[k];
}

static void write_sequence(struct trace_writer *w, const struct model *m, uint32_t s, uint32_t has)
{
    enum { L = LAYERS - FIRST };
    static uint16_t selected[LENGTH][L][USED];
    static float gate[LENGTH][L][EXPERTS], hidden[LENGTH][L][WIDTH];
    static const float *rows[LENGTH];
    static uint32_t tokens[LENGTH];
    struct noise r = noise_of(5, 0, s);
    struct error e;
    for (uint32_t t = 0; t < LENGTH; t++) {
        for (uint32_t i = 0; i < WIDTH; i++) /* values that half precision holds exactly */
            hidden[t][0][i] = roundf(noise_normal(&r) * 128) / 128;
        for (uint32_t l = 0; l < L; l++) {
            if (l)
                advance(m, FIRST + l, hidden[t][l - 1], hidden[t][l]);
            choose(m, FIRST + l, hidden[t][l], gate[t][l], selected[t][l]);
        }
        rows[t] = hidden[t][0];
        tokens[t] = t;
    }
    const struct trace_data data = {.sequence = {LENGTH, 1, tokens},
                                    .selected = selected[0][0],
                                    .gate = has & TRACE_GATE ? gate[0][0] : NULL,
                                    .hidden = has & TRACE_HIDDEN ? rows : NULL};
    if (trace_write_sequence(w, &data, &e))
        fail_msg("%s", e.text);
}

static struct trace *make_trace_with(bool rotates, uint32_t has)
{
    char path[] = "/tmp/moed-test-train-XXXXXX";
    static struct model m;
    struct trace_shape shape = {.model = "made up",
                                .n_layers = LAYERS,
                                .first_layer = FIRST,
                                .n_experts = EXPERTS,
                                .n_used = USED,
                                .d_model = WIDTH,
                                .has = has,
                                .router = router};
    struct trace_layer layers[LAYERS] = {0};
    struct trace_writer *w;
    struct trace *trace = NULL;
    struct error e;
    make_model(&m, rotates);
    for (uint32_t l = FIRST; l < LAYERS; l++)
        layers[l] =
            (struct trace_layer){.n_segments = 1, .segment_bytes = 64, .matrix = m.matrices[l][0]};
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    if (trace_writer_new(path, &shape, layers, &w, &e))
        fail_msg("%s", e.text);
    for (uint32_t s = 0; s < SEQUENCES; s++)
        write_sequence(w, &m, s, has);
    if (trace_writer_finish(w, &e) || trace_open(path, &trace, &e))
        fail_msg("%s", e.text);
    unlink(path);
    return trace;
}

static struct trace *make_trace(bool rotates)
{
    return make_trace_with(rotates, TRACE_GATE | TRACE_HIDDEN | TRACE_ROUTERS);
}

static const struct train_score *score(const struct train_result *r, uint32_t layer,
                                       enum train_judged who)
{
    return &r->report.scores[layer * TRAIN_JUDGED + (uint32_t)who];
}

static struct train_result train(const struct trace *t, struct train_options options)
{
    struct train_result r;
    struct error e;
    options.threads = options.threads ? options.threads : 2;
    if (train_run(t, &options, &r, &e))
        fail_msg("%s", e.text);
    return r;
}

/* Gates predict nothing of later layers; networks trained on the rotation predict nearly all of
 * it. */
static void test_known_function(void **state)
{
    struct trace *t = make_trace(true);
    struct train_result r = train(
        t, (struct train_options){
               .what = TRAIN_ALL, .epochs = 60, .seed = 3, .hidden = 256, .components = WIDTH});
    assert_int_equal(r.report.n_train + r.report.n_check + r.report.n_held, SEQUENCES * LENGTH);
    assert_true(r.report.n_held >= SEQUENCES * LENGTH / 10 &&
                r.report.n_held <= SEQUENCES * LENGTH / 5);
    for (uint32_t l = FIRST + 2; l < LAYERS; l++) {
        print_message("layer %u: next-gate %.3f, mlp %.3f (log-loss %.3f), llapor %.3f (%.3f), hot "
                      "%.3f\n",
                      l, score(&r, l, JUDGED_NEXT_GATE)->recall, score(&r, l, JUDGED_MLP)->recall,
                      score(&r, l, JUDGED_MLP)->log_loss, score(&r, l, JUDGED_LLAPOR)->recall,
                      score(&r, l, JUDGED_LLAPOR)->log_loss, score(&r, l, JUDGED_LLAPOR)->hot);
        assert_true(score(&r, l, JUDGED_NEXT_GATE)->recall < 0.5);
        assert_true(score(&r, l, JUDGED_MLP)->recall > 0.93);
        assert_true(score(&r, l, JUDGED_LLAPOR)->recall > 0.93);
        assert_true(score(&r, l, JUDGED_MLP)->log_loss < 0.12);
        assert_true(score(&r, l, JUDGED_LLAPOR)->hot > 0.95);
    }
    assert_int_equal(score(&r, FIRST + 1, JUDGED_MLP)->n, 0); /* no layer lies two layers before */
    train_result_free(&r);
    trace_close(t);
}

/* A model whose layers differ by one constant step. With the residual the next gate is always
 * right, except for a tie that half precision changes; without it, it is not. A network that begins
 * as the gate needs hardly any training to be as good. */
static void test_constant_step(void **state)
{
    struct trace *t = make_trace(false);
    struct train_result r = train(
        t, (struct train_options){
               .what = TRAIN_ALL, .epochs = 1, .seed = 3, .hidden = 128, .components = WIDTH});
    for (uint32_t l = FIRST + 1; l < LAYERS; l++) {
        assert_true(score(&r, l, JUDGED_RESIDUAL)->recall > 0.99);
        assert_true(score(&r, l, JUDGED_NEXT_GATE)->recall < 0.95);
        print_message("layer %u: residual %.3f, mlp %.3f\n", l,
                      score(&r, l, JUDGED_RESIDUAL)->recall, score(&r, l, JUDGED_MLP)->recall);
        if (l > FIRST + 1)
            assert_true(score(&r, l, JUDGED_MLP)->recall > 0.9);
    }
    struct trained_predictors view;
    char why[TRAINED_WHY];
    assert_true(trained_view(r.bytes, r.n, &view, why) && trained_is_intact(&view));
    const float *residual = trained_residual(&view, FIRST);
    for (uint32_t i = 0; i < WIDTH; i++)
        assert_close(residual[i], 0.5 * (i % 3), 1e-3);
    assert_null(trained_residual(&view, LAYERS - 1));
    train_result_free(&r);
    trace_close(t);
}

/* The same bytes with another number of threads; other bytes with another seed. */
static void test_deterministic(void **state)
{
    struct trace *t = make_trace(true);
    struct train_options o = {.what = TRAIN_ALL, .epochs = 2, .seed = 9, .threads = 1};
    struct train_result a = train(t, o);
    o.threads = 3;
    struct train_result b = train(t, o);
    assert_true(a.n == b.n && memcmp(a.bytes, b.bytes, a.n) == 0);
    o.seed = 10;
    struct train_result c = train(t, o);
    assert_true(a.n != c.n || memcmp(a.bytes, c.bytes, a.n) != 0);
    /* the profile: each training token activates USED experts in every layer */
    struct trained_predictors view;
    char why[TRAINED_WHY];
    assert_true(trained_view(a.bytes, a.n, &view, why));
    const uint32_t *counts = trained_activations(&view);
    for (uint32_t l = FIRST; l < LAYERS; l++) {
        uint64_t sum = 0;
        for (uint32_t i = 0; i < EXPERTS; i++)
            sum += counts[l * EXPERTS + i];
        assert_int_equal(sum, (uint64_t)a.report.n_train * USED);
    }
    train_result_free(&a);
    train_result_free(&b);
    train_result_free(&c);
    trace_close(t);
}

/* A trace without routers and gates: the report omits gates, and LLaPor lacks its weights. A trace
 * without gate inputs: training fails. */
static void test_little_in_trace(void **state)
{
    struct trace *t = make_trace_with(true, TRACE_HIDDEN);
    struct train_options o = {.what = TRAIN_ALL, .epochs = 2, .seed = 1, .threads = 1};
    struct train_result r;
    struct error e;
    assert_int_equal(train_run(t, &o, &r, &e), ERROR_UNSUPPORTED);
    assert_non_null(strstr(e.text, "--only residual,mlp"));
    o.what = TRAIN_RESIDUAL | TRAIN_MLP;
    r = train(t, o);
    assert_int_equal(score(&r, LAYERS - 1, JUDGED_NEXT_GATE)->n, 0);
    assert_true(score(&r, LAYERS - 1, JUDGED_MLP)->n > 0);
    struct trained_predictors view;
    char why[TRAINED_WHY];
    assert_true(trained_view(r.bytes, r.n, &view, why));
    assert_int_equal(view.header.routers, 0);
    assert_true(trained_has(&view, PREDICT_MLP) && !trained_has(&view, PREDICT_LLAPOR));
    train_result_free(&r);
    trace_close(t);
    t = make_trace_with(true, TRACE_GATE | TRACE_ROUTERS);
    assert_int_equal(train_run(t, &o, &r, &e), ERROR_UNSUPPORTED);
    assert_non_null(strstr(e.text, "moed profile --hidden"));
    trace_close(t);
}

static bool stop_at_once(void *arg, const char *what, uint64_t done, uint64_t total)
{
    (*(int *)arg)++;
    return false;
}

static void test_refusals(void **state)
{
    struct trace *t = make_trace(true);
    struct train_result r;
    struct error e;
    int asked = 0;
    struct train_options o = {.what = TRAIN_MLP, .stride = LAYERS - FIRST};
    assert_int_equal(train_run(t, &o, &r, &e), ERROR_USAGE);
    o = (struct train_options){
        .what = TRAIN_ALL, .epochs = 1000, .progress = stop_at_once, .progress_arg = &asked};
    assert_int_equal(train_run(t, &o, &r, &e), ERROR_CANCELLED);
    assert_true(asked > 0);
    /* a time limit: 1000 epochs would take minutes */
    o.progress = NULL;
    o.seconds = 0.5;
    assert_int_equal(train_run(t, &o, &r, &e), ERROR_OK);
    train_result_free(&r);
    trace_close(t);
}

/* The parts share no sequence, and no row is lost. Held out and check are one run each in the order
 * of the trace, side by side. */
static void test_split(void **state)
{
    struct trace *t = make_trace(true);
    struct error e;
    uint32_t first_of_seed_1 = 0, moved = 0;
    for (uint64_t seed = 1; seed <= 8; seed++) {
        struct samples s;
        assert_int_equal(samples_new(t, seed, &s, &e), ERROR_OK);
        char part[SEQUENCES];
        memset(part, -1, sizeof part);
        for (uint32_t i = 0; i < s.n; i++) {
            char p = (char)(i < s.n_train ? 0 : i < s.n_train + s.n_check ? 1 : 2);
            char *of = &part[s.rows[i].sequence];
            assert_true(*of == -1 || *of == p);
            *of = p;
        }
        assert_int_equal(s.n, SEQUENCES * LENGTH);
        assert_int_equal(s.n - s.n_train - s.n_check, 3 * LENGTH); /* a tenth of 24: 3 have it */
        assert_int_equal(s.n_check, 3 * LENGTH);                   /* a tenth of the rest */
        const char *held = memchr(part, 2, sizeof part);
        assert_true(held + 6 <= part + SEQUENCES);
        assert_memory_equal(held, "\2\2\2\1\1\1", 6);
        uint32_t first = (uint32_t)(held - part);
        first_of_seed_1 = seed == 1 ? first : first_of_seed_1;
        moved += first != first_of_seed_1;
        samples_free(&s);
    }
    assert_true(moved > 0); /* the seed chooses the place */
    trace_close(t);
}

/* ---- Time, interruption, earlier files ---- */

struct clock {
    float share; /* given to the run */
    uint32_t calls, most;
};

static float share_of_clock(void *arg)
{
    struct clock *c = arg;
    return ++c->calls > c->most ? 1 : c->share;
}

/* The largest change of the first matrix in a run on 512 rows, 4 batches an epoch, whose output
 * follows the first input. */
static double moved_by(struct clock *c)
{
    enum { ROWS = 640, TRAINED = 512 };
    static float x[ROWS * 4];
    static uint32_t active[ROWS];
    struct noise r = noise_of(3, 0, 0);
    const struct net_shape shape = {.n_in = 4, .n_hidden = 8, .n_out = 2};
    for (uint32_t i = 0; i < ROWS; i++) {
        for (uint32_t k = 0; k < 4; k++)
            x[i * 4 + k] = noise_normal(&r);
        active[i] = x[i * 4] > 0;
    }
    struct net net;
    assert_true(net_init(&net, &shape, 128, &r));
    float before[4 * 8];
    memcpy(before, net.w + net.parts.w_in, sizeof before);
    const struct fit_rows rows = {x, active, 1, TRAINED, ROWS - TRAINED};
    const struct fit_options options = {.epochs = 10,
                                        .rate = 0.01f,
                                        .warm_epochs = 1,
                                        .loss = {.lambda = 1},
                                        .spent = share_of_clock,
                                        .arg = c};
    double loss, most = 0;
    assert_true(fit_run(&net, &rows, &options, &r, &loss));
    for (uint32_t i = 0; i < 4 * 8; i++) {
        double change = fabs((double)net.w[net.parts.w_in + i] - (double)before[i]);
        most = change > most ? change : most;
    }
    net_fini(&net);
    return most;
}

/* A run stops in the midst of an epoch, and its rate follows the time where that is ahead. */
static void test_time_limit(void **state)
{
    struct clock whole = {.share = 0, .most = 1000}, cut = {.share = 0, .most = 6},
                 late = {.share = 0.9999f, .most = 1000};
    open_blas();
    double far = moved_by(&whole);
    assert_int_equal(whole.calls, 40);
    assert_true(moved_by(&cut) < far);
    assert_int_equal(cut.calls, 7);
    assert_true(moved_by(&late) < far / 100);
}

static uint32_t count_networks(const struct trained_predictors *l)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < l->header.n_layers; i++)
        n += (l->layers[i].mlp.offset != 0) + (l->layers[i].llapor.offset != 0);
    return n;
}

static struct trained_predictors view_of(const struct train_result *r)
{
    struct trained_predictors l;
    char why[TRAINED_WHY] = "";
    if (!trained_view(r->bytes, r->n, &l, why))
        fail_msg("%s", why);
    assert_true(trained_is_intact(&l));
    return l;
}

static bool stop_after_a_network(void *arg, const char *what, uint64_t done, uint64_t total)
{
    return strcmp(what, "networks") != 0 || done < *(uint32_t *)arg;
}

/* Stopped after one of its four networks, or later on a machine that was slow to ask: those that
 * are trained are in the file. */
static void test_interrupted(void **state)
{
    struct trace *t = make_trace(true);
    uint32_t epochs = 60;
    struct train_options o = {.what = TRAIN_ALL,
                              .epochs = epochs,
                              .threads = 1,
                              .progress = stop_after_a_network,
                              .progress_arg = &epochs};
    struct train_result r = train(t, o);
    assert_int_equal(r.report.n_networks, 2 * (LAYERS - FIRST - 2));
    assert_in_range(r.report.n_trained, 1, r.report.n_networks);
    struct trained_predictors l = view_of(&r);
    assert_int_equal(count_networks(&l), r.report.n_trained);
    assert_non_null(trained_residual(&l, FIRST));
    if (r.report.interrupted)
        assert_int_equal(score(&r, LAYERS - 1, JUDGED_NEXT_GATE)->n, 0);
    train_result_free(&r);
    trace_close(t);
}

/* The bytes of a network of the image's layout: as in the two files. */
static void assert_same_network(const struct trained_predictors *a, const struct trained_network *x,
                                const struct trained_predictors *b, const struct trained_network *y)
{
    assert_int_equal(x->n_hidden, y->n_hidden);
    assert_int_equal(x->n_gated, y->n_gated);
    assert_memory_equal(a->bytes + x->offset, b->bytes + y->offset,
                        2 * (x->n_in + EXPERTS) * x->n_hidden);
}

/* A run that trains one part keeps the others of the earlier file, and its stride. */
static void test_keep(void **state)
{
    struct trace *t = make_trace(true);
    struct train_options o = {.what = TRAIN_ALL, .epochs = 1, .stride = 1, .seed = 1};
    struct train_result first = train(t, o);
    struct trained_predictors old = view_of(&first);
    o = (struct train_options){.what = TRAIN_RESIDUAL, .seed = 2, .keep = &old};
    struct train_result second = train(t, o);
    struct trained_predictors l = view_of(&second);
    assert_int_equal(l.header.stride, 1);
    assert_int_equal(count_networks(&l), count_networks(&old));
    for (uint32_t i = FIRST + 2; i < LAYERS; i++) {
        assert_same_network(&l, &l.layers[i].mlp, &old, &old.layers[i].mlp);
        assert_same_network(&l, &l.layers[i].llapor, &old, &old.layers[i].llapor);
        struct trained_net net;
        struct trained_affine a, b;
        assert_true(trained_llapor(&l, i, &net, &a) && trained_llapor(&old, i, &net, &b));
        assert_int_equal(a.n_out, b.n_out);
        assert_memory_equal(a.bias, b.bias, a.n_out * sizeof *a.bias);
        assert_memory_equal(a.w, b.w, (size_t)a.n_in * a.n_out * sizeof *a.w);
        assert_int_equal(score(&second, i, JUDGED_MLP)->n, 0); /* of another run */
    }
    o = (struct train_options){.what = TRAIN_MLP, .epochs = 1, .seed = 2, .keep = &old};
    struct train_result third = train(t, o);
    l = view_of(&third);
    assert_int_equal(l.header.stride, 2);
    assert_memory_equal(trained_residual(&l, FIRST), trained_residual(&old, FIRST), WIDTH * 4);
    assert_int_equal(count_networks(&l), count_networks(&old) - 1); /* one layer less has an MLP */
    train_result_free(&first);
    train_result_free(&second);
    train_result_free(&third);
    trace_close(t);
}

/* Name and routers are those of the options. */
static void test_of_another_file(void **state)
{
    struct trace *t = make_trace(true);
    struct train_options o = {.what = TRAIN_RESIDUAL, .model = "its copy", .routers = 99};
    struct train_result r = train(t, o);
    struct trained_predictors l = view_of(&r);
    assert_string_equal(l.header.model, "its copy");
    assert_int_equal(l.header.routers, 99);
    train_result_free(&r);
    trace_close(t);
}

/* 7200 rows of 8 inputs and 2 choices, logits of 720 for checking, five arrays of weights: of the
 * MLP with 16 hidden values, (8 + 8) 16 + 16 + 8 = 280 each. */
static void test_memory(void **state)
{
    struct trace *t = make_trace(true);
    struct train_options o = {.what = TRAIN_MLP, .hidden = 16};
    assert_int_equal(train_thread_bytes(t, &o), 7200 * 4 * 10 + 720 * 5 * 8 + 5 * 4 * 280);
    o.what = TRAIN_RESIDUAL;
    assert_int_equal(train_thread_bytes(t, &o), 0);
    assert_int_equal(train_threads(8, 100, 1000), 8);
    assert_int_equal(train_threads(8, 100, 399), 3);
    assert_int_equal(train_threads(8, 100, 99), 1);
    assert_int_equal(train_threads(8, 0, 0), 8);
    trace_close(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bce),           cmocka_unit_test(test_hybrid),
        cmocka_unit_test(test_weights),       cmocka_unit_test(test_gradients),
        cmocka_unit_test(test_start_linear),  cmocka_unit_test(test_adam),
        cmocka_unit_test(test_half),          cmocka_unit_test(test_platt),
        cmocka_unit_test(test_pca),           cmocka_unit_test(test_groups),
        cmocka_unit_test(test_split),         cmocka_unit_test(test_known_function),
        cmocka_unit_test(test_constant_step), cmocka_unit_test(test_deterministic),
        cmocka_unit_test(test_refusals),      cmocka_unit_test(test_little_in_trace),
        cmocka_unit_test(test_time_limit),    cmocka_unit_test(test_interrupted),
        cmocka_unit_test(test_keep),          cmocka_unit_test(test_of_another_file),
        cmocka_unit_test(test_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
