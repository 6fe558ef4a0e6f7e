/* Sampling, against hand-worked cases and the distribution that the definition asks for; and the text side of a
 * request: stop strings against a search in the whole text. */
#include "kernels/kernels.h"
#include "worker/request.h"
#include "worker/sampler.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct sampling greedy = {.top_p = 1, .repetition_penalty = 1};

static uint32_t pick(const struct sampling *settings, uint64_t *state, const float *logits, uint32_t n,
                     const uint32_t *history, uint32_t n_history)
{
    struct sampler *s = sampler_new(n);
    float *copy = malloc(n * sizeof *copy);
    memcpy(copy, logits, n * sizeof *copy);
    uint32_t token = sampler_pick(s, settings, state, copy, history, n_history);
    free(copy);
    sampler_free(s);
    return token;
}

static void test_greedy(void **state)
{
    uint64_t random = 0;
    (void)state;
    assert_int_equal(pick(&greedy, &random, (float[]){1, 3, 2}, 3, NULL, 0), 1);
    assert_int_equal(pick(&greedy, &random, (float[]){1, 3, 3}, 3, NULL, 0), 1); /* lowest on ties */
    assert_int_equal(pick(&greedy, &random, (float[]){-1, -3, -0.5f}, 3, NULL, 0), 2);
    float many[300];
    for (uint32_t at = 0; at < 300; at++) { /* wherever it stands, before one that is as large */
        for (uint32_t i = 0; i < 300; i++)
            many[i] = i == at || i == 299 ? 2 : (float)(i % 7) * 0.25f;
        assert_int_equal(pick(&greedy, &random, many, 300, NULL, 0), at);
    }
    many[0] = 1, many[1] = NAN, many[70] = NAN, many[200] = 3; /* what is no number is never it */
    assert_int_equal(pick(&greedy, &random, many, 300, NULL, 0), 200);
    assert_int_equal(random, 0); /* nothing drawn */
}

/* The n largest of a row, one after the other: of equal ones the lower first, what is no number last. */
static void find_largest(const float *logits, uint32_t vocab, uint32_t n, float *values, uint32_t *tokens)
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

/* From the largest alone the same tokens come as from the whole row, and as much is drawn. */
static void test_largest(void **state)
{
    enum { VOCAB = 700, ROWS = 60 };
    static const struct sampling settings[] = {
        {.temperature = 0, .top_p = 1, .repetition_penalty = 1},
        {.temperature = 0, .top_k = 300, .top_p = 0.5f, .repetition_penalty = 1},
        {.temperature = 0.7f, .top_k = 1, .top_p = 1, .repetition_penalty = 1},
        {.temperature = 1.5f, .top_k = 40, .top_p = 0.9f, .repetition_penalty = 1},
        {.temperature = 0.9f, .top_k = 256, .top_p = 1, .min_p = 0.05f, .repetition_penalty = 1},
        {.temperature = 5, .top_k = 256, .top_p = 0.99f, .repetition_penalty = 0}};
    static const uint32_t reads[] = {1, 1, 1, 40, 256, 256};
    struct sampler *s = sampler_new(VOCAB);
    uint64_t random = 7;
    (void)state;
    for (int row = 0; row < ROWS; row++) {
        float logits[VOCAB], copy[VOCAB], values[SAMPLER_LARGEST];
        uint32_t tokens[SAMPLER_LARGEST], seen[] = {3, 5};
        for (int i = 0; i < VOCAB; i++) { /* with many ties; some rows with what is no number, or no size */
            random = random * 6364136223846793005ull + 1442695040888963407ull;
            logits[i] = (float)(random >> 58) * 0.25f - 4;
            if (row % 4 == 1 && (random >> 40) % 5 == 0)
                logits[i] = (random >> 39) % 2 ? NAN : -0.0f;
            if (row % 4 == 2 && (random >> 40) % 16 == 0)
                logits[i] = (random >> 39) % 2 ? INFINITY : -3e38f;
        }
        logits[0] = row % 8 == 1 ? NAN : logits[0];
        find_largest(logits, VOCAB, SAMPLER_LARGEST, values, tokens);
        for (int k = 0; k < 6; k++) {
            uint64_t whole = sampler_seed((uint64_t)row), largest = whole;
            memcpy(copy, logits, sizeof copy);
            assert_int_equal(sampler_reads(s, &settings[k]), reads[k]);
            assert_int_equal(sampler_pick_largest(s, &settings[k], &largest, values, tokens),
                             sampler_pick(s, &settings[k], &whole, copy, seen, 2));
            assert_true(whole == largest);
        }
    }
    struct sampling all = {.temperature = 1, .top_p = 0.9f, .repetition_penalty = 1};
    assert_int_equal(sampler_reads(s, &all), 0); /* the sum of all */
    all.top_k = 257;
    assert_int_equal(sampler_reads(s, &all), 0);
    all.top_k = 256;
    assert_int_equal(sampler_reads(s, &all), 256);
    all.repetition_penalty = 1.1f;
    assert_int_equal(sampler_reads(s, &all), 0);
    sampler_free(s);
    s = sampler_new(100); /* where a row has no more, all of it is wanted at most */
    all.repetition_penalty = 1;
    assert_int_equal(sampler_reads(s, &all), 100);
    all.top_k = 0;
    assert_int_equal(sampler_reads(s, &all), 100);
    sampler_free(s);
}

