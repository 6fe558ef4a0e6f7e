/* Filters that make strings and numbers; see filters.h. As in Jinja they take any value and use its
 * str(). */
#include "jinja/filters.h"

#include "jinja/arguments.h"
#include "jinja/format.h"
#include "jinja/interpreter.h"
#include "jinja/methods.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAMES(...) ((const char *const[]){__VA_ARGS__})

static const struct text *soft(struct run *r, struct value v)
{
    return value_to_text(r, v);
}

/* ---- Case ---- */

static struct value filter_upper(struct run *r, struct value v, const struct arguments *a)
{
    arguments_bind(r, "upper", a, NULL, 0, 0, NULL);
    return text_change_case(r, soft(r, v), CASE_UPPER);
}

static struct value filter_lower(struct run *r, struct value v, const struct arguments *a)
{
    arguments_bind(r, "lower", a, NULL, 0, 0, NULL);
    return text_change_case(r, soft(r, v), CASE_LOWER);
}

static struct value filter_capitalize(struct run *r, struct value v, const struct arguments *a)
{
    arguments_bind(r, "capitalize", a, NULL, 0, 0, NULL);
    return text_change_case(r, soft(r, v), CASE_CAPITALIZE);
}

/* Words begin behind white space and -({[<, unlike in str.title. */
static struct value filter_title(struct run *r, struct value v, const struct arguments *a)
{
    const struct text *t = soft(r, v);
    struct text_builder b;
    arguments_bind(r, "title", a, NULL, 0, 0, NULL);
    builder_init(&b, r);
    size_t from = 0;
    for (const char *p = t->data, *end = t->data + t->len; p < end;) {
        uint32_t c = text_next(&p);
        bool ends_word = text_is_space(c) || (c < 0x80 && c && strchr("-({[<", (int)c));
        size_t at = (size_t)(p - t->data);
        if (!ends_word && p < end)
            continue;
        run_work(r, 1);
        builder_add_text(&b, text_change_case(r, text_part(r, t, from, at), CASE_CAPITALIZE).text);
        from = at;
    }
    return value_text(builder_text(&b));
}

/* ---- Text ---- */

static struct value filter_string(struct run *r, struct value v, const struct arguments *a)
{
    arguments_bind(r, "string", a, NULL, 0, 0, NULL);
    return value_text(soft(r, v));
}

static struct value filter_trim(struct run *r, struct value v, const struct arguments *a)
{
    struct value chars;
    arguments_bind(r, "trim", a, NAMES("chars"), 1, 0, &chars);
    return text_strip(r, soft(r, v), chars, true, true);
}

static struct value filter_replace(struct run *r, struct value v, const struct arguments *a)
{
    struct value argument[3];
    arguments_bind(r, "replace", a, NAMES("old", "new", "count"), 3, 2, argument);
    int64_t most = argument[2].kind == VALUE_NONE ? -1 : argument_integer(r, argument[2], -1);
    return text_replace(r, soft(r, v), soft(r, argument[0]), soft(r, argument[1]),
                        most < 0 ? -1 : most);
}

static struct value mark_safe(struct run *r, const struct text *t)
{
    struct text *marked = run_alloc(r, sizeof *marked);
    *marked = *t;
    marked->markup = true;
    return value_text(marked);
}

static struct value filter_safe(struct run *r, struct value v, const struct arguments *a)
{
    arguments_bind(r, "safe", a, NULL, 0, 0, NULL);
    return mark_safe(r, soft(r, v));
}

static struct value filter_escape(struct run *r, struct value v, const struct arguments *a)
{
    struct text_builder b;
    const struct text *t = soft(r, v);
    arguments_bind(r, "escape", a, NULL, 0, 0, NULL);
    if (t->markup)
        return v;
    builder_init(&b, r);
    format_escape(&b, t);
    return mark_safe(r, builder_text(&b));
}

static struct value filter_format(struct run *r, struct value v, const struct arguments *a)
{
    struct value items;
    if (a->count && a->named_count)
        run_refuse(r, "can't handle positional and keyword arguments at the same time");
    if (a->named_count) {
        items = value_dict(r, VALUE_DICT);
        for (size_t i = 0; i < a->named_count; i++)
            dict_set(r, items.dict, value_text(a->named[i].name), a->named[i].value);
    } else {
        items = value_sequence(r, SEQUENCE_TUPLE, a->count);
        for (size_t i = 0; i < a->count; i++)
            sequence_add(r, items.sequence, a->items[i]);
    }
    return format_percent(r, soft(r, v), items);
}

/* Calls a method of strings on str(v). */
static struct value call_method(struct run *r, const struct text *t, const char *name,
                                const struct value *items, size_t count)
{
    struct arguments a = {.items = items, .count = count};
    return method_find(value_text(t), text_from(r, name))->call(r, value_text(t), &a);
}

static struct value filter_center(struct run *r, struct value v, const struct arguments *a)
{
    struct value width;
    arguments_bind(r, "center", a, NAMES("width"), 1, 0, &width);
    width = value_int(argument_integer(r, width, 80));
    return call_method(r, soft(r, v), "center", &width, 1);
}

