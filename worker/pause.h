/* When somebody who did not do in time what was asked is asked again: memd for loads, cpuexec for its part. Each would be waited
 * for its whole time in each layer, for nothing. A pause begins when one is given up. It is over after a second, and after
 * twice as long each further time in a row, up to a minute. Pure; one thread, the engine's. */
#ifndef MOED_WORKER_PAUSE_H
#define MOED_WORKER_PAUSE_H

#include <stdbool.h>
#include <stdint.h>

#define PAUSE_NS      1000000000ull
#define PAUSE_MOST_NS (64 * PAUSE_NS)

struct pause { /* zeroed: there is none */
    bool on;
    uint64_t until_ns;
    uint64_t length_ns; /* of the last one; 0: what was asked for last was done */
};

/* It was given up. */
void pause_begin(struct pause *p, uint64_t now_ns);
/* It was done. */
static inline void pause_forget(struct pause *p)
{
    p->length_ns = 0;
}
/* It is on, and over: it is not on any more. alive: there is a sign that it may be done again; without it goes on. */
bool pause_end(struct pause *p, bool alive, uint64_t now_ns);

#endif
