/* Packers of single columns (float types) and of blocks of 32 columns; see packing.h. */
#include "kernels/packing.h"
#include "kernels/tile_layout.h"

/* F32 and F16, 16 x 1: the column's 16 values. */
void pack_f32(const uint8_t *block, unsigned row, uint8_t *tile)
{
    memcpy(tile + 4 * row, block, 4);
}

void unpack_f32(const uint8_t *tile, unsigned row, uint8_t *block)
{
    memcpy(block, tile + 4 * row, 4);
}

void pack_f16(const uint8_t *block, unsigned row, uint8_t *tile)
{
    memcpy(tile + 2 * row, block, 2);
}

void unpack_f16(const uint8_t *tile, unsigned row, uint8_t *block)
{
    memcpy(block, tile + 2 * row, 2);
}

/* Q8_0, 16 x 32: 16 fp16 d; 8 vectors, byte 4r+c of vector g = row r, column 4g+c. */
void pack_q8_0(const uint8_t *block, unsigned row, uint8_t *tile)
{
    memcpy(tile + 2 * row, block, 2);
    for (unsigned g = 0; g < 8; g++)
        store_u32(tile + Q8_0_QUANTS + g * TILE_VECTOR + 4 * row, load_u32(block + 2 + 4 * g));
}

void unpack_q8_0(const uint8_t *tile, unsigned row, uint8_t *block)
{
    memcpy(block, tile + 2 * row, 2);
    for (unsigned g = 0; g < 8; g++)
        store_u32(block + 2 + 4 * g, tile_word(tile + Q8_0_QUANTS, g, row));
}

/* Four vectors of nibbles: byte 4r+c of vector v has column 8v+c in its low, 8v+4+c in its high
 * half. */
void pack_split_nibbles(const uint8_t *file, unsigned row, uint8_t *p)
{
    for (unsigned v = 0; v < 4; v++) {
        const uint8_t *in = file + 8 * (v % 2);
        unsigned shift = 4 * (v / 2);
        tile_put_nibbles(p, row, v, load_u32(in) >> shift, load_u32(in + 4) >> shift);
    }
}

void unpack_split_nibbles(const uint8_t *p, unsigned row, uint8_t *file)
{
    for (unsigned g = 0; g < 4; g++)
        store_u32(file + 4 * g, tile_nibbles(p, g, row) | tile_nibbles(p, g + 4, row) << 4);
}

/* Q4_0 and IQ4_NL, 16 x 32: 16 fp16 d; 4 vectors of nibbles. */
void pack_q4_0(const uint8_t *block, unsigned row, uint8_t *tile)
{
    memcpy(tile + 2 * row, block, 2);
    pack_split_nibbles(block + 2, row, tile + Q4_0_QUANTS);
}

void unpack_q4_0(const uint8_t *tile, unsigned row, uint8_t *block)
{
    memcpy(block, tile + 2 * row, 2);
    unpack_split_nibbles(tile + Q4_0_QUANTS, row, block + 2);
}

/* Q4_1, 16 x 32: 16 fp16 d; 16 fp16 m; 4 vectors of nibbles. */
void pack_q4_1(const uint8_t *block, unsigned row, uint8_t *tile)
{
    memcpy(tile + 2 * row, block, 2);
    memcpy(tile + TILE_HALVES + 2 * row, block + 2, 2);
    pack_split_nibbles(block + 4, row, tile + Q4_1_QUANTS);
}

void unpack_q4_1(const uint8_t *tile, unsigned row, uint8_t *block)
{
    memcpy(block, tile + 2 * row, 2);
    memcpy(block + 2, tile + TILE_HALVES + 2 * row, 2);
    unpack_split_nibbles(tile + Q4_1_QUANTS, row, block + 4);
}

/* 4 vectors of nibbles and one of high bits: bit g of byte 4r+c = column 4g+c. In the file the high bits
 * come first, that of column i in bit i of the 4 bytes. */
static void pack_5_bits(const uint8_t *file, unsigned row, uint8_t *p)
{
    uint32_t in = load_u32(file), high = 0;

    for (unsigned i = 0; i < 32; i++)
        high |= (in >> i & 1) << (8 * (i % 4) + i / 4);
    pack_split_nibbles(file + 4, row, p);
    store_u32(p + 4 * TILE_VECTOR + 4 * row, high);
}

static void unpack_5_bits(const uint8_t *p, unsigned row, uint8_t *file)
{
    uint32_t high = tile_word(p, 4, row), out = 0;

    for (unsigned i = 0; i < 32; i++)
        out |= (high >> (8 * (i % 4) + i / 4) & 1) << i;
    store_u32(file, out);
    unpack_split_nibbles(p, row, file + 4);
}

/* Q5_0, 16 x 32: 16 fp16 d; 5 vectors of quants. Q5_1: 16 fp16 m before the quants. */
void pack_q5_0(const uint8_t *block, unsigned row, uint8_t *tile)
{
    memcpy(tile + 2 * row, block, 2);
    pack_5_bits(block + 2, row, tile + Q5_0_QUANTS);
}

void unpack_q5_0(const uint8_t *tile, unsigned row, uint8_t *block)
{
    memcpy(block, tile + 2 * row, 2);
    unpack_5_bits(tile + Q5_0_QUANTS, row, block + 2);
}

void pack_q5_1(const uint8_t *block, unsigned row, uint8_t *tile)
{
    memcpy(tile + 2 * row, block, 2);
    memcpy(tile + TILE_HALVES + 2 * row, block + 2, 2);
    pack_5_bits(block + 4, row, tile + Q5_1_QUANTS);
}

void unpack_q5_1(const uint8_t *tile, unsigned row, uint8_t *block)
{
    memcpy(block, tile + 2 * row, 2);
    memcpy(block + 2, tile + TILE_HALVES + 2 * row, 2);
    unpack_5_bits(tile + Q5_1_QUANTS, row, block + 4);
}

/* MXFP4, 16 x 32: 16 exponents; 4 vectors of nibbles. */
void pack_mxfp4(const uint8_t *block, unsigned row, uint8_t *tile)
{
    tile[row] = block[0];
    pack_split_nibbles(block + 1, row, tile + MXFP4_QUANTS);
}

void unpack_mxfp4(const uint8_t *tile, unsigned row, uint8_t *block)
{
    block[0] = tile[row];
    unpack_split_nibbles(tile + MXFP4_QUANTS, row, block + 1);
}
