/* See preload.h. */
#include "device/cuda/preload.h"

#include "device/cuda/context.h"

#include <cuda_runtime.h>

enum error_code cuda_preload(struct device *d, struct error *e)
{
    struct cudaFuncAttributes unused;

    if (!cuda_enter(d))
        return cuda_first_error(d, e);
    for (const struct cuda_listed *l = cuda_listed::first; l; l = l->next) {
        cudaError_t code = cudaFuncGetAttributes(&unused, l->kernel);
        if (code != cudaSuccess)
            return CUDA_EXPLAIN(e, code, "cudaFuncGetAttributes");
    }
    return ERROR_OK;
}
