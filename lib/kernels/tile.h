/* Tiles: the layout of every weight matrix in memory, in the host pool and on a device.
 *
 * A tile is 16 rows by one quantisation block. It keeps the file's quantisation without loss and is
 * no larger: first the scales of the 16 rows, then the quants in groups of 4 columns. A 64-byte
 * vector holds 4 columns of all 16 rows, so that rows lie across the lanes and activations are
 * broadcast. A tile row is 16 rows by all columns, tiles in column order. A matrix is its tile
 * rows. Rows past the last are zero. The comment above each packer (pack_32.c, pack_256.c) has the
 * type's byte layout.
 *
 * A tile row of NVFP4 ends in a vector of 16 float32, one a row: the factor by which the file
 * multiplies what the row gives. So it goes wherever the tiles go, and two matrices of which one
 * follows the other are still one matrix. Other types have no such vector. */
#ifndef MOED_KERNELS_TILE_H
#define MOED_KERNELS_TILE_H

#include "gguf/tensor_type.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TILE_ROWS  16
#define TILE_ALIGN 64

/* Weights in tile order, for y = W x: cols inputs, rows outputs. Borrows tiles, TILE_ALIGN aligned.
 */
struct matrix {
    enum tensor_type type;
    uint32_t rows, cols;
    const void *tiles;
};

/* True: tile rows of this type end in factors. */
static inline bool tile_has_factors(enum tensor_type type)
{
    return type == TENSOR_NVFP4;
}

/* Bytes of 16 rows by cols columns, and of their factors; a multiple of TILE_ALIGN. cols is a
 * multiple of the type's block. */
size_t tile_row_bytes(enum tensor_type type, uint32_t cols);
size_t tile_matrix_bytes(enum tensor_type type, uint32_t rows, uint32_t cols);
static inline uint32_t tile_row_count(uint32_t rows)
{
    return (rows + TILE_ROWS - 1) / TILE_ROWS;
}

/* Makes one tile row from n_rows (1-16) rows in the file's layout, `stride` bytes apart. rows_in:
 * the first row, at the first of its cols columns, a block boundary. Factors: 1. */
void tile_pack(enum tensor_type type, uint32_t cols, uint32_t n_rows, const void *rows_in,
               size_t stride, void *tile_row);
/* Sets the factor of all rows of a tile row, of a type that has factors. */
void tile_set_factor(enum tensor_type type, uint32_t cols, float factor, void *tile_row);

/* One row as float32, out[cols], each value times the row's factor. For embedding look-up and as
 * the tests' oracle. */
void tile_unpack_row(const struct matrix *m, uint32_t row, float *out);
/* Rows [first, first + count) as float32, row-major out[count][cols]. */
void tile_unpack_rows(const struct matrix *m, uint32_t first, uint32_t count, float *out);

#endif
