/* What experts cost, for the plan of a layer: the costs measured at start, corrected by what layers really took. One
 * thread, the engine's.
 *
 * How much a copy over the link slows everything down decides what is worth copying, and a machine's pace drifts by more than
 * that: so both means, of layers with a copy under way and of those without, are of the same last layers, and what they
 * differ by starts from what the calibration measured. There are two such pairs: of the CPU's experts, for the plan of a layer,
 * and of whole layers, for what is copied ahead: a copy may hold up the device or the attention as well.
 */
#ifndef MOED_CALIBRATION_LAYER_COSTS_H
#define MOED_CALIBRATION_LAYER_COSTS_H

#include "calibration/calibration.h"
#include "sched/assign.h"

#include <stdbool.h>

/* Sums of ratios over layers without a copy under way and with one; decaying. */
struct copy_means {
    double weight[2], sum[2];
};

struct layer_costs {
    struct sched_costs now;
    /* Corrections of the first figures, moving averages of real / predicted: segments on the device, on the CPU, and
     * how many times longer the CPU takes beside a copy, loads. */
    double device, cpu, slowdown, link;

    double job_s; /* from the plan to the executor's answer, beside computing: a moving average */

    struct sched_costs first;
    struct copy_means cpu_means;   /* of the CPU's real / first figure */
    struct copy_means layer_means; /* of a layer's real / expected time */
};

/* first, job_s: as measured at start. */
void layer_costs_init(struct layer_costs *c, const struct sched_costs *first, double job_s);

/* What is worth keeping of it for the next start from the same first figures. */
struct layer_costs_learnt {
    double device, link, job_s;
    struct copy_means cpu_means, layer_means;
};
struct layer_costs_learnt layer_costs_learnt(const struct layer_costs *c);
/* With no more of the layers than `most` of each kind: the next hour may be another one. */
struct layer_costs_learnt layer_costs_fade(const struct layer_costs_learnt *l, double most);
/* Right after init. False: it makes no sense, as all 0 does not; nothing has changed. */
bool layer_costs_resume(struct layer_costs *c, const struct layer_costs_learnt *l);

/* What a calibration's file keeps of it (calibration.learnt); nothing to be kept is all 0. */
struct layer_costs_learnt layer_costs_kept(const struct calibration *c);
void layer_costs_keep(const struct layer_costs_learnt *l, struct calibration *c);

/* A layer's job took so long beside computing. */
void layer_costs_job(struct layer_costs *c, double took_s);
/* What a side took for a layer, and what it was predicted: device and link by the costs of now, the CPU by its costs of now
 * without a copy. copying: one was under way meanwhile. Ignored where either is 0. */
void layer_costs_device(struct layer_costs *c, double predicted_s, double took_s);
void layer_costs_link(struct layer_costs *c, double predicted_s, double took_s);
void layer_costs_cpu(struct layer_costs *c, double predicted_s, double took_s, bool copying);
/* A layer took so long from the end of the one before to its own, and what it was expected to: of layers that loaded nothing,
 * with a copy under way all the time or without any. */
void layer_costs_layer(struct layer_costs *c, double expected_s, double took_s, bool copying);

#endif
