/* The parameters of sampling: their ranges, and the defaults that a model file carries. */
#include "gguf/gguf_write.h"
#include "model/sampling.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "temporary_directory.h"

typedef void write_keys(struct gguf_writer *w);

/* notes: what is left out; valid until the next call. */
static const char *notes;

static struct sampling defaults_of(write_keys *keys)
{
    static char text[2048];
    const char *path = in_directory("keys.gguf");
    struct strbuf left_out = {0};
    struct gguf_writer *w;
    struct gguf *g;
    struct error e;
    assert_int_equal(gguf_writer_open(path, &w, &e), ERROR_OK);
    gguf_writer_string(w, "general.architecture", "none", 4);
    keys(w);
    assert_int_equal(gguf_writer_close(w, &e), ERROR_OK);
    assert_int_equal(gguf_open(path, &g, &e), ERROR_OK);
    struct sampling s = sampling_of_model(g, &left_out);
    gguf_close(g);
    snprintf(text, sizeof text, "%s", left_out.len ? left_out.data : "");
    strbuf_fini(&left_out);
    notes = text;
    return s;
}

static void no_keys(struct gguf_writer *w)
{
    (void)w;
}

static void all_keys(struct gguf_writer *w)
{
    gguf_writer_i32(w, "general.sampling.top_k", 20);
    gguf_writer_f32(w, "general.sampling.top_p", 0.8f);
    gguf_writer_f32(w, "general.sampling.min_p", 0.125f);
    gguf_writer_f32(w, "general.sampling.temp", 0.7f);
    gguf_writer_f32(w, "general.sampling.xtc_probability", 0.25f);
    gguf_writer_f32(w, "general.sampling.xtc_threshold", 0.2f);
    gguf_writer_i32(w, "general.sampling.penalty_last_n", -1);
    gguf_writer_f32(w, "general.sampling.penalty_repeat", 1.05f);
    gguf_writer_i32(w, "general.sampling.mirostat", 2);
    gguf_writer_f32(w, "general.sampling.mirostat_tau", 4);
    gguf_writer_f32(w, "general.sampling.mirostat_eta", 0.5f);
    gguf_writer_string(w, "general.sampling.sequence", "kpt", 3);
}

static void few_keys(struct gguf_writer *w)
{
    gguf_writer_u32(w, "general.sampling.top_k", 40);
}

static void only_penalty(struct gguf_writer *w)
{
    gguf_writer_f32(w, "general.sampling.penalty_repeat", 1.5f);
}

static void penalties_off(struct gguf_writer *w)
{
    only_penalty(w);
    gguf_writer_i32(w, "general.sampling.penalty_last_n", 0);
}

/* As other programs may write them. */
static void other_types(struct gguf_writer *w)
{
    gguf_writer_i32(w, "general.sampling.temp", 1);
    gguf_writer_f32(w, "general.sampling.top_k", 20);
    gguf_writer_f32(w, "general.sampling.min_p", -1);
    gguf_writer_f32(w, "general.sampling.penalty_last_n", -1);
    gguf_writer_i32(w, "general.sampling.penalty_repeat", 2);
}

static void negative_top_k(struct gguf_writer *w)
{
    gguf_writer_i32(w, "general.sampling.top_k", -1);
}

static void test_model_defaults(void **state)
{
    (void)state;
    struct sampling s = defaults_of(no_keys);
    assert_true(s.temperature == 0.8f && s.min_p == 0.05f && s.top_p == 1 && s.top_k == 0);
    assert_string_equal(s.order, SAMPLING_ORDER);
    s = defaults_of(all_keys);
    assert_true(s.top_k == 20 && s.top_p == 0.8f && s.min_p == 0.125f && s.temperature == 0.7f);
    assert_true(s.xtc_probability == 0.25f && s.xtc_threshold == 0.2f);
    assert_true(s.repetition_window == UINT32_MAX && s.repetition_penalty == 1.05f);
    assert_true(s.mirostat == 2 && s.mirostat_tau == 4 && s.mirostat_eta == 0.5f);
    assert_string_equal(s.order, "kpt");
    s = defaults_of(few_keys); /* its author's cut, without min_p */
    assert_true(s.top_k == 40 && s.min_p == 0 && s.temperature == 0.8f);
    s = defaults_of(only_penalty); /* no cut of its author's */
    assert_true(s.min_p == 0.05f && s.temperature == 0.8f && s.repetition_penalty == 1.5f);
    s = defaults_of(penalties_off);
    assert_true(s.repetition_penalty == 1 && s.repetition_window == 64);
    s = defaults_of(other_types);
    assert_true(s.temperature == 1 && s.top_k == 20 && s.min_p == 0);
    assert_true(s.repetition_window == UINT32_MAX && s.repetition_penalty == 2);
    assert_int_equal(defaults_of(negative_top_k).top_k, 0);
    assert_string_equal(notes, "");
}

static void bad_keys(struct gguf_writer *w)
{
    gguf_writer_string(w, "general.sampling.temp", "hot", 3);
    gguf_writer_f32(w, "general.sampling.top_p", 7);
    gguf_writer_f32(w, "general.sampling.top_k", 2.5f);
    gguf_writer_i32(w, "general.sampling.mirostat", 1);
    gguf_writer_i32(w, "general.sampling.sequence", 1);
    gguf_writer_f32(w, "general.sampling.penalty_repeat", 1.5f);
}

