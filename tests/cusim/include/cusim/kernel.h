/* cusim: the language of kernels for the host's C++ compiler. The CUDA programming guide describes
 * each name. */
#ifndef CUSIM_KERNEL_H
#define CUSIM_KERNEL_H

#include <math.h>
#include <stdint.h>
#include <string.h>
#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#define __global__
#define __device__
#define __host__
#define __constant__
#define __shared__ static /* one block runs at a time */
#define __grid_constant__
#define __forceinline__ __inline__ __attribute__((always_inline))
#define __align__(n)    __attribute__((aligned(n)))
#define __launch_bounds__(...)

/* Vector types. */
#define CUSIM_VECTORS(T, name, align2, align4)                                                     \
    struct name##1                                                                                 \
    {                                                                                              \
        T x;                                                                                       \
    };                                                                                             \
    struct __align__(align2) name##2                                                               \
    {                                                                                              \
        T x, y;                                                                                    \
    };                                                                                             \
    struct name##3                                                                                 \
    {                                                                                              \
        T x, y, z;                                                                                 \
    };                                                                                             \
    struct __align__(align4) name##4                                                               \
    {                                                                                              \
        T x, y, z, w;                                                                              \
    };                                                                                             \
    static inline name##1 make_##name##1(T x)                                                      \
    {                                                                                              \
        return {x};                                                                                \
    }                                                                                              \
    static inline name##2 make_##name##2(T x, T y)                                                 \
    {                                                                                              \
        return {x, y};                                                                             \
    }                                                                                              \
    static inline name##3 make_##name##3(T x, T y, T z)                                            \
    {                                                                                              \
        return {x, y, z};                                                                          \
    }                                                                                              \
    static inline name##4 make_##name##4(T x, T y, T z, T w)                                       \
    {                                                                                              \
        return {x, y, z, w};                                                                       \
    }
CUSIM_VECTORS(signed char, char, 2, 4)
CUSIM_VECTORS(unsigned char, uchar, 2, 4)
CUSIM_VECTORS(short, short, 4, 8)
CUSIM_VECTORS(unsigned short, ushort, 4, 8)
CUSIM_VECTORS(int, int, 8, 16)
CUSIM_VECTORS(unsigned int, uint, 8, 16)
CUSIM_VECTORS(long long, longlong, 16, 16)
CUSIM_VECTORS(unsigned long long, ulonglong, 16, 16)
CUSIM_VECTORS(float, float, 8, 16)
CUSIM_VECTORS(double, double, 16, 16)
#undef CUSIM_VECTORS

struct dim3 {
    unsigned x, y, z;
    constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
    constexpr dim3(uint3 v) : x(v.x), y(v.y), z(v.z) {}
};

/* The position of the running thread; kernels run on one thread of the host. */
struct cusim_here {
    uint3 thread, block;
    dim3 block_dim, grid_dim;
    void *shared;  /* the block's dynamic shared memory */
    unsigned lane; /* of the warp */
};

enum cusim_barrier {
    CUSIM_SYNCTHREADS,
    CUSIM_SYNCTHREADS_COUNT,
    CUSIM_SYNCTHREADS_AND,
    CUSIM_SYNCTHREADS_OR
};
enum cusim_warp_op {
    CUSIM_SYNCWARP,
    CUSIM_SHFL,
    CUSIM_BALLOT,
    CUSIM_MATCH_ANY,
    CUSIM_REDUCE_ADD,
    CUSIM_REDUCE_MIN_SIGNED,
    CUSIM_REDUCE_MAX_SIGNED,
    CUSIM_REDUCE_MIN_UNSIGNED,
    CUSIM_REDUCE_MAX_UNSIGNED,
    CUSIM_REDUCE_AND,
    CUSIM_REDUCE_OR,
    CUSIM_REDUCE_XOR,
    CUSIM_LOAD_MATRICES, /* the value: the address of the lane's struct (matrix.h) */
    CUSIM_LOAD_MATRICES_TRANSPOSED,
    CUSIM_MULTIPLY_S8,
    CUSIM_MULTIPLY_F16,
    CUSIM_MULTIPLY_BF16
};

