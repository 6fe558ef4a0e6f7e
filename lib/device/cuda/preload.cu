/* See preload.h. */
#include "device/cuda/preload.h"

#include <cuda_runtime.h>

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
