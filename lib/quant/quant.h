/* Converts rows of GGUF tensors to and from float32, in the file's block layout: the scalar
 * definition of each type. Layouts: ggml's quantisation formats (blocks of 32: scale, then quants;
 * K types: super-blocks of 256). Portable C. Tests compare the kernels with it; mkmodel encodes by
 * it.
 */
#ifndef MOED_QUANT_QUANT_H
#define MOED_QUANT_QUANT_H

#include "gguf/tensor_type.h"

#include <stddef.h>
#include <stdint.h>

/* Convert IEEE half and bfloat16 to and from float32. From float32 they round to nearest even. */
float half_to_float(uint16_t h);
uint16_t float_to_half(float f);
float bf16_to_float(uint16_t h);
uint16_t float_to_bf16(float f);

/* Converts n values, a multiple of the block, from `row` to out[n]. moed must compute with the
 * type.
 */
void quant_dequantize(enum tensor_type type, const void *row, float *out, size_t n);

/* The inverse, by plain rounding without importance weights: for random weights and tests. */
void quant_quantize(enum tensor_type type, const float *in, void *row, size_t n);

/* Bytes of n values of a row. */
size_t quant_row_bytes(enum tensor_type type, size_t n);

/* The 6-bit scale and minimum of sub-block j (0-7) of a Q4_K or Q5_K super-block's 12 scale bytes.
 */
void quant_k_scale_min(const uint8_t scales[12], unsigned j, uint8_t *scale, uint8_t *min);

/* The scale (-32 to 31) of the 16 values j (0-15) of a Q3_K super-block's 12 scale bytes. */
int quant_q3_k_scale(const uint8_t scales[12], unsigned j);

/* The scale (-32 to 31) of sub-block j (0-7) of IQ4_XS: its low 4 and its upper 2 bits. */
int quant_iq4_xs_scale(const uint8_t low[4], uint16_t high, unsigned j);

/* The values of the 16 quants of IQ4_NL and IQ4_XS, and of MXFP4. MXFP4's are twice the 4-bit
 * floats, so that they are integers. */
extern const int8_t quant_iq4_values[16], quant_mxfp4_values[16];

/* The scale of the doubled values: half of the power of two that MXFP4's 8-bit exponent stands for,
 * 2^(exponent - 128). 255 is NaN in the format's specification; here and in ggml it is 2^127. */
float quant_mxfp4_scale(uint8_t exponent);

/* The scale of the doubled values of 16 values of NVFP4: half of an unsigned 8-bit float with 4
 * bits of exponent. As in ggml the upper bit does nothing, and 0x7f is 0. */
float quant_nvfp4_scale(uint8_t bits);

#endif
