/* Gated DeltaNet's and Mamba2's kernels: each build against the definition in float64, and all
 * builds to the bit; positions in one piece as in odd pieces. */
#include "kernels/decay.h"
#include "tests/unit/kernel_cases.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <cmocka.h>

#if defined(MOED_HAVE_SIMDE)
extern const struct kernels kernels_avx512_simde;
#endif

static const struct kernels *builds[8]; /* the portable one first */
static int n_builds = 1;

static int find_builds(void **state)
{
    (void)state;
    for (const char *const *name = kernels_available(); *name != NULL; name++) {
        assert_true(kernels_select(*name));
        builds[strcmp(*name, "portable") == 0 ? 0 : n_builds++] = kernels_get();
    }
#if defined(MOED_HAVE_SIMDE)
    if (n_builds > 1) /* it needs AVX2 */
        builds[n_builds++] = &kernels_avx512_simde;
#endif
    return 0;
}

enum { STEPS = 20, TAPS = 4, MOST_CHANNELS = 70 };
enum { POSITIONS = 150, MOST_DIM = 160, STATE_FLOATS = 64 << 10 };

/* The inputs of a head. k is near a unit vector, as the model norms it. */
static struct {
    float q[POSITIONS][MOST_DIM], k[POSITIONS][MOST_DIM], v[POSITIONS][MOST_DIM];
    float decay[POSITIONS], beta[POSITIONS];
} in;

enum heads { HEADS_USUAL, HEADS_FADE, HEADS_REPEAT, N_HEADS };

/* HEADS_FADE: decays as small as 0 follow one another. HEADS_REPEAT: all keys are equal and nothing
 * decays, so that updates cancel one another. */
static void draw_rows(uint32_t k_dim, uint32_t v_dim, enum heads heads)
{
    uint64_t seed = 1000 * k_dim + v_dim;
    for (int t = 0; t < POSITIONS; t++) {
        for (uint32_t i = 0; i < k_dim; i++) {
            in.q[t][i] = random_float(&seed) / sqrtf((float)k_dim);
            in.k[t][i] = random_float(&seed) * sqrtf(3 / (float)k_dim);
            if (heads == HEADS_REPEAT)
                in.k[t][i] = sqrtf(1 / (float)k_dim);
        }
        for (uint32_t i = 0; i < v_dim; i++)
            in.v[t][i] = random_float(&seed);
        in.decay[t] = 0.55f + 0.45f * random_float(&seed);
        in.beta[t] = 0.5f + 0.5f * random_float(&seed);
        if (heads == HEADS_FADE)
            in.decay[t] = ldexpf(1, -(int)(random_u64(&seed) % 160)) * (float)(t % 23 != 0);
        if (heads == HEADS_REPEAT)
            in.decay[t] = in.beta[t] = 1;
    }
}

/* The recurrence of the paper, in double precision. */
static void step_exactly(double state[MOST_DIM][MOST_DIM], uint32_t k_dim, uint32_t v_dim, int t,
                         double *out)
{
    for (uint32_t j = 0; j < v_dim; j++) {
        double held = 0, sum = 0;
        for (uint32_t i = 0; i < k_dim; i++) {
            state[i][j] *= (double)in.decay[t];
            held += state[i][j] * (double)in.k[t][i];
        }
        for (uint32_t i = 0; i < k_dim; i++) {
            state[i][j] += (double)in.k[t][i] * (double)in.beta[t] * ((double)in.v[t][j] - held);
            sum += state[i][j] * (double)in.q[t][i];
        }
        out[j] = sum;
    }
}

