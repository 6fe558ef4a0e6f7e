/* Makes a machine from a calibration that a worker has stored (calibration/calibration.h). */
#ifndef MOED_REPLAY_MACHINE_CALIBRATION_H
#define MOED_REPLAY_MACHINE_CALIBRATION_H

#include "bench/replay/machine.h"

/* The costs are the initial costs of the worker's assigners. The machine has the other values: call
 * overheads, and rates from the time of one token. Its attention_s is 0, because a calibration does
 * not measure the dense part. */
enum error_code machine_from_calibration(const char *path, struct machine *out,
                                         struct sched_costs *costs, struct error *e);

#endif
