/* Waiting for several doorbells; see cache_wait.h.
 *
 * The protocol is the one in lib/ipc/doorbell.c, without its second look. The thread reads each
 * doorbell's count before it looks for work (C1, cache_wait_watch), announces its sleep on each
 * (C3), and sleeps only if every count is still the same (C5, C6). tests/model/doorbell.pml checks
 * that this is enough (NO_SECOND_LOOK).
 *
 * futex_waitv (Linux 5.16) waits for several futexes. With an older kernel, or in a container that
 * forbids the call, the thread polls the counts: every 0.1 ms at first, later every 1 ms.
 */
#include "cache_wait.h"

#include "base/clock.h"

#include <assert.h>
#include <errno.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef SYS_futex_waitv /* older headers lack it; the number is the same but on alpha */
#define SYS_futex_waitv 449
#endif

#define SLEEP_MAX_NS    1000000000u
#define POLL_NS         100000u
#define POLL_IDLE_NS    1000000u
#define POLL_IDLE_AFTER 20000000u
/* FUTEX2_SIZE_U32; not private: processes share the words. */
#define FUTEX_32_BITS 2u

/* struct futex_waitv of linux/futex.h, which older headers lack. */
struct waiter {
    uint64_t value, address;
    uint32_t flags, reserved;
};
_Static_assert(sizeof(struct waiter) == 24, "the kernel's layout");

void cache_wait_begin(struct cache_wait *w)
{
    w->n = 0;
}

void cache_wait_watch(struct cache_wait *w, struct doorbell *d)
{
    assert(w->n < CACHE_WAIT_DOORBELLS);
    w->doorbells[w->n] = d;
    w->seen[w->n] = atomic_load_explicit(&d->count, memory_order_acquire); /* C1 */
    w->n++;
}

static bool rung(const struct cache_wait *w)
{
    for (uint32_t i = 0; i < w->n; i++)
        if (atomic_load(&w->doorbells[i]->count) != w->seen[i])
            return true;
    return false;
}

static void announce(const struct cache_wait *w, uint32_t sleeping)
{
    for (uint32_t i = 0; i < w->n; i++)
        atomic_store(&w->doorbells[i]->sleeping, sleeping);
}

static struct timespec time_of(uint64_t ns)
{
    return (struct timespec){.tv_sec = (time_t)(ns / 1000000000u),
                             .tv_nsec = (long)(ns % 1000000000u)};
}

static void poll_until(const struct cache_wait *w, uint64_t start, uint64_t end)
{
    for (uint64_t now = start; now < end && !rung(w); now = clock_ns()) {
        uint64_t interval = now - start < POLL_IDLE_AFTER ? POLL_NS : POLL_IDLE_NS;
        struct timespec t = time_of(interval < end - now ? interval : end - now);
        nanosleep(&t, NULL);
    }
}

void cache_wait_sleep(struct cache_wait *w, uint64_t timeout_ns)
{
    /* The limit: a peer that overwrites `sleeping` must not cost this thread its wake-ups for ever.
     */
    uint64_t start = clock_ns();
    uint64_t end = start + (timeout_ns < SLEEP_MAX_NS ? timeout_ns : SLEEP_MAX_NS);
    if (!w->polling) {
        struct waiter waiters[CACHE_WAIT_DOORBELLS];
        for (uint32_t i = 0; i < w->n; i++)
            waiters[i] =
                (struct waiter){w->seen[i], (uintptr_t)&w->doorbells[i]->count, FUTEX_32_BITS, 0};
        announce(w, 1); /* C3 */
        if (!rung(w)) { /* C5 */
            struct timespec t = time_of(end);
            long r = syscall(SYS_futex_waitv, waiters, w->n, 0, &t, CLOCK_MONOTONIC); /* C6 */
            w->polling = r < 0 && (errno == ENOSYS || errno == EPERM || errno == EINVAL);
        }
        announce(w, 0);
    }
    if (w->polling)
        poll_until(w, start, end);
}
