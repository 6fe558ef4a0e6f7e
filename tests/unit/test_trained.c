/* lib/sched/predict/trained*.c and the predictors that use them: tiny networks worked out by hand,
 * damaged files, and files of another model. */
#include "sched/predict/trained_net.h"
#include "sched/predict/predict_internal.h"
#include "train/image.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum { LAYERS = 5, FIRST = 1, EXPERTS = 3, USED = 1, WIDTH = 2 };

static void assert_close(double got, double want)
{
    if (!(fabs(got - want) < 1e-5))
        fail_msg("%.9g instead of %.9g", got, want);
}

static const struct predict_shape model_shape = {.n_layers = LAYERS,
                                                 .first_layer = FIRST,
                                                 .n_experts = EXPERTS,
                                                 .n_used = USED,
                                                 .d_model = WIDTH,
                                                 .max_tokens = 4};

/* ---- A file made by hand ---- */

/* Fills a network's parameters with the given values, in the file's order. */
static void fill(struct image *m, const struct trained_network *n, const struct net_shape *shape,
                 const float *w)
{
    struct net net = {.shape = *shape, .parts = net_parts(shape), .w = (float *)w};
    image_fill_network(m, n, &net);
}

/* mlp of layers 3 and 4, two hidden values: h = relu(2 x0 + 1, x1 - 1), z = (h0, -h1, 1/2). */
static const struct net_shape mlp_shape = {WIDTH, 2, EXPERTS, 0, TRAINED_RELU, 0};
static const float mlp[] = {1,
                            -1,
                            /* b_in */ 0,
                            0,
                            0.5f,
                            /* b_out */ 2,
                            0,
                            0,
                            1, /* w_in */
                            1,
                            0,
                            0,
                            /* w_out */ 0,
                            -1,
                            0};

/* llapor of layer 3, without a block: one component, then three choices, three weights; two hidden
 * values: u = gelu(c + choice 0, weight 1), z = (u0, u1, -1). */
static const struct net_shape shallow = {1 + 2 * EXPERTS, 2, EXPERTS, 0, TRAINED_GELU, 0};
static const float llapor_3[] = {0, 0, 0, 0, -1, 1, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, /**/
                                 1, 0, 0, 0, 1,  0};

/* llapor of layer 4, with a block, one hidden value: o = gelu(c), r = gelu(2 gelu(o) + 1), g =
 * sigmoid(-c), z = (u, -u, 0) with u = o + g r. */
static const struct net_shape deep = {1 + 2 * EXPERTS, 1, EXPERTS, 1, TRAINED_GELU, 0};
static const float llapor_4[] = {/* b_in, b_first, b_second, b_gate */ 0,
                                 0,
                                 1,
                                 0,
                                 /* b_out */ 0,
                                 0,
                                 0,
                                 /* w_in */ 1,
                                 0,
                                 0,
                                 0,
                                 0,
                                 0,
                                 0,
                                 /* w_first, w_second, w_gate */ 1,
                                 2,
                                 -1,
                                 /* w_out */ 1,
                                 -1,
                                 0};

/* mtp, one hidden value: h = relu(embedding 0 + 2 input 1), z = b + h for even places of the 12
 * pairs of layer and expert, b - h for odd ones, with b = place / 8. */
static const struct net_shape mtp_shape = {2 * WIDTH,    1, (LAYERS - FIRST) * EXPERTS, 0,
                                           TRAINED_RELU, 0};
static const float mtp[] = {0,
                            /* b_out */ 0,
                            0.125f,
                            0.25f,
                            0.375f,
                            0.5f,
                            0.625f,
                            0.75f,
                            0.875f,
                            1,
                            1.125f,
                            1.25f,
                            1.375f,
                            /* w_in */ 1,
                            0,
                            0,
                            2,
                            /* w_out */ 1,
                            -1,
                            1,
                            -1,
                            1,
                            -1,
                            1,
                            -1,
                            1,
                            -1,
                            1,
                            -1};

