/* Packers of super-blocks of 256 columns; see packing.h. */
#include "kernels/packing.h"
#include "kernels/tile_layout.h"

/* Q4_K, 16 x 256: 16 fp16 d; 16 fp16 dmin; 3 vectors of scales, word r of vector k = the file's
 * scale bytes 4k..4k+3 of row r (so the 6-bit values stay on byte borders: one mask gives four of
 * them); then 4 vectors of nibbles for each sub-block of 32 columns. In the file, 32 bytes hold two
 * sub-blocks, one in the low and one in the high nibbles. */
static void pack_k_header(const uint8_t *block, size_t stride, unsigned quad, uint8_t *tile)
{
    quad_put_halves(block, stride, quad, tile);
    quad_put_halves(block + 2, stride, quad, tile + K_MINS);
    quad_put_words(block + 4, stride, 3, quad, tile + K_SCALES);
}

static void unpack_k_header(const uint8_t *tile, unsigned row, uint8_t *block)
{
    memcpy(block, tile + 2 * row, 2);
    memcpy(block + 2, tile + K_MINS + 2 * row, 2);
    for (unsigned k = 0; k < 3; k++)
        store_u32(block + 4 + 4 * k, tile_word(tile + K_SCALES, k, row));
}

/* quants: the block's 32 words. */
static void pack_k_nibbles(const quad_word *quants, unsigned sub, unsigned quad, uint8_t *p)
{
    const quad_word *in = quants + 8 * (sub / 2);
    unsigned shift = 4 * (sub % 2);

    for (unsigned v = 0; v < 4; v++)
        quad_put_nibbles(p, quad, v, in[2 * v] >> shift, in[2 * v + 1] >> shift);
}

/* Sub-blocks 2j and 2j + 1, whose nibbles stand at even and odd, to the file's 32 bytes. */
static void unpack_k_nibbles(const uint8_t *even, const uint8_t *odd, unsigned row, uint8_t *out)
{
    for (unsigned g = 0; g < 8; g++)
        store_u32(out + 4 * g, tile_nibbles(even, g, row) | tile_nibbles(odd, g, row) << 4);
}

void pack_q4_k(const uint8_t *block, size_t stride, unsigned quad, uint32_t n, uint8_t *tile)
{
    quad_word quants[32];

    (void)n;
    pack_k_header(block, stride, quad, tile);
    quad_words(block + 16, stride, 32, quants);
    for (unsigned s = 0; s < 8; s++)
        pack_k_nibbles(quants, s, quad, tile + K_QUANTS + s * Q4_K_SUB);
}

void unpack_q4_k(const uint8_t *tile, unsigned row, uint8_t *block)
{
    const uint8_t *quants = tile + K_QUANTS;

    unpack_k_header(tile, row, block);
    for (unsigned j = 0; j < 4; j++, quants += 2 * Q4_K_SUB)
        unpack_k_nibbles(quants, quants + Q4_K_SUB, row, block + 16 + 32 * j);
}

/* Q5_K, 16 x 256: as Q4_K, and after each sub-block's nibbles one vector of high bits: bit g of
 * byte 4r+c = column 4g+c. In the file, bit s of high byte l belongs to column l of sub-block s. */
void pack_q5_k(const uint8_t *block, size_t stride, unsigned quad, uint32_t n, uint8_t *tile)
{
    quad_word bits[8], quants[32];

    (void)n;
    pack_k_header(block, stride, quad, tile);
    quad_words(block + 16, stride, 8, bits);
    quad_words(block + 48, stride, 32, quants);
    for (unsigned s = 0; s < 8; s++) {
        uint8_t *p = tile + K_QUANTS + s * Q5_K_SUB;
        quad_word high = {0};

        pack_k_nibbles(quants, s, quad, p);
        for (unsigned g = 0; g < 8; g++)
            high |= (bits[g] >> s & 0x01010101) << g;
        quad_store(p + 4 * TILE_VECTOR, quad, high);
    }
}

void unpack_q5_k(const uint8_t *tile, unsigned row, uint8_t *block)
{
    const uint8_t *quants = tile + K_QUANTS;

    unpack_k_header(tile, row, block);
    for (unsigned j = 0; j < 4; j++)
        unpack_k_nibbles(quants + 2 * j * Q5_K_SUB, quants + (2 * j + 1) * Q5_K_SUB, row,
                         block + 48 + 32 * j);
    for (unsigned g = 0; g < 8; g++) {
        uint32_t high = 0;

        for (unsigned s = 0; s < 8; s++)
            high |= ((tile_word(quants + s * Q5_K_SUB, 4, row) >> g) & 0x01010101) << s;
        store_u32(block + 16 + 4 * g, high);
    }
}

