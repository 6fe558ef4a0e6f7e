/* What the predictors share: the table of functions that makes a predictor, and how ranks become
 * probabilities. */
#ifndef MOED_SCHED_PREDICT_PREDICT_INTERNAL_H
#define MOED_SCHED_PREDICT_PREDICT_INTERNAL_H

#include "sched/predict/predict.h"

#include <stddef.h>

/* One half. Members are NULL where it has nothing to do. */
struct predictor_rule {
    bool (*init)(struct predictor *p); /* sets state; false: no memory */
    void (*fini)(struct predictor *p); /* frees what state points to, not state */
    void (*observe)(struct predictor *p, const struct predict_seen *seen);
    const float *(*gate_input)(struct predictor *p, const struct predict_seen *seen, float *out);
    void (*predict)(struct predictor *p, const struct predict_seen *seen,
                    const struct predict_target *target, const uint32_t *predicted_routing,
                    double *probability);
    /* True if the last `predict` predicted the expert, false if it only gave it a probability.
     * NULL: the most probable experts are predicted. */
    bool (*chose)(const struct predictor *p, uint32_t expert);
    bool (*next_update)(struct predictor *p, uint32_t *layer, float *update);
    void (*apply_update)(struct predictor *p, uint32_t layer, const float *update);
};

/* A kind of predictor. */
struct predictor_kind {
    struct predict_traits traits;
    const struct predictor_rule *in_line, *background;            /* NULL: no such half */
    uint32_t (*update_floats)(const struct predict_shape *shape); /* NULL: no model updates */
    /* Adapts the traits to the shape and to what was trained; NULL: nothing to adapt. */
    void (*adapt)(const struct predict_shape *shape, struct predict_traits *traits);
};

extern const struct predictor_kind predictor_next_gate, predictor_residual, predictor_frequency,
    predictor_expert_map, predictor_activation_matrix, predictor_mlp, predictor_llapor,
    predictor_mixture, predictor_gate_scores, predictor_correlation, predictor_mtp;
/* Parts of the mixture only: what a place in an expert map is worth; the time since an expert's
 * last activation; what a token activated before. */
extern const struct predictor_kind predictor_map_shares, predictor_recency, predictor_token_table;

struct predictor {
    const struct predictor_rule *rule;
    struct predict_shape shape;
    void *state; /* the rule's own; freed with free() */
};

/* True if there are trained predictors for exactly this shape. */
bool predictor_trained(const struct predictor *p);
/* Sets all probabilities to 0. */
void predict_nothing(const struct predict_shape *shape, double *probability);

/* In predict_kinds.c, so that predictors that are parts of others do not need the table of all. */
const struct predictor_kind *predictor_kind_of(enum sched_predictor kind);

/* As predictor_traits, of a kind. */
struct predict_traits predictor_traits_of(const struct predictor_kind *kind,
                                          const struct predict_shape *shape);

/* As predictor_new, of a rule. */
struct predictor *predictor_new_of(const struct predictor_rule *rule,
                                   const struct predict_shape *shape);

/* Ranks to probabilities. A gate that predicts a token's experts is right more often with its first
 * choice than with its last. So a prediction's probability is the share of predictions of its layer
 * and rank that came true, a moving average. Tokens count as independent. */
struct predict_ranks;

struct predict_ranks *predict_ranks_new(const struct predict_shape *shape); /* NULL: no memory */
void predict_ranks_free(struct predict_ranks *r);                           /* takes NULL */
void predict_ranks_routing(struct predict_ranks *r, const struct predict_target *target,
                           const uint32_t *predicted_routing, uint32_t n_tokens,
                           double *probability);
/* A layer was routed: corrects its shares, if it was predicted last. */
void predict_ranks_check(struct predict_ranks *r, const struct predict_seen *seen);

#endif
