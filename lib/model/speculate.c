/* The values of --speculate; see speculate.h. */
#include "model/speculate.h"

#include <stdlib.h>
#include <string.h>

enum error_code speculate_parse(const char *text, uint32_t *out, struct error *e)
{
    char *end;
    unsigned long n = strtoul(text, &end, 10);
    if (strcmp(text, "auto") == 0)
        *out = SPECULATE_AUTO;
    else if (strcmp(text, "off") == 0)
        *out = SPECULATE_OFF;
    else if (*text >= '0' && *text <= '9' && !*end && n >= 1 && n <= SPECULATE_MOST)
        *out = (uint32_t)n;
    else
        return error_set(e, ERROR_USAGE, "--speculate %.20s: give " SPECULATE_VALUES, text);
    return ERROR_OK;
}
