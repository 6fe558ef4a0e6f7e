/* The chain of samplers against hand-worked cases, a slow form of its definition, and the
 * distributions that the definition gives; and the text of requests: stop strings against a search
 * in the whole text. Penalties, DRY, biases, guards: test_sampler_adjust.c. */
#include "kernels/kernels.h"
#include "worker/serve/request.h"
#include "worker/sample/sampler.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

static struct sampling warm(void)
{
    struct sampling s = sampling_neutral();
    s.temperature = 1;
    return s;
}

/* The choice at a position. Its random bits depend on nothing else. */
static uint32_t pick_at(struct sampler *sampler, const struct sampling *settings, uint32_t position,
                        const float *logits, uint32_t n)
{
    struct sampler_turn turn = {.n_tokens = position};
    float *copy = malloc(n * sizeof *copy);
    memcpy(copy, logits, n * sizeof *copy);
    uint32_t token = sampler_pick(sampler, settings, &turn, copy);
    assert_memory_equal(copy, logits, n * sizeof *copy); /* the row is as it was */
    free(copy);
    return token;
}

static uint32_t pick(const struct sampling *settings, const float *logits, uint32_t n)
{
    struct sampler *s = sampler_new(n, 16);
    uint32_t token = pick_at(s, settings, 0, logits, n);
    sampler_free(s);
    return token;
}

static void test_greedy(void **state)
{
    struct sampling greedy = sampling_neutral();
    (void)state;
    assert_int_equal(pick(&greedy, (float[]){1, 3, 2}, 3), 1);
    assert_int_equal(pick(&greedy, (float[]){1, 3, 3}, 3), 1); /* lowest on ties */
    assert_int_equal(pick(&greedy, (float[]){-1, -3, -0.5f}, 3), 2);
    float many[300];
    for (uint32_t at = 0; at < 300; at++) { /* at any place, before an equally large one */
        for (uint32_t i = 0; i < 300; i++)
            many[i] = i == at || i == 299 ? 2 : (float)(i % 7) * 0.25f;
        assert_int_equal(pick(&greedy, many, 300), at);
    }
    many[0] = 1, many[1] = NAN, many[70] = NAN, many[200] = 3; /* what is no number is never it */
    assert_int_equal(pick(&greedy, many, 300), 200);
    greedy.top_k = 1, greedy.min_p = 1, greedy.xtc_probability = 1, greedy.mirostat = 2;
    assert_int_equal(pick(&greedy, (float[]){1, 3, 2}, 3), 1); /* the others have no say */
}

/* ---- Random bits ---- */

static uint64_t splitmix64(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15ull;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ z >> 27) * 0x94d049bb133111ebull;
    return z ^ z >> 31;
}

/* The bits are those of the sequence, read at any place. */
static void test_random(void **state)
{
    (void)state;
    uint64_t known = 1234567; /* the generator's published first values for this seed */
    assert_true(splitmix64(&known) == 6457827717110365317ull);
    assert_true(splitmix64(&known) == 3203168211198807973ull);
    for (uint64_t seed = 0; seed < 5; seed++) {
        uint64_t sequence = seed, at = splitmix64(&sequence);
        for (uint32_t position = 0; position < 100; position++)
            for (unsigned use = 0; use < RANDOM_USES; use++)
                assert_true(sampler_random(seed, position, use) == splitmix64(&at));
    }
}

/* ---- Distributions, worked by hand ---- */

/* Pearson's chi-square of many draws against probabilities; tokens of probability 0 never come. */
static void check_distribution(const struct sampling *s, const float *logits, const double *want,
                               uint32_t n)
{
    enum { DRAWS = 20000 };
    /* The 1 - 10^-6 quantiles for 0 to 3 degrees of freedom. */
    static const double most[] = {1e-9, 23.93, 27.64, 30.67};
    uint32_t counts[16] = {0}, kinds = 0;
    double chi_square = 0;
    struct sampler *sampler = sampler_new(n, 16);
    for (uint32_t i = 0; i < DRAWS; i++)
        counts[pick_at(sampler, s, i, logits, n)]++;
    for (uint32_t i = 0; i < n; i++) {
        if (want[i] == 0) {
            assert_int_equal(counts[i], 0);
            continue;
        }
        double expected = want[i] * DRAWS, off = (double)counts[i] - expected;
        chi_square += off * off / expected;
        kinds++;
    }
    assert_in_range(kinds, 1, 4);
    assert_true(chi_square <= most[kinds - 1]);
    sampler_free(sampler);
}

