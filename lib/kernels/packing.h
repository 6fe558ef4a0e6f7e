/* A packer and an unpacker for each tensor type. Private to lib/kernels.
 *
 * Loading a model packs every byte. Therefore a packer takes four rows at a time (a quad): one word
 * of each row makes a vector of 16 bytes, which every CPU has.
 *
 * Packers only move bits. Unpacking rebuilds the file's block bit for bit; lib/quant knows its
 * meaning. A word is 4 columns (a 32-bit group, see tile_layout.h), little endian as in the file.
 */
#ifndef MOED_KERNELS_PACKING_H
#define MOED_KERNELS_PACKING_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Packs the blocks of rows 4 quad to 4 quad + 3, `stride` bytes apart, into a tile. Float types
 * pack n consecutive blocks into n tiles; for the others n is 1. */
typedef void pack_block(const uint8_t *block, size_t stride, unsigned quad, uint32_t n,
                        uint8_t *tile);
/* Rebuilds the block of row `row` of a tile. Writes every byte of the block. */
typedef void unpack_block(const uint8_t *tile, unsigned row, uint8_t *block);

/* pack_32.c */
extern pack_block pack_f32, pack_f16, pack_q8_0, pack_q4_0, pack_q4_1, pack_q5_0, pack_q5_1;
extern pack_block pack_mxfp4, pack_nvfp4;
extern unpack_block unpack_f32, unpack_f16, unpack_q8_0, unpack_q4_0, unpack_q4_1, unpack_q5_0;
extern unpack_block unpack_q5_1, unpack_mxfp4, unpack_nvfp4;

/* pack_256.c */
extern pack_block pack_q2_k, pack_q3_k, pack_q4_k, pack_q5_k, pack_q6_k, pack_iq4_xs;
extern unpack_block unpack_q2_k, unpack_q3_k, unpack_q4_k, unpack_q5_k, unpack_q6_k, unpack_iq4_xs;

/* pack_iq.c */
extern pack_block pack_iq3_s, pack_iq3_xxs, pack_iq2_s, pack_iq2_xs, pack_iq2_xxs;
extern pack_block pack_iq1_s, pack_iq1_m;
extern unpack_block unpack_iq3_s, unpack_iq3_xxs, unpack_iq2_s, unpack_iq2_xs, unpack_iq2_xxs;
extern unpack_block unpack_iq1_s, unpack_iq1_m;

/* A 32-bit word of each row of a quad. */
typedef uint32_t quad_word __attribute__((vector_size(16)));

static inline quad_word quad_load(const uint8_t *row)
{
    quad_word w;
    memcpy(&w, row, sizeof w);
    return w;
}

static inline void quad_store(uint8_t *tile_vector, unsigned quad, quad_word w)
{
    memcpy(tile_vector + sizeof w * quad, &w, sizeof w);
}

/* Reads n words from `at` of four rows. words[i]: word i of each row. */
static inline void quad_words(const uint8_t *at, size_t stride, unsigned n, quad_word *words)
{
    unsigned i = 0;
    for (; i + 4 <= n; i += 4) {
        quad_word a = quad_load(at + 4 * i), b = quad_load(at + stride + 4 * i);
        quad_word c = quad_load(at + 2 * stride + 4 * i), d = quad_load(at + 3 * stride + 4 * i);
        quad_word ab_low = __builtin_shufflevector(a, b, 0, 4, 1, 5);
        quad_word cd_low = __builtin_shufflevector(c, d, 0, 4, 1, 5);
        quad_word ab_high = __builtin_shufflevector(a, b, 2, 6, 3, 7);
        quad_word cd_high = __builtin_shufflevector(c, d, 2, 6, 3, 7);
        words[i] = __builtin_shufflevector(ab_low, cd_low, 0, 1, 4, 5);
        words[i + 1] = __builtin_shufflevector(ab_low, cd_low, 2, 3, 6, 7);
        words[i + 2] = __builtin_shufflevector(ab_high, cd_high, 0, 1, 4, 5);
        words[i + 3] = __builtin_shufflevector(ab_high, cd_high, 2, 3, 6, 7);
    }
    for (; i < n; i++)
        for (unsigned row = 0; row < 4; row++) {
            uint32_t word;
            memcpy(&word, at + row * stride + 4 * i, sizeof word);
            words[i][row] = word;
        }
}

/* Writes a 16-bit number of each row to the tile's 16 halves. */
static inline void quad_put_halves(const uint8_t *at, size_t stride, unsigned quad, uint8_t *halves)
{
    for (unsigned row = 0; row < 4; row++)
        memcpy(halves + 8 * quad + 2 * row, at + row * stride, 2);
}

/* Writes n words of each row to n vectors of the tile. */
static inline void quad_put_words(const uint8_t *at, size_t stride, unsigned n, unsigned quad,
                                  uint8_t *vectors)
{
    quad_word words[16];
    quad_words(at, stride, n, words);
    for (unsigned i = 0; i < n; i++)
        quad_store(vectors + 64 * i, quad, words[i]);
}

/* Writes vector v of the four vectors of nibbles of 32 columns: group 2v from the low four bits of
 * `even`, group 2v + 1 from those of `odd`. */
static inline void quad_put_nibbles(uint8_t *p, unsigned quad, unsigned v, quad_word even,
                                    quad_word odd)
{
    quad_store(p + 64 * v, quad, (even & 0x0f0f0f0f) | (odd & 0x0f0f0f0f) << 4);
}

/* For pack_32.c and pack_256.c: convert between the 4 vectors of nibbles at p and the file's 16
 * bytes (4 words), whose byte j holds columns j and j + 16. */
void pack_split_nibbles(const quad_word *file, unsigned quad, uint8_t *p);
void unpack_split_nibbles(const uint8_t *p, unsigned row, uint8_t *file);

#endif
