/* See json_read.h. */
#include "json/json_read.h"

#include "base/strbuf.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The length of the number at `text`; *wide: it is an integer of more than 64 bits. */
static size_t number_length(const char *text, size_t len, bool *wide)
{
    char digits[24];
    size_t n = 0;
    *wide = false;
    while (n < len && text[n] && strchr("+-.0123456789eE", text[n]))
        n++;
    bool integer = n && !memchr(text, '.', n) && !memchr(text, 'e', n) && !memchr(text, 'E', n);
    if (!integer)
        return n;
    snprintf(digits, sizeof digits, "%.*s", (int)(n < sizeof digits ? n : sizeof digits), text);
    errno = 0;
    *wide = strtoll(digits, NULL, 10) != 0 && errno == ERANGE;
    return n;
}

/* Appends a text of JSON in which integers of more than 64 bits are reals. */
static void widen(const char *text, size_t len, struct strbuf *out)
{
    bool string = false, wide = false;
    for (size_t at = 0, n; at < len; at += n) {
        string ^= text[at] == '"';
        n = string && text[at] == '\\' && at + 1 < len ? 2 : 1;
        if (!string && (text[at] == '-' || (text[at] >= '0' && text[at] <= '9')))
            n = number_length(text + at, len - at, &wide);
        strbuf_append(out, text + at, n);
        if (wide)
            strbuf_append(out, ".0", 2);
        wide = false;
    }
}

json_t *json_read(const char *text, size_t len, size_t flags, json_error_t *error)
{
    json_error_t own;
    error = error ? error : &own;
    json_t *value = json_loadb(text, len, flags, error);
    if (value || json_error_code(error) != json_error_numeric_overflow)
        return value;
    struct strbuf wide;
    strbuf_init(&wide);
    widen(text, len, &wide);
    if (!wide.failed)
        value = json_loadb(wide.data, wide.len, flags, error);
    strbuf_fini(&wide);
    return value;
}