static void test_penalty(void **state)
{
    uint64_t random = 0;
    struct sampling s = greedy;
    (void)state;
    s.repetition_penalty = 2;
    /* 4 / 2 < 3; once only, though it stands twice in the history; negative logits are multiplied */
    assert_int_equal(pick(&s, &random, (float[]){4, 3, 1}, 3, (uint32_t[]){0, 0}, 2), 1);
    assert_int_equal(pick(&s, &random, (float[]){7, 3, 1}, 3, (uint32_t[]){0, 0}, 2), 0);
    assert_int_equal(pick(&s, &random, (float[]){-2, -3, -9}, 3, (uint32_t[]){0}, 1), 1);
    s.repetition_window = 1; /* only the newest */
    assert_int_equal(pick(&s, &random, (float[]){4, 3, 1}, 3, (uint32_t[]){0, 2}, 2), 0);
    assert_int_equal(pick(&s, &random, (float[]){4, 3, 1}, 3, (uint32_t[]){99, 0}, 2), 1);
}

/* Frequencies of many draws, against probabilities. */
static void check_distribution(const struct sampling *s, const float *logits, const double *want,
                               uint32_t n)
{
    enum { DRAWS = 40000 };
    uint32_t counts[16] = {0};
    uint64_t random = sampler_seed(1);
    struct sampler *sampler = sampler_new(n);
    for (int i = 0; i < DRAWS; i++) {
        float copy[16];
        memcpy(copy, logits, n * sizeof *copy);
        counts[sampler_pick(sampler, s, &random, copy, NULL, 0)]++;
    }
    for (uint32_t i = 0; i < n; i++) {
        double got = (double)counts[i] / DRAWS;
        double sigma = sqrt(want[i] * (1 - want[i]) / DRAWS);
        assert_true(fabs(got - want[i]) <= 5 * sigma + 1e-9);
    }
    sampler_free(sampler);
}

static void test_distribution(void **state)
{
    /* probabilities 0.5, 0.25, 0.125, 0.125 at temperature 1 */
    const float logits[] = {0, (float)-M_LN2, (float)(-2 * M_LN2), (float)(-2 * M_LN2)};
    struct sampling s = greedy;
    (void)state;
    s.temperature = 1;
    check_distribution(&s, logits, (double[]){0.5, 0.25, 0.125, 0.125}, 4);
    s.temperature = 0.5f; /* squared: 16, 4, 1, 1 of 22 */
    check_distribution(&s, logits, (double[]){16 / 22., 4 / 22., 1 / 22., 1 / 22.}, 4);
    s.temperature = 1;
    s.top_k = 2;
    check_distribution(&s, logits, (double[]){2 / 3., 1 / 3., 0, 0}, 4);
    s.top_k = 0;
    s.top_p = 0.7f; /* the smallest set of at least 0.7 */
    check_distribution(&s, logits, (double[]){2 / 3., 1 / 3., 0, 0}, 4);
    s.top_p = 1;
    s.min_p = 0.4f;
    check_distribution(&s, logits, (double[]){2 / 3., 1 / 3., 0, 0}, 4);
}

