/* One packer and one unpacker a tensor type. Private to lib/kernels.
 *
 * Every packer moves bits only: unpacking rebuilds the file's block bit for bit and leaves its meaning
 * to lib/quant. Words are handled as 4 columns at a time (a 32-bit group, see tile_layout.h); byte order
 * is little endian as in the file.
 */
#ifndef MOED_KERNELS_PACKING_H
#define MOED_KERNELS_PACKING_H

#include <stdint.h>

/* One row's block to and from row `row` of a tile. Unpackers write every byte of the block. */
typedef void pack_block(const uint8_t *block, unsigned row, uint8_t *tile);
typedef void unpack_block(const uint8_t *tile, unsigned row, uint8_t *block);

/* pack_32.c */
extern pack_block pack_f32, pack_f16, pack_q8_0, pack_q4_0, pack_q4_1, pack_q5_0, pack_q5_1;
extern pack_block pack_mxfp4;
extern unpack_block unpack_f32, unpack_f16, unpack_q8_0, unpack_q4_0, unpack_q4_1, unpack_q5_0;
extern unpack_block unpack_q5_1, unpack_mxfp4;

/* pack_256.c */
extern pack_block pack_q2_k, pack_q3_k, pack_q4_k, pack_q5_k, pack_q6_k, pack_iq4_xs;
extern unpack_block unpack_q2_k, unpack_q3_k, unpack_q4_k, unpack_q5_k, unpack_q6_k, unpack_iq4_xs;

/* For both files: the 4 vectors of nibbles at p, row `row`, from and to 16 bytes of the file, whose byte
 * j holds columns j and j + 16. */
void pack_split_nibbles(const uint8_t *file, unsigned row, uint8_t *p);
void unpack_split_nibbles(const uint8_t *p, unsigned row, uint8_t *file);

#endif
