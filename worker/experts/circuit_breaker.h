/* A circuit breaker: when the engine again uses a peer that did not do its work in time (memd for
 * loads, cpuexec for jobs). Otherwise every layer would wait for the peer's whole timeout. A
 * failure opens the breaker for a second, and each further failure in a row for twice as long, up
 * to a minute. Pure; the engine's thread. */
#ifndef MOED_WORKER_EXPERTS_CIRCUIT_BREAKER_H
#define MOED_WORKER_EXPERTS_CIRCUIT_BREAKER_H

#include <stdbool.h>
#include <stdint.h>

#define CIRCUIT_OPEN_NS      1000000000ull
#define CIRCUIT_OPEN_MOST_NS (64 * CIRCUIT_OPEN_NS)

struct circuit_breaker { /* zeroed: closed */
    bool on;             /* open */
    uint64_t until_ns;
    uint64_t length_ns; /* of the last opening; 0: the last request succeeded */
};

/* A request failed. */
void circuit_breaker_open(struct circuit_breaker *p, uint64_t now_ns);
/* A request succeeded. */
static inline void circuit_breaker_reset(struct circuit_breaker *p)
{
    p->length_ns = 0;
}
/* Closes an open breaker whose time is over, if the peer shows a sign of life. Returns whether it
 * closed it. */
bool circuit_breaker_try_close(struct circuit_breaker *p, bool alive, uint64_t now_ns);

#endif
