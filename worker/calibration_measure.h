/* The measuring itself, for calibration.c. */
#ifndef MOED_WORKER_CALIBRATION_MEASURE_H
#define MOED_WORKER_CALIBRATION_MEASURE_H

#include "calibration.h"

/* Fills all of c but the words that say what it is of. *whole: with the executor. Errors as calibrate's. */
enum error_code calibration_measure(const struct calibration_parts *p, struct calibration *c,
                                    bool *whole, struct error *e);

#endif
