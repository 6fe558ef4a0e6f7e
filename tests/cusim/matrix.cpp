/* Matrix instructions, by the fragments that the PTX manual draws (Warp Level Matrix Instructions,
 * "Matrix Fragments for mma.m16n8k16" with 8-bit integers; ldmatrix). With lane = 4 * group +
 * place:
 *
 *   A 16 x 16, byte i of a lane's 8    row group + 8 * (i / 4), column 4 * place + i % 4
 *   B 16 x 8, byte i of 4              row 4 * place + i, column group
 *   C 16 x 8, word i of 4              row group + 8 * (i / 2), column 2 * place + i % 2
 *
 * The manual's index of the row of A is group for i < 4 and group + 8 for the rest. */
#include "matrix.h"

#include "block.h"
#include "races.h"

namespace
{
struct load {
    const void *row;
    uint32_t words[4];
};

struct multiply_s8 {
    uint32_t a[2], b;
    int c[4], d[4];
};

template <class T> T &of_lane(const uint64_t *values, unsigned lane)
{
    return *reinterpret_cast<T *>((uintptr_t)values[lane]);
}

const char *load_matrices(const uint64_t *values)
{
    for (unsigned lane = 0; lane < MATRIX_LANES; lane++) {
        const void *row = of_lane<load>(values, lane).row;
        if ((uintptr_t)row % 16 != 0)
            return "ldmatrix of a row that is not aligned to 16 bytes";
        if (!block_is_shared(row, 16))
            return "ldmatrix of a row outside of the dynamic shared memory";
    }
    for (unsigned lane = 0; lane < MATRIX_LANES; lane++)
        for (unsigned matrix = 0; matrix < 4; matrix++) {
            const char *row = (const char *)of_lane<load>(values, 8 * matrix + lane / 4).row;
            memcpy(&of_lane<load>(values, lane).words[matrix], row + lane % 4 * 4, 4);
        }
    return nullptr;
}

const char *multiply(const uint64_t *values)
{
    int8_t a[16][16], b[8][16]; /* b: by columns */
    for (unsigned lane = 0; lane < MATRIX_LANES; lane++) {
        const multiply_s8 &from = of_lane<multiply_s8>(values, lane);
        unsigned group = lane / 4, column = lane % 4 * 4;
        memcpy(&a[group][column], &from.a[0], 4);
        memcpy(&a[group + 8][column], &from.a[1], 4);
        memcpy(&b[group][column], &from.b, 4);
    }
    for (unsigned lane = 0; lane < MATRIX_LANES; lane++) {
        multiply_s8 &of = of_lane<multiply_s8>(values, lane);
        for (unsigned i = 0; i < 4; i++) {
            unsigned row = lane / 4 + i / 2 * 8, column = lane % 4 * 2 + i % 2;
            int sum = 0;
            for (unsigned k = 0; k < 16; k++)
                sum += a[row][k] * b[column][k];
            of.d[i] = (int)((unsigned)of.c[i] + (unsigned)sum);
        }
    }
    return nullptr;
}
} // namespace

const char *matrix_compute(enum cusim_warp_op op, const uint64_t values[MATRIX_LANES])
{
    return op == CUSIM_LOAD_MATRICES ? load_matrices(values) : multiply(values);
}

void cusim_load_matrices_4(const void *row, uint32_t words[4])
{
    races_read(block_thread(), row, 16);
    load of = {row, {}};
    cusim_warp(CUSIM_LOAD_MATRICES, 0xffffffffu, (uintptr_t)&of, 0);
    memcpy(words, of.words, sizeof of.words);
}

void cusim_multiply_m16n8k16_s8(const uint32_t a[2], uint32_t b, const int c[4], int d[4])
{
    multiply_s8 of = {{a[0], a[1]}, b, {c[0], c[1], c[2], c[3]}, {}};
    cusim_warp(CUSIM_MULTIPLY_S8, 0xffffffffu, (uintptr_t)&of, 0);
    memcpy(d, of.d, sizeof of.d);
}
