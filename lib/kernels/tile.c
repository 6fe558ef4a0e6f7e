/* Packing rows of the file's blocks into tiles and back. Every packer moves bits only: unpacking
 * rebuilds the file's block bit for bit and leaves its meaning to lib/quant.
 *
 * Words are handled as 4 columns at a time (a 32-bit group, see tile_layout.h); byte order is
 * little endian as in the file.
 */
#include "kernels/tile.h"

#include "base/checked.h"
#include "kernels/tile_layout.h"
#include "quant/quant.h"

#include <assert.h>
#include <stdlib.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "tiles and GGUF are little endian");

#define LOW_NIBBLES     0x0f0f0f0fu
#define BLOCK_BYTES_MAX 210

/* One row's block to and from row `row` of a tile. */
typedef void pack_block(const uint8_t *block, unsigned row, uint8_t *tile);
typedef void unpack_block(const uint8_t *tile, unsigned row, uint8_t *block);

/* Four vectors of nibbles: byte 4r+c of vector v has column 8v+c in its low, 8v+4+c in its high
 * half. */
static void put_nibbles(uint8_t *p, unsigned row, unsigned v, uint32_t even, uint32_t odd)
{
    store_u32(p + v * TILE_VECTOR + 4 * row, even | odd << 4);
}

/* Q8_0, 16 x 32: 16 fp16 d; 8 vectors, byte 4r+c of vector g = row r, column 4g+c. */
static void pack_q8_0(const uint8_t *block, unsigned row, uint8_t *tile)
{
    memcpy(tile + 2 * row, block, 2);
    for (unsigned g = 0; g < 8; g++)
        store_u32(tile + Q8_0_QUANTS + g * TILE_VECTOR + 4 * row, load_u32(block + 2 + 4 * g));
}

static void unpack_q8_0(const uint8_t *tile, unsigned row, uint8_t *block)
{
    memcpy(block, tile + 2 * row, 2);
    for (unsigned g = 0; g < 8; g++)
        store_u32(block + 2 + 4 * g, tile_word(tile + Q8_0_QUANTS, g, row));
}

/* Q4_0, 16 x 32: 16 fp16 d; 4 vectors of nibbles. In the file, byte j holds columns j and j + 16.
 */
static void pack_q4_0(const uint8_t *block, unsigned row, uint8_t *tile)
{
    memcpy(tile + 2 * row, block, 2);
    for (unsigned v = 0; v < 4; v++) {
        const uint8_t *in = block + 2 + 8 * (v % 2);
        unsigned shift = 4 * (v / 2);
        put_nibbles(tile + Q4_0_QUANTS, row, v, (load_u32(in) >> shift) & LOW_NIBBLES,
                    (load_u32(in + 4) >> shift) & LOW_NIBBLES);
    }
}

static void unpack_q4_0(const uint8_t *tile, unsigned row, uint8_t *block)
{
    const uint8_t *quants = tile + Q4_0_QUANTS;

    memcpy(block, tile + 2 * row, 2);
    for (unsigned g = 0; g < 4; g++)
        store_u32(block + 2 + 4 * g, tile_nibbles(quants, g, row) | tile_nibbles(quants, g + 4, row)
                                                                        << 4);
}

/* Q4_K, 16 x 256: 16 fp16 d; 16 fp16 dmin; 3 vectors of scales, word r of vector k = the file's
 * scale bytes 4k..4k+3 of row r (so the 6-bit values stay on byte borders: one mask gives four of
 * them); then 4 vectors of nibbles for each sub-block of 32 columns. In the file, 32 bytes hold two
 * sub-blocks, one in the low and one in the high nibbles. */
static void pack_k_header(const uint8_t *block, unsigned row, uint8_t *tile)
{
    memcpy(tile + 2 * row, block, 2);
    memcpy(tile + K_MINS + 2 * row, block + 2, 2);
    for (unsigned k = 0; k < 3; k++)
        store_u32(tile + K_SCALES + k * TILE_VECTOR + 4 * row, load_u32(block + 4 + 4 * k));
}

static void unpack_k_header(const uint8_t *tile, unsigned row, uint8_t *block)
{
    memcpy(block, tile + 2 * row, 2);
    memcpy(block + 2, tile + K_MINS + 2 * row, 2);
    for (unsigned k = 0; k < 3; k++)
        store_u32(block + 4 + 4 * k, tile_word(tile + K_SCALES, k, row));
}