/* One count does not match. */
static const uint64_t activations[LAYERS * EXPERTS] = {0, 0, 0, 1, 2,  3,  4,         5,
                                                       6, 7, 8, 9, 10, 11, 1ull << 40};

static struct image make_image(void)
{
    struct trained_header h = {.magic = TRAINED_MAGIC,
                               .version = TRAINED_VERSION,
                               .n_layers = LAYERS,
                               .first_layer = FIRST,
                               .n_experts = EXPERTS,
                               .n_used = USED,
                               .d_model = WIDTH,
                               .n_groups = 1,
                               .stride = 2,
                               .n_tokens = 100,
                               .routers = 77,
                               .model = "by hand"};
    /* c = 10 + 3 x0 - x1 */
    float basis[2] = {3, -1}, bias[1] = {10}, residual[2] = {0.5f, -2};
    const struct pca pca = {.d = WIDTH, .n = 1, .basis = basis, .bias = bias};
    struct image m;
    assert_true(image_init(&m, &h));
    image_place_residual(&m, 1);
    image_place_network(&m, &m.layers[3].mlp, &mlp_shape);
    image_place_network(&m, &m.layers[4].mlp, &mlp_shape);
    image_place_network(&m, &m.layers[3].llapor, &shallow);
    image_place_network(&m, &m.layers[4].llapor, &deep);
    image_place_group(&m, 0, 1);
    image_place_mtp(&m, &mtp_shape);
    assert_true(image_allocate(&m));
    image_fill_activations(&m, activations);
    image_fill_residual(&m, 1, residual);
    fill(&m, &m.layers[3].mlp, &mlp_shape, mlp);
    fill(&m, &m.layers[4].mlp, &mlp_shape, mlp);
    fill(&m, &m.layers[3].llapor, &shallow, llapor_3);
    fill(&m, &m.layers[4].llapor, &deep, llapor_4);
    image_fill_group(&m, 0, &pca);
    fill(&m, &m.mtp, &mtp_shape, mtp);
    image_finish(&m);
    return m;
}

static struct trained_predictors view(const struct image *m)
{
    struct trained_predictors l;
    char why[TRAINED_WHY] = "";
    if (!trained_view(m->bytes, m->end, &l, why))
        fail_msg("%s", why);
    return l;
}

/* ---- Networks ---- */

static double gelu(double x)
{
    return x * 0.5 * (1 + erf(x / sqrt(2)));
}

static double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

/* ProMoE: "Each layer's predictor is implemented as a two-layer multi-layer perceptron". Two
 * tokens, (1, 4): h = (3, 3), z = (3, -3, 1/2); (-1, 0.5): 2 x0 + 1 = -1 and x1 - 1 = -1/2, both
 * cut off: z = (0, 0, 1/2). */
static void test_mlp_net(void **state)
{
    struct image m = make_image();
    struct trained_predictors l = view(&m);
    struct trained_net net;
    assert_true(trained_mlp(&l, 3, &net));
    assert_false(trained_mlp(&l, 2, &net) || trained_mlp(&l, 1, &net));
    const float x[4] = {1, 4, -1, 0.5f}, want[6] = {3, -3, 0.5f, 0, 0, 0.5f};
    float scratch[4], z[6];
    assert_int_equal(trained_net_scratch(&net), 2);
    trained_net_run(&net, x, 2, scratch, z);
    for (int i = 0; i < 6; i++)
        assert_close(z[i], want[i]);
    image_free(&m);
}

/* PreScope: "compresses the hidden state with Principal Component Analysis", "each linear block
 * consists of a linear layer, GELU activation"; the middle groups have "an additional residual
 * block", which "a gating unit modulates". c = 10 + 3 x0 - x1 of x = (-3, 1/2): 1/2. With a block:
 * see the comment of llapor_4. */
