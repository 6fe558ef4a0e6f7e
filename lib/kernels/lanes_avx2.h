/* 16 lanes as two AVX2 registers, and the integer products of a tile's vectors: with AVX-VNNI's
 * vpdpbusd (MOED_AVX_VNNI), or with 16-bit sums. */
#ifndef MOED_KERNELS_LANES_AVX2_H
#define MOED_KERNELS_LANES_AVX2_H

#include "kernels/lanes_points.h"
#include "kernels/tile_layout.h"
#include "kernels/unroll.h"

#include <immintrin.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#if defined(MOED_AVX_VNNI)
#define LANES_NAME       "avx2-vnni"
#define MOED_PACKS_VIEWS 1 /* see views.inc.c */
#else
#define LANES_NAME       "avx2"
#define MOED_PACKS_VIEWS 0
#endif
#define LANES static inline __attribute__((always_inline))
#define TOKENS_MAX                                                                                 \
    4 /* the sums of 4 tokens, two registers each, and their operands fit 16 registers */

/* See attend.inc.c: 8 registers of sums, 4 of rows, and their factors. */
#define ATTEND_ROWS    2
#define ATTEND_KEYS    2
#define ATTEND_VECTORS 2
/* See delta.inc.c: 12 registers of sums. Rows of a chunk come in pairs. */
#define DELTA_ROWS         6
#define DELTA_VECTORS      1
#define DELTA_PAIR_VECTORS 2

typedef struct {
    __m256 lo, hi;
} vf;

/* 16 int32, or 64 bytes: half a group's rows in each register. */
typedef struct {
    __m256i lo, hi;
} vi;

#define LANES_OP_1(type, name, op)                                                                 \
    LANES type name(type a)                                                                        \
    {                                                                                              \
        return (type){op(a.lo), op(a.hi)};                                                         \
    }
#define LANES_OP_2(type, name, op)                                                                 \
    LANES type name(type a, type b)                                                                \
    {                                                                                              \
        return (type){op(a.lo, b.lo), op(a.hi, b.hi)};                                             \
    }
#define LANES_OP_3(type, name, op)                                                                 \
    LANES type name(type a, type b, type c)                                                        \
    {                                                                                              \
        return (type){op(a.lo, b.lo, c.lo), op(a.hi, b.hi, c.hi)};                                 \
    }
#define HALF_EPI32(a)          _mm256_srai_epi32(a, 1)
#define SHIFT_LEFT_23_EPI32(a) _mm256_slli_epi32(a, 23)
#define SIGNED_RIGHT_24(a)     _mm256_srai_epi32(a, 24)

LANES_OP_2(vf, vf_add, _mm256_add_ps)
LANES_OP_2(vf, vf_sub, _mm256_sub_ps)
LANES_OP_2(vf, vf_mul, _mm256_mul_ps)
LANES_OP_2(vf, vf_div, _mm256_div_ps)
LANES_OP_2(vf, vf_max, _mm256_max_ps)
LANES_OP_2(vf, vf_min, _mm256_min_ps)
LANES_OP_3(vf, vf_fma, _mm256_fmadd_ps)
LANES_OP_3(vf, vf_fnma, _mm256_fnmadd_ps)
LANES_OP_2(vi, vi_and, _mm256_and_si256)
LANES_OP_2(vi, vi_or, _mm256_or_si256)
LANES_OP_2(vi, vi_xor, _mm256_xor_si256)
LANES_OP_2(vi, vi_add, _mm256_add_epi32)
LANES_OP_2(vi, vi_sub, _mm256_sub_epi32)
LANES_OP_2(vi, vi_sub_bytes, _mm256_sub_epi8)
LANES_OP_2(vi, vi_max, _mm256_max_epi32)
LANES_OP_1(vi, vi_half, HALF_EPI32)
LANES_OP_1(vi, vi_shift_left_23, SHIFT_LEFT_23_EPI32)
LANES_OP_1(vi, vi_signed_right_24, SIGNED_RIGHT_24)

LANES vf vf_set1(float x)
{
    return (vf){_mm256_set1_ps(x), _mm256_set1_ps(x)};
}

LANES vf vf_load(const float *p)
{
    return (vf){_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)};
}

LANES void vf_store(float *p, vf a)
{
    _mm256_storeu_ps(p, a.lo);
    _mm256_storeu_ps(p + 8, a.hi);
}

