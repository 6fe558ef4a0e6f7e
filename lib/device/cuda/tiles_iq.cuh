/* The types with codebooks (kernels/pack_iq.c), as the structs of tiles.cuh. */
#ifndef MOED_DEVICE_CUDA_TILES_IQ_CUH
#define MOED_DEVICE_CUDA_TILES_IQ_CUH

#include "device/cuda/tiles.cuh"
#include "quant/grid_points.h"

/* The tables of quant/grids.h in device memory. The threads of a warp read different points. */
static __device__ const uint64_t tile_grid_iq2_xxs[256] = {GRID_IQ2_XXS(POINT_IQ2)};
static __device__ const uint64_t tile_grid_iq2_xs[512] = {GRID_IQ2_XS(POINT_IQ2)};
static __device__ const uint64_t tile_grid_iq2_s[1024] = {GRID_IQ2_S(POINT_IQ2)};
static __device__ const uint32_t tile_grid_iq3_xxs[256] = {GRID_IQ3_XXS(POINT_IQ3_XXS)};
static __device__ const uint32_t tile_grid_iq3_s[512] = {GRID_IQ3_S(POINT_IQ3_S)};
static __device__ const uint32_t tile_grid_iq1[2048] = {GRID_IQ1(POINT_IQ1)};

/* The signs that the format leaves out, in place of the word's upper 4 bits: as even_signs of
 * kernels/tiles_iq.inc.c. */
static __device__ __forceinline__ uint32_t tile_even_signs(uint32_t word)
{
    uint32_t signs = word & 0x0fffffff, of_4_bytes = signs ^ signs << 16;

    of_4_bytes ^= of_4_bytes << 8;
    return signs | ((of_4_bytes ^ of_4_bytes << 4) & 0xf0000000);
}

/* Group g of 4 columns: a point's bytes, none of which is 0, with their signs. */
static __device__ __forceinline__ int tile_signed_group(uint32_t point, uint32_t signs, int g)
{
    uint32_t minus = signs >> (4 * (g % 2) + g / 2) & 0x01010101;
    return (int)((point ^ minus * 255) + minus);
}

/* 8 columns: groups 2k and 2k + 1. */
static __device__ __forceinline__ void tile_put_8(uint64_t point, uint32_t signs, int k, int q[8])
{
    q[2 * k] = tile_signed_group((uint32_t)point, signs, 2 * k);
    q[2 * k + 1] = tile_signed_group((uint32_t)(point >> 32), signs, 2 * k + 1);
}

/* The upper bits of index k, moved to bit 8. `high`: the sub-block's, lowest in each half; `bits`
 * apart. */
static __device__ __forceinline__ uint32_t tile_upper_bits(uint32_t high, int k, int bits,
                                                           uint32_t mask)
{
    return (high >> (bits * (k / 2) + 16 * (k % 2)) & mask) << 8;
}

static __device__ __forceinline__ float tile_odd(uint32_t scale)
{
    return (float)(int)(2 * scale + 1);
}

struct tiles_iq3_xxs : tiles_of_256<IQ3_XXS_TILE, IQ3_XXS_QUANTS, IQ3_SUB> {
    struct scales {
        uint32_t d;
    };

    static __device__ __forceinline__ scales read_scales(const uint8_t *tile, uint32_t row)
    {
        return {tile_load_16(tile + 2 * row)};
    }

    static __device__ __forceinline__ void decode(const scales &s, const uint32_t *words, uint32_t,
                                                  struct tile_block *b)
    {
        uint32_t signs = tile_even_signs(words[2]);

        b->w = tile_half(s.d) * 0.25f * tile_odd(words[2] >> 28);
#pragma unroll
        for (int k = 0; k < 8; k++)
            b->q[k] = tile_signed_group(__ldg(tile_grid_iq3_xxs + tile_byte(words[k / 4], k % 4)),
                                        signs, k);
    }
};

struct tiles_iq3_s : tiles_of_256<IQ3_S_TILE, IQ3_S_QUANTS, IQ3_SUB> {
    struct scales {
        uint32_t d, high[2], packed;
    };