/* Probabilities 1/2, 1/4, 1/8, 1/8 at temperature 1. */
static const float halves[] = {0, (float)-M_LN2, (float)(-2 * M_LN2), (float)(-2 * M_LN2)};

static void test_temperature(void **state)
{
    struct sampling s = warm();
    (void)state;
    check_distribution(&s, halves, (double[]){0.5, 0.25, 0.125, 0.125}, 4);
    s.temperature = 0.5f; /* squared: 16, 4, 1, 1 of 22 */
    check_distribution(&s, halves, (double[]){16 / 22., 4 / 22., 1 / 22., 1 / 22.}, 4);
    /* The entropy is 1.75 bits of 2, so T = 0.5 + 0.875; with exponent 2: 0.5 + 0.875^2. */
    s = warm();
    s.dynamic_temperature = 0.5f;
    for (int exponent = 1; exponent <= 2; exponent++) {
        double t = 0.5 + pow(0.875, exponent), w[4], sum = 0;
        for (int i = 0; i < 4; i++)
            sum += w[i] = exp((double)halves[i] / t);
        for (int i = 0; i < 4; i++)
            w[i] /= sum;
        s.dynamic_exponent = (float)exponent;
        check_distribution(&s, halves, w, 4);
    }
    /* All as probable: the most entropy, so T = 1 + 0.5; one: none, and T = 0. */
    s.dynamic_temperature = 1;
    check_distribution(&s, (float[]){1, 1}, (double[]){0.5, 0.5}, 2);
    check_distribution(&s, (float[]){1, -100}, (double[]){1, 0}, 2);
}

static void test_cuts(void **state)
{
    const double two[] = {2 / 3., 1 / 3., 0, 0}, one[] = {1, 0, 0, 0};
    struct sampling s = warm();
    (void)state;
    s.top_k = 2;
    check_distribution(&s, halves, two, 4);
    s = warm();
    s.top_p = 0.7f; /* the smallest set of at least 0.7 */
    check_distribution(&s, halves, two, 4);
    s.top_p = 0.76f; /* of equal ones the lower token */
    check_distribution(&s, halves, (double[]){4 / 7., 2 / 7., 1 / 7., 0}, 4);
    s = warm();
    s.min_p = 0.4f;
    check_distribution(&s, halves, two, 4);
    s.min_p = 0.6f;
    check_distribution(&s, halves, one, 4);
    /* The entropy is 1.213; -ln p is 0.693, 1.386, 2.079, 2.079: token 1 is nearest, then 0. */
    s = warm();
    s.typical_p = 0.2f;
    check_distribution(&s, halves, (double[]){0, 1, 0, 0}, 4);
    s.typical_p = 0.5f;
    check_distribution(&s, halves, two, 4);
    /* The mean is 1.5, the deviation sqrt(2.75) = 1.658: 4 - 1.3 * 1.658 = 1.84. */
    s = warm();
    s.top_n_sigma = 1.3f;
    double e2 = exp(2);
    check_distribution(&s, (float[]){4, 2, 0, 0}, (double[]){e2 / (1 + e2), 1 / (1 + e2), 0, 0}, 4);
    s.top_n_sigma = 1;
    check_distribution(&s, (float[]){4, 2, 0, 0}, one, 4);
    check_distribution(&s, (float[]){4, 2, 0, -INFINITY}, one, 4); /* mean 2, deviation 1.633 */
    s.top_n_sigma = 1.23f;
    check_distribution(&s, (float[]){4, 2, 0, -INFINITY},
                       (double[]){e2 / (1 + e2), 1 / (1 + e2), 0, 0}, 4);
}

