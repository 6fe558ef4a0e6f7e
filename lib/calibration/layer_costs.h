/* The costs of experts for the plan of a layer: the calibration's costs, corrected by the times
 * that layers really took. Only the engine's thread uses it.
 *
 * How much a copy over the link slows a layer down decides what is worth copying. The machine's
 * pace drifts by more than that. Therefore the mean of layers with a copy in progress and the mean
 * of layers without one cover the same recent layers, and their ratio starts from the
 * calibration's. There are two such pairs of means:
 *   - of the CPU's experts, for the plan of a layer;
 *   - of whole layers, for the prefetch, because a copy may slow the device or the attention too.
 */
#ifndef MOED_CALIBRATION_LAYER_COSTS_H
#define MOED_CALIBRATION_LAYER_COSTS_H

#include "calibration/calibration.h"
#include "sched/assign/assign.h"

#include <stdbool.h>

/* Decaying sums of ratios over layers, [0] without a copy in progress, [1] with one. */
struct copy_means {
    double weight[2], sum[2];
};

struct layer_costs {
    struct sched_costs now;
    /* Corrections of the first figures, moving averages of real / predicted time: segments on the
     * device; segments on the CPU; the CPU's slowdown by a concurrent copy; loads. */
    double device, cpu, slowdown, link;

    double job_s; /* from the plan to the executor's answer, without computing: a moving average */

    struct sched_costs first;
    struct copy_means cpu_means;   /* of the CPU's real / first figure */
    struct copy_means layer_means; /* of a layer's real / expected time */
};

/* first, job_s: the calibration's. */
void layer_costs_init(struct layer_costs *c, const struct sched_costs *first, double job_s);

/* The corrections that the next start from the same first figures can resume. */
struct layer_corrections {
    double device, link, job_s;
    struct copy_means cpu_means, layer_means;
};
struct layer_corrections layer_corrections(const struct layer_costs *c);
/* Limits the weight of each kind of layers to `most`, because the machine's load may change until
 * the next start. */
struct layer_corrections layer_costs_fade(const struct layer_corrections *l, double most);
/* Resumes stored corrections right after init. False: they are impossible or all 0; c is unchanged.
 */
bool layer_costs_resume(struct layer_costs *c, const struct layer_corrections *l);

/* Reads and writes calibration.corrections. All 0: no corrections. */
struct layer_corrections layer_costs_stored(const struct calibration *c);
void layer_costs_keep(const struct layer_corrections *l, struct calibration *c);

/* Reports the time of a layer's job without computing. */
void layer_costs_job(struct layer_costs *c, double took_s);
/* Report the time that a side took for a layer and the predicted time: of device and link by the
 * current costs, of the CPU by its current costs without a copy. copying: a copy was in progress.
 * Ignored if either time is 0. */
void layer_costs_device(struct layer_costs *c, double predicted_s, double took_s);
void layer_costs_link(struct layer_costs *c, double predicted_s, double took_s);
void layer_costs_cpu(struct layer_costs *c, double predicted_s, double took_s, bool copying);
/* Reports the time from the end of the previous layer to the end of this one, and the expected
 * time. Only for layers that loaded nothing, with a copy in progress all the time or not at all. */
void layer_costs_layer(struct layer_costs *c, double expected_s, double took_s, bool copying);

#endif
