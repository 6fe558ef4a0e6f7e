/* str() and repr() of values, as Python prints them; see value.h. */
#include "jinja/value.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <wctype.h>

/* The digits of the shortest decimal that reads back as `real`, without point; returns the place of
 * the point: 0.digits * 10^place. */
static int shortest_digits(double real, char digits[20])
{
    char text[40];
    for (int precision = 0;; precision++) {
        snprintf(text, sizeof text, "%.*e", precision, real);
        if (precision >= 16 || strtod(text, NULL) == real)
            break;
    }
    size_t n = 0;
    char *p = text;
    for (; *p && *p != 'e'; p++)
        if (*p >= '0' && *p <= '9')
            digits[n++] = *p;
    digits[n] = '\0';
    while (n > 1 && digits[n - 1] == '0')
        digits[--n] = '\0';
    return (*p == 'e' ? atoi(p + 1) : 0) + 1;
}

void value_print_float(struct text_builder *b, double real)
{
    if (!isfinite(real)) {
        builder_add_literal(b, isnan(real) ? "nan" : real < 0 ? "-inf" : "inf");
        return;
    }
    char digits[20];
    if (signbit(real))
        builder_add_literal(b, "-");
    int point = shortest_digits(fabs(real), digits);
    int n = (int)strlen(digits);
    if (real == 0)
        point = 1;
    if (point > 16 || point < -3) { /* Python's repr: an exponent below 1e-4 and from 1e16 on */
        builder_printf(b, false, "%.1s%s%se%c%02d", digits, n > 1 ? "." : "", digits + 1,
                       point > 0 ? '+' : '-', abs(point - 1));
    } else if (point <= 0) {
        builder_printf(b, false, "0.%.*s%s", -point, "0000", digits);
    } else if (point >= n) {
        builder_printf(b, false, "%s%.*s.0", digits, point - n, "0000000000000000");
    } else {
        builder_printf(b, false, "%.*s.%s", point, digits, digits + point);
    }
}

/* Python's str.isprintable, by glibc's tables. */
static bool is_printable(uint32_t c)
{
    if (c < 0x80)
        return c >= 0x20 && c < 0x7f;
    bool format = c == 0xad || (c >= 0x600 && c <= 0x605) || c == 0x61c || c == 0x6dd ||
                  c == 0x70f || c == 0x180e || (c >= 0x200b && c <= 0x200f) ||
                  (c >= 0x202a && c <= 0x202e) || (c >= 0x2060 && c <= 0x206f) || c == 0xfeff ||
                  (c >= 0xfff9 && c <= 0xfffb) || (c >= 0xe0000 && c <= 0xe007f);
    bool private_use = (c >= 0xe000 && c <= 0xf8ff) || c >= 0xf0000;
    bool unassigned = (c & 0xfffe) == 0xfffe || (c >= 0xfdd0 && c <= 0xfdef);
    return c >= 0xa0 && !text_is_space(c) && !format && !private_use && !unassigned;
}

static void repr_char(struct text_builder *b, const struct text *t, size_t from, size_t to,
                      char quote)
{
    const char *p = t->data + from;
    uint32_t c = text_next(&p);
    bool request = text_from_request(t, from);
    if (c == (unsigned char)quote || c == '\\')
        builder_printf(b, request, "\\%c", (char)c);
    else if (c == '\n' || c == '\r' || c == '\t')
        builder_add(b, c == '\n' ? "\\n" : c == '\r' ? "\\r" : "\\t", 2, request);
    else if (is_printable(c))
        builder_add_part(b, t, from, to);
    else if (c < 0x100)
        builder_printf(b, request, "\\x%02x", (unsigned)c);
    else
        builder_printf(b, request, c < 0x10000 ? "\\u%04x" : "\\U%08x", (unsigned)c);
}

static void repr_text(struct text_builder *b, const struct text *t)
{
    bool single = t->len && memchr(t->data, '\'', t->len);
    bool twice = t->len && memchr(t->data, '"', t->len);
    char quote = single && !twice ? '"' : '\'';
    if (t->markup)
        builder_add_literal(b, "Markup(");
    builder_add(b, &quote, 1, false);
    const char *p = t->data, *end = t->data + t->len;
    while (p < end) {
        size_t from = (size_t)(p - t->data);
        text_next(&p);
        repr_char(b, t, from, (size_t)(p - t->data), quote);
    }
    builder_add(b, &quote, 1, false);
    if (t->markup)
        builder_add_literal(b, ")");
}

