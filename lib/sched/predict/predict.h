/* Predictors: which experts a coming layer will activate. Pure: no clock, no I/O, no threads; only
 * predictor_new allocates. Each file predict_*.c opens with its rule and source;
 * docs/design/prediction.md compares them.
 *
 * A predictor has one half or two. They are objects that share nothing, so each may belong to a
 * thread of its own.
 *
 * - The in-line half runs at each layer between its gate and its experts, so it is cheap. It
 *   predicts through the gate of the coming layer: it supplies that gate's input, the owner
 *   multiplies and routes, and it turns the chosen experts into probabilities.
 * - The background half gets the layers' inputs and choices, in a thread of its own. It may be
 *   late; the owner then discards its prediction. It predicts, or sends model updates to the
 *   in-line half: rows of numbers for a layer, which the owner passes on. */
#ifndef MOED_SCHED_PREDICT_PREDICT_H
#define MOED_SCHED_PREDICT_PREDICT_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>

enum sched_predictor {
    PREDICT_NONE,
    PREDICT_NEXT_GATE,  /* the next layer's gate on this layer's gate input (Mixtral-offloading) */
    PREDICT_RESIDUAL,   /* the same on that input plus the mean step from one layer's to the next's
                           (DALI) */
    PREDICT_FREQUENCY,  /* how often a layer's experts were activated recently */
    PREDICT_EXPERT_MAP, /* the most similar iteration of a store (FineMoE) */
    PREDICT_ACTIVATION_MATRIX, /* the most similar request of a store (MoE-Infinity) */
    PREDICT_MLP,     /* a trained network a layer, from an earlier layer's gate input (ProMoE) */
    PREDICT_LLAPOR,  /* the same from its compressed gate input and its choices (PreScope) */
    PREDICT_MIXTURE, /* several of them, weighed by their record (ours) */
    PREDICT_GATE_SCORES, /* all experts by the next layer's gate's scores on this layer's gate input
                            (MoEpic) */
    PREDICT_CORRELATION, /* the experts that a token's choice led to most often (Klotski) */
    PREDICT_MTP, /* a trained block that predicts the next token, before this one is computed (ours)
                  */
};
enum { PREDICT_KINDS = PREDICT_MTP + 1 };

struct trained_predictors;

struct predict_shape {
    uint32_t n_layers, first_layer; /* layers before first_layer have no experts */
    uint32_t n_experts, n_used;     /* n_used: experts that a token activates */
    uint32_t d_model;
    uint32_t max_tokens;                      /* of a batch */
    const struct trained_predictors *trained; /* trained for the model; NULL: none. Borrowed */
    bool fine_tune;                           /* networks go on learning while serving */
};

/* What a background half is shown of each layer; bits of predict_traits.reads. */
enum {
    PREDICT_READS_HIDDEN = 1,
    PREDICT_READS_GATE = 2,
    PREDICT_READS_SELECTED = 4,
    PREDICT_READS_EMBEDDING = 8, /* a record of its own before the first layer */
};

struct predict_token {
    uint64_t request;  /* numbered since the worker's start */
    uint32_t position; /* goes back by up to PREDICT_DRAFTS where drafts of tokens were wrong */
    uint32_t id;       /* in the vocabulary, or PREDICT_NO_ID */
};
enum { PREDICT_DRAFTS = 15 };
#define PREDICT_NO_ID UINT32_MAX

/* predict_seen.layer of the record before the first layer: hidden is the embedding layer's output,
 * gate and selected are NULL. */
#define PREDICT_EMBEDDING UINT32_MAX

/* What a layer shows of a batch. Members that the traits do not read are NULL. */
struct predict_seen {
    uint64_t step; /* forward passes, from 1 */
    uint32_t layer, n_tokens;
    const struct predict_token *tokens; /* [n_tokens] */
    const float *hidden;                /* [n_tokens][d_model]: the input of the layer's gate */
    const float *gate;                  /* [n_tokens][n_experts]: its probabilities */
    const uint32_t *selected;           /* [n_tokens][n_used], the first choice first */
    /* In line, with predict_traits.scores: the probabilities of the target's gate on
     * predictor_gate_input, [n_tokens][n_experts] */
    const float *scores;
};

/* The layer that is predicted. */
struct predict_target {
    uint64_t step;
    uint32_t layer;
};

struct predict_traits {
    bool in_line;   /* has an in-line half */
    bool answers;   /* the background half predicts */
    bool by_tokens; /* in-line predictions are ordered by the tokens that are predicted to activate
                       the expert */
    bool scores; /* the in-line half reads predict_seen.scores and predicts one layer at a time */
    bool early;  /* the trained background half predicts nearly as well as the in-line half, and
                    earlier */
    bool unbounded; /* predictions may be more than a batch can activate */
    uint32_t reads; /* what the background half is shown; 0: it has none */
    /* Layer l predicts layers l + distance_first to l + distance_last, counting layers with
     * experts. wraps: after the last layer come the first ones of the next step, as if its batch
     * were this one. */
    uint32_t distance_first, distance_last;
    uint32_t gates; /* how many of these targets the in-line half predicts; 0: all */
    bool wraps;
    /* The embedding counts as the layer before the first. Its targets are those of a layer there;
     * with embedding_all, the first layers up to the last of these. */
    bool embedding_all;
    /* The predictor names this many times as many experts as a batch can activate; 0: 1 */
    uint32_t spread;
};
const struct predict_traits *sched_predictor_traits(enum sched_predictor kind);
/* The same for a shape: the distance may depend on it and on what was trained. */
struct predict_traits predictor_traits(enum sched_predictor kind,
                                       const struct predict_shape *shape);
