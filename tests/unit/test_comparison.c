/* `moed perplexity --save` and `--against`: the divergence against sums over whole distributions,
 * and files that are not what was written. */
#include "client/cli/baseline.h"
#include "client/cli/comparison.h"
#include "temporary_directory.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

/* ---- The divergence ---- */

enum { VOCAB = 6 };
static const double P[VOCAB] = {0.4, 0.25, 0.15, 0.1, 0.06, 0.04},
                    Q[VOCAB] = {0.1, 0.35, 0.05, 0.2, 0.27, 0.03};

struct list {
    uint32_t ids[VOCAB];
    float logs[VOCAB];
};

/* The n most probable of a distribution, and `token`. */
static struct comparison_side side_of(const double *of, uint32_t n, uint32_t token, struct list *l)
{
    bool taken[VOCAB] = {false};
    for (uint32_t k = 0; k < n; k++) {
        uint32_t best = VOCAB;
        for (uint32_t i = 0; i < VOCAB; i++)
            if (!taken[i] && (best == VOCAB || of[i] > of[best]))
                best = i;
        taken[best] = true;
        l->ids[k] = best;
        l->logs[k] = (float)log(of[best]);
    }
    return (struct comparison_side){(float)log(of[token]), l->ids, l->logs, n};
}

static double divergence(uint32_t n, uint32_t token, double *rest)
{
    struct list a, b;
    struct comparison_side base = side_of(P, n, token, &a), other = side_of(Q, n, token, &b);
    return comparison_divergence(token, &base, &other, rest);
}

static void test_divergence(void **state)
{
    double whole = 0, rest;
    (void)state;
    for (int i = 0; i < VOCAB; i++)
        whole += P[i] * log(P[i] / Q[i]);
    assert_true(fabs(divergence(VOCAB, 0, &rest) - whole) < 1e-6);
    assert_true(rest == 0);
    /* the two lists of two have the token 1 in common: events are 1, the token there, and others */
    double part = P[1] * log(P[1] / Q[1]) + P[5] * log(P[5] / Q[5]) +
                  (1 - P[1] - P[5]) * log((1 - P[1] - P[5]) / (1 - Q[1] - Q[5]));
    assert_true(fabs(divergence(2, 5, &rest) - part) < 1e-6);
    assert_true(fabs(rest - (1 - P[1] - P[5])) < 1e-6);
    for (uint32_t n = 1; n < VOCAB; n++) {
        assert_true(divergence(n, 3, &rest) <= whole + 1e-6);
        assert_true(rest > 0);
    }
}

static void test_comparison(void **state)
{
    struct comparison same = {0}, two = {0};
    struct list a, b;
    (void)state;
    for (uint32_t window = 0; window < 12; window++) {
        for (uint32_t token = 0; token < VOCAB; token++) {
            struct comparison_side base = side_of(P, 3, token, &a),
                                   other = side_of(Q, 3, token, &b);
            assert_true(comparison_add(&same, token, &base, &base));
            assert_true(comparison_add(&two, token, &base, &other));
        }
        assert_true(comparison_end_window(&same) && comparison_end_window(&two));
    }
    struct comparison_result r = comparison_get(&same);
    assert_true(r.delta.mean == 0 && r.delta.standard_error == 0);
    assert_true(r.mean == 0 && r.most == 0 && r.same_top == 1);
    r = comparison_get(&two);
    double delta = 0;
    for (int i = 0; i < VOCAB; i++)
        delta += log(P[i] / Q[i]) / VOCAB;
    assert_true(fabs(r.delta.mean - delta) < 1e-6 && r.delta.over_windows);
    assert_true(r.delta.standard_error < 1e-6); /* each window has the same */
    assert_true(r.same_top == 0 && r.median <= r.q99 && r.q99 <= r.most && r.mean > 0);
    comparison_fini(&same);
    comparison_fini(&two);
}

/* ---- The file ---- */

enum { TOP = 2, TOKENS = 4 };
static const uint32_t ids[TOKENS] = {5, 3, 0, 1};
static const struct baseline_head head = {.vocab = VOCAB,
                                          .top = TOP,
                                          .n_windows = 1,
                                          .n_scored = 3,
                                          .kv_type = "f16",
                                          .device = "host",
                                          .model = "m.gguf"};

