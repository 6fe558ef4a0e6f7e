/* lib/calibration: compares the line with a search by brute force and with cases solved by hand;
 * cuts and alters the file in every way. */
#include "calibration/calibration.h"

#include <dirent.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

static struct calibration example(void)
{
    return (struct calibration){
        .machine = "a CPU, 2 cores",
        .device = "emu:vram=25%,link=1G",
        .model = "a model",
        .shapes = "8 layers of 32 experts",
        .measured_at = 1795251999,
        .segment_bytes = 442368,
        .device_side = {3, {{1, 2.1e-5}, {2, 2.95425e-05}, {8, 1e-4}}},
        .cpu_side = {2, {{1, 6.4e-5}, {4, 0.0001224}}},
        .device_call_s = 3e-5,
        .cpu_call_s = 2e-5,
        .job_overhead_s = 5.9943e-05,
        .link_segment_s = 0.00045,
        .link_latency_s = 0,
        .cpu_overlap = 1.5,
        .cpu_slowdown = 1.25,
        .link_slowdown = 1.0032,
    };
}

/* -- the line -- */

static void test_points_on_a_line(void **state)
{
    struct calibration_side side = {4, {{1, 5e-3}, {2, 7e-3}, {8, 19e-3}, {32, 67e-3}}};
    struct calibration_line line = calibration_fit(&side);
    assert_true(fabs(line.base_s - 3e-3) < 1e-9);
    assert_true(fabs(line.token_s - 2e-3) < 1e-9);
    assert_true(line.residual < 1e-6);
}

static double sum_of_squares(const struct calibration_side *side, double base_s, double token_s)
{
    double sum = 0;
    for (uint32_t i = 0; i < side->n_points; i++) {
        double off = (base_s + side->points[i].tokens * token_s) / side->points[i].seconds - 1;
        sum += off * off;
    }
    return sum;
}

/* No line without negative parts, in a fine grid around, is better. */
static void assert_best(const struct calibration_side *side)
{
    struct calibration_line line = calibration_fit(side);
    double best = sum_of_squares(side, line.base_s, line.token_s);
    assert_true(fabs(line.residual - sqrt(best / side->n_points)) < 1e-9);
    assert_true(line.base_s >= 0 && line.token_s >= 0);
    double most = 0;
    for (uint32_t i = 0; i < side->n_points; i++)
        most = fmax(most, side->points[i].seconds);
    for (int a = 0; a <= 400; a++)
        for (int b = 0; b <= 400; b++)
            assert_true(sum_of_squares(side, most * a / 400, most * b / 400) >= best * (1 - 1e-9));
}

static void test_best_of_all_lines(void **state)
{
    struct calibration_side noisy = {6, {{1, 3}, {2, 4.4}, {4, 5}, {8, 12}, {16, 17}, {32, 41}}};
    struct calibration_side falling = {3, {{1, 9}, {4, 7}, {16, 3}}};
    struct calibration_side steep = {3, {{1, 0.1}, {2, 1}, {4, 8}}};
    assert_best(&noisy);
    assert_best(&falling);
    assert_best(&steep);
    assert_true(calibration_fit(&falling).token_s == 0);
    assert_true(calibration_fit(&steep).base_s == 0);
}

static void test_one_point(void **state)
{
    struct calibration_side side = {1, {{4, 0.25}}};
    struct calibration_line line = calibration_fit(&side);
    assert_true(fabs(line.base_s + 4 * line.token_s - 0.25) < 1e-12);
    assert_true(line.residual < 1e-12);
}

/* -- the text -- */

static char *text_of(const struct calibration *c)
{
    struct strbuf b;
    strbuf_init(&b);
    calibration_write(c, &b);
    assert_false(b.failed);
    return b.data; /* the caller frees it */
}

static void assert_equal(const struct calibration *a, const struct calibration *b)
{
    assert_true(calibration_same(a, b));
    char *x = text_of(a), *y = text_of(b);
    assert_string_equal(x, y);
    free(x);
    free(y);
}

static void test_text_and_back(void **state)
{
    struct calibration c = example(), back;
    char *text = text_of(&c);
    assert_int_equal(calibration_parse(text, &back, NULL), ERROR_OK);
    assert_equal(&c, &back);
    assert_int_equal(back.cpu_side.n_points, 2);
    assert_int_equal(back.cpu_side.points[1].tokens, 4);
    assert_true(fabs(back.cpu_side.points[1].seconds - 0.0001224) < 1e-12);
    assert_true(back.cpu_slowdown == 1.25);
    assert_true(back.cpu_overlap == 1.5);
    assert_int_equal(back.measured_at, 1795251999);
    free(text);
}

