/* Several requests at once against a deployment, timed. */
#ifndef MOED_BENCH_STREAMS_H
#define MOED_BENCH_STREAMS_H

#include "client/include/moed.h"

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

#define MAX_STREAMS 256

struct streams_plan {
    uint32_t streams, prompt_tokens, generate;
    uint32_t vocab, context;               /* of the deployment */
    uint64_t seed;                         /* of the prompts' tokens; others for each measurement */
    const volatile sig_atomic_t *stopping; /* not 0: cancel, and return MOED_ERROR_CANCELLED */
};

struct streams_speed {
    double prefill_tokens_per_s; /* without cached tokens; 0 with several streams, whose prefills
                                    and decodes alternate */
    double decode_tokens_per_s;  /* of all streams together, while all of them decode */
    bool drafts_accepted;        /* a step of a single stream may have given several tokens */
};

/* The most tokens that an answer may get. While the prompts of several streams are computed, the
 * first ones generate already. */
uint32_t streams_most_tokens(uint32_t streams, uint32_t prompt_tokens, uint32_t generate);

/* Submits the plan's requests (prompts of random ids). Reads a single one to its end, and several
 * until the last one has its tokens; then cancels them. MOED_ERROR_LIMIT: the deployment computes
 * fewer requests at once, or its context is too small. */
enum moed_code streams_run(struct moed_session *session, const struct streams_plan *plan,
                           struct streams_speed *out, struct moed_error *error);

#endif
