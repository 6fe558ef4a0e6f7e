/* Reading tiles (kernels/tile.h) in kernels: one struct for each tensor type. A thread reads one
 * row, and the 16 threads of a half-warp the 16 rows of a tile, so each of their loads is 64
 * adjacent bytes.
 *
 * The struct of a quantised type has
 *
 *   COLUMNS    of a tile, 32 or 256
 *   BYTES      of a tile
 *   WORDS      of quants for 32 columns of a row
 *   OFFSET     to subtract from the quants (0: none, or done); kernels.h
 *   SCALES_16  true: every 16 columns have a scale of integers
 *   FACTORS    true: every 16 columns have a float32 that multiplies their sum exactly
 *   ROW_FACTORS true: a tile row ends in the rows' factors (kernels/tile.h)
 *   MINIMUM    32 or 16: every 32 or 16 columns have a minimum; 0: none
 *   scales     everything of a tile's row but its quants, as it was read
 *   read_scales(tile, row), read_quants(tile, sub, row, words)
 *              Only loads, so that many can be under way. sub: which 32 columns.
 *              Tiles of 32 columns are contiguous: sub may count on into the next.
 *   decode(scales, words, sub, block)
 *              Converts to the definition's terms.
 *
 * The struct of a float type has COLUMNS, BYTES, ROW_FACTORS, and read(columns, c, row): column c
 * from there.
 *
 * sub is a constant once the loop over it is unrolled. Where it is not, code chooses among words by
 * selection, never by indexing. */
#ifndef MOED_DEVICE_CUDA_TILES_CUH
#define MOED_DEVICE_CUDA_TILES_CUH

#include "device/cuda/scalar.cuh"
#include "kernels/tile.h"

#ifndef _Static_assert
#define _Static_assert static_assert /* C's word in tile_layout.h */
#endif
#include "kernels/tile_layout.h"

/* 32 columns of a row. */
struct tile_block {
    int q[8];        /* groups of 4 columns, signed bytes */
    int scale[2];    /* of 16 columns, where SCALES_16 */
    int min[2];      /* of 16 columns, where MINIMUM is 16 */
    float factor[2]; /* of 16 columns, where FACTORS */
    float w;
    float c; /* MINIMUM 32: times bias; 16: dmin */
};

static __device__ __forceinline__ uint32_t tile_load_32(const uint8_t *p)
{
    return *(const uint32_t *)p;
}

static __device__ __forceinline__ uint32_t tile_load_16(const uint8_t *p)
{
    return *(const uint16_t *)p;
}

/* The row's word of each of COUNT vectors. */
template <int COUNT>
static __device__ __forceinline__ void tile_load_rows(const uint8_t *vectors, uint32_t row,
                                                      uint32_t *words)
{
#pragma unroll
    for (int k = 0; k < COUNT; k++)
        words[k] = tile_load_32(vectors + k * TILE_VECTOR + 4 * row);
}

static __device__ __forceinline__ float tile_half(uint32_t bits)
{
    return cuda_half_to_float((uint16_t)bits);
}

static __device__ __forceinline__ int tile_byte(uint32_t word, uint32_t index)
{
    return (int)(word >> 8 * index & 0xff);
}

static __device__ __forceinline__ int tile_signed_byte(uint32_t word, uint32_t index)
{
    return (int)(word << (24 - 8 * index)) >> 24;
}

static __device__ __forceinline__ uint32_t tile_choose(const uint32_t words[4], uint32_t index)
{
    uint32_t low = index & 1 ? words[1] : words[0], high = index & 1 ? words[3] : words[2];
    return index & 2 ? high : low;
}

/* Quants. */

static __device__ __forceinline__ void tile_nibbles_of(const uint32_t words[4], int q[8])
{
#pragma unroll
    for (int v = 0; v < 4; v++) {
        q[2 * v] = (int)(words[v] & 0x0f0f0f0f);
        q[2 * v + 1] = (int)(words[v] >> 4 & 0x0f0f0f0f);
    }
}

/* Bit g of each byte becomes bit 4 of group g's. */
static __device__ __forceinline__ void tile_fifth_bits(uint32_t high, int q[8])
{
#pragma unroll
    for (int g = 0; g < 8; g++)
        q[g] |= (int)((g < 4 ? high << (4 - g) : high >> (g - 4)) & 0x10101010);
}

