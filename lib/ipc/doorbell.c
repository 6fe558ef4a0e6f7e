/* The doorbell's sleep and wake-up, with a futex shared between processes.
 *
 * Why no wake-up is lost: the producer, having published its work, does
 *     P1  count += 1      (sequentially consistent)
 *     P2  read sleeping   (sequentially consistent), wake if it is set
 * and the consumer does
 *     C1  seen = count          (acquire)
 *     C2  look for work         (acquire, by ready)
 *     C3  sleeping = 1          (sequentially consistent)
 *     C4  look for work again
 *     C5  read count, go on only if it is still seen (sequentially consistent)
 *     C6  FUTEX_WAIT(count, seen): the kernel compares again, atomically with queueing
 * P1, P2, C3 and C5 have one total order. Either C3 comes before P2, and then the producer sees the
 * sleeper and wakes it (if it is not queued yet, C6 finds count changed and returns at once); or
 * P2, and so P1, comes before C3, and C5 finds count changed. P1 is also a release and pairs with
 * the acquire of C1 and C5: a consumer that sees the new count sees the work published before it.
 * C4 saves the system call where work came between C2 and C3.
 *
 * sleeping lies in memory that the peer can write. A peer that overwrites it must not cost the
 * consumer its wake-ups for ever, so one sleep lasts at most SLEEP_MAX_NS. */
#include "ipc/doorbell.h"

#include "base/clock.h"

#include <linux/futex.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define SLEEP_MAX_NS 1000000000u

_Static_assert(offsetof(struct doorbell, sleeping) == 4, "shared layout");
_Static_assert(sizeof(_Atomic uint32_t) == 4, "the futex word is the atomic");

static void futex_wait(_Atomic uint32_t *word, uint32_t seen, uint64_t limit_ns)
{
    struct timespec t = {.tv_sec = (time_t)(limit_ns / 1000000000u),
                         .tv_nsec = (long)(limit_ns % 1000000000u)};
    /* After every return (woken, changed, timed out, signal) the caller looks again. */
    syscall(SYS_futex, (uint32_t *)word, FUTEX_WAIT, seen, &t, NULL, 0);
}

void doorbell_ring(struct doorbell *d)
{
    atomic_fetch_add_explicit(&d->count, 1, memory_order_seq_cst);     /* P1 */
    if (atomic_load_explicit(&d->sleeping, memory_order_seq_cst) != 0) /* P2 */
        syscall(SYS_futex, (uint32_t *)&d->count, FUTEX_WAKE, 1, NULL, NULL, 0);
}

/* C1 to C6, once. */
static bool sleep_once(struct doorbell *d, bool (*ready)(void *arg), void *arg, uint64_t limit_ns)
{
    uint32_t seen = atomic_load_explicit(&d->count, memory_order_acquire); /* C1 */
    if (ready(arg))                                                        /* C2 */
        return true;
    atomic_store_explicit(&d->sleeping, 1, memory_order_seq_cst);                /* C3 */
    bool found = ready(arg);                                                     /* C4 */
    if (!found && atomic_load_explicit(&d->count, memory_order_seq_cst) == seen) /* C5 */
        futex_wait(&d->count, seen, limit_ns);                                   /* C6 */
    atomic_store_explicit(&d->sleeping, 0, memory_order_relaxed);
    return found;
}

static bool sleep_until(struct doorbell *d, bool (*ready)(void *arg), void *arg, uint64_t end_ns)
{
    for (;;) {
        uint64_t now = clock_ns();
        if (now >= end_ns)
            return ready(arg);
        uint64_t left = end_ns - now;
        if (sleep_once(d, ready, arg, left < SLEEP_MAX_NS ? left : SLEEP_MAX_NS))
            return true;
    }
}

bool doorbell_wait(struct doorbell *d, bool (*ready)(void *arg), void *arg, struct spinner *spinner,
                   int timeout_ms)
{
    if (ready(arg))
        return true;
    if (timeout_ms == 0)
        return false;
    uint64_t start = clock_ns();
    uint64_t end = timeout_ms < 0 ? UINT64_MAX : start + (uint64_t)timeout_ms * 1000000u;
    bool found = spinner_spin(spinner, ready, arg, start, end) || sleep_until(d, ready, arg, end);
    if (spinner)
        spinner_waited(spinner, clock_ns() - start);
    return found;
}
