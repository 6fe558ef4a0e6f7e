/* Rows of GGUF tensors to and from float32, in the file's own block layout: the scalar definition of
 * what each type means. Layouts: ggml's quantisation formats (block of 32: scale then quants; K types:
 * super-blocks of 256). Portable C; the kernels' oracle, mkmodel's encoder. */
#ifndef MOED_QUANT_QUANT_H
#define MOED_QUANT_QUANT_H

#include "gguf/tensor_type.h"

#include <stddef.h>
#include <stdint.h>

/* IEEE half and bfloat16 to and from float32; to: round to nearest even. */
float half_to_float(uint16_t h);
uint16_t float_to_half(float f);
float bf16_to_float(uint16_t h);
uint16_t float_to_bf16(float f);

/* n values (a multiple of the block), n / block blocks of `row` to out[n]. The type computes. */
void quant_dequantize(enum tensor_type type, const void *row, float *out, size_t n);

/* The inverse, by plain rounding (no importance weights): good enough for random weights and tests. */
void quant_quantize(enum tensor_type type, const float *in, void *row, size_t n);

/* Bytes of n values of a row. */
size_t quant_row_bytes(enum tensor_type type, size_t n);

/* The 6-bit scale and minimum of sub-block j (0-7) of a Q4_K or Q5_K super-block's 12 scale bytes. */
void quant_k_scale_min(const uint8_t scales[12], unsigned j, uint8_t *scale, uint8_t *min);

#endif
