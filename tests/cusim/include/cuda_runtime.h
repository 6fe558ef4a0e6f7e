/* cusim: the CUDA runtime and, in C++, the language of kernels (see ../README.md). */
#ifndef CUSIM_CUDA_RUNTIME_H
#define CUSIM_CUDA_RUNTIME_H

#include "cuda_runtime_api.h"

#ifdef __cplusplus
#include "cusim/kernel.h"
#include "cusim/launch.h"

/* The overloads of CUDA's C++ header that take a kernel or a typed pointer. */
template <class T> static inline cudaError_t cudaMalloc(T **memory, size_t bytes)
{
    void *raw = nullptr;
    cudaError_t result = cudaMalloc(&raw, bytes);
    if (result == cudaSuccess)
        *memory = static_cast<T *>(raw);
    return result;
}
template <class T> static inline cudaError_t cudaMallocHost(T **memory, size_t bytes)
{
    void *raw = nullptr;
    cudaError_t result = cudaMallocHost(&raw, bytes);
    if (result == cudaSuccess)
        *memory = static_cast<T *>(raw);
    return result;
}
template <class T> static inline cudaError_t cudaHostAlloc(T **memory, size_t bytes, unsigned flags)
{
    void *raw = nullptr;
    cudaError_t result = cudaHostAlloc(&raw, bytes, flags);
    if (result == cudaSuccess)
        *memory = static_cast<T *>(raw);
    return result;
}
template <class... P>
static inline cudaError_t cudaFuncSetAttribute(void (*kernel)(P...),
                                               enum cudaFuncAttribute attribute, int value)
{
    return cudaFuncSetAttribute(reinterpret_cast<const void *>(kernel), attribute, value);
}
template <class... P>
static inline cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *attributes,
                                                void (*kernel)(P...))
{
    return cudaFuncGetAttributes(attributes, reinterpret_cast<const void *>(kernel));
}
template <class... P>
static inline cudaError_t
cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, void (*kernel)(P...), int block_size,
                                              size_t shared_bytes)
{
    return cudaOccupancyMaxActiveBlocksPerMultiprocessor(
        blocks, reinterpret_cast<const void *>(kernel), block_size, shared_bytes);
}
#endif

#endif
