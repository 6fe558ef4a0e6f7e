/* Runs both halves of a predictor over a trace, in the order of a worker. The background half's
 * predictions at one layer arrive before the plan of the next layer, as if its thread took the time
 * of a layer. */
#ifndef MOED_REPLAY_PREDICTING_H
#define MOED_REPLAY_PREDICTING_H

#include "bench/replay/recording.h"
#include "sched/layer/predictions.h"
#include "trace/trace.h"

enum { PREDICTING_MAX_TOKENS = 512 }; /* of a step: a prefill chunk */

struct predicting;

/* One token of a batch. */
struct predicting_token {
    uint32_t sequence, token;
    uint64_t request;
};

/* Steps of more than max_tokens (at most PREDICTING_MAX_TOKENS) have no predictions. predictors:
 * trained predictors, or NULL. recording: what the background half answers in the same steps. A
 * complete recording replaces that half, an empty one is filled; NULL: none. It is borrowed.
 * Returns NULL: no memory. */
struct predicting *predicting_new(enum sched_predictor kind, const struct trace *trace,
                                  uint32_t max_tokens, const struct trained_predictors *predictors,
                                  struct recording *recording, layer_predictions_report *report,
                                  void *report_arg);
/* After the last step: the recording is complete. */
void predicting_end(struct predicting *p);
void predicting_free(struct predicting *p); /* takes NULL */

/* Call predicting_step at the start of a step. Then for each layer with experts, in this order:
 * predicting_look before its gate (reports predictions); predicting_routed; and predicting_show
 * after its plan (gates: the in-line half predicts too). */
void predicting_step(struct predicting *p, uint64_t step, const struct predicting_token *batch,
                     uint32_t n);
void predicting_look(struct predicting *p, uint32_t layer);
void predicting_routed(struct predicting *p, uint32_t layer, const uint32_t *selected);
void predicting_show(struct predicting *p, uint32_t layer, const uint32_t *selected, bool gates);

/* As predict_traits.early. */
bool predicting_early(const struct predicting *p);

/* As predict_pending_upcoming, for the plan of a layer of this step. */
struct sched_upcoming *predicting_upcoming(struct predicting *p, uint32_t layer, uint32_t *n);

#endif