static void test_xtc(void **state)
{
    struct sampling s = warm();
    (void)state;
    s.xtc_probability = 1;
    s.xtc_threshold = 0.2f; /* 1/2 and 1/4 reach it: the 1/2 goes */
    check_distribution(&s, halves, (double[]){0, 0.5, 0.25, 0.25}, 4);
    s.xtc_threshold = 0.3f; /* one reaches it: it stays */
    check_distribution(&s, halves, (double[]){0.5, 0.25, 0.125, 0.125}, 4);
    s.xtc_threshold = 0.1f; /* all do: of the two least the later stays */
    check_distribution(&s, halves, (double[]){0, 0, 0, 1}, 4);
    s.xtc_threshold = 0.2f;
    s.xtc_probability = 0.5f;
    check_distribution(&s, halves, (double[]){0.25, 0.375, 0.1875, 0.1875}, 4);
}

/* At temperature 2 the weights are 1, 0.707, 0.5, 0.5 of the largest; at 1 they are 1, 0.5, ... */
static void test_order(void **state)
{
    struct sampling s = warm();
    (void)state;
    s.temperature = 2;
    s.min_p = 0.6f;
    check_distribution(&s, halves, (double[]){1, 0, 0, 0}, 4); /* usual: temperature comes last */
    assert_int_equal(sampling_set_order(&s, "tm", 2, NULL), ERROR_OK);
    double root = sqrt(0.5);
    check_distribution(&s, halves, (double[]){1 / (1 + root), root / (1 + root), 0, 0}, 4);
    assert_int_equal(sampling_set_order(&s, "m", 1, NULL), ERROR_OK); /* no temperature: 1 */
    s.min_p = 0.4f;
    check_distribution(&s, halves, (double[]){2 / 3., 1 / 3., 0, 0}, 4);
    assert_int_equal(sampling_set_order(&s, "", 0, NULL), ERROR_OK);
    check_distribution(&s, halves, (double[]){0.5, 0.25, 0.125, 0.125}, 4);
}

static void test_mirostat(void **state)
{
    struct sampling s = warm();
    struct sampler *sampler = sampler_new(4, 16);
    (void)state;
    s.mirostat = 2;
    s.mirostat_tau = 3;
    s.mirostat_eta = 0.25f;
    s.top_k = 1; /* has no say */
    int seen[2] = {0};
    for (uint32_t position = 0; position < 200; position++) {
        float row[4], mu = 1.5f; /* only 1/2 has at most 1.5 bits: it comes with 0 bits */
        memcpy(row, halves, sizeof row);
        struct sampler_turn turn = {.n_tokens = position, .mu = &mu};
        assert_int_equal(sampler_pick(sampler, &s, &turn, row), 0);
        assert_true(fabsf(mu - (1.5f + 0.25f * 3)) < 1e-5f);
        mu = 2.01f; /* 1/2 and 1/4 stay: 2/3 and 1/3 */
        uint32_t token = sampler_pick(sampler, &s, &turn, row);
        assert_in_range(token, 0, 1);
        seen[token]++;
        double surprise = token ? log2(3) : log2(1.5);
        assert_true(fabs((double)mu - (2.01 - 0.25 * (surprise - 3))) < 1e-5);
        mu = -5; /* the most probable one stays whatever mu is */
        assert_int_equal(sampler_pick(sampler, &s, &turn, row), 0);
    }
    assert_in_range(seen[0], 100, 166);         /* 133.3, deviation 6.7 */
    float row[4] = {100, 0, 0, 0}, mu = 999.9f; /* a certain token: mu stays where it can be sent */
    sampler_pick(sampler, &s, &(struct sampler_turn){.mu = &mu}, row);
    assert_true(mu == 1000);
    sampler_free(sampler);
}

/* ---- The definition of sampler.h, in its slowest form ---- */

