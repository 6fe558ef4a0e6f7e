/* What else the owner asks of an assigner, beside its plans. */
#include "sched/assign.h"

enum { EXPLORE_STEPS = 32 };
#define GUESS_MOST_SHARE 0.1 /* of a layer's time */

bool sched_assigner_looks_ahead(enum sched_assigner kind)
{
    return kind == ASSIGN_PRESCHED;
}

uint32_t sched_spare_slots(enum sched_assigner kind, uint64_t n_slots, uint64_t n_beside)
{
    uint64_t n = kind == ASSIGN_GREEDY && n_beside ? n_beside : n_slots / 2;
    return n < UINT32_MAX ? (uint32_t)n : UINT32_MAX;
}

bool sched_guess_pays(enum sched_assigner kind, double guess_s, double layer_s)
{
    return kind != ASSIGN_BALANCE || !(layer_s > 0) || guess_s <= GUESS_MOST_SHARE * layer_s;
}

enum sched_guess sched_judge_guess(enum sched_assigner kind, const struct sched_costs *costs,
                                   uint64_t step, double p)
{
    uint64_t turn = step % EXPLORE_STEPS;
    if (kind != ASSIGN_BALANCE || turn == EXPLORE_STEPS / 2)
        return GUESS_COPY;
    if (turn == 0)
        return GUESS_SKIP;
    return sched_prefetch_gain(costs, p) > 0 ? GUESS_COPY : GUESS_DECLINE;
}