extern "C" {
extern struct cusim_here cusim_here;
/* Waits for every thread of the block; returns the number of threads whose predicate was not 0. */
unsigned cusim_block_barrier(enum cusim_barrier kind, int predicate);
/* Waits for every lane of mask; returns the operation's result for this lane. source: for
 * CUSIM_SHFL, a lane. */
uint64_t cusim_warp(enum cusim_warp_op op, unsigned mask, uint64_t value, unsigned source);
/* griddepcontrol.wait, in a kernel that may begin before the one in front of it has ended. Every
 * thread of a kernel that CUSIM_LAUNCH_DEPENDENT launched has to call it. */
void cusim_await_previous();
/* The kernel fails; the thread does not continue. */
void cusim_trap(int error) __attribute__((noreturn));

/* Instructions of the PTX manual that CUDA's C++ has no functions for. Matrix instructions need all
 * 32 lanes. */
/* ldmatrix.sync.aligned.m8n8.x4.shared.b16 */
void cusim_load_matrices_4(const void *row, uint32_t words[4]);
/* ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 */
void cusim_load_matrices_4_transposed(const void *row, uint32_t words[4]);
/* mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32; d is c too. Rounds once. */
void cusim_multiply_m16n8k16_f16(const uint32_t a[4], const uint32_t b[2], float d[4]);
/* mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32; d is c too. Rounds once. */
void cusim_multiply_m16n8k16_bf16(const uint32_t a[4], const uint32_t b[2], float d[4]);
/* mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 */
void cusim_multiply_m16n8k16_s8(const uint32_t a[2], uint32_t b, const int c[4], int d[4]);
/* cp.async from device memory to dynamic shared memory, 4, 8 or 16 bytes; commit_group, wait_group
 * and wait_all. Shared memory holds 0xff until the wait, which reads the device memory. */
void cusim_copy_async(void *to, const void *from, unsigned bytes);
void cusim_copy_commit();
void cusim_copy_wait(unsigned pending);
void cusim_copy_wait_all();
}

#define threadIdx (cusim_here.thread)
#define blockIdx  (cusim_here.block)
#define blockDim  (cusim_here.block_dim)
#define gridDim   (cusim_here.grid_dim)
enum { warpSize = 32 };

/* Barriers. */
static inline void __syncthreads()
{
    cusim_block_barrier(CUSIM_SYNCTHREADS, 0);
}
static inline int __syncthreads_count(int predicate)
{
    return (int)cusim_block_barrier(CUSIM_SYNCTHREADS_COUNT, predicate);
}
static inline int __syncthreads_and(int predicate)
{
    unsigned n = cusim_here.block_dim.x * cusim_here.block_dim.y * cusim_here.block_dim.z;
    return cusim_block_barrier(CUSIM_SYNCTHREADS_AND, predicate) == n;
}
static inline int __syncthreads_or(int predicate)
{
    return cusim_block_barrier(CUSIM_SYNCTHREADS_OR, predicate) != 0;
}
static inline void __syncwarp(unsigned mask = 0xffffffffu)
{
    cusim_warp(CUSIM_SYNCWARP, mask, 0, 0);
}
static inline void __threadfence()
{
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
}
static inline void __threadfence_block()
{
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
}
static inline void __threadfence_system()
{
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
}
static inline void __trap()
{
    cusim_trap(719); /* cudaErrorLaunchFailure */
}

/* Votes. */
static inline unsigned __ballot_sync(unsigned mask, int predicate)
{
    return (unsigned)cusim_warp(CUSIM_BALLOT, mask, predicate != 0, 0);
}
static inline int __any_sync(unsigned mask, int predicate)
{
    return __ballot_sync(mask, predicate) != 0;
}
static inline int __all_sync(unsigned mask, int predicate)
{
    return __ballot_sync(mask, predicate) == mask;
}

