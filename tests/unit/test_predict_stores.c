/* Predictors that remember whole iterations (FineMoE's expert maps) and whole requests
 * (MoE-Infinity's activation matrices): cases worked out by hand from the papers, and random runs
 * held against the plain definitions. */
#include "random_numbers.h"

#include "sched/predict/map_shares.h"
#include "sched/predict/map_store.h"
#include "sched/predict/predict_internal.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static void assert_close(double got, double want, double by)
{
    if (!(fabs(got - want) < by))
        fail_msg("%.9g instead of %.9g", got, want);
}

/* ---- the store of expert maps ---- */

/* Two layers of three experts, embeddings of two numbers, slots for two maps, d = 1. All rows are 0
 * or the row's largest, which 8 bits hold exactly. */
static const struct map_store_shape tiny = {
    .n_layers = 2, .n_experts = 3, .d_model = 2, .max_tokens = 1, .capacity = 2, .distance = 1};
static const float one[3] = {1, 0, 0}, half[3] = {0.5f, 0.5f, 0}, third[3] = {0, 0, 1};

static void iterate(struct map_store *s, const float embedding[2], const float *first,
                    const float *second)
{
    map_store_begin(s, 1);
    map_store_embedding(s, embedding);
    map_store_layer(s, 0, first);
    map_store_layer(s, 1, second);
}

/* A: ((1, 0, 0), (1/2, 1/2, 0)), embedding (1, 0). B: ((1/2, 1/2, 0), (0, 0, 1)), embedding (0, 1).
 */
static struct map_store *two_maps(void)
{
    struct map_store *s = map_store_new(&tiny);
    iterate(s, (float[2]){1, 0}, one, half);
    map_store_end(s);
    iterate(s, (float[2]){0, 1}, half, third);
    map_store_end(s);
    assert_int_equal(map_store_count(s), 2);
    return s;
}

/* Section 4.2.1, equation 4. Embedding (3, 4): cosines 3/5 with (1, 0) and 4/5 with (0, 1). Of (1,
 * 1) both are 1/sqrt 2: the newest. Section 4.2.2, equation 5, "trajectories of previous layers".
 * Layer 0 is (1, 0, 0): with A's row 1, with B's 1/2 / (1 sqrt(1/2)) = 1/sqrt 2. Layer 1 is (0, 0,
 * 1): of both layers as one vector A: (1 + 0) / (sqrt(1 + 1) sqrt(1 + 1/2)) = 1/sqrt 3 B: (1/2 + 1)
 * / (sqrt(1 + 1) sqrt(1/2 + 1)) = sqrt 3 / 2. */
static void test_likeness(void **state)
{
    struct map_store *s = two_maps();
    struct map_found found;
    map_store_begin(s, 1);
    assert_false(map_store_find_semantic(s, 0, &found));
    assert_false(map_store_find_trajectory(s, 0, &found));
    map_store_embedding(s, (float[2]){3, 4});
    assert_close(map_store_semantic(s, 0, 0), 0.6, 3e-3); /* of 8 bits: 95/127 for 3/4 */
    assert_close(map_store_semantic(s, 0, 1), 0.8, 3e-3);
    assert_true(map_store_find_semantic(s, 0, &found) && found.map == 1);
    map_store_embedding(s, (float[2]){1, 1});
    assert_close(map_store_semantic(s, 0, 0), sqrt(0.5), 1e-6);
    assert_true(map_store_find_semantic(s, 0, &found) && found.map == 1);

    map_store_layer(s, 0, one);
    assert_close(map_store_trajectory(s, 0, 0), 1, 1e-6);
    assert_close(map_store_trajectory(s, 0, 1), sqrt(0.5), 1e-6);
    assert_true(map_store_find_trajectory(s, 0, &found) && found.map == 0);
    map_store_layer(s, 1, third);
    assert_close(map_store_trajectory(s, 0, 0), 1 / sqrt(3), 1e-6);
    assert_close(map_store_trajectory(s, 0, 1), sqrt(3) / 2, 1e-6);
    assert_true(map_store_find_trajectory(s, 0, &found) && found.map == 1);
    assert_close(found.score, sqrt(3) / 2, 1e-6);
    assert_false(map_store_find_trajectory(s, 1, &found)); /* there is one token */
    float scale;
    const int8_t *row = map_store_row(s, 0, 1, &scale);
    assert_close((double)((float)row[0] * scale), 0.5, 1e-6);
    assert_int_equal(row[2], 0);
    map_store_free(s);
}

