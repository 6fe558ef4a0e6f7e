/* Predictors: which experts a layer still to come will activate. Pure: no clock, no I/O, no threads; memory is allocated by
 * predictor_new alone. A predictor's rule and its source stand in its file, predict_*.c.
 *
 * A predictor has one half or two. They are objects that share nothing, so each may belong to a thread of its own:
 *   in line  asked at each layer between its gate and its experts, so it is cheap. It predicts through the gate of the
 *            layer still to come: it supplies that gate's input, the owner multiplies and routes, and it turns the
 *            experts that came out into probabilities.
 *   aside    told what layers show, beside inference. It may be late, and what it says then is worth nothing. It predicts by
 *            itself, or teaches the in-line half what it has learnt: lessons, a row of numbers for a layer, that
 *            the owner carries over.
 */
#ifndef MOED_SCHED_PREDICT_H
#define MOED_SCHED_PREDICT_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>

enum sched_predictor {
    PREDICT_NONE,
    PREDICT_NEXT_GATE, /* the next layer's gate on this layer's gate input */
    PREDICT_RESIDUAL, /* the same on that input plus the mean step from one layer's to the next's (DALI) */
    PREDICT_FREQUENCY,         /* how often a layer's experts were activated lately */
    PREDICT_EXPERT_MAP,        /* the most similar iteration of a store (FineMoE) */
    PREDICT_ACTIVATION_MATRIX, /* the most similar request of a store (MoE-Infinity) */
    PREDICT_MLP,    /* a trained network a layer, from an earlier layer's gate input (ProMoE) */
    PREDICT_LLAPOR, /* the same from its compressed gate input and its choices (PreScope) */
    PREDICT_MIXTURE, /* several of them, mixed by what they turned out to be worth (ours) */
    PREDICT_GATE_SCORES, /* all experts by the next layer's gate's scores on this layer's gate input (MoEpic) */
};
enum { PREDICT_KINDS = PREDICT_GATE_SCORES + 1 };

struct sched_learned;

struct predict_shape {
    uint32_t n_layers, first_layer; /* those before first_layer have no experts */
    uint32_t n_experts, n_used;     /* n_used: that a token activates */
    uint32_t d_model;
    uint32_t max_tokens; /* of a batch */
    const struct sched_learned
        *learned;   /* what was trained for the model; NULL: nothing. Borrowed */
    bool fine_tune; /* networks go on learning from what layers then activate */
};

/* What is shown to an aside half of each layer; bits of predict_traits.reads. */
enum {
    PREDICT_READS_HIDDEN = 1,
    PREDICT_READS_GATE = 2,
    PREDICT_READS_SELECTED = 4,
    PREDICT_READS_EMBEDDING = 8, /* a record of its own before the first layer's */
};

struct predict_token {
    uint64_t request; /* which one, numbered since the worker's start */
    uint32_t position;
};

/* As predict_seen.layer: before the first layer of a step. hidden is the embedding layer's output then, gate and selected
 * are NULL. */
#define PREDICT_EMBEDDING UINT32_MAX

/* What a layer shows of a batch. What was not asked for is NULL. */
struct predict_seen {
    uint64_t step; /* forward passes, from 1 */
    uint32_t layer, n_tokens;
    const struct predict_token *tokens; /* [n_tokens] */
    const float *hidden;                /* [n_tokens][d_model]: the input of the layer's gate */
    const float *gate;                  /* [n_tokens][n_experts]: its probabilities */
    const uint32_t *selected;           /* [n_tokens][n_used], the first choice first */
    /* In line, where the traits ask for them: the target's gate's probabilities on predictor_gate_input, [n_tokens][n_experts] */
    const float *scores;
};

/* The layer that is predicted. */
struct predict_target {
    uint64_t step;
    uint32_t layer;
};

struct predict_traits {
    bool in_line;   /* it has an in-line half */
    bool answers;   /* its aside half predicts by itself */
    bool by_tokens; /* what is predicted in line stands in the order of the tokens that are guessed to activate it */
    bool scores;    /* its in-line half is shown predict_seen.scores; then it predicts one layer at a time */
    bool early; /* its aside half, trained, says of a layer nearly as much as its in-line half, and earlier */
    bool unbounded; /* as many as it says are predicted, be they more than a batch may activate */
    uint32_t reads; /* what its aside half is shown; 0: it has none */
    /* From layer l are predicted l + ahead_first to l + ahead_last, of layers with experts. wraps: after the last layer
     * come the first ones of the next step, as if its batch were this one. */
    uint32_t ahead_first, ahead_last;
    uint32_t gates; /* in line the first so many of them are; 0: all */
    bool wraps;
    /* The embedding stands before the first layer; its targets are those of a layer at that place or, if embedding_all, the first
     * layers up to the last of them. */
    bool embedding_all;
    /* It says of more experts how probable they are than a batch may activate; so many times as many are worth knowing.
     * 0: 1 */
    uint32_t spread;
};
const struct predict_traits *sched_predictor_traits(enum sched_predictor kind);
/* The same for a shape: that, and what was trained, may say how far ahead. */
struct predict_traits predictor_traits(enum sched_predictor kind,
                                       const struct predict_shape *shape);
