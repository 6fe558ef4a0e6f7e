/* Makes, measures and compares values for equality; see value.h. */
#include "jinja/value.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

struct value value_undefined(struct run *r, const char *format, ...)
{
    char text[300];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    struct undefined *u = run_alloc(r, sizeof *u);
    char *message = run_alloc(r, strlen(text) + 1);
    strcpy(message, text);
    u->message = message;
    return (struct value){.kind = VALUE_UNDEFINED, .undefined = u};
}

void value_require(struct run *r, struct value v)
{
    if (v.kind == VALUE_UNDEFINED)
        run_refuse(r, "%s", v.undefined->message);
}

struct value value_sequence(struct run *r, enum sequence_kind kind, size_t capacity)
{
    struct sequence *s = run_alloc(r, sizeof *s);
    *s = (struct sequence){.kind = kind, .capacity = capacity};
    if (capacity)
        s->items = run_alloc_array(r, capacity, sizeof *s->items);
    return (struct value){.kind = VALUE_SEQUENCE, .sequence = s};
}

void sequence_add(struct run *r, struct sequence *s, struct value v)
{
    if (s->count == s->capacity) {
        size_t capacity = s->capacity ? 2 * s->capacity : 4;
        struct value *items = run_alloc_array(r, capacity, sizeof *items);
        if (s->count)
            memcpy(items, s->items, s->count * sizeof *items);
        s->items = items;
        s->capacity = capacity;
    }
    s->items[s->count++] = v;
}

struct value value_pair(struct run *r, struct value a, struct value b)
{
    struct value pair = value_sequence(r, SEQUENCE_TUPLE, 2);
    sequence_add(r, pair.sequence, a);
    sequence_add(r, pair.sequence, b);
    return pair;
}

/* ---- Equality: dicts find their keys by it ---- */

static bool sequences_equal(struct run *r, const struct sequence *a, const struct sequence *b)
{
    if (a->kind != b->kind)
        return false;
    if (a->kind == SEQUENCE_GENERATOR || a->kind == SEQUENCE_VALUES || a->count != b->count)
        return a == b;
    run_work(r, a->count / 4);
    for (size_t i = 0; i < a->count; i++)
        if (!value_equal(r, a->items[i], b->items[i]))
            return false;
    return true;
}

static bool dicts_equal(struct run *r, const struct dict *a, const struct dict *b)
{
    if (a->count != b->count)
        return false;
    for (size_t i = 0; i < a->count; i++) {
        const struct value *other = dict_find(r, b, a->entries[i].key);
        if (!other || !value_equal(r, a->entries[i].value, *other))
            return false;
    }
    return true;
}

static bool containers_equal(struct run *r, struct value a, struct value b)
{
    run_enter(r);
    bool equal = a.kind == VALUE_DICT ? dicts_equal(r, a.dict, b.dict)
                                      : sequences_equal(r, a.sequence, b.sequence);
    run_leave(r);
    return equal;
}

bool value_equal(struct run *r, struct value a, struct value b)
{
    double x, y;
    if (a.kind == VALUE_STRING && b.kind == VALUE_STRING)
        return text_equal(a.text, b.text);
    int64_t i, j;
    if (value_is_integer(a, &i) && value_is_integer(b, &j))
        return i == j;
    if (value_is_number(a, &x) && value_is_number(b, &y))
        return x == y;
    if (a.kind != b.kind)
        return false;
    switch (a.kind) {
    case VALUE_DICT:
    case VALUE_SEQUENCE:
        return containers_equal(r, a, b);
    case VALUE_NONE:
    case VALUE_UNDEFINED:
        return true;
    case VALUE_NAMESPACE:
        return a.dict == b.dict;
    case VALUE_FUNCTION:
        return a.function == b.function;
    case VALUE_MACRO:
        return a.macro == b.macro;
    default:
        return false;
    }
}

/* ---- Dicts ---- */

struct value value_dict(struct run *r, enum value_kind kind)
{
    struct dict *d = run_alloc_array(r, 1, sizeof *d);
    return (struct value){.kind = kind, .dict = d};
}

struct value *dict_find(struct run *r, const struct dict *d, struct value key)
{
    run_work(r, d->count / 8);
    for (size_t i = 0; i < d->count; i++)
        if (value_equal(r, d->entries[i].key, key))
            return &d->entries[i].value;
    return NULL;
}

struct value *dict_find_name(struct run *r, const struct dict *d, const struct text *name)
{
    return dict_find(r, d, value_text(name));
}

void dict_add(struct run *r, struct dict *d, struct value key, struct value v)
{
    if (d->count == d->capacity) {
        size_t capacity = d->capacity ? 2 * d->capacity : 4;
        struct dict_entry *entries = run_alloc_array(r, capacity, sizeof *entries);
        if (d->count)
            memcpy(entries, d->entries, d->count * sizeof *entries);
        d->entries = entries;
        d->capacity = capacity;
    }
    d->entries[d->count++] = (struct dict_entry){key, v};
}

void value_require_hashable(struct run *r, struct value key)
{
    bool list = key.kind == VALUE_SEQUENCE && key.sequence->kind == SEQUENCE_LIST;
    bool tuple = key.kind == VALUE_SEQUENCE && key.sequence->kind == SEQUENCE_TUPLE;
    for (size_t i = 0; tuple && i < key.sequence->count; i++)
        value_require_hashable(r, key.sequence->items[i]);
    if (list || key.kind == VALUE_DICT)
        run_refuse(r, "unhashable type: '%s'", value_type_name(key));
}

