/* A reader of JSON for test data: it makes a tree of the whole text. It detects broken test data,
 * but is not for untrusted input. The functions are in the header because each test is one program.
 */
#ifndef MOED_TESTS_JSON_READER_H
#define MOED_TESTS_JSON_READER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum json_type { JSON_NULL, JSON_BOOL, JSON_NUMBER, JSON_STRING, JSON_ARRAY, JSON_OBJECT };

struct json {
    enum json_type type;
    bool boolean;
    double number;
    char *text; /* string: its bytes (NUL-terminated, may contain NUL) */
    size_t text_len;
    char *name;          /* within an object */
    struct json *values; /* array, object: the members */
    size_t count;
};

struct reader {
    const char *at, *end;
};

static bool read_value(struct reader *r, struct json *out);

static void skip_space(struct reader *r)
{
    while (r->at < r->end && memchr(" \t\r\n", *r->at, 4))
        r->at++;
}

static bool accept(struct reader *r, char c)
{
    skip_space(r);
    if (r->at == r->end || *r->at != c)
        return false;
    r->at++;
    return true;
}

static bool accept_word(struct reader *r, const char *word)
{
    size_t len = strlen(word);
    if ((size_t)(r->end - r->at) < len || memcmp(r->at, word, len) != 0)
        return false;
    r->at += len;
    return true;
}

static bool read_hex4(struct reader *r, uint32_t *out)
{
    char digits[5] = {0};
    char *stop;
    if (r->end - r->at < 4)
        return false;
    memcpy(digits, r->at, 4);
    r->at += 4;
    *out = (uint32_t)strtoul(digits, &stop, 16);
    return *stop == 0;
}

static size_t put_utf8(char *out, uint32_t code)
{
    if (code < 0x80) {
        out[0] = (char)code;
        return 1;
    }
    size_t len = code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    for (size_t i = len; i-- > 1; code >>= 6)
        out[i] = (char)(0x80 | (code & 0x3f));
    out[0] = (char)((0xf00 >> len & 0xff) | code);
    return len;
}

/* \uXXXX, with the second half of a surrogate pair where there is one. */
static bool read_unicode(struct reader *r, uint32_t *code)
{
    uint32_t low;
    if (!read_hex4(r, code))
        return false;
    if (*code < 0xd800 || *code > 0xdbff)
        return true;
    if (!accept_word(r, "\\u") || !read_hex4(r, &low) || low < 0xdc00 || low > 0xdfff)
        return false;
    *code = 0x10000 + ((*code - 0xd800) << 10) + (low - 0xdc00);
    return true;
}

static bool read_string(struct reader *r, char **out, size_t *out_len)
{
    static const char escapes[] = "\"\\/bfnrt", meanings[] = "\"\\/\b\f\n\r\t";
    if (!accept(r, '"'))
        return false;
    char *text = malloc((size_t)(r->end - r->at) + 1); /* an escape is longer than its meaning */
    size_t n = 0;
    *out = text;
    while (text && r->at < r->end && *r->at != '"') {
        char c = *r->at++;
        if (c != '\\') {
            text[n++] = c;
            continue;
        }
        if (r->at == r->end)
            return false;
        c = *r->at++;
        const char *escape = memchr(escapes, c, sizeof escapes - 1);
        uint32_t code;
        if (escape)
            text[n++] = meanings[escape - escapes];
        else if (c == 'u' && read_unicode(r, &code))
            n += put_utf8(text + n, code);
        else
            return false;
    }
    if (!text || !accept(r, '"'))
        return false;
    text[n] = 0;
    *out_len = n;
    return true;
}

static bool read_members(struct reader *r, struct json *out, char close)
{
    size_t capacity = 0;
    if (accept(r, close))
        return true;
    do {
        if (out->count == capacity) {
            capacity = capacity ? capacity * 2 : 8;
            struct json *values = realloc(out->values, capacity * sizeof *values);
            if (!values)
                return false;
            out->values = values;
        }
        struct json *value = &out->values[out->count++];
        size_t name_len;
        *value = (struct json){0};
        if (close == '}' && (!read_string(r, &value->name, &name_len) || !accept(r, ':')))
            return false;
        if (!read_value(r, value))
            return false;
    } while (accept(r, ','));
    return accept(r, close);
}

static bool read_number(struct reader *r, double *out)
{
    char digits[64];
    size_t n = 0;
    while (r->at + n < r->end && n < sizeof digits - 1 && memchr("+-.eE0123456789", r->at[n], 15))
        n++;
    memcpy(digits, r->at, n);
    digits[n] = 0;
    char *stop;
    *out = strtod(digits, &stop);
    r->at += n;
    return n > 0 && *stop == 0;
}

static bool read_value(struct reader *r, struct json *out)
{
    skip_space(r);
    if (r->at == r->end)
        return false;
    switch (*r->at) {
    case '"':
        out->type = JSON_STRING;
        return read_string(r, &out->text, &out->text_len);
    case '[':
    case '{':
        out->type = *r->at == '[' ? JSON_ARRAY : JSON_OBJECT;
        return read_members(r, out, *r->at++ == '[' ? ']' : '}');
    case 't':
    case 'f':
        out->type = JSON_BOOL;
        out->boolean = *r->at == 't';
        return accept_word(r, out->boolean ? "true" : "false");
    case 'n':
        return accept_word(r, "null");
    default:
        out->type = JSON_NUMBER;
        return read_number(r, &out->number);
    }
}

/* False for malformed text. Free with json_free either way. */
static bool json_parse(const char *text, size_t len, struct json *out)
{
    struct reader r = {text, text + len};
    *out = (struct json){0};
    if (!read_value(&r, out))
        return false;
    skip_space(&r);
    return r.at == r.end;
}

static void json_free(struct json *j)
{
    for (size_t i = 0; i < j->count; i++)
        json_free(&j->values[i]);
    free(j->values);
    free(j->text);
    free(j->name);
    *j = (struct json){0};
}

/* The member of an object; NULL when absent. */
static const struct json *json_get(const struct json *object, const char *name)
{
    for (size_t i = 0; i < object->count; i++) {
        if (strcmp(object->values[i].name, name) == 0)
            return &object->values[i];
    }
    return NULL;
}

#endif
