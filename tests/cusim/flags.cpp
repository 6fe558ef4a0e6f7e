/* Flags: numbers in device memory that one stream writes and another waits for, of this or of
 * another process. The functions are the driver library's, not the runtime's; callers find them by
 * dlsym, here as with a real driver. */
#include "runtime.h"

#include <stdint.h>

namespace
{
enum { WAIT_GEQ = 0, WRITE_DEFAULT = 0 };

/* A flag: an aligned number of device memory, own or imported. */
uint32_t *flag_at(unsigned long long address)
{
    uint32_t *flag = (uint32_t *)(uintptr_t)address;
    return address % sizeof *flag == 0 && memory_kind_of(flag, sizeof *flag) == MEMORY_DEVICE
               ? flag
               : nullptr;
}

bool reached(const uint32_t *flag, uint32_t value)
{
    memory_protect(false); /* a waiting stream reads the flag at any time */
    return (int32_t)(__atomic_load_n(flag, __ATOMIC_ACQUIRE) - value) >= 0;
}

/* MOED_CUSIM_FLAGS=0: a driver without flags. */
bool there()
{
    return setting("MOED_CUSIM_FLAGS", 1) != 0;
}
} // namespace

extern "C" {
int cuStreamWriteValue32_v2(cudaStream_t stream, unsigned long long address, uint32_t value,
                            unsigned flags);
int cuStreamWaitValue32_v2(cudaStream_t stream, unsigned long long address, uint32_t value,
                           unsigned flags);

int cuStreamWriteValue32_v2(cudaStream_t stream, unsigned long long address, uint32_t value,
                            unsigned flags)
{
    CALL("cuStreamWriteValue32");
    uint32_t *flag = flag_at(address);
    if (!there())
        return call_end(cudaErrorNotSupported);
    if (flag == nullptr || flags != WRITE_DEFAULT)
        return call_end(cudaErrorInvalidValue);
    return call_end(
        enqueue(stream, {"a flag's write",
                         [=] {
                             cudaError_t injected = injected_failure("flag", cudaErrorUnknown);
                             if (injected != cudaSuccess)
                                 return injected == FAILURE_SKIP ? cudaSuccess : injected;
                             __atomic_store_n(flag, value, __ATOMIC_RELEASE);
                             return cudaSuccess;
                         },
                         {},
                         {}}));
}

int cuStreamWaitValue32_v2(cudaStream_t stream, unsigned long long address, uint32_t value,
                           unsigned flags)
{
    CALL("cuStreamWaitValue32");
    const uint32_t *flag = flag_at(address);
    if (!there())
        return call_end(cudaErrorNotSupported);
    if (flag == nullptr || flags != WAIT_GEQ)
        return call_end(cudaErrorInvalidValue);
    launch_flags_are_used();
    return call_end(
        enqueue(stream, {"a wait for a flag", {}, {}, [=] { return reached(flag, value); }}));
}
}