/* Computes all positions in pieces of n, and in between as many as `odd`, if that is not 0. */
static void run(const struct kernels *build, uint32_t k_dim, uint32_t v_dim, uint32_t n,
                uint32_t odd, float *state, float out[POSITIONS][MOST_DIM])
{
    for (uint32_t t = 0, pieces = 0, piece; t < POSITIONS; t += piece) {
        piece = odd && pieces++ % 2 ? odd : n;
        piece = POSITIONS - t < piece ? POSITIONS - t : piece;
        struct delta_rows rows = {in.q[t],     in.k[t], in.v[t], MOST_DIM, in.decay + t,
                                  in.beta + t, 1,       out[t],  MOST_DIM};
        build->delta(state, k_dim, v_dim, t, &rows, piece);
    }
}

static void check_accuracy(uint32_t k_dim, uint32_t v_dim, float out[POSITIONS][MOST_DIM],
                           double limit)
{
    static double exact[MOST_DIM][MOST_DIM];
    double want[MOST_DIM];
    memset(exact, 0, sizeof exact);
    for (int t = 0; t < POSITIONS; t++) {
        step_exactly(exact, k_dim, v_dim, t, want);
        for (uint32_t j = 0; j < v_dim; j++)
            if (!(fabs((double)out[t][j] - want[j]) < limit))
                fail_msg("%u x %u, position %d, %u: %.9g, expected %.9g", k_dim, v_dim, t, j,
                         (double)out[t][j], want[j]);
    }
}

/* All builds, in one piece, in odd pieces, and position by position: the same bits, and near the
 * exact recurrence. The rest of the state's and the outputs' memory stays as it is. */
static void check_head(uint32_t k_dim, uint32_t v_dim, enum heads heads)
{
    static const uint32_t pieces[][2] = {{POSITIONS, 0}, {1, 0}, {64, 0}, {13, 37}};
    static float state[STATE_FLOATS], first_state[STATE_FLOATS];
    static float out[POSITIONS][MOST_DIM], first[POSITIONS][MOST_DIM];
    draw_rows(k_dim, v_dim, heads);
    assert_true(delta_state_floats(k_dim, v_dim) < STATE_FLOATS);
    for (int b = 0; b < n_builds; b++)
        for (size_t p = 0; p < sizeof pieces / sizeof *pieces; p++) {
            if (b == 0 && k_dim * v_dim > 5000 && (p == 1 || p == 2))
                continue; /* the portable build is slow */
            memset(state, 0, sizeof state);
            memset(out, 0, sizeof out);
            run(builds[b], k_dim, v_dim, pieces[p][0], pieces[p][1], state, out);
            if (b == 0 && p == 0) {
                memcpy(first_state, state, sizeof state);
                memcpy(first, out, sizeof out);
            }
            assert_memory_equal(state, first_state, sizeof state);
            assert_memory_equal(out, first, sizeof out);
        }
    for (size_t i = delta_state_floats(k_dim, v_dim); i < STATE_FLOATS; i++)
        assert_true(first_state[i] == 0);
    for (int t = 0; t < POSITIONS; t++)
        for (uint32_t j = v_dim; j < MOST_DIM; j++)
            assert_true(first[t][j] == 0);
    check_accuracy(k_dim, v_dim, first, 3e-6);
}

static void test_heads(void **state)
{
    static const uint32_t dims[][2] = {{1, 1},   {16, 16},  {12, 16},  {16, 24},  {7, 65},
                                       {64, 64}, {128, 80}, {80, 160}, {128, 128}};
    enum {
        N_SMALL = 6,
        N_DIMS = sizeof dims / sizeof *dims
    }; /* of the large ones one has all heads */
    (void)state;
    for (size_t i = 0; i < N_DIMS; i++)
        for (enum heads heads = 0; heads < N_HEADS; heads++)
            if (heads == HEADS_USUAL || i < N_SMALL || i + 1 == N_DIMS)
                check_head(dims[i][0], dims[i][1], heads);
}

