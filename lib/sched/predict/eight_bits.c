/* Rows of numbers in 8 bits; see eight_bits.h. */
#include "sched/predict/eight_bits.h"

#include "sched/predict/clones.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

enum { LEVELS = 127 };

float eight_bits_round(const float *in, size_t n, int8_t *out)
{
    float most = 0;
    bool finite = true;
    for (size_t i = 0; i < n; i++) {
        finite = finite && isfinite(in[i]);
        most = fmaxf(most, fabsf(in[i]));
    }
    if (!finite || !(most > 0) || !isfinite(LEVELS / most)) {
        memset(out, 0, n);
        return 0;
    }
    for (size_t i = 0; i < n; i++)
        out[i] = (int8_t)lrintf(in[i] * (LEVELS / most));
    return most / LEVELS;
}

static inline int32_t dot(const int8_t *a, const int8_t *b, size_t n)
{
    int32_t sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += (int16_t)a[i] * (int16_t)b[i];
    return sum;
}

int32_t eight_bits_dot(const int8_t *a, const int8_t *b, size_t n)
{
    return dot(a, b, n);
}

CLONES void eight_bits_dot_rows(const int8_t *a, const int8_t *rows, uint32_t n_rows, size_t n,
                                int32_t *out)
{
    for (uint32_t i = 0; i < n_rows; i++)
        out[i] = dot(a, rows + i * n, n);
}
