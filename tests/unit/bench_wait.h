/* Waiting in tests for the effect of another thread. */
#ifndef MOED_TESTS_BENCH_WAIT_H
#define MOED_TESTS_BENCH_WAIT_H

#include "base/clock.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>
#include <cmocka.h>

static inline void bench_nap(long ns)
{
    nanosleep(&(struct timespec){.tv_nsec = ns}, NULL);
}

/* Poll until it is true; fail after ten seconds. */
#define BENCH_UNTIL(condition)                                                                     \
    do {                                                                                           \
        uint64_t bench_end = clock_ns() + 10000000000u;                                            \
        while (!(condition)) {                                                                     \
            if (clock_ns() > bench_end)                                                            \
                fail_msg("waited without success until " #condition);                              \
            bench_nap(200000);                                                                     \
        }                                                                                          \
    } while (0)

/* A number below n, by a small generator. */
static inline uint32_t bench_draw(uint32_t *seed, uint32_t n)
{
    *seed = *seed * 1664525u + 1013904223u;
    return (uint32_t)((uint64_t)*seed * n >> 32);
}

#endif
