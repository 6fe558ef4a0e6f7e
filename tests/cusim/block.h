/* cusim: how a kernel's blocks and threads run. */
#ifndef CUSIM_BLOCK_H
#define CUSIM_BLOCK_H

#include "include/cuda_runtime.h"

/* Runs every block of the grid on the calling thread, one after the other, in an order that `order`
 * selects; one call at a time. Returns cudaSuccess, or the error of the kernel's trap. If a kernel
 * breaks a rule of the execution model (a divergent barrier), the process ends with a message. */
cudaError_t block_run_grid(const struct cusim_kernel *kernel, dim3 grid, dim3 block,
                           size_t shared_bytes, unsigned long order);

/* Writes the running kernel and the position in it, for a message; false: no kernel runs. */
bool block_describe(char *text, size_t bytes);

#endif