static void fill(struct baseline_scores *s)
{
    for (uint32_t i = 0; i < 3; i++) {
        s->logprobs[i] = -1 - (float)i;
        for (uint32_t k = 0; k < TOP; k++) {
            s->top[i * TOP + k] = (i + k) % VOCAB;
            s->top_logprobs[i * TOP + k] = -0.5f - (float)k;
        }
    }
}

static void write_base(const char *path)
{
    struct baseline b;
    struct baseline_scores s;
    struct error e;
    assert_true(baseline_scores_init(&s, 3, TOP));
    fill(&s);
    assert_int_equal(baseline_create(&b, path, &head, &e), ERROR_OK);
    assert_int_equal(baseline_window(&b, ids, TOKENS, 1, &s, &e), ERROR_OK);
    assert_int_equal(access(path, F_OK), -1); /* not before it is whole */
    assert_int_equal(baseline_finish(&b, &e), ERROR_OK);
    free(s.memory);
}

static enum error_code read_base(const char *path, const uint32_t *expected)
{
    struct baseline b;
    struct baseline_scores s, wanted;
    struct error e;
    enum error_code code = baseline_open(&b, path, &e);
    if (code)
        return code;
    assert_true(baseline_scores_init(&s, 3, TOP) && baseline_scores_init(&wanted, 3, TOP));
    fill(&wanted);
    code = baseline_window(&b, expected, TOKENS, 1, &s, &e);
    if (!code)
        code = baseline_finish(&b, &e);
    if (!code) {
        assert_memory_equal(s.logprobs, wanted.logprobs, 3 * sizeof *s.logprobs);
        assert_memory_equal(s.top, wanted.top, 3 * TOP * sizeof *s.top);
        assert_memory_equal(s.top_logprobs, wanted.top_logprobs, 3 * TOP * sizeof *s.top);
    }
    baseline_abandon(&b);
    free(s.memory);
    free(wanted.memory);
    return code;
}

static size_t read_file(const char *path, char *data, size_t most)
{
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    size_t n = fread(data, 1, most, f);
    fclose(f);
    return n;
}

static void write_file(const char *path, const char *data, size_t n)
{
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, n, f), n);
    fclose(f);
}

/* Bytes that are changed, and ends that are missing, are noticed. */
static void test_baseline(void **state)
{
    static const uint32_t others[TOKENS] = {5, 3, 1, 1};
    char data[1024];
    const char *path = in_directory("base");
    (void)state;
    write_base(path);
    assert_int_equal(read_base(path, ids), ERROR_OK);
    assert_int_equal(read_base(path, others), ERROR_USAGE);
    size_t n = read_file(path, data, sizeof data);
    assert_true(n > sizeof head && n < sizeof data);
    for (size_t i = 0; i < n; i += i < 48 || i >= sizeof head ? 1 : 16) {
        data[i] ^= 0x55;
        write_file(path, data, n);
        assert_int_not_equal(read_base(path, ids), ERROR_OK);
        data[i] ^= 0x55;
        write_file(path, data, i);
        assert_int_not_equal(read_base(path, ids), ERROR_OK);
    }
    write_file(path, data, n);
    assert_int_equal(read_base(path, ids), ERROR_OK);
    data[n] = 0;
    write_file(path, data, n + 1);
    assert_int_equal(read_base(path, ids), ERROR_FORMAT);
}

/* The report prints the head's texts: a file from elsewhere must not reach the terminal so. */
static void test_baseline_texts(void **state)
{
    static const char *const models[] = {"a\x1b[2J.gguf", "a\nb.gguf", "a\x7f.gguf"};
    const char *path = in_directory("texts");
    (void)state;
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        struct baseline b;
        struct error e;
        struct baseline_head other = head;
        strcpy(other.model, models[i]);
        assert_int_equal(baseline_create(&b, path, &other, &e), ERROR_OK);
        assert_int_equal(baseline_finish(&b, &e), ERROR_OK);
        assert_int_equal(baseline_open(&b, path, &e), ERROR_FORMAT);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_divergence),
        cmocka_unit_test(test_comparison),
        cmocka_unit_test(test_baseline),
        cmocka_unit_test(test_baseline_texts),
    };
    return cmocka_run_group_tests(tests, make_directory, remove_directory);
}
