/* What of the host tier is shown by `moed metrics`. */
#ifndef MOED_MEMD_TIER_METRICS_H
#define MOED_MEMD_TIER_METRICS_H

#include "tier.h"

/* What the tier counts; before tier_new. */
struct tier_counters tier_metrics_counters(struct metrics *r);
/* What is read of it when asked for. */
void tier_metrics_state(struct metrics *r, struct tier *t);

#endif