void dict_set(struct run *r, struct dict *d, struct value key, struct value v)
{
    value_require_hashable(r, key);
    struct value *old = dict_find(r, d, key);
    if (old)
        *old = v;
    else
        dict_add(r, d, key, v);
}

struct value dict_view(struct run *r, const struct dict *d, enum sequence_kind kind)
{
    struct value view = value_sequence(r, kind, d->count);
    run_work(r, d->count / 8);
    for (size_t i = 0; i < d->count; i++) {
        const struct dict_entry *e = &d->entries[i];
        sequence_add(r, view.sequence,
                     kind == SEQUENCE_KEYS     ? e->key
                     : kind == SEQUENCE_VALUES ? e->value
                                               : value_pair(r, e->key, e->value));
    }
    return view;
}

/* ---- Elements ---- */

static struct value characters(struct run *r, const struct text *t)
{
    struct value list = value_sequence(r, SEQUENCE_LIST, t->chars);
    run_work(r, t->chars);
    const char *p = t->data, *end = t->data + t->len;
    while (p < end) {
        size_t from = (size_t)(p - t->data);
        text_next(&p);
        sequence_add(r, list.sequence, value_text(text_part(r, t, from, (size_t)(p - t->data))));
    }
    return list;
}

static struct sequence *take_generator(struct run *r, struct sequence *s)
{
    if (s->kind != SEQUENCE_GENERATOR)
        return s;
    struct sequence *rest = run_alloc(r, sizeof *rest);
    *rest = *s;
    rest->items = s->items ? s->items + s->taken : NULL;
    rest->count = rest->capacity = s->count - s->taken;
    rest->taken = 0;
    s->taken = s->count;
    return rest;
}

struct sequence *value_elements(struct run *r, struct value v)
{
    switch (v.kind) {
    case VALUE_UNDEFINED:
        return value_sequence(r, SEQUENCE_LIST, 0).sequence;
    case VALUE_STRING:
        return characters(r, v.text).sequence;
    case VALUE_SEQUENCE:
        return take_generator(r, v.sequence);
    case VALUE_DICT:
        return dict_view(r, v.dict, SEQUENCE_KEYS).sequence;
    default:
        run_refuse(r, "'%s' object is not iterable", value_type_name(v));
    }
}

bool value_is_iterable(struct value v)
{
    return v.kind == VALUE_UNDEFINED || v.kind == VALUE_STRING || v.kind == VALUE_SEQUENCE ||
           v.kind == VALUE_DICT;
}

bool value_length(struct value v, size_t *length)
{
    *length = 0;
    if (v.kind == VALUE_STRING)
        *length = v.text->chars;
    else if (v.kind == VALUE_SEQUENCE && v.sequence->kind != SEQUENCE_GENERATOR)
        *length = v.sequence->count;
    else if (v.kind == VALUE_DICT)
        *length = v.dict->count;
    else
        return v.kind == VALUE_UNDEFINED;
    return true;
}

bool value_truth(struct value v)
{
    size_t length;
    switch (v.kind) {
    case VALUE_MISSING:
    case VALUE_UNDEFINED:
    case VALUE_NONE:
        return false;
    case VALUE_BOOL:
        return v.truth;
    case VALUE_INT:
        return v.integer != 0;
    case VALUE_FLOAT:
        return v.real != 0;
    default:
        return !value_length(v, &length) || length > 0;
    }
}

/* ---- Types ---- */

static const char *sequence_type_name(enum sequence_kind kind)
{
    static const char *const names[] = {
        [SEQUENCE_LIST] = "list",          [SEQUENCE_TUPLE] = "tuple",
        [SEQUENCE_RANGE] = "range",        [SEQUENCE_KEYS] = "dict_keys",
        [SEQUENCE_VALUES] = "dict_values", [SEQUENCE_ITEMS] = "dict_items",
        [SEQUENCE_GENERATOR] = "generator"};
    return names[kind];
}

const char *value_type_name(struct value v)
{
    static const char *const names[] = {[VALUE_MISSING] = "missing",
                                        [VALUE_UNDEFINED] = "Undefined",
                                        [VALUE_NONE] = "NoneType",
                                        [VALUE_BOOL] = "bool",
                                        [VALUE_INT] = "int",
                                        [VALUE_FLOAT] = "float",
                                        [VALUE_STRING] = "str",
                                        [VALUE_DICT] = "dict",
                                        [VALUE_NAMESPACE] = "Namespace",
                                        [VALUE_LOOP] = "LoopContext",
                                        [VALUE_MACRO] = "Macro",
                                        [VALUE_FUNCTION] = "function"};
    return v.kind == VALUE_SEQUENCE ? sequence_type_name(v.sequence->kind) : names[v.kind];
}

bool value_is_integer(struct value v, int64_t *integer)
{
    *integer = v.kind == VALUE_BOOL ? v.truth : v.kind == VALUE_INT ? v.integer : 0;
    return v.kind == VALUE_BOOL || v.kind == VALUE_INT;
}

bool value_is_number(struct value v, double *number)
{
    int64_t integer;
    if (value_is_integer(v, &integer))
        *number = (double)integer;
    else if (v.kind == VALUE_FLOAT)
        *number = v.real;
    else
        return false;
    return true;
}
