/* Numbers with a unit; see quantity.h. */
#include "base/quantity.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define SIZE_MAX_BYTES 0x1p60

const struct quantity_unit quantity_sizes[] = {
    {"", 1},     {"K", 1e3},   {"M", 1e6},          {"G", 1e9},
    {"T", 1e12}, {"Ki", 1024}, {"Mi", 1024 * 1024}, {"Gi", 1024.0 * 1024 * 1024},
    {NULL, 0}};
const struct quantity_unit quantity_percent[] = {{"%", 0.01}, {NULL, 0}};

bool quantity_parse(const char *text, size_t len, const struct quantity_unit *units, double *out)
{
    char number[32];
    size_t digits = strspn(text, "0123456789.");
    if (digits > len)
        digits = len;
    if (digits == 0 || digits >= sizeof number || text[0] == '.')
        return false;
    memcpy(number, text, digits);
    number[digits] = 0;
    char *end;
    double x = strtod(number, &end);
    if (*end)
        return false;
    for (; units->text; units++)
        if (strlen(units->text) == len - digits &&
            strncasecmp(units->text, text + digits, len - digits) == 0) {
            *out = x * units->factor;
            return true;
        }
    return false;
}

bool quantity_parse_size(const char *text, size_t len, uint64_t *bytes)
{
    double x;
    if (!quantity_parse(text, len, quantity_sizes, &x) || x > SIZE_MAX_BYTES)
        return false;
    *bytes = (uint64_t)x;
    return true;
}

bool quantity_parse_size_of(const char *text, size_t len, uint64_t whole, uint64_t *bytes)
{
    double share;
    if (!quantity_parse(text, len, quantity_percent, &share))
        return quantity_parse_size(text, len, bytes);
    if (share > 1)
        return false;
    *bytes = share == 1 ? whole : (uint64_t)((double)whole * share);
    return true;
}

void quantity_format_bytes(uint64_t bytes, char out[24])
{
    if (bytes >= 1000u * 1000 * 1000)
        snprintf(out, 24, "%.1f GB", (double)bytes * 1e-9);
    else if (bytes >= 1000u * 1000)
        snprintf(out, 24, "%.0f MB", (double)bytes * 1e-6);
    else
        snprintf(out, 24, "%.0f kB", (double)bytes * 1e-3);
}

void quantity_format_number(double value, char out[32])
{
    for (int precision = 15; precision <= 17; precision++) {
        snprintf(out, 32, "%.*g", precision, value);
        if (strtod(out, NULL) == value)
            return;
    }
}