/* False: it predicts nothing, for it has to be trained and shape->learned has nothing of it. */
bool predictor_is_trained(enum sched_predictor kind, const struct predict_shape *shape);

/* The i-th target from a layer; false after the last. _gate_target: of those whose gate is asked in line. */
bool predict_target(const struct predict_traits *traits, const struct predict_shape *shape,
                    uint64_t step, uint32_t layer, uint32_t i, struct predict_target *out);
static inline bool predict_gate_target(const struct predict_traits *traits, const struct predict_shape *shape,
                                       uint64_t step, uint32_t layer, uint32_t i, struct predict_target *out)
{
    return (!traits->gates || i < traits->gates) && predict_target(traits, shape, step, layer, i, out);
}

/* Whether what an aside half says of a layer comes after a gate was asked about it, which is the better prediction (guessed: the last one
 * in line); but in the step itself (now) the embedding tells more of the first layer. */
static inline bool predict_outdated(const struct predict_target *target, const struct predict_target *guessed,
                                    uint32_t first_layer, uint64_t now)
{
    bool by_embedding = target->layer == first_layer && target->step == now;
    return target->step == guessed->step && target->layer == guessed->layer && !by_embedding;
}

enum predict_half { PREDICT_IN_LINE, PREDICT_ASIDE };

struct predictor;

/* A half that the kind has. NULL: no memory. */
struct predictor *predictor_new(enum sched_predictor kind, enum predict_half half,
                                const struct predict_shape *shape);
void predictor_free(struct predictor *p); /* takes NULL */

/* What a layer was like. In line: tokens, hidden and gate may be NULL. Layers come in order within a step; some may be
 * missing. */
void predictor_observe(struct predictor *p, const struct predict_seen *seen);

/* In line: the input of the target layer's gate, [n_tokens][d_model]: seen->hidden itself, or out, filled. */
const float *predictor_gate_input(struct predictor *p, const struct predict_seen *seen, float *out);

/* For each expert the probability that the target layer activates it for at least one token of a batch like this one.
 * probability: [n_experts]. guessed: in line, what the target's gate chose on predictor_gate_input, [n_tokens][n_used]; aside
 * NULL. */
void predictor_predict(struct predictor *p, const struct predict_seen *seen,
                       const struct predict_target *target, const uint32_t *guessed,
                       double *probability);

/* Aside: true where it has something new to teach about a layer; lesson is filled, predictor_lesson_floats numbers. In line:
 * takes it. */
uint32_t predictor_lesson_floats(enum sched_predictor kind, const struct predict_shape *shape);
bool predictor_teach(struct predictor *p, uint32_t *layer, float *lesson);
void predictor_learn(struct predictor *p, uint32_t layer, const float *lesson);

struct predicted {
    uint32_t expert;
    float probability;
};
/* The most experts that are predicted for so many tokens: what they activate at most, by the spread. */
static inline uint32_t predict_most(const struct predict_traits *traits,
                                    const struct predict_shape *shape, uint32_t n_tokens)
{
    uint64_t most = (uint64_t)n_tokens * shape->n_used * (traits->spread ? traits->spread : 1);
    return !traits->unbounded && most < shape->n_experts ? (uint32_t)most : shape->n_experts;
}

/* What a prediction, the last one of p, comes to. out: [n_experts]; first those that are predicted, so many are returned, and
 * after them, up to *n_known, those that have a probability and are not predicted: what a cache may want to know, which
 * nobody copies ahead. Both the most probable first, of equal ones the lower number; where the traits say so first those with
 * the most tokens of guessed (as in predictor_predict). */
uint32_t predictor_list(const struct predictor *p, const struct predict_traits *traits,
                        uint32_t n_tokens, const uint32_t *guessed, const double *probability,
                        struct predicted *out, uint32_t *n_known);

/* The tokens of a batch that activate an expert, as expected if any does, where some do with this probability: each
 * activates it with q = 1 - (1 - p)^(1/n), so n q / p. */
static inline double predict_workload(double probability, uint32_t n_tokens)
{
    if (n_tokens <= 1 || !(probability > 0))
        return 1;
    double p = fmin(probability, 1), n = n_tokens;
    return -n * expm1(log1p(-p) / n) / p;
}

/* The experts whose probability is not 0, the most probable first, of equal ones the lower number, at most `most`. Returns how
 * many. */
uint32_t predict_best(const double *probability, uint32_t n_experts, uint32_t most,
                      struct predicted *out);

/* What layers activated, held against that. activated: [n_experts], all false; marks what is selected, [n_rows], and returns
 * how many experts that are. _unmark leaves all false again. */
uint32_t predict_mark(bool *activated, const uint32_t *selected, uint32_t n_rows);
void predict_unmark(bool *activated, const uint32_t *selected, uint32_t n_rows);

/* Of m activated experts, how many are among the m that were the most probable? guesses: m, or as many as were predicted. */
struct predict_hits {
    uint64_t guesses, right;
};
struct predict_hits predict_count_hits(const struct predicted *experts, uint32_t n,
                                       const bool *activated, uint32_t m);

#endif
