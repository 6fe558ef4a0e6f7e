/* Errors of the public interface: the codes are those of lib/base, with a flag that says whether to
 * try again. */
#include "client/src/error.h"

#include "base/utf8.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOED_ERROR_OK MOED_OK
#define X(name, value, text)                                                                       \
    _Static_assert((int)MOED_ERROR_##name == (value), "the codes are one list");
ERROR_LIST(X)
#undef X
_Static_assert(sizeof((struct moed_error *)0)->message == ERROR_TEXT_BYTES, "texts fit");

const char *moed_code_name(enum moed_code code)
{
    static const char *const names[] = {
        "ok",        "usage",    "format",   "unsupported", "not_found", "memory",
        "io",        "protocol", "version",  "unavailable", "timeout",   "limit",
        "cancelled", "exists",   "internal", "busy",        "context",
    };
    return (unsigned)code < sizeof names / sizeof *names ? names[code] : "unknown";
}

const char *moed_version(void)
{
    return MOED_VERSION;
}

void moed_free(void *memory)
{
    free(memory);
}

enum moed_code error_report(struct moed_error *error, enum moed_code code, bool retry,
                            const char *format, ...)
{
    if (!error)
        return code;
    va_list args;
    va_start(args, format);
    vsnprintf(error->message, sizeof error->message, format, args);
    va_end(args);
    utf8_hide_controls(error->message, strlen(error->message), "");
    error->code = code;
    error->retry = retry;
    return code;
}

enum moed_code error_convert(struct moed_error *error, const struct error *from)
{
    bool retry = from->code == ERROR_UNAVAILABLE || from->code == ERROR_TIMEOUT;
    return error_report(error, (enum moed_code)from->code, retry, "%s", from->text);
}

static bool is_known(uint32_t code)
{
    switch (code) {
#define X(name, value, text) case value:
        ERROR_LIST(X)
#undef X
        return code != ERROR_OK;
    default:
        return false;
    }
}

void error_from_wire(struct moed_error *error, const Moed__V1__Error *from)
{
    const char *text =
        from->message && *from->message ? from->message : "the worker gave no reason";
    error_report(error, is_known(from->code) ? (enum moed_code)from->code : MOED_ERROR_INTERNAL,
                 from->retry, "%s", text);
}

enum moed_code error_copy(struct moed_error *error, const struct moed_error *from)
{
    if (error)
        *error = *from;
    return from->code;
}
