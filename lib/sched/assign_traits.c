/* What else the owner asks of an assigner, beside its plans. */
#include "sched/assign.h"

bool sched_assigner_looks_ahead(enum sched_assigner kind)
{
    return kind == ASSIGN_PRESCHED;
}

uint32_t sched_spare_slots(enum sched_assigner kind, uint64_t n_slots, uint64_t n_beside)
{
    uint64_t n = kind == ASSIGN_GREEDY && n_beside ? n_beside : n_slots / 2;
    return n < UINT32_MAX ? (uint32_t)n : UINT32_MAX;
}
