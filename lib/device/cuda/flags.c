/* See flags.h. What is called of the driver is declared here, as its ABI has it: its header is not needed to compile.
 *
 * Why these and not a copy of four bytes: the write is documented to come after a fence that covers what its stream wrote
 * before, for everybody in the system, whereas a copy is ordered within its stream alone, and nothing is said of when others
 * see its bytes and those before. And a wait there has to be: an event that another process recorded would do as well, but
 * one must be recorded before it is waited for, and memd records nothing before it begins to copy.
 *
 * The second version of these functions (CUDA 11.7) is enabled by every driver that has it; the attribute of the device that
 * could be asked speaks of the first. So they are looked for by their names, and tried. */
#include "flags.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

/* CU_STREAM_WAIT_VALUE_GEQ, on a circle; CU_STREAM_WRITE_VALUE_DEFAULT, with the fence; CUDA_SUCCESS */
enum { WAIT_REACHED = 0, WRITE_FENCED = 0, DRIVER_SUCCESS = 0 };

typedef int flag_function(cudaStream_t stream, unsigned long long address, uint32_t value, unsigned flags);

/* Of the process: there is one driver. */
static flag_function *write_value, *wait_value;

#ifdef MOED_CUSIM
/* tests/cusim stands in for the driver, which this module is linked with. */
static void *driver(void)
{
    return RTLD_DEFAULT;
}
#else
static void *driver(void)
{
    return dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL); /* the runtime has it; it stays loaded */
}
#endif

/* One number, written and waited for on a stream of its own. */
static bool try_them(void)
{
    uint32_t *flag = NULL;
    cudaStream_t stream = NULL;
    bool ok = cudaMalloc((void **)&flag, sizeof *flag) == cudaSuccess &&
              cudaMemset(flag, 0, sizeof *flag) == cudaSuccess && cudaDeviceSynchronize() == cudaSuccess &&
              cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess &&
              write_value(stream, (uintptr_t)flag, 1, WRITE_FENCED) == DRIVER_SUCCESS &&
              wait_value(stream, (uintptr_t)flag, 1, WAIT_REACHED) == DRIVER_SUCCESS;
    ok = cudaDeviceSynchronize() == cudaSuccess && ok;
    if (stream)
        cudaStreamDestroy(stream);
    cudaFree(flag);
    cudaGetLastError(); /* a device without them is not at fault */
    return ok;
}

bool cuda_flags_find(void)
{
    const char *wanted = getenv("MOED_DEVICE_FLAGS");
    if (wanted && strcmp(wanted, "0") == 0)
        return false;
    void *library = driver(); /* NULL: dlsym finds nothing of the driver in the program itself */
    write_value = (flag_function *)dlsym(library, "cuStreamWriteValue32_v2");
    wait_value = (flag_function *)dlsym(library, "cuStreamWaitValue32_v2");
    return write_value && wait_value && try_them();
}

static void check(struct device_stream *s, int code, const char *what, int line)
{
    /* the driver's codes are the runtime's, where they say the same */
    cuda_remember(s->device, (cudaError_t)code, what, __FILE__, line);
}

void cuda_flag_signal(struct device_stream *s, uint32_t *flag, uint32_t value)
{
    check(s, write_value(cuda_stream(s), (uintptr_t)flag, value, WRITE_FENCED), "cuStreamWriteValue32", __LINE__);
}

void cuda_flag_await(struct device_stream *s, const uint32_t *flag, uint32_t value)
{
    check(s, wait_value(cuda_stream(s), (uintptr_t)flag, value, WAIT_REACHED), "cuStreamWaitValue32", __LINE__);
}
