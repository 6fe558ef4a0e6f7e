/* See json.h. The filters tojson (as transformers defines it: without Jinja's HTML escapes) and
 * from_json, which DeepSeek's templates use. */
#include "jinja/json.h"

#include "jinja/arguments.h"
#include "jinja/filters.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#define NAMES(...) ((const char *const[]){__VA_ARGS__})

/* ---- From JSON ---- */

static struct value copy_string(struct run *r, const char *data, size_t len, bool request)
{
    char *copy = run_alloc(r, len + 1);
    memcpy(copy, data, len);
    return value_text(text_new(r, copy, len, request));
}

static bool is_word(const struct run *r, const json_t *json)
{
    for (const char *const *w = r->words; w && *w; w++)
        if (strcmp(*w, json_string_value(json)) == 0)
            return strlen(*w) == json_string_length(json);
    return false;
}

static struct value from_array(struct run *r, const json_t *json, bool request)
{
    struct value list = value_sequence(r, SEQUENCE_LIST, json_array_size(json));
    for (size_t i = 0; i < json_array_size(json); i++)
        sequence_add(r, list.sequence, value_from_json(r, json_array_get(json, i), request));
    return list;
}

static struct value from_object(struct run *r, const json_t *json, bool request)
{
    struct value dict = value_dict(r, VALUE_DICT);
    json_t *object = (json_t *)json; /* jansson's iterator takes no const */
    for (void *i = json_object_iter(object); i; i = json_object_iter_next(object, i)) {
        const char *key = json_object_iter_key(i);
        struct value v = value_from_json(r, json_object_iter_value(i), request);
        dict_add(r, dict.dict, copy_string(r, key, strlen(key), request), v);
    }
    return dict;
}

struct value value_from_json(struct run *r, const json_t *json, bool request)
{
    struct value v = value_none();
    run_enter(r);
    switch (json_typeof(json)) {
    case JSON_OBJECT:
        v = from_object(r, json, request);
        break;
    case JSON_ARRAY:
        v = from_array(r, json, request);
        break;
    case JSON_STRING:
        v = copy_string(r, json_string_value(json), json_string_length(json),
                        request && !is_word(r, json));
        break;
    case JSON_INTEGER:
        v = value_int(json_integer_value(json));
        break;
    case JSON_REAL:
        v = value_float(json_real_value(json));
        break;
    case JSON_TRUE:
    case JSON_FALSE:
        v = value_bool(json_is_true(json));
        break;
    case JSON_NULL:
        break;
    }
    run_leave(r);
    return v;
}

static struct value filter_from_json(struct run *r, struct value v, const struct arguments *a)
{
    json_error_t why;
    arguments_bind(r, "from_json", a, NULL, 0, 0, NULL);
    const struct text *t = argument_text(r, v, "from_json's value");
    bool request = t->request;
    for (size_t i = 0; t->marks && i < t->len && !request; i++)
        request = t->marks[i];
    run_work(r, t->len / 16);
    r->parsed = json_loadb(t->data, t->len, JSON_DECODE_ANY, &why);
    if (!r->parsed)
        run_refuse(r, "from_json: %s", why.text);
    struct value result = value_from_json(r, r->parsed, request);
    json_decref(r->parsed);
    r->parsed = NULL;
    return result;
}

/* ---- To JSON ---- */

struct writer {
    struct text_builder out;
    const struct text *between, *colon, *indent; /* indent: NULL: on one line */
    bool ascii, sorted;
};

static void write_escape(struct writer *w, uint32_t c, bool request)
{
    if (c >= 0x10000) {
        c -= 0x10000;
        builder_printf(&w->out, request, "\\u%04x\\u%04x", 0xd800u + (unsigned)(c >> 10),
                       0xdc00u + (unsigned)(c & 0x3ff));
    } else {
        builder_printf(&w->out, request, "\\u%04x", (unsigned)c);
    }
}

static void write_string(struct writer *w, const struct text *t)
{
    static const char from[] = "\"\\\n\r\t\f\b", to[] = "\"\\nrtfb";
    builder_add_literal(&w->out, "\"");
    size_t plain = 0; /* where the text not yet written begins */
    for (const char *p = t->data, *end = t->data + t->len; p < end;) {
        size_t at = (size_t)(p - t->data);
        uint32_t c = text_next(&p);
        const char *simple = c && c < 0x80 ? strchr(from, (int)c) : NULL;
        if (!simple && c >= 0x20 && (c < 0x80 || !w->ascii))
            continue;
        bool request = text_from_request(t, at);
        builder_add_part(&w->out, t, plain, at);
        plain = (size_t)(p - t->data);
        if (simple)
            builder_add(&w->out, (const char[]){'\\', to[simple - from]}, 2, request);
        else
            write_escape(w, c, request);
    }
    builder_add_part(&w->out, t, plain, t->len);
    builder_add_literal(&w->out, "\"");
}

static void write_float(struct writer *w, double real)
{
    if (isfinite(real))
        value_print_float(&w->out, real);
    else
        builder_add_literal(&w->out, isnan(real) ? "NaN" : real < 0 ? "-Infinity" : "Infinity");
}

