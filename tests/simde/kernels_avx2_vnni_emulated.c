/* The kernels of AVX-VNNI without its instruction, as kernels_avx2_vnni_emulated. */
#define MOED_EMULATE_VNNI
#include "kernels/kernels_avx2_vnni.c"
