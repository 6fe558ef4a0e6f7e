/* Rows of numbers in 8 bits, and their products: exact in integers, the same on every machine. */
#ifndef MOED_SCHED_PREDICT_EIGHT_BITS_H
#define MOED_SCHED_PREDICT_EIGHT_BITS_H

#include <stddef.h>
#include <stdint.h>

/* Returns the scale: in[i] is about out[i] * scale, out[i] from -127 to 127. A row that is all 0,
 * or has a number that is not finite, becomes zeros with scale 0. */
float eight_bits_round(const float *in, size_t n, int8_t *out);

/* n <= 131,072, else the sum does not fit. */
int32_t eight_bits_dot(const int8_t *a, const int8_t *b, size_t n);
/* The product of a with each of n_rows rows of n numbers. */
void eight_bits_dot_rows(const int8_t *a, const int8_t *rows, uint32_t n_rows, size_t n,
                         int32_t *out);

#endif