/* Two bits each of 4 groups. */
static __device__ __forceinline__ uint32_t tile_2_bits(uint32_t word, int g)
{
    return word >> 2 * g & 0x03030303;
}

/* Nibbles through a table of 16 bytes, in four words. A permutation takes half-bytes as they lie in
 * the word, of which three bits choose among 8 bytes; the fourth chooses between the halves of the
 * table. */
static __device__ __forceinline__ void tile_look_up(const uint32_t words[4], uint32_t t0,
                                                    uint32_t t1, uint32_t t2, uint32_t t3, int q[8])
{
#pragma unroll
    for (int v = 0; v < 4; v++) {
        uint32_t half[2];
#pragma unroll
        for (int h = 0; h < 2; h++) {
            uint32_t nibbles = words[v] >> 16 * h;
            uint32_t low = __byte_perm(t0, t1, nibbles & 0x7777);
            uint32_t high = __byte_perm(t2, t3, nibbles & 0x7777);
            half[h] = __byte_perm(low, high, 0x3210 | (nibbles & 0x8888) >> 1);
        }
        q[2 * v] = (int)__byte_perm(half[0], half[1], 0x6420);
        q[2 * v + 1] = (int)__byte_perm(half[0], half[1], 0x7531);
    }
}

/* quant_iq4_values. */
static __device__ __forceinline__ void tile_look_up_iq4(const uint32_t words[4], int q[8])
{
    tile_look_up(words, 0xbfad9881, 0xf6eaddcf, 0x26190d01, 0x71594535, q);
}

/* quant_mxfp4_values. */
static __device__ __forceinline__ void tile_look_up_mxfp4(const uint32_t words[4], int q[8])
{
    tile_look_up(words, 0x03020100, 0x0c080604, 0xfdfeff00, 0xf4f8fafc, q);
}

/* Types of 32 columns a tile. */

template <int TILE_BYTES, int QUANTS_AT, int N_WORDS> struct tiles_of_32 {
    enum {
        QUANTIZED = 1,
        COLUMNS = 32,
        BYTES = TILE_BYTES,
        WORDS = N_WORDS,
        OFFSET = 0,
        SCALES_16 = 0,
        FACTORS = 0,
        ROW_FACTORS = 0,
        MINIMUM = 0
    };

    struct scales {
        uint32_t d;
    };

    static __device__ __forceinline__ scales read_scales(const uint8_t *tile, uint32_t row)
    {
        return {tile_load_16(tile + 2 * row)};
    }

    static __device__ __forceinline__ void read_quants(const uint8_t *tile, uint32_t sub,
                                                       uint32_t row, uint32_t *words)
    {
        tile_load_rows<WORDS>(tile + sub * BYTES + QUANTS_AT, row, words);
    }
};

struct tiles_q8_0 : tiles_of_32<Q8_0_TILE, Q8_0_QUANTS, 8> {
    static __device__ __forceinline__ void decode(const scales &s, const uint32_t *words, uint32_t,
                                                  struct tile_block *b)
    {
        b->w = tile_half(s.d);
#pragma unroll
        for (int g = 0; g < 8; g++)
            b->q[g] = (int)words[g];
    }
};

struct tiles_q4_0 : tiles_of_32<Q4_0_TILE, Q4_0_QUANTS, 4> {
    enum { OFFSET = 8 };

    static __device__ __forceinline__ void decode(const scales &s, const uint32_t *words, uint32_t,
                                                  struct tile_block *b)
    {
        b->w = tile_half(s.d);
        tile_nibbles_of(words, b->q);
    }
};

struct tiles_iq4_nl : tiles_of_32<Q4_0_TILE, Q4_0_QUANTS, 4> {
    static __device__ __forceinline__ void decode(const scales &s, const uint32_t *words, uint32_t,
                                                  struct tile_block *b)
    {
        b->w = tile_half(s.d);
        tile_look_up_iq4(words, b->q);
    }
};

struct tiles_mxfp4 : tiles_of_32<MXFP4_TILE, MXFP4_QUANTS, 4> {
    static __device__ __forceinline__ scales read_scales(const uint8_t *tile, uint32_t row)
    {
        return {tile[row]};
    }

    /* The scale is quant_mxfp4_scale. */
    static __device__ __forceinline__ void decode(const scales &s, const uint32_t *words, uint32_t,
                                                  struct tile_block *b)
    {
        b->w = __int_as_float((int)(s.d < 2 ? 0x00200000u << s.d : (s.d - 1) << 23));
        tile_look_up_mxfp4(words, b->q);
    }
};

