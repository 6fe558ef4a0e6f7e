/* The two ways to the model that bench-http compares. */
#ifndef MOED_BENCH_HTTP_WAYS_H
#define MOED_BENCH_HTTP_WAYS_H

#include "streams.h"

#include "client/include/moed.h"

/* libmoed, on one session. */
struct way way_libmoed(struct moed_session *session);
/* POST /v1/completions with `stream`, a connection each, to 127.0.0.1. `port` outlives the way. */
struct way way_http(const unsigned *port);

/* Opens a connection to 127.0.0.1; -1: said why on standard error. */
int connect_to(unsigned port);
/* Sends a request for a stream of `generate` tokens. */
bool send_request(int fd, const uint32_t *prompt, uint32_t prompt_tokens, uint32_t generate);

#endif
