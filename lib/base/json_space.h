/* The white space of JSON (RFC 8259, section 2), which is also what may stand around the marks of
 * reasoning and of calls. */
#ifndef MOED_BASE_JSON_SPACE_H
#define MOED_BASE_JSON_SPACE_H

#include <stdbool.h>
#include <stddef.h>

static inline bool json_space(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

/* How many bytes of white space the text begins with. */
static inline size_t json_space_length(const char *text, size_t len)
{
    size_t n = 0;
    while (n < len && json_space(text[n]))
        n++;
    return n;
}

/* Cuts white space off both ends; returns the new beginning. */
static inline const char *json_space_trim(const char *text, size_t *len)
{
    for (; *len > 0 && json_space(*text); --*len)
        text++;
    while (*len > 0 && json_space(text[*len - 1]))
        --*len;
    return text;
}

#endif
