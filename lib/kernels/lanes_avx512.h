/* 16 lanes as one AVX-512 register, and the integer products of a tile's vectors with VNNI:
 * vpdpbusd adds four u8 x s8 products to 32 bits, which no number of groups here overflows.
 *
 * With MOED_SIMDE, for tests only, the intrinsics come from SIMDe, so that tests check this build's
 * bits on CPUs without AVX-512. SIMDe needs AVX2 and FMA: without them its fmadd rounds twice. */
#ifndef MOED_KERNELS_LANES_AVX512_H
#define MOED_KERNELS_LANES_AVX512_H

#include "kernels/lanes_points.h"
#include "kernels/tile_layout.h"
#include "kernels/unroll.h"

#include <immintrin.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LANES static inline __attribute__((always_inline))

#if defined(MOED_SIMDE)
#define SIMDE_ENABLE_NATIVE_ALIASES
#include <simde/x86/avx512.h>

/* Intrinsics that SIMDe 0.7.4 lacks or has under a wrong name. */
LANES __m512i simde_join(__m256i lo, __m256i hi)
{
    return _mm512_inserti64x4(_mm512_castsi256_si512(lo), hi, 1);
}
#undef _mm512_cvtph_ps
#define _mm512_cvtph_ps(a)                                                                         \
    _mm512_castsi512_ps(                                                                           \
        simde_join(_mm256_castps_si256(_mm256_cvtph_ps(_mm256_castsi256_si128(a))),                \
                   _mm256_castps_si256(_mm256_cvtph_ps(_mm256_extracti128_si256(a, 1)))))
#undef _mm512_cvtps_ph
#define _mm512_cvtps_ph(a, rounding)                                                               \
    _mm256_set_m128i(                                                                              \
        _mm256_cvtps_ph(_mm256_castsi256_ps(_mm512_extracti64x4_epi64(_mm512_castps_si512(a), 1)), \
                        _MM_FROUND_TO_NEAREST_INT),                                                \
        _mm256_cvtps_ph(_mm256_castsi256_ps(_mm512_castsi512_si256(_mm512_castps_si512(a))),       \
                        _MM_FROUND_TO_NEAREST_INT))
/* Two quarters of a, then two of b: permute2f128 of a's halves, and of b's. */
#undef _mm512_shuffle_f32x4
#define SIMDE_QUARTERS(a, i, j)                                                                    \
    _mm256_permute2f128_si256(_mm512_castsi512_si256(_mm512_castps_si512(a)),                      \
                              _mm512_extracti64x4_epi64(_mm512_castps_si512(a), 1),                \
                              (i) | (j) << 4)
#define _mm512_shuffle_f32x4(a, b, imm)                                                            \
    _mm512_castsi512_ps(simde_join(SIMDE_QUARTERS(a, (imm)&3, (imm) >> 2 & 3),                     \
                                   SIMDE_QUARTERS(b, (imm) >> 4 & 3, (imm) >> 6 & 3)))
#undef _mm512_cvtepi8_epi32
#define _mm512_cvtepi8_epi32(a)                                                                    \
    simde_join(_mm256_cvtepi8_epi32(a), _mm256_cvtepi8_epi32(_mm_unpackhi_epi64(a, a)))
#undef _mm512_cvtepi32_ps
#define _mm512_cvtepi32_ps(a)                                                                      \
    _mm512_castsi512_ps(                                                                           \
        simde_join(_mm256_castps_si256(_mm256_cvtepi32_ps(_mm512_castsi512_si256(a))),             \
                   _mm256_castps_si256(_mm256_cvtepi32_ps(_mm512_extracti64x4_epi64(a, 1)))))
#undef _mm512_cvtps_epi32
#define _mm512_cvtps_epi32(a)                                                                      \
    simde_join(                                                                                    \
        _mm256_cvtps_epi32(_mm256_castsi256_ps(_mm512_castsi512_si256(_mm512_castps_si512(a)))),   \
        _mm256_cvtps_epi32(                                                                        \
            _mm256_castsi256_ps(_mm512_extracti64x4_epi64(_mm512_castps_si512(a), 1))))
