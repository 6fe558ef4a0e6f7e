/* See format.h. */
#include "jinja/format.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WIDEST 10000

void format_escape(struct text_builder *b, const struct text *t)
{
    static const char special[] = "&<>\"'";
    static const char *const entity[] = {"&amp;", "&lt;", "&gt;", "&#34;", "&#39;"};
    for (size_t i = 0; i < t->len; i++) {
        const char *found = t->data[i] ? strchr(special, t->data[i]) : NULL;
        if (found)
            builder_add(b, entity[found - special], strlen(entity[found - special]),
                        text_from_request(t, i));
        else
            builder_add_part(b, t, i, i + 1);
    }
}

/* One conversion's layout. */
struct layout {
    char fill[4];
    size_t fill_bytes;
    char align; /* < > ^ =, 0: by type */
    char sign;  /* + or space, 0: none */
    bool zeros, alternate, commas;
    int width, precision; /* -1: none */
    char type;            /* 0: none */
};

static void add_fill(struct text_builder *b, const struct layout *l, int n)
{
    for (int i = 0; i < n; i++)
        builder_add(b, l->fill, l->fill_bytes, false);
}

static void add_aligned(struct text_builder *b, const struct layout *l, const struct text *t,
                        char align)
{
    int space = l->width > (int)t->chars ? l->width - (int)t->chars : 0;
    int before = align == '>' ? space : align == '^' ? space / 2 : 0;
    add_fill(b, l, before);
    builder_add_text(b, t);
    add_fill(b, l, space - before);
}

static void add_string(struct text_builder *b, const struct layout *l, const struct text *t,
                       char align)
{
    if (l->precision >= 0 && (size_t)l->precision < t->chars)
        t = text_part(b->run, t, 0, text_offset(t, (size_t)l->precision));
    add_aligned(b, l, t, l->align && l->align != '=' ? l->align : align);
}

/* Puts commas between groups of three digits. */
static void group_digits(char *digits, size_t size)
{
    size_t whole = strcspn(digits, ".e");
    for (size_t at = whole; at > 3 && strlen(digits) + 2 < size;) {
        at -= 3;
        memmove(digits + at + 1, digits + at, strlen(digits + at) + 1);
        digits[at] = ',';
    }
}

/* digits: without sign */
static void add_number(struct text_builder *b, const struct layout *l, bool negative, char *digits,
                       size_t size)
{
    char sign = negative ? '-' : l->sign;
    if (l->commas)
        group_digits(digits, size);
    size_t len = strlen(digits) + (sign != 0);
    if (l->zeros || l->align == '=') {
        struct layout pad = *l;
        if (l->zeros) {
            pad.fill[0] = '0';
            pad.fill_bytes = 1;
        }
        if (sign)
            builder_add(b, &sign, 1, false);
        add_fill(b, &pad, l->width > (int)len ? l->width - (int)len : 0);
        builder_add_literal(b, digits);
        return;
    }
    struct text_builder whole;
    builder_init(&whole, b->run);
    if (sign)
        builder_add(&whole, &sign, 1, false);
    builder_add_literal(&whole, digits);
    add_aligned(b, l, builder_text(&whole), l->align ? l->align : '>');
}

static void add_integer(struct text_builder *b, const struct layout *l, int64_t integer)
{
    char digits[48];
    uint64_t size = integer < 0 ? -(uint64_t)integer : (uint64_t)integer;
    switch (l->type) {
    case 'x':
        snprintf(digits, sizeof digits, l->alternate ? "0x%" PRIx64 : "%" PRIx64, size);
        break;
    case 'X':
        snprintf(digits, sizeof digits, l->alternate ? "0X%" PRIX64 : "%" PRIX64, size);
        break;
    case 'o':
        snprintf(digits, sizeof digits, l->alternate ? "0o%" PRIo64 : "%" PRIo64, size);
        break;
    default:
        snprintf(digits, sizeof digits, "%" PRIu64, size);
    }
    add_number(b, l, integer < 0, digits, sizeof digits);
}

static void add_real(struct text_builder *b, const struct layout *l, double real)
{
    char digits[800], format[8] = "%.*";
    int precision = l->precision < 0 ? 6 : l->precision > 300 ? 300 : l->precision;
    format[3] = l->type;
    format[4] = '\0';
    snprintf(digits, sizeof digits, format, precision, real < 0 ? -real : real);
    add_number(b, l, real < 0, digits, sizeof digits);
}

/* ---- "%" ---- */

struct percent {
    const struct value *items; /* the tuple's, or the one value */
    size_t count, next;
    struct value mapping;
};

static struct value take(struct run *r, struct percent *p)
{
    if (p->next >= p->count)
        run_refuse(r, "not enough arguments for format string");
    return p->items[p->next++];
}

