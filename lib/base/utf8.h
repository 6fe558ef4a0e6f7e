/* UTF-8: the few questions that the runtime asks of bytes. */
#ifndef MOED_BASE_UTF8_H
#define MOED_BASE_UTF8_H

#include <stddef.h>

/* Bytes of the well-formed UTF-8 character (RFC 3629: no overlong form, no surrogate) at p; 0 where
 * the len bytes at p do not start with one. */
size_t utf8_valid_length(const char *p, size_t len);

/* Bytes at the end of p[0..len) that are the start of a character whose rest may still come (0-3).
 * What stands before them can be emitted without cutting a character. */
size_t utf8_incomplete_tail(const char *p, size_t len);

#endif
