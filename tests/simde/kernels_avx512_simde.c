/* The AVX-512 kernels with SIMDe's intrinsics, as kernels_avx512_simde. */
#define MOED_SIMDE
#include "kernels/kernels_avx512.c"
