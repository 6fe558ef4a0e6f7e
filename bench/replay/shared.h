/* What the runs on one trace share: the activated experts of each step, the future, and what
 * background predictors answer. All of it depends on the trace and on the batch, not on the policy,
 * the budget or the machine, so only the first run of a batch computes it. */
#ifndef MOED_REPLAY_SHARED_H
#define MOED_REPLAY_SHARED_H

#include "bench/replay/future.h"
#include "bench/replay/recording.h"
#include "bench/replay/routing.h"

struct shared;

struct shared *shared_new(void);    /* NULL: no memory */
void shared_free(struct shared *s); /* takes NULL */

/* What the results depend on. The trace and the predictors are borrowed. */
struct shared_key {
    const struct trace *trace;
    const struct trained_predictors *predictors;
    struct steps_options steps;
    uint32_t predict_tokens;
};

/* Call it before a run. Keeps everything if the key is the last one's; otherwise begins anew.
 * False: no memory. */
bool shared_use(struct shared *s, const struct shared_key *key);

const struct routing *shared_routing(const struct shared *s);
/* What this predictor's background half answers. */
struct recording *shared_recording(struct shared *s, enum sched_predictor predictor);
/* The future, rewound. NULL: no memory. */
struct future *shared_future(struct shared *s);
/* As future_least_misses. Rewinds the future. False: no memory. */
bool shared_least_misses(struct shared *s, uint64_t capacity, uint64_t *misses);

#endif