/* The definition of sampler.h, slowly: everything sorted, every sum from one end to the other. */
struct weighed {
    double w, logit;
    uint32_t token;
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

static uint32_t pick_slowly(const struct sampling *s, uint64_t random, const float *logits, uint32_t n)
{
    struct weighed *c = malloc(n * sizeof *c);
    for (uint32_t i = 0; i < n; i++)
        c[i] = (struct weighed){0, isnan(logits[i]) ? -INFINITY : (double)logits[i], i};
    qsort(c, n, sizeof *c, by_logit);
    uint32_t kept = s->top_k && s->top_k < n ? s->top_k : n, most_probable = c[0].token, token = n;
    float top = (float)c[0].logit, scale = 1 / s->temperature;
    for (uint32_t i = 0; i < kept; i++) {
        float e = kernels_exp(((float)c[i].logit - top) * scale);
        c[i].w = isnan(e) ? 0 : nearbyint((double)e * 0x1p30);
        c[i].w = c[i].w < (double)s->min_p * 0x1p30 ? 0 : c[i].w;
    }
    qsort(c, kept, sizeof *c, by_weight);
    if (s->top_p < 1) {
        double need = ceil((double)s->top_p * sum_of(c, kept));
        uint32_t most = kept;
        for (kept = 1; kept < most && sum_of(c, kept) < need; kept++)
            ;
    }
    qsort(c, kept, sizeof *c, by_token);
    /* r * sum / 2^64, whole: r in two halves, as a double has not the bits for the product */
    uint64_t sum = (uint64_t)sum_of(c, kept), high = random >> 32, low = random & 0xffffffff;
    uint64_t sum_high = sum >> 32, sum_low = sum & 0xffffffff;
    uint64_t middle = high * sum_low + (low * sum_low >> 32), more = low * sum_high + (middle & 0xffffffff);
    uint64_t target = high * sum_high + (middle >> 32) + (more >> 32);
    for (uint32_t i = 0; i < kept && token == n; i++)
        if ((double)target < sum_of(c, i + 1))
            token = c[i].token;
    free(c);
    return sum == 0 ? most_probable : token;
}

/* Logits of a kind: wide; peaked; with many ties; almost all equal; with what is no number; with infinities. */
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

static void test_definition(void **state)
{
    enum { MOST = 2600, DRAWS = 4 };
    static const uint32_t sizes[] = {1, 2, 63, 64, 65, 300, 1023, 1024, 1025, MOST};
    static const uint32_t top_ks[] = {0, 0, 1, 7, 40, 500};
    static const float temperatures[] = {0.1f, 0.7f, 1, 3}, top_ps[] = {1, 1, 0.95f, 0.5f, 0.01f, 0.9999f},
                       min_ps[] = {0, 0, 0.05f, 0.5f, 1};
    static float logits[MOST], copy[MOST];
    uint64_t random = 3;
    (void)state;
    for (size_t size = 0; size < sizeof sizes / sizeof sizes[0]; size++) {
        uint32_t n = sizes[size];
        struct sampler *sampler = sampler_new(n);
        for (int round = 0; round < 90; round++) {
            make_logits(logits, n, round % 6, &random);
            struct sampling s = {.temperature = temperatures[random >> 33 & 3],
                                 .top_k = top_ks[(random >> 35) % 6],
                                 .top_p = top_ps[(random >> 40) % 6],
                                 .min_p = min_ps[(random >> 45) % 5],
                                 .repetition_penalty = 1};
            uint64_t mine = sampler_seed((uint64_t)round);
            for (int draw = 0; draw < DRAWS; draw++) {
                uint64_t drawn = sampler_seed(mine); /* what the next draw takes from this state */
                memcpy(copy, logits, n * sizeof *copy);
                assert_int_equal(sampler_pick(sampler, &s, &mine, copy, NULL, 0), pick_slowly(&s, drawn, logits, n));
            }
        }
        sampler_free(sampler);
    }
}

/* A plain draw follows the softmax: the most probable tokens one by one, and the others by where they stand. */
static void test_softmax_frequencies(void **state)
{
    enum { N = 4000, DRAWS = 100000, GROUPS = 40, SINGLE = 20 };
    static float logits[N], copy[N];
    double want[SINGLE + GROUPS] = {0}, total = 0;
    uint32_t counts[SINGLE + GROUPS] = {0}, bins[N];
    uint64_t random = 11, draws = sampler_seed(4);
    struct sampling s = greedy;
    struct sampler *sampler = sampler_new(N);
    (void)state;
    s.temperature = 0.9f;
    for (uint32_t i = 0; i < N; i++) { /* the sum of some uniform numbers is near to normal; deviation 2 */
        float sum = 0;
        for (int k = 0; k < 12; k++) {
            random = random * 6364136223846793005ull + 1442695040888963407ull;
            sum += (float)(random >> 40) * 0x1p-24f;
        }
        logits[i] = 2 * (sum - 6);
    }
    for (uint32_t i = 0; i < N; i++) {
        uint32_t better = 0;
        for (uint32_t k = 0; k < N; k++)
            better += logits[k] > logits[i] || (logits[k] == logits[i] && k < i);
        bins[i] = better < SINGLE ? better : SINGLE + i * GROUPS / N;
        want[bins[i]] += exp((double)logits[i] / 0.9);
        total += exp((double)logits[i] / 0.9);
    }
    for (int i = 0; i < DRAWS; i++) {
        memcpy(copy, logits, sizeof copy);
        counts[bins[sampler_pick(sampler, &s, &draws, copy, NULL, 0)]]++;
    }
    for (int b = 0; b < SINGLE + GROUPS; b++) {
        double p = want[b] / total;
        assert_true(fabs((double)counts[b] / DRAWS - p) <= 5 * sqrt(p * (1 - p) / DRAWS));
    }
    sampler_free(sampler);
}

/* top-k of a large vocabulary selects rather than sorts: the same set as sorting. */
static void test_top_k_set(void **state)
{
    enum { N = 5000 };
    static float logits[N];
    uint64_t random = 5;
    uint32_t seed = 9;
    (void)state;
    for (int round = 0; round < 20; round++) {
        for (int i = 0; i < N; i++) {
            seed = seed * 1664525u + 1013904223u;
            logits[i] = (float)(seed >> 20); /* many ties */
        }
        struct sampling s = greedy;
        s.temperature = 50;
        s.top_k = (uint32_t)(1 + round * 13);
        for (int draw = 0; draw < 50; draw++) {
            uint32_t token = pick(&s, &random, logits, N, NULL, 0), better = 0;
            for (uint32_t i = 0; i < N; i++)
                better += logits[i] > logits[token] || (logits[i] == logits[token] && i < token);
            assert_true(better < s.top_k);
        }
    }
}

static void test_deterministic(void **state)
{
    float logits[64];
    struct sampling s = greedy;
    (void)state;
    s.temperature = 1;
    for (int i = 0; i < 64; i++)
        logits[i] = (float)(i % 7);
    for (uint64_t seed = 0; seed < 20; seed++) {
        uint64_t a = sampler_seed(seed), b = sampler_seed(seed);
        for (int i = 0; i < 20; i++)
            assert_int_equal(pick(&s, &a, logits, 64, NULL, 0), pick(&s, &b, logits, 64, NULL, 0));
    }
    float nan[] = {NAN, 1, NAN};
    uint64_t random = 1;
    assert_int_equal(pick(&s, &random, nan, 3, NULL, 0), 1);
}

/* Tokens of `text` one after the other through a request with stop strings: what comes out is the text up to the first
 * place where any of them stands (one that is complete earlier wins; here none overlap). */
static void check_stops(const struct tokenizer *t, const char *text, const char *const *stops,
                        uint32_t n_stops)
{
    struct token_list ids = {0};
    struct error e;
    struct request *r = request_new(t, NULL, 1, REQUEST_GENERATE);
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
    for (size_t i = 0; i < ids.count && !stopped; i++)
        stopped = request_push_token(r, ids.ids[i], &out);
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
        cmocka_unit_test(test_greedy),       cmocka_unit_test(test_penalty),
        cmocka_unit_test(test_largest), cmocka_unit_test(test_definition),
        cmocka_unit_test(test_softmax_frequencies),
        cmocka_unit_test(test_distribution), cmocka_unit_test(test_top_k_set),
        cmocka_unit_test(test_deterministic), cmocka_unit_test(test_stops),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
