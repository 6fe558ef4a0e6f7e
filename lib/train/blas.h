/* Matrix products and eigenvectors: OpenBLAS, with the LAPACK in it. It is loaded when it is asked for, because loading it
 * starts a thread a core, which a command that trains nothing should not pay for. One thread a call: who trains has threads
 * of its own, and a product's bits then do not depend on how many. */
#ifndef MOED_TRAIN_BLAS_H
#define MOED_TRAIN_BLAS_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>

/* Before all else; again is ignored. One thread at a time. */
enum error_code blas_open(struct error *e);

/* c = beta c + a' b', row-major, c: [m][n]. a': a itself, [m][k] with rows a_stride apart, or its transpose, a: [k][m]; b'
 * likewise. */
void blas_product(bool a_transposed, bool b_transposed, size_t m, size_t n, size_t k,
                  const float *a, size_t a_stride, const float *b, size_t b_stride, float beta,
                  float *c, size_t c_stride);

/* The n_wanted largest eigenvalues of a symmetric matrix, [n][n], which is overwritten, and their vectors of length 1, a row
 * each, the largest first. */
enum error_code blas_eigen(double *matrix, size_t n, size_t n_wanted, double *values,
                           double *vectors, struct error *e);

#endif
