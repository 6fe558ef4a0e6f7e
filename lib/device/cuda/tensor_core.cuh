/* Products of small matrices by tensor cores, and the copies that feed them: the instructions of
 * the PTX manual (sections "Warp Level Matrix Instructions" and "cp.async"), each as a function.
 * All 32 lanes of a warp call a matrix function together. With lane = 4 * group + place:
 *
 *   A, 16 rows x 16 columns of int8    word i: row group + 8 * i, columns 4 * place to + 3
 *   B, 16 x 8 columns of int8          one word: rows 4 * place to + 3 of column group
 *   C and D, 16 rows x 8 of int32      i: row group + 8 * (i / 2), column 2 * place + i % 2
 *   A, 16 rows x 16 columns of halves  word i: row group + 8 * (i % 2), columns 2 * place +
 *                                      8 * (i / 2) and the next
 *   B, 16 x 8 columns of halves        word i: rows 2 * place + 8 * i and the next, of column group
 *   C and D, 16 rows x 8 of float32    as of int32
 *   BF16                               as halves
 *
 * In memory B is transposed: a row of 16 bytes is a column of the matrix.
 *
 * Devices from compute capability 7.5 on have matrix functions; tests/cusim simulates them. */
#ifndef MOED_DEVICE_CUDA_TENSOR_CORE_CUH
#define MOED_DEVICE_CUDA_TENSOR_CORE_CUH

#include "device/cuda/launch.h"

#include <stdint.h>

/* Device code for a device with matrix functions. */
#if defined(MOED_CUSIM) || (defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 750)
#define TENSOR_CORE_CODE 1
#else
#define TENSOR_CORE_CODE 0
#endif
/* The same, with those of BF16. */
#if defined(MOED_CUSIM) || (defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800)
#define TENSOR_CORE_BF16 1
#else
#define TENSOR_CORE_BF16 0
#endif

/* ldmatrix: four matrices of 8 rows x 16 bytes from shared memory. Lane l has the address of row
 * l % 8 of matrix l / 8, aligned to 16 bytes; word i is bytes 4 * place to + 3 of row `group` of
 * matrix i. */
static __device__ __forceinline__ void tensor_load_4(const void *row, uint32_t words[4])
{
#if defined(MOED_CUSIM)
    cusim_load_matrices_4(row, words);
#elif TENSOR_CORE_CODE
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
                 : "r"((unsigned)__cvta_generic_to_shared(row)));
#endif
}

/* As tensor_load_4, with each matrix of 8 x 8 halves transposed: word i is rows 2 * place and the
 * next, of column `group`, of matrix i. */
static __device__ __forceinline__ void tensor_load_4_transposed(const void *row, uint32_t words[4])
{
#if defined(MOED_CUSIM)
    cusim_load_matrices_4_transposed(row, words);
#elif TENSOR_CORE_CODE
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
                 : "r"((unsigned)__cvta_generic_to_shared(row)));
#endif
}

/* d += A B of halves. Products are exact, sums float32, in the device's own order and rounding.
 * Before 8.0 the instruction has 8 columns of A. */
static __device__ __forceinline__ void tensor_multiply_f16(const uint32_t a[4], uint32_t b0,
                                                           uint32_t b1, float d[4])
{
#if defined(MOED_CUSIM)
    const uint32_t b[2] = {b0, b1};
    cusim_multiply_m16n8k16_f16(a, b, d);
#elif TENSOR_CORE_CODE && __CUDA_ARCH__ >= 800
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#elif TENSOR_CORE_CODE
#pragma unroll
    for (int half = 0; half < 2; half++)
        asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, "
            "{%0, %1, %2, %3};"
            : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
            : "r"(a[2 * half]), "r"(a[2 * half + 1]), "r"(half ? b1 : b0));
#endif
}

/* As tensor_multiply_f16, of BF16; from compute capability 8.0 on. */
static __device__ __forceinline__ void tensor_multiply_bf16(const uint32_t a[4], uint32_t b0,
                                                            uint32_t b1, float d[4])
{
#if defined(MOED_CUSIM)
    const uint32_t b[2] = {b0, b1};
    cusim_multiply_m16n8k16_bf16(a, b, d);
#elif TENSOR_CORE_BF16
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#endif
}