/* Everything sorted, every sum from end to end. */
struct weighed {
    double w, key;
    float logit;
    uint32_t token;
};

struct slow {
    struct weighed *c;
    uint32_t n;
    float scale;
};

static int by_logit(const void *a, const void *b)
{
    const struct weighed *x = a, *y = b;
    return x->logit != y->logit ? (x->logit < y->logit ? 1 : -1) : x->token < y->token ? -1 : 1;
}

static int by_weight(const void *a, const void *b)
{
    const struct weighed *x = a, *y = b;
    return x->w != y->w ? (x->w < y->w ? 1 : -1) : x->token < y->token ? -1 : 1;
}

static int by_key(const void *a, const void *b)
{
    const struct weighed *x = a, *y = b;
    return x->key != y->key ? (x->key < y->key ? -1 : 1) : x->token < y->token ? -1 : 1;
}

static int by_token(const void *a, const void *b)
{
    const struct weighed *x = a, *y = b;
    return x->token < y->token ? -1 : 1;
}

static double sum_of(const struct weighed *c, uint32_t n)
{
    double sum = 0; /* of whole numbers below 2^53: exact */
    for (uint32_t i = 0; i < n; i++)
        sum += c[i].w;
    return sum;
}

/* Sorts by logit and sets the weights. Returns their sum. */
static double weigh_slowly(struct slow *s)
{
    qsort(s->c, s->n, sizeof *s->c, by_logit);
    for (uint32_t i = 0; i < s->n; i++) {
        float e = kernels_exp((s->c[i].logit - s->c[0].logit) * s->scale);
        s->c[i].w = isnan(e) ? 0 : nearbyint((double)e * 0x1p30);
    }
    return sum_of(s->c, s->n);
}

/* sum of w * (logit - top) * scale, in the order of the tokens, by sum of w. */
static double depth_slowly(struct slow *s, double total)
{
    float top = s->c[0].logit;
    double sum = 0;
    qsort(s->c, s->n, sizeof *s->c, by_token);
    for (uint32_t i = 0; i < s->n; i++)
        if (s->c[i].w > 0)
            sum += s->c[i].w * (double)((s->c[i].logit - top) * s->scale);
    return sum / total;
}

static void shorten(struct slow *s, double need)
{
    uint32_t most = s->n;
    double sum = s->c[0].w;
    for (s->n = 1; s->n < most && sum < need; s->n++)
        sum += s->c[s->n].w;
}

static void sigma_slowly(struct slow *s, double n_sigma)
{
    double sum = 0, squares = 0;
    uint32_t n = 0, left = 0;
    qsort(s->c, s->n, sizeof *s->c, by_token);
    float top = -INFINITY;
    for (uint32_t i = 0; i < s->n; i++) {
        top = fmaxf(top, s->c[i].logit);
        sum += isinf(s->c[i].logit) ? 0 : (double)s->c[i].logit;
        n += !isinf(s->c[i].logit);
    }
    if (n_sigma == 0 || isinf(top))
        return;
    for (uint32_t i = 0; i < s->n; i++)
        squares += isinf(s->c[i].logit) ? 0 : pow((double)s->c[i].logit - sum / n, 2);
    float bound = (float)((double)top - n_sigma * sqrt(squares / n));
    for (uint32_t i = 0; i < s->n; i++)
        if (s->c[i].logit >= bound)
            s->c[left++] = s->c[i];
    s->n = left;
}

static void typical_slowly(struct slow *s, double typical_p)
{
    double total = weigh_slowly(s);
    if (typical_p >= 1 || total == 0)
        return;
    float top = s->c[0].logit;
    double mean = depth_slowly(s, total);
    for (uint32_t i = 0; i < s->n; i++) {
        double depth = (double)((s->c[i].logit - top) * s->scale);
        s->c[i].key = s->c[i].w > 0 ? (double)(float)fabs(mean - depth) : HUGE_VAL;
    }
    qsort(s->c, s->n, sizeof *s->c, by_key);
    shorten(s, floor(typical_p * total) + 1);
}

