/* A machine as the worker has measured it: the calibration that it keeps of a deployment (calibration/calibration.h). */
#ifndef MOED_REPLAY_MACHINE_CALIBRATION_H
#define MOED_REPLAY_MACHINE_CALIBRATION_H

#include "bench/replay/machine.h"

/* The costs are what the worker's assigners begin with. The machine has what the costs do not tell: calls, and the rates
 * from one token's time. Its attention_s is 0, as a calibration knows nothing of the dense part. */
enum error_code machine_from_calibration(const char *path, struct machine *out,
                                         struct sched_costs *costs, struct error *e);

#endif