/* Shuffles. */
template <class T> static inline uint64_t cusim_bits(T value)
{
    static_assert(sizeof(T) == 4 || sizeof(T) == 8, "shuffles move 4 or 8 bytes");
    uint64_t bits = 0;
    memcpy(&bits, &value, sizeof value);
    return bits;
}
template <class T> static inline T cusim_value(uint64_t bits)
{
    T value;
    memcpy(&value, &bits, sizeof value);
    return value;
}
template <class T> static inline T cusim_shuffle(unsigned mask, T value, unsigned source)
{
    return cusim_value<T>(cusim_warp(CUSIM_SHFL, mask, cusim_bits(value), source));
}
template <class T>
static inline T __shfl_sync(unsigned mask, T value, int source, int width = warpSize)
{
    unsigned lane = cusim_here.lane, w = (unsigned)width - 1;
    return cusim_shuffle(mask, value, (lane & ~w) | ((unsigned)source & w));
}
template <class T>
static inline T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = warpSize)
{
    unsigned lane = cusim_here.lane, w = (unsigned)width - 1;
    return cusim_shuffle(mask, value, (lane & w) < delta ? lane : lane - delta);
}
template <class T>
static inline T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = warpSize)
{
    unsigned lane = cusim_here.lane, w = (unsigned)width - 1;
    return cusim_shuffle(mask, value, (lane & w) + delta > w ? lane : lane + delta);
}
template <class T>
static inline T __shfl_xor_sync(unsigned mask, T value, int lane_mask, int width = warpSize)
{
    unsigned lane = cusim_here.lane, w = (unsigned)width - 1, source = lane ^ (unsigned)lane_mask;
    return cusim_shuffle(mask, value, source > (lane | w) ? lane : source);
}
template <class T> static inline unsigned __match_any_sync(unsigned mask, T value)
{
    return (unsigned)cusim_warp(CUSIM_MATCH_ANY, mask, cusim_bits(value), 0);
}

/* Reductions over a warp, of devices from sm_80. */
static inline unsigned __reduce_add_sync(unsigned mask, unsigned value)
{
    return (unsigned)cusim_warp(CUSIM_REDUCE_ADD, mask, value, 0);
}
static inline int __reduce_add_sync(unsigned mask, int value)
{
    return (int)cusim_warp(CUSIM_REDUCE_ADD, mask, (unsigned)value, 0);
}
static inline unsigned __reduce_min_sync(unsigned mask, unsigned value)
{
    return (unsigned)cusim_warp(CUSIM_REDUCE_MIN_UNSIGNED, mask, value, 0);
}
static inline int __reduce_min_sync(unsigned mask, int value)
{
    return (int)cusim_warp(CUSIM_REDUCE_MIN_SIGNED, mask, (unsigned)value, 0);
}
static inline unsigned __reduce_max_sync(unsigned mask, unsigned value)
{
    return (unsigned)cusim_warp(CUSIM_REDUCE_MAX_UNSIGNED, mask, value, 0);
}
static inline int __reduce_max_sync(unsigned mask, int value)
{
    return (int)cusim_warp(CUSIM_REDUCE_MAX_SIGNED, mask, (unsigned)value, 0);
}
static inline unsigned __reduce_and_sync(unsigned mask, unsigned value)
{
    return (unsigned)cusim_warp(CUSIM_REDUCE_AND, mask, value, 0);
}
static inline unsigned __reduce_or_sync(unsigned mask, unsigned value)
{
    return (unsigned)cusim_warp(CUSIM_REDUCE_OR, mask, value, 0);
}
static inline unsigned __reduce_xor_sync(unsigned mask, unsigned value)
{
    return (unsigned)cusim_warp(CUSIM_REDUCE_XOR, mask, value, 0);
}

