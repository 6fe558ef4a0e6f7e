/* Monotonic time: one clock for all processes of a boot; and a thread's own. */
#ifndef MOED_BASE_CLOCK_H
#define MOED_BASE_CLOCK_H

#include <stdint.h>
#include <time.h>

static inline uint64_t clock_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* What the calling thread has computed: not while it waits, nor while others have its core. A system call. */
static inline uint64_t clock_thread_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static inline double clock_s(void)
{
    return (double)clock_ns() * 1e-9;
}

#endif
