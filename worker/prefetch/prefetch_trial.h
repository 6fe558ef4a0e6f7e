/* The trial of prefetching: whether it pays on this machine, measured while serving.
 *
 * The cost model knows what a copy saves (sched/prefetch/candidates.h) and what it delays
 * (calibration/layer_costs.h). It does not know what messages, wake-ups and copies take of cores
 * that have other work. With few cores, or experts whose time is shorter than a wake-up,
 * prefetching may cost more than it saves. So blocks of steps with and without prefetch alternate,
 * the faster kind serves for a while, and then a new trial begins. That time doubles as long as the
 * result stays the same.
 *
 * Pure: no clock. The engine's thread. */
#ifndef MOED_WORKER_PREFETCH_PREFETCH_TRIAL_H
#define MOED_WORKER_PREFETCH_PREFETCH_TRIAL_H

#include <stdbool.h>
#include <stdint.h>

enum {
    PREFETCH_TRIAL_BLOCK = 16, /* steps */
    PREFETCH_TRIAL_SETTLE = 4, /* the first steps of a block do not count: copies of the block
                                  before are still under way */
    PREFETCH_TRIAL_BLOCKS = 8, /* with, without, with, without ... */
    PREFETCH_TRIAL_HOLD = 512, /* steps for which a first result serves */
    PREFETCH_TRIAL_MOST = 8192
};

struct prefetch_trial {
    uint32_t n_tokens; /* of the steps that are compared */
    uint32_t others;   /* steps with another number since the last of them */
    uint32_t at;       /* position in the trial, or among the steps of its result */
    uint32_t hold;     /* steps for which the result serves; 0: a trial is under way */
    uint32_t held;     /* the last value of hold; 0: no result yet */
    double took_s[PREFETCH_TRIAL_BLOCKS][PREFETCH_TRIAL_BLOCK - PREFETCH_TRIAL_SETTLE];
    bool without; /* the result */
    double gain;  /* of the last trial: the share of a step without prefetch that prefetching saved;
                     below 0: it cost that. 0: not known */
};

/* A step of n_tokens has ended, and took took_s (0: not known, or the engine was idle between).
 * Returns whether the next step prefetches. A zeroed t begins with a trial. */
bool prefetch_trial_step(struct prefetch_trial *t, uint32_t n_tokens, double took_s);
/* Whether the next step prefetches, after a step that does not count. */
bool prefetch_trial_is_with(const struct prefetch_trial *t);
/* The policy has changed: a new trial begins. */
void prefetch_trial_restart(struct prefetch_trial *t);

#endif
