/* cusim: launching a kernel without <<< >>>. */
#ifndef CUSIM_LAUNCH_H
#define CUSIM_LAUNCH_H

#include "../cuda_runtime_api.h"
#include "kernel.h"

#include <tuple>

extern "C" {
/* A kernel with its arguments. invoke runs one thread of it; call is destroyed after its last
 * use. */
struct cusim_kernel {
    const char *name;
    const void *function;
    bool dependent; /* by CUSIM_LAUNCH_DEPENDENT */
    void *call;
    void (*invoke)(const void *call);
    void (*destroy)(void *call);
};
/* Takes kernel.call. */
void cusim_launch(const struct cusim_kernel *kernel, const dim3 *grid, const dim3 *block,
                  size_t shared_bytes, cudaStream_t stream);
}

namespace cusim
{
template <class... P> struct kernel_call {
    void (*kernel)(P...);
    std::tuple<P...> arguments;

    static void invoke(const void *call)
    {
        const kernel_call *c = static_cast<const kernel_call *>(call);
        std::apply(c->kernel, c->arguments);
    }
    static void destroy(void *call)
    {
        delete static_cast<kernel_call *>(call);
    }
};

template <class T> struct same {
    typedef T type;
};

/* Converts the arguments to the kernel's parameters here, as <<< >>> does. */
template <class... P>
void launch(bool dependent, const char *name, void (*kernel)(P...), dim3 grid, dim3 block,
            size_t shared_bytes, cudaStream_t stream, typename same<P>::type... arguments)
{
    typedef kernel_call<P...> call;
    cusim_kernel k = {name,         reinterpret_cast<const void *>(kernel),
                      dependent,    new call{kernel, std::tuple<P...>(arguments...)},
                      call::invoke, call::destroy};
    cusim_launch(&k, &grid, &block, shared_bytes, stream);
}
} // namespace cusim

#define CUSIM_LAUNCH(kernel, grid, block, shared_bytes, stream, ...)                               \
    cusim::launch(false, #kernel, kernel, (grid), (block), (shared_bytes),                         \
                  (stream)__VA_OPT__(, ) __VA_ARGS__)
/* A programmatic dependent launch: each thread has to call cusim_await_previous. */
#define CUSIM_LAUNCH_DEPENDENT(kernel, grid, block, shared_bytes, stream, ...)                     \
    cusim::launch(true, #kernel, kernel, (grid), (block), (shared_bytes),                          \
                  (stream)__VA_OPT__(, ) __VA_ARGS__)
#define CUDA_SHARED(type, name) type *name = static_cast<type *>(cusim_here.shared)

#endif
