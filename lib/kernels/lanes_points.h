/* Points of codebooks (quant/grids.h) for 4 and 8 rows, with AVX2: both vector builds use it.
 *
 * Scalar loads that are put together beat the gather instructions: on Zen 3 0.24 ns a point and
 * 0.54 (docs/design/kernels.md). */
#ifndef MOED_KERNELS_LANES_POINTS_H
#define MOED_KERNELS_LANES_POINTS_H

#include "kernels/tile_layout.h"
#include "kernels/unroll.h"

#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>

#define POINTS static inline __attribute__((always_inline))

/* Bits 8 to 15. Written so because compilers take three instructions for it. */
POINTS size_t second_byte(uint32_t w)
{
    size_t byte;

    __asm__("movzbl %h1, %k0" : "=R"(byte) : "Q"(w));
    return byte;
}

/* Puts a point of 4 bytes into its row's lane: a load of 16 bytes that has it there, blended. */
#define POINT_TO_LANE(out, grid, index, lane)                                                      \
    (out) = _mm_blend_epi32(out, _mm_loadu_si128((const __m128i *)((grid) + (index) - (lane))),    \
                            1 << (lane))

/* The points of row `lane` of 4, by the four indices of 8 bits in its word. */
#define POINTS_TO_LANE(out, grid, word, lane)                                                      \
    do {                                                                                           \
        uint32_t rest = (word);                                                                    \
        POINT_TO_LANE((out)[0], grid, (uint8_t)rest, lane);                                        \
        POINT_TO_LANE((out)[1], grid, second_byte(rest), lane);                                    \
        rest >>= 16;                                                                               \
        POINT_TO_LANE((out)[2], grid, (uint8_t)rest, lane);                                        \
        POINT_TO_LANE((out)[3], grid, second_byte(rest), lane);                                    \
    } while (0)

/* The points of 4 values of 4 rows, by their words at p. */
POINTS void points_of_4_rows(const uint32_t *grid, const uint8_t *p, __m128i out[4])
{
    UNROLL for (int k = 0; k < 4; k++) out[k] = _mm_undefined_si128();
    POINTS_TO_LANE(out, grid, load_u32(p), 0);
    POINTS_TO_LANE(out, grid, load_u32(p + 4), 1);
    POINTS_TO_LANE(out, grid, load_u32(p + 8), 2);
    POINTS_TO_LANE(out, grid, load_u32(p + 12), 3);
}

/* The same by two indices of 16 bits in each row's word. */
POINTS void points_of_4_rows_16(const uint32_t *grid, __m128i words, __m128i out[2])
{
    uint64_t ab = (uint64_t)_mm_cvtsi128_si64(words), cd = (uint64_t)_mm_extract_epi64(words, 1);

    out[0] = out[1] = _mm_undefined_si128();
    POINT_TO_LANE(out[0], grid, (uint16_t)ab, 0);
    POINT_TO_LANE(out[1], grid, (uint16_t)(ab >> 16), 0);
    POINT_TO_LANE(out[0], grid, (uint16_t)(ab >> 32), 1);
    POINT_TO_LANE(out[1], grid, ab >> 48, 1);
    POINT_TO_LANE(out[0], grid, (uint16_t)cd, 2);
    POINT_TO_LANE(out[1], grid, (uint16_t)(cd >> 16), 2);
    POINT_TO_LANE(out[0], grid, (uint16_t)(cd >> 32), 3);
    POINT_TO_LANE(out[1], grid, cd >> 48, 3);
}

/* Of 8 rows. */
POINTS void points_of_8_rows(const uint32_t *grid, const uint8_t *p, __m256i out[4])
{
    __m128i rows[4], rows_4[4];

    points_of_4_rows(grid, p, rows);
    points_of_4_rows(grid, p + 16, rows_4);
    UNROLL for (int k = 0; k < 4; k++) out[k] = _mm256_set_m128i(rows_4[k], rows[k]);
}

POINTS void points_of_8_rows_16(const uint32_t *grid, __m256i words, __m256i out[2])
{
    __m128i rows[2], rows_4[2];

    points_of_4_rows_16(grid, _mm256_castsi256_si128(words), rows);
    points_of_4_rows_16(grid, _mm256_extracti128_si256(words, 1), rows_4);
    UNROLL for (int k = 0; k < 2; k++) out[k] = _mm256_set_m128i(rows_4[k], rows[k]);
}

POINTS __m128 two_points(const uint64_t *grid, size_t first, size_t second)
{
    __m128i low = _mm_loadl_epi64((const __m128i *)(grid + first));

    return _mm_loadh_pi(_mm_castsi128_ps(low), (const __m64 *)(grid + second));
}

/* Points of 8 values: from those of rows a and b and of rows c and d the first 4 values and the
 * last. */
POINTS void split_points(__m128 ab, __m128 cd, __m128i out[2])
{
    out[0] = _mm_castps_si128(_mm_shuffle_ps(ab, cd, _MM_SHUFFLE(2, 0, 2, 0)));
    out[1] = _mm_castps_si128(_mm_shuffle_ps(ab, cd, _MM_SHUFFLE(3, 1, 3, 1)));
}

/* As the functions above, for points of 8 values: out[2k], out[2k + 1] are of index k. */
POINTS void long_points_of_4_rows(const uint64_t *grid, const uint8_t *p, __m128i out[8])
{
    uint32_t a = load_u32(p), b = load_u32(p + 4), c = load_u32(p + 8), d = load_u32(p + 12);

    UNROLL for (int k = 0; k < 4; k += 2)
    {
        split_points(two_points(grid, (uint8_t)a, (uint8_t)b),
                     two_points(grid, (uint8_t)c, (uint8_t)d), out + 2 * k);
        split_points(two_points(grid, second_byte(a), second_byte(b)),
                     two_points(grid, second_byte(c), second_byte(d)), out + 2 * k + 2);
        a >>= 16, b >>= 16, c >>= 16, d >>= 16;
    }
}

POINTS void long_points_of_4_rows_16(const uint64_t *grid, __m128i words, __m128i out[4])
{
    uint64_t ab = (uint64_t)_mm_cvtsi128_si64(words), cd = (uint64_t)_mm_extract_epi64(words, 1);

    split_points(two_points(grid, (uint16_t)ab, (uint16_t)(ab >> 32)),
                 two_points(grid, (uint16_t)cd, (uint16_t)(cd >> 32)), out);
    split_points(two_points(grid, (uint16_t)(ab >> 16), ab >> 48),
                 two_points(grid, (uint16_t)(cd >> 16), cd >> 48), out + 2);
}

POINTS void long_points_of_8_rows(const uint64_t *grid, const uint8_t *p, __m256i out[8])
{
    __m128i rows[8], rows_4[8];

    long_points_of_4_rows(grid, p, rows);
    long_points_of_4_rows(grid, p + 16, rows_4);
    UNROLL for (int k = 0; k < 8; k++) out[k] = _mm256_set_m128i(rows_4[k], rows[k]);
}

POINTS void long_points_of_8_rows_16(const uint64_t *grid, __m256i words, __m256i out[4])
{
    __m128i rows[4], rows_4[4];

    long_points_of_4_rows_16(grid, _mm256_castsi256_si128(words), rows);
    long_points_of_4_rows_16(grid, _mm256_extracti128_si256(words, 1), rows_4);
    UNROLL for (int k = 0; k < 4; k++) out[k] = _mm256_set_m128i(rows_4[k], rows[k]);
}

#endif