    static __device__ __forceinline__ scales read_scales(const uint8_t *tile, uint32_t row)
    {
        scales s = {tile_load_16(tile + 2 * row), {}, tile_load_32(tile + IQ3_S_SCALES + 4 * row)};
        tile_load_rows<2>(tile + IQ3_S_HIGH, row, s.high);
        return s;
    }

    static __device__ __forceinline__ void decode(const scales &s, const uint32_t *words,
                                                  uint32_t sub, struct tile_block *b)
    {
        uint32_t high = (sub < 4 ? s.high[0] : s.high[1]) >> 4 * (sub % 4);

        b->w = tile_half(s.d) * tile_odd(s.packed >> 4 * sub & 15);
#pragma unroll
        for (int k = 0; k < 8; k++)
            b->q[k] = tile_signed_group(__ldg(tile_grid_iq3_s + (tile_byte(words[k / 4], k % 4) |
                                                                 tile_upper_bits(high, k, 1, 1))),
                                        words[2], k);
    }
};

struct tiles_iq2_xxs : tiles_of_256<IQ2_XXS_TILE, IQ2_XXS_QUANTS, IQ2_SUB> {
    struct scales {
        uint32_t d;
    };

    static __device__ __forceinline__ scales read_scales(const uint8_t *tile, uint32_t row)
    {
        return {tile_load_16(tile + 2 * row)};
    }

    static __device__ __forceinline__ void decode(const scales &s, const uint32_t *words, uint32_t,
                                                  struct tile_block *b)
    {
        uint32_t signs = tile_even_signs(words[1]);

        b->w = tile_half(s.d) * 0.125f * tile_odd(words[1] >> 28);
#pragma unroll
        for (int k = 0; k < 4; k++)
            tile_put_8(__ldg(tile_grid_iq2_xxs + tile_byte(words[0], k)), signs, k, b->q);
    }
};

/* A byte of `packed` has the scales of the halves of a sub-block. */
static __device__ __forceinline__ void tile_iq2_scales(uint32_t d, const uint32_t packed[2],
                                                       uint32_t sub, struct tile_block *b)
{
    int both = tile_byte(sub < 4 ? packed[0] : packed[1], sub % 4);

    b->w = tile_half(d) * 0.125f;
    b->scale[0] = 2 * (both & 15) + 1;
    b->scale[1] = 2 * (both >> 4) + 1;
}

struct tiles_iq2_xs : tiles_of_256<IQ2_XS_TILE, IQ2_XS_QUANTS, IQ2_SUB> {
    enum { SCALES_16 = 1 };

    struct scales {
        uint32_t d, packed[2];
    };

    static __device__ __forceinline__ scales read_scales(const uint8_t *tile, uint32_t row)
    {
        scales s = {tile_load_16(tile + 2 * row), {}};
        tile_load_rows<2>(tile + IQ2_XS_SCALES, row, s.packed);
        return s;
    }

    static __device__ __forceinline__ void decode(const scales &s, const uint32_t *words,
                                                  uint32_t sub, struct tile_block *b)
    {
        uint32_t signs = tile_even_signs(words[1]);

        tile_iq2_scales(s.d, s.packed, sub, b);
#pragma unroll
        for (int k = 0; k < 4; k++)
            tile_put_8(__ldg(tile_grid_iq2_xs +
                             (tile_byte(words[0], k) | (words[1] >> (28 + k) & 1) << 8)),
                       signs, k, b->q);
    }
};

struct tiles_iq2_s : tiles_of_256<IQ2_S_TILE, IQ2_S_QUANTS, IQ2_SUB> {
    enum { SCALES_16 = 1 };

    struct scales {
        uint32_t d, high[2], packed[2];
    };

    static __device__ __forceinline__ scales read_scales(const uint8_t *tile, uint32_t row)
    {
        scales s = {tile_load_16(tile + 2 * row), {}, {}};
        tile_load_rows<2>(tile + IQ2_S_HIGH, row, s.high);
        tile_load_rows<2>(tile + IQ2_S_SCALES, row, s.packed);
        return s;
    }