/* 16 halves as float32. */
LANES vf vf_of_halves(__m256i a)
{
    return (vf){_mm256_cvtph_ps(_mm256_castsi256_si128(a)),
                _mm256_cvtph_ps(_mm256_extracti128_si256(a, 1))};
}

LANES vf vf_load_halves(const uint8_t *p)
{
    return (vf){_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p)),
                _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(p + 16)))};
}

LANES void vf_store_halves(uint8_t *p, vf a)
{
    _mm_storeu_si128((__m128i *)p, _mm256_cvtps_ph(a.lo, _MM_FROUND_TO_NEAREST_INT));
    _mm_storeu_si128((__m128i *)(p + 16), _mm256_cvtps_ph(a.hi, _MM_FROUND_TO_NEAREST_INT));
}

/* The half at p in every lane. */
LANES vf vf_set1_half(const uint8_t *p)
{
    __m256 v = _mm256_cvtph_ps(_mm_set1_epi16((int16_t)load_u16(p)));
    return (vf){v, v};
}

/* 16 int8 as float32. */
LANES vf vf_load_int8(const uint8_t *p)
{
    __m128i bytes = _mm_loadu_si128((const __m128i *)p);
    return (vf){_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes)),
                _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_srli_si128(bytes, 8)))};
}

LANES vf vf_from_ints(vi a)
{
    return (vf){_mm256_cvtepi32_ps(a.lo), _mm256_cvtepi32_ps(a.hi)};
}

LANES vi vf_bits(vf a)
{
    return (vi){_mm256_castps_si256(a.lo), _mm256_castps_si256(a.hi)};
}

LANES vf vi_floats(vi a)
{
    return (vf){_mm256_castsi256_ps(a.lo), _mm256_castsi256_ps(a.hi)};
}

LANES float vf_fold_add(vf a)
{
    __m256 v8 = _mm256_add_ps(a.lo, a.hi);
    __m128 v4 = _mm_add_ps(_mm256_castps256_ps128(v8), _mm256_extractf128_ps(v8, 1));
    __m128 v2 = _mm_add_ps(v4, _mm_movehl_ps(v4, v4));
    return _mm_cvtss_f32(_mm_add_ss(v2, _mm_movehdup_ps(v2)));
}

/* See lanes_portable.h. */
LANES __m256 fold_2(vf a, vf b)
{
    __m256 a8 = _mm256_add_ps(a.lo, a.hi), b8 = _mm256_add_ps(b.lo, b.hi);
    return _mm256_add_ps(_mm256_permute2f128_ps(a8, b8, 0x20),
                         _mm256_permute2f128_ps(a8, b8, 0x31));
}

LANES vf vf_fold_4(vf a, vf b, vf c, vf d)
{
    return (vf){fold_2(a, b), fold_2(c, d)};
}

LANES __m256 fold_last(__m256 a, __m256 b, __m256 c, __m256 d)
{
    __m256d x = _mm256_castps_pd(a), y = _mm256_castps_pd(b);
    __m256 ab = _mm256_add_ps(_mm256_castpd_ps(_mm256_unpacklo_pd(x, y)),
                              _mm256_castpd_ps(_mm256_unpackhi_pd(x, y)));
    x = _mm256_castps_pd(c);
    y = _mm256_castps_pd(d);
    __m256 cd = _mm256_add_ps(_mm256_castpd_ps(_mm256_unpacklo_pd(x, y)),
                              _mm256_castpd_ps(_mm256_unpackhi_pd(x, y)));
    return _mm256_add_ps(_mm256_shuffle_ps(ab, cd, _MM_SHUFFLE(2, 0, 2, 0)),
                         _mm256_shuffle_ps(ab, cd, _MM_SHUFFLE(3, 1, 3, 1)));
}

LANES vf vf_fold_4_of_4(vf a, vf b, vf c, vf d)
{
    return (vf){fold_last(a.lo, b.lo, c.lo, d.lo), fold_last(a.hi, b.hi, c.hi, d.hi)};
}

LANES float vf_fold_max(vf a)
{
    __m256 v8 = _mm256_max_ps(a.lo, a.hi);
    __m128 v4 = _mm_max_ps(_mm256_castps256_ps128(v8), _mm256_extractf128_ps(v8, 1));
    __m128 v2 = _mm_max_ps(v4, _mm_movehl_ps(v4, v4));
    return _mm_cvtss_f32(_mm_max_ss(v2, _mm_movehdup_ps(v2)));
}

