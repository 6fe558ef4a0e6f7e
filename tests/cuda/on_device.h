/* A CUDA device for tests of its operations: the module that MOED_CUDA_MODULE names, on cusim or on
 * a GPU. */
#ifndef MOED_TESTS_CUDA_ON_DEVICE_H
#define MOED_TESTS_CUDA_ON_DEVICE_H

#include "device/module.h"
#include "kernels/kernels.h"

#include <fnmatch.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct device_module *module;
static struct device *device;
static struct device_stream *stream;

/* The allocations since the last release_all. */
static void *device_memory[256];
static unsigned n_device_memory;

static inline void check_code(enum error_code code, const struct error *e)
{
    if (code)
        fail_msg("%s", e->text);
}

/* Exits with 77 if there is no module or no device. */
static inline void open_device(void)
{
    struct error e;

    if (device_module_load("cuda", &module, &e) || module->open(0, DEVICE_COMPUTES, &device, &e)) {
        fprintf(stderr, "skipped: %s\n", e.text);
        exit(77);
    }
    check_code(module->stream_new(device, &stream, &e), &e);
}

static inline void close_device(void)
{
    module->stream_free(stream);
    module->close(device);
}

/* Setup and teardown of the test groups. The tests compare with the portable kernels. */
static const struct kernels *portable __attribute__((unused));

static inline int open_all(void **state)
{
    (void)state;
    assert_true(kernels_select("portable"));
    portable = kernels_get();
    open_device();
    return 0;
}

static inline int close_all(void **state)
{
    (void)state;
    close_device();
    return 0;
}

/* Whether one of the patterns (of the shell, with spaces between them) matches. */
static inline bool matches(const char *patterns, const char *name)
{
    char *copy = strdup(patterns), *rest = copy;
    bool found = false;

    assert_non_null(copy);
    for (char *p; (p = strsep(&rest, " "));)
        found = found || fnmatch(p, name, 0) == 0;
    free(copy);
    return found;
}

/* Runs the tests, or those that the patterns in MOED_TEST_CASES name; returns the exit code of the
 * program. At the end it resets the device, where compute-sanitizer and cusim find memory that was
 * not freed. Not after a failure: a test that fails frees nothing. */
#define run_group(name, tests, open)                                                               \
    run_group_of(name, tests, sizeof(tests) / sizeof *(tests), open)
static inline int run_group_of(const char *name, const struct CMUnitTest *tests, size_t n,
                               int (*open)(void **state))
{
    const char *patterns = getenv("MOED_TEST_CASES");
    struct CMUnitTest *chosen = calloc(n, sizeof *chosen);
    size_t n_chosen = 0;

    for (size_t i = 0; chosen && i < n; i++)
        if (!patterns || matches(patterns, tests[i].name))
            chosen[n_chosen++] = tests[i];
    if (n_chosen == 0) {
        fprintf(stderr, "FAILED: %s has no test of MOED_TEST_CASES='%s'\n", name,
                patterns ? patterns : "");
        free(chosen);
        return 1;
    }
    int failed = _cmocka_run_group_tests(name, chosen, n_chosen, open, close_all);
    if (!failed)
        module->reset(0);
    free(chosen);
    return failed;
}

static inline void finish(void)
{
    struct error e;
    check_code(module->finish(stream, &e), &e);
}

static inline void *on_device(size_t bytes)
{
    struct error e;
    void *memory;

    assert_true(n_device_memory < sizeof device_memory / sizeof *device_memory);
    check_code(module->allocate(device, bytes ? bytes : 1, &memory, &e), &e);
    device_memory[n_device_memory++] = memory;
    return memory;
}

static inline void *to_device(const void *from, size_t bytes)
{
    void *memory = on_device(bytes);

    module->upload(stream, memory, from, bytes);
    finish();
    return memory;
}

static inline void from_device(void *to, const void *from, size_t bytes)
{
    module->download(stream, to, from, bytes);
    finish();
}

static inline void release_all(void)
{
    finish();
    while (n_device_memory > 0)
        module->release(device, device_memory[--n_device_memory]);
}

static inline bool same_float(float a, float b)
{
    return memcmp(&a, &b, sizeof a) == 0 || (isnan(a) && isnan(b));
}

/* The same bits, except for a NaN's sign and payload. */
static inline void assert_same_floats(const float *a, const float *b, size_t n, const char *what)
{
    for (size_t i = 0; i < n; i++)
        if (!same_float(a[i], b[i]))
            fail_msg("%s: element %zu is %a, expected %a", what, i, a[i], b[i]);
}

#endif
