/* Methods by type, and those of lists, tuples and dicts; see methods.h. */
#include "jinja/methods.h"

#include "jinja/arguments.h"

#include <string.h>

/* ---- Lists ---- */

static struct value list_append(struct run *r, struct value self, const struct arguments *a)
{
    struct value v;
    arguments_bind(r, "append", a, (const char *const[]){"object"}, 1, 1, &v);
    sequence_add(r, self.sequence, v);
    return value_none();
}

static struct value list_extend(struct run *r, struct value self, const struct arguments *a)
{
    struct value v;
    arguments_bind(r, "extend", a, (const char *const[]){"iterable"}, 1, 1, &v);
    const struct sequence from = *value_elements(r, v);
    run_work(r, from.count / 8);
    for (size_t i = 0; i < from.count; i++)
        sequence_add(r, self.sequence, from.items[i]);
    return value_none();
}

static struct value list_insert(struct run *r, struct value self, const struct arguments *a)
{
    struct value v[2];
    struct sequence *s = self.sequence;
    arguments_bind(r, "insert", a, (const char *const[]){"index", "object"}, 2, 2, v);
    int64_t at = argument_integer(r, v[0], 0), count = (int64_t)s->count;
    at = at < 0 ? at + count : at;
    at = at < 0 ? 0 : at > count ? count : at;
    sequence_add(r, s, v[1]);
    memmove(&s->items[at + 1], &s->items[at], (size_t)(count - at) * sizeof *s->items);
    s->items[at] = v[1];
    return value_none();
}

static struct value list_pop(struct run *r, struct value self, const struct arguments *a)
{
    struct value v;
    struct sequence *s = self.sequence;
    arguments_bind(r, "pop", a, (const char *const[]){"index"}, 1, 0, &v);
    int64_t at = argument_integer(r, v, -1);
    at += at < 0 ? (int64_t)s->count : 0;
    if (at < 0 || (uint64_t)at >= s->count)
        run_refuse(r, s->count ? "pop index out of range" : "pop from empty list");
    struct value taken = s->items[at];
    run_work(r, s->count / 64);
    memmove(&s->items[at], &s->items[at + 1], (s->count - (size_t)at - 1) * sizeof *s->items);
    s->count--;
    return taken;
}

static struct value list_index(struct run *r, struct value self, const struct arguments *a)
{
    struct value v;
    arguments_bind(r, "index", a, (const char *const[]){"value"}, 1, 1, &v);
    run_work(r, self.sequence->count / 8);
    for (size_t i = 0; i < self.sequence->count; i++)
        if (value_equal(r, self.sequence->items[i], v))
            return value_int((int64_t)i);
    run_refuse(r, "the value is not in the list");
}

static struct value list_count(struct run *r, struct value self, const struct arguments *a)
{
    struct value v;
    int64_t n = 0;
    arguments_bind(r, "count", a, (const char *const[]){"value"}, 1, 1, &v);
    run_work(r, self.sequence->count / 8);
    for (size_t i = 0; i < self.sequence->count; i++)
        n += value_equal(r, self.sequence->items[i], v);
    return value_int(n);
}

static struct value list_copy(struct run *r, struct value self, const struct arguments *a)
{
    arguments_bind(r, "copy", a, NULL, 0, 0, NULL);
    struct value copy = value_sequence(r, SEQUENCE_LIST, self.sequence->count);
    for (size_t i = 0; i < self.sequence->count; i++)
        sequence_add(r, copy.sequence, self.sequence->items[i]);
    return copy;
}

static struct value list_clear(struct run *r, struct value self, const struct arguments *a)
{
    arguments_bind(r, "clear", a, NULL, 0, 0, NULL);
    self.sequence->count = 0;
    return value_none();
}

static struct value list_reverse(struct run *r, struct value self, const struct arguments *a)
{
    struct sequence *s = self.sequence;
    arguments_bind(r, "reverse", a, NULL, 0, 0, NULL);
    for (size_t i = 0; i < s->count / 2; i++) {
        struct value v = s->items[i];
        s->items[i] = s->items[s->count - 1 - i];
        s->items[s->count - 1 - i] = v;
    }
    return value_none();
}

const struct method_entry methods_list[] = {{"append", list_append}, {"extend", list_extend},
                                            {"insert", list_insert}, {"pop", list_pop},
                                            {"index", list_index},   {"count", list_count},
                                            {"copy", list_copy},     {"reverse", list_reverse},
                                            {"clear", list_clear},   {NULL, NULL}};

const struct method_entry methods_tuple[] = {
    {"index", list_index}, {"count", list_count}, {NULL, NULL}};

/* ---- Dicts ---- */

static struct value dict_view_method(struct run *r, struct value self, const struct arguments *a,
                                     const char *name, enum sequence_kind kind)
{
    arguments_bind(r, name, a, NULL, 0, 0, NULL);
    return dict_view(r, self.dict, kind);
}

