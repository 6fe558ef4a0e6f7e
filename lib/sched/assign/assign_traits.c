/* What an owner asks of an assigner apart from plans. */
#include "sched/assign/assign.h"

bool sched_assigner_plans_prefetch(enum sched_assigner kind)
{
    return kind == ASSIGN_PRESCHED;
}

uint32_t sched_spare_slots(enum sched_assigner kind, uint64_t n_slots, uint64_t n_outside)
{
    uint64_t n = kind == ASSIGN_GREEDY && n_outside ? n_outside : n_slots / 2;
    return n < UINT32_MAX ? (uint32_t)n : UINT32_MAX;
}
