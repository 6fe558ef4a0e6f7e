/* Loads every kernel of the module when a process opens a device to compute on it.
 *
 * By default the driver loads a kernel at its first launch, and may wait for the whole device then.
 * A stream that waits for a flag (flags.h) would hold up that launch, and with it the thread that
 * must end the wait. CUDA_MODULE_LOADING=EAGER would load all kernels of the process, which are
 * cuBLAS's too: hundreds of megabytes of the device's memory. cudaFuncGetAttributes loads one
 * kernel (CUDA programming guide, "Lazy Loading").
 *
 * A kernel is listed before main by the code that launches it: CUDA_LAUNCH and CUDA_LAUNCH_EARLY
 * take constants, not pointers. */
#ifndef MOED_DEVICE_CUDA_PRELOAD_H
#define MOED_DEVICE_CUDA_PRELOAD_H

#include <cuda_runtime_api.h>
#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Loads the listed kernels into the calling thread's context. architecture: the value of
 * __CUDA_ARCH__ / 10 that their code was compiled with, the least of all kernels. It may be less
 * than what the device could run: a list such as "75;86-real" has for a device of 9.0 only the PTX
 * of 7.5, which the driver compiles. */
cudaError_t cuda_preload(unsigned *n_kernels, int *architecture);

/* Loads one kernel, which does nothing, to learn whether the module has code for the calling
 * thread's device. compiles: the driver compiles PTX of an older architecture, because there is no
 * other. It keeps the result in a cache, but the first time cuda_preload takes minutes. PTX of the
 * device's own architecture is not noticed. architecture: as cuda_preload's. */
cudaError_t cuda_preload_one(int *architecture, bool *compiles);

#ifdef __cplusplus
}

/* A kernel of the list, which grows only before main. */
struct cuda_listed {
    static inline const cuda_listed *first; /* NULL before any constructor runs */
    const void *kernel;
    const cuda_listed *next;

    explicit cuda_listed(const void *listed_kernel) : kernel(listed_kernel), next(first)
    {
        first = this;
    }
};

template <auto KERNEL> struct cuda_list_kernel {
    static cuda_listed entry;
};
template <auto KERNEL>
cuda_listed cuda_list_kernel<KERNEL>::entry{reinterpret_cast<const void *>(KERNEL)};

/* Lists a kernel; does nothing when it runs. A template with commas in parentheses. */
#define CUDA_LIST(kernel) ((void)&cuda_list_kernel<(kernel)>::entry)
#endif
#endif
