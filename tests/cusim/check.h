/* Tests of cusim. Each test runs in a process of its own, because a lost device stays lost. Except
 * for test_rules and tests named ..._cusim they should also pass on a real device (nvcc compiles
 * them). */
#ifndef CUSIM_CHECK_H
#define CUSIM_CHECK_H

#include <cuda_runtime.h>

#include <stdio.h>
#include <stdlib.h>

struct test {
    const char *name;
    void (*run)();
};
/* Runs all tests, or those that argv names; returns the exit code of the program. */
int run_tests(const struct test *tests, size_t n, int argc, char **argv);

/* Returns what f() in another process wrote to standard error; *status as of waitpid. */
struct outcome {
    int status;
    char text[4096];
};
struct outcome run_elsewhere(void (*f)());

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition);                \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

#define CHECK_ERROR(call, expected)                                                                \
    do {                                                                                           \
        cudaError_t got_ = (call);                                                                 \
        if (got_ != (expected)) {                                                                  \
            fprintf(stderr, "%s:%d: %s: %s (%d) instead of %s\n", __FILE__, __LINE__, #call,       \
                    cudaGetErrorName(got_), (int)got_, cudaGetErrorName(expected));                \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)
#define OK(call) CHECK_ERROR(call, cudaSuccess)

#define CHECK_EQUAL(a, b)                                                                          \
    do {                                                                                           \
        double a_ = (double)(a), b_ = (double)(b);                                                 \
        if (a_ != b_) {                                                                            \
            fprintf(stderr, "%s:%d: %s is %.9g, and %s %.9g\n", __FILE__, __LINE__, #a, a_, #b,    \
                    b_);                                                                           \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

#endif
