/* Which predicted experts are prefetched; see candidates.h.
 *
 * Copying the set S of a layer's missing experts saves
 *
 *     sum over S of missing (p t_cpu - loss)
 *       + t_call (P(nothing outside S is activated) - P(nothing at all is))
 *
 * where experts are taken to be independent. An expert whose own gain is positive is in S: it adds
 * to both terms. Of the rest, whose first term is negative, the best set of k is the k most
 * probable ones: they cost the least and leave the most to the second term. So the search tries
 * each k. */
#include "sched/prefetch/candidates.h"

/* The share of a layer's time that asking a gate may take, and that of what misses take. */
#define GATE_SHARE        0.1
#define GATE_SHARE_EARLY  0.03
#define GATE_MISSES_SHARE 0.6

bool prefetch_gate_pays(enum sched_prefetcher kind, bool early, double gate_s, double layer_s,
                        double misses_s)
{
    double share = early ? GATE_SHARE_EARLY : GATE_SHARE;
    if (!(layer_s > 0))
        return true;
    return (gate_s <= share * layer_s || !sched_prefetch_selects(kind)) &&
           gate_s <= GATE_MISSES_SHARE * misses_s;
}

static void judge_all(struct prefetch_candidate *candidates, uint32_t n, enum sched_verdict verdict)
{
    for (uint32_t i = 0; i < n; i++)
        candidates[i].verdict = verdict;
}

/* 1 - p, above 0: the caller divides by it. */
static double unlikely(double p)
{
    return p < 0.999 ? 1 - p : 0.001;
}

/* How many candidates from the front are copied to save the call to the CPU, those without a gain
 * of their own included; 0: none. */
static uint32_t copied_for_call(const struct sched_costs *costs, double call_s,
                                const struct prefetch_candidate *candidates, uint32_t n,
                                double none)
{
    double loss_s = 0, best_s = none * call_s;
    uint32_t until = 0;
    for (uint32_t i = 0; i < n && none > 0; i++) {
        const struct prefetch_candidate *g = &candidates[i];
        if (g->verdict == CANDIDATE_PREFETCH)
            continue;
        loss_s -= g->missing * sched_prefetch_gain(costs, g->p);
        if (loss_s > call_s)
            break;
        none /= unlikely(g->p);
        if (none * call_s - loss_s > best_s) {
            best_s = none * call_s - loss_s;
            until = i + 1;
        }
    }
    return until;
}

static void judge_worth(const struct sched_costs *costs, double call_s,
                        struct prefetch_candidate *candidates, uint32_t n, uint32_t n_known)
{
    double none = 1; /* probability that only copied experts are activated */
    for (uint32_t i = 0; i < n_known; i++) {
        bool worth = i < n && sched_prefetch_gain(costs, candidates[i].p) > 0;
        candidates[i].verdict = worth ? CANDIDATE_PREFETCH : CANDIDATE_DECLINE;
        none *= worth ? 1 : unlikely(candidates[i].p);
    }
    uint32_t until = copied_for_call(costs, call_s, candidates, n, none);
    judge_all(candidates, until, CANDIDATE_PREFETCH);
}

void prefetch_judge_candidates(enum sched_prefetcher kind, const struct sched_costs *costs,
                               double call_s, uint64_t step, struct prefetch_candidate *candidates,
                               uint32_t n, uint32_t n_known)
{
    uint64_t turn = step % PREFETCH_EXPLORE_STEPS;
    if (!sched_prefetch_selects(kind) || turn == PREFETCH_EXPLORE_STEPS / 2)
        judge_all(candidates, n, CANDIDATE_PREFETCH);
    else if (turn == 0)
        judge_all(candidates, n, CANDIDATE_SKIP);
    else
        judge_worth(costs, call_s, candidates, n, n_known);
}
