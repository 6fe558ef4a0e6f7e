/* Types of arguments. */
#include "toolcall/argument_types.h"

#include "toolcall/json_scan.h"
#include "toolcall/literal.h"

#include <string.h>

enum { SCHEMA_DEPTH_MAX = 16 };

static const struct {
    const char *name;
    unsigned types;
} names[] = {
    {"string", ARGUMENT_STRING},   {"number", ARGUMENT_NUMBER}, {"integer", ARGUMENT_NUMBER},
    {"boolean", ARGUMENT_BOOLEAN}, {"null", ARGUMENT_NULL},     {"array", ARGUMENT_ARRAY},
    {"object", ARGUMENT_OBJECT},
};

static unsigned named(const json_t *name)
{
    const char *text = json_string_value(name);
    for (size_t i = 0; text && i < sizeof names / sizeof names[0]; i++)
        if (strcmp(text, names[i].name) == 0)
            return names[i].types;
    return ARGUMENT_ANY;
}

static unsigned of_value(const json_t *v)
{
    switch (json_typeof(v)) {
    case JSON_STRING:
        return ARGUMENT_STRING;
    case JSON_INTEGER:
    case JSON_REAL:
        return ARGUMENT_NUMBER;
    case JSON_TRUE:
    case JSON_FALSE:
        return ARGUMENT_BOOLEAN;
    case JSON_ARRAY:
        return ARGUMENT_ARRAY;
    case JSON_OBJECT:
        return ARGUMENT_OBJECT;
    default:
        return ARGUMENT_NULL;
    }
}

static unsigned types_at(const json_t *root, const json_t *schema, unsigned depth);

static unsigned any_of(const json_t *root, const json_t *list, unsigned depth)
{
    unsigned types = 0;
    size_t i;
    json_t *branch;
    json_array_foreach(list, i, branch) types |= types_at(root, branch, depth);
    return types ? types : ARGUMENT_ANY;
}

/* A local JSON pointer: "#/$defs/name". Escapes (~0, ~1, %) are not followed: NULL. */
static const json_t *resolve(const json_t *root, const char *ref)
{
    if (ref[0] != '#' || strpbrk(ref, "~%"))
        return NULL;
    const json_t *at = root;
    const char *part = ref + 1;
    while (at && *part == '/') {
        size_t len = strcspn(++part, "/");
        at = json_object_getn(at, part, len);
        part += len;
    }
    return *part ? NULL : at;
}

static unsigned types_at(const json_t *root, const json_t *schema, unsigned depth)
{
    if (!json_is_object(schema) || depth == SCHEMA_DEPTH_MAX)
        return ARGUMENT_ANY;
    depth++;
    unsigned types = ARGUMENT_ANY;
    const json_t *v = json_object_get(schema, "type");
    size_t i;
    json_t *element;
    if (json_is_string(v)) {
        types &= named(v);
    } else if (json_is_array(v) && json_array_size(v) > 0) {
        unsigned listed = 0;
        json_array_foreach(v, i, element) listed |= named(element);
        types &= listed;
    }
    if ((v = json_object_get(schema, "const")))
        types &= of_value(v);
    if (json_is_array(v = json_object_get(schema, "enum")) && json_array_size(v) > 0) {
        unsigned listed = 0;
        json_array_foreach(v, i, element) listed |= of_value(element);
        types &= listed;
    }
    if (json_is_array(v = json_object_get(schema, "anyOf")))
        types &= any_of(root, v, depth);
    if (json_is_array(v = json_object_get(schema, "oneOf")))
        types &= any_of(root, v, depth);
    json_array_foreach(json_object_get(schema, "allOf"), i, element) types &=
        types_at(root, element, depth);
    if (json_is_string(v = json_object_get(schema, "$ref")))
        types &= types_at(root, resolve(root, json_string_value(v)), depth);
    return types;
}

unsigned schema_types(const json_t *root, const json_t *schema)
{
    return types_at(root, schema, 0);
}

unsigned argument_types(const json_t *parameters, const char *key)
{
    const json_t *own = json_object_get(json_object_get(parameters, "properties"), key);
    return schema_types(parameters,
                        own ? own : json_object_get(parameters, "additionalProperties"));
}

static unsigned of_text(char c)
{
    switch (c) {
    case '"':
        return ARGUMENT_STRING;
    case '{':
        return ARGUMENT_OBJECT;
    case '[':
        return ARGUMENT_ARRAY;
    case 't':
    case 'f':
        return ARGUMENT_BOOLEAN;
    case 'n':
        return ARGUMENT_NULL;
    default:
        return ARGUMENT_NUMBER;
    }
}

/* The type of a Python literal that is no JSON: templates of some families print such. */
static unsigned of_python(const char *text, size_t len)
{
    switch (text[0]) {
    case '[':
    case '(':
        return ARGUMENT_ARRAY;
    case '{':
        return ARGUMENT_OBJECT;
    case 'T':
    case 'F':
        return len >= 4 ? ARGUMENT_BOOLEAN : 0;
    case 'N':
        return len == 4 ? ARGUMENT_NULL : 0;
    default:
        return 0;
    }
}

void argument_write(struct strbuf *out, unsigned types, const char *text, size_t len)
{
    size_t from = 0, to = len;
    while (from < to && json_space(text[from]))
        from++;
    while (to > from && json_space(text[to - 1]))
        to--;
    const char *bare = text + from;
    size_t n = to - from;
    bool string = types & ARGUMENT_STRING, any = types == ARGUMENT_ANY;
    if (n > 0 && types & of_text(bare[0]) & ~(unsigned)ARGUMENT_STRING && json_scan_whole(bare, n))
        strbuf_append(out, bare, n);
    else if (!string && n > 0 && bare[0] == '"' && json_scan_whole(bare, n))
        strbuf_append(out, bare, n); /* a string where none is allowed: not quoted twice */
    else if (n == 0 || any || !(types & of_python(bare, n)) || !literal_python_value(bare, n, out))
        strbuf_json_string(out, text, len);
}
