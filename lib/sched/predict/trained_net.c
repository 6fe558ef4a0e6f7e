/* Networks on a batch of tokens; see trained_net.h. */
#include "sched/predict/trained_net.h"
#include "sched/predict/clones.h"

#include <math.h>
#include <string.h>

#define SQRT_HALF 0.70710678f

static inline float widen(uint16_t half)
{
    union {
        uint32_t bits;
        float value;
    } u = {.bits = (uint32_t)half << 16};
    return u.value;
}

/* y += x[0] w[0] + x[1] w[1] + x[2] w[2] + x[3] w[3], one after the other; a row of w is n long. */
CLONES static void add_four(const float x[4], const uint16_t *restrict w, size_t n,
                            float *restrict y)
{
    const uint16_t *restrict w1 = w + n, *restrict w2 = w1 + n, *restrict w3 = w2 + n;
    float x0 = x[0], x1 = x[1], x2 = x[2], x3 = x[3];
    for (size_t i = 0; i < n; i++)
        y[i] = (((y[i] + x0 * widen(w[i])) + x1 * widen(w1[i])) + x2 * widen(w2[i])) +
               x3 * widen(w3[i]);
}

CLONES static void add_one(float x, const uint16_t *restrict w, size_t n, float *restrict y)
{
    for (size_t i = 0; i < n; i++)
        y[i] += x * widen(w[i]);
}

/* Four rows of w at a time, for all tokens, so that w is read from memory once. */
void trained_affine_run(const struct trained_affine *a, const float *x, uint32_t x_stride,
                        uint32_t n_tokens, float *y)
{
    size_t n = a->n_out;
    for (uint32_t t = 0; t < n_tokens; t++)
        memcpy(y + t * n, a->bias, n * sizeof *y);
    uint32_t j = 0;
    for (; j + 4 <= a->n_in; j += 4)
        for (uint32_t t = 0; t < n_tokens; t++) {
            const float *v = x + (size_t)t * x_stride + j;
            if (v[0] != 0 || v[1] != 0 || v[2] != 0 || v[3] != 0)
                add_four(v, a->w + j * n, n, y + t * n);
        }
    for (; j < a->n_in; j++)
        for (uint32_t t = 0; t < n_tokens; t++)
            add_one(x[(size_t)t * x_stride + j], a->w + j * n, n, y + t * n);
}

float trained_gelu(float x)
{
    return 0.5f * x * (1 + erff(x * SQRT_HALF));
}

static float sigmoid(float x)
{
    return 1 / (1 + expf(-x));
}

static void activate(enum trained_activation kind, float *u, size_t n)
{
    if (kind == TRAINED_RELU)
        for (size_t i = 0; i < n; i++)
            u[i] = u[i] > 0 ? u[i] : 0;
    else
        for (size_t i = 0; i < n; i++)
            u[i] = trained_gelu(u[i]);
}

size_t trained_net_scratch(const struct trained_net *n)
{
    return (size_t)n->in.n_out * (n->has_block ? 3 : 1);
}

void trained_net_run(const struct trained_net *n, const float *x, uint32_t n_tokens, float *scratch,
                     float *logits)
{
    size_t count = (size_t)n_tokens * n->in.n_out;
    float *u = scratch, *a = u + count, *b = a + count;
    trained_affine_run(&n->in, x, n->in.n_in, n_tokens, u);
    activate(n->activation, u, count);
    if (n->has_block) {
        trained_affine_run(&n->first, u, n->first.n_in, n_tokens, a);
        activate(n->activation, a, count);
        trained_affine_run(&n->second, a, n->second.n_in, n_tokens, b);
        activate(n->activation, b, count);
        trained_affine_run(&n->gate, x, n->in.n_in, n_tokens, a);
        for (size_t i = 0; i < count; i++)
            u[i] += sigmoid(a[i]) * b[i];
    }
    trained_affine_run(&n->out, u, n->out.n_in, n_tokens, logits);
}

void trained_llapor_rest(uint32_t n_experts, uint32_t n_used, const uint32_t *selected,
                         const float *gate, float *rest)
{
    float sum = 0;
    memset(rest, 0, 2 * (size_t)n_experts * sizeof *rest);
    for (uint32_t k = 0; k < n_used; k++)
        sum += gate[selected[k]];
    for (uint32_t k = 0; k < n_used; k++) {
        rest[selected[k]] = 1;
        rest[n_experts + selected[k]] =
            sum > 0 && sum < INFINITY ? gate[selected[k]] / sum : 1 / (float)n_used;
    }
}

/* True if the expert is among the n_used best of a token; of equal ones the lower number is better.
 */
static bool among_best(const float *logits, uint32_t n_experts, uint32_t n_used, uint32_t expert)
{
    uint32_t better = 0;
    for (uint32_t i = 0; i < n_experts; i++)
        better += logits[i] > logits[expert] || (logits[i] == logits[expert] && i < expert);
    return better < n_used;
}

void trained_probabilities(const struct predict_shape *s, const float *logits, uint32_t n_tokens,
                           double *probability)
{
    uint32_t n = s->n_experts;
    for (uint32_t i = 0; i < n; i++) {
        double missed = 1;
        bool chosen = false;
        for (uint32_t t = 0; t < n_tokens; t++) {
            float z = logits[(size_t)t * n + i];
            if (!(z == z)) /* NaN: not probable */
                continue;
            missed *= 1 - 1 / (1 + exp(-(double)z));
            chosen = chosen || among_best(logits + (size_t)t * n, n, s->n_used, i);
        }
        probability[i] = chosen ? 1 - missed : 0;
    }
}