static const struct text *indention(struct run *r, struct value width)
{
    struct text_builder b;
    if (width.kind == VALUE_STRING)
        return width.text;
    builder_init(&b, r);
    int64_t n = argument_integer(r, width, 4);
    run_work(r, n > 0 ? (uint64_t)n : 0);
    for (int64_t i = 0; i < n; i++)
        builder_add_literal(&b, " ");
    return builder_text(&b);
}

static struct value filter_indent(struct run *r, struct value v, const struct arguments *a)
{
    struct value argument[3];
    struct text_builder b;
    arguments_bind(r, "indent", a, NAMES("width", "first", "blank"), 3, 0, argument);
    const struct text *space = indention(r, argument[0]);
    struct text_builder whole; /* the newline makes the lines those that Jinja sees */
    builder_init(&whole, r);
    builder_add_text(&whole, argument_text(r, v, "indent's value"));
    builder_add_literal(&whole, "\n");
    const struct sequence *lines =
        call_method(r, builder_text(&whole), "splitlines", NULL, 0).sequence;
    builder_init(&b, r);
    if (value_truth(argument[1]))
        builder_add_text(&b, space);
    for (size_t i = 0; i < lines->count; i++) {
        const struct text *line = lines->items[i].text;
        if (i)
            builder_add_literal(&b, "\n");
        if (i && (line->len || value_truth(argument[2])))
            builder_add_text(&b, space);
        builder_add_text(&b, line);
    }
    return value_text(builder_text(&b));
}

static struct value filter_truncate(struct run *r, struct value v, const struct arguments *a)
{
    struct value argument[4];
    struct text_builder b;
    arguments_bind(r, "truncate", a, NAMES("length", "killwords", "end", "leeway"), 4, 0, argument);
    size_t chars;
    const struct text *end =
        argument[2].kind == VALUE_MISSING ? text_from(r, "...") : soft(r, argument[2]);
    int64_t length = argument_integer(r, argument[0], 255);
    int64_t leeway = argument[3].kind == VALUE_NONE ? 5 : argument_integer(r, argument[3], 5);
    if (length < (int64_t)end->chars || leeway < 0)
        run_refuse(r, "truncate: length is below that of the end, or leeway below 0");
    if (!value_length(v, &chars))
        run_refuse(r, "object of type '%s' has no len()", value_type_name(v));
    if ((int64_t)chars <= length || (int64_t)chars - length <= leeway)
        return v;
    const struct text *t = argument_text(r, v, "truncate's value");
    t = text_part(r, t, 0, text_offset(t, (size_t)length - end->chars));
    size_t space = text_find_last(t, text_from(r, " "), t->len);
    builder_init(&b, r);
    builder_add_part(&b, t, 0, value_truth(argument[1]) || space == SIZE_MAX ? t->len : space);
    builder_add_text(&b, end);
    return value_text(builder_text(&b));
}

static struct value filter_wordcount(struct run *r, struct value v, const struct arguments *a)
{
    const struct text *t = soft(r, v);
    int64_t words = 0;
    bool inside = false;
    arguments_bind(r, "wordcount", a, NULL, 0, 0, NULL);
    run_work(r, t->len / 16);
    for (size_t i = 0; i < t->len; i++) {
        unsigned char c = (unsigned char)t->data[i];
        bool word = isalnum(c) || c == '_' || c >= 0x80;
        words += word && !inside;
        inside = word;
    }
    return value_int(words);
}

static struct value filter_urlencode(struct run *r, struct value v, const struct arguments *a)
{
    const struct text *t = argument_text(r, v, "urlencode's value");
    struct text_builder b;
    arguments_bind(r, "urlencode", a, NULL, 0, 0, NULL);
    builder_init(&b, r);
    for (size_t i = 0; i < t->len; i++) {
        unsigned char c = (unsigned char)t->data[i];
        if (c < 0x80 && (isalnum(c) || (c && strchr("_.-~/", c))))
            builder_add_part(&b, t, i, i + 1);
        else
            builder_printf(&b, text_from_request(t, i), "%%%02X", c);
    }
    return value_text(builder_text(&b));
}

/* ---- Numbers ---- */

static const char *number_text(struct run *r, const struct text *t, char buffer[400])
{
    struct text trimmed = *t;
    size_t from = text_skip_space(t), to = text_trim_end(&trimmed), n = 0;
    for (size_t i = from; i < to && n < 398; i++) {
        bool joined = t->data[i] == '_' && i > from && isxdigit((unsigned char)t->data[i - 1]) &&
                      i + 1 < to && isxdigit((unsigned char)t->data[i + 1]);
        if (!joined)
            buffer[n++] = t->data[i];
    }
    buffer[n] = '\0';
    return from >= to || strlen(buffer) != n ? NULL : buffer;
}

