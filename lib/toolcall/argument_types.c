/* Types of arguments. */
#include "toolcall/argument_types.h"

#include "base/json_space.h"
#include "toolcall/json_scan.h"
#include "toolcall/literal.h"
#include "toolcall/surrogates.h"

#include <string.h>

/* $ref and anyOf in turn multiply, so the schemas that one question may read are counted. */
enum { SCHEMA_DEPTH_MAX = 16, SCHEMAS_MAX = 1000, ELEMENTS_PER_SCHEMA = 64 };

struct walk {
    const json_t *root;
    size_t left; /* of SCHEMAS_MAX; 0: too many */
};

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

/* False: there are too many. */
static bool count(struct walk *w, size_t schemas)
{
    w->left -= schemas < w->left ? schemas : w->left;
    return w->left > 0;
}

/* What the elements of a list allow together; an empty one, and no list: anything. */
static unsigned listed(struct walk *w, const json_t *list, unsigned (*of)(const json_t *))
{
    unsigned types = 0;
    size_t i;
    json_t *element;
    if (!count(w, json_array_size(list) / ELEMENTS_PER_SCHEMA))
        return ARGUMENT_ANY;
    json_array_foreach(list, i, element) types |= of(element);
    return types ? types : ARGUMENT_ANY;
}

static unsigned types_at(struct walk *w, const json_t *schema, unsigned depth);

static unsigned any_of(struct walk *w, const json_t *list, unsigned depth)
{
    unsigned types = 0;
    size_t i;
    json_t *branch;
    json_array_foreach(list, i, branch) types |= types_at(w, branch, depth);
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

static unsigned types_at(struct walk *w, const json_t *schema, unsigned depth)
{
    if (!json_is_object(schema) || depth == SCHEMA_DEPTH_MAX || !count(w, 1))
        return ARGUMENT_ANY;
    depth++;
    unsigned types = ARGUMENT_ANY;
    const json_t *v = json_object_get(schema, "type");
    size_t i;
    json_t *element;
    types &= json_is_string(v) ? named(v) : listed(w, v, named);
    if ((v = json_object_get(schema, "const")))
        types &= of_value(v);
    types &= listed(w, json_object_get(schema, "enum"), of_value);
    types &= any_of(w, json_object_get(schema, "anyOf"), depth);
    types &= any_of(w, json_object_get(schema, "oneOf"), depth);
    json_array_foreach(json_object_get(schema, "allOf"), i, element) types &=
        types_at(w, element, depth);
    if (json_is_string(v = json_object_get(schema, "$ref")))
        types &= types_at(w, resolve(w->root, json_string_value(v)), depth);
    return json_is_true(json_object_get(schema, "nullable")) ? types | ARGUMENT_NULL : types;
}

unsigned schema_types(const json_t *root, const json_t *schema)
{
    struct walk w = {root, SCHEMAS_MAX};
    unsigned types = types_at(&w, schema, 0);
    return w.left > 0 ? types : ARGUMENT_ANY;
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
    size_t n = len;
    const char *bare = json_space_trim(text, &n);
    bool string = types & ARGUMENT_STRING, any = types == ARGUMENT_ANY;
    if (n > 0 && types & of_text(bare[0]) & ~(unsigned)ARGUMENT_STRING && json_scan_whole(bare, n))
        surrogates_append(&(struct surrogates){.n = 0}, out, bare, n);
    else if (!string && n > 0 && bare[0] == '"' && json_scan_whole(bare, n))
        surrogates_append(&(struct surrogates){.n = 0}, out, bare,
                          n); /* a string where none is allowed: not quoted twice */
    else if (n == 0 || any || !(types & of_python(bare, n)) || !literal_python_value(bare, n, out))
        strbuf_json_string(out, text, len);
}
