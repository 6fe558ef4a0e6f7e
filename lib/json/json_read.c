/* See json_read.h. */
#include "json/json_read.h"

#include "base/strbuf.h"

#include <errno.h>
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The length of the number at `text`. *instead: of one beyond doubles, the largest one. *more: of a
 * wide integer, what makes a real of it. */
static size_t number_length(const char *text, size_t len, const char **instead, const char **more)
{
    char digits[400]; /* more than a double has before its exponent */
    size_t n = 0;
    while (n < len && text[n] && strchr("+-.0123456789eE", text[n]))
        n++;
    bool integer = n && !memchr(text, '.', n) && !memchr(text, 'e', n) && !memchr(text, 'E', n);
    size_t kept = n < sizeof digits - 1 ? n : sizeof digits - 1;
    memcpy(digits, text, kept);
    digits[kept] = '\0';
    errno = 0;
    if (integer && (strtoll(digits, NULL, 10) == 0 || errno != ERANGE))
        return n;
    *more = integer ? ".0" : "";
    if (fabs(strtod(digits, NULL)) > DBL_MAX)
        *instead = text[0] == '-' ? "-1.7976931348623157e308" : "1.7976931348623157e308";
    return n;
}

/* The code unit of the escape at `text`, as \ud83d; -1: there is none. */
static long escaped_unit(const char *text, size_t len)
{
    char digits[5] = "";
    if (len < 6 || text[0] != '\\' || text[1] != 'u')
        return -1;
    memcpy(digits, text + 2, 4);
    return strspn(digits, "0123456789abcdefABCDEF") == 4 ? strtol(digits, NULL, 16) : -1;
}

/* The length of the escape at `text`. *instead: of half a surrogate pair, U+FFFD. */
static size_t escape_length(const char *text, size_t len, const char **instead)
{
    long unit = escaped_unit(text, len);
    if (unit < 0xd800 || unit > 0xdfff)
        return len < 2 ? len : 2;
    long next = escaped_unit(text + 6, len - 6);
    if (unit < 0xdc00 && next >= 0xdc00 && next <= 0xdfff)
        return 12;
    *instead = "\\ufffd";
    return 6;
}

/* Appends a text of JSON that jansson reads: integers of more than 64 bits are reals, numbers
 * beyond doubles the largest one, and halves of surrogate pairs U+FFFD. */
static void repair(const char *text, size_t len, struct strbuf *out)
{
    bool string = false;
    for (size_t at = 0, n; at < len; at += n) {
        const char *instead = NULL, *more = "";
        n = 1;
        if (text[at] == '"')
            string = !string;
        else if (string && text[at] == '\\')
            n = escape_length(text + at, len - at, &instead);
        else if (!string && (text[at] == '-' || (text[at] >= '0' && text[at] <= '9')))
            n = number_length(text + at, len - at, &instead, &more);
        if (instead)
            strbuf_append(out, instead, strlen(instead));
        else
            strbuf_append(out, text + at, n);
        strbuf_append(out, more, instead ? 0 : strlen(more));
    }
}

json_t *json_read(const char *text, size_t len, size_t flags, json_error_t *error)
{
    json_error_t own;
    error = error ? error : &own;
    json_t *value = json_loadb(text, len, flags, error);
    if (value || (json_error_code(error) != json_error_numeric_overflow &&
                  json_error_code(error) != json_error_invalid_syntax))
        return value;
    struct strbuf repaired;
    strbuf_init(&repaired);
    repair(text, len, &repaired);
    if (!repaired.failed && (repaired.len != len || memcmp(repaired.data, text, len) != 0))
        value = json_loadb(repaired.data, repaired.len, flags, error);
    strbuf_fini(&repaired);
    return value;
}