/* Reads digits at *at into *n; the least of them is one if it was there at all. */
static void read_number(struct run *r, const struct text *t, size_t *at, int *n)
{
    while (*at < t->len && isdigit((unsigned char)t->data[*at])) {
        *n = (*n < 0 ? 0 : *n) * 10 + (t->data[(*at)++] - '0');
        if (*n > WIDEST)
            run_refuse(r, "a format's width is above %d", WIDEST);
    }
}

static void read_percent_layout(struct run *r, const struct text *t, size_t *at, struct layout *l)
{
    for (; *at < t->len && strchr("-+ 0#", t->data[*at]) && t->data[*at]; (*at)++) {
        char c = t->data[*at];
        l->align = c == '-' ? '<' : l->align;
        l->sign = c == '+' || (c == ' ' && !l->sign) ? c : l->sign;
        l->zeros |= c == '0';
        l->alternate |= c == '#';
    }
    if (l->align == '<')
        l->zeros = false;
    read_number(r, t, at, &l->width);
    if (*at < t->len && t->data[*at] == '.') {
        (*at)++;
        l->precision = 0;
        read_number(r, t, at, &l->precision);
    }
    if (*at >= t->len)
        run_refuse(r, "incomplete format");
    l->type = t->data[(*at)++];
}

static void convert(struct text_builder *b, const struct layout *l, struct value v)
{
    double real;
    int64_t integer;
    struct run *r = b->run;
    struct text_builder text;
    builder_init(&text, r);
    switch (l->type) {
    case 's':
        add_string(b, l, value_to_text(r, v), '>');
        return;
    case 'r':
        value_repr(&text, v);
        add_string(b, l, builder_text(&text), '>');
        return;
    case 'd':
    case 'i':
    case 'u':
    case 'x':
    case 'X':
    case 'o':
        if (v.kind == VALUE_FLOAT && l->type != 'x' && l->type != 'X' && l->type != 'o' &&
            v.real > -9e18 && v.real < 9e18)
            integer = (int64_t)v.real;
        else if (!value_is_integer(v, &integer))
            run_refuse(r, "%%%c format: a real number is required, not %s", l->type,
                       value_type_name(v));
        add_integer(b, l, integer);
        return;
    case 'f':
    case 'F':
    case 'e':
    case 'E':
    case 'g':
    case 'G':
        if (!value_is_number(v, &real))
            run_refuse(r, "must be real number, not %s", value_type_name(v));
        add_real(b, l, real);
        return;
    default:
        run_refuse(r, "unsupported format character '%c'", l->type);
    }
}

static struct value keyed(struct run *r, const struct text *t, size_t *at, struct percent *p)
{
    size_t end = *at + 1;
    while (end < t->len && t->data[end] != ')')
        end++;
    if (end >= t->len)
        run_refuse(r, "incomplete format key");
    struct value key = value_text(text_part(r, t, *at + 1, end));
    *at = end + 1;
    if (p->mapping.kind != VALUE_DICT)
        run_refuse(r, "format requires a mapping");
    const struct value *found = dict_find(r, p->mapping.dict, key);
    if (!found)
        run_refuse(r, "KeyError: '%.*s'", (int)key.text->len, key.text->data);
    return *found;
}

struct value format_percent(struct run *r, const struct text *format, struct value v)
{
    bool tuple = v.kind == VALUE_SEQUENCE && v.sequence->kind == SEQUENCE_TUPLE;
    struct percent p = {.items = tuple ? v.sequence->items : &v,
                        .count = tuple ? v.sequence->count : 1,
                        .mapping = v};
    struct text_builder b;
    bool by_key = false;
    builder_init(&b, r);
    for (size_t i = 0; i < format->len;) {
        if (format->data[i] != '%') {
            builder_add_part(&b, format, i, i + 1);
            i++;
            continue;
        }
        i++;
        run_work(r, 1);
        struct layout l = {.fill = " ", .fill_bytes = 1, .width = -1, .precision = -1};
        struct value item = {.kind = VALUE_MISSING};
        if (i < format->len && format->data[i] == '(') {
            item = keyed(r, format, &i, &p);
            by_key = true;
        }
        read_percent_layout(r, format, &i, &l);
        if (l.type == '%')
            builder_add_literal(&b, "%");
        else
            convert(&b, &l, item.kind == VALUE_MISSING ? take(r, &p) : item);
    }
    bool indexed = v.kind == VALUE_DICT ||
                   v.kind == VALUE_UNDEFINED || /* Python takes what has [] for a mapping */
                   (!tuple && v.kind == VALUE_SEQUENCE && v.sequence->kind <= SEQUENCE_RANGE);
    if (p.next < p.count && !by_key && !indexed)
        run_refuse(r, "not all arguments converted during string formatting");
    return value_text(builder_text(&b));
}

/* ---- str.format ---- */