#undef _mm512_madd_epi16
#define _mm512_madd_epi16(a, b) simde_mm512_madd_epi16(a, b)
#undef _mm512_cvtepu8_epi32
#define _mm512_cvtepu8_epi32(a)                                                                    \
    simde_join(_mm256_cvtepu8_epi32(a), _mm256_cvtepu8_epi32(_mm_unpackhi_epi64(a, a)))
#undef _mm512_cvtepu16_epi32
#define _mm512_cvtepu16_epi32(a)                                                                   \
    simde_join(_mm256_cvtepu16_epi32(_mm256_castsi256_si128(a)),                                   \
               _mm256_cvtepu16_epi32(_mm256_extracti128_si256(a, 1)))
/* SIMDe needs literal counts; an inlined function's argument is none. */
#define SIMDE_SHIFT(shift, a, n)                                                                   \
    simde_join(shift(_mm512_castsi512_si256(a), (int)(n)),                                         \
               shift(_mm512_extracti64x4_epi64(a, 1), (int)(n)))
#undef _mm512_srai_epi32
#undef _mm512_slli_epi32
#undef _mm512_srli_epi32
#undef _mm512_srli_epi16
#undef _mm512_slli_epi16
#define _mm512_srai_epi32(a, n) SIMDE_SHIFT(_mm256_srai_epi32, a, n)
#define _mm512_slli_epi32(a, n) SIMDE_SHIFT(_mm256_slli_epi32, a, n)
#define _mm512_srli_epi32(a, n) SIMDE_SHIFT(_mm256_srli_epi32, a, n)
#define _mm512_srli_epi16(a, n) SIMDE_SHIFT(_mm256_srli_epi16, a, n)
#define _mm512_slli_epi16(a, n) SIMDE_SHIFT(_mm256_slli_epi16, a, n)
#endif

#define LANES_NAME       "avx512"
#define TOKENS_MAX       8
#define MOED_PACKS_VIEWS 1 /* see views.inc.c */

/* See attend.inc.c: 16 registers of sums, 4 of rows, and their factors. Emulated registers are
 * arrays: the full set would take minutes to compile. */
#if defined(MOED_SIMDE)
#define ATTEND_ROWS        1
#define ATTEND_KEYS        1
#define ATTEND_VECTORS     1
#define DELTA_ROWS         1
#define DELTA_VECTORS      1
#define DELTA_PAIR_VECTORS 1
#else
#define ATTEND_ROWS        4
#define ATTEND_KEYS        4
#define ATTEND_VECTORS     4
#define DELTA_ROWS         4 /* see delta.inc.c */
#define DELTA_VECTORS      4
#define DELTA_PAIR_VECTORS 4
#endif

typedef __m512 vf;
typedef __m512i vi; /* 16 int32, or 64 bytes: a group of 16 rows */

#define LANES_OP_2(type, name, op)                                                                 \
    LANES type name(type a, type b)                                                                \
    {                                                                                              \
        return op(a, b);                                                                           \
    }

LANES_OP_2(vf, vf_add, _mm512_add_ps)
LANES_OP_2(vf, vf_sub, _mm512_sub_ps)
LANES_OP_2(vf, vf_mul, _mm512_mul_ps)
LANES_OP_2(vf, vf_div, _mm512_div_ps)
LANES_OP_2(vf, vf_max, _mm512_max_ps)
LANES_OP_2(vf, vf_min, _mm512_min_ps)
LANES_OP_2(vi, vi_and, _mm512_and_si512)
LANES_OP_2(vi, vi_or, _mm512_or_si512)
LANES_OP_2(vi, vi_xor, _mm512_xor_si512)
LANES_OP_2(vi, vi_add, _mm512_add_epi32)
LANES_OP_2(vi, vi_sub, _mm512_sub_epi32)
LANES_OP_2(vi, vi_sub_bytes, _mm512_sub_epi8)
LANES_OP_2(vi, vi_max, _mm512_max_epi32)