    static __device__ __forceinline__ void decode(const scales &s, const uint32_t *words,
                                                  uint32_t sub, struct tile_block *b)
    {
        uint32_t high = (sub < 4 ? s.high[0] : s.high[1]) >> 4 * (sub % 4);

        tile_iq2_scales(s.d, s.packed, sub, b);
#pragma unroll
        for (int k = 0; k < 4; k++)
            tile_put_8(
                __ldg(tile_grid_iq2_s + (tile_byte(words[0], k) | tile_upper_bits(high, k, 2, 3))),
                words[1], k, b->q);
    }
};

/* 8 columns of IQ1: groups 2k and 2k + 1, from a point's nibbles through quant_iq1_values. */
static __device__ __forceinline__ void tile_put_iq1(uint32_t point, uint32_t minus, int k, int q[8])
{
    uint32_t words[4] = {point | minus * 0x44444444, 0, 0, 0};
    int groups[8];

    tile_look_up(words, 0x000901f9, 0x0007fff7, 0, 0, groups);
    q[2 * k] = groups[0];
    q[2 * k + 1] = groups[1];
}

struct tiles_iq1_s : tiles_of_256<IQ1_S_TILE, IQ1_S_QUANTS, TILE_VECTOR> {
    struct scales {
        uint32_t d, high[4];
    };

    static __device__ __forceinline__ scales read_scales(const uint8_t *tile, uint32_t row)
    {
        scales s = {tile_load_16(tile + 2 * row), {}};
        tile_load_rows<4>(tile + IQ1_S_HIGH, row, s.high);
        return s;
    }

    static __device__ __forceinline__ void decode(const scales &s, const uint32_t *words,
                                                  uint32_t sub, struct tile_block *b)
    {
        uint32_t word = tile_choose(s.high, sub / 2), own = word >> 16 * (sub % 2);

        b->w = tile_half(s.d) * 0.125f * tile_odd(own >> 12 & 7);
#pragma unroll
        for (int k = 0; k < 4; k++)
            tile_put_iq1(__ldg(tile_grid_iq1 + (tile_byte(words[0], k) |
                                                tile_upper_bits(word >> 6 * (sub % 2), k, 3, 7))),
                         own >> 15 & 1, k, b->q);
    }
};

struct tiles_iq1_m : tiles_of_256<IQ1_M_TILE, IQ1_M_QUANTS, TILE_VECTOR> {
    enum { SCALES_16 = 1 };

    struct scales {
        uint32_t d, packed[3], high[4];
    };

    static __device__ __forceinline__ scales read_scales(const uint8_t *tile, uint32_t row)
    {
        scales s = {tile_load_16(tile + 2 * row), {}, {}};
#pragma unroll
        for (int k = 0; k < 3; k++)
            s.packed[k] = tile_load_16(tile + IQ1_M_SCALES + k * TILE_HALVES + 2 * row);
        tile_load_rows<4>(tile + IQ1_M_HIGH, row, s.high);
        return s;
    }

    /* Four scales. The last four stand in the upper bits of the others. */
    static __device__ __forceinline__ uint32_t four_scales(const scales &s, uint32_t four)
    {
        uint32_t last = s.packed[0] >> 12 | s.packed[1] >> 12 << 4 | s.packed[2] >> 12 << 8;
        uint32_t words[4] = {s.packed[0], s.packed[1], s.packed[2], last};
        return tile_choose(words, four);
    }

    static __device__ __forceinline__ void decode(const scales &s, const uint32_t *words,
                                                  uint32_t sub, struct tile_block *b)
    {
        uint32_t high = tile_choose(s.high, sub / 2) >> 8 * (sub % 2);
        uint32_t scales = four_scales(s, sub / 2) >> 6 * (sub % 2);

        b->w = tile_half(s.d) * 0.125f;
        b->scale[0] = (int)(2 * (scales & 7) + 1);
        b->scale[1] = (int)(2 * (scales >> 3 & 7) + 1);
#pragma unroll
        for (int k = 0; k < 4; k++)
            tile_put_iq1(
                __ldg(tile_grid_iq1 + (tile_byte(words[0], k) | tile_upper_bits(high, k, 4, 7))),
                high >> (3 + 4 * (k / 2) + 16 * (k % 2)) & 1, k, b->q);
    }
};

#endif
