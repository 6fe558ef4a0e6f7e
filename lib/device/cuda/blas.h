/* cuBLAS, found at run time: the module needs the driver alone, and products of many columns go through cuBLAS where it is
 * installed. Plain C and C++. */
#ifndef MOED_DEVICE_CUDA_BLAS_H
#define MOED_DEVICE_CUDA_BLAS_H

#include "device/cuda/internal.h"

#include <library_types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* As load_blas of module.h; on the device's thread. */
enum error_code cuda_blas_open(struct device *d, struct device_blas *out, struct error *e);
void cuda_blas_close(struct device *d);
/* None, before it was opened. */
struct device_blas cuda_blas_operands(const struct device *d);

/* y[t * y_stride + r] = alpha * (sum over c of w[r * cols + c] * x[t * x_stride + c]) + beta * y[t * y_stride + r], sums in
 * float32. w's rows are w_stride apart; of n_planes such products the operands and results are as far apart as w_plane,
 * x_plane, y_plane say. All in device memory, alpha and beta too, which are read when it is computed. */
struct cuda_blas_product {
    cudaDataType type; /* of w and x: CUDA_R_32F, CUDA_R_16F, CUDA_R_16BF */
    uint32_t rows, cols, n;
    const void *w, *x;
    size_t w_stride, x_stride, y_stride; /* in values */
    uint32_t n_planes;
    size_t w_plane, x_plane, y_plane; /* in values */
    const float *alpha, *beta;
    float *y;
};
void cuda_blas_multiply(struct device_stream *s, const struct cuda_blas_product *p);

#ifdef __cplusplus
}
#endif
#endif