static void pack_k_nibbles(const uint8_t *file_quants, unsigned sub, unsigned row, uint8_t *p)
{
    const uint8_t *in = file_quants + 32 * (sub / 2);
    unsigned shift = 4 * (sub % 2);

    for (unsigned v = 0; v < 4; v++)
        put_nibbles(p, row, v, (load_u32(in + 8 * v) >> shift) & LOW_NIBBLES,
                    (load_u32(in + 8 * v + 4) >> shift) & LOW_NIBBLES);
}

/* Sub-blocks 2j and 2j + 1, whose nibbles stand at even and odd, to the file's 32 bytes. */
static void unpack_k_nibbles(const uint8_t *even, const uint8_t *odd, unsigned row, uint8_t *out)
{
    for (unsigned g = 0; g < 8; g++)
        store_u32(out + 4 * g, tile_nibbles(even, g, row) | tile_nibbles(odd, g, row) << 4);
}

static void pack_q4_k(const uint8_t *block, unsigned row, uint8_t *tile)
{
    pack_k_header(block, row, tile);
    for (unsigned s = 0; s < 8; s++)
        pack_k_nibbles(block + 16, s, row, tile + K_QUANTS + s * Q4_K_SUB);
}

static void unpack_q4_k(const uint8_t *tile, unsigned row, uint8_t *block)
{
    const uint8_t *quants = tile + K_QUANTS;

    unpack_k_header(tile, row, block);
    for (unsigned j = 0; j < 4; j++, quants += 2 * Q4_K_SUB)
        unpack_k_nibbles(quants, quants + Q4_K_SUB, row, block + 16 + 32 * j);
}

/* Q5_K, 16 x 256: as Q4_K, and after each sub-block's nibbles one vector of high bits: bit g of
 * byte 4r+c = column 4g+c. In the file, bit s of high byte l belongs to column l of sub-block s. */
static void pack_q5_k(const uint8_t *block, unsigned row, uint8_t *tile)
{
    pack_k_header(block, row, tile);
    for (unsigned s = 0; s < 8; s++) {
        uint8_t *p = tile + K_QUANTS + s * Q5_K_SUB;
        uint32_t high = 0;

        pack_k_nibbles(block + 48, s, row, p);
        for (unsigned g = 0; g < 8; g++)
            high |= ((load_u32(block + 16 + 4 * g) >> s) & 0x01010101) << g;
        store_u32(p + 4 * TILE_VECTOR + 4 * row, high);
    }
}

static void unpack_q5_k(const uint8_t *tile, unsigned row, uint8_t *block)
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
static void pack_q6_k(const uint8_t *block, unsigned row, uint8_t *tile)
{
    memcpy(tile + 2 * row, block + 208, 2);
    for (unsigned k = 0; k < 4; k++)
        store_u32(tile + Q6_K_SCALES + k * TILE_VECTOR + 4 * row, load_u32(block + 192 + 4 * k));
    for (unsigned s = 0; s < 8; s++) {
        uint8_t *p = tile + Q6_K_QUANTS + s * Q6_K_SUB;
        unsigned quarter = s % 4;
        const uint8_t *low = block + 64 * (s / 4) + 32 * (quarter % 2);
        const uint8_t *high = block + 128 + 32 * (s / 4);

        for (unsigned v = 0; v < 4; v++)
            put_nibbles(p, row, v, (load_u32(low + 8 * v) >> (4 * (quarter / 2))) & LOW_NIBBLES,
                        (load_u32(low + 8 * v + 4) >> (4 * (quarter / 2))) & LOW_NIBBLES);
        for (unsigned h = 0; h < 2; h++) {
            uint32_t bits = 0;

            for (unsigned g = 0; g < 4; g++)
                bits |= ((load_u32(high + 16 * h + 4 * g) >> (2 * quarter)) & 0x03030303)
                        << (2 * g);
            store_u32(p + (4 + h) * TILE_VECTOR + 4 * row, bits);
        }
    }
}

static void unpack_q6_k(const uint8_t *tile, unsigned row, uint8_t *block)
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

/* F32 and F16, 16 x 1: the column's 16 values. */
static void pack_f32(const uint8_t *block, unsigned row, uint8_t *tile)
{
    memcpy(tile + 4 * row, block, 4);
}

static void unpack_f32(const uint8_t *tile, unsigned row, uint8_t *block)
{
    memcpy(block, tile + 4 * row, 4);
}

static void pack_f16(const uint8_t *block, unsigned row, uint8_t *tile)
{
    memcpy(tile + 2 * row, block, 2);
}

static void unpack_f16(const uint8_t *tile, unsigned row, uint8_t *block)
{
    memcpy(block, tile + 2 * row, 2);
}

