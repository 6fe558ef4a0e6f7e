/* Rotation angles: the frequency of each pair of a head, by the model's scaling. */
#ifndef MOED_MODEL_ROPE_H
#define MOED_MODEL_ROPE_H

#include "model/params.h"

/* frequency [dims / 2]: the angle of pair i at position p is p * frequency[i]. factors [dims / 2], or NULL, divide
 * the frequencies: the file's rope_freqs, or the long or short factors (rope_uses_long) of a longrope model.
 *   none    base^(-2i / dims)
 *   linear  the same divided by factor
 *   yarn    between the two: undivided where a pair turns more than beta_fast times over the original context,
 *           divided where less than beta_slow, a linear ramp in i between (its ends rounded outwards) */
void rope_frequencies(const struct rope_params *p, const float *factors, double *frequency);

/* True where a deployment that allows requests of `context` tokens takes the long factors. */
bool rope_uses_long(const struct rope_params *p, uint32_t context);

#endif
