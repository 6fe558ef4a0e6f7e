/* What experts cost, for the plan of a layer: the costs measured at start, corrected by what layers really took. One
 * thread, the engine's. */
#ifndef MOED_WORKER_LAYER_COSTS_H
#define MOED_WORKER_LAYER_COSTS_H

#include "sched/assign.h"

#include <stdbool.h>

struct layer_costs {
    struct sched_costs now;
    /* corrections of the first figures, moving averages of real / predicted */
    double device, cpu, cpu_contended;
};

/* first: as measured at start. */
void layer_costs_init(struct layer_costs *c, const struct sched_costs *first);
/* What a side was predicted, by the costs of now, and took for a layer; ignored where either is 0. contended: the link copied
 * meanwhile, and the prediction is by the contended costs. */
void layer_costs_device(struct layer_costs *c, double predicted_s, double took_s);
void layer_costs_cpu(struct layer_costs *c, double predicted_s, double took_s, bool contended);

#endif
