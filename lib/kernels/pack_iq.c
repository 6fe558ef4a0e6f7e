/* Packers of the types with codebooks, super-blocks of 256 columns; see packing.h. 32 columns are a
 * sub-block.
 *
 * The three parts of their tiles that the types share:
 *
 * Indices, vectors: byte j of word r is the low byte of index j of row r, as in the file.
 *
 * Signs, a vector for each sub-block: bit 4 * (g % 2) + g / 2 of byte c of word r is the sign of
 * column 4g+c. So a shift brings the signs of a group to the upper bits of its bytes, and the bits
 * of a type whose eighth sign is not stored leave the word's upper 4 bits free. In the file, bit i
 * of byte j is the sign of column 8j+i.
 *
 * Upper bits of indices ("high"), words: those of the even indices stand in the lower 16 bits, in
 * order, those of the odd ones in the upper 16 bits. */
#include "kernels/packing.h"
#include "kernels/tile_layout.h"

/* Exchanges the bits of `mask` with those `shift` further up. */
static quad_word swap_bits(quad_word x, unsigned shift, uint32_t mask)
{
    quad_word t = (x ^ (x >> shift)) & mask;

    return x ^ t ^ (t << shift);
}

/* From the file's order of signs to the tile's and back: byte j, bit c of a nibble becomes byte c,
 * bit j. */
static quad_word turn_signs(quad_word signs)
{
    return swap_bits(swap_bits(signs, 7, 0x00aa00aa), 14, 0x0000cccc);
}

/* Parts the fields of `bits` bits (1, 2 or 4) of each word into even and odd ones. */
static quad_word part_fields(quad_word x, unsigned bits)
{
    if (bits <= 1)
        x = swap_bits(x, 1, 0x22222222);
    if (bits <= 2)
        x = swap_bits(x, 2, 0x0c0c0c0c);
    return swap_bits(swap_bits(x, 4, 0x00f000f0), 8, 0x0000ff00);
}

static quad_word join_fields(quad_word x, unsigned bits)
{
    x = swap_bits(swap_bits(x, 8, 0x0000ff00), 4, 0x00f000f0);
    if (bits <= 2)
        x = swap_bits(x, 2, 0x0c0c0c0c);
    if (bits <= 1)
        x = swap_bits(x, 1, 0x22222222);
    return x;
}

/* Word `row` of vector `index` at p, for the functions of quads. */
static quad_word quad_of(const uint8_t *p, unsigned index, unsigned row)
{
    return (quad_word){tile_word(p, index, row)};
}

static void put_shorts(quad_word words, unsigned quad, uint8_t *shorts)
{
    for (unsigned row = 0; row < 4; row++)
        store_u16(shorts + 8 * quad + 2 * row, (uint16_t)words[row]);
}

/* Words [0, n) of the vectors at p. */
static void unpack_words(const uint8_t *p, unsigned row, unsigned n, uint8_t *out)
{
    for (unsigned k = 0; k < n; k++)
        store_u32(out + 4 * k, tile_word(p, k, row));
}

/* n words of upper bits. */
static void pack_high(const uint8_t *block, size_t stride, unsigned quad, unsigned n, unsigned bits,
                      uint8_t *p)
{
    quad_word high[4];

    quad_words(block, stride, n, high);
    for (unsigned k = 0; k < n; k++)
        quad_store(p + k * TILE_VECTOR, quad, part_fields(high[k], bits));
}

static void unpack_high(const uint8_t *p, unsigned row, unsigned n, unsigned bits, uint8_t *out)
{
    for (unsigned k = 0; k < n; k++)
        store_u32(out + 4 * k, join_fields(quad_of(p, k, row), bits)[0]);
}

/* The file's word of 4 times 7 signs with 4 upper bits: a byte for each 8 columns, whose eighth bit
 * is one of the upper 4. */
static quad_word spread_sevens(quad_word word)
{
    quad_word out = {0};

    for (unsigned j = 0; j < 4; j++)
        out |= (word >> 7 * j & 0x7f) << 8 * j | (word >> (28 + j) & 1) << (8 * j + 7);
    return out;
}