/* Section 4.4: RDY = d/L semantic + (L-d)/L trajectory = 1/2 semantic + 1/2 trajectory. The
 * iteration of test_likeness has trajectory likenesses 1/sqrt 3 = 0.577 and sqrt 3 / 2 = 0.866.
 * With the embedding (1, 0) RDY is 0.789 with A and 0.433 with B, so A goes, though B's trajectory
 * is the more alike; with (0, 1) it is 0.289 and 0.933, and B goes. */
static void test_redundancy(void **state)
{
    static const float embeddings[2][2] = {{1, 0}, {0, 1}};
    for (uint32_t gone = 0; gone < 2; gone++) {
        struct map_store *s = two_maps();
        iterate(s, embeddings[gone], one, third);
        map_store_end(s);
        assert_int_equal(map_store_count(s), 2);
        float scale;
        assert_int_equal(map_store_row(s, gone, 0, &scale)[0], 127); /* the new one: (1, 0, 0) */
        assert_int_equal(map_store_row(s, gone, 1, &scale)[2], 127); /* and (0, 0, 1) */
        assert_int_equal(map_store_row(s, 1 - gone, 0, &scale)[1], gone == 0 ? 127 : 0);
        map_store_free(s);
    }
}

/* map_store does not store a step without a layer or without its embedding. A NaN counts as 0. */
static void test_partial(void **state)
{
    struct map_store *s = map_store_new(&tiny);
    map_store_begin(s, 1);
    map_store_embedding(s, (float[2]){1, 0});
    map_store_layer(s, 1, one);
    map_store_end(s);
    map_store_begin(s, 1);
    map_store_layer(s, 0, one);
    map_store_layer(s, 1, one);
    map_store_end(s);
    map_store_begin(s, 1);
    map_store_embedding(s, (float[2]){1, 0});
    map_store_layer(s, 0, one);
    map_store_layer(s, 0, one); /* again: ignored */
    map_store_layer(s, 9, one); /* there is none */
    map_store_end(s);
    assert_int_equal(map_store_count(s), 0);
    iterate(s, (float[2]){NAN, 0}, (float[3]){INFINITY, 0, 0}, (float[3]){0, 0, 0});
    map_store_end(s);
    assert_int_equal(map_store_count(s), 1);
    iterate(s, (float[2]){1, 0}, one, half);
    assert_true(map_store_semantic(s, 0, 0) == 0 && map_store_trajectory(s, 0, 0) == 0);
    map_store_free(s);
}

enum { LAYERS = 5, EXPERTS = 24, WIDTH = 16, CAPACITY = 6, TOKENS = 3, ITERATIONS = 200 };

/* The formula of map_store.h: the store keeps round(value / largest * 127) of each value of a row;
 * reading multiplies by largest / 127 and divides by the row's sum. */
static void in_8_bits(const float *in, uint32_t n, bool divide, double *out)
{
    double most = 0, sum = 0;
    for (uint32_t i = 0; i < n; i++) {
        most = fmax(most, fabs((double)in[i]));
        sum += (double)in[i];
    }
    for (uint32_t i = 0; i < n; i++)
        out[i] = nearbyint((double)in[i] / most * 127) * most / 127 / (divide ? sum : 1);
}

static double cosine(const double *a, const double *b, uint32_t n)
{
    double aa = 0, bb = 0, ab = 0;
    for (uint32_t i = 0; i < n; i++) {
        aa += a[i] * a[i];
        bb += b[i] * b[i];
        ab += a[i] * b[i];
    }
    return aa > 0 && bb > 0 ? ab / sqrt(aa * bb) : 0;
}

struct plain_map {
    double embedding[WIDTH], rows[LAYERS * EXPERTS];
};

/* One iteration of random numbers, of which some layers may be missing. The test computes the
 * cosines of the shown vectors as a whole and compares. Then the iteration's maps go into the plain
 * store by the definition of RDY. */
