/* The search for cuBLAS (lib/device/cuda/blas_paths.h): what MOED_CUBLAS names, the loader's names,
 * and the folders of Python's packages. */
#include "device/cuda/blas_paths.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char folder[] = "/tmp/moed-test-blas-XXXXXX";
static char seen[4096]; /* the candidates, each on a line */

static bool note(const char *path, void *arg)
{
    const char *wanted = arg;
    snprintf(seen + strlen(seen), sizeof seen - strlen(seen), "%s\n", path);
    return wanted && strcmp(path, wanted) == 0;
}

static const char *in_folder(const char *below)
{
    static char path[512];
    snprintf(path, sizeof path, "%s/%s", folder, below);
    return path;
}

static bool search(const char *wanted)
{
    seen[0] = '\0';
    return blas_paths_try(note, (void *)(uintptr_t)wanted);
}

/* A folder with the two libraries of a wheel, and a user's packages with an older one. */
static int make_folder(void **state)
{
    char command[2048];
    (void)state;
    assert_non_null(mkdtemp(folder));
    snprintf(
        command, sizeof command,
        "cd %s && mkdir -p wheel/lib home/.local/lib/python3.11/site-packages/nvidia/cublas/lib "
        "&& touch wheel/lib/libcublas.so.12 wheel/lib/libcublas.so.13 wheel/lib/libcublasLt.so.13 "
        "home/.local/lib/python3.11/site-packages/nvidia/cublas/lib/libcublas.so.12 "
        "&& mkdir -p other/.venv/lib/python3.12/site-packages/nvidia/cu13/lib "
        "&& touch other/.venv/lib/python3.12/site-packages/nvidia/cu13/lib/libcublas.so.13",
        folder);
    return system(command);
}

static int remove_folder(void **state)
{
    char command[128];
    (void)state;
    snprintf(command, sizeof command, "rm -r %s", folder);
    return system(command);
}

static void test_given(void **state)
{
    char expected[1200];
    (void)state;
    setenv("MOED_CUBLAS", "/none/libcublas.so.12", 1);
    assert_false(search(NULL));
    assert_string_equal(seen, "/none/libcublas.so.12\n"); /* nothing else: the user named it */
    setenv("MOED_CUBLAS", in_folder("wheel"), 1);
    assert_false(search(NULL));
    snprintf(expected, sizeof expected,
             "%s/wheel/lib/libcublas.so.13\n%s/wheel/lib/libcublas.so.12\n", folder, folder);
    assert_string_equal(seen, expected);
    setenv("MOED_CUBLAS", in_folder("wheel/lib"), 1);
    assert_true(search(in_folder("wheel/lib/libcublas.so.13")));
    assert_null(strstr(seen, ".so.12")); /* the search ends with the first that is taken */
}

static void test_packages(void **state)
{
    (void)state;
    setenv("MOED_CUBLAS", "", 1); /* as if it were not set */
    setenv("HOME", in_folder("home"), 1);
    assert_true(search(in_folder("home/.local/lib/python3.11/site-packages/nvidia/cublas/lib/"
                                 "libcublas.so.12")));
    assert_memory_equal(seen, "libcublas.so.13\nlibcublas.so.12\nlibcublas.so.11\n", 48);
    setenv("HOME", in_folder("other"), 1); /* a virtual environment that is not active */
    assert_true(search(in_folder("other/.venv/lib/python3.12/site-packages/nvidia/cu13/lib/"
                                 "libcublas.so.13")));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_given),
                                       cmocka_unit_test(test_packages)};
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
