/* Several requests at once against a deployment, timed. */
#ifndef MOED_BENCH_STREAMS_H
#define MOED_BENCH_STREAMS_H

#include "client/include/moed.h"

#include <signal.h>
#include <stdint.h>

#define MAX_STREAMS 256

struct streams_plan {
    uint32_t streams, prompt_tokens, generate;
    uint32_t vocab;
    uint64_t seed;                         /* of the prompts' tokens */
    const volatile sig_atomic_t *stopping; /* not 0: cancel, and return MOED_ERROR_CANCELLED */
};

struct streams_speed {
    double prefill_tokens_per_s; /* 0 with several streams, whose prefills and decodes alternate */
    double decode_tokens_per_s;  /* of all streams together, while all of them decode */
};

/* Submits the plan's requests (prompts of random ids) and reads them to their ends.
 * MOED_ERROR_LIMIT: the streams did not decode at the same time, because the deployment computes
 * fewer requests at once. */
enum moed_code streams_run(struct moed_session *session, const struct streams_plan *plan,
                           struct streams_speed *out, struct moed_error *error);

#endif
