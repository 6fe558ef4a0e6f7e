/* The host tier's metrics. */
#ifndef MOED_MEMD_HOST_TIER_METRICS_H
#define MOED_MEMD_HOST_TIER_METRICS_H

#include "tier.h"

/* Registers the tier's counters; call before tier_new. */
struct tier_counters tier_metrics_counters(struct metrics *r);
/* Registers what is read of the tier at each rendering: slots, experts, time of reads. */
void tier_metrics_state(struct metrics *r, struct tier *t);

#endif
