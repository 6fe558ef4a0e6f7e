/* cusim: how a kernel's blocks and threads run. */
#ifndef CUSIM_BLOCK_H
#define CUSIM_BLOCK_H

#include "include/cuda_runtime.h"

/* Run every block of the grid on the calling thread, one after the other in an order that order chooses; one call at
 * a time. What the kernel ended with: cudaSuccess, or the error of its trap. Breaks of the execution model's rules
 * (divergent barriers) end the process with a message. */
cudaError_t block_run_grid(const struct cusim_kernel *kernel, dim3 grid, dim3 block, size_t shared_bytes,
                           unsigned long order);

/* The kernel that runs now and where in it we are, for a message; false: none. */
bool block_describe(char *text, size_t bytes);

#endif
