/* Launching kernels, in a form that nvcc and the host's compiler on tests/cusim both understand.
 *
 * Kernels use what both have: threadIdx, blockIdx, blockDim, gridDim, __shared__, __syncthreads,
 * __syncwarp, __shfl_*_sync, __ballot_sync, __any_sync, __all_sync, __dp4a, __fmaf_rn, __ldg,
 * atomics. Device code is compiled without contraction of a * b + c (nvcc -fmad=false): a fused
 * operation is written as __fmaf_rn. */
#ifndef MOED_DEVICE_CUDA_LAUNCH_H
#define MOED_DEVICE_CUDA_LAUNCH_H

#include "device/cuda/preload.h"

#include <cuda_runtime.h>

/* 1: for this architecture the compiler needs more registers for the same code. */
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 1200
#define CUDA_MORE_REGISTERS 1
#else
#define CUDA_MORE_REGISTERS 0
#endif

/* A statement. The kernel is a constant, so that preload.h knows it. */
#define CUDA_LAUNCH(kernel, grid, block, shared_bytes, stream, ...)                                \
    do {                                                                                           \
        CUDA_LIST(kernel);                                                                         \
        CUDA_LAUNCH_LISTED(kernel, grid, block, shared_bytes, stream, __VA_ARGS__);                \
    } while (0)

#ifdef MOED_CUSIM
/* cusim's cuda_runtime.h defines CUDA_SHARED. */
#define CUDA_LAUNCH_LISTED CUSIM_LAUNCH
#else
#define CUDA_LAUNCH_LISTED(kernel, grid, block, shared_bytes, stream, ...)                         \
    kernel<<<(grid), (block), (shared_bytes), (stream)>>>(__VA_ARGS__)
/* name: this block's dynamic shared memory, as an array of type. One a kernel. */
#define CUDA_SHARED(type, name)                                                                    \
    extern __shared__ __align__(16) unsigned char moed_shared_memory[];                            \
    type *name = (type *)moed_shared_memory
#endif

#endif
