/* Tokens generated a second, over at most TOKEN_RATE_SECONDS before now: from the first token in
 * that time. So a lone answer's rate is right soon after its first token. After the last answer the
 * rate falls to 0 within that time.
 *
 * Threads: one adds, any read. Pure. */
#ifndef MOED_WORKER_SERVE_TOKEN_RATE_H
#define MOED_WORKER_SERVE_TOKEN_RATE_H

#include <stdint.h>

enum { TOKEN_RATE_SECONDS = 10 };

struct token_rate {
    struct token_rate_second {
        _Atomic uint64_t second; /* of the clock */
        _Atomic uint64_t first_ns, tokens;
    } seconds[TOKEN_RATE_SECONDS + 1]; /* the present one is not whole */
};

/* now_ns: of the monotonic clock, at least a second. All 0: no tokens. */
void token_rate_add(struct token_rate *r, uint64_t now_ns);
double token_rate_read(struct token_rate *r, uint64_t now_ns);

#endif