static void test_llapor_nets(void **state)
{
    struct image m = make_image();
    struct trained_predictors l = view(&m);
    struct trained_net net;
    struct trained_affine pca;
    float x[7], scratch[8], z[3];
    const float hidden[2] = {-3, 0.5f};
    assert_true(trained_llapor(&l, 3, &net, &pca) && !net.has_block);
    trained_affine_run(&pca, hidden, WIDTH, 1, x);
    assert_close(x[0], 0.5);
    const uint32_t selected[2] = {0, 1};
    const float gate[3] = {0.2f, 0.6f, 0.1f};
    trained_llapor_rest(3, 2, selected, gate, x + 1); /* shares 1/4 and 3/4 */
    const float rest[6] = {1, 1, 0, 0.25f, 0.75f, 0};
    for (int i = 0; i < 6; i++)
        assert_close(x[1 + i], rest[i]);
    trained_net_run(&net, x, 1, scratch, z);
    assert_close(z[0], gelu(1.5));
    assert_close(z[1], gelu(0.75));
    assert_close(z[2], -1);

    assert_true(trained_llapor(&l, 4, &net, &pca) && net.has_block);
    trained_net_run(&net, x, 1, scratch, z);
    double o = gelu(0.5), u = o + sigmoid(-0.5) * gelu(2 * gelu(o) + 1);
    assert_close(z[0], u);
    assert_close(z[1], -u);
    assert_close(z[2], 0);
    assert_close(scratch[0], u); /* the last layer's input */
    image_free(&m);
}

/* A gate of zeros counts as equal shares. */
static void test_rest_without_gate(void **state)
{
    const uint32_t selected[2] = {2, 0};
    const float gate[3] = {0, 1, 0};
    float rest[6];
    trained_llapor_rest(3, 2, selected, gate, rest);
    const float want[6] = {1, 0, 1, 0.5f, 0, 0.5f};
    assert_memory_equal(rest, want, sizeof want);
}

/* Widths that are no multiple of four, more than one token, zeros among the inputs: against the
 * plain sum. */
static void test_affine(void **state)
{
    enum { IN = 11, OUT = 7, N = 3 };
    uint16_t w[IN * OUT];
    float bias[OUT], x[N * IN], y[N * OUT];
    for (int i = 0; i < IN * OUT; i++)
        w[i] = (uint16_t)(0x3f80 + i); /* 1 and a little more */
    for (int i = 0; i < OUT; i++)
        bias[i] = (float)i;
    for (int i = 0; i < N * IN; i++)
        x[i] = i % 5 < 2 ? 0 : (float)(i % 7) - 3;
    const struct trained_affine a = {IN, OUT, bias, w};
    trained_affine_run(&a, x, IN, N, y);
    for (int t = 0; t < N; t++)
        for (int o = 0; o < OUT; o++) {
            double sum = o;
            for (int i = 0; i < IN; i++)
                sum += x[t * IN + i] * (1 + (i * OUT + o) / 128.0);
            assert_close(y[t * OUT + o], sum);
        }
}

/* One expert a token. Logits (log 3, 0, -log 3) and (0, log 3, NAN), so 3/4, 1/2, 1/4 and 1/2, 3/4,
 * none: the first token's best is 0, the other's 1, no token's best is 2. At least one token
 * activates 0: 1 - 1/4 * 1/2 = 7/8; the same for 1. */
static void test_probabilities(void **state)
{
    const float z[6] = {logf(3), 0, -logf(3), 0, logf(3), NAN};
    double p[3];
    trained_probabilities(&model_shape, z, 2, p);
    assert_close(p[0], 0.875);
    assert_close(p[1], 0.875);
    assert_true(p[2] == 0);
    trained_probabilities(&model_shape, z, 1, p);
    assert_close(p[0], 0.75);
    assert_true(p[1] == 0 && p[2] == 0);
    const float same[3] = {1, 1, 1}; /* of equal ones the lower number */
    trained_probabilities(&model_shape, same, 1, p);
    assert_true(p[0] > 0 && p[1] == 0 && p[2] == 0);
}