/* Two tiles a block of 64 columns. */
struct tiles_nvfp4 : tiles_of_32<NVFP4_TILE, NVFP4_QUANTS, 4> {
    enum { FACTORS = 1, ROW_FACTORS = 1 };

    /* quant_nvfp4_scale. */
    static __device__ __forceinline__ float scale(int bits)
    {
        return bits == 0x7f ? 0 : __int_as_float((bits & 0x7f) << 20) * 0x1p119f;
    }

    static __device__ __forceinline__ void decode(const scales &s, const uint32_t *words, uint32_t,
                                                  struct tile_block *b)
    {
        b->w = 1;
        b->factor[0] = scale(tile_byte(s.d, 0));
        b->factor[1] = scale(tile_byte(s.d, 1));
        tile_look_up_mxfp4(words, b->q);
    }
};

struct tiles_q5_0 : tiles_of_32<Q5_0_TILE, Q5_0_QUANTS, 5> {
    enum { OFFSET = 16 };

    static __device__ __forceinline__ void decode(const scales &s, const uint32_t *words, uint32_t,
                                                  struct tile_block *b)
    {
        b->w = tile_half(s.d);
        tile_nibbles_of(words, b->q);
        tile_fifth_bits(words[4], b->q);
    }
};

/* With a minimum. */
template <int TILE_BYTES, int QUANTS_AT, int N_WORDS>
struct tiles_of_32_min : tiles_of_32<TILE_BYTES, QUANTS_AT, N_WORDS> {
    enum { MINIMUM = 32 };

    struct scales {
        uint32_t d, m;
    };

    static __device__ __forceinline__ scales read_scales(const uint8_t *tile, uint32_t row)
    {
        return {tile_load_16(tile + 2 * row), tile_load_16(tile + TILE_HALVES + 2 * row)};
    }
};

struct tiles_q4_1 : tiles_of_32_min<Q4_1_TILE, Q4_1_QUANTS, 4> {
    static __device__ __forceinline__ void decode(const scales &s, const uint32_t *words, uint32_t,
                                                  struct tile_block *b)
    {
        b->w = tile_half(s.d);
        b->c = tile_half(s.m);
        tile_nibbles_of(words, b->q);
    }
};

struct tiles_q5_1 : tiles_of_32_min<Q5_1_TILE, Q5_1_QUANTS, 5> {
    static __device__ __forceinline__ void decode(const scales &s, const uint32_t *words, uint32_t,
                                                  struct tile_block *b)
    {
        b->w = tile_half(s.d);
        b->c = tile_half(s.m);
        tile_nibbles_of(words, b->q);
        tile_fifth_bits(words[4], b->q);
    }
};

/* Types of 256 columns a tile. */

template <int TILE_BYTES, int QUANTS_AT, int SUB_BYTES> struct tiles_of_256 {
    enum {
        QUANTIZED = 1,
        COLUMNS = 256,
        BYTES = TILE_BYTES,
        WORDS = SUB_BYTES / TILE_VECTOR,
        OFFSET = 0,
        SCALES_16 = 0,
        FACTORS = 0,
        ROW_FACTORS = 0,
        MINIMUM = 0
    };

    static __device__ __forceinline__ void read_quants(const uint8_t *tile, uint32_t sub,
                                                       uint32_t row, uint32_t *words)
    {
        tile_load_rows<WORDS>(tile + QUANTS_AT + sub * SUB_BYTES, row, words);
    }
};

/* Q4_K and Q5_K: quant_k_scale_min, four scales or minima in a word. */
template <int TILE_BYTES, int SUB_BYTES>
struct tiles_k : tiles_of_256<TILE_BYTES, K_QUANTS, SUB_BYTES> {
    enum { MINIMUM = 32 };

    struct scales {
        uint32_t d, dmin, packed[3];
    };

    static __device__ __forceinline__ scales read_scales(const uint8_t *tile, uint32_t row)
    {
        scales s = {tile_load_16(tile + 2 * row), tile_load_16(tile + K_MINS + 2 * row), {}};
        tile_load_rows<3>(tile + K_SCALES, row, s.packed);
        return s;
    }

