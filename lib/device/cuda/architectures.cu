/* See architectures.h. */
#include "architectures.h"

int cuda_least_architecture(void)
{
#ifdef __CUDA_ARCH_LIST__
    static const int list[] = {__CUDA_ARCH_LIST__}; /* 750 for 7.5, ascending */
    return list[0] / 10;
#else
    return 0; /* simulated */
#endif
}