static struct value dict_keys(struct run *r, struct value self, const struct arguments *a)
{
    return dict_view_method(r, self, a, "keys", SEQUENCE_KEYS);
}

static struct value dict_values(struct run *r, struct value self, const struct arguments *a)
{
    return dict_view_method(r, self, a, "values", SEQUENCE_VALUES);
}

static struct value dict_items(struct run *r, struct value self, const struct arguments *a)
{
    return dict_view_method(r, self, a, "items", SEQUENCE_ITEMS);
}

static struct value dict_get(struct run *r, struct value self, const struct arguments *a)
{
    struct value v[2];
    arguments_bind(r, "get", a, (const char *const[]){"key", "default"}, 2, 1, v);
    value_require_hashable(r, v[0]);
    const struct value *found = dict_find(r, self.dict, v[0]);
    return found ? *found : v[1].kind == VALUE_MISSING ? value_none() : v[1];
}

static struct value dict_pop(struct run *r, struct value self, const struct arguments *a)
{
    struct value v[2];
    struct dict *d = self.dict;
    arguments_bind(r, "pop", a, (const char *const[]){"key", "default"}, 2, 1, v);
    value_require_hashable(r, v[0]);
    const struct value *found = dict_find(r, d, v[0]);
    if (!found && v[1].kind == VALUE_MISSING)
        run_refuse(r, "pop: the dict has no such key");
    if (!found)
        return v[1];
    struct value taken = *found;
    size_t at = 0;
    while (&d->entries[at].value != found)
        at++;
    memmove(&d->entries[at], &d->entries[at + 1], (d->count - at - 1) * sizeof *d->entries);
    d->count--;
    return taken;
}

static struct value dict_update(struct run *r, struct value self, const struct arguments *a)
{
    for (size_t i = 0; i < a->count; i++) {
        if (a->items[i].kind != VALUE_DICT)
            run_refuse(r, "update() takes a dict, not %s", value_type_name(a->items[i]));
        const struct dict from = *a->items[i].dict;
        for (size_t j = 0; j < from.count; j++)
            dict_set(r, self.dict, from.entries[j].key, from.entries[j].value);
    }
    for (size_t i = 0; i < a->named_count; i++)
        dict_set(r, self.dict, value_text(a->named[i].name), a->named[i].value);
    return value_none();
}

static struct value dict_setdefault(struct run *r, struct value self, const struct arguments *a)
{
    struct value v[2];
    arguments_bind(r, "setdefault", a, (const char *const[]){"key", "default"}, 2, 1, v);
    value_require_hashable(r, v[0]);
    const struct value *found = dict_find(r, self.dict, v[0]);
    if (found)
        return *found;
    v[1] = v[1].kind == VALUE_MISSING ? value_none() : v[1];
    dict_set(r, self.dict, v[0], v[1]);
    return v[1];
}

static struct value dict_copy(struct run *r, struct value self, const struct arguments *a)
{
    arguments_bind(r, "copy", a, NULL, 0, 0, NULL);
    struct value copy = value_dict(r, VALUE_DICT);
    run_work(r, self.dict->count / 8);
    for (size_t i = 0; i < self.dict->count; i++)
        dict_add(r, copy.dict, self.dict->entries[i].key, self.dict->entries[i].value);
    return copy;
}

static struct value dict_clear(struct run *r, struct value self, const struct arguments *a)
{
    arguments_bind(r, "clear", a, NULL, 0, 0, NULL);
    self.dict->count = 0;
    return value_none();
}

const struct method_entry methods_dict[] = {
    {"keys", dict_keys}, {"values", dict_values}, {"items", dict_items},
    {"get", dict_get},   {"pop", dict_pop},       {"update", dict_update},
    {"copy", dict_copy}, {"clear", dict_clear},   {"setdefault", dict_setdefault},
    {NULL, NULL}};

/* ---- By type ---- */

static const struct method_entry *in_table(const struct method_entry *table,
                                           const struct text *name)
{
    for (; table->name; table++)
        if (text_is(name, table->name))
            return table;
    return NULL;
}

const struct method_entry *method_find(struct value v, const struct text *name)
{
    if (v.kind == VALUE_DICT)
        return in_table(methods_dict, name);
    if (v.kind == VALUE_STRING) {
        const struct method_entry *found = in_table(methods_text, name);
        return found ? found : in_table(methods_text_tests, name);
    }
    if (v.kind != VALUE_SEQUENCE)
        return NULL;
    if (v.sequence->kind == SEQUENCE_LIST)
        return in_table(methods_list, name);
    return v.sequence->kind <= SEQUENCE_RANGE ? in_table(methods_tuple, name) : NULL;
}