/* ---- Predictors ---- */

/* ProMoE: "stride prefetching increases the prediction distance by 1": what is shown of layer 1
 * predicts layer 3. */
static void test_predict_mlp(void **state)
{
    struct image m = make_image();
    struct trained_predictors l = view(&m);
    struct predict_shape s = model_shape;
    double p[3];
    const float hidden[2] = {1, 4};
    const struct predict_seen seen = {.step = 1, .layer = 1, .n_tokens = 1, .hidden = hidden};
    struct predict_target target;
    /* untrained: the predictor predicts nothing and notifies the caller */
    assert_false(predictor_is_trained(PREDICT_MLP, &s));
    assert_true(predictor_is_trained(PREDICT_RESIDUAL, &s));
    struct predictor *q = predictor_new(PREDICT_MLP, PREDICT_BACKGROUND, &s);
    predictor_predict(q, &seen, &(struct predict_target){1, 3}, NULL, p);
    assert_true(p[0] == 0 && p[1] == 0 && p[2] == 0);
    predictor_free(q);

    s.trained = &l;
    assert_true(predictor_is_trained(PREDICT_MLP, &s) && predictor_is_trained(PREDICT_LLAPOR, &s));
    struct predict_traits traits = predictor_traits(PREDICT_MLP, &s);
    assert_true(predict_target(&traits, &s, 1, 1, 0, &target) && target.layer == 3);
    assert_false(
        predict_target(&traits, &s, 1, 3, 0, &target)); /* the next step's layers are no targets */
    q = predictor_new(PREDICT_MLP, PREDICT_BACKGROUND, &s);
    predictor_predict(q, &seen, &target, NULL, p); /* z = (3, -3, 1/2) */
    assert_close(p[0], sigmoid(3));
    assert_true(p[1] == 0 && p[2] == 0);
    predictor_free(q);
    /* another stride in the file is another distance */
    l.header.stride = 3;
    traits = predictor_traits(PREDICT_MLP, &s);
    assert_true(predict_target(&traits, &s, 1, 1, 0, &target) && target.layer == 4);
    /* of another shape: the same as without trained predictors */
    s.n_experts = 4;
    assert_false(predictor_is_trained(PREDICT_MLP, &s));
    image_free(&m);
}

/* The embeddings of a step, then layer 2, then the last layer. Returns what the layer predicts for
 * the next step. */
static void mtp_step(struct predictor *q, const struct predict_shape *s, uint64_t step,
                     const struct predict_token *tokens, const float *embeddings,
                     const float *inputs, uint32_t n, double *p)
{
    struct predict_seen seen = {.step = step,
                                .layer = PREDICT_EMBEDDING,
                                .n_tokens = n,
                                .tokens = tokens,
                                .hidden = embeddings};
    struct predict_traits traits = predictor_traits(PREDICT_MTP, s);
    struct predict_target target;
    predictor_observe(q, &seen);
    assert_true(predict_target(&traits, s, step, PREDICT_EMBEDDING, 0, &target));
    predictor_predict(q, &seen, &target, NULL, p); /* not before the layer */
    assert_true(p[0] == 0 && p[1] == 0 && p[2] == 0);
    seen.layer = 2;
    seen.hidden = inputs;
    predictor_observe(q, &seen);
    assert_true(predict_target(&traits, s, step, 2, 0, &target));
    assert_true(target.step == step + 1 && target.layer == 2);
    assert_false(predict_target(&traits, s, step, 2, 1, &target));
    predictor_predict(q, &seen, &target, NULL, p);
    seen.layer = LAYERS - 1;
    predictor_observe(q, &seen);
}

/* Layer 2 of step t shows layer 2 of step t + 1: places 3 to 5, with the embedding of this token
 * and the last layer's input for the token before. */
