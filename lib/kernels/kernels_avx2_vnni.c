/* The AVX2 build with AVX-VNNI's vpdpbusd: Intel's 12th generation and later, Zen 5. Runs only on
 * CPUs that have it. With MOED_EMULATE_VNNI it becomes kernels_avx2_vnni_emulated, for tests on any
 * CPU with AVX2. */
#if defined(__x86_64__)

#define MOED_AVX_VNNI
#include "kernels/lanes_avx2.h"

#include "kernels/multiply.inc.c"
#include "kernels/ops.inc.c"

#if defined(MOED_EMULATE_VNNI)
extern const struct kernels kernels_avx2_vnni_emulated;
const struct kernels kernels_avx2_vnni_emulated = KERNELS_TABLE;
#else
const struct kernels kernels_avx2_vnni = KERNELS_TABLE;
#endif

#else
typedef int kernels_avx2_vnni_is_for_x86_64; /* a file must not be empty */
#endif
