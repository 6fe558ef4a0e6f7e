/* Strings with the origin of each byte; see text.h. */
#include "jinja/text.h"

#include "base/utf8.h"

#include <string.h>

static size_t count_chars(const char *data, size_t len)
{
    size_t chars = 0;
    for (size_t i = 0; i < len; i++)
        chars += !utf8_continues(data[i]);
    return chars;
}

const struct text *text_new(struct run *r, const char *data, size_t len, bool request)
{
    struct text *t = run_alloc(r, sizeof *t);
    *t = (struct text){
        .data = data, .len = len, .chars = count_chars(data, len), .request = request};
    return t;
}

const struct text *text_from(struct run *r, const char *literal)
{
    return text_new(r, literal, strlen(literal), false);
}

/* The order of UTF-8's bytes is that of the code points. */
int text_compare(const struct text *a, const struct text *b)
{
    size_t len = a->len < b->len ? a->len : b->len;
    int order = len ? memcmp(a->data, b->data, len) : 0;
    return order ? order : (a->len > b->len) - (a->len < b->len);
}

const struct text *text_part(struct run *r, const struct text *t, size_t from, size_t to)
{
    if (from == 0 && to == t->len && !t->markup)
        return t;
    struct text *part = run_alloc(r, sizeof *part);
    *part = *t;
    part->data = t->data + from;
    part->marks = t->marks ? t->marks + from : NULL;
    part->len = to - from;
    part->chars = t->chars == t->len ? part->len : count_chars(part->data, part->len);
    part->markup = false;
    return part;
}

size_t text_offset(const struct text *t, size_t index)
{
    if (index >= t->chars)
        return t->len;
    if (t->chars == t->len)
        return index;
    size_t offset = 0;
    for (size_t seen = 0;; offset++)
        if (!utf8_continues(t->data[offset]) && seen++ == index)
            return offset;
}

size_t text_find(const struct text *t, const struct text *part, size_t from)
{
    if (part->len == 0)
        return from <= t->len ? from : SIZE_MAX;
    if (from >= t->len)
        return SIZE_MAX;
    const char *found = memmem(t->data + from, t->len - from, part->data, part->len);
    return found ? (size_t)(found - t->data) : SIZE_MAX;
}

size_t text_find_last(const struct text *t, const struct text *part, size_t end)
{
    if (part->len > end)
        return SIZE_MAX;
    for (size_t at = end - part->len;; at--) {
        if (part->len == 0 || memcmp(t->data + at, part->data, part->len) == 0)
            return at;
        if (at == 0)
            return SIZE_MAX;
    }
}

uint32_t text_next(const char **p)
{
    unsigned char first = (unsigned char)**p;
    size_t length = first < 0x80 ? 1 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
    uint32_t c = utf8_decode(*p, length);
    *p += length;
    return c;
}

bool text_is_space(uint32_t c)
{
    return (c >= 0x09 && c <= 0x0d) || (c >= 0x1c && c <= 0x20) || c == 0x85 || c == 0xa0 ||
           c == 0x1680 || (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 ||
           c == 0x202f || c == 0x205f || c == 0x3000;
}

size_t text_skip_space(const struct text *t)
{
    const char *p = t->data, *end = t->data + t->len;
    while (p < end) {
        const char *next = p;
        if (!text_is_space(text_next(&next)))
            break;
        p = next;
    }
    return (size_t)(p - t->data);
}

size_t text_trim_end(const struct text *t)
{
    size_t end = t->len;
    while (end > 0) {
        size_t start = end - 1;
        while (start > 0 && utf8_continues(t->data[start]))
            start--;
        const char *p = t->data + start;
        if (!text_is_space(text_next(&p)))
            break;
        end = start;
    }
    return end;
}
