/* How long a thread spins before it sleeps.
 *
 * To wake a thread takes 5 to 50 us, and its next work often comes only a little later than a short
 * spin. So a spinner follows the waits that were longer than its least: it spins for twice their
 * mean, where those beyond reach count as the least.
 *
 * A spinning thread gives way. If another thread has its core when the work comes, spinning may
 * cost more than a sleep, from which the work wakes it. And spins that do not reach the work take
 * time from others. Once both exceed what spinning has saved, the next waits spin for the least
 * only.
 *
 * One thread at a time. */
#ifndef MOED_BASE_SPINNER_H
#define MOED_BASE_SPINNER_H

#include <stdbool.h>
#include <stdint.h>

enum {
    SPINNER_TIMES = 25,         /* the most is so many times the least */
    SPINNER_SAVED_NS = 10000,   /* by a wait that ends between the least and the limit */
    SPINNER_LOST_NS = 50000,    /* a shorter absence from the core does not count */
    SPINNER_SPENT = 4,          /* a spin that does not reach the work costs 1 / 4 of its time */
    SPINNER_FIRST_NS = 300000,  /* what losses may exceed savings by at first, and */
    SPINNER_MOST_NS = 1000000,  /* at most */
    SPINNER_HOLD = 64,          /* waits that spin for the least after that; */
    SPINNER_MOST_HOLD = 1 << 13 /* doubles from one time to the next */
};

struct spinner {
    uint64_t least_ns;  /* 0: never spins */
    uint64_t reach_ns;  /* how long it spins, unless hold */
    int64_t balance_ns; /* savings - losses */
    uint64_t late_ns;   /* in this wait: the work came during an absence that was so long */
    uint32_t hold;      /* waits to come that spin for the least */
    uint32_t next_hold;
    uint32_t kept; /* waits without hold since */
};

void spinner_init(struct spinner *s, unsigned least_us);
/* Of the next wait. */
uint64_t spinner_limit_ns(const struct spinner *s);
/* Spins until ready(arg), for spinner_limit_ns or until end_ns. Returns ready's last answer; false
 * at once where s is NULL or never spins. */
bool spinner_spin(struct spinner *s, bool (*ready)(void *arg), void *arg, uint64_t start_ns,
                  uint64_t end_ns);
/* The wait has ended, spun or slept. Takes NULL. */
void spinner_waited(struct spinner *s, uint64_t waited_ns);

#endif
