/* Options for the choice of tokens; see sampling_options.h. */
#include "client/cli/sampling_options.h"

#include "client/chat/sampling_zeros.h"
#include "client/cli/ask.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define FLOATS(X)                                                                                  \
    X(temp, temperature)                                                                           \
    X(top_p, top_p)                                                                                \
    X(min_p, min_p)                                                                                \
    X(typical, typical_p)                                                                          \
    X(top_n_sigma, top_n_sigma)                                                                    \
    X(dynatemp_range, dynamic_temperature)                                                         \
    X(dynatemp_exp, dynamic_exponent)                                                              \
    X(xtc_probability, xtc_probability)                                                            \
    X(xtc_threshold, xtc_threshold)                                                                \
    X(repeat_penalty, repetition_penalty)                                                          \
    X(presence_penalty, presence_penalty)                                                          \
    X(frequency_penalty, frequency_penalty)                                                        \
    X(dry_multiplier, dry_multiplier)                                                              \
    X(dry_base, dry_base)                                                                          \
    X(mirostat_tau, mirostat_tau)                                                                  \
    X(mirostat_eta, mirostat_eta)
#define COUNTS(X)                                                                                  \
    X(top_k, top_k)                                                                                \
    X(repeat_window, repetition_window)                                                            \
    X(dry_allowed_length, dry_allowed_length)                                                      \
    X(dry_window, dry_window)                                                                      \
    X(mirostat, mirostat)

struct sampling_options sampling_options_unset(void)
{
    struct sampling_options o = {.seed = UINT64_MAX};
#define UNSET_FLOAT(option, parameter) o.option = NAN;
#define UNSET_COUNT(option, parameter) o.option = UINT64_MAX;
    FLOATS(UNSET_FLOAT)
    COUNTS(UNSET_COUNT)
    return o;
}

struct moed_sampling sampling_options_apply(const struct sampling_options *o)
{
    struct moed_sampling s;
    moed_sampling_init(&s, sizeof s);
#define APPLY_FLOAT(option, parameter)                                                             \
    if (!isnan(o->option))                                                                         \
        s.parameter = (float)o->option;
#define APPLY_COUNT(option, parameter)                                                             \
    if (o->option != UINT64_MAX)                                                                   \
        s.parameter = (uint32_t)o->option;
    FLOATS(APPLY_FLOAT)
    COUNTS(APPLY_COUNT)
    sampling_keep_zeros(&s);
    if (o->seed != UINT64_MAX)
        s.seed = o->seed;
    s.order = o->order;
    return s;
}

bool sampling_options_bias(const char *argument, struct moed_bias *out)
{
    const char *equals = strrchr(argument, '=');
    char *end = NULL;
    double bias = equals ? strtod(equals + 1, &end) : 0;
    if (!equals || equals == argument || end == equals + 1 || *end || isnan(bias) || bias > 1e6) {
        cli_complain("--bias '%.60s': expected ID=BIAS or TEXT=BIAS with BIAS up to 1e6, or "
                     "-inf",
                     argument);
        return false;
    }
    size_t len = (size_t)(equals - argument), digits = strspn(argument, "0123456789");
    *out = (struct moed_bias){.bias = (float)bias};
    if (digits < len) {
        out->text = (struct moed_bytes){argument, len};
        return true;
    }
    errno = 0;
    unsigned long id = strtoul(argument, NULL, 10);
    if (errno || id > UINT32_MAX) {
        cli_complain("--bias '%.60s': the token id is too large", argument);
        return false;
    }
    out->token = (uint32_t)id;
    return true;
}
