/* Matrix products and eigenvectors by OpenBLAS and its LAPACK. blas_open loads the library at run
 * time: commands that train nothing do not pay for it. A call uses one thread: training has threads
 * of its own, and the bits of a product then do not depend on their number. */
#ifndef MOED_TRAIN_BLAS_H
#define MOED_TRAIN_BLAS_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>

/* Loads the library, before all other calls. A second call does nothing. One thread at a time. */
enum error_code blas_open(struct error *e);

/* c = beta c + a' b', row-major; c: [m][n]. a' is a: [m][k], or the transpose of a: [k][m]. b' is
 * b: [k][n], or the transpose of b: [n][k]. Rows are a_stride, b_stride and c_stride apart. */
void blas_product(bool a_transposed, bool b_transposed, size_t m, size_t n, size_t k,
                  const float *a, size_t a_stride, const float *b, size_t b_stride, float beta,
                  float *c, size_t c_stride);

/* The n_wanted largest eigenvalues of a symmetric matrix, [n][n], and their vectors of length 1,
 * one per row, largest first. Overwrites the matrix. */
enum error_code blas_eigen(double *matrix, size_t n, size_t n_wanted, double *values,
                           double *vectors, struct error *e);

#endif
