/* Losses; see loss.h. */
#include "train/loss.h"

#include <math.h>

#define MIN_SHARE 0.05f

void loss_weights(const uint64_t *counts, uint32_t n, float *weight)
{
    double total = 0, sum = 0;
    for (uint32_t i = 0; i < n; i++)
        total += (double)counts[i];
    for (uint32_t i = 0; i < n; i++) {
        double share = total > 0 ? (double)counts[i] * n / total : 1;
        weight[i] = (float)(1 / (share > MIN_SHARE ? share : MIN_SHARE));
        sum += weight[i];
    }
    for (uint32_t i = 0; i < n; i++)
        weight[i] = (float)(weight[i] * n / sum);
}

/* log(1 + e^x) without overflow. */
static float soft_plus(float x)
{
    return x > 0 ? x + log1pf(expf(-x)) : log1pf(expf(x));
}

/* The loss of one expert of one token, and its derivative by z. s is +1 if active, else -1; q =
 * sigmoid(s z); dq / dz = s q (1 - q).
 *     BCE   = softplus(-s z)
 *             derivative: -s (1 - q)
 *     focal = (1 - q)^gamma softplus(-s z)
 *             derivative: s (1 - q)^gamma (-gamma q softplus(-s z) - (1 - q)) */
static float one(const struct loss *l, float z, float s, float weight, float *derivative)
{
    float q = 1 / (1 + expf(-s * z)), bce = soft_plus(-s * z), rest = 1 - q;
    float part = l->lambda * weight;
    *derivative = -s * rest * part;
    if (l->lambda >= 1)
        return part * bce;
    float factor = powf(rest, LOSS_GAMMA);
    *derivative += (1 - l->lambda) * s * factor * (-LOSS_GAMMA * q * bce - rest);
    return part * bce + (1 - l->lambda) * factor * bce;
}

double loss_of(const struct loss *l, const float *logits, const uint32_t *active, uint32_t batch,
               uint32_t n, uint32_t n_used, float *error)
{
    double total = 0;
    for (uint32_t t = 0; t < batch; t++)
        for (uint32_t i = 0; i < n; i++) {
            float s = -1;
            for (uint32_t k = 0; k < n_used; k++)
                if (active[(size_t)t * n_used + k] == i)
                    s = 1;
            float *derivative = &error[(size_t)t * n + i];
            total += one(l, logits[(size_t)t * n + i], s, l->weight ? l->weight[i] : 1, derivative);
            *derivative /= (float)batch;
        }
    return total / ((double)batch * n);
}