/* Atomics: they return the old value. */
#define CUSIM_ATOMICS(T)                                                                           \
    static inline T atomicAdd(T *p, T v)                                                           \
    {                                                                                              \
        return __atomic_fetch_add(p, v, __ATOMIC_RELAXED);                                         \
    }                                                                                              \
    static inline T atomicExch(T *p, T v)                                                          \
    {                                                                                              \
        return __atomic_exchange_n(p, v, __ATOMIC_RELAXED);                                        \
    }                                                                                              \
    static inline T atomicAnd(T *p, T v)                                                           \
    {                                                                                              \
        return __atomic_fetch_and(p, v, __ATOMIC_RELAXED);                                         \
    }                                                                                              \
    static inline T atomicOr(T *p, T v)                                                            \
    {                                                                                              \
        return __atomic_fetch_or(p, v, __ATOMIC_RELAXED);                                          \
    }                                                                                              \
    static inline T atomicXor(T *p, T v)                                                           \
    {                                                                                              \
        return __atomic_fetch_xor(p, v, __ATOMIC_RELAXED);                                         \
    }                                                                                              \
    static inline T atomicCAS(T *p, T expected, T v)                                               \
    {                                                                                              \
        __atomic_compare_exchange_n(p, &expected, v, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);   \
        return expected;                                                                           \
    }                                                                                              \
    static inline T atomicMax(T *p, T v)                                                           \
    {                                                                                              \
        T old = __atomic_load_n(p, __ATOMIC_RELAXED);                                              \
        while (old < v && !__atomic_compare_exchange_n(p, &old, v, false, __ATOMIC_RELAXED,        \
                                                       __ATOMIC_RELAXED)) {                        \
        }                                                                                          \
        return old;                                                                                \
    }                                                                                              \
    static inline T atomicMin(T *p, T v)                                                           \
    {                                                                                              \
        T old = __atomic_load_n(p, __ATOMIC_RELAXED);                                              \
        while (v < old && !__atomic_compare_exchange_n(p, &old, v, false, __ATOMIC_RELAXED,        \
                                                       __ATOMIC_RELAXED)) {                        \
        }                                                                                          \
        return old;                                                                                \
    }
CUSIM_ATOMICS(int)
CUSIM_ATOMICS(unsigned int)
CUSIM_ATOMICS(unsigned long long)
#undef CUSIM_ATOMICS
static inline int atomicSub(int *p, int v)
{
    return __atomic_fetch_sub(p, v, __ATOMIC_RELAXED);
}
static inline unsigned atomicSub(unsigned *p, unsigned v)
{
    return __atomic_fetch_sub(p, v, __ATOMIC_RELAXED);
}
static inline float atomicAdd(float *p, float v)
{
    uint32_t old, next;
    float was, sum;
    __atomic_load((uint32_t *)p, &old, __ATOMIC_RELAXED);
    do {
        memcpy(&was, &old, sizeof was);
        sum = was + v;
        memcpy(&next, &sum, sizeof next);
    } while (!__atomic_compare_exchange((uint32_t *)p, &old, &next, false, __ATOMIC_RELAXED,
                                        __ATOMIC_RELAXED));
    return was;
}
static inline float atomicExch(float *p, float v)
{
    float old;
    __atomic_exchange(p, &v, &old, __ATOMIC_RELAXED);
    return old;
}

/* Loads with hints of caching. */
template <class T> static inline T __ldg(const T *p)
{
    return *p;
}
template <class T> static inline T __ldcs(const T *p)
{
    return *p;
}
template <class T> static inline T __ldcg(const T *p)
{
    return *p;
}
template <class T> static inline void __stcs(T *p, T v)
{
    *p = v;
}