/* A bad key is left out, and only that. */
static void test_bad_keys(void **state)
{
    (void)state;
    struct sampling s = defaults_of(bad_keys);
    assert_non_null(strstr(notes, "'general.sampling.temp' has type string"));
    assert_non_null(strstr(notes, "top_p is 7: expected 0 to 1"));
    assert_non_null(strstr(notes, "general.sampling.top_k is 2.5"));
    assert_non_null(strstr(notes, "mirostat is 1: expected 0 (off) or 2"));
    assert_non_null(strstr(notes, "'general.sampling.sequence' has type i32"));
    assert_true(s.temperature == 0.8f && s.min_p == 0.05f && s.top_p == 1 && s.top_k == 0);
    assert_true(s.mirostat == 0 && s.repetition_penalty == 1.5f);
    assert_string_equal(s.order, SAMPLING_ORDER);
}

/* ---- The order of a model file ---- */

static const char *sequence;

static void write_sequence(struct gguf_writer *w)
{
    gguf_writer_string(w, "general.sampling.sequence", sequence, strlen(sequence));
}

static void test_sequence(void **state)
{
    static const struct {
        const char *text, *order, *note;
    } cases[] = {
        {"penalties;dry;top_n_sigma;top_k;typ_p;top_p;min_p;xtc;temperature", "edskypmxt", NULL},
        {"temperature;top_k;", "tk", NULL},
        {"temperature", "t", NULL},
        {"t;k", "tk", NULL},
        {"top-k;nucleus;temp", "kpt", NULL},
        {"temp", "t", NULL},
        {"typ", "y", NULL},
        {"kat", "edskypmxt", "order has the letter 'a'"},
        {"top_k;adaptive_p;temperature", "kt", "has 'adaptive_p', which is no sampler"},
        {"top_k;k;temperature", "kt", "has 'k' a second time"},
        {"mirostat", "edskypmxt", "order has the letter 'i'"},
        {"kk", "edskypmxt", "'k' twice"},
        {"mirostat;adaptive_p", "edskypmxt", "has 'mirostat'"},
        {"", "edskypmxt", NULL},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        sequence = cases[i].text;
        struct sampling s = defaults_of(write_sequence);
        assert_string_equal(s.order, cases[i].order);
        assert_true(cases[i].note ? strstr(notes, cases[i].note) != NULL : !*notes);
        assert_true(s.temperature == 0.8f && s.min_p == 0.05f);
    }
    char long_text[512] = {0};
    memset(long_text, 'k', sizeof long_text - 1);
    sequence = long_text;
    assert_string_equal(defaults_of(write_sequence).order, SAMPLING_ORDER);
    assert_non_null(strstr(notes, "more than 256 bytes"));
}

/* Every parameter is refused below and above its range, by name, and taken at its ends. */
static void test_ranges(void **state)
{
    struct sampling s;
    struct error e;
    (void)state;
#define CHECK_FLOAT(name, low, high, neutral)                                                      \
    s = sampling_neutral();                                                                        \
    s.name = (low);                                                                                \
    assert_int_equal(sampling_check(&s, &e), ERROR_OK);                                            \
    s.name = (high);                                                                               \
    assert_int_equal(sampling_check(&s, &e), ERROR_OK);                                            \
    for (int i = 0; i < 3; i++) {                                                                  \
        s.name = i == 0 ? (low)-0.01f : i == 1 ? (high) + 0.01f : NAN;                             \
        assert_int_equal(sampling_check(&s, &e), ERROR_USAGE);                                     \
        assert_non_null(strstr(e.text, #name));                                                    \
        assert_non_null(strstr(e.text, "expected"));                                               \
    }
    SAMPLING_FLOATS(CHECK_FLOAT)
    s = sampling_neutral();
    for (uint32_t mirostat = 0; mirostat < 4; mirostat++) {
        s.mirostat = mirostat;
        assert_int_equal(sampling_check(&s, &e),
                         mirostat == 0 || mirostat == 2 ? ERROR_OK : ERROR_USAGE);
    }
}

static void test_order(void **state)
{
    struct sampling s = sampling_neutral();
    struct error e;
    (void)state;
    assert_int_equal(sampling_set_order(&s, "tk", 2, &e), ERROR_OK);
    assert_string_equal(s.order, "tk");
    assert_int_equal(sampling_set_order(&s, "", 0, &e), ERROR_OK);
    assert_string_equal(s.order, "");
    assert_int_equal(sampling_set_order(&s, "tkt", 3, &e), ERROR_USAGE);
    assert_int_equal(sampling_set_order(&s, "k\0t", 3, &e), ERROR_USAGE);
    assert_int_equal(sampling_set_order(&s, "edskypmxtedskypmxt", 18, &e), ERROR_USAGE);
    assert_string_equal(s.order, ""); /* a refused one changes nothing */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_model_defaults), cmocka_unit_test(test_bad_keys),
        cmocka_unit_test(test_sequence),       cmocka_unit_test(test_ranges),
        cmocka_unit_test(test_order),
    };
    return cmocka_run_group_tests(tests, make_directory, remove_directory);
}
