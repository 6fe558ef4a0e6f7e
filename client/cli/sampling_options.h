/* The command line's options for the choice of tokens (docs/sampling.md). */
#ifndef MOED_CLI_SAMPLING_OPTIONS_H
#define MOED_CLI_SAMPLING_OPTIONS_H

#include "client/include/moed.h"
#include "daemon/options.h"

#include <stdbool.h>
#include <stdint.h>

/* A value that was not given is NaN, UINT64_MAX or NULL. */
struct sampling_options {
    double temp, top_p, min_p, typical, top_n_sigma, dynatemp_range, dynatemp_exp, xtc_probability,
        xtc_threshold, repeat_penalty, presence_penalty, frequency_penalty, dry_multiplier,
        dry_base, mirostat_tau, mirostat_eta;
    uint64_t top_k, repeat_window, dry_allowed_length, dry_window, mirostat, seed;
    const char *order;
};

struct sampling_options sampling_options_unset(void);
/* The model's defaults, but for the values that were given. */
struct moed_sampling sampling_options_apply(const struct sampling_options *o);

/* Rows of an option table: what people use every day, and the rest. */
#define SAMPLING_OPTIONS_USUAL(o)                                                                  \
    {"temp", OPTION_FLOAT, &(o)->temp, 0, 100, "T", "set the temperature; 0: greedy, repeatable"}, \
        {"top-k",                                                                                  \
         OPTION_UINT,                                                                              \
         &(o)->top_k,                                                                              \
         0,                                                                                        \
         UINT32_MAX - 1.0,                                                                         \
         "K",                                                                                      \
         "sample from the K most probable; 0: off"},                                               \
        {"top-p",                                                                                  \
         OPTION_FLOAT,                                                                             \
         &(o)->top_p,                                                                              \
         0,                                                                                        \
         1,                                                                                        \
         "P",                                                                                      \
         "sample from the most probable of share P; 1: off"},                                      \
        {"min-p",                                                                                  \
         OPTION_FLOAT,                                                                             \
         &(o)->min_p,                                                                              \
         0,                                                                                        \
         1,                                                                                        \
         "P",                                                                                      \
         "drop tokens below P times the best one; 0: off"},                                        \
        {"repeat-penalty",                                                                         \
         OPTION_FLOAT,                                                                             \
         &(o)->repeat_penalty,                                                                     \
         0,                                                                                        \
         100,                                                                                      \
         "R",                                                                                      \
         "make recent tokens less probable; 1: off"},                                              \
    {                                                                                              \
        "seed", OPTION_UINT, &(o)->seed, 0, 0, "S", "seed the random numbers"                      \
    }
#define SAMPLING_OPTIONS_OTHER(o)                                                                    \
    {"presence-penalty",                                                                             \
     OPTION_FLOAT,                                                                                   \
     &(o)->presence_penalty,                                                                         \
     -100,                                                                                           \
     100,                                                                                            \
     "X",                                                                                            \
     "subtract X where a token is recent; 0: off"},                                                  \
        {"frequency-penalty",                                                                        \
         OPTION_FLOAT,                                                                               \
         &(o)->frequency_penalty,                                                                    \
         -100,                                                                                       \
         100,                                                                                        \
         "X",                                                                                        \
         "subtract X for each recent occurrence; 0: off"},                                           \
        {"repeat-window",                                                                            \
         OPTION_UINT,                                                                                \
         &(o)->repeat_window,                                                                        \
         1,                                                                                          \
         UINT32_MAX - 1.0,                                                                           \
         "N",                                                                                        \
         "count the last N tokens as recent"},                                                       \
        {"typical",                                                                                  \
         OPTION_FLOAT,                                                                               \
         &(o)->typical,                                                                              \
         0,                                                                                          \
         1,                                                                                          \
         "P",                                                                                        \
         "sample from the most typical of share P; 1: off"},                                         \
        {"top-n-sigma",                                                                              \
         OPTION_FLOAT,                                                                               \
         &(o)->top_n_sigma,                                                                          \
         0,                                                                                          \
         100,                                                                                        \
         "N",                                                                                        \
         "keep logits within N deviations of the best; 0: off"},                                     \
        {"dynatemp-range",                                                                           \
         OPTION_FLOAT,                                                                               \
         &(o)->dynatemp_range,                                                                       \
         0,                                                                                          \
         100,                                                                                        \
         "R",                                                                                        \
         "move the temperature by up to R with the entropy"},                                        \
        {"dynatemp-exp", OPTION_FLOAT, &(o)->dynatemp_exp, 0, 100, "E", "set the exponent of that"}, \
        {"xtc-probability",                                                                          \
         OPTION_FLOAT,                                                                               \
         &(o)->xtc_probability,                                                                      \
         0,                                                                                          \
         1,                                                                                          \
         "P",                                                                                        \
         "drop the best tokens with probability P; 0: off"},                                         \
        {"xtc-threshold",                                                                            \
         OPTION_FLOAT,                                                                               \
         &(o)->xtc_threshold,                                                                        \
         0,                                                                                          \
         1,                                                                                          \
         "P",                                                                                        \
         "take tokens from P on as the best"},                                                       \
        {"dry-multiplier",                                                                           \
         OPTION_FLOAT,                                                                               \
         &(o)->dry_multiplier,                                                                       \
         0,                                                                                          \
         100,                                                                                        \
         "X",                                                                                        \
         "deter repeated sequences by X; 0: off"},                                                   \
        {"dry-base",                                                                                 \
         OPTION_FLOAT,                                                                               \
         &(o)->dry_base,                                                                             \
         1,                                                                                          \
         100,                                                                                        \
         "B",                                                                                        \
         "multiply that by B for each token of them"},                                               \
        {"dry-allowed-length",                                                                       \
         OPTION_UINT,                                                                                \
         &(o)->dry_allowed_length,                                                                   \
         1,                                                                                          \
         UINT32_MAX - 1.0,                                                                           \
         "N",                                                                                        \
         "let sequences of less than N tokens repeat"},                                              \
        {"dry-window",                                                                               \
         OPTION_UINT,                                                                                \
         &(o)->dry_window,                                                                           \
         0,                                                                                          \
         UINT32_MAX - 1.0,                                                                           \
         "N",                                                                                        \
         "search the last N tokens; 0: all"},                                                        \
        {"mirostat", OPTION_UINT, &(o)->mirostat, 0, 2, "N", "2: mirostat 2; 0: off"},               \
        {"mirostat-tau",                                                                             \
         OPTION_FLOAT,                                                                               \
         &(o)->mirostat_tau,                                                                         \
         0,                                                                                          \
         100,                                                                                        \
         "X",                                                                                        \
         "aim at X bits of surprise a token"},                                                       \
        {"mirostat-eta", OPTION_FLOAT, &(o)->mirostat_eta, 0, 1, "X", "adapt to that at rate X"},    \
    {                                                                                                \
        "order", OPTION_STRING, &(o)->order, 0, 0, "LETTERS",                                        \
            "apply samplers in the order of "                                                        \
            "edskypmxt, or of these letters"                                                         \
    }

/* "ID=BIAS" or "TEXT=BIAS"; BIAS is a number or -inf. False: it has complained. */
bool sampling_options_bias(const char *argument, struct moed_bias *out);

#endif
