/* Logistic regression online; see logistic.h. */
#include "sched/predict/logistic.h"

#include <math.h>
#include <string.h>

#define MEMORY    4096.0
#define RIDGE     4.0
#define MOST_STEP 0.5

void logistic_init(struct logistic *r, uint32_t n)
{
    *r = (struct logistic){.n = n};
    for (uint32_t i = 0; i < n; i++)
        r->w[1 + i] = 1.0 / n;
}

void logistic_inherit(struct logistic *r, const struct logistic *from, double steps)
{
    *r = *from;
    double share = from->steps > 0 ? steps / from->steps : 0;
    for (uint32_t i = 0; i <= r->n; i++)
        for (uint32_t j = 0; j <= i; j++)
            r->curvature[i][j] *= share;
    r->steps = steps;
}

/* 1 / (1 + e^-z), relative error 3e-6. The library's exp, called once an expert, took two thirds of
 * a prediction. 2^x is 2^whole, by its bits, times 2^part by Taylor's series. */
static inline float sigmoid(float z)
{
    float x = z * -1.44269504f;
    x = x < -60 ? -60 : x;
    x = x > 60 ? 60 : x;
    float whole = (x + 0x1.8p23f) - 0x1.8p23f, part = x - whole;
    float of_part = 1.33335581e-3f;
    of_part = of_part * part + 9.61812911e-3f;
    of_part = of_part * part + 5.55041087e-2f;
    of_part = of_part * part + 2.40226507e-1f;
    of_part = of_part * part + 6.93147181e-1f;
    of_part = of_part * part + 1;
    int32_t bits = ((int32_t)whole + 127) * (1 << 23);
    float of_whole;
    memcpy(&of_whole, &bits, sizeof of_whole);
    return 1 / (1 + of_part * of_whole);
}

static void add_row(const float *restrict x, float w, uint32_t n, float *restrict sum)
{
    for (uint32_t s = 0; s < n; s++)
        sum[s] += w * x[s];
}

void logistic_predict(const struct logistic *r, const float *const *x, uint32_t n_samples, float *p)
{
    for (uint32_t s = 0; s < n_samples; s++)
        p[s] = (float)r->w[0];
    for (uint32_t i = 0; i < r->n; i++)
        add_row(x[i], (float)r->w[1 + i], n_samples, p);
    for (uint32_t s = 0; s < n_samples; s++)
        p[s] = sigmoid(p[s]);
}

/* sum over s of a[s] b[s], in an order that a compiler can vectorise. */
static double sum_products(const float *a, const float *b, uint32_t n)
{
    float lanes[LOGISTIC_LANES] = {0};
    for (uint32_t s = 0; s < n; s += LOGISTIC_LANES)
        for (uint32_t i = 0; i < LOGISTIC_LANES; i++)
            lanes[i] += a[s + i] * b[s + i];
    double sum = 0;
    for (uint32_t i = 0; i < LOGISTIC_LANES; i++)
        sum += (double)lanes[i];
    return sum;
}

static double sum_of(const float *a, uint32_t n)
{
    float lanes[LOGISTIC_LANES] = {0};
    for (uint32_t s = 0; s < n; s += LOGISTIC_LANES)
        for (uint32_t i = 0; i < LOGISTIC_LANES; i++)
            lanes[i] += a[s + i];
    double sum = 0;
    for (uint32_t i = 0; i < LOGISTIC_LANES; i++)
        sum += (double)lanes[i];
    return sum;
}

/* out = a (1 - a) b; b NULL: 1. */
static void multiply(const float *restrict a, const float *restrict b, uint32_t n,
                     float *restrict out)
{
    for (uint32_t s = 0; s < n; s++)
        out[s] = a[s] * (1 - a[s]);
    for (uint32_t s = 0; b && s < n; s++)
        out[s] *= b[s];
}

/* v = a^-1 v; a is symmetric and positive definite, given by its lower half. Cholesky's
 * decomposition in place. */
static void solve(double a[1 + LOGISTIC_MOST][1 + LOGISTIC_MOST], uint32_t n, double *v)
{
    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t j = 0; j <= i; j++) {
            double sum = a[i][j];
            for (uint32_t k = 0; k < j; k++)
                sum -= a[i][k] * a[j][k];
            a[i][j] = i == j ? sqrt(sum) : sum / a[j][j];
        }
        for (uint32_t k = 0; k < i; k++)
            v[i] -= a[i][k] * v[k];
        v[i] /= a[i][i];
    }
    for (uint32_t i = n; i-- > 0;) {
        for (uint32_t k = i + 1; k < n; k++)
            v[i] -= a[k][i] * v[k];
        v[i] /= a[i][i];
    }
}

static void step(struct logistic *r, double *gradient)
{
    double a[1 + LOGISTIC_MOST][1 + LOGISTIC_MOST];
    memcpy(a, r->curvature, sizeof a);
    for (uint32_t i = 0; i <= r->n; i++)
        a[i][i] += RIDGE;
    solve(a, r->n + 1, gradient);
    for (uint32_t i = 0; i <= r->n; i++)
        r->w[i] += fmin(fmax(gradient[i], -MOST_STEP), MOST_STEP);
}

static void add(struct logistic *r, uint32_t i, uint32_t j, double value)
{
    r->curvature[i][j] = r->curvature[i][j] * (1 - 1 / MEMORY) + value;
}

void logistic_learn(struct logistic *r, const float *const *x, uint32_t n_samples, const float *p,
                    const float *target, float *scratch)
{
    uint32_t padded = (n_samples + LOGISTIC_LANES - 1) / LOGISTIC_LANES * LOGISTIC_LANES;
    double gradient[1 + LOGISTIC_MOST];
    memset(scratch + n_samples, 0, (padded - n_samples) * sizeof *scratch);
    for (uint32_t s = 0; s < n_samples; s++)
        scratch[s] = target[s] - p[s];
    gradient[0] = sum_of(scratch, padded);
    for (uint32_t i = 0; i < r->n; i++)
        gradient[1 + i] = sum_products(scratch, x[i], padded);

    multiply(p, NULL, n_samples, scratch);
    add(r, 0, 0, sum_of(scratch, padded));
    for (uint32_t i = 0; i < r->n; i++)
        add(r, 1 + i, 0, sum_products(scratch, x[i], padded));
    for (uint32_t i = 0; i < r->n; i++) {
        multiply(p, x[i], n_samples, scratch);
        for (uint32_t j = 0; j <= i; j++)
            add(r, 1 + i, 1 + j, sum_products(scratch, x[j], padded));
    }
    r->steps = r->steps * (1 - 1 / MEMORY) + 1;
    step(r, gradient);
}
