/* Principal components: the directions in which vectors differ most. */
#ifndef MOED_TRAIN_PCA_H
#define MOED_TRAIN_PCA_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Sums over vectors, from which mean and covariance follow. */
struct pca_sums {
    uint32_t d;
    uint64_t n;
    float *shift;       /* [d]: what is taken off first, so that little is lost in the difference */
    double *sum;        /* [d] */
    double *product;    /* [d][d] */
    float *rows, *part; /* of a piece */
};

enum error_code pca_sums_new(uint32_t d, struct pca_sums *out, struct error *e);
void pca_sums_free(struct pca_sums *s);
void pca_sums_add(struct pca_sums *s, const float *rows, uint32_t n); /* rows: [n][d] */

/* x -> bias + x basis. The components, the one of the largest variance first, are divided by one number, which makes their mean
 * variance 1; or, whitened, each by its own deviation. */
struct pca {
    uint32_t d, n;
    float *basis;   /* [d][n], each a bf16 */
    float *bias;    /* [n] */
    float *inverse; /* [n][d]: back, x = mean + components inverse, but for what was left out */
    double kept;    /* of all variance, the share that the components have */
};
enum error_code pca_fit(const struct pca_sums *s, uint32_t n_components, bool whiten,
                        struct pca *out, struct error *e);
void pca_free(struct pca *p); /* takes a zeroed one */

#endif