static bool parse_integer(struct run *r, const struct text *t, int64_t base, int64_t *integer)
{
    char buffer[400], *end;
    const char *p = number_text(r, t, buffer);
    if (!p || (base != 0 && (base < 2 || base > 36)))
        return false;
    bool negative = *p == '-';
    p += negative || *p == '+';
    if (p[0] == '0' && ((base == 8 && (p[1] | 0x20) == 'o') || (base == 2 && (p[1] | 0x20) == 'b')))
        p += 2;
    if (!isalnum((unsigned char)*p))
        return false;
    errno = 0;
    long long n = strtoll(p, &end, (int)base);
    if (*end)
        return false;
    if (errno)
        run_refuse(r, "an integer is too large: the engine has 64 bits");
    *integer = negative ? -n : n;
    return true;
}

static bool parse_real(struct run *r, struct value v, double *real)
{
    char buffer[400], *end;
    if (value_is_number(v, real))
        return true;
    if (v.kind != VALUE_STRING)
        return false;
    const char *p = number_text(r, v.text, buffer);
    if (!p || strpbrk(p, "xX(") || isspace((unsigned char)*p))
        return false;
    *real = strtod(p, &end);
    return *end == '\0';
}

static struct value filter_int(struct run *r, struct value v, const struct arguments *a)
{
    struct value argument[2];
    int64_t integer;
    double real;
    value_require(r, v);
    arguments_bind(r, "int", a, NAMES("default", "base"), 2, 0, argument);
    int64_t base = argument_integer(r, argument[1], 10);
    if (value_is_integer(v, &integer))
        return value_int(integer);
    if (v.kind == VALUE_STRING && parse_integer(r, v.text, base, &integer))
        return value_int(integer);
    if (parse_real(r, v, &real) && isfinite(real)) {
        if (fabs(real) >= 9.2e18)
            run_refuse(r, "an integer is too large: the engine has 64 bits");
        return value_int((int64_t)real);
    }
    return argument[0].kind == VALUE_MISSING ? value_int(0) : argument[0];
}

static struct value filter_float(struct run *r, struct value v, const struct arguments *a)
{
    struct value otherwise;
    double real;
    value_require(r, v);
    arguments_bind(r, "float", a, NAMES("default"), 1, 0, &otherwise);
    if (parse_real(r, v, &real))
        return value_float(real);
    return otherwise.kind == VALUE_MISSING ? value_float(0) : otherwise;
}

static struct value filter_abs(struct run *r, struct value v, const struct arguments *a)
{
    double number;
    arguments_bind(r, "abs", a, NULL, 0, 0, NULL);
    value_require(r, v);
    if (!value_is_number(v, &number))
        run_refuse(r, "bad operand type for abs(): '%s'", value_type_name(v));
    return negate(r, v, number < 0 || (v.kind == VALUE_FLOAT && signbit(number)));
}

static double round_to(double number, int64_t places)
{
    char text[400];
    if (places >= 0) { /* printf rounds the exact value, half to even, as Python does */
        snprintf(text, sizeof text, "%.*f", places > 300 ? 300 : (int)places, number);
        return fabs(number) < 1e22 ? strtod(text, NULL) : number;
    }
    double unit = pow(10, (double)-places);
    return rint(number / unit) * unit;
}

static struct value filter_round(struct run *r, struct value v, const struct arguments *a)
{
    struct value argument[2];
    double number;
    arguments_bind(r, "round", a, NAMES("precision", "method"), 2, 0, argument);
    int64_t places = argument_integer(r, argument[0], 0);
    value_require(r, v);
    if (!value_is_number(v, &number))
        run_refuse(r, "type %s doesn't define __round__ method", value_type_name(v));
    if (argument[1].kind == VALUE_MISSING ||
        text_is(argument_text(r, argument[1], "the method"), "common")) {
        int64_t integer;
        if (value_is_integer(v, &integer) && places >= 0)
            return value_int(integer);
        double rounded = round_to(number, places);
        return v.kind == VALUE_FLOAT ? value_float(rounded) : value_int((int64_t)rounded);
    }
    double unit = pow(10, (double)places);
    if (text_is(argument[1].text, "ceil"))
        return value_float(ceil(number * unit) / unit);
    if (text_is(argument[1].text, "floor"))
        return value_float(floor(number * unit) / unit);
    run_refuse(r, "method must be common, ceil or floor");
}

const struct filter_entry filters_text[] = {
    {"upper", filter_upper},
    {"lower", filter_lower},
    {"capitalize", filter_capitalize},
    {"title", filter_title},
    {"string", filter_string},
    {"trim", filter_trim},
    {"replace", filter_replace},
    {"safe", filter_safe},
    {"escape", filter_escape},
    {"e", filter_escape},
    {"format", filter_format},
    {"center", filter_center},
    {"indent", filter_indent},
    {"truncate", filter_truncate},
    {"wordcount", filter_wordcount},
    {"urlencode", filter_urlencode},
    {"int", filter_int},
    {"float", filter_float},
    {"abs", filter_abs},
    {"round", filter_round},
    {NULL, NULL},
};