static void min_p_slowly(struct slow *s, double min_p)
{
    double total = weigh_slowly(s);
    if (min_p == 0 || total == 0)
        return;
    qsort(s->c, s->n, sizeof *s->c, by_weight);
    while (s->c[s->n - 1].w < min_p * 0x1p30)
        s->n--;
}

static void xtc_slowly(struct slow *s, double threshold, double probability, uint64_t random)
{
    double total = weigh_slowly(s);
    uint32_t n = 0;
    if (!((double)(random >> 11) * 0x1p-53 < probability) || total == 0)
        return;
    while (n < s->n && s->c[n].w >= threshold * total && s->c[n].w > 0)
        n++;
    if (n < 2)
        return;
    qsort(s->c, s->n, sizeof *s->c, by_weight);
    memmove(s->c, s->c + n - 1, (s->n - n + 1) * sizeof *s->c);
    s->n -= n - 1;
}

static void temperature_slowly(struct slow *s, const struct sampling *settings)
{
    double t = (double)settings->temperature, range = (double)settings->dynamic_temperature;
    if (range > 0 && s->n > 1) {
        double total = weigh_slowly(s), low = fmax(0, t - range), h = 0;
        if (total > 0)
            h = (log(total / 0x1p30) - depth_slowly(s, total)) / log(s->n);
        t = low + (t + range - low) * pow(fmin(fmax(h, 0), 1), (double)settings->dynamic_exponent);
    }
    qsort(s->c, s->n, sizeof *s->c, by_logit);
    if (t < 1e-6)
        s->n = 1;
    else
        s->scale = (float)((double)s->scale / t);
}

static void sample_slowly(struct slow *s, const struct sampling *settings, char letter,
                          uint64_t random)
{
    double total;
    if (letter == 's')
        sigma_slowly(s, (double)settings->top_n_sigma);
    if (letter == 'k' && settings->top_k && settings->top_k < s->n) {
        qsort(s->c, s->n, sizeof *s->c, by_logit);
        s->n = settings->top_k;
    }
    if (letter == 'y')
        typical_slowly(s, (double)settings->typical_p);
    if (letter == 'p' && settings->top_p < 1 && (total = weigh_slowly(s)) > 0) {
        qsort(s->c, s->n, sizeof *s->c, by_weight);
        shorten(s, ceil((double)settings->top_p * total));
    }
    if (letter == 'm')
        min_p_slowly(s, (double)settings->min_p);
    if (letter == 'x')
        xtc_slowly(s, (double)settings->xtc_threshold, (double)settings->xtc_probability, random);
    if (letter == 't')
        temperature_slowly(s, settings);
}

static uint32_t pick_slowly(const struct sampling *settings, uint32_t position, const float *logits,
                            uint32_t n)
{
    struct slow s = {.c = calloc(n, sizeof *s.c), .n = n, .scale = 1};
    for (uint32_t i = 0; i < n; i++)
        s.c[i] = (struct weighed){.logit = isnan(logits[i]) ? -INFINITY : logits[i], .token = i};
    for (const char *letter = settings->order; *letter; letter++)
        sample_slowly(&s, settings, *letter, sampler_random(settings->seed, position, RANDOM_XTC));
    uint64_t random = sampler_random(settings->seed, position, RANDOM_DRAW);
    uint64_t sum = (uint64_t)weigh_slowly(&s);
    uint32_t token = s.c[0].token;
    bool drawn = sum == 0;
    qsort(s.c, s.n, sizeof *s.c, by_token);
    /* r * sum / 2^64, whole: r in two halves, as a double has not the bits for the product */
    uint64_t high = random >> 32, low = random & 0xffffffff, sum_high = sum >> 32,
             sum_low = sum & 0xffffffff, middle = high * sum_low + (low * sum_low >> 32),
             more = low * sum_high + (middle & 0xffffffff),
             target = high * sum_high + (middle >> 32) + (more >> 32);
    double running = 0;
    for (uint32_t i = 0; i < s.n && !drawn; i++)
        if ((double)target < (running += s.c[i].w)) {
            token = s.c[i].token;
            drawn = true;
        }
    assert_true(drawn);
    free(s.c);
    return token;
}