static void read_braces_layout(struct run *r, const struct text *t, struct layout *l)
{
    static const char aligns[] = "<>^=";
    size_t i = 0;
    const char *p = t->data;
    size_t first = 0;
    if (t->len) {
        text_next(&p);
        first = (size_t)(p - t->data);
    }
    if (first && first < t->len && strchr(aligns, t->data[first])) {
        memcpy(l->fill, t->data, first);
        l->fill_bytes = first;
        l->align = t->data[first];
        i = first + 1;
    } else if (t->len && t->data[0] && strchr(aligns, t->data[0])) {
        l->align = t->data[0];
        i = 1;
    }
    if (i < t->len && (t->data[i] == '+' || t->data[i] == ' ' || t->data[i] == '-')) {
        l->sign = t->data[i] == '-' ? 0 : t->data[i];
        i++;
    }
    if (i < t->len && t->data[i] == '#')
        l->alternate = i++ < t->len;
    if (i < t->len && t->data[i] == '0')
        l->zeros = !l->align;
    read_number(r, t, &i, &l->width);
    if (i < t->len && t->data[i] == ',')
        l->commas = i++ < t->len;
    if (i < t->len && t->data[i] == '.') {
        i++;
        l->precision = 0;
        read_number(r, t, &i, &l->precision);
    }
    if (i < t->len)
        l->type = t->data[i++];
    if (i < t->len)
        run_refuse(r, "invalid format specifier '%.*s'", (int)t->len, t->data);
}

static void add_formatted(struct text_builder *b, const struct text *spec, struct value v)
{
    struct layout l = {.fill = " ", .fill_bytes = 1, .width = -1, .precision = -1};
    struct run *r = b->run;
    int64_t integer;
    double real;
    if (spec->len == 0) {
        value_print(b, v);
        return;
    }
    read_braces_layout(r, spec, &l);
    bool reals = l.type && strchr("fFeEgG", l.type);
    if (v.kind == VALUE_STRING && (!l.type || l.type == 's')) {
        add_string(b, &l, v.text, '<');
    } else if (reals && value_is_number(v, &real)) {
        add_real(b, &l, real);
    } else if ((!l.type || strchr("dxXo", l.type)) && value_is_integer(v, &integer)) {
        add_integer(b, &l, integer);
    } else {
        run_refuse(r, "the format specifier '%.*s' is not supported for '%s'", (int)spec->len,
                   spec->data, value_type_name(v));
    }
}

/* The value that a field names: "", "0", "name". */
static struct value field_value(struct run *r, const struct text *name, const struct arguments *a,
                                size_t *automatic)
{
    bool number = name->len > 0;
    for (size_t i = 0; i < name->len; i++)
        number &= isdigit((unsigned char)name->data[i]) != 0;
    if (name->len == 0 || number) {
        size_t index = 0;
        for (size_t i = 0; i < name->len && index < 100000; i++)
            index = index * 10 + (size_t)(name->data[i] - '0');
        index = name->len ? index : (*automatic)++;
        if (index >= a->count)
            run_refuse(r, "Replacement index %zu out of range for positional args tuple", index);
        return a->items[index];
    }
    for (size_t i = 0; i < a->named_count; i++)
        if (text_equal(a->named[i].name, name))
            return a->named[i].value;
    run_refuse(r, "format: no argument '%.*s'", (int)name->len, name->data);
}

/* A field, from behind its "{" up to its "}". */
static void add_field(struct text_builder *b, const struct text *field, const struct arguments *a,
                      size_t *automatic)
{
    struct run *r = b->run;
    size_t colon = 0, name_end;
    while (colon < field->len && field->data[colon] != ':')
        colon++;
    name_end = colon;
    char conversion = 0;
    if (colon >= 2 && field->data[colon - 2] == '!') {
        conversion = field->data[colon - 1];
        name_end = colon - 2;
    }
    struct value v = field_value(r, text_part(r, field, 0, name_end), a, automatic);
    if (conversion == 'r') {
        struct text_builder text;
        builder_init(&text, r);
        value_repr(&text, v);
        v = value_text(builder_text(&text));
    } else if (conversion == 's') {
        v = value_text(value_to_text(r, v));
    } else if (conversion) {
        run_refuse(r, "format: conversion '%c' is not supported", conversion);
    }
    size_t spec = colon < field->len ? colon + 1 : field->len;
    add_formatted(b, text_part(r, field, spec, field->len), v);
}

struct value format_braces(struct run *r, const struct text *format, const struct arguments *a)
{
    struct text_builder b;
    size_t automatic = 0;
    builder_init(&b, r);
    for (size_t i = 0; i < format->len; i++) {
        char c = format->data[i];
        if (c != '{' && c != '}') {
            builder_add_part(&b, format, i, i + 1);
            continue;
        }
        if (i + 1 < format->len && format->data[i + 1] == c) {
            builder_add_part(&b, format, i, i + 1);
            i++;
            continue;
        }
        const char *end = c == '{' ? memchr(format->data + i, '}', format->len - i) : NULL;
        if (!end)
            run_refuse(r, "Single '%c' encountered in format string", c);
        size_t to = (size_t)(end - format->data);
        run_work(r, 1);
        add_field(&b, text_part(r, format, i + 1, to), a, &automatic);
        i = to;
    }
    return value_text(builder_text(&b));
}