LANES vf vf_fma(vf a, vf b, vf c)
{
    return _mm512_fmadd_ps(a, b, c);
}

LANES vf vf_fnma(vf a, vf b, vf c)
{
    return _mm512_fnmadd_ps(a, b, c);
}

LANES vi vi_half(vi a)
{
    return _mm512_srai_epi32(a, 1);
}

LANES vi vi_signed_right_24(vi a)
{
    return _mm512_srai_epi32(a, 24);
}

LANES vi vi_shift_left_23(vi a)
{
    return _mm512_slli_epi32(a, 23);
}

LANES vf vf_set1(float x)
{
    return _mm512_set1_ps(x);
}

LANES vf vf_load(const float *p)
{
    return _mm512_loadu_ps(p);
}

LANES void vf_store(float *p, vf a)
{
    _mm512_storeu_ps(p, a);
}

LANES vf vf_of_halves(__m256i a)
{
    return _mm512_cvtph_ps(a);
}

LANES vf vf_load_halves(const uint8_t *p)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p));
}

LANES void vf_store_halves(uint8_t *p, vf a)
{
    _mm256_storeu_si256((__m256i *)p,
                        _mm512_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}

/* The half at p in every lane. */
LANES vf vf_set1_half(const uint8_t *p)
{
    return _mm512_cvtph_ps(_mm256_set1_epi16((int16_t)load_u16(p)));
}

/* 16 int8 as float32. */
LANES vf vf_load_int8(const uint8_t *p)
{
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)p)));
}

LANES vf vf_from_ints(vi a)
{
    return _mm512_cvtepi32_ps(a);
}

LANES vi vf_bits(vf a)
{
    return _mm512_castps_si512(a);
}

LANES vf vi_floats(vi a)
{
    return _mm512_castsi512_ps(a);
}

LANES __m256 vf_low(vf a)
{
    return _mm256_castsi256_ps(_mm512_castsi512_si256(_mm512_castps_si512(a)));
}

LANES __m256 vf_high(vf a)
{
    return _mm256_castsi256_ps(_mm512_extracti64x4_epi64(_mm512_castps_si512(a), 1));
}

LANES float vf_fold_add(vf a)
{
    __m256 v8 = _mm256_add_ps(vf_low(a), vf_high(a));
    __m128 v4 = _mm_add_ps(_mm256_castps256_ps128(v8), _mm256_extractf128_ps(v8, 1));
    __m128 v2 = _mm_add_ps(v4, _mm_movehl_ps(v4, v4));
    return _mm_cvtss_f32(_mm_add_ss(v2, _mm_movehdup_ps(v2)));
}

/* See lanes_portable.h. */
LANES vf fold_2(vf a, vf b)
{
    return _mm512_add_ps(_mm512_shuffle_f32x4(a, b, _MM_SHUFFLE(1, 0, 1, 0)),
                         _mm512_shuffle_f32x4(a, b, _MM_SHUFFLE(3, 2, 3, 2)));
}

LANES vf vf_fold_4(vf a, vf b, vf c, vf d)
{
    vf ab = fold_2(a, b), cd = fold_2(c, d);
    return _mm512_add_ps(_mm512_shuffle_f32x4(ab, cd, _MM_SHUFFLE(2, 0, 2, 0)),
                         _mm512_shuffle_f32x4(ab, cd, _MM_SHUFFLE(3, 1, 3, 1)));
}

LANES vf unpack_add(vf a, vf b)
{
    __m512d x = _mm512_castps_pd(a), y = _mm512_castps_pd(b);
    return _mm512_add_ps(_mm512_castpd_ps(_mm512_unpacklo_pd(x, y)),
                         _mm512_castpd_ps(_mm512_unpackhi_pd(x, y)));
}

