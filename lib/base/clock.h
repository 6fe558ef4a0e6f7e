/* Monotonic time, one clock for all processes of a boot, and a thread's own CPU time. */
#ifndef MOED_BASE_CLOCK_H
#define MOED_BASE_CLOCK_H

#include <limits.h>
#include <stdint.h>
#include <time.h>

static inline uint64_t clock_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* When a wait of timeout_ms that begins now ends; a negative one ends at once. */
static inline uint64_t clock_end_ns(int timeout_ms)
{
    return clock_ns() + (uint64_t)(timeout_ms > 0 ? timeout_ms : 0) * 1000000u;
}

/* Milliseconds until end_ns, rounded up; 0 once it is over. As poll takes them. */
static inline int clock_ms_until(uint64_t end_ns)
{
    uint64_t now = clock_ns();
    uint64_t ms = now < end_ns ? (end_ns - now + 999999u) / 1000000u : 0;
    return ms > INT_MAX ? INT_MAX : (int)ms;
}

/* CPU time of the calling thread: excludes waiting, and time in which other threads have its core.
 * A system call. */
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
