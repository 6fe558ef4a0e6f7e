/* Devices: MOED_CUSIM_DEVICES of the same kind. */
#include "runtime.h"

#include "limits.h"
#include "memory.h"

#include <stdio.h>
#include <string.h>

namespace
{
thread_local int device_now;

bool exists(int device)
{
    return device >= 0 && device < device_count();
}

int attribute_of(enum cudaDeviceAttr attribute)
{
    switch (attribute) {
    case cudaDevAttrMaxThreadsPerBlock:
        return BLOCK_THREADS;
    case cudaDevAttrMaxBlockDimX:
    case cudaDevAttrMaxBlockDimY:
        return BLOCK_XY;
    case cudaDevAttrMaxBlockDimZ:
        return BLOCK_Z;
    case cudaDevAttrMaxGridDimX:
        return GRID_X;
    case cudaDevAttrMaxGridDimY:
    case cudaDevAttrMaxGridDimZ:
        return GRID_YZ;
    case cudaDevAttrMaxSharedMemoryPerBlock:
        return SHARED_BYTES;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
        return SHARED_BYTES_OPTIN;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor:
        return SM_SHARED_BYTES;
    case cudaDevAttrComputeMode:
        return (int)setting("MOED_CUSIM_COMPUTE_MODE", cudaComputeModeDefault);
    case cudaDevAttrMpsEnabled:
        return setting("MOED_CUSIM_MPS", 0) != 0;
    case cudaDevAttrKernelExecTimeout:
        return setting("MOED_CUSIM_DISPLAY", 0) != 0;
    case cudaDevAttrTotalConstantMemory:
        return 64 << 10;
    case cudaDevAttrWarpSize:
        return warpSize;
    case cudaDevAttrMaxRegistersPerBlock:
    case cudaDevAttrMaxRegistersPerMultiprocessor:
        return SM_REGISTERS;
    case cudaDevAttrClockRate:
        return 1000000; /* kHz */
    case cudaDevAttrMemoryClockRate:
        return 1000000;
    case cudaDevAttrGlobalMemoryBusWidth:
        return 64;
    case cudaDevAttrMultiProcessorCount:
        return MULTIPROCESSORS;
    case cudaDevAttrL2CacheSize:
        return 4 << 20;
    case cudaDevAttrMaxThreadsPerMultiProcessor:
        return SM_THREADS;
    case cudaDevAttrMaxBlocksPerMultiprocessor:
        return SM_BLOCKS;
    case cudaDevAttrAsyncEngineCount:
        return 2;
    case cudaDevAttrComputeCapabilityMajor:
        return device_capability() / 10;
    case cudaDevAttrComputeCapabilityMinor:
        return device_capability() % 10;
    case cudaDevAttrCanMapHostMemory:
    case cudaDevAttrConcurrentKernels:
    case cudaDevAttrUnifiedAddressing:
    case cudaDevAttrStreamPrioritiesSupported:
    case cudaDevAttrCanUseHostPointerForRegisteredMem:
    case cudaDevAttrHostRegisterSupported:
    case cudaDevAttrIpcEventSupport:
        return 1;
    case cudaDevAttrHostRegisterReadOnlySupported:
        return pins_read_only();
    case cudaDevAttrIntegrated:
    case cudaDevAttrPageableMemoryAccess:
    case cudaDevAttrCooperativeLaunch:
        return 0;
    }
    return -1;
}

/* Fills the properties from the attributes: each attribute is there under another name. */
void fill_properties(struct cudaDeviceProp *p)
{
    p->sharedMemPerBlock = SHARED_BYTES;
    p->sharedMemPerBlockOptin = SHARED_BYTES_OPTIN;
    p->sharedMemPerMultiprocessor = SM_SHARED_BYTES;
    p->regsPerBlock = p->regsPerMultiprocessor = SM_REGISTERS;
    p->warpSize = warpSize;
    p->maxThreadsPerBlock = BLOCK_THREADS;
    p->maxThreadsDim[0] = p->maxThreadsDim[1] = BLOCK_XY;
    p->maxThreadsDim[2] = BLOCK_Z;
    p->maxGridSize[0] = GRID_X;
    p->maxGridSize[1] = p->maxGridSize[2] = GRID_YZ;
    p->totalConstMem = 64 << 10;
    p->major = device_capability() / 10;
    p->minor = device_capability() % 10;
    p->multiProcessorCount = MULTIPROCESSORS;
    p->maxThreadsPerMultiProcessor = SM_THREADS;
    p->maxBlocksPerMultiProcessor = SM_BLOCKS;
    p->memoryBusWidth = 64;
    p->l2CacheSize = 4 << 20;
    p->asyncEngineCount = 2;
    p->canMapHostMemory = p->concurrentKernels = p->unifiedAddressing =
        p->streamPrioritiesSupported = 1;
    p->hostRegisterSupported = p->ipcEventSupported = 1;
    p->hostRegisterReadOnlySupported = pins_read_only();
    p->canUseHostPointerForRegisteredMem = 1;
}
} // namespace

