/* Strings: UTF-8 bytes that never change, and for each byte whether it came from the request.
 *
 * A byte of the request stays one through every operation: joining, slicing, replacing, upper case,
 * JSON. So the tokenizer can tell a user's "<|im_end|>" from the template's. What an operation adds
 * itself (quotes, separators) comes from the template. */
#ifndef MOED_JINJA_TEXT_H
#define MOED_JINJA_TEXT_H

#include "jinja/run.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

struct text {
    const char *data;  /* not NUL-terminated */
    const char *marks; /* a byte for each of data's, 1: from the request; NULL: all as `request` */
    size_t len;        /* bytes */
    size_t chars;      /* code points; equal to len for ASCII */
    bool request;
    bool markup; /* result of `safe`: `+` escapes what is added to it, as in Python */
};

/* Borrows the bytes. */
const struct text *text_new(struct run *r, const char *data, size_t len, bool request);
const struct text *text_from(struct run *r, const char *literal); /* of the template */
int text_compare(const struct text *a, const struct text *b);     /* by code points */

/* Bytes [from, to) of t. */
const struct text *text_part(struct run *r, const struct text *t, size_t from, size_t to);
/* The byte offset of a code point; t->len for index >= t->chars. */
size_t text_offset(const struct text *t, size_t index);
/* The byte offset of `part` at or after `from`; SIZE_MAX: not there. */
size_t text_find(const struct text *t, const struct text *part, size_t from);
size_t text_find_last(const struct text *t, const struct text *part, size_t end);

/* Decodes the character at *p and moves *p past it. The bytes are well-formed UTF-8. */
uint32_t text_next(const char **p);
bool text_is_space(uint32_t c); /* Python's str.isspace */
/* Byte offsets of t without the white space at its ends. */
size_t text_skip_space(const struct text *t);
size_t text_trim_end(const struct text *t);

/* A text that is put together. Its first append takes memory. */
struct text_builder {
    struct run *run;
    char *data, *marks; /* marks: NULL until bytes of both kinds are in */
    size_t len, capacity;
    bool request; /* of all bytes, while marks is NULL */
};

void builder_init(struct text_builder *b, struct run *r);
void builder_add(struct text_builder *b, const char *data, size_t len, bool request);
void builder_add_literal(struct text_builder *b, const char *literal);
void builder_add_text(struct text_builder *b, const struct text *t);
void builder_add_part(struct text_builder *b, const struct text *t, size_t from, size_t to);
void builder_printf(struct text_builder *b, bool request, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
const struct text *builder_text(struct text_builder *b);

static inline bool text_equal(const struct text *a, const struct text *b)
{
    return a->len == b->len &&
           (a->len == 0 || (a->data[0] == b->data[0] && memcmp(a->data, b->data, a->len) == 0));
}

static inline bool text_is(const struct text *a, const char *literal)
{
    return (a->len ? a->data[0] : '\0') == literal[0] && a->len == strlen(literal) &&
           memcmp(a->data, literal, a->len) == 0;
}

/* Whether byte i came from the request. */
static inline bool text_from_request(const struct text *t, size_t i)
{
    return t->marks ? t->marks[i] : t->request;
}

#endif