static void random_iteration(struct map_store *s, struct plain_map *maps, uint32_t *n_maps)
{
    struct plain_map own[TOKENS];
    bool shown[LAYERS], all = below(5) > 0;
    uint32_t n = 1 + below(TOKENS), n_before = *n_maps;
    map_store_begin(s, n);
    memset(own, 0, sizeof own);
    float embedding[TOKENS * WIDTH], gate[TOKENS * EXPERTS];
    for (uint32_t i = 0; i < n * WIDTH; i++)
        embedding[i] = (float)below(2001) / 1000 - 1;
    map_store_embedding(s, embedding);
    for (uint32_t t = 0; t < n; t++)
        in_8_bits(embedding + t * WIDTH, WIDTH, false, own[t].embedding);
    for (uint32_t l = 0; l < LAYERS; l++) {
        shown[l] = all || below(3);
        for (uint32_t i = 0; i < n * EXPERTS; i++)
            gate[i] = (float)(below(100) * below(100)) / 10000 + 1e-3f;
        if (!shown[l])
            continue;
        map_store_layer(s, l, gate);
        for (uint32_t t = 0; t < n; t++)
            in_8_bits(gate + t * EXPERTS, EXPERTS, true, own[t].rows + l * EXPERTS);
        for (uint32_t m = 0; m < *n_maps; m++) {
            struct plain_map of_shown = maps[m];
            for (uint32_t i = 0; i < LAYERS * EXPERTS; i++)
                of_shown.rows[i] *= i / EXPERTS <= l && shown[i / EXPERTS];
            for (uint32_t t = 0; t < n; t++) {
                assert_close(map_store_trajectory(s, t, m),
                             cosine(own[t].rows, of_shown.rows, LAYERS * EXPERTS), 1e-5);
                assert_close(map_store_semantic(s, t, m),
                             cosine(own[t].embedding, maps[m].embedding, WIDTH), 1e-5);
            }
        }
    }
    map_store_end(s);
    all = true;
    for (uint32_t l = 0; l < LAYERS; l++)
        all = all && shown[l];
    bool is_new[CAPACITY] = {false};
    for (uint32_t t = 0; all && t < n; t++) {
        uint32_t to = 0;
        double most = -2;
        for (uint32_t m = 0; m < n_before; m++) {
            double rdy = 0.4 * cosine(own[t].embedding, maps[m].embedding, WIDTH) +
                         0.6 * cosine(own[t].rows, maps[m].rows, LAYERS * EXPERTS);
            if (!is_new[m] && rdy > most) {
                most = rdy;
                to = m;
            }
        }
        to = *n_maps < CAPACITY ? (*n_maps)++ : to;
        is_new[to] = true;
        maps[to] = own[t];
    }
}

static void test_store_is_the_definition(void **state)
{
    const struct map_store_shape shape = {.n_layers = LAYERS,
                                          .n_experts = EXPERTS,
                                          .d_model = WIDTH,
                                          .max_tokens = TOKENS,
                                          .capacity = CAPACITY,
                                          .distance = 2};
    random_state = 3;
    struct map_store *s = map_store_new(&shape);
    static struct plain_map maps[CAPACITY];
    uint32_t n_maps = 0;
    for (uint32_t i = 0; i < ITERATIONS; i++) {
        random_iteration(s, maps, &n_maps);
        assert_int_equal(map_store_count(s), n_maps);
        assert_true(n_maps <= CAPACITY);
        for (uint32_t m = 0; m < n_maps; m++) /* the same maps, in the same places */
            for (uint32_t l = 0; l < LAYERS; l++) {
                float scale;
                const int8_t *row = map_store_row(s, m, l, &scale);
                for (uint32_t e = 0; e < EXPERTS; e++)
                    assert_close((double)((float)row[e] * scale), maps[m].rows[l * EXPERTS + e],
                                 1e-6);
            }
    }
    assert_int_equal(n_maps, CAPACITY);
    map_store_free(s);
}

/* ---- the predictor that searches the store ---- */

/* Five layers with experts after one without, so d = 3. Shows layers [from, to) of a step; layer 0
 * is the embedding. */
