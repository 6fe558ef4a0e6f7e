/* Packers of single columns (float types) and of blocks of 32 columns; see packing.h. */
#include "kernels/packing.h"
#include "kernels/tile_layout.h"

/* F32 and F16, 16 x 1: the column's 16 values. */
void pack_f32(const uint8_t *block, size_t stride, unsigned quad, uint32_t n, uint8_t *tile)
{
    quad_put_words(block, stride, n, quad, tile);
}

void unpack_f32(const uint8_t *tile, unsigned row, uint8_t *block)
{
    memcpy(block, tile + 4 * row, 4);
}

/* A word holds two columns; its halves go to two tiles. */
void pack_f16(const uint8_t *block, size_t stride, unsigned quad, uint32_t n, uint8_t *tile)
{
    typedef uint16_t halves __attribute__((vector_size(8)));
    quad_word words[16];

    quad_words(block, stride, n / 2, words);
    for (unsigned i = 0; i < n / 2; i++) {
        halves even = __builtin_convertvector(words[i], halves);
        halves odd = __builtin_convertvector(words[i] >> 16, halves);
        memcpy(tile + 2 * i * TILE_HALVES + 8 * quad, &even, sizeof even);
        memcpy(tile + (2 * i + 1) * TILE_HALVES + 8 * quad, &odd, sizeof odd);
    }
    if (n % 2)
        quad_put_halves(block + 2 * (n - 1), stride, quad, tile + (n - 1) * TILE_HALVES);
}

void unpack_f16(const uint8_t *tile, unsigned row, uint8_t *block)
{
    memcpy(block, tile + 2 * row, 2);
}

/* Q8_0, 16 x 32: 16 fp16 d; 8 vectors, byte 4r+c of vector g = row r, column 4g+c. */
void pack_q8_0(const uint8_t *block, size_t stride, unsigned quad, uint32_t n, uint8_t *tile)
{
    (void)n;
    quad_put_halves(block, stride, quad, tile);
    quad_put_words(block + 2, stride, 8, quad, tile + Q8_0_QUANTS);
}

void unpack_q8_0(const uint8_t *tile, unsigned row, uint8_t *block)
{
    memcpy(block, tile + 2 * row, 2);
    for (unsigned g = 0; g < 8; g++)
        store_u32(block + 2 + 4 * g, tile_word(tile + Q8_0_QUANTS, g, row));
}

/* Four vectors of nibbles: byte 4r+c of vector v has column 8v+c in its low, 8v+4+c in its high
 * half. */
void pack_split_nibbles(const quad_word *file, unsigned quad, uint8_t *p)
{
    for (unsigned v = 0; v < 4; v++) {
        const quad_word *in = file + 2 * (v % 2);
        unsigned shift = 4 * (v / 2);
        quad_put_nibbles(p, quad, v, in[0] >> shift, in[1] >> shift);
    }
}

/* The same from the file. */
static void pack_nibbles(const uint8_t *file, size_t stride, unsigned quad, uint8_t *p)
{
    quad_word words[4];

    quad_words(file, stride, 4, words);
    pack_split_nibbles(words, quad, p);
}

void unpack_split_nibbles(const uint8_t *p, unsigned row, uint8_t *file)
{
    for (unsigned g = 0; g < 4; g++)
        store_u32(file + 4 * g, tile_nibbles(p, g, row) | tile_nibbles(p, g + 4, row) << 4);
}

/* Q4_0 and IQ4_NL, 16 x 32: 16 fp16 d; 4 vectors of nibbles. */
void pack_q4_0(const uint8_t *block, size_t stride, unsigned quad, uint32_t n, uint8_t *tile)
{
    (void)n;
    quad_put_halves(block, stride, quad, tile);
    pack_nibbles(block + 2, stride, quad, tile + Q4_0_QUANTS);
}

void unpack_q4_0(const uint8_t *tile, unsigned row, uint8_t *block)
{
    memcpy(block, tile + 2 * row, 2);
    unpack_split_nibbles(tile + Q4_0_QUANTS, row, block + 2);
}

/* Q4_1, 16 x 32: 16 fp16 d; 16 fp16 m; 4 vectors of nibbles. */
void pack_q4_1(const uint8_t *block, size_t stride, unsigned quad, uint32_t n, uint8_t *tile)
{
    (void)n;
    quad_put_halves(block, stride, quad, tile);
    quad_put_halves(block + 2, stride, quad, tile + TILE_HALVES);
    pack_nibbles(block + 4, stride, quad, tile + Q4_1_QUANTS);
}

