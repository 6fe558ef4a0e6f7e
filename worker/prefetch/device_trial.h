/* The trial of the device: whether prefetches and loads pay on this machine, and the device itself,
 * measured while decoding.
 *
 * The cost model knows what a copy saves (sched/prefetch/candidates.h, sched/assign) and what it
 * delays (calibration/layer_costs.h). It does not know what messages, wake-ups and copies take of
 * cores that have other work, nor what a layer of both sides costs beyond its parts. With few
 * cores, a weak device or experts whose time is shorter than a wake-up, either may cost more than
 * it saves. So blocks of steps take turns: without prefetches, without any copy that the worker
 * requests (memd goes on to exchange experts, which a block is too short to judge), without the
 * device's experts, and with all copies. The fastest kind serves for a while, and then a new trial
 * begins. That time doubles as long as the result stays the same.
 *
 * A machine is not always equally fast. So a block is compared only with the block of the same
 * round that has loads but no prefetches, and the median over the rounds decides.
 *
 * Without copies the device keeps its experts, but for exchanges, while later tokens activate other
 * ones. So the caller reports what misses cost. Once that has grown by what the steps without
 * copies saved, steps load again, a new trial follows, and they must save more to win again.
 *
 * A predictor that has seen nothing for a while predicts badly, and its copies would be judged by
 * that. So it sees the steps before each trial, whatever the trial's cause, and some other steps,
 * without copies (device_trial_shows).
 *
 * On most machines the CPU alone is far slower. So the caller also reports what it should have
 * taken, and it is tried only where that is near.
 *
 * Pure: no clock. The engine's thread. */
#ifndef MOED_WORKER_PREFETCH_DEVICE_TRIAL_H
#define MOED_WORKER_PREFETCH_DEVICE_TRIAL_H

#include <stdbool.h>
#include <stdint.h>

/* What a step uses the device for, and so the kinds of steps; each also does what follows it. */
enum device_use {
    DEVICE_PREFETCHES, /* copies of predicted experts */
    DEVICE_LOADS,      /* copies of activated experts; no prediction is copied */
    DEVICE_KEEPS,      /* the worker requests no copy: the CPU computes what the device lacks */
    DEVICE_UNUSED,     /* the CPU computes all routed experts */
    DEVICE_USES
};

enum {
    DEVICE_TRIAL_WARM = 64,    /* steps before the first trial, while the device fills; and before a
                                  later one, in which the predictor sees all layers again */
    DEVICE_TRIAL_SHOWN = 8,    /* of the other steps without prefetches it sees one in so many, */
    DEVICE_TRIAL_SHOWN_AT = 4, /* by the number of the step */
    DEVICE_TRIAL_BLOCK = 16,   /* steps */
    DEVICE_TRIAL_SETTLE = 4, /* the first steps of a block do not count: copies of the block before
                                are still under way */
    DEVICE_TRIAL_ROUNDS = 4, /* of a block of each kind */
    DEVICE_TRIAL_SKIPS = 7,  /* trials without a kind that has no copies, after it was far slower */
    DEVICE_TRIAL_SWITCH = 64, /* steps of one other n_tokens, until these are compared */
    DEVICE_TRIAL_HOLD = 512,  /* steps for which a first result serves */
    DEVICE_TRIAL_MOST = 8192
};

/* A step that has ended. */
struct device_trial_step {
    uint32_t n_tokens;
    double took_s;     /* 0: not known, or the engine was idle before the next step */
    double misses_s;   /* of its layers: layer_plan.misses_s */
    double cpu_only_s; /* what it should have taken without the device's experts; 0: not known */
};

/* device_trial_restart makes one. */
struct device_trial {
    bool tries[DEVICE_USES];
    uint32_t n_tokens;             /* of the steps that are compared; 0: none yet */
    uint32_t other_tokens, others; /* the last steps had another n_tokens: which, how many */
    uint32_t at;                   /* position in the block, or among the steps of the result */
    uint32_t hold;                 /* steps for which the result serves; 0: a trial is under way */
    uint32_t held;                 /* the last value of hold; 0: no result yet */
    bool due;                      /* a trial has to begin: after `hold` steps it does */
    uint32_t skips[DEVICE_USES];   /* trials to come without the kind */
    enum device_use use;           /* of the next step that is compared */
    enum device_use result;        /* of the last trial */
    uint32_t unknown;              /* steps of unknown time, in a row */
    double least_s;                /* the shortest step of the block so far */
    double block_s[DEVICE_TRIAL_BLOCK - DEVICE_TRIAL_SETTLE];
    double loads_s; /* a step's mean in this round's block of DEVICE_LOADS */
    struct {
        bool dropped;                      /* far slower than another: no more blocks */
        uint32_t blocks;                   /* of this trial */
        double ratio[DEVICE_TRIAL_ROUNDS]; /* [blocks]: mean / loads_s */
    } of[DEVICE_USES];
    /* steps without copies */
    double trial_misses_s, held_misses_s; /* means: in the trial's blocks; a moving one since */
    double saved_s;                       /* of a step, by the last trial */
    double margin;   /* share by which they must be faster; below MARGIN: that */
    double cpu_only; /* cpu_only_s by took_s, of recent steps; 0: not known */
    /* Shares of a step that prefetches, all copies, and the device saved when they were last tried;
     * below 0: they cost that. NAN: not tried. */
    double prefetch_saves, copies_save, device_saves;
};

/* Another policy: begins anew, with prefetches if experts are predicted, and without any copy or
 * the device if cpuexec computes experts. */
void device_trial_restart(struct device_trial *t, bool predicts, bool has_cpu);
/* A step of decoding has ended. */
void device_trial_step(struct device_trial *t, const struct device_trial_step *step);
/* Of the next step. Prompts and steps with drafts (decodes: false) and steps of another n_tokens
 * are not compared: they follow the last result, but may always load. */
enum device_use device_trial_use(const struct device_trial *t, uint32_t n_tokens, bool decodes);
/* Whether the predictor sees this step, the next one, and gates are asked, even if nothing is
 * prefetched in it. step: the worker's number, because `at` does not count steps that are not
 * compared. */
bool device_trial_shows(const struct device_trial *t, uint64_t step, uint32_t n_tokens,
                        bool decodes);

#endif