static const struct predict_shape five = {
    .n_layers = 6, .first_layer = 1, .n_experts = 4, .n_used = 1, .d_model = 2, .max_tokens = 2};

static void show(struct predictor *p, uint64_t step, uint32_t layer, uint32_t n,
                 const float *values)
{
    static const struct predict_token tokens[2] = {{1, 0, 0}, {2, 0, 0}};
    struct predict_seen seen = {.step = step,
                                .layer = layer == 0 ? PREDICT_EMBEDDING : layer,
                                .n_tokens = n,
                                .tokens = tokens};
    if (layer == 0)
        seen.hidden = values;
    else
        seen.gate = values;
    predictor_observe(p, &seen);
}

static void predict(struct predictor *p, uint64_t step, uint32_t layer, uint32_t target, uint32_t n,
                    double got[4])
{
    struct predict_seen seen = {
        .step = step, .layer = layer == 0 ? PREDICT_EMBEDDING : layer, .n_tokens = n};
    predictor_predict(p, &seen, &(struct predict_target){step, target}, NULL, got);
}

/* The prediction has all four probabilities in this order, and predicts the first n. */
static void expect_choice(const struct predictor *p, const double got[4], uint32_t n_tokens,
                          const uint32_t *order, uint32_t chosen)
{
    struct predicted list[4];
    uint32_t n_known;
    const struct predict_traits *traits = sched_predictor_traits(PREDICT_EXPERT_MAP);
    assert_int_equal(predictor_list(p, traits, n_tokens, NULL, got, list, &n_known), chosen);
    assert_int_equal(n_known, 4);
    for (uint32_t i = 0; i < 4; i++)
        assert_int_equal(list[i].expert, order[i]);
}

/* Section 4.3: the fewest experts whose probabilities reach delta = clip(1 - score, 0, 1), at least
 * K = 1, the most probable first. The stored row is (1/8, 1/2, 1/8, 1/4), its embedding (1, 0).
 * Embedding (4, 3): score 4/5, delta 1/5: expert 1 is enough. (3, 4): 3/5, 2/5: the same. (7, 24):
 * 7/25, delta 0.72: 1/2 is less, 1/2 + 1/4 is not: experts 1 and 3. (-1, 0): score -1, delta 1:
 * all. (1, 0): delta 0: one, for K = 1. What is not chosen is known too, for the cache's 1 / (p
 * freq). A batch: expert 1 is missed by both with 1/2 1/2, 3 with 3/4 3/4, the others with 7/8 7/8;
 * what any of them chooses is chosen: of (7, 24) and (-1, 0) all, of (7, 24) and (4, 3) experts 1
 * and 3. In 8 bits 1/4 is 64/127 of 1/2. */
static void test_threshold(void **state)
{
    static const float row[4] = {0.125f, 0.5f, 0.125f, 0.25f};
    struct predictor *p = predictor_new(PREDICT_EXPERT_MAP, PREDICT_BACKGROUND, &five);
    double got[4];
    show(p, 1, 0, 1, (float[2]){1, 0});
    predict(p, 1, 0, 1, 1, got); /* the store has no map */
    assert_true(got[0] == 0 && got[1] == 0 && got[2] == 0 && got[3] == 0);
    for (uint32_t l = 1; l <= 5; l++)
        show(p, 1, l, 1, row);
    static const struct {
        float embedding[2];
        uint32_t chosen;
    } cases[] = {{{4, 3}, 1}, {{3, 4}, 1}, {{7, 24}, 2}, {{-1, 0}, 4}, {{1, 0}, 1}};
    static const uint32_t order[4] = {1, 3, 0, 2};
    for (uint32_t i = 0; i < 5; i++) {
        show(p, 2 + i, 0, 1, cases[i].embedding);
        for (uint32_t target = 1; target <= 3; target++) {
            predict(p, 2 + i, 0, target, 1, got);
            expect_choice(p, got, 1, order, cases[i].chosen);
            for (uint32_t e = 0; e < 4; e++)
                assert_close(got[e], (double)row[e], 3e-3);
        }
    }
    static const double both[4] = {1 - 49.0 / 64, 0.75, 1 - 49.0 / 64, 1 - 9.0 / 16};
    show(p, 9, 0, 2, (float[4]){7, 24, -1, 0});
    predict(p, 9, 0, 2, 2, got);
    expect_choice(p, got, 2, order, 4);
    for (uint32_t e = 0; e < 4; e++)
        assert_close(got[e], both[e], 3e-3);
    show(p, 10, 0, 2, (float[4]){7, 24, 4, 3});
    predict(p, 10, 0, 2, 2, got);
    expect_choice(p, got, 2, order, 2);
    for (uint32_t e = 0; e < 4; e++)
        assert_close(got[e], both[e], 3e-3);
    predictor_free(p);
}

