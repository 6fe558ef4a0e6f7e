/* The newest prediction of each coming layer. Each is compared with what the layer then activates,
 * and read by plans that weigh the next layers' prefetches with their own loads. The worker and
 * the replay keep one each. */
#ifndef MOED_SCHED_PREDICT_PREDICT_PENDING_H
#define MOED_SCHED_PREDICT_PREDICT_PENDING_H

#include "sched/assign/assign.h"
#include "sched/predict/predict.h"

struct predict_pending;

struct predict_pending *
predict_pending_new(const struct predict_shape *shape); /* NULL: no memory */
void predict_pending_free(struct predict_pending *k);   /* takes NULL */

/* _put replaces the layer's last prediction. experts: in the predictor's order; may be the list
 * that predict_pending_list returned for that layer, [n_experts], to be filled in place. */
struct predicted *predict_pending_list(struct predict_pending *k, uint32_t layer);
void predict_pending_put(struct predict_pending *k, const struct predict_target *target,
                         const struct predicted *experts, uint32_t n);
void predict_pending_clear(struct predict_pending *k);

/* A layer was routed. Returns, of m activated experts, how many are among the m most probable
 * ones; both 0 if the layer was not predicted for this step. The prediction is dropped. How often
 * each of its ranks was right stays counted until _clear: the hit rates of
 * predict_pending_upcoming. */
struct predict_hits predict_pending_check(struct predict_pending *k,
                                          const struct predict_seen *seen);

/* The share of predictions that came true; 1 while there are too few of them. */
double predict_hit_rate(struct predict_hits hits);

/* The *n predicted experts of the next layer (distance 1) and the one after it (2), for the plan of
 * this layer of a batch of n_tokens. The caller fills in `missing`. NULL: none. Valid until the
 * next call. */
struct sched_upcoming *predict_pending_upcoming(struct predict_pending *k,
                                                const struct predict_target *now, uint32_t n_tokens,
                                                uint32_t *n);

#endif