/* BF16, 16 x 2: word r = columns 2k (low half) and 2k + 1 (high half) of row r; the missing second
 * column of an odd last pair is zero. The pair is the block of this packer. */
static const struct packing {
    unsigned block_bytes, block_cols, tile_bytes;
    pack_block *pack;
    unpack_block *unpack;
} packings[] = {
    [TENSOR_F32] = {4, 1, 64, pack_f32, unpack_f32},
    [TENSOR_F16] = {2, 1, 32, pack_f16, unpack_f16},
    [TENSOR_BF16] = {4, 2, 64, pack_f32, unpack_f32},
    [TENSOR_Q8_0] = {34, 32, Q8_0_TILE, pack_q8_0, unpack_q8_0},
    [TENSOR_Q4_0] = {18, 32, Q4_0_TILE, pack_q4_0, unpack_q4_0},
    [TENSOR_Q4_K] = {144, 256, Q4_K_TILE, pack_q4_k, unpack_q4_k},
    [TENSOR_Q5_K] = {176, 256, Q5_K_TILE, pack_q5_k, unpack_q5_k},
    [TENSOR_Q6_K] = {210, 256, Q6_K_TILE, pack_q6_k, unpack_q6_k},
};

static const struct packing *packing_of(enum tensor_type type)
{
    size_t index = (size_t)type;

    /* A type that does not compute was refused when the model was opened: reaching this is our bug.
     */
    if (index >= sizeof packings / sizeof packings[0] || packings[index].pack == NULL)
        abort();
    return &packings[index];
}

size_t tile_row_bytes(enum tensor_type type, uint32_t cols)
{
    const struct packing *p = packing_of(type);
    size_t tiles = ((size_t)cols + p->block_cols - 1) / p->block_cols;

    return round_up(tiles * p->tile_bytes, TILE_ALIGN);
}

size_t tile_matrix_bytes(enum tensor_type type, uint32_t rows, uint32_t cols)
{
    return tile_row_bytes(type, cols) * tile_row_count(rows);
}

void tile_pack(enum tensor_type type, uint32_t cols, uint32_t n_rows, const void *rows_in,
               size_t stride, void *tile_row)
{
    const struct packing *p = packing_of(type);
    uint32_t tiles = cols / p->block_cols;
    size_t bytes = tile_row_bytes(type, cols);
    uint8_t *out = tile_row;

    assert(n_rows >= 1 && n_rows <= TILE_ROWS);
    if (n_rows < TILE_ROWS)
        memset(out, 0, bytes);
    else
        memset(out + (size_t)tiles * p->tile_bytes, 0, bytes - (size_t)tiles * p->tile_bytes);
    /* Tile by tile: a tile stays in the first-level cache while its 16 rows come in. */
    for (uint32_t t = 0; t < tiles; t++)
        for (uint32_t r = 0; r < n_rows; r++)
            p->pack((const uint8_t *)rows_in + r * stride + (size_t)t * p->block_bytes, r,
                    out + (size_t)t * p->tile_bytes);
    if (tiles * p->block_cols < cols) { /* BF16 alone: half a pair */
        for (uint32_t r = 0; r < n_rows; r++)
            memcpy(out + (size_t)tiles * p->tile_bytes + 4 * r,
                   (const uint8_t *)rows_in + r * stride + (size_t)tiles * p->block_bytes, 2);
    }
}

void tile_unpack_row(const struct matrix *m, uint32_t row, float *out)
{
    const struct packing *p = packing_of(m->type);
    const uint8_t *tile =
        (const uint8_t *)m->tiles + tile_row_bytes(m->type, m->cols) * (row / TILE_ROWS);
    /* As many blocks as fit are rebuilt at a time, so that lib/quant is called for runs of them. */
    uint8_t blocks[16 * BLOCK_BYTES_MAX];
    uint32_t chunk = (uint32_t)(sizeof blocks / p->block_bytes) * p->block_cols;

    assert(row < m->rows);
    for (uint32_t col = 0; col < m->cols; col += chunk) {
        uint32_t n = m->cols - col < chunk ? m->cols - col : chunk;
        uint8_t *block = blocks;

        for (uint32_t c = 0; c < n; c += p->block_cols) {
            p->unpack(tile, row % TILE_ROWS, block);
            block += p->block_bytes;
            tile += p->tile_bytes;
        }
        quant_dequantize(m->type, blocks, out + col, n);
    }
}

void tile_unpack_rows(const struct matrix *m, uint32_t first, uint32_t count, float *out)
{
    for (uint32_t i = 0; i < count; i++)
        tile_unpack_row(m, first + i, out + (size_t)i * m->cols);
}
