/* The AVX2 build, with FMA and F16C. Runs only on CPUs that have them. */
#if defined(__x86_64__)

#include "kernels/lanes_avx2.h"

#include "kernels/multiply.inc.c"
#include "kernels/ops.inc.c"

const struct kernels kernels_avx2 = KERNELS_TABLE;

#else
typedef int kernels_avx2_is_for_x86_64; /* a file must not be empty */
#endif
