/* UTF-8: whole and incomplete characters in a sequence of bytes, and their code points. */
#ifndef MOED_BASE_UTF8_H
#define MOED_BASE_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A byte that continues a character: it begins none. */
static inline bool utf8_continues(char c)
{
    return ((unsigned char)c & 0xc0) == 0x80;
}

/* The length of the well-formed UTF-8 character at p (RFC 3629: no overlong form, no surrogate); 0
 * where the len bytes at p do not start with one. */
size_t utf8_valid_length(const char *p, size_t len);

/* The code point of the well-formed character of `length` bytes at p. */
uint32_t utf8_decode(const char *p, size_t length);
/* Writes a code point; returns its length. */
size_t utf8_encode(uint32_t c, char out[4]);

/* Whether p[0..len) is whole well-formed characters; the empty text is. */
bool utf8_is_valid(const char *p, size_t len);

/* How many bytes at the end of p[0..len) are the start of an incomplete character (0-3). The bytes
 * before them can be emitted without cutting a character. */
size_t utf8_incomplete_tail(const char *p, size_t len);

/* Whether the well-formed character of `length` bytes at p is a control character: of ASCII, DEL,
 * or U+0080 to U+009F. */
bool utf8_is_control(const char *p, size_t length);

/* Replaces what a terminal would obey, each byte by '?': control characters of ASCII except those
 * in `allowed`, DEL, those of Unicode (U+0080 to U+009F), and stray bytes of these values, which
 * are control characters in 8-bit encodings. For text that others wrote: answers, names, messages.
 */
void utf8_hide_controls(char *p, size_t len, const char *allowed);

#endif