/* Layer l > d comes from the trajectory of layers 1 to l - d. Two maps: X with expert 0 in every
 * layer, Y with 1 in layer 1, 2 in layer 2, 3 after that; both with the same embedding. A step that
 * begins with expert 1 is like Y (cosine 1), so the prediction for layer 4 is 3. Layer 2 then is
 * expert 0: with X (0 + 1) / (sqrt 2 sqrt 2) = 1/2, with Y (1 + 0) / 2 = 1/2: the newest, Y. When
 * layer 2 is not shown the prediction rests on layer 1 only. */
static void test_trajectory(void **state)
{
    static const float experts[4][4] = {{1, 0, 0, 0}, {0, 1, 0, 0}, {0, 0, 1, 0}, {0, 0, 0, 1}};
    static const uint32_t x[5] = {0, 0, 0, 0, 0}, y[5] = {1, 2, 3, 3, 3};
    struct predictor *p = predictor_new(PREDICT_EXPERT_MAP, PREDICT_BACKGROUND, &five);
    double got[4];
    show(p, 1, 0, 1, (float[2]){1, 0});
    for (uint32_t l = 1; l <= 5; l++)
        show(p, 1, l, 1, experts[x[l - 1]]);
    show(p, 2, 0, 1, (float[2]){1, 0});
    for (uint32_t l = 1; l <= 5; l++)
        show(p, 2, l, 1, experts[y[l - 1]]);
    show(p, 3, 0, 1, (float[2]){1, 0});
    show(p, 3, 1, 1, experts[0]);
    predict(p, 3, 1, 4, 1, got);
    assert_close(got[0], 1, 1e-6); /* like X */
    show(p, 4, 0, 1, (float[2]){1, 0});
    show(p, 4, 1, 1, experts[1]);
    predict(p, 4, 1, 4, 1, got);
    assert_close(got[3], 1, 1e-6);
    assert_true(got[0] == 0);
    show(p, 4, 2, 1, experts[0]);
    predict(p, 4, 2, 5, 1, got);
    assert_close(got[3], 1, 1e-6);
    /* nothing of this step but layer 3, which X has not and Y has: Y */
    show(p, 5, 3, 1, experts[3]);
    predict(p, 5, 3, 5, 1, got);
    assert_close(got[3], 1, 1e-6);
    predictor_free(p);
}

/* A step with a dropped layer leaves no map; the next whole step does. */
static void test_dropped(void **state)
{
    static const float row[4] = {0, 1, 0, 0};
    struct predictor *p = predictor_new(PREDICT_EXPERT_MAP, PREDICT_BACKGROUND, &five);
    double got[4];
    for (uint64_t step = 1; step <= 7; step++) {
        for (uint32_t l = 0; l <= 5; l++)
            if (l + 1 != step)
                show(p, step, l, 1, l == 0 ? (float[2]){1, 0} : row);
        show(p, step + 100, 0, 1, (float[2]){1, 0});
        predict(p, step + 100, 0, 1, 1, got);
        assert_true(got[1] == (step == 7 ? 1.0 : 0.0) || fabs(got[1] - 1) < 1e-6);
        assert_int_equal(got[1] > 0, step == 7); /* step 7 was shown whole */
    }
    predictor_free(p);
}

/* Two requests in one batch give two maps. A later batch with the requests in reverse order finds
 * each map by its embedding. If the batch changes in the middle of a step (one request more), a new
 * step begins there, and the store gets nothing of it. */