    static __device__ __forceinline__ void decode_scales(const scales &s, uint32_t sub,
                                                         struct tile_block *b)
    {
        uint32_t scales = sub < 4 ? s.packed[0] & 0x3f3f3f3f
                                  : (s.packed[2] & 0x0f0f0f0f) | (s.packed[0] >> 2 & 0x30303030);
        uint32_t mins = sub < 4 ? s.packed[1] & 0x3f3f3f3f
                                : (s.packed[2] >> 4 & 0x0f0f0f0f) | (s.packed[1] >> 2 & 0x30303030);
        b->w = tile_half(s.d) * (float)tile_byte(scales, sub % 4);
        b->c = -(tile_half(s.dmin) * (float)tile_byte(mins, sub % 4));
    }
};

struct tiles_q4_k : tiles_k<Q4_K_TILE, Q4_K_SUB> {
    static __device__ __forceinline__ void decode(const scales &s, const uint32_t *words,
                                                  uint32_t sub, struct tile_block *b)
    {
        decode_scales(s, sub, b);
        tile_nibbles_of(words, b->q);
    }
};

struct tiles_q5_k : tiles_k<Q5_K_TILE, Q5_K_SUB> {
    static __device__ __forceinline__ void decode(const scales &s, const uint32_t *words,
                                                  uint32_t sub, struct tile_block *b)
    {
        decode_scales(s, sub, b);
        tile_nibbles_of(words, b->q);
        tile_fifth_bits(words[4], b->q);
    }
};

struct tiles_q6_k : tiles_of_256<Q6_K_TILE, Q6_K_QUANTS, Q6_K_SUB> {
    enum { OFFSET = 32, SCALES_16 = 1 };

    struct scales {
        uint32_t d, packed[4];
    };

    static __device__ __forceinline__ scales read_scales(const uint8_t *tile, uint32_t row)
    {
        scales s = {tile_load_16(tile + 2 * row), {}};
        tile_load_rows<4>(tile + Q6_K_SCALES, row, s.packed);
        return s;
    }

    static __device__ __forceinline__ void decode(const scales &s, const uint32_t *words,
                                                  uint32_t sub, struct tile_block *b)
    {
        uint32_t scales = tile_choose(s.packed, sub / 2);

        b->w = tile_half(s.d);
        tile_nibbles_of(words, b->q);
#pragma unroll
        for (int h = 0; h < 2; h++) {
            b->scale[h] = tile_signed_byte(scales, sub % 2 * 2 + h);
#pragma unroll
            for (int g = 0; g < 4; g++)
                b->q[4 * h + g] |= (int)(tile_2_bits(words[4 + h], g) << 4);
        }
    }
};

struct tiles_q2_k : tiles_of_256<Q2_K_TILE, Q2_K_QUANTS, Q2_K_SUB> {
    enum { SCALES_16 = 1, MINIMUM = 16 };

    struct scales {
        uint32_t d, dmin, packed[4];
    };

    static __device__ __forceinline__ scales read_scales(const uint8_t *tile, uint32_t row)
    {
        scales s = {tile_load_16(tile + 2 * row), tile_load_16(tile + K_MINS + 2 * row), {}};
        tile_load_rows<4>(tile + Q2_K_SCALES, row, s.packed);
        return s;
    }

    static __device__ __forceinline__ void decode(const scales &s, const uint32_t *words,
                                                  uint32_t sub, struct tile_block *b)
    {
        uint32_t scales = tile_choose(s.packed, sub / 2);

        b->w = tile_half(s.d);
        b->c = tile_half(s.dmin);
#pragma unroll
        for (int h = 0; h < 2; h++) {
            int both = tile_byte(scales, sub % 2 * 2 + h);
            b->scale[h] = both & 15;
            b->min[h] = both >> 4;
#pragma unroll
            for (int g = 0; g < 4; g++)
                b->q[4 * h + g] = (int)tile_2_bits(words[h], g);
        }
    }
};

struct tiles_q3_k : tiles_of_256<Q3_K_TILE, Q3_K_QUANTS, Q3_K_SUB> {
    enum { OFFSET = 4, SCALES_16 = 1 };

    struct scales {
        uint32_t d, packed[3];
    };

    static __device__ __forceinline__ scales read_scales(const uint8_t *tile, uint32_t row)
    {
        scales s = {tile_load_16(tile + 2 * row), {}};
        tile_load_rows<3>(tile + Q3_K_SCALES, row, s.packed);
        return s;
    }

