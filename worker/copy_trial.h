/* Whether it pays on this machine to predict and to copy ahead, found out while serving. What a copy saves is reckoned with (sched/guesses.h),
 * and what it holds up is learnt of layers (calibration/layer_costs.h), but not what telling, waking up and copying take of cores that have
 * something else to do: with few of them, or experts that take less than a wake-up, all of it may cost more than it saves. So steps with and
 * without take turns in blocks, the quicker kind serves, and after a while, each time twice as long while the answer stays the same, they
 * take turns again.
 *
 * Pure: no clock. One thread, the engine's. */
#ifndef MOED_WORKER_COPY_TRIAL_H
#define MOED_WORKER_COPY_TRIAL_H

#include <stdbool.h>
#include <stdint.h>

enum {
    COPY_TRIAL_BLOCK = 16, /* steps; of the first few of a block the time says little: what was under way is still that of the last one */
    COPY_TRIAL_SETTLE = 4,
    COPY_TRIAL_BLOCKS = 8,  /* with, without, with, without ... */
    COPY_TRIAL_HOLD = 512, /* steps that a first answer holds */
    COPY_TRIAL_MOST = 8192
};

struct copy_trial {
    uint32_t n_tokens; /* of the steps that are compared */
    uint32_t others;   /* steps of other numbers since the last of those */
    uint32_t at;       /* of the trial's steps, or of those that the answer holds */
    uint32_t hold;     /* 0: under trial */
    uint32_t held;     /* that it held for last; 0: no answer yet */
    double took_s[COPY_TRIAL_BLOCKS][COPY_TRIAL_BLOCK - COPY_TRIAL_SETTLE];
    bool without;   /* the answer */
    double gain; /* what copying ahead saved of a step in the last trial, as a share of one without; less than 0: it cost that. 0: not known */
};

/* Zeroed t: a trial begins. A step of n_tokens is over, which took took_s (0: not known, or it was not one after another). Returns whether
 * the next one predicts and copies ahead. */
bool copy_trial_step(struct copy_trial *t, uint32_t n_tokens, double took_s);
/* Under another policy: a trial begins. */
void copy_trial_restart(struct copy_trial *t);

#endif