static void test_interleaved(void **state)
{
    static const float rows[8] = {0, 1, 0, 0, 0, 0, 1, 0}, embeddings[4] = {1, 0, 0, 1};
    static const float other_way[4] = {0, 1, 1, 0}, third_row[8] = {0, 0, 0, 1, 0, 0, 0, 1};
    struct predictor *p = predictor_new(PREDICT_EXPERT_MAP, PREDICT_BACKGROUND, &five);
    double got[4];
    show(p, 1, 0, 2, embeddings);
    for (uint32_t l = 1; l <= 5; l++)
        show(p, 1, l, 2, rows);
    show(p, 2, 0, 1, third_row + 3); /* (1, 0): one token, then two */
    for (uint32_t l = 1; l <= 5; l++)
        show(p, 2, l, l < 3 ? 1 : 2, third_row);
    show(p, 3, 0, 1, other_way);
    predict(p, 3, 0, 2, 1, got);
    assert_close(got[2], 1, 1e-6);
    assert_true(got[0] == 0 && got[1] == 0 && got[3] == 0);
    show(p, 4, 0, 2, other_way);
    predict(p, 4, 0, 2, 2, got);
    assert_close(got[1], 1, 1e-6);
    assert_close(got[2], 1, 1e-6);
    assert_true(got[0] == 0 && got[3] == 0); /* expert 3 is in no map */
    predictor_free(p);
}

/* ---- the share of hits at a place of a map ---- */

/* Three experts, one a token. At first the first place is worth 1/2, the others 1/2 1/2 = 1/4 each,
 * as if of four tokens. A map with score 0.6 predicts 2, 0, 1; the token activates 0, the second
 * place: (4/2) / 5, (1 + 4/4) / 5, (4/4) / 5. Another with score 0.7 (of the same class, above 1/2
 * and up to 3/4) predicts 1, 0, 2, and 1 is activated: with q = 2^(-1/2048) the first place is
 * worth (1 + 2) / (q + 1 + 4). One with score 0.99 is another class and is unchanged. */
static void test_shares(void **state)
{
    struct map_shares *s = map_shares_new(2, 3, 1, 1);
    static const uint16_t orders[2][3] = {{2, 0, 1}, {1, 0, 2}};
    uint32_t expert = 0;
    map_shares_found(s, 1, 1, 0, 0.6, orders[0]);
    assert_close(map_shares_of(s, 1, 0, 0), 0.5, 1e-6);
    assert_close(map_shares_of(s, 1, 0, 1), 0.25, 1e-6);
    map_shares_check(s, 2, 1, 1, &expert); /* another step */
    map_shares_check(s, 1, 0, 1, &expert); /* another layer */
    map_shares_check(s, 1, 1, 1, &expert);
    map_shares_check(s, 1, 1, 1, &expert); /* checked already */
    map_shares_found(s, 2, 1, 0, 0.7, orders[1]);
    assert_close(map_shares_of(s, 1, 0, 0), 0.4, 1e-6);
    assert_close(map_shares_of(s, 1, 0, 1), 0.4, 1e-6);
    assert_close(map_shares_of(s, 1, 0, 2), 0.2, 1e-6);
    expert = 1;
    map_shares_check(s, 2, 1, 1, &expert);
    assert_close(map_shares_of(s, 1, 0, 0), 3 / (exp2(-1.0 / 2048) + 5), 1e-6);
    map_shares_found(s, 3, 1, 0, 0.99, orders[1]);
    assert_close(map_shares_of(s, 1, 0, 0), 0.5, 1e-6);
    map_shares_found(s, 3, 0, 0, 0.7, orders[1]);
    assert_close(map_shares_of(s, 0, 0, 0), 0.5, 1e-6);
    map_shares_free(s);
}

/* ---- activation matrices ---- */

static void choose(struct predictor *p, uint64_t step, uint32_t layer, uint32_t n,
                   const struct predict_token *tokens, const uint32_t *selected)
{
    predictor_observe(
        p,
        &(struct predict_seen){
            .step = step, .layer = layer, .n_tokens = n, .tokens = tokens, .selected = selected});
}

