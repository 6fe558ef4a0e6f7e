/* Quantising activations; what multiply.cu, experts.cu and quantize.cu share. */
#ifndef MOED_DEVICE_CUDA_QUANTIZE_H
#define MOED_DEVICE_CUDA_QUANTIZE_H

#include "device/cuda/stream.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Quantise a's rows: row r is the cols floats at a->x + r / n * plane + r % n * a->x_stride. */
void quantize_planes(struct device_stream *s, const struct device_activations *a, uint32_t n,
                     size_t plane);

#ifdef __cplusplus
}
#endif
#endif