LANES vi vi_set1(int32_t x)
{
    return (vi){_mm256_set1_epi32(x), _mm256_set1_epi32(x)};
}

LANES vi vi_load(const uint8_t *p)
{
    return (vi){_mm256_loadu_si256((const __m256i *)p),
                _mm256_loadu_si256((const __m256i *)(p + 32))};
}

LANES void vi_store(int32_t *p, vi a)
{
    _mm256_storeu_si256((__m256i *)p, a.lo);
    _mm256_storeu_si256((__m256i *)(p + 8), a.hi);
}

LANES vi vi_at_least(vi a, int32_t least)
{
    __m256i bound = _mm256_set1_epi32(least);
    return (vi){_mm256_andnot_si256(_mm256_cmpgt_epi32(bound, a.lo), a.lo),
                _mm256_andnot_si256(_mm256_cmpgt_epi32(bound, a.hi), a.hi)};
}

LANES vi vf_to_ints(vf a)
{
    return (vi){_mm256_cvtps_epi32(a.lo), _mm256_cvtps_epi32(a.hi)};
}

LANES void vi_fold_pairs(vi a, int16_t sums[2])
{
    __m256i v8 = _mm256_add_epi32(a.lo, a.hi);
    __m128i v4 = _mm_add_epi32(_mm256_castsi256_si128(v8), _mm256_extracti128_si256(v8, 1));
    __m128i v2 = _mm_add_epi32(v4, _mm_shuffle_epi32(v4, 0xb1));
    sums[0] = (int16_t)_mm_cvtsi128_si32(v2);
    sums[1] = (int16_t)_mm_extract_epi32(v2, 2);
}

LANES int32_t vi_fold_max(vi a)
{
    __m256i v8 = _mm256_max_epi32(a.lo, a.hi);
    __m128i v4 = _mm_max_epi32(_mm256_castsi256_si128(v8), _mm256_extracti128_si256(v8, 1));
    __m128i v2 = _mm_max_epi32(v4, _mm_shuffle_epi32(v4, 0x4e));
    return _mm_cvtsi128_si32(_mm_max_epi32(v2, _mm_shuffle_epi32(v2, 0xb1)));
}

LANES void vi_store_int8(int8_t *p, vi a)
{
    __m256i words = _mm256_permute4x64_epi64(_mm256_packs_epi32(a.lo, a.hi), 0xd8);
    __m128i bytes =
        _mm_packs_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
    _mm_storeu_si128((__m128i *)p, bytes);
}

/* Shifts of 16-bit lanes by n. The caller masks bits that cross a byte. */
LANES vi vi_right_16(vi a, int n)
{
    return (vi){_mm256_srli_epi16(a.lo, n), _mm256_srli_epi16(a.hi, n)};
}

LANES vi vi_left_16(vi a, int n)
{
    return (vi){_mm256_slli_epi16(a.lo, n), _mm256_slli_epi16(a.hi, n)};
}

LANES vi vi_left_32(vi a, int n)
{
    return (vi){_mm256_slli_epi32(a.lo, n), _mm256_slli_epi32(a.hi, n)};
}

LANES vi vi_right_32(vi a, int n)
{
    return (vi){_mm256_srli_epi32(a.lo, n), _mm256_srli_epi32(a.hi, n)};
}

/* 16 bytes, and 16 words of 16 bits, as 32 bits each. */
LANES vi vi_load_bytes(const uint8_t *p)
{
    return (vi){_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)p)),
                _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(p + 8)))};
}

LANES vi vi_load_shorts(const uint8_t *p)
{
    return (vi){_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)p)),
                _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(p + 16)))};
}

/* table[byte] of each byte, which is below 16. */
LANES vi vi_look_up(const int8_t table[16], vi bytes)
{
    __m256i t = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)table));
    return (vi){_mm256_shuffle_epi8(t, bytes.lo), _mm256_shuffle_epi8(t, bytes.hi)};
}

LANES vi vi_set1_byte(uint8_t x)
{
    return (vi){_mm256_set1_epi8((char)x), _mm256_set1_epi8((char)x)};
}

/* Bytes of each word by `order`, which names those of the first of four words; 0x80 gives zero. */
LANES vi pick(vi words, int32_t order)
{
    /* The next word's bytes are 4 further; a byte of 0x80 and more in the order gives zero anyway.
     */
    __m256i shuffle = _mm256_add_epi32(_mm256_set1_epi32(order),
                                       _mm256_setr_epi32(0, 0x04040404, 0x08080808, 0x0c0c0c0c, 0,
                                                         0x04040404, 0x08080808, 0x0c0c0c0c));
    return (vi){_mm256_shuffle_epi8(words.lo, shuffle), _mm256_shuffle_epi8(words.hi, shuffle)};
}