/* Bits of integers. */
static inline int __popc(unsigned x)
{
    return __builtin_popcount(x);
}
static inline int __popcll(unsigned long long x)
{
    return __builtin_popcountll(x);
}
static inline int __clz(int x)
{
    return x == 0 ? 32 : __builtin_clz((unsigned)x);
}
static inline int __clzll(long long x)
{
    return x == 0 ? 64 : __builtin_clzll((unsigned long long)x);
}
static inline int __ffs(int x)
{
    return __builtin_ffs(x);
}
static inline int __ffsll(long long x)
{
    return __builtin_ffsll(x);
}
static inline unsigned __brev(unsigned x)
{
    x = (x >> 1 & 0x55555555u) | (x & 0x55555555u) << 1;
    x = (x >> 2 & 0x33333333u) | (x & 0x33333333u) << 2;
    x = (x >> 4 & 0x0f0f0f0fu) | (x & 0x0f0f0f0fu) << 4;
    return __builtin_bswap32(x);
}
static inline int __mulhi(int a, int b)
{
    return (int)((long long)a * b >> 32);
}
static inline unsigned __umulhi(unsigned a, unsigned b)
{
    return (unsigned)((unsigned long long)a * b >> 32);
}
static inline unsigned __funnelshift_l(unsigned lo, unsigned hi, unsigned shift)
{
    return (unsigned)(((unsigned long long)hi << 32 | lo) << (shift & 31) >> 32);
}
static inline unsigned __funnelshift_r(unsigned lo, unsigned hi, unsigned shift)
{
    return (unsigned)(((unsigned long long)hi << 32 | lo) >> (shift & 31));
}
/* Four bytes chosen by the nibbles of s out of the eight of x (0 to 3) and y; a nibble's bit 3
 * spreads its sign. */
static inline unsigned __byte_perm(unsigned x, unsigned y, unsigned s)
{
    unsigned long long bytes = (unsigned long long)y << 32 | x;
    unsigned out = 0;
    for (int i = 0; i < 4; i++) {
        unsigned choice = s >> 4 * i & 15, byte = (unsigned)(bytes >> 8 * (choice & 7)) & 255;
        if (choice & 8)
            byte = byte & 128 ? 255 : 0;
        out |= byte << 8 * i;
    }
    return out;
}
/* c plus the products of the four bytes of a and b; the sum wraps. */
static inline int __dp4a(int a, int b, int c)
{
#if defined(__SSE2__) /* most of the kernels' arithmetic */
    __m128i zero = _mm_setzero_si128();
    __m128i x = _mm_srai_epi16(_mm_unpacklo_epi8(zero, _mm_cvtsi32_si128(a)), 8);
    __m128i y = _mm_srai_epi16(_mm_unpacklo_epi8(zero, _mm_cvtsi32_si128(b)), 8);
    uint64_t pairs = (uint64_t)_mm_cvtsi128_si64(_mm_madd_epi16(x, y));
    return (int)((unsigned)c + (unsigned)pairs + (unsigned)(pairs >> 32));
#else
    int sum = 0;
    for (int i = 0; i < 4; i++)
        sum += (signed char)(unsigned char)((unsigned)a >> 8 * i) *
               (signed char)(unsigned char)((unsigned)b >> 8 * i);
    return (int)((unsigned)c + (unsigned)sum);
#endif
}
static inline unsigned __dp4a(unsigned a, unsigned b, unsigned c)
{
    for (int i = 0; i < 4; i++)
        c += (a >> 8 * i & 255) * (b >> 8 * i & 255);
    return c;
}
/* Per byte, without carry from one to the next. */
static inline unsigned __vadd4(unsigned a, unsigned b)
{
    return ((a & 0x7f7f7f7fu) + (b & 0x7f7f7f7fu)) ^ ((a ^ b) & 0x80808080u);
}
static inline unsigned __vsub4(unsigned a, unsigned b)
{
    return ((a | 0x80808080u) - (b & 0x7f7f7f7fu)) ^ ((a ^ ~b) & 0x80808080u);
}

/* Bits of floats. */
static inline int __float_as_int(float x)
{
    return cusim_value<int>(cusim_bits(x));
}
static inline unsigned __float_as_uint(float x)
{
    return cusim_value<unsigned>(cusim_bits(x));
}
static inline float __int_as_float(int x)
{
    return cusim_value<float>(cusim_bits(x));
}
static inline float __uint_as_float(unsigned x)
{
    return cusim_value<float>(cusim_bits(x));
}
static inline long long __double_as_longlong(double x)
{
    return cusim_value<long long>(cusim_bits(x));
}
static inline double __longlong_as_double(long long x)
{
    return cusim_value<double>(cusim_bits(x));
}

