/* What was predicted of layers still to come, the newest of each: held against what the layer then activates, and looked
 * ahead at by plans that weigh the next layers' copies with their own. The worker's engine and the replay keep one each. */
#ifndef MOED_SCHED_PREDICT_KEPT_H
#define MOED_SCHED_PREDICT_KEPT_H

#include "sched/assign.h"
#include "sched/predict.h"

struct predict_kept;

struct predict_kept *predict_kept_new(const struct predict_shape *shape); /* NULL: no memory */
void predict_kept_free(struct predict_kept *k);                           /* takes NULL */

/* Keeps a prediction in the place of the layer's last one; experts, in the predictor's order, may be the room that
 * predict_kept_room gave for that layer, [n_experts]. */
struct predicted *predict_kept_room(struct predict_kept *k, uint32_t layer);
void predict_kept_put(struct predict_kept *k, const struct predict_target *target,
                      const struct predicted *experts, uint32_t n);
void predict_kept_clear(struct predict_kept *k);

/* A layer was routed: of m activated experts, how many are among the m that were the most probable? Both 0 where nothing
 * was predicted for this step. What was is kept no longer, but how often each rank of it was right: the hit rates of
 * predict_kept_ahead, until all is cleared. */
struct predict_hits predict_kept_check(struct predict_kept *k, const struct predict_seen *seen);

/* The share of guesses that came true; 1 while there are too few to tell. */
double predict_hit_rate(struct predict_hits hits);

/* What is predicted of the next layer (distance 1) and the one after it (2), for the plan of this one of a batch of so many
 * tokens: *n of them, with all but `missing`, which the caller knows. NULL: none. Valid until the next call. */
struct sched_ahead *predict_kept_ahead(struct predict_kept *k, const struct predict_target *now,
                                       uint32_t n_tokens, uint32_t *n);

#endif
