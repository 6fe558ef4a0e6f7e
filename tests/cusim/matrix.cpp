/* Matrix instructions, by the fragments that the PTX manual draws (Warp Level Matrix Instructions,
 * "Matrix Fragments for mma.m16n8k16" with 8-bit integers; ldmatrix). With lane = 4 * group +
 * place:
 *
 *   A 16 x 16, byte i of a lane's 8    row group + 8 * (i / 4), column 4 * place + i % 4
 *   B 16 x 8, byte i of 4              row 4 * place + i, column group
 *   C 16 x 8, word i of 4              row group + 8 * (i / 2), column 2 * place + i % 2
 *
 * The manual's index of the row of A is group for i < 4 and group + 8 for the rest. With halves:
 *
 *   A 16 x 16, half i of a lane's 8    row group + 8 * (i / 2 % 2), column 2 * place + i % 2 +
 *                                      8 * (i / 4)
 *   B 16 x 8, half i of 4              row 2 * place + i % 2 + 8 * (i / 2), column group
 *
 * BF16 has the fragments of halves. */
#include "matrix.h"

#include "block.h"
#include "races.h"

#include <math.h>

namespace
{
struct load {
    const void *row;
    uint32_t words[4];
};

struct multiply_16 {
    uint32_t a[4], b[2];
    float d[4];
};

struct multiply_s8 {
    uint32_t a[2], b;
    int c[4], d[4];
};

template <class T> T &of_lane(const uint64_t *values, unsigned lane)
{
    return *reinterpret_cast<T *>((uintptr_t)values[lane]);
}

const char *load_matrices(const uint64_t *values, bool transposed)
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
            uint32_t *word = &of_lane<load>(values, lane).words[matrix];
            for (unsigned i = 0; i < 2; i++) {
                unsigned row = lane / 4, column = lane % 4 * 2 + i;
                if (transposed)
                    std::swap(row, column);
                const char *from = (const char *)of_lane<load>(values, 8 * matrix + row).row;
                memcpy((char *)word + 2 * i, from + 2 * column, 2);
            }
        }
    return nullptr;
}

double half(uint16_t bits)
{
    int exponent = bits >> 10 & 31, fraction = bits & 1023;
    double size = exponent == 31 ? (fraction ? NAN : INFINITY)
                  : exponent     ? ldexp(1024 + fraction, exponent - 25)
                                 : ldexp(fraction, -24);
    return bits >> 15 ? -size : size;
}

double bf16(uint16_t bits)
{
    uint32_t word = (uint32_t)bits << 16;
    float value;
    memcpy(&value, &word, sizeof value);
    return value;
}

/* Products are exact; sums are made in double precision, then rounded. */
const char *multiply_16_bits(const uint64_t *values, double (*value)(uint16_t))
{
    double a[16][16], b[8][16]; /* b: by columns */
    for (unsigned lane = 0; lane < MATRIX_LANES; lane++) {
        const multiply_16 &from = of_lane<multiply_16>(values, lane);
        unsigned group = lane / 4, place = lane % 4;
        for (unsigned i = 0; i < 8; i++)
            a[group + i / 2 % 2 * 8][place * 2 + i % 2 + i / 4 * 8] =
                value((uint16_t)(from.a[i / 2] >> 16 * (i % 2)));
        for (unsigned i = 0; i < 4; i++)
            b[group][place * 2 + i % 2 + i / 2 * 8] =
                value((uint16_t)(from.b[i / 2] >> 16 * (i % 2)));
    }
    for (unsigned lane = 0; lane < MATRIX_LANES; lane++) {
        multiply_16 &of = of_lane<multiply_16>(values, lane);
        for (unsigned i = 0; i < 4; i++) {
            unsigned row = lane / 4 + i / 2 * 8, column = lane % 4 * 2 + i % 2;
            double sum = of.d[i];
            for (unsigned k = 0; k < 16; k++)
                sum += a[row][k] * b[column][k];
            of.d[i] = (float)sum;
        }
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
    switch (op) {
    case CUSIM_LOAD_MATRICES:
        return load_matrices(values, false);
    case CUSIM_LOAD_MATRICES_TRANSPOSED:
        return load_matrices(values, true);
    case CUSIM_MULTIPLY_F16:
        return multiply_16_bits(values, half);
    case CUSIM_MULTIPLY_BF16:
        return multiply_16_bits(values, bf16);
    default:
        return multiply(values);
    }
}

static void load_4(enum cusim_warp_op op, const void *row, uint32_t words[4])
{
    races_read(block_thread(), row, 16);
    load of = {row, {}};
    cusim_warp(op, 0xffffffffu, (uintptr_t)&of, 0);
    memcpy(words, of.words, sizeof of.words);
}

void cusim_load_matrices_4(const void *row, uint32_t words[4])
{
    load_4(CUSIM_LOAD_MATRICES, row, words);
}

void cusim_load_matrices_4_transposed(const void *row, uint32_t words[4])
{
    load_4(CUSIM_LOAD_MATRICES_TRANSPOSED, row, words);
}

static void multiply_16_of(enum cusim_warp_op op, const uint32_t a[4], const uint32_t b[2],
                           float d[4])
{
    multiply_16 of = {{a[0], a[1], a[2], a[3]}, {b[0], b[1]}, {d[0], d[1], d[2], d[3]}};
    cusim_warp(op, 0xffffffffu, (uintptr_t)&of, 0);
    memcpy(d, of.d, sizeof of.d);
}

void cusim_multiply_m16n8k16_f16(const uint32_t a[4], const uint32_t b[2], float d[4])
{
    multiply_16_of(CUSIM_MULTIPLY_F16, a, b, d);
}

void cusim_multiply_m16n8k16_bf16(const uint32_t a[4], const uint32_t b[2], float d[4])
{
    multiply_16_of(CUSIM_MULTIPLY_BF16, a, b, d);
}

void cusim_multiply_m16n8k16_s8(const uint32_t a[2], uint32_t b, const int c[4], int d[4])
{
    multiply_s8 of = {{a[0], a[1]}, b, {c[0], c[1], c[2], c[3]}, {}};
    cusim_warp(CUSIM_MULTIPLY_S8, 0xffffffffu, (uintptr_t)&of, 0);
    memcpy(d, of.d, sizeof of.d);
}
