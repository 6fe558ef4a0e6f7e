/* Which of a coming layer's predicted experts are prefetched. Pure. */
#ifndef MOED_SCHED_PREFETCH_CANDIDATES_H
#define MOED_SCHED_PREFETCH_CANDIDATES_H

#include "sched/assign/assign.h"
#include "sched/prefetch/transfer_scheduler.h"

/* Whether the worker asks a coming layer's gate at all, which takes gate_s. It does so if that is
 * 0.6 of the time that the misses take at most (misses_s: layer_plan's; layer_s 0: neither is
 * known): a perfect prediction saves no more than all of that.
 *
 * A prefetcher that selects also wants a layer, from one layer's end to the next one's, to take ten
 * times as long (layer_s): with small experts on a quick device its prefetches bring less than the
 * gate costs. early: the predictor predicts nearly as well without the gate, and earlier
 * (predict_traits.early); then the gate may take a third of that part of a layer. */
bool prefetch_gate_pays(enum sched_prefetcher kind, bool early, double gate_s, double layer_s,
                        double misses_s);

/* In one step of so many nothing is prefetched, and half as many steps later everything, so that
 * the cost of copies stays measured. */
enum { PREFETCH_EXPLORE_STEPS = 32 };

enum sched_verdict {
    CANDIDATE_PREFETCH,
    CANDIDATE_DECLINE, /* not worth it */
    CANDIDATE_SKIP,    /* nothing is prefetched in this step */
};

/* An expert of which segments are missing on the device. */
struct prefetch_candidate {
    double p; /* probability that it is activated */
    uint32_t missing;
    uint32_t which; /* the caller's key */
    enum sched_verdict verdict;
};

/* Sets the verdict of the first n of the n_known candidates of a layer, in falling order of p; the
 * rest is never copied. The prefetchers of the papers copy all n. A prefetcher that selects
 * (sched_prefetch_selects) copies each candidate whose own gain is positive (sched_prefetch_gain),
 * and of the rest, the most probable first, as many as pay together: with them the layer may do
 * without the CPU, whose call takes call_s more than the device's. In one step of 32 it copies
 * nothing and in another one everything, so that the cost of copies stays measured. */
void prefetch_judge_candidates(enum sched_prefetcher kind, const struct sched_costs *costs,
                               double call_s, uint64_t step, struct prefetch_candidate *candidates,
                               uint32_t n, uint32_t n_known);

#endif
