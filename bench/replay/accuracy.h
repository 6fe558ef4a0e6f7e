/* How often a predictor is right on a trace, layer by layer: precision and recall of the last
 * prediction that came early enough before the layer was routed. One sequence at a time; only
 * decoding counts. */
#ifndef MOED_REPLAY_ACCURACY_H
#define MOED_REPLAY_ACCURACY_H

#include "bench/replay/predicting.h"

struct accuracy_options {
    enum sched_predictor predictor;
    const struct trained_predictors *trained; /* NULL: none */
    uint32_t ahead;  /* whole layers with experts between a prediction and its layer, at least */
    uint32_t prompt; /* as steps_options.prompt */
    uint64_t max_tokens; /* of the trace; 0: all */
};

/* Of a layer. */
struct accuracy {
    uint64_t tokens, predicted_tokens; /* decoded; of those, with a prediction */
    uint64_t activated;                /* experts, of all tokens */
    /* of each prediction the experts that are the most probable, as many as a token activates */
    uint64_t best, best_right;
    uint64_t all, all_right; /* all experts that were predicted */
};

/* out: [n_layers]. ERROR_MEMORY. */
enum error_code accuracy_measure(const struct trace *trace, const struct accuracy_options *options,
                                 struct accuracy *out, struct error *e);

#endif