/* Q6_K, 16 x 256: 16 fp16 d; 4 vectors of int8 scales, word r of vector k = sub-blocks (of 16
 * columns) 4k..4k+3 of row r; then for each 32 columns 4 vectors of nibbles (the low 4 bits) and 2
 * vectors of the high 2 bits, one for each 16 columns: bits 2g, 2g+1 of byte 4r+c of vector h =
 * column 16h+4g+c. In the file (ql 128, qh 64, scales 16, d), 128 columns share 64 bytes of ql and
 * 32 of qh. */
void pack_q6_k(const uint8_t *block, size_t stride, unsigned quad, uint32_t n, uint8_t *tile)
{
    quad_word low[32], high[16];

    (void)n;
    quad_put_halves(block + 208, stride, quad, tile);
    quad_put_words(block + 192, stride, 4, quad, tile + Q6_K_SCALES);
    quad_words(block, stride, 32, low);
    quad_words(block + 128, stride, 16, high);
    for (unsigned s = 0; s < 8; s++) {
        uint8_t *p = tile + Q6_K_QUANTS + s * Q6_K_SUB;
        unsigned quarter = s % 4, shift = 4 * (quarter / 2);
        const quad_word *in = low + 16 * (s / 4) + 8 * (quarter % 2);

        for (unsigned v = 0; v < 4; v++)
            quad_put_nibbles(p, quad, v, in[2 * v] >> shift, in[2 * v + 1] >> shift);
        for (unsigned h = 0; h < 2; h++) {
            quad_word bits = {0};

            for (unsigned g = 0; g < 4; g++)
                bits |= (high[8 * (s / 4) + 4 * h + g] >> (2 * quarter) & 0x03030303) << (2 * g);
            quad_store(p + (4 + h) * TILE_VECTOR, quad, bits);
        }
    }
}

void unpack_q6_k(const uint8_t *tile, unsigned row, uint8_t *block)
{
    memset(block, 0, 192);
    memcpy(block + 208, tile + 2 * row, 2);
    for (unsigned k = 0; k < 4; k++)
        store_u32(block + 192 + 4 * k, tile_word(tile + Q6_K_SCALES, k, row));
    for (unsigned s = 0; s < 8; s++) {
        const uint8_t *p = tile + Q6_K_QUANTS + s * Q6_K_SUB;
        unsigned quarter = s % 4;
        uint8_t *low = block + 64 * (s / 4) + 32 * (quarter % 2);
        uint8_t *high = block + 128 + 32 * (s / 4);

        for (unsigned g = 0; g < 8; g++) {
            uint32_t bits = (tile_word(p, 4 + g / 4, row) >> (2 * (g % 4))) & 0x03030303;

            store_u32(low + 4 * g, load_u32(low + 4 * g) | tile_nibbles(p, g, row)
                                                               << (4 * (quarter / 2)));
            store_u32(high + 4 * g, load_u32(high + 4 * g) | bits << (2 * quarter));
        }
    }
}

/* The groups of 4 columns of sub-block s (32 columns) in the 16 words qs of Q2_K and Q3_K, whose
 * halves of 8 words hold 4 sub-blocks each, two bits a column. */
static quad_word low_2_bits(const quad_word *qs, unsigned s, unsigned g)
{
    return qs[8 * (s / 4) + g] >> (2 * (s % 4)) & 0x03030303;
}

static void put_low_2_bits(uint8_t *qs, unsigned s, unsigned g, uint32_t bits)
{
    uint8_t *out = qs + 32 * (s / 4) + 4 * g;

    store_u32(out, load_u32(out) | bits << (2 * (s % 4)));
}

/* Q2_K, 16 x 256: 16 fp16 d; 16 fp16 dmin; 4 vectors of scales, word r of vector k = the file's
 * bytes 4k to 4k+3 of row r, one for each 16 columns, the scale in the low and the minimum in the
 * high nibble; then one vector of quants for each 16 columns: bits 2g, 2g+1 of byte 4r+c = column
 * 4g+c. In the file: scales 16, qs 64, d, dmin. */
void pack_q2_k(const uint8_t *block, size_t stride, unsigned quad, uint32_t n, uint8_t *tile)
{
    quad_word qs[16];

    (void)n;
    quad_put_halves(block + 80, stride, quad, tile);
    quad_put_halves(block + 82, stride, quad, tile + K_MINS);
    quad_put_words(block, stride, 4, quad, tile + Q2_K_SCALES);
    quad_words(block + 16, stride, 16, qs);
    for (unsigned j = 0; j < 16; j++) {
        quad_word bits = {0};

        for (unsigned g = 0; g < 4; g++)
            bits |= low_2_bits(qs, j / 2, 4 * (j % 2) + g) << (2 * g);
        quad_store(tile + Q2_K_QUANTS + j * TILE_VECTOR, quad, bits);
    }
}