static void test_predict_mtp(void **state)
{
    struct image m = make_image();
    struct trained_predictors l = view(&m);
    struct predict_shape s = model_shape;
    double p[3];
    const struct predict_token first[] = {{9, 0, 0}}, both[] = {{5, 7, 0}, {9, 1, 0}},
                               next[] = {{9, 2, 0}, {5, 8, 0}}, draft[] = {{9, 4, 0}, {5, 8, 0}};
    const float one[] = {1, 4}, two[] = {8, 8, 2, 7}, in[] = {0.5f, 3}, in_two[] = {0, 1, 0, -4};
    assert_false(predictor_is_trained(PREDICT_MTP, &s));
    struct predictor *q = predictor_new(PREDICT_MTP, PREDICT_BACKGROUND, &s);
    mtp_step(q, &s, 1, first, one, in, 1, p);
    mtp_step(q, &s, 2, both, two, in_two, 2, p);
    assert_true(p[0] == 0 && p[1] == 0 && p[2] == 0);
    predictor_free(q);

    s.trained = &l;
    assert_true(predictor_is_trained(PREDICT_MTP, &s));
    q = predictor_new(PREDICT_MTP, PREDICT_BACKGROUND, &s);
    mtp_step(q, &s, 1, first, one, in, 1, p); /* nothing is known of the token before */
    assert_true(p[0] == 0 && p[1] == 0 && p[2] == 0);
    mtp_step(q, &s, 2, both, two, in_two, 2, p); /* of request 9 alone: h = 2 + 2 * 3 */
    assert_close(p[0], sigmoid(0.375 - 8));
    assert_close(p[1], sigmoid(0.5 + 8));
    assert_close(p[2], sigmoid(0.625 - 8));
    /* in another order: of 9 h = relu(8 - 8), of 5 h = 2 + 2 */
    mtp_step(q, &s, 3, next, two, in_two, 2, p);
    assert_close(p[0], 1 - (1 - sigmoid(0.375)) * (1 - sigmoid(0.375 - 4)));
    assert_close(p[1], 1 - (1 - sigmoid(0.5)) * (1 - sigmoid(0.5 + 4)));
    /* positions do not follow: a rejected draft, and a token again */
    mtp_step(q, &s, 4, draft, two, in_two, 2, p);
    assert_true(p[0] == 0 && p[1] == 0 && p[2] == 0);
    predictor_free(q);
    image_free(&m);
}

/* What is shown of layer 1 predicts layer 3, whose z is (gelu(1/2 + choice 0), gelu(weight 1), -1).
 */
static void test_predict_llapor(void **state)
{
    struct image m = make_image();
    struct trained_predictors l = view(&m);
    struct predict_shape s = model_shape;
    s.trained = &l;
    double p[3];
    const float hidden[2] = {-3, 0.5f}, gate[3] = {0.5f, 0.25f, 0.25f};
    const uint32_t selected[1] = {0};
    const struct predict_seen seen = {
        .step = 1, .layer = 1, .n_tokens = 1, .hidden = hidden, .gate = gate, .selected = selected};
    struct predictor *q = predictor_new(PREDICT_LLAPOR, PREDICT_BACKGROUND, &s);
    predictor_observe(q, &seen);
    predictor_predict(q, &seen, &(struct predict_target){1, 3}, NULL, p);
    assert_close(p[0], sigmoid(gelu(1.5)));
    assert_true(p[1] == 0 && p[2] == 0);
    predictor_free(q);
    image_free(&m);
}

/* Fine-tuning. u = (gelu(3/2), gelu(0)), z = (gelu(3/2), 0, -1); layer 3 then activates expert 2,
 * by all three of its choices. The errors of the logits are -sigmoid(z0), -1/2 and 3 - sigmoid(-1).
 * Each logit moves by 0.2 / (1 + |u|^2) * error * (1 + |u|^2), the bias being an input of 1, so by
 * 0.2 of its error. Without fine_tune nothing moves. */