/* Kinds of logits: wide; peaked; many ties; almost all equal; with NaN; with infinities. */
static void make_logits(float *logits, uint32_t n, int kind, uint64_t *random)
{
    for (uint32_t i = 0; i < n; i++) {
        *random = *random * 6364136223846793005ull + 1442695040888963407ull;
        float uniform = (float)(*random >> 40) * 0x1p-24f;
        logits[i] = kind == 0   ? 12 * uniform - 6
                    : kind == 1 ? 1 / (uniform + 0.02f)
                    : kind == 2 ? floorf(uniform * 8)
                    : kind == 3 ? (uniform < 0.01f ? 1.0f : 0.5f)
                                : 9 * uniform;
        if (kind >= 4 && (*random >> 20) % 7 == 0)
            logits[i] = (*random >> 30) % 2 ? NAN : -INFINITY;
        if (kind == 5 && (*random >> 10) % 400 == 0)
            logits[i] = INFINITY;
    }
}

static uint64_t next(uint64_t *random, uint64_t below)
{
    return splitmix64(random) % below;
}

/* Settings of all kinds, most of them off in any one. */
static struct sampling any_settings(uint64_t *random)
{
    static const uint32_t top_ks[] = {0, 0, 0, 1, 7, 40, 500};
    static const float temperatures[] = {0.1f, 0.7f, 1, 3},
                       top_ps[] = {1, 1, 1, 0.95f, 0.5f, 0.01f, 0.9999f},
                       min_ps[] = {0, 0, 0, 0.05f, 0.5f, 1},
                       typicals[] = {1, 1, 1, 0.9f, 0.3f, 0.001f}, sigmas[] = {0, 0, 0, 1, 2.5f},
                       xtcs[] = {0, 0, 0.5f, 1}, thresholds[] = {0.05f, 0.2f, 0.001f},
                       ranges[] = {0, 0, 0.5f, 4};
    struct sampling s = sampling_neutral();
#define ANY(array) (array)[next(random, sizeof(array) / sizeof(array)[0])]
    s.seed = splitmix64(random);
    s.top_k = ANY(top_ks);
    s.temperature = ANY(temperatures);
    s.top_p = ANY(top_ps);
    s.min_p = ANY(min_ps);
    s.typical_p = ANY(typicals);
    s.top_n_sigma = ANY(sigmas);
    s.xtc_probability = ANY(xtcs);
    s.xtc_threshold = ANY(thresholds);
    s.dynamic_temperature = ANY(ranges);
    s.dynamic_exponent = 1 + (float)next(random, 2);
    for (size_t i = strlen(s.order); next(random, 2) && i > 1; i--) { /* some order */
        size_t k = next(random, i);
        char letter = s.order[k];
        s.order[k] = s.order[i - 1];
        s.order[i - 1] = letter;
    }
    return s;
}

static void test_definition(void **state)
{
    enum { MOST = 2600, ROUNDS = 60 };
    static const uint32_t sizes[] = {1, 2, 63, 64, 65, 300, 1023, 1024, 1025, MOST};
    static float logits[MOST];
    uint64_t random = 3;
    (void)state;
    for (size_t size = 0; size < sizeof sizes / sizeof sizes[0]; size++) {
        uint32_t n = sizes[size];
        struct sampler *sampler = sampler_new(n, 16);
        for (int round = 0; round < ROUNDS; round++) {
            make_logits(logits, n, round % 6, &random);
            struct sampling s = any_settings(&random);
            for (uint32_t position = 0; position < 4; position++)
                assert_int_equal(pick_at(sampler, &s, position, logits, n),
                                 pick_slowly(&s, position, logits, n));
        }
        sampler_free(sampler);
    }
}

