/* The output head: logits of rows, all of them or the largest, scaled and checked. */
#include "forward_internal.h"

#include "kernels/kernels.h"

#include <string.h>

#define FLOAT_EXPONENT 0x7f800000u

/* The address of rows of hidden values for the dense part: the last run's rows are there already,
 * other rows are copied. */
static const float *own_of(struct forward *f, const float *hidden, uint32_t n)
{
    size_t width = f->params->d_model, bytes = f->dense->max_tokens * width * sizeof *hidden;
    size_t offset = (uintptr_t)hidden - (uintptr_t)f->h.host;
    if (offset < bytes)
        return (const float *)((const uint8_t *)f->h.own + offset);
    return f->ops->bring(f->dense, hidden, n * width * sizeof *hidden);
}

/* A number that is not finite anywhere in a layer reaches all logits of its row. The weights are
 * finite (memd checks them while loading), so the computation overflowed. Without this check the
 * answer would be empty, or any token. */
static bool are_finite(const float *logits, size_t n, size_t stride, struct error *e)
{
    unsigned found = 0;
    for (size_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, &logits[i * stride], sizeof bits);
        found |= (bits & FLOAT_EXPONENT) == FLOAT_EXPONENT;
    }
    if (found)
        error_set(e, ERROR_FORMAT,
                  "the model's logits are not finite numbers: a value of a layer before the output "
                  "head overflowed; the model file is damaged, or its conversion is wrong");
    return !found;
}

/* Scales and caps them, where the model does. */
static void finish_logits(const struct forward *f, float *logits, size_t n)
{
    float scale = f->params->logit_scale;
    for (size_t i = 0; i < n && scale != 1; i++)
        logits[i] *= scale;
    if (f->params->logit_cap > 0)
        kernels_get()->soft_cap(f->params->logit_cap, logits, n);
}

bool forward_logits(struct forward *f, const float *hidden, uint32_t n, bool bulk, float *logits,
                    struct error *e)
{
    size_t n_logits = (size_t)n * f->params->vocab;
    if (f->ops->logits(f->dense, &f->weights->output, f->weights->output_bias, own_of(f, hidden, n),
                       n, bulk, logits, e)) {
        experts_lose_device(f->experts, e);
        return false;
    }
    if (!are_finite(logits, n_logits, 1, e))
        return false;
    finish_logits(f, logits, n_logits);
    return true;
}

bool forward_gives_largest(const struct forward *f)
{
    return f->ops->largest != NULL;
}

bool forward_largest(struct forward *f, const float *hidden, uint32_t n, uint32_t k, float *values,
                     uint32_t *places, struct error *e)
{
    if (f->ops->largest(f->dense, &f->weights->output, f->weights->output_bias,
                        own_of(f, hidden, n), n, k, values, places, e)) {
        experts_lose_device(f->experts, e);
        return false;
    }
    if (!are_finite(values, n, k, e)) /* the largest of each row */
        return false;
    finish_logits(f, values, (size_t)n * k);
    return true;
}