/* False: the kind must be trained and shape->trained does not have it, so it predicts nothing. */
bool predictor_is_trained(enum sched_predictor kind, const struct predict_shape *shape);

/* The i-th target of a layer; false after the last. _gate_target: only those whose gate is asked in
 * line. */
bool predict_target(const struct predict_traits *traits, const struct predict_shape *shape,
                    uint64_t step, uint32_t layer, uint32_t i, struct predict_target *out);
static inline bool predict_gate_target(const struct predict_traits *traits,
                                       const struct predict_shape *shape, uint64_t step,
                                       uint32_t layer, uint32_t i, struct predict_target *out)
{
    return (!traits->gates || i < traits->gates) &&
           predict_target(traits, shape, step, layer, i, out);
}

/* True if a background prediction comes after the target's gate was asked (asked: the
 * last in-line target), whose prediction is better. Exception: in the step itself (now) the
 * embedding says more about the first layer. */
static inline bool predict_outdated(const struct predict_target *target,
                                    const struct predict_target *asked, uint32_t first_layer,
                                    uint64_t now)
{
    bool by_embedding = target->layer == first_layer && target->step == now;
    return target->step == asked->step && target->layer == asked->layer && !by_embedding;
}

enum predict_half { PREDICT_IN_LINE, PREDICT_BACKGROUND };

struct predictor;

/* half: one that the kind has. NULL: no memory. */
struct predictor *predictor_new(enum sched_predictor kind, enum predict_half half,
                                const struct predict_shape *shape);
void predictor_free(struct predictor *p); /* takes NULL */

/* Shows a layer. In line: tokens, hidden and gate may be NULL. Layers come in order within a step;
 * some may be missing. */
void predictor_observe(struct predictor *p, const struct predict_seen *seen);

/* In line: the input for the target layer's gate, [n_tokens][d_model]. Returns seen->hidden, or
 * fills and returns out. */
const float *predictor_gate_input(struct predictor *p, const struct predict_seen *seen, float *out);

/* For each expert the probability that the target layer activates it for at least one token of a
 * batch like this one. probability: [n_experts]. predicted_routing: in line, what the target's
 * gate chose on predictor_gate_input, [n_tokens][n_used]; in the background NULL. */
void predictor_predict(struct predictor *p, const struct predict_seen *seen,
                       const struct predict_target *target, const uint32_t *predicted_routing,
                       double *probability);

/* Model updates: rows of predictor_update_floats numbers. _next_update (background): fills the next
 * one; false: none is left. _apply_update (in line) takes it. */
uint32_t predictor_update_floats(enum sched_predictor kind, const struct predict_shape *shape);
bool predictor_next_update(struct predictor *p, uint32_t *layer, float *update);
void predictor_apply_update(struct predictor *p, uint32_t layer, const float *update);

struct predicted {
    uint32_t expert;
    float probability;
};
/* The most experts that are predicted for n_tokens: what they can activate, times the spread. */
static inline uint32_t predict_most(const struct predict_traits *traits,
                                    const struct predict_shape *shape, uint32_t n_tokens)
{
    uint64_t most = (uint64_t)n_tokens * shape->n_used * (traits->spread ? traits->spread : 1);
    return !traits->unbounded && most < shape->n_experts ? (uint32_t)most : shape->n_experts;
}

/* Turns p's last prediction into a list. out: [n_experts]. Returns the number of predicted
 * experts, which come first. After them, up to *n_known, come experts that have a probability but
 * are not predicted: for the cache only, never prefetched. Each part has the most probable first,
 * of equal ones the lower number; with traits->by_tokens, first those with the most tokens of
 * predicted_routing (as in predictor_predict). */
uint32_t predictor_list(const struct predictor *p, const struct predict_traits *traits,
                        uint32_t n_tokens, const uint32_t *predicted_routing,
                        const double *probability, struct predicted *out, uint32_t *n_known);

/* The expected tokens of a batch that activate an expert, given that any does; any does with this
 * probability p. Each token activates it with q = 1 - (1 - p)^(1/n), so n q / p. */
static inline double predict_workload(double probability, uint32_t n_tokens)
{
    if (n_tokens <= 1 || !(probability > 0))
        return 1;
    double p = fmin(probability, 1), n = n_tokens;
    return -n * expm1(log1p(-p) / n) / p;
}

/* Lists the experts whose probability is not 0, the most probable first, of equal ones the lower
 * number, at most `most`. Returns how many. */
uint32_t predict_best(const double *probability, uint32_t n_experts, uint32_t most,
                      struct predicted *out);

/* Marks the selected experts, [n_rows], in activated, [n_experts], all false before. Returns how
 * many experts that are. _unmark sets all to false again. */
uint32_t predict_mark(bool *activated, const uint32_t *selected, uint32_t n_rows);
void predict_unmark(bool *activated, const uint32_t *selected, uint32_t n_rows);

/* Of m activated experts, how many are among the m most probable ones. predictions: m, or as many
 * as were predicted. */
struct predict_hits {
    uint64_t predictions, right;
};
struct predict_hits predict_count_hits(const struct predicted *experts, uint32_t n,
                                       const bool *activated, uint32_t m);

#endif