/* A new calibration has no corrections. Corrections belong to their measurement and must be finite.
 */
static void test_corrections(void **state)
{
    struct calibration c = example(), back;
    char path[PATH_MAX];
    (void)state;
    snprintf(c.model, sizeof c.model, "one that learns");
    char *text = text_of(&c);
    assert_null(strstr(text, "corrections"));
    free(text);
    assert_int_equal(calibration_store_corrections(&c, NULL), ERROR_NOT_FOUND);
    assert_int_equal(calibration_store(&c, NULL), ERROR_OK);
    for (int i = 0; i < CALIBRATION_CORRECTED; i++)
        c.corrections[i] = 1.5 * i;
    c.job_overhead_s = 7; /* not part of it */
    assert_int_equal(calibration_store_corrections(&c, NULL), ERROR_OK);
    assert_int_equal(calibration_load(&c, &back, NULL), ERROR_OK);
    assert_memory_equal(back.corrections, c.corrections, sizeof c.corrections);
    assert_true(back.job_overhead_s == example().job_overhead_s);
    c.measured_at++; /* another measurement's */
    c.corrections[0] = 99;
    assert_int_equal(calibration_store_corrections(&c, NULL), ERROR_NOT_FOUND);
    assert_int_equal(calibration_load(&c, &back, NULL), ERROR_OK);
    assert_true(back.corrections[0] == 0);
    assert_true(calibration_path(&c, path));
    assert_int_equal(unlink(path), 0);
}

static void test_cut_short(void **state)
{
    struct calibration c = example(), back;
    c.corrections[3] = 1;
    char *text = text_of(&c);
    for (size_t n = strlen(text); n-- > 0;) {
        text[n] = '\0';
        assert_int_equal(calibration_parse(text, &back, NULL), ERROR_FORMAT);
    }
    free(text);
}

/* The example's text with one line replaced (with none: left out). */
static void refused(const char *start, const char *with)
{
    struct calibration c = example(), back;
    c.corrections[0] = 1;
    char *text = text_of(&c), *at = strstr(text, start);
    assert_non_null(at);
    struct strbuf b;
    strbuf_init(&b);
    strbuf_append(&b, text, (size_t)(at - text));
    strbuf_printf(&b, "%s%s", with, strchr(at, '\n') + 1);
    struct error e;
    if (calibration_parse(b.data, &back, &e) != ERROR_FORMAT)
        fail_msg("taken: '%s' for '%s'", with, start);
    strbuf_fini(&b);
    free(text);
}

static void test_altered(void **state)
{
    refused("cpu-overlap", "");
    refused("machine ", "");
    refused("corrections", "corrections 1 2 3\n");
    refused("corrections", "corrections 1 2 3 4 5 6 7 8 9 10 11 12\n");
    refused("corrections", "corrections 1 2 3 4 5 6 7 8 9 10 nan\n");
    refused("corrections", "corrections 1 2 3 4 5 6 7 8 9 10 -1\n");
    refused("machine ", "machine a\tb\n");
    refused("model ", "model\n");
    refused("measured-at", "measured-at 1.5\n");
    refused("measured-at", "measured-at -3\n");
    refused("segment-bytes", "segment-bytes 0\n");
    refused("segment-bytes", "segment-bytes 12 bytes\n");
    refused("segment-bytes", "segment-bytes 12\nsegment-bytes 12\n");
    refused("device-segment 1 ", "device-segment 1 nan\n");
    refused("device-segment 1 ", "device-segment 1 inf\n");
    refused("device-segment 1 ", "device-segment 1 -1e-3\n");
    refused("device-segment 1 ", "device-segment 1 0\n");
    refused("device-segment 1 ", "device-segment 1\n");
    refused("device-segment 1 ", "device-segment 1.5 1e-3\n");
    refused("device-segment 1 ", "device-segment 0 1e-3\n");
    refused("device-segment 1 ", "device-segment 4 1e-3\n"); /* then come 2 and 8 */
    refused("device-segment 1 ", "gpu-segment 1 1e-3\n");
    refused("cpu-call", "");
    refused("link-segment", "link-segment -1\n");
    refused("cpu-slowdown", "cpu-slowdown 1e300\n");
    refused("end", "end\nend 1\n");
    refused("end", "\n");
    char many[2048] = "";
    for (int i = 0; i < 9; i++)
        snprintf(many + strlen(many), sizeof many - strlen(many), "device-segment %d 1e-3\n",
                 10 + i);
    refused("device-segment 8", many);
    char wide[600];
    snprintf(wide, sizeof wide, "machine %0500d\n", 1);
    refused("machine ", wide);
    snprintf(wide, sizeof wide, "machine %0200d\n", 1);
    refused("machine ", wide);
}

