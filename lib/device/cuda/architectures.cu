/* See architectures.h. */
#include "architectures.h"

#ifdef __CUDA_ARCH_LIST__
static const int list[] = {__CUDA_ARCH_LIST__}; /* 750 for 7.5, ascending */
#endif

int cuda_best_architecture(int capability)
{
    int best = capability; /* simulated */
#ifdef __CUDA_ARCH_LIST__
    best = 0;
    for (int architecture : list)
        if (architecture / 10 <= capability)
            best = architecture / 10;
#endif
    return best;
}

int cuda_least_architecture(void)
{
#ifdef __CUDA_ARCH_LIST__
    return list[0] / 10;
#else
    return 0; /* simulated */
#endif
}