static quad_word join_sevens(quad_word signs)
{
    quad_word out = {0};

    for (unsigned j = 0; j < 4; j++)
        out |= (signs >> 8 * j & 0x7f) << 7 * j | (signs >> (8 * j + 7) & 1) << (28 + j);
    return out;
}

/* IQ3_S, 16 x 256: 16 fp16 d; 2 vectors of high, one bit an index; 1 vector of scales, word r = the
 * file's 4 bytes; for each sub-block 2 vectors of indices and the signs. */
void pack_iq3_s(const uint8_t *block, size_t stride, unsigned quad, uint32_t n, uint8_t *tile)
{
    quad_word indices[16], signs[8];

    (void)n;
    quad_put_halves(block, stride, quad, tile);
    pack_high(block + 66, stride, quad, 2, 1, tile + IQ3_S_HIGH);
    quad_put_words(block + 106, stride, 1, quad, tile + IQ3_S_SCALES);
    quad_words(block + 2, stride, 16, indices);
    quad_words(block + 74, stride, 8, signs);
    for (unsigned s = 0; s < 8; s++) {
        uint8_t *p = tile + IQ3_S_QUANTS + s * IQ3_SUB;

        quad_store(p, quad, indices[2 * s]);
        quad_store(p + TILE_VECTOR, quad, indices[2 * s + 1]);
        quad_store(p + 2 * TILE_VECTOR, quad, turn_signs(signs[s]));
    }
}

void unpack_iq3_s(const uint8_t *tile, unsigned row, uint8_t *block)
{
    memcpy(block, tile + 2 * row, 2);
    unpack_high(tile + IQ3_S_HIGH, row, 2, 1, block + 66);
    unpack_words(tile + IQ3_S_SCALES, row, 1, block + 106);
    for (unsigned s = 0; s < 8; s++) {
        const uint8_t *p = tile + IQ3_S_QUANTS + s * IQ3_SUB;

        unpack_words(p, row, 2, block + 2 + 8 * s);
        store_u32(block + 74 + 4 * s, turn_signs(quad_of(p, 2, row))[0]);
    }
}

/* IQ3_XXS, 16 x 256: 16 fp16 d; for each sub-block 2 vectors of indices and the signs, whose upper
 * 4 bits are the scale. */
void pack_iq3_xxs(const uint8_t *block, size_t stride, unsigned quad, uint32_t n, uint8_t *tile)
{
    quad_word indices[16], signs[8];

    (void)n;
    quad_put_halves(block, stride, quad, tile);
    quad_words(block + 2, stride, 16, indices);
    quad_words(block + 66, stride, 8, signs);
    for (unsigned s = 0; s < 8; s++) {
        uint8_t *p = tile + IQ3_XXS_QUANTS + s * IQ3_SUB;

        quad_store(p, quad, indices[2 * s]);
        quad_store(p + TILE_VECTOR, quad, indices[2 * s + 1]);
        quad_store(p + 2 * TILE_VECTOR, quad, turn_signs(spread_sevens(signs[s])));
    }
}

void unpack_iq3_xxs(const uint8_t *tile, unsigned row, uint8_t *block)
{
    memcpy(block, tile + 2 * row, 2);
    for (unsigned s = 0; s < 8; s++) {
        const uint8_t *p = tile + IQ3_XXS_QUANTS + s * IQ3_SUB;

        unpack_words(p, row, 2, block + 2 + 8 * s);
        store_u32(block + 66 + 4 * s, join_sevens(turn_signs(quad_of(p, 2, row)))[0]);
    }
}

/* IQ2_XXS, 16 x 256: 16 fp16 d; for each sub-block a vector of indices and the signs, whose upper 4
 * bits are the scale. */
void pack_iq2_xxs(const uint8_t *block, size_t stride, unsigned quad, uint32_t n, uint8_t *tile)
{
    quad_word words[16];

    (void)n;
    quad_put_halves(block, stride, quad, tile);
    quad_words(block + 2, stride, 16, words);
    for (unsigned s = 0; s < 8; s++) {
        uint8_t *p = tile + IQ2_XXS_QUANTS + s * IQ2_SUB;

        quad_store(p, quad, words[2 * s]);
        quad_store(p + TILE_VECTOR, quad, turn_signs(spread_sevens(words[2 * s + 1])));
    }
}

