/* What the predictors share: the table of functions that a predictor is, and how ranks become probabilities. */
#ifndef MOED_SCHED_PREDICT_INTERNAL_H
#define MOED_SCHED_PREDICT_INTERNAL_H

#include "sched/predict.h"
#include "sched/predict_score.h"

#include <stddef.h>

/* One half. Members may be NULL where it has nothing to do; predict may not where it predicts. */
struct predictor_rule {
    bool (*init)(struct predictor *p); /* sets state; false: no memory */
    void (*fini)(struct predictor *p); /* what state points to; state itself is freed */
    void (*observe)(struct predictor *p, const struct predict_seen *seen);
    const float *(*gate_input)(struct predictor *p, const struct predict_seen *seen, float *out);
    void (*predict)(struct predictor *p, const struct predict_seen *seen,
                    const struct predict_target *target, const uint32_t *guessed,
                    double *probability);
    /* Whether the expert is predicted, or merely known of, by the last `predict`; NULL: the most probable ones are. */
    bool (*chose)(const struct predictor *p, uint32_t expert);
    bool (*teach)(struct predictor *p, uint32_t *layer, float *lesson);
    void (*learn)(struct predictor *p, uint32_t layer, const float *lesson);
};

/* A kind of predictor. */
struct predictor_kind {
    struct predict_traits traits;
    const struct predictor_rule *in_line, *aside;                 /* NULL: it has no such half */
    uint32_t (*lesson_floats)(const struct predict_shape *shape); /* NULL: no lessons */
    /* Changes the traits to the shape and what was trained; NULL: they are what they are. */
    void (*adapt)(const struct predict_shape *shape, struct predict_traits *traits);
};

extern const struct predictor_kind predictor_next_gate, predictor_residual, predictor_frequency,
    predictor_expert_map, predictor_activation_matrix, predictor_mlp, predictor_llapor,
    predictor_mixture, predictor_gate_scores;
/* Parts of the mixture alone: what a place in an expert map is worth, the time since an expert was activated last. */
extern const struct predictor_kind predictor_map_shares, predictor_recency;

struct predictor {
    const struct predictor_rule *rule;
    struct predict_shape shape;
    void *state; /* the rule's own */
};

/* Is there something trained for just this shape? */
bool predictor_learned(const struct predictor *p);
/* All probabilities become 0. */
void predict_nothing(const struct predict_shape *shape, double *probability);

const struct predictor_kind *predictor_kind_of(enum sched_predictor kind);

/* As predictor_traits, of a kind. */
struct predict_traits predictor_traits_of(const struct predictor_kind *kind,
                                          const struct predict_shape *shape);

/* As predictor_new, of a rule. */
struct predictor *predictor_new_of(const struct predictor_rule *rule,
                                   const struct predict_shape *shape);

/* As predict_trial_new (predict_score.h), of a kind; so a part of the mixture is scored alone. */
struct predict_trial *predict_trial_new_of(const struct predictor_kind *kind,
                                           const struct predict_shape *shape,
                                           predict_trial_gate *gate, void *gate_arg, uint32_t late);

/* Ranks to probabilities. A gate that guesses a token's experts in order is right more often with its first choice than with its
 * last: for each layer and rank, the share of guesses that came true, a moving average, makes a guess a
 * probability. Tokens are taken as independent of each other. */
struct predict_ranks;

struct predict_ranks *predict_ranks_new(const struct predict_shape *shape); /* NULL: no memory */
void predict_ranks_free(struct predict_ranks *r);                           /* takes NULL */
void predict_ranks_guess(struct predict_ranks *r, const struct predict_target *target,
                         const uint32_t *guessed, uint32_t n_tokens, double *probability);
/* What a layer activated: corrects its shares, if it is the one that was guessed last. */
void predict_ranks_check(struct predict_ranks *r, const struct predict_seen *seen);

#endif
