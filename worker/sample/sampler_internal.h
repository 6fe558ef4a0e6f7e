/* What the sampler's files share: sampler.c (the chain), sampler_adjust.c (biases, penalties, DRY),
 * sampler_cut.c (the samplers that drop candidates), sampler_select.c (searches in rows). */
#ifndef MOED_WORKER_SAMPLE_SAMPLER_INTERNAL_H
#define MOED_WORKER_SAMPLE_SAMPLER_INTERNAL_H

#include "sampler.h"

/* Weights are summed and searched in blocks of this many. */
enum { WEIGHT_BLOCK = 1024 };

struct scored {
    float score;
    uint32_t index;
};

/* What samplers subtract from a token's logit, or add to it. */
struct adjustment {
    uint32_t token;
    uint32_t count;  /* how many times it stands in the penalties' window */
    uint32_t repeat; /* DRY: tokens that it would repeat */
    bool breaks;     /* DRY: its text has a breaker */
    float bias;
};

struct sampler {
    uint32_t vocab, context;
    void *tables;                   /* the memory of these arrays: */
    struct scored *scored;          /* [vocab] */
    float *logits;                  /* [vocab]: the candidates', once some are dropped, */
    uint32_t *tokens;               /* [vocab]: and their tokens */
    int32_t *weights;               /* [vocab, rounded up to whole blocks] */
    uint64_t *sums;                 /* [blocks]: of the weights */
    uint32_t *listed, *same;        /* [vocab]: indices of some candidates */
    struct adjustment *adjustments; /* [vocab] */
    uint32_t *adjustment_of;        /* [vocab]: index + 1; zero between calls */
    uint32_t n_adjustments;
    struct scored *changed; /* [4 * vocab]: logits of the caller's row before they were adjusted */
    uint32_t n_changed;
    uint32_t *repeats; /* [context]: DRY */
};

/* The candidates, in the order of their tokens. */
struct candidates {
    float *logits;          /* [n]: the caller's row, or sampler.logits */
    const uint32_t *tokens; /* [n]; NULL: candidate i is token i */
    uint32_t n;
    float scale;
    /* All other tokens have logits of at most `floor`, and it is not decided that they are dropped.
     */
    bool partial, undecided;
    float floor;
};

static inline uint32_t candidate_token(const struct candidates *c, uint32_t index)
{
    return c->tokens ? c->tokens[index] : index;
}

/* ---- sampler_select.c ---- */

/* The index of the largest; of equal ones the first. The first is not NaN. */
uint32_t select_largest(const float *logits, uint32_t n);
/* s->scored[0 ... k) = the k < n largest logits and their indices, in the order of the indices; of
 * equal logits the first ones. NaN counts as -infinity. */
void select_top(struct sampler *s, const float *logits, uint32_t n, uint32_t k);
void sort_by_index(struct scored *list, uint32_t n);
/* s->listed = the indices of logits above `bound`, in order. Returns how many there are. */
uint32_t list_above(struct sampler *s, const float *logits, uint32_t n, float bound);

/* Sets the candidates' weights; 0 where one would be below `least`. Returns their sum. */
uint64_t weigh_candidates(struct sampler *s, const struct candidates *c, int32_t least);
/* s->listed = the indices of weights of at least `least` >= 1, in order. Returns how many. */
uint32_t list_heavy(struct sampler *s, uint32_t n, int32_t least);
/* Shrinks s->listed[0 ... n) to the fewest of the largest weights whose sum is at least `need`, of
 * equal ones the first. Returns how many are left. */
uint32_t list_nucleus(struct sampler *s, uint32_t n, uint64_t need);
/* Shrinks s->scored[0 ... n) to the fewest of the smallest scores, of equal ones the first, whose
 * weights sum to at least `need`. Scores are not negative. Returns how many are left. */
uint32_t select_nearest(struct sampler *s, uint32_t n, uint64_t need);

/* ---- sampler_adjust.c ---- */

void adjust_biases(struct sampler *s, const struct sampler_turn *turn, struct candidates *c);
void adjust_penalties(struct sampler *s, const struct sampling *settings,
                      const struct sampler_turn *turn, struct candidates *c);
void adjust_dry(struct sampler *s, const struct sampling *settings, const struct sampler_turn *turn,
                struct candidates *c);
bool has_penalties(const struct sampling *settings);
/* How many of the last tokens a window of this many has. 0: all. */
uint32_t window_tokens(uint32_t window, uint32_t n_tokens);
/* Gives the caller's row the values that it had. */
void undo_adjustments(struct sampler *s, float *row);

/* ---- sampler_cut.c ---- */

/* Leaves s->listed[0 ... n) of the candidates; n 0 leaves them all. */
void keep_listed(struct sampler *s, struct candidates *c, uint32_t n);
/* One sampler, by its letter: the ones that drop candidates, and temperature. random: 64 bits, for
 * XTC. */
void cut_candidates(struct sampler *s, const struct sampling *settings, char letter,
                    uint64_t random, struct candidates *c);
/* Drops what mirostat 2 drops. */
void cut_surprising(struct sampler *s, float mu, struct candidates *c);

#endif