int current_device()
{
    return device_now;
}

int device_count()
{
    return (int)setting("MOED_CUSIM_DEVICES", 1);
}

bool pins_read_only()
{
    return setting("MOED_CUSIM_READ_ONLY", 1) != 0;
}

int device_capability()
{
    return (int)setting("MOED_CUSIM_CAPABILITY", CAPABILITY);
}

extern "C" {
cudaError_t cudaDriverGetVersion(int *version)
{
    if (version == nullptr)
        return call_end(cudaErrorInvalidValue);
    *version = (int)setting("MOED_CUSIM_DRIVER", CUDART_VERSION); /* 0: no driver, and no error */
    return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int *version)
{
    if (version == nullptr)
        return call_end(cudaErrorInvalidValue);
    *version = CUDART_VERSION;
    return cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int *count)
{
    CALL("cudaGetDeviceCount");
    if (count == nullptr)
        return call_end(cudaErrorInvalidValue);
    *count = device_count();
    return cudaSuccess;
}

cudaError_t cudaSetDevice(int device)
{
    CALL("cudaSetDevice");
    if (!exists(device))
        return call_end(cudaErrorInvalidDevice);
    device_now = device;
    return cudaSuccess;
}

cudaError_t cudaGetDevice(int *device)
{
    CALL("cudaGetDevice");
    if (device == nullptr)
        return call_end(cudaErrorInvalidValue);
    *device = device_now;
    return cudaSuccess;
}

cudaError_t cudaInitDevice(int device, unsigned device_flags, unsigned flags)
{
    CALL("cudaInitDevice");
    (void)device_flags, (void)flags;
    return call_end(exists(device) ? cudaSuccess : cudaErrorInvalidDevice);
}

cudaError_t cudaSetDeviceFlags(unsigned flags)
{
    CALL("cudaSetDeviceFlags");
    (void)flags;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int device)
{
    CALL("cudaDeviceGetAttribute");
    if (value == nullptr || attribute_of(attribute) < 0)
        return call_end(cudaErrorInvalidValue);
    if (!exists(device))
        return call_end(cudaErrorInvalidDevice);
    *value = attribute_of(attribute);
    return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *properties, int device)
{
    CALL("cudaGetDeviceProperties");
    if (properties == nullptr)
        return call_end(cudaErrorInvalidValue);
    if (!exists(device))
        return call_end(cudaErrorInvalidDevice);
    *properties = {};
    fill_properties(properties);
    snprintf(properties->name, sizeof properties->name, "cusim");
    memcpy(properties->uuid.bytes, "cusim", 5);
    properties->uuid.bytes[15] = (char)device;
    properties->totalGlobalMem = (size_t)memory_total();
    properties->pciBusID = device + 1;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetPCIBusId(char *id, int bytes, int device)
{
    CALL("cudaDeviceGetPCIBusId");
    if (id == nullptr || bytes < 13)
        return call_end(cudaErrorInvalidValue);
    if (!exists(device))
        return call_end(cudaErrorInvalidDevice);
    snprintf(id, (size_t)bytes, "0000:%02x:00.0", (unsigned)device + 1);
    return cudaSuccess;
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest)
{
    CALL("cudaDeviceGetStreamPriorityRange");
    if (least != nullptr)
        *least = 0;
    if (greatest != nullptr)
        *greatest = -5;
    return cudaSuccess;
}

cudaError_t cudaDeviceReset(void)
{
    CALL("cudaDeviceReset");
    std::unique_lock<std::mutex> lock(state_lock);
    cudaError_t error = stream_wait_for_all(lock);
    if (error == cudaSuccess)
        memory_check_freed(current_device());
    return call_end(error);
}
}
