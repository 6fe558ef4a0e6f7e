/* Launching kernels, within the limits of the device. */
#include "runtime.h"

#include "block.h"
#include "limits.h"

#include <map>
#include <set>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

namespace
{
std::map<const void *, size_t> &shared_limits =
    *new std::map<const void *, size_t>; /* of kernels with another limit than the default */

/* Kernels that the driver has loaded. */
std::set<const void *> &loaded = *new std::set<const void *>;
bool flags_are_used; /* a stream of this process waits for a flag, or has */

/* With the lock. A kernel's first launch loads it, and may wait for the device then, also for a
 * stream that waits for a flag. */
void load(const struct cusim_kernel *kernel)
{
    if (!loaded.insert(kernel->function).second || !flags_are_used || loading_is_eager())
        return;
    fprintf(stderr,
            "cusim: kernel %s: its first launch comes after a wait for a flag, which may wait for "
            "the device: name the kernel to cudaFuncGetAttributes before\n",
            kernel->name);
    abort();
}

size_t shared_limit(const void *function)
{
    auto found = shared_limits.find(function);
    return found == shared_limits.end() ? (size_t)SHARED_BYTES : found->second;
}

/* 0 or too large: the launch fails, as on a device. */
bool fits(dim3 d, unsigned x, unsigned y, unsigned z)
{
    return d.x >= 1 && d.y >= 1 && d.z >= 1 && d.x <= x && d.y <= y && d.z <= z;
}

bool configuration_fits(dim3 grid, dim3 block, size_t shared_bytes, size_t limit)
{
    return fits(grid, GRID_X, GRID_YZ, GRID_YZ) && fits(block, BLOCK_XY, BLOCK_XY, BLOCK_Z) &&
           (size_t)block.x * block.y * block.z <= BLOCK_THREADS && shared_bytes <= limit;
}

/* A kernel's name as MOED_CUSIM_FAIL has it: of "(copy<float, 2>)" it is "copy". */
std::string plain_name(const char *name)
{
    name += *name == '(';
    return std::string(name, strcspn(name, "<)"));
}

cudaError_t run_kernel(const struct cusim_kernel *kernel, dim3 grid, dim3 block,
                       size_t shared_bytes)
{
    cudaError_t injected = injected_failure("kernel", cudaErrorLaunchFailure);
    if (injected == cudaSuccess)
        injected = injected_failure(plain_name(kernel->name).c_str(), cudaErrorLaunchFailure);
    if (injected == FAILURE_SKIP)
        return cudaSuccess;
    if (injected != cudaSuccess)
        return injected;
    unsigned long order;
    {
        std::lock_guard<std::mutex> guard(state_lock);
        order = random_number();
    }
    return block_run_grid(kernel, grid, block, shared_bytes, order);
}

cudaError_t launch(const std::shared_ptr<const cusim_kernel> &kernel, dim3 grid, dim3 block,
                   size_t shared_bytes, cudaStream_t stream)
{
    CALL("cudaLaunchKernel");
    size_t limit;
    {
        std::lock_guard<std::mutex> guard(state_lock);
        limit = shared_limit(kernel->function);
        load(kernel.get());
    }
    if (!configuration_fits(grid, block, shared_bytes, limit))
        return call_end(cudaErrorInvalidConfiguration);
    return call_end(
        enqueue(stream, {kernel->name,
                         [=] { return run_kernel(kernel.get(), grid, block, shared_bytes); },
                         {},
                         {}}));
}
} // namespace

void launch_flags_are_used()
{
    std::lock_guard<std::mutex> guard(state_lock);
    flags_are_used = true;
}

extern "C" {
void cusim_launch(const struct cusim_kernel *kernel, const dim3 *grid, const dim3 *block,
                  size_t shared_bytes, cudaStream_t stream)
{
    std::shared_ptr<const cusim_kernel> owned(new cusim_kernel(*kernel), [](const cusim_kernel *k) {
        k->destroy(k->call);
        delete k;
    });
    launch(owned, *grid, *block, shared_bytes, stream);
}

cudaError_t cudaFuncSetAttribute(const void *function, enum cudaFuncAttribute attribute, int value)
{
    CALL("cudaFuncSetAttribute");
    if (function == nullptr)
        return call_end(cudaErrorInvalidDeviceFunction);
    if (attribute == cudaFuncAttributePreferredSharedMemoryCarveout)
        return cudaSuccess;
    if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize || value < 0 ||
        value > SHARED_BYTES_OPTIN)
        return call_end(cudaErrorInvalidValue);
    std::lock_guard<std::mutex> guard(state_lock);
    shared_limits[function] = (size_t)value;
    return cudaSuccess;
}

cudaError_t cudaFuncSetCacheConfig(const void *function, enum cudaFuncCache config)
{
    CALL("cudaFuncSetCacheConfig");
    (void)config;
    return call_end(function == nullptr ? cudaErrorInvalidDeviceFunction : cudaSuccess);
}

cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *attributes, const void *function)
{
    CALL("cudaFuncGetAttributes");
    if (attributes == nullptr || function == nullptr)
        return call_end(cudaErrorInvalidValue);
    std::lock_guard<std::mutex> guard(state_lock);
    loaded.insert(function);
    *attributes = {};
    attributes->maxThreadsPerBlock = BLOCK_THREADS;
    attributes->numRegs = 32;
    attributes->binaryVersion = device_capability();
    attributes->ptxVersion =
        (int)setting("MOED_CUSIM_ARCHITECTURE", (unsigned)attributes->binaryVersion);
    attributes->maxDynamicSharedSizeBytes = (int)shared_limit(function);
    return cudaSuccess;
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, const void *function,
                                                          int block_size, size_t shared_bytes)
{
    CALL("cudaOccupancyMaxActiveBlocksPerMultiprocessor");
    if (blocks == nullptr || function == nullptr || block_size < 1)
        return call_end(cudaErrorInvalidValue);
    int by_threads = SM_THREADS / block_size;
    int by_shared = shared_bytes == 0
                        ? SM_BLOCKS
                        : (int)(SM_SHARED_BYTES / (shared_bytes + SHARED_BYTES_RESERVED));
    int fit = by_threads < by_shared ? by_threads : by_shared;
    *blocks = block_size > BLOCK_THREADS ? 0 : fit < SM_BLOCKS ? fit : (int)SM_BLOCKS;
    return cudaSuccess;
}
}