void unpack_iq2_xxs(const uint8_t *tile, unsigned row, uint8_t *block)
{
    memcpy(block, tile + 2 * row, 2);
    for (unsigned s = 0; s < 8; s++) {
        const uint8_t *p = tile + IQ2_XXS_QUANTS + s * IQ2_SUB;

        unpack_words(p, row, 1, block + 2 + 8 * s);
        store_u32(block + 6 + 8 * s, join_sevens(turn_signs(quad_of(p, 1, row)))[0]);
    }
}

/* IQ2_XS, 16 x 256: 16 fp16 d; 2 vectors of scales, word r of vector k = the file's bytes 4k to
 * 4k+3; for each sub-block a vector of indices and the signs, whose upper 4 bits are the ninth bits
 * of the indices. In the file, 16 bits are an index of 9 bits and 7 signs. */
void pack_iq2_xs(const uint8_t *block, size_t stride, unsigned quad, uint32_t n, uint8_t *tile)
{
    quad_word words[16];

    (void)n;
    quad_put_halves(block, stride, quad, tile);
    quad_put_words(block + 66, stride, 2, quad, tile + IQ2_XS_SCALES);
    quad_words(block + 2, stride, 16, words);
    for (unsigned s = 0; s < 8; s++) {
        uint8_t *p = tile + IQ2_XS_QUANTS + s * IQ2_SUB;
        quad_word indices = {0}, signs = {0};

        for (unsigned j = 0; j < 4; j++) {
            quad_word q = words[2 * s + j / 2] >> 16 * (j % 2);
            indices |= (q & 0xff) << 8 * j;
            signs |= ((q >> 9 & 0x7f) | (q >> 8 & 1) << 7) << 8 * j;
        }
        quad_store(p, quad, indices);
        quad_store(p + TILE_VECTOR, quad, turn_signs(signs));
    }
}

void unpack_iq2_xs(const uint8_t *tile, unsigned row, uint8_t *block)
{
    memcpy(block, tile + 2 * row, 2);
    unpack_words(tile + IQ2_XS_SCALES, row, 2, block + 66);
    for (unsigned s = 0; s < 8; s++) {
        const uint8_t *p = tile + IQ2_XS_QUANTS + s * IQ2_SUB;
        uint32_t indices = tile_word(p, 0, row), signs = turn_signs(quad_of(p, 1, row))[0];

        for (unsigned j = 0; j < 4; j++) {
            uint32_t byte = signs >> 8 * j & 0xff;
            store_u16(block + 2 + 8 * s + 2 * j,
                      (uint16_t)((indices >> 8 * j & 0xff) | byte >> 7 << 8 | (byte & 0x7f) << 9));
        }
    }
}

/* IQ2_S, 16 x 256: 16 fp16 d; 2 vectors of high, two bits an index; 2 vectors of scales, word r of
 * vector k = the file's bytes 4k to 4k+3; for each sub-block a vector of indices and the signs. */
void pack_iq2_s(const uint8_t *block, size_t stride, unsigned quad, uint32_t n, uint8_t *tile)
{
    quad_word words[16];

    (void)n;
    quad_put_halves(block, stride, quad, tile);
    pack_high(block + 66, stride, quad, 2, 2, tile + IQ2_S_HIGH);
    quad_put_words(block + 74, stride, 2, quad, tile + IQ2_S_SCALES);
    quad_words(block + 2, stride, 16, words);
    for (unsigned s = 0; s < 8; s++) {
        uint8_t *p = tile + IQ2_S_QUANTS + s * IQ2_SUB;

        quad_store(p, quad, words[s]);
        quad_store(p + TILE_VECTOR, quad, turn_signs(words[8 + s]));
    }
}

void unpack_iq2_s(const uint8_t *tile, unsigned row, uint8_t *block)
{
    memcpy(block, tile + 2 * row, 2);
    unpack_high(tile + IQ2_S_HIGH, row, 2, 2, block + 66);
    unpack_words(tile + IQ2_S_SCALES, row, 2, block + 74);
    for (unsigned s = 0; s < 8; s++) {
        const uint8_t *p = tile + IQ2_S_QUANTS + s * IQ2_SUB;

        unpack_words(p, row, 1, block + 2 + 4 * s);
        store_u32(block + 34 + 4 * s, turn_signs(quad_of(p, 1, row))[0]);
    }
}