static void write_line(struct writer *w, unsigned depth)
{
    if (!w->indent)
        return;
    builder_add_literal(&w->out, "\n");
    for (unsigned i = 0; i < depth; i++)
        builder_add_text(&w->out, w->indent);
}

static void write_value(struct writer *w, struct value v, unsigned depth);

static void write_list(struct writer *w, const struct sequence *s, unsigned depth)
{
    builder_add_literal(&w->out, "[");
    for (size_t i = 0; i < s->count; i++) {
        if (i)
            builder_add_text(&w->out, w->between);
        write_line(w, depth + 1);
        write_value(w, s->items[i], depth + 1);
    }
    if (s->count)
        write_line(w, depth);
    builder_add_literal(&w->out, "]");
}

static void write_key(struct writer *w, struct value key)
{
    if (key.kind == VALUE_STRING) {
        write_string(w, key.text);
        return;
    }
    if (key.kind != VALUE_NONE && key.kind != VALUE_BOOL && key.kind != VALUE_INT &&
        key.kind != VALUE_FLOAT)
        run_refuse(w->out.run, "keys must be str, int, float, bool or None, not %s",
                   value_type_name(key));
    builder_add_literal(&w->out, "\"");
    write_value(w, key, 0);
    builder_add_literal(&w->out, "\"");
}

static void write_dict(struct writer *w, const struct dict *d, unsigned depth)
{
    struct run *r = w->out.run;
    struct value items = dict_view(r, d, SEQUENCE_ITEMS);
    if (w->sorted) {
        struct value exact[] = {value_bool(true)};
        struct arguments a = {.items = exact, .count = 1};
        items =
            filter_dictsort(r, (struct value){.kind = VALUE_DICT, .dict = (struct dict *)d}, &a);
    }
    builder_add_literal(&w->out, "{");
    for (size_t i = 0; i < items.sequence->count; i++) {
        const struct value *pair = items.sequence->items[i].sequence->items;
        if (i)
            builder_add_text(&w->out, w->between);
        write_line(w, depth + 1);
        write_key(w, pair[0]);
        builder_add_text(&w->out, w->colon);
        write_value(w, pair[1], depth + 1);
    }
    if (d->count)
        write_line(w, depth);
    builder_add_literal(&w->out, "}");
}

static void write_value(struct writer *w, struct value v, unsigned depth)
{
    struct run *r = w->out.run;
    run_enter(r);
    run_work(r, 1);
    if (v.kind == VALUE_NONE)
        builder_add_literal(&w->out, "null");
    else if (v.kind == VALUE_BOOL)
        builder_add_literal(&w->out, v.truth ? "true" : "false");
    else if (v.kind == VALUE_INT)
        builder_printf(&w->out, false, "%" PRId64, v.integer);
    else if (v.kind == VALUE_FLOAT)
        write_float(w, v.real);
    else if (v.kind == VALUE_STRING)
        write_string(w, v.text);
    else if (v.kind == VALUE_DICT)
        write_dict(w, v.dict, depth);
    else if (v.kind == VALUE_SEQUENCE && v.sequence->kind <= SEQUENCE_TUPLE)
        write_list(w, v.sequence, depth);
    else
        run_refuse(r, "Object of type %s is not JSON serializable", value_type_name(v));
    run_leave(r);
}

static void set_separators(struct run *r, struct writer *w, struct value separators)
{
    w->between = text_from(r, w->indent ? "," : ", ");
    w->colon = text_from(r, ": ");
    if (separators.kind == VALUE_MISSING || separators.kind == VALUE_NONE)
        return;
    const struct sequence *s = value_elements(r, separators);
    if (s->count != 2)
        run_refuse(r, "tojson: separators takes two strings");
    w->between = argument_text(r, s->items[0], "a separator");
    w->colon = argument_text(r, s->items[1], "a separator");
}

static const struct text *indent_text(struct run *r, struct value indent)
{
    static const char spaces[] = "                                ";
    if (indent.kind == VALUE_MISSING || indent.kind == VALUE_NONE)
        return NULL;
    if (indent.kind == VALUE_STRING)
        return indent.text;
    int64_t n = argument_integer(r, indent, 0);
    n = n < 0 ? 0 : n > (int64_t)sizeof spaces - 1 ? (int64_t)sizeof spaces - 1 : n;
    return text_new(r, spaces, (size_t)n, false);
}

static struct value filter_tojson(struct run *r, struct value v, const struct arguments *a)
{
    struct value argument[4];
    struct writer w = {.between = NULL};
    arguments_bind(r, "tojson", a, NAMES("ensure_ascii", "indent", "separators", "sort_keys"), 4, 0,
                   argument);
    builder_init(&w.out, r);
    w.ascii = value_truth(argument[0]);
    w.indent = indent_text(r, argument[1]);
    w.sorted = value_truth(argument[3]);
    set_separators(r, &w, argument[2]);
    write_value(&w, v, 0);
    return value_text(builder_text(&w.out));
}

const struct filter_entry filters_json[] = {
    {"tojson", filter_tojson},
    {"from_json", filter_from_json},
    {NULL, NULL},
};
