/* The measurements of a calibration, for calibrate.c. */
#ifndef MOED_WORKER_CALIBRATE_MEASURE_H
#define MOED_WORKER_CALIBRATE_MEASURE_H

#include "calibrate.h"

/* Fills c, except for its identity. *whole: cpuexec was measured too. Errors as calibrate's. */
enum error_code calibration_measure(const struct calibration_parts *p, struct calibration *c,
                                    bool *whole, struct error *e);

#endif
