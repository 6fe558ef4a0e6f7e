/* How long a thread spins before it sleeps; see spinner.h. */
#include "base/spinner.h"

#include "base/clock.h"

#include <sched.h>

/* Reading the clock costs more than looking. */
#define LOOKS 32
/* Waits over which reach_ns follows. */
#define FOLLOW 8

static inline void cpu_pause(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

void spinner_init(struct spinner *s, unsigned least_us)
{
    uint64_t least_ns = (uint64_t)least_us * 1000u;
    *s = (struct spinner){.least_ns = least_ns,
                          .reach_ns = least_ns,
                          .balance_ns = SPINNER_FIRST_NS,
                          .next_hold = SPINNER_HOLD};
}

uint64_t spinner_limit_ns(const struct spinner *s)
{
    return s->hold ? s->least_ns : s->reach_ns;
}

static bool look(bool (*ready)(void *arg), void *arg)
{
    for (int i = 0; i < LOOKS; i++) {
        if (ready(arg))
            return true;
        cpu_pause();
    }
    return false;
}

bool spinner_spin(struct spinner *s, bool (*ready)(void *arg), void *arg, uint64_t start_ns,
                  uint64_t end_ns)
{
    if (!s || !s->least_ns)
        return false;
    uint64_t until_ns = start_ns + spinner_limit_ns(s), now_ns = start_ns;
    if (until_ns > end_ns)
        until_ns = end_ns;
    for (;;) {
        bool found = look(ready, arg);
        if (!found)
            sched_yield(); /* whoever makes it ready may be waiting for this core */
        uint64_t before_ns = now_ns;
        now_ns = clock_ns();
        bool absent = now_ns - before_ns > SPINNER_LOST_NS;
        if (found || (absent && ready(arg))) {
            s->late_ns = absent ? now_ns - before_ns : 0;
            return true;
        }
        if (now_ns >= until_ns)
            return false;
    }
}

/* Towards twice a wait that is within reach, towards the least for a longer one. */
static void follow(struct spinner *s, uint64_t waited_ns)
{
    uint64_t most_ns = SPINNER_TIMES * s->least_ns, aim_ns = 2 * waited_ns;
    if (waited_ns > most_ns)
        aim_ns = s->least_ns;
    else if (aim_ns > most_ns)
        aim_ns = most_ns;
    s->reach_ns = (s->reach_ns * (FOLLOW - 1) + aim_ns) / FOLLOW;
    if (s->reach_ns < s->least_ns)
        s->reach_ns = s->least_ns;
}

static void balance(struct spinner *s, uint64_t waited_ns)
{
    if (waited_ns > s->reach_ns)
        s->balance_ns -= (int64_t)((s->reach_ns - s->least_ns) / SPINNER_SPENT);
    else if (waited_ns > s->least_ns)
        s->balance_ns += SPINNER_SAVED_NS;
    if (s->balance_ns > SPINNER_MOST_NS)
        s->balance_ns = SPINNER_MOST_NS;
    s->balance_ns -= (int64_t)s->late_ns;
    if (s->balance_ns < 0) {
        s->hold = s->next_hold;
        s->next_hold = s->next_hold < SPINNER_MOST_HOLD ? 2 * s->next_hold : SPINNER_MOST_HOLD;
        s->balance_ns = SPINNER_FIRST_NS;
        s->kept = 0;
    } else if (++s->kept == s->next_hold) {
        s->next_hold = s->next_hold > SPINNER_HOLD ? s->next_hold / 2 : SPINNER_HOLD;
        s->kept = 0;
    }
}

void spinner_waited(struct spinner *s, uint64_t waited_ns)
{
    if (!s || !s->least_ns)
        return;
    if (s->hold)
        s->hold--;
    else
        balance(s, waited_ns);
    s->late_ns = 0;
    if (waited_ns > s->least_ns)
        follow(s, waited_ns);
}