static void repr_items(struct text_builder *b, const struct sequence *s)
{
    for (size_t i = 0; i < s->count; i++) {
        if (i)
            builder_add_literal(b, ", ");
        value_repr(b, s->items[i]);
    }
}

static void repr_range(struct text_builder *b, const struct sequence *s)
{
    builder_printf(b, false, "range(%" PRId64 ", %" PRId64, s->range[0], s->range[1]);
    if (s->range[2] != 1)
        builder_printf(b, false, ", %" PRId64, s->range[2]);
    builder_add_literal(b, ")");
}

static void repr_sequence(struct text_builder *b, const struct sequence *s)
{
    static const char *const around[][2] = {
        [SEQUENCE_LIST] = {"[", "]"},
        [SEQUENCE_TUPLE] = {"(", ")"},
        [SEQUENCE_KEYS] = {"dict_keys([", "])"},
        [SEQUENCE_VALUES] = {"dict_values([", "])"},
        [SEQUENCE_ITEMS] = {"dict_items([", "])"},
    };
    if (s->kind == SEQUENCE_RANGE) {
        repr_range(b, s);
    } else if (s->kind == SEQUENCE_GENERATOR) {
        builder_add_literal(b, "<generator object>");
    } else {
        builder_add_literal(b, around[s->kind][0]);
        repr_items(b, s);
        if (s->kind == SEQUENCE_TUPLE && s->count == 1)
            builder_add_literal(b, ",");
        builder_add_literal(b, around[s->kind][1]);
    }
}

static void repr_dict(struct text_builder *b, const struct dict *d)
{
    builder_add_literal(b, "{");
    for (size_t i = 0; i < d->count; i++) {
        if (i)
            builder_add_literal(b, ", ");
        value_repr(b, d->entries[i].key);
        builder_add_literal(b, ": ");
        value_repr(b, d->entries[i].value);
    }
    builder_add_literal(b, "}");
}

static void repr_container(struct text_builder *b, struct value v)
{
    run_enter(b->run);
    run_work(b->run, 1);
    if (v.kind == VALUE_SEQUENCE) {
        repr_sequence(b, v.sequence);
    } else {
        if (v.kind == VALUE_NAMESPACE)
            builder_add_literal(b, "<Namespace ");
        repr_dict(b, v.dict);
        if (v.kind == VALUE_NAMESPACE)
            builder_add_literal(b, ">");
    }
    run_leave(b->run);
}

void value_repr(struct text_builder *b, struct value v)
{
    switch (v.kind) {
    case VALUE_MISSING:
        break;
    case VALUE_UNDEFINED:
        builder_add_literal(b, "Undefined");
        break;
    case VALUE_NONE:
        builder_add_literal(b, "None");
        break;
    case VALUE_BOOL:
        builder_add_literal(b, v.truth ? "True" : "False");
        break;
    case VALUE_INT:
        builder_printf(b, false, "%" PRId64, v.integer);
        break;
    case VALUE_FLOAT:
        value_print_float(b, v.real);
        break;
    case VALUE_STRING:
        repr_text(b, v.text);
        break;
    case VALUE_SEQUENCE:
    case VALUE_DICT:
    case VALUE_NAMESPACE:
        repr_container(b, v);
        break;
    case VALUE_LOOP:
    case VALUE_MACRO:
    case VALUE_FUNCTION:
        builder_printf(b, false, "<%s>", value_type_name(v));
        break;
    }
}

void value_print(struct text_builder *b, struct value v)
{
    if (v.kind == VALUE_STRING)
        builder_add_text(b, v.text);
    else if (v.kind != VALUE_UNDEFINED)
        value_repr(b, v);
}

const struct text *value_to_text(struct run *r, struct value v)
{
    if (v.kind == VALUE_STRING)
        return v.text;
    struct text_builder b;
    builder_init(&b, r);
    value_print(&b, v);
    return builder_text(&b);
}
