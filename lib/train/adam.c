/* AdamW; see adam.h. */
#include "train/adam.h"

#include "base/arrays.h"

#include <math.h>
#include <stdlib.h>

#define KEEP_FIRST  0.9f
#define KEEP_SECOND 0.999f
#define TINY        1e-8f

bool adam_init(struct adam *a, size_t n)
{
    *a = (struct adam){.n = n};
    a->memory = ARRAYS_NEW(ARRAY(a->first, n), ARRAY(a->second, n));
    return a->memory != NULL;
}

void adam_fini(struct adam *a)
{
    free(a->memory);
    *a = (struct adam){0};
}

void adam_step(struct adam *a, const float *gradient, float rate, float decay, size_t first_decayed,
               float *w)
{
    a->steps++;
    float unbias_first = (float)(1 / (1 - pow(KEEP_FIRST, (double)a->steps)));
    float unbias_second = (float)(1 / (1 - pow(KEEP_SECOND, (double)a->steps)));
    for (size_t i = 0; i < a->n; i++) {
        float g = gradient[i];
        a->first[i] = KEEP_FIRST * a->first[i] + (1 - KEEP_FIRST) * g;
        a->second[i] = KEEP_SECOND * a->second[i] + (1 - KEEP_SECOND) * g * g;
        float step = a->first[i] * unbias_first / (sqrtf(a->second[i] * unbias_second) + TINY);
        w[i] -= rate * (step + (i >= first_decayed ? decay * w[i] : 0));
    }
}

float adam_schedule(float at, float warm)
{
    if (at < warm)
        return at / warm;
    if (at >= 1)
        return 0;
    return 0.5f * (1 + cosf(3.14159265f * (at - warm) / (1 - warm)));
}