/* ---- From the largest logits alone ---- */

/* The n largest of a row, largest first; of equal ones the lower token first; NaN last. */
static void find_largest(const float *logits, uint32_t vocab, uint32_t n, float *values,
                         uint32_t *tokens)
{
    uint8_t taken[1024] = {0};
    for (uint32_t rank = 0; rank < n; rank++) {
        uint32_t best = vocab;
        for (uint32_t i = 0; i < vocab; i++) {
            float v = isnan(logits[i]) ? -INFINITY : logits[i];
            if (!taken[i] && (best == vocab || v > values[rank])) {
                best = i;
                values[rank] = v;
            }
        }
        taken[best] = 1;
        tokens[rank] = best;
    }
}

/* sampler_pick_largest gives the token of sampler_pick, or says that it cannot. */
static void test_largest(void **state)
{
    enum { VOCAB = 700, ROUNDS = 3000 };
    struct sampler *s = sampler_new(VOCAB, 64);
    uint64_t random = 7;
    uint32_t decided = 0, undecided = 0;
    (void)state;
    for (uint32_t round = 0; round < ROUNDS; round++) {
        float logits[VOCAB], values[SAMPLER_LARGEST];
        uint32_t tokens[SAMPLER_LARGEST], seen[64];
        make_logits(logits, VOCAB, (int)round % 6, &random);
        struct sampling settings = any_settings(&random);
        settings.repetition_penalty = 1 + 0.5f * (float)next(&random, 2);
        settings.presence_penalty = 0.5f * (float)next(&random, 2);
        settings.dry_multiplier = (float)next(&random, 2);
        settings.temperature = next(&random, 4) ? settings.temperature : 0;
        for (int i = 0; i < 64; i++)
            seen[i] = (uint32_t)next(&random, 10);
        struct sampler_bias bias = {(uint32_t)next(&random, VOCAB), -1};
        struct sampler_turn turn = {.tokens = seen,
                                    .n_tokens = 1 + (uint32_t)next(&random, 64),
                                    .n_unbroken = 20,
                                    .biases = &bias,
                                    .n_biases = (uint32_t)next(&random, 2)};
        uint32_t reads = sampler_reads(s, &settings, &turn);
        assert_in_range(reads, 0, SAMPLER_LARGEST);
        if (!reads)
            continue;
        find_largest(logits, VOCAB, SAMPLER_LARGEST, values, tokens);
        uint32_t n = next(&random, 2) ? reads : SAMPLER_LARGEST, /* others may want more */
            token = sampler_pick_largest(s, &settings, &turn, values, tokens, n);
        undecided += token == SAMPLER_UNDECIDED;
        decided += token != SAMPLER_UNDECIDED;
        if (token != SAMPLER_UNDECIDED)
            assert_int_equal(token, sampler_pick(s, &settings, &turn, logits));
    }
    assert_true(decided > ROUNDS / 10 && undecided > 0);
    sampler_free(s);
}

static void test_reads(void **state)
{
    struct sampler *s = sampler_new(700, 64);
    struct sampler_bias biases[] = {{1, -1}, {2, 1}};
    struct sampler_turn turn = {.n_tokens = 50, .biases = biases};
    struct sampling a = sampling_neutral();
    (void)state;
    assert_int_equal(sampler_reads(s, &a, &turn), 1);
    a.repetition_penalty = 1.1f; /* 50 tokens may fall below the next */
    assert_int_equal(sampler_reads(s, &a, &turn), 51);
    a.repetition_window = 8;
    assert_int_equal(sampler_reads(s, &a, &turn), 9);
    a.repetition_penalty = 0.9f; /* these may rise */
    assert_int_equal(sampler_reads(s, &a, &turn), 0);
    a = warm();
    assert_int_equal(sampler_reads(s, &a, &turn), 0); /* the sum of all */
    a.top_k = 40, a.top_p = 0.9f;
    assert_int_equal(sampler_reads(s, &a, &turn), 40);
    turn.n_biases = 1;
    assert_int_equal(sampler_reads(s, &a, &turn), 41);
    turn.n_biases = 2;
    assert_int_equal(sampler_reads(s, &a, &turn), 0);
    turn.n_biases = 0;
    a.top_k = 257;
    assert_int_equal(sampler_reads(s, &a, &turn), 0);
    a = warm();
    a.min_p = 0.05f; /* people's default */
    assert_int_equal(sampler_reads(s, &a, &turn), 256);
    a.top_p = 0.9f; /* comes before min_p */
    assert_int_equal(sampler_reads(s, &a, &turn), 0);
    a.mirostat = 2;
    assert_int_equal(sampler_reads(s, &a, &turn), 0);
    sampler_free(s);
    s = sampler_new(100, 64); /* where a row has no more, all of it is wanted at most */
    a = warm();
    assert_int_equal(sampler_reads(s, &a, &turn), 100);
    sampler_free(s);
}

