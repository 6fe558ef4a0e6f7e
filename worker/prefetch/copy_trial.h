/* The trial of copies: whether prefetches and loads pay on this machine, measured while decoding.
 *
 * The cost model knows what a copy saves (sched/prefetch/candidates.h, sched/assign) and what it
 * delays (calibration/layer_costs.h). It does not know what messages, wake-ups and copies take of
 * cores that have other work. With few cores, or experts whose time is shorter than a wake-up, a
 * copy may cost more than it saves. So blocks of steps take turns: without prefetches, without any
 * copy that the worker requests, and with all copies. The fastest kind serves for a while, and then
 * a new trial begins. That time doubles as long as the result stays the same.
 *
 * A machine is not always equally fast. So a block is compared only with the block of the same
 * round that has loads but no prefetches, and the median over the rounds decides.
 *
 * Without copies the device keeps its experts, while later tokens activate other ones. So the
 * caller reports what misses cost. Once that has grown by what the steps without copies saved, a
 * new trial begins, and they must save more to win again.
 *
 * Pure: no clock. The engine's thread. */
#ifndef MOED_WORKER_PREFETCH_COPY_TRIAL_H
#define MOED_WORKER_PREFETCH_COPY_TRIAL_H

#include <stdbool.h>
#include <stdint.h>

/* The copies that the worker requests in a step, and so the kinds of steps. */
enum copy_limit {
    COPY_ALL,
    COPY_LOADS,   /* nothing is predicted nor prefetched */
    COPY_NOTHING, /* no prefetch and no load: the CPU computes what the device lacks */
    COPY_LIMITS
};

enum {
    COPY_TRIAL_WARM = 64,   /* steps before the first trial, while the device fills */
    COPY_TRIAL_BLOCK = 16,  /* steps */
    COPY_TRIAL_SETTLE = 4,  /* the first steps of a block do not count: copies of the block before
                               are still under way */
    COPY_TRIAL_ROUNDS = 4,  /* of a block of each kind */
    COPY_TRIAL_SKIPS = 7,   /* trials without COPY_NOTHING, after it was far slower */
    COPY_TRIAL_SWITCH = 64, /* steps of one other n_tokens, until these are compared */
    COPY_TRIAL_HOLD = 512,  /* steps for which a first result serves */
    COPY_TRIAL_MOST = 8192
};

/* A step that has ended. */
struct copy_trial_step {
    uint32_t n_tokens;
    double took_s;   /* 0: not known, or the engine was idle before the next step */
    double misses_s; /* of its layers: layer_plan.misses_s */
};

/* copy_trial_restart makes one. */
struct copy_trial {
    bool tries[COPY_LIMITS];
    uint32_t n_tokens;             /* of the steps that are compared; 0: none yet */
    uint32_t other_tokens, others; /* the last steps had another n_tokens: which, how many */
    uint32_t at;                   /* position in the block, or among the steps of the result */
    uint32_t hold;                 /* steps for which the result serves; 0: a trial is under way */
    uint32_t held;                 /* the last value of hold; 0: no result yet */
    uint32_t skips;                /* trials to come without COPY_NOTHING */
    enum copy_limit limit;         /* of the next step that is compared */
    enum copy_limit result;        /* of the last trial */
    uint32_t unknown;              /* steps of unknown time, in a row */
    double least_s;                /* the shortest step of the block so far */
    double block_s[COPY_TRIAL_BLOCK - COPY_TRIAL_SETTLE];
    double loads_s; /* a step's mean in this round's block of COPY_LOADS */
    struct {
        bool dropped;                    /* far slower than COPY_LOADS: no more blocks */
        uint32_t blocks;                 /* of this trial */
        double ratio[COPY_TRIAL_ROUNDS]; /* [blocks]: mean / loads_s */
    } of[COPY_LIMITS];
    /* steps without copies */
    double trial_misses_s, held_misses_s; /* means: in the trial's blocks; a moving one since */
    double saved_s;                       /* of a step, by the last trial */
    double margin; /* share by which they must be faster; below MARGIN: that */
    /* Shares of a step that prefetches, and all copies, saved when they were last tried; below 0:
     * they cost that. NAN: not tried. */
    double prefetch_saves, copies_save;
};

/* Another policy: begins anew, with prefetches if experts are predicted, and without any copy if
 * cpuexec computes experts. */
void copy_trial_restart(struct copy_trial *t, bool predicts, bool has_cpu);
/* A step of decoding has ended. */
void copy_trial_step(struct copy_trial *t, const struct copy_trial_step *step);
/* Of the next step. Prompts and steps with drafts (decodes: false) and steps of another n_tokens
 * are not compared: they follow the last result, but may always load. */
enum copy_limit copy_trial_limit(const struct copy_trial *t, uint32_t n_tokens, bool decodes);

#endif