static void say(struct predictor *p, uint64_t step, uint32_t layer, uint32_t target, uint32_t n,
                const struct predict_token *tokens, double *got)
{
    predictor_predict(
        p, &(struct predict_seen){.step = step, .layer = layer, .n_tokens = n, .tokens = tokens},
        &(struct predict_target){step, target}, NULL, got);
}

/* Two layers of three experts, one a token. Request 1 has two tokens, experts 0 and 1, then 0 and
 * 2: its matrix is
 * ((2, 0, 0), (0, 1, 1)). Request 2 has one, 1 and 1: ((0, 1, 0), (0, 1, 0)). Each is finished when
 * the next takes its place. Request 3 activates 0 in layer 0: cosine 1 with request 1's row, 0 with
 * 2's. Of request 1's two tokens half chose 1 in layer 1 and half 2. In layer 1 it chooses 1: rows
 * 1/sqrt 2 and 1, so the means are 0.854 and 1/2. Its second token chooses 1 in layer 0: the row is
 * (1, 1, 0), 1/sqrt 2 with both; the means are 1/sqrt 2 = 0.707 and (1/sqrt 2 + 1) / 2 = 0.854: now
 * it is like request 2, whose token chose 1 in layer 1. */
static void test_matrix(void **state)
{
    const struct predict_shape s = {
        .n_layers = 2, .n_experts = 3, .n_used = 1, .d_model = 1, .max_tokens = 1};
    struct predictor *p = predictor_new(PREDICT_ACTIVATION_MATRIX, PREDICT_BACKGROUND, &s);
    static const struct {
        struct predict_token token;
        uint32_t experts[2];
    } before[] = {{{1, 0, 0}, {0, 1}}, {{1, 1, 0}, {0, 2}}, {{2, 0, 0}, {1, 1}}};
    double got[3];
    uint64_t step = 1;
    for (; step <= 3; step++)
        for (uint32_t l = 0; l < 2; l++) {
            choose(p, step, l, 1, &before[step - 1].token, &before[step - 1].experts[l]);
            say(p, step, l, 1 - l, 1, &before[step - 1].token, got);
            assert_int_equal(got[0] > 0 || got[1] > 0 || got[2] > 0, step == 3);
        }
    struct predict_token token = {3, 0, 0};
    uint32_t expert = 0;
    choose(p, step, 0, 1, &token, &expert);
    say(p, step, 0, 1, 1, &token, got);
    assert_close(got[0], 0, 1e-6);
    assert_close(got[1], 0.5, 1e-6);
    assert_close(got[2], 0.5, 1e-6);
    expert = 1;
    choose(p, step++, 1, 1, &token, &expert);
    say(p, step, 1, 1, 1, &token, got);
    assert_close(got[2], 0.5, 1e-6);
    token.position = 1;
    choose(p, step, 0, 1, &token, &expert);
    say(p, step, 0, 1, 1, &token, got);
    assert_close(got[1], 1, 1e-6);
    assert_close(got[2], 0, 1e-6);
    predictor_free(p);
}

/* A batch of two requests: each predicts by its own matrix, together 1 - product (1 - share). A
 * request has finished if its positions go back, or if it was not shown for long. */
static void test_matrix_requests(void **state)
{
    const struct predict_shape s = {
        .n_layers = 2, .n_experts = 4, .n_used = 2, .d_model = 1, .max_tokens = 2};
    struct predictor *p = predictor_new(PREDICT_ACTIVATION_MATRIX, PREDICT_BACKGROUND, &s);
    static const uint32_t low[2] = {0, 1}, high[2] = {2, 3}, mixed[4] = {0, 1, 2, 3};
    static const uint32_t ends[4] = {0, 2, 3, 1};
    struct predict_token a = {7, 0, 0}, b = {8, 0, 0}, both[2] = {{9, 0, 0}, {10, 0, 0}};
    double got[4];
    choose(p, 1, 0, 1, &a, low);
    choose(p, 1, 1, 1, &a, ends); /* 0 and 2 */
    choose(p, 2, 0, 1, &a, low);  /* position 0 again: the old request goes into the store */
    say(p, 2, 0, 1, 1, &a, got);
    assert_true(got[0] == 1 && got[1] == 0 && got[2] == 1 && got[3] == 0);
    choose(p, 3, 0, 1, &b, high);
    choose(p, 3, 1, 1, &b, ends + 2);                /* 3 and 1 */
    for (uint64_t step = 4; step < 4 + 66; step++) { /* only a: b is gone */
        a.position++;
        choose(p, step, 0, 1, &a, low);
        choose(p, step, 1, 1, &a, ends);
    }
    choose(p, 80, 0, 2, both, mixed);
    say(p, 80, 0, 1, 2, both, got);
    for (uint32_t e = 0; e < 4; e++)
        assert_close(got[e], 1, 1e-6); /* 9 like 7's: 0 and 2; 10 like 8's: 3 and 1 */
    say(p, 80, 0, 1, 1, both + 1, got);
    assert_true(got[0] == 0 && got[1] == 1 && got[2] == 0 && got[3] == 1);
    predictor_free(p);
}

