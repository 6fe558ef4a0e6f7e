/* The tokens of the last seconds; see token_rate.h. */
#include "token_rate.h"

#include <stdatomic.h>

#define SECOND_NS 1000000000u
#define LEAST_NS  250000000u /* a step's tokens come at once, with drafts several of an answer */

void token_rate_add(struct token_rate *r, uint64_t now_ns)
{
    uint64_t second = now_ns / SECOND_NS;
    struct token_rate_second *s = &r->seconds[second % (TOKEN_RATE_SECONDS + 1)];
    if (atomic_load(&s->second) != second) {
        atomic_store(&s->tokens, 0);
        atomic_store(&s->first_ns, now_ns);
        atomic_store(&s->second, second);
    }
    atomic_fetch_add(&s->tokens, 1);
}

double token_rate_read(struct token_rate *r, uint64_t now_ns)
{
    uint64_t second = now_ns / SECOND_NS, sum = 0, first_ns = now_ns;
    for (uint64_t back = 0; back <= TOKEN_RATE_SECONDS && back < second; back++) {
        struct token_rate_second *s = &r->seconds[(second - back) % (TOKEN_RATE_SECONDS + 1)];
        if (atomic_load(&s->second) != second - back)
            continue;
        uint64_t from_ns = atomic_load(&s->first_ns);
        first_ns = from_ns < first_ns ? from_ns : first_ns;
        sum += atomic_load(&s->tokens);
    }
    uint64_t elapsed_ns = now_ns - first_ns < LEAST_NS ? LEAST_NS : now_ns - first_ns;
    return sum ? (double)(sum - 1) * SECOND_NS / (double)elapsed_ns : 0;
}
