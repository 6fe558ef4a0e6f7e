/* Which guesses are copied; see guesses.h.
 *
 * Copying the set S of a layer's missing experts saves
 *     sum over S of missing (p t_cpu - loss)  +  t_call (P(nobody outside S is activated) - P(nobody at all is)),
 * where experts are taken to be independent. What is worth it by itself is in S: it adds to both terms. Of the others, whose first term is
 * negative, the best set of k is the k most probable ones, for those cost the least and leave the most to the second term; so each k is
 * tried.
 */
#include "guesses.h"

enum { EXPLORE_STEPS = 32 };
/* Of a layer's time, that asking a gate may take. */
#define GATE_SHARE       0.1
#define GATE_SHARE_EARLY 0.03

bool sched_guess_pays(enum sched_assigner kind, bool early, double guess_s, double layer_s)
{
    double share = early ? GATE_SHARE_EARLY : GATE_SHARE;
    return kind != ASSIGN_BALANCE || !(layer_s > 0) || guess_s <= share * layer_s;
}

static void judge_all(struct sched_guess *guesses, uint32_t n, enum sched_verdict verdict)
{
    for (uint32_t i = 0; i < n; i++)
        guesses[i].verdict = verdict;
}

/* Nobody is sure: 1 would leave nothing to be divided. */
static double unlikely(double p)
{
    return p < 0.999 ? 1 - p : 0.001;
}

/* Up to which guess those that are not worth it by themselves are copied for the call's sake; 0: none is. */
static uint32_t copied_for_call(const struct sched_costs *costs, double call_s, const struct sched_guess *guesses, uint32_t n,
                                double none)
{
    double loss_s = 0, best_s = none * call_s;
    uint32_t until = 0;
    for (uint32_t i = 0; i < n && none > 0; i++) {
        const struct sched_guess *g = &guesses[i];
        if (g->verdict == GUESS_COPY)
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

static void judge_worth(const struct sched_costs *costs, double call_s, struct sched_guess *guesses, uint32_t n, uint32_t n_known)
{
    double none = 1; /* probability that nobody is activated who is not copied */
    for (uint32_t i = 0; i < n_known; i++) {
        bool worth = i < n && sched_prefetch_gain(costs, guesses[i].p) > 0;
        guesses[i].verdict = worth ? GUESS_COPY : GUESS_DECLINE;
        none *= worth ? 1 : unlikely(guesses[i].p);
    }
    uint32_t until = copied_for_call(costs, call_s, guesses, n, none);
    judge_all(guesses, until, GUESS_COPY);
}

void sched_judge_guesses(enum sched_assigner kind, const struct sched_costs *costs, double call_s, uint64_t step,
                         struct sched_guess *guesses, uint32_t n, uint32_t n_known)
{
    uint64_t turn = step % EXPLORE_STEPS;
    if (kind != ASSIGN_BALANCE || turn == EXPLORE_STEPS / 2)
        judge_all(guesses, n, GUESS_COPY);
    else if (turn == 0)
        judge_all(guesses, n, GUESS_SKIP);
    else
        judge_worth(costs, call_s, guesses, n, n_known);
}
