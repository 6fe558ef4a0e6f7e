/* A circuit breaker; see circuit_breaker.h. */
#include "circuit_breaker.h"

void circuit_breaker_open(struct circuit_breaker *p, uint64_t now_ns)
{
    uint64_t length_ns = p->length_ns ? 2 * p->length_ns : CIRCUIT_OPEN_NS;
    p->length_ns = length_ns < CIRCUIT_OPEN_MOST_NS ? length_ns : CIRCUIT_OPEN_MOST_NS;
    p->on = true;
    p->until_ns = now_ns + p->length_ns;
}

bool circuit_breaker_try_close(struct circuit_breaker *p, bool alive, uint64_t now_ns)
{
    if (!p->on || !alive || now_ns < p->until_ns)
        return false;
    p->on = false;
    return true;
}
