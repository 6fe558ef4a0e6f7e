/* Choosing the next token from logits. Deterministic: the same logits, history, settings and seed give the same
 * tokens on every machine.
 *
 * Which token a draw gives, whatever the order of the computing:
 *   The penalty changes the logits of tokens in the history. top_k leaves the k largest logits, of equal ones the lower
 *   tokens; what is not a number is the least. Each token left has the weight
 *       w = exp((logit - the largest) / temperature) in units of 2^-30, rounded to a whole number
 *   by the kernels' exp and a float reciprocal of the temperature (kernels.h, weigh). min_p leaves w of at least
 *   min_p * 2^30. top_p leaves the fewest of the largest weights, of equal ones the lower tokens, that sum to at least
 *   top_p (a double's product, rounded up) of what is left. With a random r of 64 bits the token is the first, by token number,
 *   at which the sum of the weights exceeds floor(r * sum of all / 2^64). Sums are of whole numbers, so exact.
 *   Where no weight is left (an infinite logit), it is the token that temperature 0 takes.
 * A token whose probability is below 2^-31 of the largest one's is so never drawn. */
#ifndef MOED_WORKER_SAMPLER_H
#define MOED_WORKER_SAMPLER_H

#include <stdbool.h>
#include <stdint.h>

struct sampling {
    float temperature;        /* 0: the most probable token (the lowest id on ties) */
    uint32_t top_k;           /* 0: off */
    float top_p;              /* 1: off */
    float min_p;              /* 0: off */
    float repetition_penalty; /* 1: off */
    uint32_t repetition_window;
    uint64_t seed;
};

struct sampler; /* scratch for one vocabulary; one thread at a time */

struct sampler *sampler_new(uint32_t vocab); /* NULL: out of memory */
void sampler_free(struct sampler *s);

/* state: the request's random state, seeded with sampler_seed and advanced by one draw where one is made.
 * history: the request's tokens so far (prompt and answer), the newest last. logits is overwritten. Order:
 * repetition penalty, top-k, temperature, min-p, top-p, draw. */
uint32_t sampler_pick(struct sampler *s, const struct sampling *settings, uint64_t *state,
                      float *logits, const uint32_t *history, uint32_t n_history);
uint64_t sampler_seed(uint64_t seed);

/* Of how many of a row's largest logits, of equal ones the lower tokens first, pick makes the same choice as of all: at most
 * SAMPLER_LARGEST. 0: these settings read the whole row (all probabilities' sum, or the logits of what stands in the history). */
enum { SAMPLER_LARGEST = 256 };
uint32_t sampler_reads(const struct sampler *s, const struct sampling *settings);
/* pick, from those: values and tokens [sampler_reads(s, settings)], or more, largest first. */
uint32_t sampler_pick_largest(struct sampler *s, const struct sampling *settings, uint64_t *state,
                              const float *values, const uint32_t *tokens);

#endif
