/* Strips annotations: those of a large set of tools are most of its bytes. */
#include "toolcall/schema_strip.h"

#include "base/word_list.h"

#include <string.h>

enum { KEYWORD_BYTES = 128 };

bool schema_is_annotation(const char *keyword)
{
    static const char *const names[] = {
        "title",    "description", "default",   "examples",     "example",
        "$comment", "readOnly",    "writeOnly", "externalDocs", "discriminator",
        "xml",      "deprecated",  NULL};
    return word_list_has(names, keyword) || strncmp(keyword, "x-", 2) == 0;
}

/* What a keyword's value is. */
enum content { CONTENT_OTHER, CONTENT_SCHEMA, CONTENT_LIST, CONTENT_MAP };

static enum content content_of(const char *keyword, const json_t *value)
{
    static const char *const maps[] = {"properties", "patternProperties", "$defs", "definitions",
                                       NULL};
    static const char *const lists[] = {"allOf", "anyOf", "oneOf", "prefixItems", NULL};
    static const char *const schemas[] = {"items", "additionalProperties", "propertyNames", NULL};
    if (json_is_object(value) && word_list_has(maps, keyword))
        return CONTENT_MAP;
    if (json_is_object(value) && word_list_has(schemas, keyword))
        return CONTENT_SCHEMA;
    return json_is_array(value) && word_list_has(lists, keyword) ? CONTENT_LIST : CONTENT_OTHER;
}

/* ---- References ---- */

/* The annotations that references lead into, as the keys of an object. */
struct strip {
    json_t *kept;
    bool all_own; /* a reference with escapes may lead into any name of the author's */
    bool failed;
};

static void keep_path(struct strip *s, const char *ref)
{
    s->all_own = s->all_own || strpbrk(ref, "~%");
    for (const char *part = strchr(ref, '/'); part; part = strchr(part, '/')) {
        size_t n = strcspn(++part, "/");
        char keyword[KEYWORD_BYTES];
        if (n >= sizeof keyword)
            continue;
        memcpy(keyword, part, n);
        keyword[n] = '\0';
        if (schema_is_annotation(keyword) && json_object_set_new(s->kept, keyword, json_true()))
            s->failed = true;
    }
}

static void find_references(struct strip *s, const json_t *value)
{
    const char *key;
    json_t *element;
    size_t i;
    json_array_foreach(value, i, element) find_references(s, element);
    json_object_foreach((json_t *)value, key, element)
    {
        if (json_is_string(element) && strcmp(key, "$ref") == 0)
            keep_path(s, json_string_value(element));
        else
            find_references(s, element);
    }
}

static bool is_stripped(const struct strip *s, const char *keyword)
{
    bool own = strncmp(keyword, "x-", 2) == 0;
    return schema_is_annotation(keyword) && !json_object_get(s->kept, keyword) &&
           !(own && s->all_own);
}

/* ---- Copies ---- */

static json_t *strip_schema(const struct strip *s, const json_t *schema);

static json_t *strip_list(const struct strip *s, const json_t *list)
{
    size_t i;
    json_t *schema, *out = json_array();
    json_array_foreach(list, i, schema)
    {
        if (out && json_array_append_new(out, strip_schema(s, schema))) {
            json_decref(out);
            out = NULL;
        }
    }
    return out;
}

static json_t *strip_map(const struct strip *s, const json_t *map)
{
    const char *key;
    json_t *schema, *out = json_object();
    json_object_foreach((json_t *)map, key, schema)
    {
        if (out && json_object_set_new(out, key, strip_schema(s, schema))) {
            json_decref(out);
            out = NULL;
        }
    }
    return out;
}

static json_t *strip_value(const struct strip *s, const char *keyword, json_t *value)
{
    switch (content_of(keyword, value)) {
    case CONTENT_SCHEMA:
        return strip_schema(s, value);
    case CONTENT_LIST:
        return strip_list(s, value);
    case CONTENT_MAP:
        return strip_map(s, value);
    default:
        return json_incref(value);
    }
}

static json_t *strip_schema(const struct strip *s, const json_t *schema)
{
    const char *key;
    json_t *value, *out;
    if (!json_is_object(schema))
        return json_incref((json_t *)schema);
    out = json_object();
    json_object_foreach((json_t *)schema, key, value)
    {
        if (!out || is_stripped(s, key))
            continue;
        if (json_object_set_new(out, key, strip_value(s, key, value))) {
            json_decref(out);
            out = NULL;
        }
    }
    return out;
}

json_t *schema_strip(const json_t *document)
{
    struct strip s = {.kept = json_object()};
    json_t *out = NULL;
    s.failed = !s.kept;
    if (!s.failed)
        find_references(&s, document);
    if (!s.failed)
        out = strip_schema(&s, document);
    json_decref(s.kept);
    return out;
}
