/* UNROLL before a loop: as many copies of its body as it has steps. Private to lib/kernels. */
#ifndef MOED_KERNELS_UNROLL_H
#define MOED_KERNELS_UNROLL_H

#if defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif

#endif
