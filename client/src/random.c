/* libmoed: random numbers; see random.h. */
#include "client/src/random.h"

#include "base/clock.h"

#include <sys/random.h>
#include <unistd.h>

uint64_t random_number(void)
{
    uint64_t n;
    if (getrandom(&n, sizeof n, GRND_NONBLOCK) != sizeof n)
        n = clock_ns() ^ (uint64_t)getpid() << 40;
    return n;
}
