/* Error codes and error messages: values, never global state.
 *
 * A function that can fail returns enum error_code (ERROR_OK = 0). Where a person needs the exact
 * cause it also takes a struct error and fills it: one line with what failed, where, and what to
 * do. The function that detects the error writes the text; callers pass it on. Outputs are set only
 * on success. A struct error may be NULL where the caller does not need the text. */
#ifndef MOED_BASE_ERROR_H
#define MOED_BASE_ERROR_H

#define ERROR_LIST(X)                                                                              \
    X(OK, 0, "success")                                                                            \
    X(USAGE, 1, "wrong use")           /* unknown option, bad argument */                          \
    X(FORMAT, 2, "malformed file")     /* the model file or another input is broken */             \
    X(UNSUPPORTED, 3, "not supported") /* well formed, but moed does not support it */             \
    X(NOT_FOUND, 4, "not found")       /* file, key, tensor, deployment */                         \
    X(MEMORY, 5, "not enough memory")                                                              \
    X(IO, 6, "input or output failed")                                                             \
    X(PROTOCOL, 7, "malformed message")    /* a peer misbehaves */                                 \
    X(VERSION, 8, "version mismatch")      /* peers of different builds */                         \
    X(UNAVAILABLE, 9, "not available now") /* starting, restarting, gone: retry */                 \
    X(TIMEOUT, 10, "timed out")                                                                    \
    X(LIMIT, 11, "limit exceeded") /* message size, number of states or requests */                \
    X(CANCELLED, 12, "cancelled")                                                                  \
    X(EXISTS, 13, "exists already")                                                                \
    X(INTERNAL, 14, "internal error")                                                              \
    X(BUSY, 15, "busy")                /* too much waits already: retry later */                   \
    X(CONTEXT, 16, "context exceeded") /* a request has too many tokens */

enum error_code {
#define X(name, value, text) ERROR_##name = value,
    ERROR_LIST(X)
#undef X
};

#define ERROR_TEXT_BYTES 512

struct error {
    enum error_code code;
    char text[ERROR_TEXT_BYTES]; /* one line, NUL-terminated */
};

/* The lower-case name of a code ("format") and its meaning ("malformed file"); never NULL. */
const char *error_name(enum error_code code);
const char *error_meaning(enum error_code code);

/* Fill *e (may be NULL) and return code. Control characters in the text, which may come from
 * untrusted input, become '?'. */
#define error_set(e, code, ...) (error_fill((e), (code), __VA_ARGS__), error_same(code))

/* The two halves of error_set, a macro so that the compiler sees which code it returns. */
void error_fill(struct error *e, enum error_code code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static inline enum error_code error_same(enum error_code code)
{
    return code;
}

/* Put "prefix: " before the text of *e; returns e->code. */
enum error_code error_prefix(struct error *e, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#endif
