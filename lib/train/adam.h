/* AdamW (Loshchilov and Hutter, "Decoupled weight decay regularization"). */
#ifndef MOED_TRAIN_ADAM_H
#define MOED_TRAIN_ADAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct adam {
    float *first, *second; /* moments, [n] */
    size_t n;
    uint64_t steps;
};

bool adam_init(struct adam *a, size_t n); /* false: no memory */
void adam_fini(struct adam *a);           /* takes a zeroed one */
/* m = 0.9 m + 0.1 g, v = 0.999 v + 0.001 g^2, w -= rate (m' / (sqrt(v') + 1e-8) + decay w), m' and v' without their start at
 * 0. What lies before first_decayed (the biases) does not decay. */
void adam_step(struct adam *a, const float *gradient, float rate, float decay, size_t first_decayed,
               float *w);

/* Of a run: from 0 to 1 in the share `warm` of it, a straight line, then half a cosine to 0. at, warm: in [0, 1]. */
float adam_schedule(float at, float warm);

#endif