/* IQ1_S, 16 x 256: 16 fp16 d; 4 vectors of high, two sub-blocks in a word, three bits an index in
 * the lower 12 bits of each half, and in its upper 4 the scale and the minus sign of the first or
 * second of the two; a vector of indices for each sub-block. In the file, each sub-block has 16
 * bits: 4 times 3, and these 4. */
void pack_iq1_s(const uint8_t *block, size_t stride, unsigned quad, uint32_t n, uint8_t *tile)
{
    quad_word high[4];

    (void)n;
    quad_put_halves(block, stride, quad, tile);
    quad_words(block + 34, stride, 4, high);
    for (unsigned k = 0; k < 4; k++) {
        quad_word out = high[k] & 0xf000f000;

        for (unsigned j = 0; j < 8; j++) {
            unsigned from = 16 * (j / 4) + 3 * (j % 4), to = 16 * (j % 2) + 3 * (j / 2);
            out |= (high[k] >> from & 7) << to;
        }
        quad_store(tile + IQ1_S_HIGH + k * TILE_VECTOR, quad, out);
    }
    quad_put_words(block + 2, stride, 8, quad, tile + IQ1_S_QUANTS);
}

void unpack_iq1_s(const uint8_t *tile, unsigned row, uint8_t *block)
{
    memcpy(block, tile + 2 * row, 2);
    for (unsigned k = 0; k < 4; k++) {
        uint32_t high = tile_word(tile + IQ1_S_HIGH, k, row), out = high & 0xf000f000;

        for (unsigned j = 0; j < 8; j++) {
            unsigned to = 16 * (j / 4) + 3 * (j % 4), from = 16 * (j % 2) + 3 * (j / 2);
            out |= (high >> from & 7) << to;
        }
        store_u32(block + 34 + 4 * k, out);
    }
    unpack_words(tile + IQ1_S_QUANTS, row, 8, block + 2);
}

/* IQ1_M, 16 x 256: 16 fp16 d; 3 times 16 words of 16 bits: of each row four scales of 3 bits, and
 * above them 4 bits of the fourth four scales; 4 vectors of high, two sub-blocks in a word, a
 * nibble an index: 3 bits and a minus sign; a vector of indices for each sub-block. In the file,
 * the upper bits of all four words of scales are d. */
void pack_iq1_m(const uint8_t *block, size_t stride, unsigned quad, uint32_t n, uint8_t *tile)
{
    quad_word w[2];

    (void)n;
    quad_words(block + 48, stride, 2, w);
    put_shorts((w[0] >> 12 & 0xf) | (w[0] >> 28) << 4 | (w[1] >> 12 & 0xf) << 8 |
                   (w[1] >> 28) << 12,
               quad, tile);
    quad_word scales[3] = {w[0] & 0xfff, w[0] >> 16 & 0xfff, w[1] & 0xfff}, last = w[1] >> 16;
    for (unsigned k = 0; k < 3; k++)
        put_shorts(scales[k] | (last >> 4 * k & 0xf) << 12, quad,
                   tile + IQ1_M_SCALES + k * TILE_HALVES);
    pack_high(block + 32, stride, quad, 4, 4, tile + IQ1_M_HIGH);
    quad_put_words(block, stride, 8, quad, tile + IQ1_M_QUANTS);
}

void unpack_iq1_m(const uint8_t *tile, unsigned row, uint8_t *block)
{
    unsigned d = load_u16(tile + 2 * row), last = 0;

    unpack_words(tile + IQ1_M_QUANTS, row, 8, block);
    unpack_high(tile + IQ1_M_HIGH, row, 4, 4, block + 32);
    for (unsigned k = 0; k < 4; k++) {
        unsigned scales = last;

        if (k < 3) {
            scales = load_u16(tile + IQ1_M_SCALES + k * TILE_HALVES + 2 * row);
            last |= scales >> 12 << 4 * k;
        }
        store_u16(block + 48 + 2 * k, (uint16_t)((scales & 0xfff) | (d >> 4 * k & 0xf) << 12));
    }
}
