/* The plan of a layer: which segments of the activated experts the device computes from what is there, which it waits for, which
 * the CPU executor computes; from measured costs, by an assigner of lib/sched. One thread, the engine's. */
#ifndef MOED_WORKER_LAYER_PLAN_H
#define MOED_WORKER_LAYER_PLAN_H

#include "sched/assign.h"

#include <stdbool.h>

/* What an expert's segment costs, corrected by what layers really took. */
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