void unpack_q4_1(const uint8_t *tile, unsigned row, uint8_t *block)
{
    memcpy(block, tile + 2 * row, 2);
    memcpy(block + 2, tile + TILE_HALVES + 2 * row, 2);
    unpack_split_nibbles(tile + Q4_1_QUANTS, row, block + 4);
}

/* 4 vectors of nibbles and one of high bits: bit g of byte 4r+c = column 4g+c. In the file the high
 * bits come first, that of column i in bit i of the 4 bytes. */
static void pack_5_bits(const uint8_t *file, size_t stride, unsigned quad, uint8_t *p)
{
    quad_word words[5], high = {0};

    quad_words(file, stride, 5, words);
    for (unsigned g = 0; g < 8; g++) {
        quad_word four = words[0] >> (4 * g) & 0xf; /* bit c to bit 0 of byte c */
        high |= ((four | four << 7 | four << 14 | four << 21) & 0x01010101) << g;
    }
    pack_split_nibbles(words + 1, quad, p);
    quad_store(p + 4 * TILE_VECTOR, quad, high);
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
void pack_q5_0(const uint8_t *block, size_t stride, unsigned quad, uint32_t n, uint8_t *tile)
{
    (void)n;
    quad_put_halves(block, stride, quad, tile);
    pack_5_bits(block + 2, stride, quad, tile + Q5_0_QUANTS);
}

void unpack_q5_0(const uint8_t *tile, unsigned row, uint8_t *block)
{
    memcpy(block, tile + 2 * row, 2);
    unpack_5_bits(tile + Q5_0_QUANTS, row, block + 2);
}

void pack_q5_1(const uint8_t *block, size_t stride, unsigned quad, uint32_t n, uint8_t *tile)
{
    (void)n;
    quad_put_halves(block, stride, quad, tile);
    quad_put_halves(block + 2, stride, quad, tile + TILE_HALVES);
    pack_5_bits(block + 4, stride, quad, tile + Q5_1_QUANTS);
}

void unpack_q5_1(const uint8_t *tile, unsigned row, uint8_t *block)
{
    memcpy(block, tile + 2 * row, 2);
    memcpy(block + 2, tile + TILE_HALVES + 2 * row, 2);
    unpack_5_bits(tile + Q5_1_QUANTS, row, block + 4);
}

/* MXFP4, 16 x 32: 16 exponents; 4 vectors of nibbles. */
void pack_mxfp4(const uint8_t *block, size_t stride, unsigned quad, uint32_t n, uint8_t *tile)
{
    (void)n;
    for (unsigned row = 0; row < 4; row++)
        tile[4 * quad + row] = block[row * stride];
    pack_nibbles(block + 1, stride, quad, tile + MXFP4_QUANTS);
}

void unpack_mxfp4(const uint8_t *tile, unsigned row, uint8_t *block)
{
    block[0] = tile[row];
    unpack_split_nibbles(tile + MXFP4_QUANTS, row, block + 1);
}

/* NVFP4, two tiles of 16 x 32 for a block of 64: 16 times the 2 scales of a row; 4 vectors of
 * nibbles. In the file, 8 bytes hold 16 columns, low nibbles first. */
void pack_nvfp4(const uint8_t *block, size_t stride, unsigned quad, uint32_t n, uint8_t *tile)
{
    quad_word words[8];

    (void)n;
    quad_words(block + 4, stride, 8, words);
    for (unsigned t = 0; t < 2; t++, tile += NVFP4_TILE) {
        quad_put_halves(block + 2 * t, stride, quad, tile);
        for (unsigned h = 0; h < 2; h++) {
            const quad_word *w = words + 4 * t + 2 * h;
            quad_put_nibbles(tile + NVFP4_QUANTS, quad, 2 * h, w[0], w[1]);
            quad_put_nibbles(tile + NVFP4_QUANTS, quad, 2 * h + 1, w[0] >> 4, w[1] >> 4);
        }
    }
}

void unpack_nvfp4(const uint8_t *tile, unsigned row, uint8_t *block)
{
    for (unsigned t = 0; t < 2; t++, tile += NVFP4_TILE) {
        const uint8_t *p = tile + NVFP4_QUANTS;

        memcpy(block + 2 * t, tile + 2 * row, 2);
        for (unsigned h = 0; h < 2; h++)
            for (unsigned k = 0; k < 2; k++)
                store_u32(block + 4 + 16 * t + 8 * h + 4 * k,
                          tile_nibbles(p, 4 * h + k, row) | tile_nibbles(p, 4 * h + 2 + k, row)
                                                                << 4);
    }
}
