/* The IQ types with codebooks and NVFP4, for dequantize.c and quantize.c. Private to lib/quant. */
#ifndef MOED_QUANT_QUANT_IQ_H
#define MOED_QUANT_QUANT_IQ_H

#include <stddef.h>
#include <stdint.h>

/* As quant_dequantize and quant_quantize. */
typedef void dequantize_function(const uint8_t *row, float *out, size_t n);
typedef void quantize_function(const float *in, uint8_t *row, size_t n);

extern dequantize_function dequantize_iq3_s, dequantize_iq3_xxs, dequantize_iq2_xxs;
extern dequantize_function dequantize_iq2_xs, dequantize_iq2_s, dequantize_iq1_s, dequantize_iq1_m;
extern quantize_function quantize_iq3_s, quantize_iq3_xxs, quantize_iq2_xxs, quantize_iq2_xs;
extern quantize_function quantize_iq2_s, quantize_iq1_s, quantize_iq1_m;

#endif