LANES vf vf_fold_4_of_4(vf a, vf b, vf c, vf d)
{
    vf ab = unpack_add(a, b), cd = unpack_add(c, d);
    return _mm512_add_ps(_mm512_shuffle_ps(ab, cd, _MM_SHUFFLE(2, 0, 2, 0)),
                         _mm512_shuffle_ps(ab, cd, _MM_SHUFFLE(3, 1, 3, 1)));
}

LANES float vf_fold_max(vf a)
{
    __m256 v8 = _mm256_max_ps(vf_low(a), vf_high(a));
    __m128 v4 = _mm_max_ps(_mm256_castps256_ps128(v8), _mm256_extractf128_ps(v8, 1));
    __m128 v2 = _mm_max_ps(v4, _mm_movehl_ps(v4, v4));
    return _mm_cvtss_f32(_mm_max_ss(v2, _mm_movehdup_ps(v2)));
}

LANES vi vi_set1(int32_t x)
{
    return _mm512_set1_epi32(x);
}

/* Loads a vector once. Without this the compiler makes each use a memory operand, and two loads of
 * a vector that crosses a cache line are four reads of the cache. */
LANES vi vi_load(const uint8_t *p)
{
    __m512i v = _mm512_loadu_si512(p);
#if !defined(MOED_SIMDE)
    __asm__("" : "+v"(v));
#endif
    return v;
}

LANES void vi_store(int32_t *p, vi a)
{
    _mm512_storeu_si512(p, a);
}

LANES vi vi_at_least(vi a, int32_t least)
{
    return _mm512_maskz_mov_epi32(_mm512_cmpge_epi32_mask(a, _mm512_set1_epi32(least)), a);
}

LANES vi vf_to_ints(vf a)
{
    return _mm512_cvtps_epi32(a);
}

LANES void vi_fold_pairs(vi a, int16_t sums[2])
{
    __m256i v8 = _mm256_add_epi32(_mm512_castsi512_si256(a), _mm512_extracti64x4_epi64(a, 1));
    __m128i v4 = _mm_add_epi32(_mm256_castsi256_si128(v8), _mm256_extracti128_si256(v8, 1));
    __m128i v2 = _mm_add_epi32(v4, _mm_shuffle_epi32(v4, 0xb1));
    sums[0] = (int16_t)_mm_cvtsi128_si32(v2);
    sums[1] = (int16_t)_mm_extract_epi32(v2, 2);
}

LANES int32_t vi_fold_max(vi a)
{
    __m256i v8 = _mm256_max_epi32(_mm512_castsi512_si256(a), _mm512_extracti64x4_epi64(a, 1));
    __m128i v4 = _mm_max_epi32(_mm256_castsi256_si128(v8), _mm256_extracti128_si256(v8, 1));
    __m128i v2 = _mm_max_epi32(v4, _mm_shuffle_epi32(v4, 0x4e));
    return _mm_cvtsi128_si32(_mm_max_epi32(v2, _mm_shuffle_epi32(v2, 0xb1)));
}

LANES void vi_store_int8(int8_t *p, vi a)
{
    _mm_storeu_si128((__m128i *)p, _mm512_cvtsepi32_epi8(a));
}

/* Shifts of 16-bit lanes by n. The caller masks bits that cross a byte. */
LANES vi vi_right_16(vi a, int n)
{
    return _mm512_srli_epi16(a, (unsigned)n);
}

LANES vi vi_left_16(vi a, int n)
{
    return _mm512_slli_epi16(a, (unsigned)n);
}

LANES vi vi_left_32(vi a, int n)
{
    return _mm512_slli_epi32(a, (unsigned)n);
}

LANES vi vi_right_32(vi a, int n)
{
    return _mm512_srli_epi32(a, (unsigned)n);
}

/* 16 bytes, and 16 words of 16 bits, as 32 bits each. */
LANES vi vi_load_bytes(const uint8_t *p)
{
    return _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)p));
}

