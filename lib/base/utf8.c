/* UTF-8; see utf8.h. */
#include "base/utf8.h"

#include <string.h>

/* Length of the character that starts with byte c, by its leading bits; 0 for no start. */
static size_t announced_length(unsigned char c)
{
    if (c < 0x80)
        return 1;
    if (c >= 0xc2 && c <= 0xdf)
        return 2;
    if (c >= 0xe0 && c <= 0xef)
        return 3;
    if (c >= 0xf0 && c <= 0xf4)
        return 4;
    return 0;
}

/* RFC 3629, section 4: the second byte's range depends on the first. */
static bool second_byte_fits(unsigned char first, unsigned char second)
{
    switch (first) {
    case 0xe0:
        return second >= 0xa0 && second <= 0xbf;
    case 0xed:
        return second >= 0x80 && second <= 0x9f;
    case 0xf0:
        return second >= 0x90 && second <= 0xbf;
    case 0xf4:
        return second >= 0x80 && second <= 0x8f;
    default:
        return second >= 0x80 && second <= 0xbf;
    }
}

/* How many of the len bytes at p fit the character that p[0] announces (1 to its length). */
static size_t fitting_bytes(const unsigned char *p, size_t len, size_t length)
{
    size_t n = 1;
    while (n < length && n < len &&
           (n == 1 ? second_byte_fits(p[0], p[1]) : utf8_continues((char)p[n])))
        n++;
    return n;
}

size_t utf8_valid_length(const char *p, size_t len)
{
    const unsigned char *u = (const unsigned char *)p;
    size_t length = len ? announced_length(u[0]) : 0;
    return length && fitting_bytes(u, len, length) == length ? length : 0;
}

uint32_t utf8_decode(const char *p, size_t length)
{
    const unsigned char *u = (const unsigned char *)p;
    uint32_t c = length == 1 ? u[0] : u[0] & (0x7fu >> length);
    for (size_t i = 1; i < length; i++)
        c = c << 6 | (u[i] & 0x3f);
    return c;
}

size_t utf8_encode(uint32_t c, char out[4])
{
    static const unsigned char lead[] = {0, 0, 0xc0, 0xe0, 0xf0};
    size_t length = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    for (size_t i = length - 1; i > 0; i--, c >>= 6)
        out[i] = (char)(0x80 | (c & 0x3f));
    out[0] = (char)(lead[length] | c);
    return length;
}

bool utf8_is_valid(const char *p, size_t len)
{
    for (size_t at = 0; at < len;) {
        size_t n = utf8_valid_length(p + at, len - at);
        if (!n)
            return false;
        at += n;
    }
    return true;
}

size_t utf8_incomplete_tail(const char *p, size_t len)
{
    const unsigned char *u = (const unsigned char *)p;
    for (size_t back = 1; back <= 3 && back <= len; back++) {
        const unsigned char *start = u + len - back;
        size_t length = announced_length(*start);
        if (length > back && fitting_bytes(start, back, length) == back)
            return back;
        if (length)
            return 0; /* a whole character or an invalid one: no rest to wait for */
    }
    return 0;
}

static bool is_c1(unsigned char c)
{
    return c >= 0x80 && c <= 0x9f;
}

bool utf8_is_control(const char *p, size_t length)
{
    unsigned char c = (unsigned char)p[0];
    return (length == 1 && (c < 0x20 || c == 0x7f)) ||
           (length == 2 && c == 0xc2 && is_c1((unsigned char)p[1]));
}

void utf8_hide_controls(char *p, size_t len, const char *allowed)
{
    for (size_t i = 0, n; i < len; i += n) {
        unsigned char c = (unsigned char)p[i];
        n = utf8_valid_length(p + i, len - i);
        bool kept = n == 1 && c && c < 0x20 && strchr(allowed, c);
        bool hidden = n ? utf8_is_control(p + i, n) && !kept : is_c1(c);
        n = n ? n : 1;
        if (hidden)
            memset(p + i, '?', n);
    }
}
