/* See flags.h. The driver's functions are declared here, as its ABI has them, so that the driver's
 * header is not needed to compile.
 *
 * Why these functions. NVIDIA documents that the write comes after a system-wide fence, which
 * covers everything that its stream wrote before. A copy of four bytes is only ordered within its
 * stream: it is undefined when other processes see its bytes and the earlier ones. The reader has
 * to wait in its stream. An event of another process does not fit, because it must be recorded
 * before the reader waits for it, and memd records nothing before it begins to copy.
 *
 * Every driver that has the second version of these functions (CUDA 11.7) enables it; the attribute
 * of the device describes the first version. So cuda_flags_find looks them up by name, and tries
 * them. */
#include "flags.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

/* CU_STREAM_WAIT_VALUE_GEQ, on a circle; CU_STREAM_WRITE_VALUE_DEFAULT, with the fence;
 * CUDA_SUCCESS */
enum { WAIT_REACHED = 0, WRITE_FENCED = 0, DRIVER_SUCCESS = 0 };

typedef int flag_function(cudaStream_t stream, unsigned long long address, uint32_t value,
                          unsigned flags);

/* One pair for the process: there is one driver. */
static flag_function *write_value, *wait_value;

#ifdef MOED_CUSIM
/* This module is linked with tests/cusim, which stands in for the driver. */
static void *driver(void)
{
    return RTLD_DEFAULT;
}
#else
static void *driver(void)
{
    return dlopen("libcuda.so.1",
                  RTLD_NOW | RTLD_LOCAL); /* the runtime has loaded it; it stays loaded */
}
#endif

/* Writes a flag and waits for it, on a stream of its own. */
static bool try_functions(void)
{
    uint32_t *flag = NULL;
    cudaStream_t stream = NULL;
    bool ok = cudaMalloc((void **)&flag, sizeof *flag) == cudaSuccess &&
              cudaMemset(flag, 0, sizeof *flag) == cudaSuccess &&
              cudaDeviceSynchronize() == cudaSuccess &&
              cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess &&
              write_value(stream, (uintptr_t)flag, 1, WRITE_FENCED) == DRIVER_SUCCESS &&
              wait_value(stream, (uintptr_t)flag, 1, WAIT_REACHED) == DRIVER_SUCCESS;
    ok = cudaDeviceSynchronize() == cudaSuccess && ok;
    if (stream)
        cudaStreamDestroy(stream);
    cudaFree(flag);
    cudaGetLastError(); /* a device without flags is no error */
    return ok;
}

bool cuda_flags_find(void)
{
    const char *wanted = getenv("MOED_DEVICE_FLAGS");
    if (wanted && strcmp(wanted, "0") == 0)
        return false;
    void *library = driver(); /* NULL: dlsym then searches the program, which has none of these */
    write_value = (flag_function *)dlsym(library, "cuStreamWriteValue32_v2");
    wait_value = (flag_function *)dlsym(library, "cuStreamWaitValue32_v2");
    return write_value && wait_value && try_functions();
}

static void check(struct device_stream *s, int code, const char *what, int line)
{
    /* codes with the same meaning are equal in driver and runtime */
    cuda_remember(s->device, (cudaError_t)code, what, __FILE__, line);
}

void cuda_flag_signal(struct device_stream *s, uint32_t *flag, uint32_t value)
{
    check(s, write_value(cuda_stream(s), (uintptr_t)flag, value, WRITE_FENCED),
          "cuStreamWriteValue32", __LINE__);
}

void cuda_flag_await(struct device_stream *s, const uint32_t *flag, uint32_t value)
{
    check(s, wait_value(cuda_stream(s), (uintptr_t)flag, value, WAIT_REACHED),
          "cuStreamWaitValue32", __LINE__);
}
