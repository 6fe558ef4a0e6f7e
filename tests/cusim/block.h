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

/* The running thread's number in its block. */
unsigned block_thread();

/* True: these bytes are in the block's dynamic shared memory. */
bool block_is_shared(const void *p, size_t bytes);

/* The kernel broke a rule of the execution model, so its results have no meaning: ends the process
 * with a message that names the kernel and what each thread does. */
[[noreturn]] void block_die(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
