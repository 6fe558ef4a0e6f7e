/* Rotary position embedding: the frequency of each pair of a head, by the model's scaling. */
#ifndef MOED_MODEL_ROPE_H
#define MOED_MODEL_ROPE_H

#include "model/params.h"

/* frequency [dims / 2]: the angle of pair i at position p is p * frequency[i]. factors [dims / 2],
 * or NULL, divide the frequencies: the file's rope_freqs, or the long or short factors
 * (rope_uses_long) of a longrope model.
 *   none    base^(-2i / dims)
 *   linear  base^(-2i / dims) / factor
 *   yarn    undivided where a pair turns more than beta_fast times over the original context,
 *           divided by factor where it turns less than beta_slow times,
 *           a linear ramp in i between them, its ends rounded outwards unless exact_ramp */
void rope_frequencies(const struct rope_params *p, const float *factors, double *frequency);

/* True if a deployment that allows requests of `context` tokens takes the long factors. */
bool rope_uses_long(const struct rope_params *p, uint32_t context);

#endif