/* As step_exactly, of Mamba2: k is B, q is C, v is x, beta is the step. */
static void scan_exactly(double state[MOST_DIM][MOST_DIM], uint32_t k_dim, uint32_t v_dim, int t,
                         double skip, double *out)
{
    for (uint32_t j = 0; j < v_dim; j++) {
        double sum = skip * (double)in.v[t][j];
        for (uint32_t i = 0; i < k_dim; i++) {
            state[i][j] *= (double)in.decay[t];
            state[i][j] += (double)in.k[t][i] * (double)in.beta[t] * (double)in.v[t][j];
            sum += state[i][j] * (double)in.q[t][i];
        }
        out[j] = sum;
    }
}

/* As check_head. */
static void check_scan(uint32_t k_dim, uint32_t v_dim)
{
    enum { PIECES = 3 };
    static const uint32_t pieces[PIECES] = {POSITIONS, 1, 7};
    static double exact[MOST_DIM][MOST_DIM];
    static float state[STATE_FLOATS], first_state[STATE_FLOATS];
    static float out[POSITIONS][MOST_DIM], first[POSITIONS][MOST_DIM];
    const float skip = 0.75f;
    size_t floats = mamba2_state_floats(k_dim, v_dim);
    draw_rows(k_dim, v_dim, HEADS_USUAL);
    assert_true(floats < STATE_FLOATS);
    for (int b = 0; b < n_builds; b++)
        for (int p = 0; p < PIECES; p++) {
            memset(state, 0, sizeof state);
            memset(out, 0, sizeof out);
            for (uint32_t t = 0, n; t < POSITIONS; t += n) {
                n = POSITIONS - t < pieces[p] ? POSITIONS - t : pieces[p];
                struct mamba2_rows rows = {in.v[t],     in.k[t], in.q[t], MOST_DIM, in.decay + t,
                                           in.beta + t, 1,       skip,    out[t],   MOST_DIM};
                builds[b]->mamba2(state, k_dim, v_dim, &rows, n);
            }
            if (b == 0 && p == 0) {
                memcpy(first_state, state, sizeof state);
                memcpy(first, out, sizeof out);
            }
            assert_memory_equal(out, first, sizeof out);
            assert_memory_equal(state, first_state, sizeof state);
            for (size_t i = floats; i < STATE_FLOATS; i++)
                assert_true(state[i] == 0);
        }
    memset(exact, 0, sizeof exact);
    for (int t = 0; t < POSITIONS; t++) {
        double want[MOST_DIM];
        scan_exactly(exact, k_dim, v_dim, t, (double)skip, want);
        for (uint32_t j = 0; j < v_dim; j++)
            assert_true(fabs((double)first[t][j] - want[j]) < 1e-5);
    }
}

static void test_mamba2(void **state)
{
    static const uint32_t dims[][2] = {{1, 1}, {12, 10}, {16, 16}, {20, 40}, {128, 64}, {7, 90}};
    (void)state;
    for (size_t i = 0; i < sizeof dims / sizeof *dims; i++)
        check_scan(dims[i][0], dims[i][1]);
}

static double convolved(const float *w, double bias, float x[STEPS][MOST_CHANNELS], int t,
                        uint32_t c, bool silu)
{
    double sum = bias;
    for (int j = 0; j < TAPS; j++)
        if (t - TAPS + 1 + j >= 0)
            sum += (double)w[c * TAPS + (uint32_t)j] * (double)x[t - TAPS + 1 + j][c];
    return silu ? sum / (1 + exp(-sum)) : sum;
}

