/* See preload.h. */
#include "device/cuda/preload.h"

#include <cuda_runtime.h>

/* Is loaded, or compiled, at once: no other kernel is in this file. */
static __global__ void nothing(void) {}

cudaError_t cuda_preload_one(int *architecture, bool *compiles)
{
    struct cudaFuncAttributes a;
    cudaError_t code = cudaFuncGetAttributes(&a, reinterpret_cast<const void *>(nothing));

    if (code == cudaSuccess) {
        *architecture = a.ptxVersion;
        *compiles = a.binaryVersion > a.ptxVersion;
    }
    return code;
}

cudaError_t cuda_preload(unsigned *n_kernels, int *architecture)
{
    struct cudaFuncAttributes attributes;
    cudaError_t code = cudaSuccess;
    int least = 0;

    *n_kernels = 0;
    for (const struct cuda_listed *l = cuda_listed::first; l && code == cudaSuccess; l = l->next) {
        code = cudaFuncGetAttributes(&attributes, l->kernel);
        if (code == cudaSuccess && (*n_kernels == 0 || attributes.ptxVersion < least))
            least = attributes.ptxVersion;
        ++*n_kernels;
    }
    *architecture = least;
    return code;
}
