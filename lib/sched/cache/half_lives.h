/* How often experts were activated recently, with several half-lives at once, and which half-life
 * would have found the most on the device. Pure; only half_lives_init allocates.
 *
 * A half-life's count of an expert is the sum over its activations of weight 2^-(age / half-life).
 * It would have kept the experts with the largest counts, as many as the device holds. So an
 * activation is a hit of a half-life if the count before it is at least that of the last expert
 * that fits, the threshold. The half-life with the most hits in the last steps is the best.
 *
 * An expert that was activated in its layer's last turn counts more than that, by as much as is
 * fitted for each half-life (last_turn.h). A fixed half-life has no fit. */
#ifndef MOED_SCHED_CACHE_HALF_LIVES_H
#define MOED_SCHED_CACHE_HALF_LIVES_H

#include "sched/cache/last_turn.h"

#include <math.h>
#include <stdbool.h>
#include <stdint.h>

/* 1, 2, 4, ... 128 steps: from the last token's experts to a few hundred tokens. */
enum { HALF_LIVES = 8, HALF_LIFE_MOST_STEPS = 128 };

struct half_life {
    double growth;    /* of the weight of an activation, from one step to the next */
    double now;       /* the weight of an activation now */
    double threshold; /* in activations of the last complete step; 0: not known */
    double tied;      /* share of the experts exactly at the threshold that fit */
    double due;       /* loads of misses, below 1 */
    double hits;      /* decayed; of the steps that count */
    double layer_hits;
    struct last_turn last_turn;
};

struct half_lives {
    struct half_life of[HALF_LIVES];
    uint32_t n;    /* 1: fixed */
    uint32_t used; /* the one that values follow */
    uint32_t n_slabs;
    uint32_t kept;                /* experts that the device holds */
    double (*counts)[HALF_LIVES]; /* [slabs], times the weight of an activation now */
    double *last;                 /* [slabs] weight of the layer's last turn; 0: not activated */
    double *current;              /* [slabs] of the turn that is being routed */
    uint8_t *loaded;              /* [slabs] a bit for each half-life */
    double *scratch;              /* [SAMPLED] */
    double missed, arrived;       /* experts, decayed */
    double share_loaded;          /* of the misses */
    uint32_t steps;               /* that counted, since the last choice */
    uint32_t which;               /* the half-life whose threshold is found next */
    uint32_t turn;                /* how often all of them were found */
    uint32_t age;                 /* steps, up to those of a young one */
    bool stale;                   /* a prompt has moved all counts, or `kept` has changed */
    bool observed;                /* in this step */
};

/* half_life: the only one; 0: all, of which the best is used. kept: experts that fit the device. */
bool half_lives_init(struct half_lives *h, uint32_t n_slabs, uint64_t kept, double half_life);
/* So many experts fit the device from now on. */
void half_lives_resize(struct half_lives *h, uint64_t kept);
void half_lives_fini(struct half_lives *h);

/* What was missing on the device when it was activated, and what has come to the device. */
void half_lives_missed(struct half_lives *h, double experts);
void half_lives_arrived(struct half_lives *h, double experts);
/* An activation. A prompt's turn does not predict the next one, so it is not recorded as a turn. */
void half_lives_count(struct half_lives *h, uint32_t slab, double weight, bool prompt);
/* The layer's experts first, first + apart, ... up to `end`, in a turn that is no prompt's, before
 * it is over: what the fits learn from. */
void half_lives_observe(struct half_lives *h, uint32_t first, uint32_t end, uint32_t apart);
/* The layer's turn is over, for one of its experts. True if its last turn adds less now. */
bool half_lives_turn_over(struct half_lives *h, uint32_t slab);
/* After the activations of a layer. counts: false in a prompt, and if the step activates so many
 * experts that no order of them helps. */
void half_lives_layer_over(struct half_lives *h, bool counts);
enum half_lives_change {
    HALF_LIVES_SAME,
    HALF_LIVES_RESCALED, /* the counts of the used one are half_lives_scale() times what they were
                          */
    HALF_LIVES_CHANGED,  /* another one is used from now on */
};
/* After the last layer of a step. */
enum half_lives_change half_lives_step_over(struct half_lives *h);

/* The factor of HALF_LIVES_RESCALED. */
double half_lives_scale(void);

static inline const struct half_life *half_lives_used(const struct half_lives *h)
{
    return &h->of[h->used];
}

/* The count, before this step's activation, of an expert that every step activates. */
static inline double half_lives_always(const struct half_lives *h)
{
    const struct half_life *u = half_lives_used(h);
    return u->now / (u->growth - 1);
}

/* The count, and what the last turn adds: also the turn that is being routed, so that a layer's
 * loads do not evict what the layer has just activated. It adds in units of this step, although it
 * counts in the next one, which matters with the shortest half-lives only. */
static inline double half_lives_recent(const struct half_lives *h, uint32_t slab)
{
    double last = fmax(h->last[slab], h->current[slab]);
    return h->counts[slab][h->used] +
           half_lives_used(h)->last_turn.worth * last * half_lives_always(h);
}

#endif
