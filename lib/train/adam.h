/* AdamW (Loshchilov and Hutter, "Decoupled weight decay regularization"). */
#ifndef MOED_TRAIN_ADAM_H
#define MOED_TRAIN_ADAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct adam {
    float *first, *second; /* moments, [n] */
    void *memory;          /* of both */
    size_t n;
    uint64_t steps;
};

bool adam_init(struct adam *a, size_t n); /* false: no memory */
void adam_fini(struct adam *a);           /* takes a zeroed one */
/* m = 0.9 m + 0.1 g, v = 0.999 v + 0.001 g^2, w -= rate (m' / (sqrt(v') + 1e-8) + decay w). m' and
 * v' are corrected for their start at 0. Weights before first_decayed (the biases) do not decay. */
void adam_step(struct adam *a, const float *gradient, float rate, float decay, size_t first_decayed,
               float *w);

/* The factor of the rate at the share `at` of a run: a straight line from 0 to 1 in the first share
 * `warm`, then half a cosine to 0. at, warm: in [0, 1]. */
float adam_schedule(float at, float warm);

#endif
