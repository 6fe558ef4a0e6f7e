/* Error values; see error.h. */
#include "base/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

const char *error_name(enum error_code code)
{
    switch (code) {
#define X(name, value, text)                                                                       \
    case ERROR_##name:                                                                             \
        return #name;
        ERROR_LIST(X)
#undef X
    }
    return "UNKNOWN";
}

const char *error_meaning(enum error_code code)
{
    switch (code) {
#define X(name, value, text)                                                                       \
    case ERROR_##name:                                                                             \
        return text;
        ERROR_LIST(X)
#undef X
    }
    return "unknown error";
}

static void keep_to_one_line(char *text)
{
    for (char *c = text; *c; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7f)
            *c = '?';
}

void error_fill(struct error *e, enum error_code code, const char *format, ...)
{
    if (!e)
        return;
    /* The arguments may point into e->text itself. */
    char text[ERROR_TEXT_BYTES];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    keep_to_one_line(text);
    memcpy(e->text, text, sizeof text);
    e->code = code;
}

enum error_code error_prefix(struct error *e, const char *format, ...)
{
    if (!e)
        return ERROR_INTERNAL;
    char text[ERROR_TEXT_BYTES];
    va_list args;
    va_start(args, format);
    int n = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (n > 0 && (size_t)n < sizeof text - 2)
        snprintf(text + n, sizeof text - (size_t)n, ": %.*s", (int)(sizeof text - (size_t)n - 3),
                 e->text);
    keep_to_one_line(text);
    memcpy(e->text, text, sizeof text);
    return e->code;
}