static void test_fine_tune(void **state)
{
    struct image m = make_image();
    struct trained_predictors l = view(&m);
    for (int tune = 0; tune < 2; tune++) {
        struct predict_shape s = model_shape;
        s.trained = &l;
        s.fine_tune = tune;
        s.n_used = 3; /* so that all probabilities are given */
        l.header.n_used = 3;
        double p[3];
        const float hidden[2] = {-3, 0.5f}, gate[3] = {1, 0, 0};
        const uint32_t selected[3] = {0, 0, 0}, then[3] = {2, 2, 2};
        struct predict_seen seen = {.step = 1,
                                    .layer = 1,
                                    .n_tokens = 1,
                                    .hidden = hidden,
                                    .gate = gate,
                                    .selected = selected};
        struct predictor *q = predictor_new(PREDICT_LLAPOR, PREDICT_BACKGROUND, &s);
        predictor_predict(q, &seen, &(struct predict_target){1, 3}, NULL, p);
        /* the features: each of three equal choices counts the expert's share once more; z of
         * expert 1 is gelu(0) */
        double z0 = gelu(1.5);
        assert_close(p[0], sigmoid(z0));
        struct predict_seen next = {.step = 1, .layer = 3, .n_tokens = 1, .selected = then};
        predictor_observe(q, &next);
        predictor_observe(q, &next); /* the update has already used it */
        seen.step = 2;
        predictor_predict(q, &seen, &(struct predict_target){2, 3}, NULL, p);
        double rate = tune ? 0.2 : 0;
        assert_close(p[0], sigmoid(z0 + rate * -sigmoid(z0)));
        assert_close(p[1], sigmoid(0 + rate * -0.5));
        assert_close(p[2], sigmoid(-1 + rate * (3 - sigmoid(-1)))); /* activated three times over */
        predictor_free(q);
    }
    image_free(&m);
}

/* 128 tokens alike, of which half activate expert 2 and half expert 0. The log-loss of what follows
 * such a batch must not grow: of these tokens half have it right whatever is predicted, so the
 * change of one token, 128 times over, would be far past the least loss. */
static void test_fine_tune_batch(void **state)
{
    enum { TOKENS = 128 };
    struct image m = make_image();
    struct trained_predictors l = view(&m);
    struct predict_shape s = model_shape;
    s.trained = &l;
    s.fine_tune = true;
    s.max_tokens = TOKENS;
    s.n_used = l.header.n_used = 3;
    float hidden[TOKENS][2], gate[TOKENS][3];
    uint32_t selected[TOKENS][3] = {{0}}, then[TOKENS][3];
    for (uint32_t t = 0; t < TOKENS; t++) {
        memcpy(hidden[t], (float[]){-3, 0.5f}, sizeof hidden[t]);
        memcpy(gate[t], (float[]){1, 0, 0}, sizeof gate[t]);
        for (uint32_t k = 0; k < 3; k++)
            then[t][k] = t % 2 ? 2 : 0;
    }
    struct predictor *q = predictor_new(PREDICT_LLAPOR, PREDICT_BACKGROUND, &s);
    double loss[2], p[3];
    for (uint64_t step = 1; step <= 2; step++) {
        struct predict_seen seen = {.step = step,
                                    .layer = 1,
                                    .n_tokens = TOKENS,
                                    .hidden = hidden[0],
                                    .gate = gate[0],
                                    .selected = selected[0]};
        seen.n_tokens = 1; /* its probability, not that of 128 together */
        predictor_predict(q, &seen, &(struct predict_target){step, 3}, NULL, p);
        loss[step - 1] = -log(p[0]) - log(1 - p[0]) - log(p[2]) - log(1 - p[2]) - log(1 - p[1]);
        seen.n_tokens = TOKENS;
        predictor_predict(q, &seen, &(struct predict_target){step, 3}, NULL, p);
        seen = (struct predict_seen){
            .step = step, .layer = 3, .n_tokens = TOKENS, .selected = then[0]};
        predictor_observe(q, &seen);
    }
    assert_true(loss[1] < loss[0]);
    predictor_free(q);
    image_free(&m);
}