void unpack_q2_k(const uint8_t *tile, unsigned row, uint8_t *block)
{
    memset(block + 16, 0, 64);
    memcpy(block + 80, tile + 2 * row, 2);
    memcpy(block + 82, tile + K_MINS + 2 * row, 2);
    for (unsigned k = 0; k < 4; k++)
        store_u32(block + 4 * k, tile_word(tile + Q2_K_SCALES, k, row));
    for (unsigned j = 0; j < 16; j++)
        for (unsigned g = 0; g < 4; g++)
            put_low_2_bits(block + 16, j / 2, 4 * (j % 2) + g,
                           (tile_word(tile + Q2_K_QUANTS, j, row) >> (2 * g)) & 0x03030303);
}

/* Q3_K, 16 x 256: 16 fp16 d; 3 vectors of scales, word r of vector k = the file's scale bytes 4k to
 * 4k+3 of row r; then 3 vectors for each sub-block of 32 columns, which are 8 groups. Bits 0-2 of
 * vector k are the quants of group 2k, bits 3-5 of group 2k+1; the remaining two bits of the first
 * vector are the low ones of group 6, those of the second of group 7, and of the third bit 6 is the
 * high bit of group 6 and bit 7 of group 7: six of eight groups are whole. In the file: high bits
 * 32 (bit s of byte l belongs to column l of sub-block s), qs 64, scales 12, d. */
void pack_q3_k(const uint8_t *block, size_t stride, unsigned quad, uint32_t n, uint8_t *tile)
{
    quad_word high[8], qs[16];

    (void)n;
    quad_put_halves(block + 108, stride, quad, tile);
    quad_put_words(block + 96, stride, 3, quad, tile + Q3_K_SCALES);
    quad_words(block, stride, 8, high);
    quad_words(block + 32, stride, 16, qs);
    for (unsigned s = 0; s < 8; s++) {
        uint8_t *p = tile + Q3_K_QUANTS + s * Q3_K_SUB;
        quad_word q[8];

        for (unsigned g = 0; g < 8; g++)
            q[g] = low_2_bits(qs, s, g) | (high[g] >> s & 0x01010101) << 2;
        quad_store(p, quad, q[0] | q[1] << 3 | (q[6] & 0x03030303) << 6);
        quad_store(p + TILE_VECTOR, quad, q[2] | q[3] << 3 | (q[7] & 0x03030303) << 6);
        quad_store(p + 2 * TILE_VECTOR, quad,
                   q[4] | q[5] << 3 | (q[6] & 0x04040404) << 4 | (q[7] & 0x04040404) << 5);
    }
}

void unpack_q3_k(const uint8_t *tile, unsigned row, uint8_t *block)
{
    memset(block, 0, 96);
    memcpy(block + 108, tile + 2 * row, 2);
    for (unsigned k = 0; k < 3; k++)
        store_u32(block + 96 + 4 * k, tile_word(tile + Q3_K_SCALES, k, row));
    for (unsigned s = 0; s < 8; s++)
        for (unsigned g = 0; g < 8; g++) {
            uint32_t q = tile_3_bits(tile + Q3_K_QUANTS + s * Q3_K_SUB, g, row);

            put_low_2_bits(block + 32, s, g, q & 0x03030303);
            store_u32(block + 4 * g, load_u32(block + 4 * g) | ((q >> 2) & 0x01010101) << s);
        }
}

/* IQ4_XS, 16 x 256: 16 fp16 d; 16 words of 16 bits, the upper 2 bits of the 8 scales; 1 vector, the
 * 4 bytes with the scales' low 4 bits; then 4 vectors of nibbles for each sub-block of 32 columns.
 */
void pack_iq4_xs(const uint8_t *block, size_t stride, unsigned quad, uint32_t n, uint8_t *tile)
{
    quad_word quants[32];

    (void)n;
    quad_put_halves(block, stride, quad, tile);
    quad_put_halves(block + 2, stride, quad, tile + IQ4_XS_HIGH);
    quad_put_words(block + 4, stride, 1, quad, tile + IQ4_XS_LOW);
    quad_words(block + 8, stride, 32, quants);
    for (unsigned s = 0; s < 8; s++)
        pack_split_nibbles(quants + 4 * s, quad, tile + IQ4_XS_QUANTS + s * Q4_K_SUB);
}

void unpack_iq4_xs(const uint8_t *tile, unsigned row, uint8_t *block)
{
    memcpy(block, tile + 2 * row, 2);
    memcpy(block + 2, tile + IQ4_XS_HIGH + 2 * row, 2);
    memcpy(block + 4, tile + IQ4_XS_LOW + 4 * row, 4);
    for (unsigned s = 0; s < 8; s++)
        unpack_split_nibbles(tile + IQ4_XS_QUANTS + s * Q4_K_SUB, row, block + 8 + 16 * s);
}