static void check_convolution(bool silu, bool biased)
{
    static const uint32_t widths[] = {1, 15, 16, 33, MOST_CHANNELS};
    static const int pieces[] = {STEPS, 1, 2, 7};
    float w[MOST_CHANNELS * TAPS], bias[MOST_CHANNELS] = {0}, x[STEPS][MOST_CHANNELS],
                                   first[STEPS][MOST_CHANNELS];
    uint64_t seed = 7;
    for (size_t i = 0; i < sizeof w / sizeof *w; i++)
        w[i] = random_float(&seed);
    for (uint32_t c = 0; c < MOST_CHANNELS && biased; c++)
        bias[c] = random_float(&seed);
    for (int t = 0; t < STEPS; t++)
        for (uint32_t c = 0; c < MOST_CHANNELS; c++)
            x[t][c] = 3 * random_float(&seed);
    for (size_t n = 0; n < sizeof widths / sizeof *widths; n++)
        for (int b = 0; b < n_builds; b++)
            for (size_t p = 0; p < sizeof pieces / sizeof *pieces; p++) {
                float past[TAPS - 1][MOST_CHANNELS] = {{0}}, y[STEPS][MOST_CHANNELS];
                memcpy(y, x, sizeof y);
                for (int t = 0; t < STEPS; t += pieces[p])
                    builds[b]->convolve(w, biased ? bias : NULL, TAPS, widths[n], past[0],
                                        MOST_CHANNELS, y[t], MOST_CHANNELS,
                                        (uint32_t)(STEPS - t < pieces[p] ? STEPS - t : pieces[p]),
                                        silu);
                if (b == 0 && p == 0)
                    memcpy(first, y, sizeof y);
                assert_memory_equal(y, first, sizeof y);
                for (uint32_t c = 0; c < widths[n]; c++) {
                    assert_true(past[TAPS - 2][c] == x[STEPS - 1][c]);
                    assert_true(past[0][c] == x[STEPS - TAPS + 1][c]);
                }
            }
    for (int t = 0; t < STEPS; t++)
        for (uint32_t c = 0; c < MOST_CHANNELS; c++)
            assert_true(fabs((double)first[t][c] - convolved(w, (double)bias[c], x, t, c, silu)) <
                        1e-5);
}

static void test_convolution(void **state)
{
    (void)state;
    check_convolution(true, false);
    check_convolution(false, false);
    check_convolution(true, true);
}

static void test_sigmoid_gate(void **state)
{
    float gate[40], up[40], out[8][40];
    uint64_t seed = 3;
    (void)state;
    for (int i = 0; i < 40; i++) {
        gate[i] = 20 * random_float(&seed);
        up[i] = random_float(&seed);
    }
    for (int b = 0; b < n_builds; b++) {
        builds[b]->gated((struct gating){.activation = ACTIVATION_SIGMOID}, gate, up, out[b], 40);
        assert_memory_equal(out[b], out[0], sizeof out[0]);
    }
    for (int i = 0; i < 40; i++)
        assert_true(fabs((double)out[0][i] - (double)up[i] / (1 + exp(-(double)gate[i]))) < 1e-6);
}

/* decay.h against libm. */
static void test_decay(void **state)
{
    uint64_t seed = 1;
    (void)state;
    for (int i = 0; i < 100000; i++) {
        double x = ldexp((double)random_float(&seed), (int)(random_u64(&seed) % 10)), y = -fabs(x);
        double sum = x > 0 ? x + log1p(exp(-x)) : log1p(exp(x));
        float a = -ldexpf(fabsf(random_float(&seed)), (int)(random_u64(&seed) % 12) - 6);
        float alpha = (float)x, decay = decay_of(a, alpha, 0);
        assert_true(fabs(decay_exp(y) - exp(y)) <= 1e-15 * exp(y));
        assert_true(fabs(decay_log1p(exp(y)) - log1p(exp(y))) <= 0x1p-48 * log1p(exp(y)));
        if (x == (double)alpha)
            assert_true(fabs((double)decay - exp((double)a * sum)) <=
                        0x1p-23 * (double)decay + 0x1p-149);
    }
    assert_true(decay_of(-1, -200, 0) == 1 && decay_of(-1, 1e30f, 0) == 0 &&
                decay_of(0, 5, 1) == 1);
    assert_true(isnan(decay_of(-1, NAN, 0)) && isinf(decay_of(1000, 1000, 0)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_decay),        cmocka_unit_test(test_heads),
        cmocka_unit_test(test_mamba2),       cmocka_unit_test(test_convolution),
        cmocka_unit_test(test_sigmoid_gate),
    };
    return cmocka_run_group_tests(tests, find_builds, NULL);
}