/* The trained mean step from layer 1, (1/2, -2), counts as of 100 tokens. The first model update
 * comes when they have doubled. Layer 2 has none. */
static void test_residual_starts(void **state)
{
    struct image m = make_image();
    struct trained_predictors l = view(&m);
    struct predict_shape s = model_shape;
    s.trained = &l;
    struct predictor *line = predictor_new(PREDICT_RESIDUAL, PREDICT_IN_LINE, &s);
    struct predictor *background = predictor_new(PREDICT_RESIDUAL, PREDICT_BACKGROUND, &s);
    float out[2], update[2];
    const float hidden[2] = {4, 4}, far[2] = {4.5f + 3, 2};
    uint32_t layer;
    struct predict_seen seen = {.step = 1, .layer = 1, .n_tokens = 1, .hidden = hidden};
    const float *x = predictor_gate_input(line, &seen, out);
    assert_close(x[0], 4.5);
    assert_close(x[1], 2);
    seen.layer = 2;
    assert_ptr_equal(predictor_gate_input(line, &seen, out), hidden);
    /* 100 tokens more, each a step of (3 1/2, -2): the mean of both hundreds is (2, -2) */
    for (uint64_t step = 1; step <= 100; step++) {
        assert_false(predictor_next_update(background, &layer, update));
        predictor_observe(
            background,
            &(struct predict_seen){.step = step, .layer = 1, .n_tokens = 1, .hidden = hidden});
        predictor_observe(background, &(struct predict_seen){
                                          .step = step, .layer = 2, .n_tokens = 1, .hidden = far});
    }
    assert_true(predictor_next_update(background, &layer, update) && layer == 1);
    assert_close(update[0], 2);
    assert_close(update[1], -2);
    predictor_free(line);
    predictor_free(background);
    image_free(&m);
}

/* ---- Files ---- */

static void assert_refused(const struct image *m, size_t n, const char *expected_text)
{
    struct trained_predictors l;
    char why[TRAINED_WHY] = "";
    assert_false(trained_view(m->bytes, n, &l, why));
    if (!strstr(why, expected_text) || strchr(why, '\n'))
        fail_msg("the message '%s' lacks '%s'", why, expected_text);
}

static void test_damaged(void **state)
{
    struct image m = make_image();
    struct trained_header *h = (struct trained_header *)m.bytes;
    struct trained_layer *y = (struct trained_layer *)(m.bytes + h->layers);
    struct trained_group *g = (struct trained_group *)(m.bytes + h->groups);
    assert_refused(&m, 10, "no file of `moed train`");
    assert_refused(&m, m.end - 1, "bytes and should have");
#define DAMAGED(place, value, expected_text)                                                       \
    do {                                                                                           \
        __typeof__(place) keep = (place);                                                          \
        (place) = (value);                                                                         \
        assert_refused(&m, m.end, expected_text);                                                  \
        (place) = keep;                                                                            \
    } while (0)
    DAMAGED(h->magic[0], 'x', "no file of `moed train`");
    DAMAGED(h->version, 2, "version 2");
    DAMAGED(h->model[1], '\033', "its model has no name"); /* a name would appear in logs */
    char second = h->model[1];
    h->model[1] = '\xc2'; /* U+009B is to a terminal as ESC [ */
    DAMAGED(h->model[2], '\x9b', "its model has no name");
    h->model[1] = second;
    DAMAGED(h->n_layers, 1u << 30, "its shape is none");
    DAMAGED(h->n_used, EXPERTS + 1, "its shape is none");
    DAMAGED(h->layers, m.end - 8, "its tables");
    DAMAGED(h->layers, UINT64_MAX - 63, "its tables");
    DAMAGED(h->activations, (m.end + 63) & ~63ull, "its profile");
    DAMAGED(h->activations, h->activations + 4, "its profile");
    DAMAGED(g->n_components, WIDTH + 1, "a PCA");
    DAMAGED(g->offset, (m.end + 63) & ~63ull, "a PCA");
    DAMAGED(h->mtp, (m.end + 63) & ~63ull, "its MTP");
    DAMAGED(h->mtp, h->mtp + 8, "its MTP");
    struct trained_network *block = (struct trained_network *)(m.bytes + h->mtp);
    DAMAGED(block->n_in, WIDTH, "its MTP");
    DAMAGED(block->n_hidden, 60000, "its MTP");
    DAMAGED(block->n_gated, WIDTH, "its MTP");
    DAMAGED(block->offset, 0, "its MTP");
    DAMAGED(y[3].mlp.n_hidden, 60000, "layer 3");
    DAMAGED(y[3].mlp.n_in, 3, "layer 3");
    DAMAGED(y[4].llapor.n_gated, 2, "layer 4");
    DAMAGED(y[4].llapor.activation, 2, "layer 4");
    DAMAGED(y[4].group, 1, "layer 4");
    DAMAGED(y[1].llapor, y[3].llapor, "layer 1"); /* no layer lies two layers before */
    DAMAGED(y[0].residual, y[1].residual, "layer 0");
    DAMAGED(*(float *)(m.bytes + y[1].residual), NAN, "layer 1");
    /* the checksum detects the other changes */
    struct trained_predictors l = view(&m);
    const uint32_t *counts = trained_activations(&l);
    assert_true(counts[5] == 3 && counts[13] == 11 && counts[14] == UINT32_MAX);
    h->activations = 0; /* a file of an older version */
    l = view(&m);
    assert_null(trained_activations(&l));
    h->activations = m.header.activations;
    l = view(&m);
    assert_true(trained_is_intact(&l));
    m.bytes[y[3].mlp.offset + 1] ^= 1;
    l = view(&m);
    assert_false(trained_is_intact(&l));
    image_free(&m);
}

