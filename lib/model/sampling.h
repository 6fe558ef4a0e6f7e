/* The parameters of sampling, their ranges, and the defaults that a model file carries.
 * docs/sampling.md describes each of them; worker/sample/sampler.h defines what they compute. */
#ifndef MOED_MODEL_SAMPLING_H
#define MOED_MODEL_SAMPLING_H

#include "base/error.h"
#include "base/strbuf.h"
#include "gguf/gguf.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The samplers of a chain, by the letters of llama.cpp's --sampling-seq. */
enum sampler_letter {
    SAMPLER_PENALTIES = 'e',
    SAMPLER_DRY = 'd',
    SAMPLER_TOP_N_SIGMA = 's',
    SAMPLER_TOP_K = 'k',
    SAMPLER_TYPICAL = 'y',
    SAMPLER_TOP_P = 'p',
    SAMPLER_MIN_P = 'm',
    SAMPLER_XTC = 'x',
    SAMPLER_TEMPERATURE = 't',
};

#define SAMPLING_ORDER "edskypmxt" /* the usual one, and all letters */
enum { SAMPLING_ORDER_BYTES = sizeof SAMPLING_ORDER };

/* FLOAT(name, low, high, neutral): a neutral value changes nothing, except where another parameter
 * switches its sampler on. COUNT(name, high, neutral): from 0. */
#define SAMPLING_FLOATS(FLOAT)                                                                     \
    FLOAT(temperature, 0, 100, 0)                                                                  \
    FLOAT(dynamic_temperature, 0, 100, 0)                                                          \
    FLOAT(dynamic_exponent, 0, 100, 1)                                                             \
    FLOAT(top_p, 0, 1, 1)                                                                          \
    FLOAT(min_p, 0, 1, 0)                                                                          \
    FLOAT(typical_p, 0, 1, 1)                                                                      \
    FLOAT(top_n_sigma, 0, 100, 0)                                                                  \
    FLOAT(xtc_probability, 0, 1, 0)                                                                \
    FLOAT(xtc_threshold, 0, 1, 0.1f)                                                               \
    FLOAT(repetition_penalty, 0, 100, 1)                                                           \
    FLOAT(presence_penalty, -100, 100, 0)                                                          \
    FLOAT(frequency_penalty, -100, 100, 0)                                                         \
    FLOAT(dry_multiplier, 0, 100, 0)                                                               \
    FLOAT(dry_base, 1, 100, 1.75f)                                                                 \
    FLOAT(mirostat_tau, 0, 100, 5)                                                                 \
    FLOAT(mirostat_eta, 0, 1, 0.1f)                                                                \
    FLOAT(mirostat_mu, -1000, 1000, 0)
#define SAMPLING_COUNTS(COUNT)                                                                     \
    COUNT(top_k, UINT32_MAX, 0)                                                                    \
    COUNT(repetition_window, UINT32_MAX, 64)                                                       \
    COUNT(dry_allowed_length, UINT32_MAX, 2)                                                       \
    COUNT(dry_window, UINT32_MAX, 0)                                                               \
    COUNT(mirostat, 2, 0)

struct sampling {
#define SAMPLING_FLOAT(name, low, high, neutral) float name;
#define SAMPLING_COUNT(name, high, neutral)      uint32_t name;
    SAMPLING_FLOATS(SAMPLING_FLOAT)
    SAMPLING_COUNTS(SAMPLING_COUNT)
#undef SAMPLING_FLOAT
#undef SAMPLING_COUNT
    char order[SAMPLING_ORDER_BYTES]; /* letters, ending with a NUL; a sampler without one is off */
    uint64_t seed;
};

/* Temperature 0, every sampler off, seed 0. */
struct sampling sampling_neutral(void);

/* Temperature 0.8 and min_p 0.05, all else neutral. */
struct sampling sampling_usual(void);

/* The letter of a sampler's name in llama.cpp ("top_k"), or 0. The name needs no NUL. */
char sampling_letter(const char *name, size_t n);

/* The model's defaults: sampling_usual, changed by the file's general.sampling.* keys. Where the
 * file has one of temp, top_k, top_p and min_p, its author has chosen the cut: then min_p is 0
 * unless the file sets it. A key, or a sampler of the sequence, that moed cannot use is left out;
 * the others count. notes: gets what is left out and why, in one line; NULL: nobody asks. */
struct sampling sampling_of_model(const struct gguf *g, struct strbuf *notes);

/* Checks each range, that order has known letters, each once, and that mirostat is 0 or 2. The
 * message names the parameter. ERROR_USAGE. */
enum error_code sampling_check(const struct sampling *s, struct error *e);

/* Sets s->order. ERROR_USAGE: as sampling_check. */
enum error_code sampling_set_order(struct sampling *s, const char *letters, size_t n,
                                   struct error *e);

#endif
