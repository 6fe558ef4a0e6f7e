/* What the next layer will activate, guessed from this layer's gate input through the next layer's gate, and how good
 * such guesses are: for each rank the share of guesses that came true, which makes a guess a probability. */
#ifndef MOED_WORKER_PREDICTION_H
#define MOED_WORKER_PREDICTION_H

#include <stdbool.h>
#include <stdint.h>

struct prediction;

/* NULL: no memory. */
struct prediction *prediction_new(uint32_t n_experts, uint32_t n_used, uint32_t max_tokens);
void prediction_free(struct prediction *p); /* takes NULL */

/* The guess for a layer: guessed[t * n_used + rank] is an expert of token t. */
void prediction_make(struct prediction *p, uint32_t layer, const uint32_t *guessed,
                     uint32_t n_tokens);
/* The probability that the guessed layer activates the expert for at least one token; 0 where no token guessed it. */
double prediction_of(const struct prediction *p, uint32_t expert);

/* What a layer really activated: corrects the shares if it is the guessed one. Returns the guesses checked, 0 if it is
 * another layer; *right: those that came true. */
uint32_t prediction_check(struct prediction *p, uint32_t layer, const uint32_t *selected,
                          uint32_t n_tokens, uint32_t *right);

#endif
