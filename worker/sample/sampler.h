/* Chooses the next token from a row of logits. The same logits, tokens, settings and seed give the
 * same token on every machine. docs/sampling.md describes the parameters (lib/model/sampling.h).
 *
 * The definition, whatever the order of the computation. A set of candidates, at first all tokens,
 * goes through the samplers in the order of settings.order. NaN counts as -infinity. The weight of
 * a candidate is w = exp((logit - the set's largest) * scale) in units of 2^-30, rounded to an
 * integer by the kernels' exp (kernels.h, weigh), where scale is 1 until the sampler t. Its
 * probability p is w divided by the set's sum. So a token whose probability is below 2^-31 of the
 * largest is never drawn.
 *
 *    Before all of them: biases are added to the logits of their tokens, and banned tokens get
 *    -infinity.
 * e  Penalties. For each token that stands c > 0 times among the last repetition_window tokens of
 *    the conversation: the logit is divided by repetition_penalty where it is positive, else
 *    multiplied with it (Keskar et al. 2019); then c * frequency_penalty + presence_penalty is
 *    subtracted.
 * d  DRY. Let n be the most tokens for which the end of the conversation stands elsewhere in the
 *    last dry_window tokens with this token after it, at most the tokens since the last breaker.
 *    Where n >= dry_allowed_length, dry_multiplier * dry_base^(n - dry_allowed_length) is
 *    subtracted, unless the token's own text has a breaker.
 * s  Leaves logits within top_n_sigma standard deviations of the largest (Tang et al. 2024).
 * k  Leaves the top_k largest logits; of equal ones the lower tokens.
 * y  Leaves the fewest candidates whose -ln p is nearest to the entropy and whose probabilities sum
 *    to more than typical_p (Meister et al. 2022).
 * p  Leaves the fewest of the largest weights, of equal ones the lower tokens, whose sum is at
 *    least top_p of all (a product in double precision, rounded up; Holtzman et al. 2019).
 * m  Leaves weights of at least min_p * 2^30 (Nguyen et al. 2024).
 * x  XTC: with probability xtc_probability, where at least two candidates have a p of at least
 *    xtc_threshold, leaves of those only the least probable one.
 * t  Temperature T: scale is divided by T. Dynamic temperature: T is max(0, temperature -
 *    dynamic_temperature) + r * h^dynamic_exponent, where r makes up the range to temperature +
 *    dynamic_temperature and h is the entropy as a part of the most that it could be.
 *
 * Then let r be 64 random bits. The chosen token is the first, by token number, at which the
 * running sum of the weights exceeds floor(r * sum of all / 2^64). If no weight is left (a logit is
 * infinite), it is the largest logit, of equal ones the lowest token.
 *
 * Temperature 0 chooses the largest logit after biases, bans, penalties and DRY; nothing is drawn.
 *
 * Mirostat 2 (Basu et al. 2020) takes the place of s, k, y, p, m and x: after t, candidates with
 * -log2 p > mu are dropped except for the most probable one; after the draw mu -= mirostat_eta *
 * (-log2 p of the chosen token among the candidates left - mirostat_tau), within -1000 and 1000.
 *
 * Random bits are a hash of the seed, the position of the chosen token in the conversation, and
 * their use. There is no running state: a conversation that another worker continues gets the same
 * tokens. mu is the only state; the submitter carries it.
 *
 * All sums of weights are of integers, so they are exact in any order. */
#ifndef MOED_WORKER_SAMPLE_SAMPLER_H
#define MOED_WORKER_SAMPLE_SAMPLER_H

#include "model/sampling.h"

#include <stdbool.h>
#include <stdint.h>

struct sampler_bias {
    uint32_t token;
    float bias; /* -INFINITY: never this token */
};

/* What may come next, for a grammar. The sampler first chooses freely; only a token that the guard
 * refuses costs a mask of the vocabulary and a second choice. */
struct sampler_guard {
    bool (*accepts)(void *arg, uint32_t token);
    /* Bit i % 32 of word i / 32: token i may come next. NULL: none may, and the sampler returns one
     * that the guard refuses. Valid until the next call of the guard. */
    const uint32_t *(*mask)(void *arg);
    void *arg;
};

/* What changes from token to token; borrowed for a call. */
struct sampler_turn {
    const uint32_t *tokens; /* the conversation so far: prompt and answer */
    uint32_t n_tokens;      /* also the position of the token to choose */
    uint32_t n_unbroken;    /* DRY: tokens since the last breaker */
    /* DRY: whether a token's own text has a breaker. NULL: no token's has. */
    bool (*breaks)(void *arg, uint32_t token);
    void *breaks_arg;
    const struct sampler_bias *biases; /* the last one of a token counts */
    uint32_t n_biases;
    const uint32_t *banned;
    uint32_t n_banned;
    const struct sampler_guard *guard; /* NULL: none */
    float *mu;                         /* mirostat's; read and written only by it */
};

struct sampler; /* scratch memory for one vocabulary; one thread at a time */

/* context: the most tokens of a conversation. NULL: out of memory. */
struct sampler *sampler_new(uint32_t vocab, uint32_t context);
void sampler_free(struct sampler *s);

/* logits [vocab]: as they were on return, except where a guard refused a token. If no token that
 * the guard allows has a finite logit, the result is one that it refuses. */
uint32_t sampler_pick(struct sampler *s, const struct sampling *settings,
                      const struct sampler_turn *turn, float *logits);

/* How many of a row's largest logits (of equal ones the lower tokens first) are enough for the same
 * choice as all of them, most times; at most SAMPLER_LARGEST. 0: these settings need the whole row,
 * for the sum of all probabilities or because a token's logit may rise. */
enum { SAMPLER_LARGEST = 256 };
uint32_t sampler_reads(const struct sampler *s, const struct sampling *settings,
                       const struct sampler_turn *turn);
/* As sampler_pick, from the n largest logits alone: values and tokens [n], largest first, n at
 * least sampler_reads. SAMPLER_UNDECIDED: they are not enough this time. */
#define SAMPLER_UNDECIDED UINT32_MAX
uint32_t sampler_pick_largest(struct sampler *s, const struct sampling *settings,
                              const struct sampler_turn *turn, const float *values,
                              const uint32_t *tokens, uint32_t n);

/* The k largest logits of a row, at most the vocabulary, largest first; of equal ones the lower
 * tokens. NaN counts as -infinity. */
void sampler_top(struct sampler *s, const float *logits, uint32_t k, float *values,
                 uint32_t *tokens);

/* 64 bits that look random, for a use (enum random_use) of a position; splitmix64 (Steele, Lea,
 * Flood 2014) at a place of its sequence. */
enum random_use { RANDOM_DRAW, RANDOM_XTC, RANDOM_USES = 4 };
uint64_t sampler_random(uint64_t seed, uint32_t position, unsigned use);

#endif