LANES vi vi_load_shorts(const uint8_t *p)
{
    return _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)p));
}

/* table[byte] of each byte, which is below 16. */
LANES vi vi_look_up(const int8_t table[16], vi bytes)
{
    __m512i t = _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)table));
    return _mm512_shuffle_epi8(t, bytes);
}

LANES vi vi_set1_byte(uint8_t x)
{
    return _mm512_set1_epi8((char)x);
}

/* Bytes of each word by `order`, which names those of the first of four words; 0x80 gives zero. */
LANES vi pick(vi words, uint32_t order)
{
    return _mm512_shuffle_epi8(
        words, _mm512_add_epi32(_mm512_set1_epi32((int32_t)order),
                                _mm512_set4_epi32(0x0c0c0c0c, 0x08080808, 0x04040404, 0)));
}

/* Byte j of each word, unsigned. */
LANES vf byte_float(vi words, int j)
{
    return vf_from_ints(pick(words, 0x80808000u | (uint32_t)j));
}

/* The 4 activations that meet a group, in every lane. */
LANES vi activations_load(const int8_t *q)
{
    return _mm512_set1_epi32((int32_t)load_u32(q));
}

/* Adds the 4 products of unsigned bytes w and signed bytes q to each word. */
LANES vi add_dots(vi sum, vi w, vi q)
{
    return _mm512_dpbusd_epi32(sum, w, q);
}

/* Negative where bit 7 - n of the same byte of `signs` is set. */
LANES vi with_signs(vi magnitudes, vi signs, const int n)
{
    __mmask64 minus = _mm512_movepi8_mask(vi_left_16(signs, n));
    return _mm512_mask_sub_epi8(magnitudes, minus, _mm512_setzero_si512(), magnitudes);
}

#include "kernels/dots_32.h"

LANES vi vi_join(__m256i lo, __m256i hi)
{
    return _mm512_inserti64x4(_mm512_castsi256_si512(lo), hi, 1);
}

/* Points of codebooks, of every row. By four indices of 8 bits in each of the 16 words at p, or by
 * two of 16 bits in each word (by_16). out[k] has index k's; of points of 8 values out[2k]
 * has the first, out[2k + 1] the last 4. */
LANES void vi_points_4(const uint32_t *grid, const uint8_t *p, vi out[4])
{
    __m256i rows[4], rows_8[4];

    points_of_8_rows(grid, p, rows);
    points_of_8_rows(grid, p + 32, rows_8);
    UNROLL for (int k = 0; k < 4; k++) out[k] = vi_join(rows[k], rows_8[k]);
}

LANES void vi_points_4_by_16(const uint32_t *grid, vi words, vi out[2])
{
    __m256i rows[2], rows_8[2];

    points_of_8_rows_16(grid, _mm512_castsi512_si256(words), rows);
    points_of_8_rows_16(grid, _mm512_extracti64x4_epi64(words, 1), rows_8);
    UNROLL for (int k = 0; k < 2; k++) out[k] = vi_join(rows[k], rows_8[k]);
}

LANES void vi_points_8(const uint64_t *grid, const uint8_t *p, vi out[8])
{
    __m256i rows[8], rows_8[8];

    long_points_of_8_rows(grid, p, rows);
    long_points_of_8_rows(grid, p + 32, rows_8);
    UNROLL for (int k = 0; k < 8; k++) out[k] = vi_join(rows[k], rows_8[k]);
}

LANES void vi_points_8_by_16(const uint64_t *grid, vi words, vi out[4])
{
    __m256i rows[4], rows_8[4];

    long_points_of_8_rows_16(grid, _mm512_castsi512_si256(words), rows);
    long_points_of_8_rows_16(grid, _mm512_extracti64x4_epi64(words, 1), rows_8);
    UNROLL for (int k = 0; k < 4; k++) out[k] = vi_join(rows[k], rows_8[k]);
}

#endif
