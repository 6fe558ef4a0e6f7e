/* Numbers as text, most with a unit: "25%", "1.5G", "10us". */
#ifndef MOED_BASE_QUANTITY_H
#define MOED_BASE_QUANTITY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct quantity_unit {
    const char *text;
    double factor;
};

/* Tables end with a NULL text. Sizes are bytes, with K, M, G, T (powers of 1000) or Ki, Mi, Gi
 * (powers of 1024). */
extern const struct quantity_unit quantity_sizes[], quantity_percent[];
#define QUANTITY_SIZE "bytes (K, M, G, T, Ki, Mi, Gi)" /* for help texts and messages */

/* Parse text[0..len): digits, optionally with a point, and one of the units, in upper or lower
 * case. No sign, exponent or space. */
bool quantity_parse(const char *text, size_t len, const struct quantity_unit *units, double *out);

/* A size up to 2^60 bytes. */
bool quantity_parse_size(const char *text, size_t len, uint64_t *bytes);
/* The same, or a share of `whole` up to "100%". */
bool quantity_parse_size_of(const char *text, size_t len, uint64_t whole, uint64_t *bytes);

/* As text: "4.7 GB", "812 MB", "53 kB". */
void quantity_format_bytes(uint64_t bytes, char out[24]);
/* The shortest decimal that reads back the same, without a unit. */
void quantity_format_number(double value, char out[32]);

#endif
