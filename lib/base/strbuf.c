/* A growing string; see strbuf.h. */
#include "base/strbuf.h"

#include "base/utf8.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void strbuf_init(struct strbuf *b)
{
    *b = (struct strbuf){0};
}

void strbuf_fini(struct strbuf *b)
{
    free(b->data);
    *b = (struct strbuf){0};
}

void strbuf_clear(struct strbuf *b)
{
    b->len = 0;
    b->failed = false;
    if (b->data)
        b->data[0] = 0;
}

static bool strbuf_reserve(struct strbuf *b, size_t more)
{
    if (b->failed)
        return false;
    if (b->len + more + 1 <= b->capacity)
        return true;
    size_t capacity = b->capacity ? b->capacity : 256;
    while (capacity < b->len + more + 1)
        capacity *= 2;
    char *data = realloc(b->data, capacity);
    if (!data) {
        b->failed = true;
        return false;
    }
    b->data = data;
    b->capacity = capacity;
    return true;
}

void strbuf_append(struct strbuf *b, const void *data, size_t len)
{
    if (!strbuf_reserve(b, len))
        return;
    if (len)
        memcpy(b->data + b->len, data, len);
    b->len += len;
    b->data[b->len] = 0;
}

/* Most texts fit, so they are formatted once. */
void strbuf_printf(struct strbuf *b, const char *format, ...)
{
    va_list args, again;
    if (b->failed)
        return;
    size_t capacity = b->capacity - b->len;
    va_start(args, format);
    va_copy(again, args);
    int n = vsnprintf(capacity ? b->data + b->len : NULL, capacity, format, args);
    va_end(args);
    if (n >= 0 && (size_t)n < capacity) {
        b->len += (size_t)n;
    } else if (n >= 0 && strbuf_reserve(b, (size_t)n)) {
        vsnprintf(b->data + b->len, (size_t)n + 1, format, again);
        b->len += (size_t)n;
    } else if (b->data) {
        b->data[b->len] = 0; /* without a part of what did not fit */
    }
    va_end(again);
}

/* Writes the digits to the end of text[20]; returns the first. */
static char *digits_of(uint64_t v, char text[20])
{
    char *at = text + 20;
    do
        *--at = (char)('0' + v % 10);
    while (v /= 10);
    return at;
}

void strbuf_uint(struct strbuf *b, uint64_t v)
{
    char text[20], *first = digits_of(v, text);
    strbuf_append(b, first, (size_t)(text + 20 - first));
}

/* The six digits of a value in [1e-4, 1e6), and the power of ten of the first. The value is
 * m / 2^shift and is scaled by a power of ten, all of it exact: m < 2^24, shift <= 37, and the
 * scale is at most 10^9, so no product has more than 54 bits. It is rounded as the C library does:
 * to the nearest, in the middle to the even one. */
static uint32_t six_digits(float v, int *power)
{
    static const uint64_t tens[] = {1,      10,      100,      1000,      10000,
                                    100000, 1000000, 10000000, 100000000, 1000000000};
    uint32_t bits;
    memcpy(&bits, &v, sizeof bits); /* IEEE 754: 8 bits of exponent, 23 of a fraction behind 1 */
    uint64_t m = (bits & 0x7fffff) | 0x800000;
    int shift = 23 + 127 - (int)(bits >> 23); /* 4 to 37 */
    int e = 5;
    while (e > 0 && m < tens[e] << shift)
        e--;
    while (e > -4 && e <= 0 && m * tens[-e] < 1ull << shift)
        e--;
    uint64_t scaled = m * tens[5 - e], digits = scaled >> shift;
    uint64_t rest = scaled & ((1ull << shift) - 1), half = 1ull << (shift - 1);
    digits += rest > half || (rest == half && digits % 2);
    if (digits == 1000000) {
        digits = 100000;
        e++;
    }
    *power = e;
    return (uint32_t)digits;
}

/* Of what %g writes without an exponent, which depends on the power after it was rounded. */
static void append_six(struct strbuf *b, uint32_t digits, int power)
{
    char text[16], *at = text + sizeof text;
    int decimals = 5 - power;
    while (decimals > 0 && digits % 10 == 0) {
        digits /= 10;
        decimals--;
    }
    for (int i = 0; i < decimals; i++, digits /= 10)
        *--at = (char)('0' + digits % 10);
    if (decimals)
        *--at = '.';
    do
        *--at = (char)('0' + digits % 10);
    while (digits /= 10);
    strbuf_append(b, at, (size_t)(text + sizeof text - at));
}

void strbuf_float(struct strbuf *b, float v)
{
    float size = v < 0 ? -v : v;
    int power = 6;
    uint32_t digits = 0;
    if (size >= 1e-4f && size < 1e6f)
        digits = six_digits(size, &power);
    if (power > 5) {
        strbuf_printf(b, "%.6g", (double)v);
        return;
    }
    if (v < 0)
        strbuf_append(b, "-", 1);
    append_six(b, digits, power);
}

void strbuf_json_escape(struct strbuf *b, unsigned char c)
{
    static const char digits[] = "0123456789abcdef";
    char text[6] = {'\\', 'u', '0', '0', digits[c >> 4], digits[c & 15]};
    if (c == '\n' || c == '\t' || c == '\r')
        strbuf_append(b, c == '\n' ? "\\n" : c == '\t' ? "\\t" : "\\r", 2);
    else
        strbuf_append(b, text, sizeof text);
}

/* A character that stands in a JSON string as it is. */
static bool is_plain(unsigned char c)
{
    return c >= 0x20 && c < 0x7f && c != '"' && c != '\\';
}

/* Appends the plain characters at the beginning of data; returns how many. */
static size_t append_plain(struct strbuf *b, const char *data, size_t len)
{
    size_t n = 0;
    while (n < len && is_plain((unsigned char)data[n]))
        n++;
    strbuf_append(b, data, n);
    return n;
}

void strbuf_json_string(struct strbuf *b, const char *data, size_t len)
{
    strbuf_append(b, "\"", 1);
    for (size_t i = 0; i < len;) {
        unsigned char c = (unsigned char)data[i];
        if (is_plain(c)) {
            i += append_plain(b, data + i, len - i);
            continue;
        }
        size_t n = utf8_valid_length(data + i, len - i);
        if (n == 0)
            strbuf_append(b, "\\ufffd", 6);
        else if (c == '"' || c == '\\')
            strbuf_append(b, c == '"' ? "\\\"" : "\\\\", 2);
        else if (c < 0x20 || c == 0x7f)
            strbuf_json_escape(b, c);
        else
            strbuf_append(b, data + i, n);
        i += n ? n : 1;
    }
    strbuf_append(b, "\"", 1);
}

void strbuf_json_bytes(struct strbuf *b, const void *data, size_t len)
{
    const unsigned char *bytes = data;
    strbuf_append(b, "[", 1);
    for (size_t i = 0; i < len; i++) {
        if (i)
            strbuf_append(b, ",", 1);
        strbuf_uint(b, bytes[i]);
    }
    strbuf_append(b, "]", 1);
}

void strbuf_move(struct strbuf *to, struct strbuf *from)
{
    bool failed = to->failed || from->failed;
    if (to->len == 0) {
        strbuf_fini(to);
        *to = *from;
        strbuf_init(from);
    } else {
        strbuf_append(to, from->data, from->len);
        strbuf_fini(from);
    }
    to->failed = to->failed || failed;
}
