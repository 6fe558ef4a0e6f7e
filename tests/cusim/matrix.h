/* cusim: matrix instructions of a warp. */
#ifndef CUSIM_MATRIX_H
#define CUSIM_MATRIX_H

#include "include/cuda_runtime.h"

enum { MATRIX_LANES = 32 };

/* Computes the results of all lanes. values: of cusim_warp, by lane. Returns what is wrong, or
 * NULL. */
const char *matrix_compute(enum cusim_warp_op op, const uint64_t values[MATRIX_LANES]);

#endif
