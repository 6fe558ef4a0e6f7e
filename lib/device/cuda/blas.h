/* cuBLAS, loaded at run time: products of many columns go through it where it is installed; the
 * module itself needs only the driver. Plain C and C++. */
#ifndef MOED_DEVICE_CUDA_BLAS_H
#define MOED_DEVICE_CUDA_BLAS_H

#include "device/cuda/stream.h"

#include <library_types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* As load_blas of module.h. The calling thread has entered the device. */
enum error_code cuda_blas_open(struct device *d, struct device_blas *out, struct error *e);
void cuda_blas_close(struct device *d);
/* True: the library had no memory for a product, or does not support it. It is not used any more.
 */
bool cuda_blas_given_up(const struct device *d);
/* The operands that it takes; none before cuda_blas_open. */
struct device_blas cuda_blas_operands(const struct device *d);
/* The library's file and version; "": none is loaded, or it is given up. */
const char *cuda_blas_name(const struct device *d);

/* y[t * y_stride + r] = alpha * (sum over c of w[r * cols + c] * x[t * x_stride + c]) + beta * y[t
 * * y_stride + r], sums in float32. The rows of w are w_stride apart. There are n_planes such
 * products, whose operands and results are w_plane, x_plane and y_plane apart. All pointers are
 * device memory, also alpha and beta, which are read when the product is computed. */
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
/* False: it is not queued, because the library is given up. Other errors are the device's. */
bool cuda_blas_multiply(struct device_stream *s, const struct cuda_blas_product *p);

#ifdef __cplusplus
}
#endif
#endif
