/* Exact decimal numbers, and the texts of JSON numbers between bounds and of multiples. */
#ifndef MOED_GRAMMAR_DECIMAL_H
#define MOED_GRAMMAR_DECIMAL_H

#include "base/error.h"
#include "grammar/dfa.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

enum {
    DECIMAL_DIGITS = 40,    /* on each side of the point */
    NUMBER_WHOLE_MAX = 18,  /* digits of a number without a fraction: it fits 64 bits */
    NUMBER_DIGITS_MAX = 15, /* digits of a number with a fraction: a double tells them apart */
};

struct decimal {
    bool negative;               /* not of 0 */
    uint8_t n_whole, n_fraction; /* n_whole >= 1; no trailing zeros in the fraction */
    uint8_t whole[DECIMAL_DIGITS], fraction[DECIMAL_DIGITS];
};

/* False: the number has more than DECIMAL_DIGITS digits on a side of the point. */
bool decimal_from_json(const json_t *number, struct decimal *out);
int decimal_compare(const struct decimal *a, const struct decimal *b);
bool decimal_is_integer(const struct decimal *d);

struct number_range {
    bool has_low, has_high, low_open, high_open; /* open: the bound itself is outside */
    struct decimal low, high;
    bool integer;
    /* Multiples of step / 10^step_decimals; step 0: all numbers. */
    uint32_t step, step_decimals;
};

/* Restricts *r to multiples of m too. False: m is not positive, or has too many digits. */
bool number_range_multiple(struct number_range *r, const struct decimal *m);
/* False: number_range_multiple refuses it whatever the range; or it is no number. */
bool number_multiple_is_supported(const json_t *m);
bool number_range_has(const struct number_range *r, const struct decimal *d);
/* The texts, without exponents, of the numbers in the range. */
enum error_code number_range_dfa(const struct number_range *r, struct dfa *out, struct error *e);

#endif