/* -- the file -- */

static char home[64];

static int make_home(void **state)
{
    snprintf(home, sizeof home, "/tmp/moed-test-calibration-XXXXXX");
    if (!mkdtemp(home))
        return -1;
    char cache[128];
    snprintf(cache, sizeof cache, "%s/deep/cache", home);
    setenv("XDG_CACHE_HOME", cache, 1);
    return 0;
}

static int remove_home(void **state)
{
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", home);
    return system(command);
}

static void test_stored_and_found(void **state)
{
    struct calibration c = example(), back, other = example();
    snprintf(other.device, sizeof other.device, "emu:vram=50%%,link=1G");
    assert_int_equal(calibration_load(&c, &back, NULL), ERROR_NOT_FOUND);
    assert_int_equal(calibration_store(&c, NULL), ERROR_OK);
    assert_int_equal(calibration_load(&c, &back, NULL), ERROR_OK);
    assert_equal(&c, &back);
    assert_int_equal(calibration_load(&other, &back, NULL), ERROR_NOT_FOUND);
    /* a second store replaces the file and leaves nothing else in the folder */
    c.job_overhead_s = 1;
    assert_int_equal(calibration_store(&c, NULL), ERROR_OK);
    assert_int_equal(calibration_load(&c, &back, NULL), ERROR_OK);
    assert_true(back.job_overhead_s == 1);
    char folder[PATH_MAX];
    assert_true(calibration_folder(folder));
    DIR *d = opendir(folder);
    assert_non_null(d);
    int entries = 0;
    while (readdir(d))
        entries++;
    closedir(d);
    assert_int_equal(entries, 3); /* with . and .. */
}

static void write_file(const char *path, const char *data, size_t n)
{
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

static void test_broken_or_foreign(void **state)
{
    struct calibration c = example(), back, other = example();
    char path[PATH_MAX], wrong[PATH_MAX];
    snprintf(other.model, sizeof other.model, "another model");
    assert_int_equal(calibration_store(&c, NULL), ERROR_OK);
    assert_true(calibration_path(&c, path) && calibration_path(&other, wrong));
    assert_string_not_equal(path, wrong);
    assert_int_equal(rename(path, wrong), 0);
    assert_int_equal(calibration_load(&other, &back, NULL), ERROR_FORMAT);
    write_file(path, "", 0);
    assert_int_equal(calibration_load(&c, &back, NULL), ERROR_FORMAT);
    struct error e;
    write_file(path, "moed calibration 2\nend\n", 23);
    assert_int_equal(calibration_load(&c, &back, &e), ERROR_VERSION);
    assert_non_null(strstr(e.text, "of another version of moed"));
    write_file(path, "moed calibration 2x\nend\n", 24);
    assert_int_equal(calibration_load(&c, &back, NULL), ERROR_FORMAT);
    write_file(path, "moed calibration 3\nend\n", 23);
    assert_int_equal(calibration_load(&c, &back, NULL), ERROR_FORMAT);
    static char large[100000];
    write_file(path, large, sizeof large);
    assert_int_equal(calibration_load(&c, &back, NULL), ERROR_FORMAT);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(mkdir(path, 0700), 0);
    assert_true(calibration_load(&c, &back, NULL) != ERROR_OK);
    assert_int_equal(calibration_store(&c, NULL), ERROR_IO);
    assert_int_equal(rmdir(path), 0);
}

static void test_no_home(void **state)
{
    char folder[PATH_MAX], *cache = strdup(getenv("XDG_CACHE_HOME"));
    struct calibration c = example(), back;
    setenv("XDG_CACHE_HOME", "relative", 1);
    setenv("HOME", "/home/somebody", 1);
    assert_true(calibration_folder(folder));
    assert_string_equal(folder, "/home/somebody/.cache/moed");
    unsetenv("HOME");
    assert_false(calibration_folder(folder));
    assert_int_equal(calibration_load(&c, &back, NULL), ERROR_NOT_FOUND);
    assert_int_equal(calibration_store(&c, NULL), ERROR_NOT_FOUND);
    setenv("XDG_CACHE_HOME", cache, 1);
    free(cache);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_points_on_a_line),  cmocka_unit_test(test_best_of_all_lines),
        cmocka_unit_test(test_one_point),         cmocka_unit_test(test_text_and_back),
        cmocka_unit_test(test_corrections),       cmocka_unit_test(test_cut_short),
        cmocka_unit_test(test_altered),           cmocka_unit_test(test_stored_and_found),
        cmocka_unit_test(test_broken_or_foreign), cmocka_unit_test(test_no_home),
    };
    return cmocka_run_group_tests(tests, make_home, remove_home);
}
