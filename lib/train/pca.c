/* Principal components; see pca.h. */
#include "train/pca.h"
#include "train/blas.h"
#include "train/half.h"

#include "base/arrays.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { CHUNK = 512 };

enum error_code pca_sums_new(uint32_t d, struct pca_sums *out, struct error *e)
{
    struct pca_sums s = {.d = d};
    size_t square = (size_t)d * d;
    s.memory = ARRAYS_NEW(ARRAY(s.shift, d), ARRAY(s.sum, d), ARRAY(s.product, square),
                          ARRAY(s.rows, (size_t)CHUNK * d), ARRAY(s.part, square));
    if (!s.memory)
        return error_set(e, ERROR_MEMORY, "no memory for a covariance of width %u", d);
    *out = s;
    return ERROR_OK;
}

void pca_sums_free(struct pca_sums *s)
{
    free(s->memory);
    *s = (struct pca_sums){0};
}

static void add_chunk(struct pca_sums *s, const float *rows, uint32_t n)
{
    size_t d = s->d;
    for (uint32_t t = 0; t < n; t++)
        for (size_t i = 0; i < d; i++) {
            s->rows[t * d + i] = rows[t * d + i] - s->shift[i];
            s->sum[i] += s->rows[t * d + i];
        }
    blas_product(true, false, d, d, n, s->rows, d, s->rows, d, 0, s->part, d);
    for (size_t i = 0; i < d * d; i++)
        s->product[i] += s->part[i];
    s->n += n;
}

void pca_sums_add(struct pca_sums *s, const float *rows, uint32_t n)
{
    for (uint32_t t = 0; !s->n && t < n; t++) /* shift: the mean of the first vectors */
        for (uint32_t i = 0; i < s->d; i++)
            s->shift[i] += rows[(size_t)t * s->d + i] / (float)n;
    for (uint32_t done = 0; done < n; done += CHUNK)
        add_chunk(s, rows + (size_t)done * s->d, n - done < CHUNK ? n - done : CHUNK);
}

/* Fills basis, bias and inverse from the eigenvectors, one per row. */
static void fill(struct pca *p, const struct pca_sums *s, const double *values,
                 const double *vectors, bool whiten)
{
    double mean_value = 0;
    for (uint32_t c = 0; c < p->n; c++)
        mean_value += values[c] / p->n;
    for (uint32_t c = 0; c < p->n; c++) {
        double variance = whiten ? values[c] : mean_value;
        double size = variance > 1e-12 ? sqrt(variance) : 1e-6, bias = 0;
        for (uint32_t i = 0; i < p->d; i++) {
            double v = vectors[(size_t)c * p->d + i];
            float *w = &p->basis[(size_t)i * p->n + c];
            *w = half_value((float)(v / size)); /* the bias must fit the stored basis */
            p->inverse[(size_t)c * p->d + i] = (float)(v * size);
            bias -= *w * (s->shift[i] + s->sum[i] / (double)s->n);
        }
        p->bias[c] = (float)bias;
    }
}

enum error_code pca_fit(const struct pca_sums *s, uint32_t n_components, bool whiten,
                        struct pca *out, struct error *e)
{
    size_t d = s->d, n = n_components;
    struct pca p = {.d = s->d, .n = n_components};
    double *covariance, *values, *vectors, total = 0;
    void *scratch = ARRAYS_NEW(ARRAY(covariance, d * d), ARRAY(values, n), ARRAY(vectors, n * d));
    p.memory = ARRAYS_NEW(ARRAY(p.basis, d * n), ARRAY(p.inverse, d * n), ARRAY(p.bias, n));
    enum error_code code = ERROR_OK;
    if (!scratch || !p.memory)
        code = error_set(e, ERROR_MEMORY, "no memory for %u components", n_components);
    for (size_t i = 0; !code && i < d; i++) {
        for (size_t j = 0; j < d; j++)
            covariance[i * d + j] =
                (s->product[i * d + j] - s->sum[i] * s->sum[j] / (double)s->n) / (double)s->n;
        total += covariance[i * d + i];
    }
    if (!code)
        code = blas_eigen(covariance, d, n, values, vectors, e);
    if (!code) {
        fill(&p, s, values, vectors, whiten);
        for (size_t i = 0; i < n && total > 0; i++)
            p.kept += values[i] / total;
    }
    free(scratch);
    if (code)
        pca_free(&p);
    else
        *out = p;
    return code;
}

void pca_free(struct pca *p)
{
    free(p->memory);
    *p = (struct pca){0};
}