/* Arithmetic that is never contracted, rounded to nearest even. */
static inline float __fmaf_rn(float a, float b, float c)
{
    return __builtin_fmaf(a, b, c);
}
static inline float __fadd_rn(float a, float b)
{
    return a + b;
}
static inline float __fsub_rn(float a, float b)
{
    return a - b;
}
static inline float __fmul_rn(float a, float b)
{
    return a * b;
}
static inline float __fdiv_rn(float a, float b)
{
    return a / b;
}
static inline float __frcp_rn(float a)
{
    return 1.0f / a;
}
static inline float __fsqrt_rn(float a)
{
    return __builtin_sqrtf(a);
}
static inline double __fma_rn(double a, double b, double c)
{
    return __builtin_fma(a, b, c);
}
static inline double __dadd_rn(double a, double b)
{
    return a + b;
}
static inline double __dsub_rn(double a, double b)
{
    return a - b;
}
static inline double __dmul_rn(double a, double b)
{
    return a * b;
}
static inline double __ddiv_rn(double a, double b)
{
    return a / b;
}
static inline double __dsqrt_rn(double a)
{
    return __builtin_sqrt(a);
}

/* Conversions: to integers they saturate, and NaN gives 0. */
static inline int cusim_to_int(double x)
{
    return isnan(x) ? 0 : x >= 2147483647.0 ? INT32_MAX : x <= -2147483648.0 ? INT32_MIN : (int)x;
}
static inline unsigned cusim_to_unsigned(double x)
{
    return isnan(x) || x <= 0 ? 0 : x >= 4294967295.0 ? UINT32_MAX : (unsigned)x;
}
static inline int __float2int_rn(float x)
{
    return cusim_to_int(__builtin_rintf(x));
}
static inline int __float2int_rz(float x)
{
    return cusim_to_int(x);
}
static inline int __float2int_rd(float x)
{
    return cusim_to_int(__builtin_floorf(x));
}
static inline int __float2int_ru(float x)
{
    return cusim_to_int(__builtin_ceilf(x));
}
static inline unsigned __float2uint_rn(float x)
{
    return cusim_to_unsigned(__builtin_rintf(x));
}
static inline unsigned __float2uint_rz(float x)
{
    return cusim_to_unsigned(x);
}
static inline float __int2float_rn(int x)
{
    return (float)x;
}
static inline float __uint2float_rn(unsigned x)
{
    return (float)x;
}
static inline float __ll2float_rn(long long x)
{
    return (float)x;
}
static inline float __double2float_rn(double x)
{
    return (float)x;
}

/* CUDA has these without std::. */
#define CUSIM_MIN_MAX(T)                                                                           \
    static inline T min(T a, T b)                                                                  \
    {                                                                                              \
        return b < a ? b : a;                                                                      \
    }                                                                                              \
    static inline T max(T a, T b)                                                                  \
    {                                                                                              \
        return a < b ? b : a;                                                                      \
    }
CUSIM_MIN_MAX(int)
CUSIM_MIN_MAX(unsigned)
CUSIM_MIN_MAX(long)
CUSIM_MIN_MAX(unsigned long)
CUSIM_MIN_MAX(long long)
CUSIM_MIN_MAX(unsigned long long)
#undef CUSIM_MIN_MAX
static inline unsigned min(int a, unsigned b)
{
    return min((unsigned)a, b);
}
static inline unsigned min(unsigned a, int b)
{
    return min(a, (unsigned)b);
}
static inline unsigned max(int a, unsigned b)
{
    return max((unsigned)a, b);
}
static inline unsigned max(unsigned a, int b)
{
    return max(a, (unsigned)b);
}
static inline float min(float a, float b)
{
    return fminf(a, b);
}
static inline float max(float a, float b)
{
    return fmaxf(a, b);
}
static inline double min(double a, double b)
{
    return fmin(a, b);
}
static inline double max(double a, double b)
{
    return fmax(a, b);
}

#endif
