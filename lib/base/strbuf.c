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

void strbuf_printf(struct strbuf *b, const char *format, ...)
{
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    int n = vsnprintf(NULL, 0, format, args);
    va_end(args);
    if (n >= 0 && strbuf_reserve(b, (size_t)n)) {
        vsnprintf(b->data + b->len, (size_t)n + 1, format, again);
        b->len += (size_t)n;
    }
    va_end(again);
}

void strbuf_json_escape(struct strbuf *b, unsigned char c)
{
    if (c == '\n' || c == '\t' || c == '\r')
        strbuf_append(b, c == '\n' ? "\\n" : c == '\t' ? "\\t" : "\\r", 2);
    else
        strbuf_printf(b, "\\u%04x", c);
}

void strbuf_json_string(struct strbuf *b, const char *data, size_t len)
{
    strbuf_append(b, "\"", 1);
    for (size_t i = 0; i < len;) {
        unsigned char c = (unsigned char)data[i];
        size_t n = utf8_valid_length(data + i, len - i);
        if (n == 0) {
            strbuf_append(b, "\\ufffd", 6);
            i++;
        } else if (c == '"' || c == '\\') {
            strbuf_printf(b, "\\%c", c);
            i++;
        } else if (c < 0x20 || c == 0x7f) {
            strbuf_json_escape(b, c);
            i++;
        } else {
            strbuf_append(b, data + i, n);
            i += n;
        }
    }
    strbuf_append(b, "\"", 1);
}