/* Byte j of each word, unsigned. */
LANES vf byte_float(vi words, int j)
{
    return vf_from_ints(pick(words, (int32_t)(0x80808000u | (uint32_t)j)));
}

/* Keeps the additions in the order of the source. Compilers otherwise add the products of a sum in
 * pairs, for which all of them have to wait in memory. */
LANES vi in_order(vi sum)
{
    __asm__("" : "+x"(sum.lo), "+x"(sum.hi));
    return sum;
}

/* The 4 activations that meet a group, in every lane. */
LANES vi activations_load(const int8_t *q)
{
    __m256i v = _mm256_set1_epi32((int32_t)load_u32(q));
    return (vi){v, v};
}

#if defined(MOED_AVX_VNNI)
/* Adds the 4 products of unsigned bytes w and signed bytes q to each word. */
#if defined(MOED_EMULATE_VNNI)
LANES __m256i add_dots_256(__m256i sum, __m256i w, __m256i q)
{
    __m256i low = _mm256_set1_epi16(0xff);
    __m256i even =
        _mm256_madd_epi16(_mm256_and_si256(w, low), _mm256_srai_epi16(_mm256_slli_epi16(q, 8), 8));
    __m256i odd = _mm256_madd_epi16(_mm256_srli_epi16(w, 8), _mm256_srai_epi16(q, 8));
    return _mm256_add_epi32(sum, _mm256_add_epi32(even, odd));
}
#else
LANES __m256i add_dots_256(__m256i sum, __m256i w, __m256i q)
{
    return _mm256_dpbusd_avx_epi32(sum, w, q);
}
#endif

LANES vi add_dots(vi sum, vi w, vi q)
{
    return in_order((vi){add_dots_256(sum.lo, w.lo, q.lo), add_dots_256(sum.hi, w.hi, q.hi)});
}

/* Negative where bit 7 - n of the same byte of `signs` is set. */
LANES vi with_signs(vi magnitudes, vi signs, const int n)
{
    vi s = vi_or(vi_left_16(signs, n), vi_set1_byte(1));
    return (vi){_mm256_sign_epi8(magnitudes.lo, s.lo), _mm256_sign_epi8(magnitudes.hi, s.hi)};
}

#include "kernels/dots_32.h"
#else
#include "kernels/dots_16.h"
#endif

/* Points of codebooks, of every row. By four indices of 8 bits in each of the 16 words at p, or by
 * two of 16 bits in each word (by_16). out[k] has index k's; of points of 8 values out[2k]
 * has the first, out[2k + 1] the last 4. */
LANES void vi_points_4(const uint32_t *grid, const uint8_t *p, vi out[4])
{
    __m256i rows[4], rows_8[4];

    points_of_8_rows(grid, p, rows);
    points_of_8_rows(grid, p + 32, rows_8);
    UNROLL for (int k = 0; k < 4; k++) out[k] = (vi){rows[k], rows_8[k]};
}

LANES void vi_points_4_by_16(const uint32_t *grid, vi words, vi out[2])
{
    __m256i rows[2], rows_8[2];

    points_of_8_rows_16(grid, words.lo, rows);
    points_of_8_rows_16(grid, words.hi, rows_8);
    UNROLL for (int k = 0; k < 2; k++) out[k] = (vi){rows[k], rows_8[k]};
}

LANES void vi_points_8(const uint64_t *grid, const uint8_t *p, vi out[8])
{
    __m256i rows[8], rows_8[8];

    long_points_of_8_rows(grid, p, rows);
    long_points_of_8_rows(grid, p + 32, rows_8);
    UNROLL for (int k = 0; k < 8; k++) out[k] = (vi){rows[k], rows_8[k]};
}

LANES void vi_points_8_by_16(const uint64_t *grid, vi words, vi out[4])
{
    __m256i rows[4], rows_8[4];

    long_points_of_8_rows_16(grid, words.lo, rows);
    long_points_of_8_rows_16(grid, words.hi, rows_8);
    UNROLL for (int k = 0; k < 4; k++) out[k] = (vi){rows[k], rows_8[k]};
}

#endif
