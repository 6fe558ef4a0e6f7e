/* Kernels that begin before the kernel in front of them in the stream has ended: programmatic
 * dependent launch, of devices from compute capability 9.0.
 *
 * Such a kernel is launched with CUDA_LAUNCH_EARLY. Its blocks may start as soon as all blocks of
 * the kernel before have started, so that starting them takes no time between the two kernels.
 *
 * 1. Every thread calls cuda_await_previous, whatever else it does: after that call everything
 *    before in the stream is done. A kernel that ends without the call lets the kernel behind it
 *    begin too early.
 * 2. Before that call a thread reads only weights, and writes nothing.
 * 3. What a kernel before wrote is read by cuda_read or ordinary loads. __ldg is for what nobody
 *    writes while the kernel runs: the compiler may move it in front of the call, and the first
 *    cache may answer with what was there before.
 *
 * On other devices, and where MOED_DEVICE_PDL=0, the launch is an ordinary one and the call does
 * nothing. cusim ends the process where a thread breaks the first rule. */
#ifndef MOED_DEVICE_CUDA_DEPENDENT_CUH
#define MOED_DEVICE_CUDA_DEPENDENT_CUH

#include "device/cuda/launch.h"
#include "device/cuda/stream.h"

static __device__ __forceinline__ void cuda_await_previous(void)
{
#ifdef MOED_CUSIM
    cusim_await_previous();
#elif defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;");
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

/* Reads what a kernel before may have written (rule 3). */
template <class T> static __device__ __forceinline__ T cuda_read(const T *p)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    size_t from = __cvta_generic_to_global(p);
    T value;

    if constexpr (sizeof(T) == 16) {
        uint32_t *w = (uint32_t *)&value;
        asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(w[0]), "=r"(w[1]), "=r"(w[2]), "=r"(w[3])
                     : "l"(from));
    } else if constexpr (sizeof(T) == 8) {
        uint32_t *w = (uint32_t *)&value;
        asm volatile("ld.global.v2.u32 {%0, %1}, [%2];" : "=r"(w[0]), "=r"(w[1]) : "l"(from));
    } else if constexpr (sizeof(T) == 4) {
        asm volatile("ld.global.u32 %0, [%1];" : "=r"(*(uint32_t *)&value) : "l"(from));
    } else {
        asm volatile("ld.global.u16 %0, [%1];" : "=h"(*(uint16_t *)&value) : "l"(from));
    }
    return value;
#else
    return __ldg(p);
#endif
}

#define CUDA_LAUNCH_EARLY(kernel, grid, block, shared_bytes, s, ...)                               \
    do {                                                                                           \
        CUDA_LIST(kernel);                                                                         \
        CUDA_LAUNCH_EARLY_LISTED(kernel, grid, block, shared_bytes, s, __VA_ARGS__);               \
    } while (0)

#ifdef MOED_CUSIM
#define CUDA_LAUNCH_EARLY_LISTED(kernel, grid, block, shared_bytes, s, ...)                        \
    CUSIM_LAUNCH_DEPENDENT(kernel, grid, block, shared_bytes, cuda_stream(s), __VA_ARGS__)
#else
template <class T> struct cuda_same {
    typedef T type;
};

/* Converts the arguments to the kernel's parameters, as <<< >>> does. */
template <class... P>
static inline void cuda_launch_early(void (*kernel)(P...), dim3 grid, dim3 block,
                                     size_t shared_bytes, struct device_stream *s,
                                     typename cuda_same<P>::type... arguments)
{
    cudaLaunchAttribute early = {};
    cudaLaunchConfig_t config = {};

    early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    early.val.programmaticStreamSerializationAllowed = 1;
    config.gridDim = grid;
    config.blockDim = block;
    config.dynamicSmemBytes = shared_bytes;
    config.stream = cuda_stream(s);
    config.attrs = &early;
    config.numAttrs = s->device->dependent_launches ? 1 : 0;
    (void)cudaLaunchKernelEx(&config, kernel, arguments...); /* cuda_check reads the error */
}

#define CUDA_LAUNCH_EARLY_LISTED(kernel, grid, block, shared_bytes, s, ...)                        \
    cuda_launch_early((kernel), (grid), (block), (shared_bytes), (s), __VA_ARGS__)
#endif

#endif
