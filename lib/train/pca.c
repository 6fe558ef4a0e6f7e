/* Principal components; see pca.h. */
#include "train/pca.h"
#include "train/blas.h"
#include "train/half.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { PIECE = 512 };

enum error_code pca_sums_new(uint32_t d, struct pca_sums *out, struct error *e)
{
    struct pca_sums s = {.d = d};
    s.shift = calloc(d, sizeof *s.shift);
    s.sum = calloc(d, sizeof *s.sum);
    s.product = calloc((size_t)d * d, sizeof *s.product);
    s.rows = calloc((size_t)PIECE * d, sizeof *s.rows);
    s.part = calloc((size_t)d * d, sizeof *s.part);
    if (!s.shift || !s.sum || !s.product || !s.rows || !s.part) {
        pca_sums_free(&s);
        return error_set(e, ERROR_MEMORY, "no memory for a covariance of width %u", d);
    }
    *out = s;
    return ERROR_OK;
}

void pca_sums_free(struct pca_sums *s)
{
    free(s->shift);
    free(s->sum);
    free(s->product);
    free(s->rows);
    free(s->part);
    *s = (struct pca_sums){0};
}

static void add_piece(struct pca_sums *s, const float *rows, uint32_t n)
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
    for (uint32_t t = 0; !s->n && t < n; t++) /* the mean of the first ones */
        for (uint32_t i = 0; i < s->d; i++)
            s->shift[i] += rows[(size_t)t * s->d + i] / (float)n;
    for (uint32_t done = 0; done < n; done += PIECE)
        add_piece(s, rows + (size_t)done * s->d, n - done < PIECE ? n - done : PIECE);
}

/* From eigenvectors, a row each, to the projection and back. */
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
            *w = half_value((float)(v / size)); /* or the bias would not be of what is stored */
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
    double *covariance = malloc(d * d * sizeof *covariance), total = 0;
    double *values = malloc(n * sizeof *values), *vectors = malloc(n * d * sizeof *vectors);
    p.basis = malloc(d * n * sizeof *p.basis);
    p.inverse = malloc(d * n * sizeof *p.inverse);
    p.bias = malloc(n * sizeof *p.bias);
    enum error_code code = ERROR_OK;
    if (!covariance || !values || !vectors || !p.basis || !p.inverse || !p.bias)
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
    free(covariance);
    free(values);
    free(vectors);
    if (code)
        pca_free(&p);
    else
        *out = p;
    return code;
}

void pca_free(struct pca *p)
{
    free(p->basis);
    free(p->inverse);
    free(p->bias);
    *p = (struct pca){0};
}