/* d = A B + c of signed bytes; the sums wrap. Before 8.0 the instruction has 8 rows. */
static __device__ __forceinline__ void tensor_multiply_s8(const uint32_t a[2], uint32_t b,
                                                          const int c[4], int d[4])
{
#if defined(MOED_CUSIM)
    cusim_multiply_m16n8k16_s8(a, b, c, d);
#elif TENSOR_CORE_CODE && __CUDA_ARCH__ >= 800
    asm("mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5}, {%6}, "
        "{%7, %8, %9, %10};"
        : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(b), "r"(c[0]), "r"(c[1]), "r"(c[2]), "r"(c[3]));
#elif TENSOR_CORE_CODE
#pragma unroll
    for (int half = 0; half < 2; half++)
        asm("mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32 {%0, %1}, {%2}, {%3}, {%4, %5};"
            : "=r"(d[2 * half]), "=r"(d[2 * half + 1])
            : "r"(a[half]), "r"(b), "r"(c[2 * half]), "r"(c[2 * half + 1]));
#endif
}

/* Starts a copy of 4, 8 or 16 bytes of device memory to shared memory, both aligned to as many.
 * Before 8.0 it is done at once. */
template <int BYTES> static __device__ __forceinline__ void tensor_copy(void *to, const void *from)
{
    static_assert(BYTES == 4 || BYTES == 8 || BYTES == 16, "cp.async has these sizes");
#if defined(MOED_CUSIM)
    cusim_copy_async(to, from, BYTES);
#elif defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    unsigned shared = (unsigned)__cvta_generic_to_shared(to);
    size_t global = __cvta_generic_to_global(from);
    if (BYTES == 16) /* around the first-level cache, which only whole 16 bytes can */
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared), "l"(global)
                     : "memory");
    else
        asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(shared), "l"(global),
                     "n"(BYTES)
                     : "memory");
#else
    if (BYTES == 16)
        *(uint4 *)to = __ldg((const uint4 *)from);
    else if (BYTES == 8)
        *(uint2 *)to = __ldg((const uint2 *)from);
    else
        *(uint32_t *)to = __ldg((const uint32_t *)from);
#endif
}

/* This thread's copies since the last call are a group. */
static __device__ __forceinline__ void tensor_copy_group()
{
#if defined(MOED_CUSIM)
    cusim_copy_commit();
#elif defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

/* Waits until at most PENDING of this thread's last groups are under way. */
template <int PENDING> static __device__ __forceinline__ void tensor_copy_wait()
{
#if defined(MOED_CUSIM)
    cusim_copy_wait(PENDING);
#elif defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
#endif
}

/* Waits for all of this thread's copies, also those that are in no group. */
static __device__ __forceinline__ void tensor_copy_wait_all()
{
#if defined(MOED_CUSIM)
    cusim_copy_wait_all();
#elif defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_all;" ::: "memory");
#endif
}

/* x, in a register: the compiler cannot compute it again where registers are few. All lanes of the
 * warp call it. */
static __device__ __forceinline__ uint32_t tensor_keep(uint32_t x)
{
    return __shfl_sync(0xffffffffu, x, (int)(threadIdx.x % 32));
}

/* As tensor_keep, for the start of four sums: the compiler does not know that they are the same
 * constant, which it would copy for each product. */
static __device__ __forceinline__ void tensor_keep_start(int x, int start[4])
{
    int lane = (int)(threadIdx.x % 32);
#pragma unroll
    for (int i = 0; i < 4; i++)
        start[i] = __shfl_sync(0xffffffffu, lane < 4 ? x : lane, i);
}

/* The compiler may read p by instructions for device memory. */
static __device__ __forceinline__ const uint8_t *tensor_in_device_memory(const uint8_t *p)
{
#if defined(__CUDA_ARCH__)
    __builtin_assume(__isGlobal(p));
#endif
    return p;
}

#endif