/* The nearest requests by cosines of rows, computed from scratch, over many more requests than the
 * store keeps. A new request replaces the most similar one. One request at a time. */
static void test_matrix_is_the_definition(void **state)
{
    enum { L = 3, N = 8, K = 2, PENDING = 256, REQUESTS = 400 };
    const struct predict_shape s = {
        .n_layers = L, .n_experts = N, .n_used = K, .d_model = 1, .max_tokens = 1};
    struct predictor *p = predictor_new(PREDICT_ACTIVATION_MATRIX, PREDICT_BACKGROUND, &s);
    static double kept[PENDING][L][N]; /* shares */
    uint32_t n_kept = 0, n_compared = 0, n_replaced = 0;
    uint64_t step = 1;
    random_state = 17;
    for (uint32_t r = 0; r < REQUESTS; r++) {
        double own[L][N] = {{0}}, score[PENDING];
        uint32_t topic = below(5), n_tokens = 1 + below(4);
        for (uint32_t t = 0; t < n_tokens; t++, step++)
            for (uint32_t l = 0; l < L; l++) {
                struct predict_token token = {r, t, 0};
                uint32_t chosen[K] = {below(3) ? topic : below(N), 0};
                chosen[1] = (chosen[0] + 1 + below(N - 1)) % N;
                choose(p, step, l, 1, &token, chosen);
                own[l][chosen[0]]++;
                own[l][chosen[1]]++;
                double most = -1, got[N];
                for (uint32_t i = 0; i < n_kept; i++) {
                    score[i] = 0;
                    for (uint32_t k = 0; k < L; k++)
                        score[i] += cosine(own[k], kept[i][k], N);
                    most = fmax(most, score[i]);
                }
                uint32_t target = (l + 1) % L;
                say(p, step, l, target, 1, &token, got);
                bool same = n_kept == 0; /* several may be equally near */
                for (uint32_t i = 0; i < n_kept; i++) {
                    bool equal = score[i] > most - 1e-5;
                    for (uint32_t e = 0; equal && e < N; e++)
                        equal = fabs(got[e] - kept[i][target][e]) < 1e-6;
                    same |= equal;
                }
                assert_true(same);
                n_compared += n_kept > 0;
            }
        uint32_t to = n_kept;
        if (n_kept == PENDING) {
            n_replaced++;
            to = 0;
            for (uint32_t i = 1; i < PENDING; i++)
                if (score[i] > score[to] + 1e-6) /* of equal ones the first */
                    to = i;
        } else {
            n_kept++;
        }
        for (uint32_t i = 0; i < L * N; i++)
            kept[to][i / N][i % N] = own[i / N][i % N] / n_tokens;
    }
    assert_true(n_compared > 1000 && n_replaced == REQUESTS - PENDING);
    predictor_free(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_likeness),        cmocka_unit_test(test_redundancy),
        cmocka_unit_test(test_partial),         cmocka_unit_test(test_store_is_the_definition),
        cmocka_unit_test(test_threshold),       cmocka_unit_test(test_trajectory),
        cmocka_unit_test(test_dropped),         cmocka_unit_test(test_interleaved),
        cmocka_unit_test(test_shares),          cmocka_unit_test(test_matrix),
        cmocka_unit_test(test_matrix_requests), cmocka_unit_test(test_matrix_is_the_definition),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