    /* quant_q3_k_scale: of scales j to j + 3, which share a word, the low nibbles and the two upper
     * bits. */
    static __device__ __forceinline__ uint32_t four_scales(const scales &s, uint32_t four)
    {
        uint32_t low = (four & 1 ? s.packed[1] : s.packed[0]) >> (four & 2) * 2 & 0x0f0f0f0f;
        return low | (s.packed[2] >> 2 * four & 0x03030303) << 4;
    }

    static __device__ __forceinline__ void decode(const scales &s, const uint32_t *words,
                                                  uint32_t sub, struct tile_block *b)
    {
        uint32_t scales = four_scales(s, sub / 2);

        b->w = tile_half(s.d);
#pragma unroll
        for (int h = 0; h < 2; h++)
            b->scale[h] = tile_byte(scales, sub % 2 * 2 + h) - 32;
#pragma unroll
        for (int v = 0; v < 3; v++) {
            b->q[2 * v] = (int)(words[v] & 0x07070707);
            b->q[2 * v + 1] = (int)(words[v] >> 3 & 0x07070707);
        }
#pragma unroll
        for (int v = 0; v < 2; v++)
            b->q[6 + v] = (int)((words[v] >> 6 & 0x03030303) | (words[2] >> (4 + v) & 0x04040404));
    }
};

struct tiles_iq4_xs : tiles_of_256<IQ4_XS_TILE, IQ4_XS_QUANTS, Q4_K_SUB> {
    struct scales {
        uint32_t d, high, low;
    };

    static __device__ __forceinline__ scales read_scales(const uint8_t *tile, uint32_t row)
    {
        return {tile_load_16(tile + 2 * row), tile_load_16(tile + IQ4_XS_HIGH + 2 * row),
                tile_load_32(tile + IQ4_XS_LOW + 4 * row)};
    }

    static __device__ __forceinline__ void decode(const scales &s, const uint32_t *words,
                                                  uint32_t sub, struct tile_block *b)
    {
        int scale = (int)((s.low >> 4 * sub & 15) | (s.high >> 2 * sub & 3) << 4) - 32;

        b->w = tile_half(s.d) * (float)scale;
        tile_look_up_iq4(words, b->q);
    }
};

/* Float types. */

template <int TILE_COLUMNS, int TILE_BYTES> struct tiles_float {
    enum { QUANTIZED = 0, COLUMNS = TILE_COLUMNS, BYTES = TILE_BYTES, ROW_FACTORS = 0 };
};

struct tiles_f32 : tiles_float<1, 64> {
    static __device__ __forceinline__ float read(const uint8_t *columns, uint32_t c, uint32_t row)
    {
        return __int_as_float((int)tile_load_32(columns + c * 64 + 4 * row));
    }
};

struct tiles_f16 : tiles_float<1, 32> {
    static __device__ __forceinline__ float read(const uint8_t *columns, uint32_t c, uint32_t row)
    {
        return tile_half(tile_load_16(columns + c * 32 + 2 * row));
    }
};

struct tiles_bf16 : tiles_float<2, 64> {
    static __device__ __forceinline__ float read(const uint8_t *columns, uint32_t c, uint32_t row)
    {
        uint32_t pair = tile_load_32(columns + c / 2 * 64 + 4 * row);
        return __int_as_float((int)(c % 2 ? pair & 0xffff0000 : pair << 16));
    }
};

/* tile_row_bytes of a type, and the bytes of 256 columns of a tile row. */
template <class T> static inline uint64_t tiles_row_bytes(uint32_t cols)
{
    uint64_t tiles = ((uint64_t)cols + T::COLUMNS - 1) / T::COLUMNS;
    uint64_t bytes = (tiles * T::BYTES + TILE_ALIGN - 1) / TILE_ALIGN * TILE_ALIGN;
    return bytes + (T::ROW_FACTORS ? (uint64_t)TILE_VECTOR : 0);
}

/* The factor of a row of a tile row of row_bytes, where there are ROW_FACTORS; else 1. */
template <class T>
static __device__ __forceinline__ float tiles_row_factor(const uint8_t *tile_row,
                                                         uint64_t row_bytes, uint32_t row)
{
    if constexpr (T::ROW_FACTORS)
        return __int_as_float((int)tile_load_32(tile_row + row_bytes - TILE_VECTOR + 4 * row));
    return 1;
}

template <class T> struct tiles_256 {
    enum { BYTES = 256 / T::COLUMNS * T::BYTES };
};

#endif
