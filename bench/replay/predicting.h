/* A predictor over a trace: both of its halves, in the order in which a worker asks them. What its aside half finds at one
 * layer is there when the next one is planned, as if its thread needed a layer's time. */
#ifndef MOED_REPLAY_PREDICTING_H
#define MOED_REPLAY_PREDICTING_H

#include "sched/predict_kept.h"
#include "trace/trace.h"

enum { PREDICTING_MAX_TOKENS = 512 }; /* of a step: as many as a piece of a prompt has */

struct predicting;

/* One token of a batch. */
struct predicting_token {
    uint32_t sequence, token;
    uint64_t request;
};

/* A prediction was made: n experts, and up to n_known those that a cache alone may want to know (as predictor_list). */
typedef void predicting_tell(void *arg, const struct predict_target *target,
                             const struct predicted *experts, uint32_t n, uint32_t n_known);

/* max_tokens: nothing is predicted in steps of more; at most PREDICTING_MAX_TOKENS. learned: NULL, or what was trained. NULL: no memory. */
struct predicting *predicting_new(enum sched_predictor kind, const struct trace *trace, uint32_t max_tokens,
                                  const struct sched_learned *learned, predicting_tell *tell,
                                  void *tell_arg);
void predicting_free(struct predicting *p); /* takes NULL */

/* In this order: a step begins; then for each layer with experts: before its gate (answers that have come are told), it was
 * routed, and, after its plan, what it shows (gates: the in-line half's predictions are told). */
void predicting_step(struct predicting *p, uint64_t step, const struct predicting_token *batch,
                     uint32_t n);
void predicting_look(struct predicting *p, uint32_t layer);
void predicting_routed(struct predicting *p, uint32_t layer, const uint32_t *selected);
void predicting_show(struct predicting *p, uint32_t layer, const uint32_t *selected, bool gates);

/* As predict_traits.early. */
bool predicting_early(const struct predicting *p);

/* For the plan of a layer of this step: as predict_kept_ahead. */
struct sched_ahead *predicting_ahead(struct predicting *p, uint32_t layer, uint32_t *n);

#endif