static void test_fits(void **state)
{
    struct image m = make_image();
    struct trained_predictors l = view(&m);
    struct trained_model model = {"by hand", model_shape, 77};
    char why[TRAINED_WHY] = "";
    assert_true(trained_fits(&l, &model, why));
    model.routers = 0; /* unknown */
    assert_true(trained_fits(&l, &model, why));
    model.routers = 78;
    assert_false(trained_fits(&l, &model, why));
    assert_non_null(strstr(why, "another training of by hand"));
    model.routers = 77;
    model.name = "by foot"; /* the same routers under another name */
    assert_true(trained_fits(&l, &model, why));
    model.routers = 0;
    assert_false(trained_fits(&l, &model, why));
    assert_non_null(strstr(why, "by hand, not by foot"));
    model.routers = 77;
    model.shape.n_experts++;
    assert_false(trained_fits(&l, &model, why));
    assert_non_null(strstr(why, "1 of 3 experts"));
    image_free(&m);
}

/* The hash of parts equals the hash of the whole if the parts are multiples of 8. Another byte or
 * another length gives another hash. */
static void test_hash(void **state)
{
    const char text[25] = "twenty-four bytes of text";
    uint64_t whole = trained_hash(0, text, 24);
    assert_true(trained_hash(trained_hash(0, text, 8), text + 8, 16) == whole);
    assert_true(trained_hash(0, text, 23) != whole && trained_hash(0, text, 25) != whole);
    assert_true(trained_hash(1, text, 24) != whole);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mlp_net),
        cmocka_unit_test(test_llapor_nets),
        cmocka_unit_test(test_rest_without_gate),
        cmocka_unit_test(test_affine),
        cmocka_unit_test(test_probabilities),
        cmocka_unit_test(test_predict_mlp),
        cmocka_unit_test(test_predict_mtp),
        cmocka_unit_test(test_predict_llapor),
        cmocka_unit_test(test_fine_tune),
        cmocka_unit_test(test_fine_tune_batch),
        cmocka_unit_test(test_residual_starts),
        cmocka_unit_test(test_damaged),
        cmocka_unit_test(test_fits),
        cmocka_unit_test(test_hash),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
