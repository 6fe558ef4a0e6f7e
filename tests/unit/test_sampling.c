/* The parameters of sampling: their ranges, and the defaults that a model file carries. */
#include "gguf/gguf_write.h"
#include "model/sampling.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "temporary_directory.h"

typedef void write_keys(struct gguf_writer *w);

static enum error_code defaults_of(write_keys *keys, struct sampling *s, struct error *e)
{
    const char *path = in_directory("keys.gguf");
    struct gguf_writer *w;
    struct gguf *g;
    assert_int_equal(gguf_writer_open(path, &w, e), ERROR_OK);
    gguf_writer_string(w, "general.architecture", "none", 4);
    keys(w);
    assert_int_equal(gguf_writer_close(w, e), ERROR_OK);
    assert_int_equal(gguf_open(path, &g, e), ERROR_OK);
    enum error_code code = sampling_of_model(g, s, e);
    gguf_close(g);
    return code;
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

static void negative_top_k(struct gguf_writer *w)
{
    gguf_writer_i32(w, "general.sampling.top_k", -1);
}

static void wrong_type(struct gguf_writer *w)
{
    gguf_writer_string(w, "general.sampling.temp", "hot", 3);
}

static void out_of_range(struct gguf_writer *w)
{
    gguf_writer_f32(w, "general.sampling.top_p", 7);
}

static void unknown_letter(struct gguf_writer *w)
{
    gguf_writer_string(w, "general.sampling.sequence", "kat", 3);
}

static void first_mirostat(struct gguf_writer *w)
{
    gguf_writer_i32(w, "general.sampling.mirostat", 1);
}

static void test_model_defaults(void **state)
{
    struct sampling s;
    struct error e;
    (void)state;
    assert_int_equal(defaults_of(no_keys, &s, &e), ERROR_OK);
    assert_true(s.temperature == 0.8f && s.min_p == 0.05f && s.top_p == 1 && s.top_k == 0);
    assert_string_equal(s.order, SAMPLING_ORDER);
    assert_int_equal(defaults_of(all_keys, &s, &e), ERROR_OK);
    assert_true(s.top_k == 20 && s.top_p == 0.8f && s.min_p == 0.125f && s.temperature == 0.7f);
    assert_true(s.xtc_probability == 0.25f && s.xtc_threshold == 0.2f);
    assert_true(s.repetition_window == UINT32_MAX && s.repetition_penalty == 1.05f);
    assert_true(s.mirostat == 2 && s.mirostat_tau == 4 && s.mirostat_eta == 0.5f);
    assert_string_equal(s.order, "kpt");
    assert_int_equal(defaults_of(few_keys, &s, &e), ERROR_OK); /* its author's, without min_p */
    assert_true(s.top_k == 40 && s.min_p == 0 && s.temperature == 0.8f);
    assert_int_equal(defaults_of(negative_top_k, &s, &e), ERROR_OK);
    assert_int_equal(s.top_k, 0);
}

static void test_bad_keys(void **state)
{
    struct sampling s;
    struct error e;
    (void)state;
    assert_int_equal(defaults_of(wrong_type, &s, &e), ERROR_FORMAT);
    assert_non_null(strstr(e.text, "general.sampling.temp"));
    assert_int_equal(defaults_of(out_of_range, &s, &e), ERROR_FORMAT);
    assert_non_null(strstr(e.text, "top_p is 7: expected 0 to 1"));
    assert_int_equal(defaults_of(unknown_letter, &s, &e), ERROR_USAGE);
    assert_non_null(strstr(e.text, "'a'"));
    assert_int_equal(defaults_of(first_mirostat, &s, &e), ERROR_UNSUPPORTED);
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
        cmocka_unit_test(test_model_defaults),
        cmocka_unit_test(test_bad_keys),
        cmocka_unit_test(test_ranges),
        cmocka_unit_test(test_order),
    };
    return cmocka_run_group_tests(tests, make_directory, remove_directory);
}
