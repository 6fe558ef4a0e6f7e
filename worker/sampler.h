/* Choosing the next token from logits. Deterministic: the same logits, history, settings and seed give the same
 * tokens on every machine. */
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