/* ---- The text of answers ---- */

/* Tokens of `text` one after the other through a request with stop strings: what comes out is the
 * text up to the first place where any of them stands (one that is complete earlier wins; here none
 * overlap). */
static void check_stops(const struct tokenizer *t, const char *text, const char *const *stops,
                        uint32_t n_stops)
{
    struct token_list ids = {0};
    struct error e;
    struct request *r = request_new(t, REQUEST_GENERATE, NULL, NULL);
    struct strbuf out;
    strbuf_init(&out);
    assert_int_equal(tokenizer_encode(t, text, strlen(text), 0, &ids, &e), ERROR_OK);
    const char *end = text + strlen(text);
    for (uint32_t i = 0; i < n_stops; i++) {
        strbuf_append(&r->stops[r->n_stops++], stops[i], strlen(stops[i]));
        const char *at = strstr(text, stops[i]);
        if (at && at < end)
            end = at;
    }
    bool stopped = false;
    size_t bytes = 0; /* of the tokens' texts */
    for (size_t i = 0; i < ids.count && !stopped; i++) {
        stopped = request_push_token(r, ids.ids[i], &out);
        bytes += r->token_bytes;
        assert_true(stopped || bytes == out.len + r->text.len + r->stream.kept_bytes);
    }
    assert_int_equal(stopped, *end != 0);
    if (!stopped)
        request_flush(r, &out);
    assert_int_equal(out.len, end - text);
    assert_memory_equal(out.data ? out.data : "", text, out.len);
    strbuf_fini(&out);
    token_list_fini(&ids);
    request_free(r);
}

static void test_stops(void **state)
{
    struct gguf *g;
    struct tokenizer *t;
    struct error e;
    (void)state;
    assert_int_equal(gguf_open(MOED_SOURCE_DIR "/tests/golden/vocab-small.gguf", &g, &e), ERROR_OK);
    assert_int_equal(tokenizer_new(g, NULL, &t, &e), ERROR_OK);
    gguf_close(g);
    const char *text = "one two\nthree aaaaaab caf\xc3\xa9 \xe6\x97\xa5\xe6\x9c\xac end";
    check_stops(t, text, NULL, 0);
    for (size_t a = 0; a < strlen(text); a++)
        for (size_t len = 1; len <= 6 && a + len <= strlen(text); len++) {
            char stop[8] = {0};
            memcpy(stop, text + a, len);
            check_stops(t, text, (const char *const[]){stop, "zzz"}, 2);
        }
    check_stops(t, text, (const char *const[]){"nowhere", "endx"}, 2);
    tokenizer_free(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_greedy),      cmocka_unit_test(test_random),
        cmocka_unit_test(test_temperature), cmocka_unit_test(test_cuts),
        cmocka_unit_test(test_xtc),         cmocka_unit_test(test_order),
        cmocka_unit_test(test_mirostat),    cmocka_unit_test(test_definition),
        cmocka_unit_test(test_largest),     cmocka_unit_test(test_reads),
        cmocka_unit_test(test_stops),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
