/* The AVX-512 build: F, BW, VL, DQ and VNNI. Runs only on CPUs that have them. With MOED_SIMDE it
 * becomes kernels_avx512_simde, for tests on any CPU with AVX2. */
#if defined(__x86_64__)

#include "kernels/lanes_avx512.h"

#include "kernels/multiply.inc.c"
#include "kernels/ops.inc.c"

#if defined(MOED_SIMDE)
extern const struct kernels kernels_avx512_simde;
const struct kernels kernels_avx512_simde = KERNELS_TABLE;
#else
const struct kernels kernels_avx512 = KERNELS_TABLE;
#endif

#else
typedef int kernels_avx512_is_for_x86_64; /* a file must not be empty */
#endif
