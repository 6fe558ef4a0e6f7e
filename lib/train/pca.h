/* Principal components: the directions in which vectors vary most. */
#ifndef MOED_TRAIN_PCA_H
#define MOED_TRAIN_PCA_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Sums over vectors that give their mean and covariance. */
struct pca_sums {
    uint32_t d;
    uint64_t n;
    float *shift;    /* [d]: subtracted from each vector, so that the covariance loses no digits */
    double *sum;     /* [d] */
    double *product; /* [d][d] */
    float *rows, *part; /* of a chunk of vectors */
    void *memory;       /* of all arrays */
};

enum error_code pca_sums_new(uint32_t d, struct pca_sums *out, struct error *e);
void pca_sums_free(struct pca_sums *s);
void pca_sums_add(struct pca_sums *s, const float *rows, uint32_t n); /* rows: [n][d] */

/* The map x -> bias + x basis to components, largest variance first. The components are divided by
 * one number, which makes their mean variance 1; whitened, each by its own deviation. */
struct pca {
    uint32_t d, n;
    float *basis;   /* [d][n], each a bf16 */
    float *bias;    /* [n] */
    float *inverse; /* [n][d]: x = mean + components inverse, without the omitted components */
    double kept;    /* the components' share of the variance */
    void *memory;   /* of all arrays */
};
enum error_code pca_fit(const struct pca_sums *s, uint32_t n_components, bool whiten,
                        struct pca *out, struct error *e);
void pca_free(struct pca *p); /* takes a zeroed one */

#endif
